package apiproblem

import "github.com/tranche-dev/tranche/plan"

// Or returns the problems of an error, or the error itself if it has none. Such an error is
// not about the object.
func Or(ps plan.Problems, err error) error {
	if len(ps) > 0 {
		return ps
	}
	return err
}
