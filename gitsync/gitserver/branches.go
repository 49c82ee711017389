package gitserver

import (
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/go-git/go-git/v5/plumbing"
	"github.com/go-git/go-git/v5/plumbing/protocol/packp/capability"

	"github.com/tranche-dev/tranche/plan"
	"github.com/tranche-dev/tranche/plan/v1alpha1"
)

// noBranch returns a problem that says that a branch is not there, and which are. The
// default branch is first, since a branch is most often renamed to that.
func noBranch(s *Session, branch string) *plan.Problem {
	p := &plan.Problem{
		Reason: v1alpha1.ReasonBranchNotFound, Where: s.remote.String(), Err: fmt.Errorf("there is no branch %s", branch),
		Hint: "push it, or set spec.ref.branch to one that is there",
	}
	there := slices.Sorted(maps.Keys(Branches(s)))
	if len(there) == 0 {
		p.Err = errors.New(p.Err.Error() + ", nor any other")
		return p
	}
	if i := slices.Index(there, defaultBranch(s)); i >= 0 {
		first := there[i] + ", the default one"
		there = append([]string{first}, slices.Delete(there, i, i+1)...)
	}
	p.Err = fmt.Errorf("%w; there is %s", p.Err, plan.OneLine(plan.JoinNames(there)))
	return p
}

// defaultBranch is where the server's HEAD points to; empty where it does not
// say.
func defaultBranch(s *Session) string {
	for _, symref := range s.Refs.Capabilities.Get(capability.SymRef) {
		if name, ok := strings.CutPrefix(symref, plumbing.HEAD.String()+":refs/heads/"); ok {
			return name
		}
	}
	return ""
}
