package commit

import (
	"bytes"
	"cmp"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"strings"

	"github.com/spf13/cobra"

	"github.com/tranche-dev/tranche/cmd/tranche/cli"
	"github.com/tranche-dev/tranche/cmd/tranche/commit/refusal"
	"github.com/tranche-dev/tranche/plan/v1alpha1"
)

// Verb names an action.
type Verb string

// The verbs, as the commands of the same names.
const (
	Approve  Verb = "approve"
	Rollback Verb = "rollback"
	Pause    Verb = "pause"
	Resume   Verb = "resume"
)

// Action is a command that another program than a terminal gives, such as the dashboard. It
// is carried out by the code of the command, in a clone of the person.
type Action struct {
	Verb Verb
	// Name is the BatchRelease, in the namespace of the connection.
	Name string
	// Step is the step to approve.
	Step int32
	// Dir is a folder of the clone.
	Dir string
	// Sign lets git sign the commit.
	Sign bool
}

// Proposal is what an action would commit and push.
type Proposal struct {
	Diff   string `json:"diff"`
	Branch string `json:"branch"`
	Remote string `json:"remote"`
	// Author is the person, as git in the clone names them.
	Author string `json:"author"`
	// Said is what the command prints beside the diff.
	Said string `json:"said,omitempty"`
	// Ahead is how many more commits of the clone are pushed with it.
	Ahead int `json:"ahead,omitempty"`
	// Digest names the change. An action is carried out if it still makes that change.
	Digest string `json:"digest"`
}

// errProposed ends a command before its commit.
var errProposed = errors.New("nothing was committed")

// Propose returns what the action would commit. Nothing of the clone or the cluster changes.
// An error is the reason for which the command refuses.
func (a Action) Propose(ctx context.Context, at *cli.Connection) (*Proposal, error) {
	proposed := &Proposal{}
	st, err := a.run(ctx, at, false, func(st *commitCommand, diff string) (err error) {
		proposed.Diff = diff
		proposed.Author, proposed.Digest, err = digest(ctx, st, diff)
		return cmp.Or(err, errProposed)
	})
	if st != nil {
		proposed.Said = st.said()
	}
	switch {
	case !errors.Is(err, errProposed) && err != nil:
		return nil, err
	case err == nil:
		return nil, errors.New(strings.TrimSpace(proposed.Said)) // there is nothing to commit
	}
	proposed.Branch, proposed.Remote, proposed.Ahead = st.source.Spec.Ref.Branch, st.clone.Remote, st.ahead
	return proposed, nil
}

// Commit carries the action out: it commits as the person, and pushes. A change with another
// digest than the one that was shown is refused. It returns what the command prints.
func (a Action) Commit(ctx context.Context, at *cli.Connection, shown string) (string, error) {
	decided := false
	st, err := a.run(ctx, at, true, func(st *commitCommand, diff string) error {
		decided = true
		_, present, err := digest(ctx, st, diff)
		if err == nil && present != shown {
			err = errors.New("the change is another one by now; look at it again. Nothing was committed")
		}
		return err
	})
	if err == nil && !decided && st.ahead == 0 { // the branch has the change by now
		err = errors.New(strings.TrimSpace(st.said()))
	}
	if err != nil {
		return "", err
	}
	return st.said(), nil
}

// digest names a change, who makes it, and the commits of the clone that are pushed with it. It
// also returns who that is.
func digest(ctx context.Context, st *commitCommand, diff string) (author, sum string, err error) {
	author, err = st.clone.Author(ctx)
	if err != nil {
		return "", "", err
	}
	head, err := st.clone.Head(ctx)
	hash := sha256.Sum256([]byte(head + "\x00" + author + "\x00" + diff))
	return author, hex.EncodeToString(hash[:]), err
}

// run carries out the command. It asks no question: if the command would, it refuses and
// names the flag that answers.
func (a Action) run(ctx context.Context, at *cli.Connection, push bool, decide func(*commitCommand, string) error) (*commitCommand, error) {
	cmd := &cobra.Command{}
	cmd.SetContext(ctx)
	cmd.SetOut(&bytes.Buffer{})
	cmd.SetIn(strings.NewReader(""))
	o := approveOptions{commitOptions: commitOptions{yes: true, push: push, sign: a.Sign, dir: a.Dir, decide: decide}, step: a.Step}
	if a.Verb == Approve {
		return a.approve(cmd, at, &o)
	}
	st, err := o.newCommandOfBranch(cmd, at, a.Name)
	if err != nil {
		return st, err
	}
	switch a.Verb {
	case Rollback:
		return st, st.rollback("", nil)
	case Pause, Resume:
		return st, st.pause(a.Verb == Pause, false, false)
	default:
		return nil, fmt.Errorf("%q is not a valid action", a.Verb)
	}
}

func (a Action) approve(cmd *cobra.Command, at *cli.Connection, o *approveOptions) (*commitCommand, error) {
	br, err := at.Release(cmd.Context(), a.Name)
	if err != nil {
		return nil, err
	}
	step, err := o.stepOf(br, true)
	if err != nil {
		return nil, err
	}
	st, err := o.newCommand(cmd, at, a.Name)
	if err != nil {
		return st, err
	}
	return st, st.approve(step)
}

// said returns what the command has printed. It prints no diff, which decide has shown.
func (st *commitCommand) said() string { return fmt.Sprint(st.cmd.OutOrStdout()) }

// Refusal returns why an action of a release is not possible, as far as the objects of the
// cluster tell; nil: it may be possible.
func (a Action) Refusal(br *v1alpha1.BatchRelease, gs *v1alpha1.GitSource) error {
	if err := refusal.OfBranch(br, gs, a.Verb == Approve); err != nil {
		return err
	}
	switch a.Verb {
	case Approve:
		_, err := refusal.Step{Index: a.Step, Given: true}.Of(br)
		return err
	case Rollback:
		return refusal.Rollback(br)
	default:
		return refusal.Pause(br, a.Verb == Pause)
	}
}
