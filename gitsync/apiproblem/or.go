package apiproblem

import "github.com/tranche-dev/tranche/plan"

func Or(ps plan.Problems, err error) error {
	if len(ps) > 0 {
		return ps
	}
	return err
}
