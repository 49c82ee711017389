package authors

import (
	"context"
	"errors"
	"fmt"

	"github.com/go-git/go-git/v5/plumbing"
	"github.com/go-git/go-git/v5/plumbing/storer"

	"github.com/tranche-dev/tranche/gitsync/gitobject"
	"github.com/tranche-dev/tranche/gitsync/gittree"
	"github.com/tranche-dev/tranche/gitsync/ownchanges"
	"github.com/tranche-dev/tranche/gitsync/signature"
	"github.com/tranche-dev/tranche/gitsync/signers"
	"github.com/tranche-dev/tranche/plan"
)

// Rendering is what a commit or a tree renders.
type Rendering struct {
	// Set is nil if it does not render.
	Set *plan.Set
	// Reads is what was read for that.
	Reads gittree.Reads
	// Unknown is why it is not known what it renders; nil: it is known.
	Unknown error
}

// Renderer renders for a search. The cluster is not asked for the scope of kinds.
type Renderer interface {
	// RenderCommit returns what a commit renders, of which t is the tree. The same few commits
	// are asked for again and again.
	RenderCommit(commit plumbing.Hash, t *gittree.Tree) (Rendering, error)
	// RenderTree returns what a tree renders that is that of a commit with others taken back.
	RenderTree(t *gittree.Tree, of plumbing.Hash) (Rendering, error)
}

// Branch is what a search reads.
type Branch struct {
	Store    storer.EncodedObjectStorer
	Renderer Renderer
	// Path is the folder that is rendered, and Approvals is that of the approvals, in which no
	// file matters.
	Path, Approvals string
	// RemoteBases is true if a rendering may read what the commit does not have. Then the
	// same files need not render the same.
	RemoteBases bool
	Signatures  *signers.Policy
	// Order and Known are from earlier syncs; added to.
	Order gitobject.Precedence
	Known Known
}

// has reports whether a commit is in the repository.
func (b *Branch) has(commit plumbing.Hash) bool {
	return !commit.IsZero() && b.Store.HasEncodedObject(commit) == nil
}

// keys are those by which a commit of a change may be signed.
func (b *Branch) keys() *signature.Keys {
	return signature.Join(b.Signatures.Signers, b.Signatures.Verify)
}

// Change is the difference between what counted last and what a commit renders for a
// Deployment, of which the authors count.
type Change struct {
	Branch *Branch
	// Key is what the change is known by in [Branch.Known].
	Key    string
	Commit plumbing.Hash
	Of     Compared
	// Base is the commit that what counted last came from; zero: it is not known, or not in
	// the history.
	Base plumbing.Hash
	// Was is what counted last, as [Compared.State] returns it; empty: what Base renders.
	Was string
}

// ErrNone is the error of a change that no commit makes.
var ErrNone = errors.New("no commit makes the change")

// PartOf says that the approver has a part in the change, and what to do. If it cannot be shown
// that the approver has none, it says why. It is empty if neither holds. The approval came in
// another commit. The error is [ErrNone], or one by [IsUncounted], or of the repository.
func (c *Change) PartOf(ctx context.Context, approver signature.Signature, in string) (fact, hint string, err error) {
	authors := c.authors(ctx)
	if authors.err == nil && len(authors.commits) == len(authors.takenBack) {
		return "", "", ErrNone
	}
	for _, find := range []func() Found{func() Found { return authors }, func() Found { return c.dormant(ctx, approver) }} {
		found := find()
		if found.err != nil {
			return "", "", found.err
		}
		if fact, hint, err = c.Branch.writtenBy(ctx, found, in, approver); err != nil {
			return "", "", err
		}
		if fact != "" {
			fact, hint = found.ifUnknown(fact, hint)
			return fact, hint, nil
		}
	}
	return "", "", nil
}

// origins returns a search for the authors of the change.
func (c *Change) origins() (*origins, error) {
	o := &origins{branch: c.Branch, of: c.Of.State, base: c.Base, was: c.Was}
	o.own = &ownchanges.Finder{Store: c.Branch.Store, Bases: o.mergeBases, Spend: o.spend}
	if o.was == "" && !c.Base.IsZero() {
		last, err := o.render(c.Base, nil)
		if err != nil {
			return nil, err
		}
		o.was = last.state
	}
	return o, nil
}

// authors returns the commits that made the change.
func (c *Change) authors(ctx context.Context) Found {
	return c.Branch.Known.search(c.Key, func() Found {
		o, err := c.origins()
		if err != nil {
			return Found{err: err}
		}
		list, err := o.find(ctx, c.Commit)
		return Found{list, o.takenBack, err, o.unknown}
	})
}

// writtenBy says that the approver has signed one of the commits, or that it cannot be
// shown that another person has signed each of them. It is empty if neither holds. The
// approval came in another commit.
func (b *Branch) writtenBy(ctx context.Context, found Found, in string, approver signature.Signature) (
	fact, hint string, err error,
) {
	keys := b.keys()
	for _, c := range found.commits {
		author, why, err := b.Signatures.SignerOf(ctx, b.Store, c, keys)
		switch {
		case err != nil:
			return "", "", err
		case why != "" && found.takenBack[c]:
		case why != "":
			const unsigned = "that the change is by another than %s, who approves it, cannot be shown: commit %s of it: %s"
			return fmt.Sprintf(unsigned, approver, plan.ShortCommit(c.String()), why),
				"sign the change with a key that spec.approvals.signers or spec.verify of the GitSource lists", nil
		case keys.Same(author, approver):
			const same = "commit %s, which brought it, is signed by %s, as is commit %s of the change"
			return fmt.Sprintf(same, plan.ShortCommit(in), approver, plan.ShortCommit(c.String())),
				"let another person approve it", nil
		}
	}
	return "", "", nil
}

// maxChange bounds the commits that a release may bring at once where their
// signers count.
const maxChange = 1000

var errTooManyCommits = fmt.Errorf("the release brings more than %d commits, too many to look at who signed them", maxChange)
