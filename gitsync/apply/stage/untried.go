package stage

import (
	"context"
	"errors"
	"net/http"
	"slices"

	apierrors "k8s.io/apimachinery/pkg/api/errors"

	"github.com/tranche-dev/tranche/gitsync/apiproblem"
	"github.com/tranche-dev/tranche/gitsync/apply"
)

// The object that is applied first needs no dry run if it does not exist. All others have
// passed theirs by then, and the inventory is recorded. If the API server refuses it, nothing
// of the commit is in the cluster, and a dry run says why.

// leaveFirst leaves out the dry run of the object that is applied first, and returns it. It is
// nil if that object has to be tried.
func (s *Stage) leaveFirst() *apply.Target {
	prerequisite := func(t *apply.Target) bool { return t.Prerequisite } // they go before all others
	if len(s.Targets) == 0 || !s.Targets[0].MayCreateUntried() || slices.ContainsFunc(s.Targets, prerequisite) {
		return nil
	}
	s.Targets[0].Untried = true
	return s.Targets[0]
}

// createUntried creates the object that was left out. If it exists, or is refused, it is tried as
// all others are.
func (s *Stage) createUntried(ctx context.Context, t *apply.Target) (created bool, err error) {
	if !t.Untried {
		return false, nil
	}
	t.Untried = false
	refusal := s.Applier.CreateUntried(ctx, t)
	if refusal == nil {
		s.Cache.AddApplied(s.Applier, t)
		return true, s.report(t, nil, apply.Created)
	}
	ps, err := s.dryRunOne(ctx, t)
	s.result.Refused = len(ps) > 0 && isRefusal(refusal)
	return false, apiproblem.Or(ps, err)
}

// isRefusal reports whether the API server has answered that it does not write an object. An
// answer that was lost, or that tells of a failure of the server, leaves it open.
func isRefusal(err error) bool {
	status, ok := errors.AsType[*apierrors.StatusError](err)
	if !ok {
		return false
	}
	code := status.Status().Code
	return code >= http.StatusBadRequest && code < http.StatusInternalServerError && code != http.StatusRequestTimeout
}
