package signers

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/go-git/go-git/v5/plumbing"
	"github.com/go-git/go-git/v5/plumbing/storer"

	"github.com/tranche-dev/tranche/gitsync/gitobject"
	"github.com/tranche-dev/tranche/gitsync/gittree"
	"github.com/tranche-dev/tranche/gitsync/repository"
	"github.com/tranche-dev/tranche/gitsync/signature"
	"github.com/tranche-dev/tranche/plan"
	"github.com/tranche-dev/tranche/plan/v1alpha1"
)

// Policy is what the spec of a GitSource demands of signatures, and what is known to judge
// them by.
type Policy struct {
	// Verify are the keys that the tip must be signed by; nil: no signature is asked for.
	Verify *signature.Keys
	// Signers are the keys that an approval must be signed by; nil: none.
	Signers *signature.Keys
	// DistinctAuthor is true if who signed a change may not approve it.
	DistinctAuthor bool
	// Own is the key with which the controller signs what it writes back to the source, if
	// Signers has it; empty: none.
	Own string
	Now time.Time
	// Seen are tips of the branch, newest first, with the times of their first sight.
	Seen []v1alpha1.SeenCommit
	// Order is from earlier syncs; added to.
	Order gitobject.Precedence
	// Places are where contents were before, from earlier syncs; added to.
	Places map[string][]Place
}

// KeptPlaces bounds what is kept of places; it costs little to find again.
const KeptPlaces = 100

// TagUnsigned is why the tag of a snapshot is not signed as the spec demands; empty: it is.
// A commit that was applied before was verified then, by a tag that may have moved.
func (p *Policy) TagUnsigned(at *repository.Snapshot) (string, error) {
	t := at.Tag
	if t.Name == "" {
		return "", nil
	}
	if !t.IsAnnotated() {
		return "it is a lightweight tag, which has no signature", nil
	}
	o, err := at.EncodedObject(plumbing.TagObject, t.Object)
	if err != nil {
		return "", gittree.Missing("tag", t.Object, err)
	}
	raw, err := gitobject.ContentOf(o)
	if err != nil {
		return "", gittree.Missing("tag", t.Object, err)
	}
	if plumbing.ComputeHash(plumbing.TagObject, raw) != t.Object {
		return "", fmt.Errorf("%w: the bytes of tag %s are others", gittree.ErrDamaged, t.Name)
	}
	seen := func(until time.Time) bool { return p.sawTag(t.Object, until) }
	if _, err := signature.VerifyTag(raw, t.Name, t.Commit.String(), p.Verify, p.Now, seen); err != nil {
		return plan.OneLine(err.Error()), nil
	}
	return "", nil
}

// SignerOf returns which of the keys signed a commit, or why that is none of
// them; an error is one of the repository. It decides from the object's bytes,
// once they are known to be those of the commit.
func (p *Policy) SignerOf(ctx context.Context, store storer.EncodedObjectStorer, commit plumbing.Hash, keys *signature.Keys) (
	by signature.Signature, why string, err error,
) {
	raw, err := gitobject.RawCommit(store, commit)
	if err != nil {
		return by, "", gittree.Missing("commit", commit, err)
	}
	if plumbing.ComputeHash(plumbing.CommitObject, raw) != commit {
		return by, "", fmt.Errorf("%w: the bytes of commit %s are others", gittree.ErrDamaged, commit)
	}
	var failed error
	by, verdict := signature.Verify(raw, keys, p.Now, func(until time.Time) (yes bool) {
		yes, failed = p.sawBy(ctx, store, commit, until)
		return yes
	})
	if failed != nil {
		return by, "", failed
	}
	if verdict != nil {
		why = plan.OneLine(verdict.Error())
	}
	return by, why, nil
}

// SignerOfApproval returns which of the signers brought an approval for a release, or why it is
// ignored, since that is none of them. The rule is that of [plan.Approval.NotAsSigned] and this one.
func (p *Policy) SignerOfApproval(ctx context.Context, store storer.EncodedObjectStorer, a *plan.Approval, at FileOrigin) (
	by signature.Signature, ignored *plan.Problem, err error,
) {
	by, why, hint, err := p.SignerOfFile(ctx, store, a.File, at, plumbing.NewHash(a.Spec.Commit))
	if err == nil && why != "" {
		ignored = a.Ignored("spec", fmt.Sprintf("commit %s brought it: %s", plan.ShortCommit(at.In), why), hint)
	}
	return by, ignored, err
}

var errOwnKey = errors.New("it is signed by the key of spec.writeBack.signingKey, which is the controller's and no person's")
