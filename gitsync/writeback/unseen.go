package writeback

import (
	"fmt"
	"time"

	"github.com/go-git/go-git/v5/plumbing"

	"github.com/tranche-dev/tranche/gitsync/gitserver"
	"github.com/tranche-dev/tranche/plan"
	"github.com/tranche-dev/tranche/plan/v1alpha1"
)

const (
	// pushAgainAfter is how long the branch may be without the commits that its server has taken,
	// before they are pushed again. It is twice as long each time, until pushAgainWithin.
	pushAgainAfter  = time.Second
	pushAgainWithin = 5 * time.Minute
)

// Pushed is the last push of a source. A server that copies its repositories may show the branch
// as before for a while. One that loses what it takes shows it so for ever.
type Pushed struct {
	branch   string
	from, to plumbing.Hash
	wait     time.Duration
	again    time.Time
}

// next is the push after this one, which may be nil.
func (p *Pushed) next(branch string, from, to plumbing.Hash) *Pushed {
	wait := pushAgainAfter
	if p.isOn(branch, from) {
		wait = min(2*p.wait, pushAgainWithin)
	}
	return &Pushed{branch: branch, from: from, to: to, wait: wait, again: time.Now().Add(wait)}
}

// isOn reports whether a branch is where it was before the push.
func (p *Pushed) isOn(branch string, from plumbing.Hash) bool {
	return p != nil && p.branch == branch && p.from == from
}

// unseen says that the server does not show what was pushed to a branch. It is nil if that may
// be pushed again.
func (p *Pushed) unseen(to gitserver.Remote, branch string, from plumbing.Hash) error {
	if !p.isOn(branch, from) || time.Now().After(p.again) {
		return nil
	}
	return &plan.Problem{
		Reason: v1alpha1.ReasonWriteBackFailed, Where: "pushing " + branch + " to " + to.String(),
		Err:  fmt.Errorf("the server has taken commit %.7s, and shows the branch as before", p.to.String()),
		Hint: "make sure that it keeps what is pushed, and that fetches and pushes go to the same repository", Retry: true,
	}
}
