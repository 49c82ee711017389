package writeback

import (
	"fmt"
	"slices"
	"time"

	"github.com/go-git/go-git/v5/plumbing"

	"github.com/tranche-dev/tranche/gitsync/gitserver"
	"github.com/tranche-dev/tranche/plan"
	"github.com/tranche-dev/tranche/plan/v1alpha1"
)

const (
	// pushAgainAfter is how long the branch may be without what its server has taken, before that
	// is pushed again. It is twice as long each time, until pushAgainWithin.
	pushAgainAfter  = time.Second
	pushAgainWithin = 5 * time.Minute
)

// Pushed is the last push of a source. A server that copies its repositories may show the branch
// as before for a while. Others lose what they take, or have a hook that replaces it.
type Pushed struct {
	where string
	head  plumbing.Hash
	done  []decision
	wait  time.Duration
	again time.Time
}

// decision is what an intent is about, whatever the branch is at.
type decision struct {
	deployment, revision, commit string
	rollback                     bool
	step                         int32
}

func (in intent) decision() decision {
	return decision{plan.ReleaseName(in.release.Plan), in.revision, in.commit, in.rollback, in.step}
}

// pushing says where commits are pushed.
func pushing(to gitserver.Remote, branch string) string {
	return "pushing " + branch + " to " + to.String()
}

// next is the push after this one, which may be nil.
func (p *Pushed) next(where string, head plumbing.Hash, done []intent) *Pushed {
	pushed := &Pushed{where: where, head: head, wait: pushAgainAfter}
	if p != nil && p.where == where && slices.ContainsFunc(done, p.has) {
		pushed.wait = min(2*p.wait, pushAgainWithin)
	}
	for _, in := range done {
		pushed.done = append(pushed.done, in.decision())
	}
	pushed.again = time.Now().Add(pushed.wait)
	return pushed
}

// has reports whether an intent was pushed.
func (p *Pushed) has(in intent) bool { return slices.Contains(p.done, in.decision()) }

// unseen says that the branch is without what was pushed of the intents. It is nil if they may
// be pushed.
func (p *Pushed) unseen(where string, pending []intent) error {
	isNew := func(in intent) bool { return !p.has(in) }
	if p == nil || p.where != where || time.Now().After(p.again) || slices.ContainsFunc(pending, isNew) {
		return nil
	}
	return &plan.Problem{
		Reason: v1alpha1.ReasonWriteBackFailed, Where: where,
		Err:   fmt.Errorf("the server has taken commit %.7s, and shows the branch without it", p.head.String()),
		Hint:  "make sure that it keeps what is pushed, that no hook replaces it, and that fetches go to the same repository",
		Retry: true,
	}
}
