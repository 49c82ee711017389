package apiproblem

import (
	"errors"

	"github.com/tranche-dev/tranche/plan"
	"github.com/tranche-dev/tranche/plan/v1alpha1"
)

// Or returns the problems of an error, or the error itself if it has none. Such an error is
// not about the object.
func Or(ps plan.Problems, err error) error {
	if len(ps) > 0 {
		return ps
	}
	return err
}

// OfSource returns the problems that an error has, or one about a GitSource as a whole.
func OfSource(gs *v1alpha1.GitSource, err error) plan.Problems {
	ps := plan.ProblemsOf(err)
	if err != nil && len(ps) == 0 {
		ps = plan.Problems{{
			Reason: v1alpha1.ReasonApplyFailed, Where: "GitSource " + gs.Namespace + "/" + gs.Name,
			Err: errors.New(plan.OneLine(err.Error())), Retry: true,
		}}
	}
	return ps
}
