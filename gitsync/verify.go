package gitsync

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/go-git/go-git/v5/plumbing"
	"github.com/go-git/go-git/v5/plumbing/object"
	"github.com/go-git/go-git/v5/plumbing/storer"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/tranche-dev/tranche/gitsync/gitobject"
	"github.com/tranche-dev/tranche/gitsync/gittree"
	"github.com/tranche-dev/tranche/gitsync/repository"
	"github.com/tranche-dev/tranche/gitsync/signature"
	"github.com/tranche-dev/tranche/plan"
	"github.com/tranche-dev/tranche/plan/v1alpha1"
)

// signatures are what the spec of a GitSource demands of them.
type signatures struct {
	// verify are the keys that the tip must be signed by; nil: no signature
	// is asked for.
	verify *signature.Keys
	// signers are the keys that an approval must be signed by; nil: none.
	signers *signature.Keys
	// distinctAuthor: not by who signed the change.
	distinctAuthor bool
	// own is the key with which the controller signs what it writes back to the
	// source, where signers has it; empty: none.
	own string
	now time.Time
	// seen are tips of the branch, newest first, with the times of their first sight.
	seen []v1alpha1.SeenCommit
	// order is from earlier syncs; added to.
	order gitobject.Precedence
	// changes are the commits that made a release or a plan what it is, from earlier
	// syncs; added to.
	changes map[string]foundCommits
	// places are where contents were before, from earlier syncs; added to.
	places map[string][]place
}

// foundCommits are the commits that made a difference, or why they cannot be found.
type foundCommits struct {
	commits []plumbing.Hash
	err     error // see isUncounted
	// unknown is why more commits may be among them than have made the difference.
	unknown error
}

// ifUnknown adds to why an approval does not count that it may count later.
func (c foundCommits) ifUnknown(fact, hint string) (string, string) {
	if c.unknown == nil {
		return fact, hint
	}
	return fact + "; whether that commit has a part in the change is not known, since " + c.unknown.Error(), hintUnknown
}

// changeOf returns a change that is known, or finds it. A search that takes too much is
// not repeated at each sync.
func (s *signatures) changeOf(known string, find func() foundCommits) foundCommits {
	if c, ok := s.changes[known]; ok {
		return c
	}
	c := find()
	if s.changes != nil && (c.err == nil && c.unknown == nil || isUncounted(c.err)) {
		s.changes[known] = c
	}
	return c
}

// keptChanges bounds what is kept of releases; it costs little to find again.
const keptChanges = 100

// signatures reads the keys. As with the credentials, each sync reads them. So a key
// that is taken from a Secret counts for nothing from the next sync on.
func (l *look) signatures(ctx context.Context) (s signatures, err error) {
	if l.keep.changes == nil || len(l.keep.changes) > keptChanges {
		l.keep.changes = map[string]foundCommits{}
	}
	if l.keep.places == nil || len(l.keep.places) > keptChanges {
		l.keep.places = map[string][]place{}
	}
	if l.keep.order == nil {
		l.keep.order = gitobject.Precedence{}
	}
	s.now, s.changes, s.places, s.order, s.seen = time.Now(), l.keep.changes, l.keep.places, l.keep.order, l.gs.Status.Seen
	if v := l.gs.Spec.Verify; v != nil {
		if s.verify, err = l.keys(ctx, "spec.verify", &v.Verification); err != nil {
			return s, err
		}
	}
	if a := l.gs.Spec.Approvals; a != nil {
		s.distinctAuthor = a.DistinctAuthor
		if s.signers, err = l.keys(ctx, "spec.approvals.signers", a.Signers); err == nil {
			s.own, err = l.ownKey(ctx, s.signers, s.now)
		}
	}
	return s, err
}

// ownKey returns which of the signers is the controller: the key of spec.writeBack. For
// spec.verify, that key may stand in the same list as those of persons. Another source
// may have it for its write-back, and be one where an approval in the cluster is enough.
func (l *look) ownKey(ctx context.Context, signers *signature.Keys, now time.Time) (string, error) {
	w := l.gs.Spec.WriteBack
	if signers == nil || w == nil || w.SigningKey == nil {
		return "", nil
	}
	name := client.ObjectKey{Namespace: l.gs.Namespace, Name: w.SigningKey.Name}
	var secret corev1.Secret
	if err := l.own.Get(ctx, name, &secret); err != nil {
		if apierrors.IsNotFound(err) {
			return "", nil // a write-back says so
		}
		return "", fmt.Errorf("getting Secret %s: %w", name, err)
	}
	signer, err := signature.NewSigner(secret.Data)
	if err != nil {
		return "", nil //nolint:nilerr // a write-back says so
	}
	by, err := tryToSign(signer, signers, now)
	if err != nil {
		return "", nil //nolint:nilerr // the key is none of the signers'
	}
	return by.Key, nil
}

// tryToSign returns which of the keys a signer signs with.
func tryToSign(signer signature.Signer, keys *signature.Keys, now time.Time) (signature.Signature, error) {
	head := fmt.Sprintf("tree %s\nauthor t <> %[2]d +0000\ncommitter t <> %[2]d +0000\n", plumbing.ZeroHash, now.Unix())
	armored, err := signer.Sign([]byte(head + "\n"))
	if err != nil {
		return signature.Signature{}, err
	}
	try := head + "gpgsig " + strings.ReplaceAll(strings.TrimSuffix(armored, "\n"), "\n", "\n ") + "\n\n"
	return signature.Verify([]byte(try), keys, now, nil)
}

func (l *look) keys(ctx context.Context, field string, v *v1alpha1.Verification) (*signature.Keys, error) {
	if v == nil {
		return nil, nil
	}
	data, err := l.secret(ctx, field+".secretRef", &v.SecretRef)
	if err != nil {
		return nil, err
	}
	keys, err := signature.ParseKeys(data)
	if err != nil {
		return nil, &plan.Problem{Reason: v1alpha1.ReasonInvalidSecret, Where: "Secret " + l.gs.Namespace + "/" + v.SecretRef.Name, Err: errors.New(plan.OneLine(err.Error()))}
	}
	return keys, nil
}

// verified checks that what leads to a snapshot is signed, where the spec demands it. For
// a branch the tip is enough: its signature covers the whole tree, and the whole history.
func (l *look) verified(ctx context.Context, s *repository.Snapshot, by signatures) error {
	if by.verify == nil {
		return nil
	}
	secret := "a key in Secret " + l.gs.Namespace + "/" + l.gs.Spec.Verify.SecretRef.Name
	mode := cmp.Or(l.gs.Spec.Verify.Mode, v1alpha1.VerifyHEAD)
	if mode != v1alpha1.VerifyHEAD {
		why, err := by.tagUnsigned(s)
		if err != nil {
			return err
		}
		if why != "" {
			return &plan.Problem{
				Reason: v1alpha1.ReasonTagNotVerified, Where: at(l.refName(s), s.Commit.String()), Err: errors.New(why),
				Hint: "make a tag that is signed by " + secret + " (git tag -s), or list the key there; what was applied stays",
			}
		}
	}
	if mode == v1alpha1.VerifyTag {
		return nil
	}
	for _, c := range slices.Compact([]plumbing.Hash{s.Commit, s.Tip}) {
		name := l.refName(s)
		if c != s.Commit {
			name = l.gs.Spec.Ref.Branch
		}
		_, why, err := by.signerOf(ctx, s, c, by.verify)
		if err != nil {
			return err
		}
		if why != "" {
			return &plan.Problem{
				Reason: v1alpha1.ReasonCommitNotVerified, Where: at(name, c.String()), Err: errors.New(why),
				Hint: "push a commit on top that is signed by " + secret + " (git commit -S), or list the key there; what was applied stays",
			}
		}
	}
	return nil
}

// tagUnsigned is why the tag of a snapshot is not signed as the spec demands; empty: it is.
// A commit that was applied before was verified then, by a tag that may have moved.
func (s *signatures) tagUnsigned(at *repository.Snapshot) (string, error) {
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
	seen := func(until time.Time) bool { return s.sawTag(t.Object, until) }
	if _, err := signature.VerifyTag(raw, t.Name, t.Commit.String(), s.verify, s.now, seen); err != nil {
		return plan.OneLine(err.Error()), nil
	}
	return "", nil
}

// listed checks that spec.verify lists the key that signs what is written back.
// Otherwise the first commit of the controller would be the last one followed.
func (l *look) listed(ctx context.Context, signer signature.Signer) error {
	if l.gs.Spec.Verify == nil {
		return nil
	}
	keys, err := l.keys(ctx, "spec.verify", &l.gs.Spec.Verify.Verification)
	if err != nil {
		return err
	}
	if _, err := tryToSign(signer, keys, time.Now()); err != nil {
		return &plan.Problem{
			Reason: v1alpha1.ReasonWriteBackConflict, Where: "spec.writeBack.signingKey", Err: errors.New("spec.verify would not let a commit signed with it be applied: " + plan.OneLine(err.Error())),
			Hint: "list its public key in Secret " + l.gs.Namespace + "/" + l.gs.Spec.Verify.SecretRef.Name,
		}
	}
	return nil
}

// signerOf returns which of the keys signed a commit, or why that is none of
// them; an error is one of the repository. It decides from the object's bytes,
// once they are known to be those of the commit.
func (s *signatures) signerOf(ctx context.Context, store storer.EncodedObjectStorer, commit plumbing.Hash, keys *signature.Keys) (by signature.Signature, why string, err error) {
	raw, err := gitobject.RawCommit(store, commit)
	if err != nil {
		return by, "", gittree.Missing("commit", commit, err)
	}
	if plumbing.ComputeHash(plumbing.CommitObject, raw) != commit {
		return by, "", fmt.Errorf("%w: the bytes of commit %s are others", gittree.ErrDamaged, commit)
	}
	var failed error
	by, verdict := signature.Verify(raw, keys, s.now, func(until time.Time) (yes bool) {
		yes, failed = s.sawBy(ctx, store, commit, until)
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

// signed returns the approvals without those for this release that are not signed as
// the spec demands, and why those do not count. An approval that is not signed is left
// out before anything else is checked. Otherwise any committer could keep a signed one
// from counting with a second file.
func (h *history) signed(ctx context.Context, release *plan.Release, commit string, since *v1alpha1.ApprovalsSince, approvals []plan.Approval) ([]plan.Approval, plan.Problems, error) {
	if h.signatures.signers == nil {
		return approvals, nil, nil
	}
	var counted []plan.Approval
	var ps plan.Problems
	for i := range approvals {
		a := &approvals[i]
		if a.Metadata.Namespace == release.Plan.Namespace && a.Metadata.Name == release.Plan.Name && strings.HasPrefix(commit, a.Spec.Commit) {
			p := a.NotAsSigned()
			if p == nil {
				var err error
				if p, err = h.unsigned(ctx, a, release, commit, since); err != nil {
					return nil, nil, err
				}
			}
			if p != nil {
				ps = append(ps, p)
				continue
			}
		}
		counted = append(counted, *a)
	}
	return counted, ps, nil
}

// unsigned says why an approval is not signed as the spec demands, and nil
// where it is.
func (h *history) unsigned(ctx context.Context, a *plan.Approval, release *plan.Release, commit string, since *v1alpha1.ApprovalsSince) (*plan.Problem, error) {
	b, err := h.bringer(a.File)
	if err != nil {
		return nil, err
	}
	by, why, hint, err := h.signerOfFile(ctx, b, plumbing.NewHash(a.Spec.Commit))
	if err != nil {
		return nil, err
	}
	if why != "" {
		return a.Ignored("spec", fmt.Sprintf("commit %s brought it: %s", plan.ShortCommit(b.in), why), hint), nil
	}
	h.approvers[a.File] = by
	if !h.signatures.distinctAuthor {
		return nil, nil
	}
	return h.sameAuthor(ctx, a, b.in, by, release, commit, since)
}

var errOwnKey = errors.New("it is signed by the key of spec.writeBack.signingKey, which is the controller's and no person's")

// sameAuthor says why it cannot be shown that an approval is by another person than
// the change. It returns nil if a listed key signed every commit of the change, and
// none of these keys is the approver's. An author's name and address prove nothing.
// Neither does a key that is not listed, since the author can make a second one.
func (h *history) sameAuthor(ctx context.Context, a *plan.Approval, in string, approver signature.Signature, release *plan.Release, commit string, since *v1alpha1.ApprovalsSince) (*plan.Problem, error) {
	c := h.releaseChange(release, commit, since)
	change := c.authors(ctx)
	if change.err == nil && len(change.commits) == 0 {
		return a.Ignored("spec", fmt.Sprintf("that the change is by another than %s, who approves it, cannot be shown: no commit since the last release makes it", approver),
			"bring the change by a new commit"), nil
	}
	for _, find := range []func() foundCommits{func() foundCommits { return change }, func() foundCommits { return c.dormant(ctx, approver) }} {
		found := find()
		if isUncounted(found.err) {
			return a.Ignored("spec", found.err.Error(), "release fewer commits at a time"), nil
		}
		if found.err != nil {
			return nil, found.err
		}
		fact, hint, err := h.writtenBy(ctx, found.commits, in, approver)
		if err != nil {
			return nil, err
		}
		if fact != "" {
			fact, hint = found.ifUnknown(fact, hint)
			return a.Ignored("spec", fact, hint), nil
		}
	}
	return nil, nil
}

// change is the difference between what counted last and what a commit renders for a
// Deployment, of which the authors count.
type change struct {
	*history
	key    string // of what is known of it
	commit plumbing.Hash
	of     comparison
	base   plumbing.Hash // see origins
	was    string        // empty: what base renders
}

// releaseChange returns the change that a release's commit makes to what was released
// last.
func (h *history) releaseChange(release *plan.Release, commit string, since *v1alpha1.ApprovalsSince) *change {
	c := &change{history: h, commit: plumbing.NewHash(commit), of: comparison{release: release, key: plan.WorkloadOf(release)}}
	for _, b := range []string{since.AppliedCommit, since.ReleasedCommit} {
		if h.has(b) {
			c.base = plumbing.NewHash(b)
		}
	}
	c.key = strings.Join([]string{h.key(), c.of.key.String(), commit, c.base.String()}, " ")
	return c
}

// origins returns a search for the authors of the change.
func (c *change) origins() (*origins, error) {
	o := &origins{history: c.history, of: c.of.state, base: c.base, was: c.was}
	if o.was == "" && !c.base.IsZero() {
		last, err := o.render(c.base, nil)
		if err != nil {
			return nil, err
		}
		o.was = last.state
	}
	return o, nil
}

// authors returns the commits that made the change.
func (c *change) authors(ctx context.Context) foundCommits {
	return c.signatures.changeOf(c.key, func() foundCommits {
		o, err := c.origins()
		if err != nil {
			return foundCommits{err: err}
		}
		list, err := o.find(ctx, c.commit)
		return foundCommits{list, err, o.unknown}
	})
}

// writtenBy says that the approver has signed one of the commits, or that it cannot be
// shown that another person has signed each of them. It is empty if neither holds. The
// approval came in another commit.
func (h *history) writtenBy(ctx context.Context, commits []plumbing.Hash, in string, approver signature.Signature) (fact, hint string, err error) {
	keys := signature.Join(h.signatures.signers, h.signatures.verify)
	for _, c := range commits {
		author, why, err := h.signatures.signerOf(ctx, h.snapshot, c, keys)
		switch {
		case err != nil:
			return "", "", err
		case why != "":
			return fmt.Sprintf("that the change is by another than %s, who approves it, cannot be shown: commit %s of it: %s", approver, plan.ShortCommit(c.String()), why),
				"sign the change with a key that spec.approvals.signers or spec.verify of the GitSource lists", nil
		case keys.Same(author, approver):
			return fmt.Sprintf("commit %s, which brought it, is signed by %s, as is commit %s of the change", plan.ShortCommit(in), approver, plan.ShortCommit(c.String())),
				"let another person approve it", nil
		}
	}
	return "", "", nil
}

// maxChange bounds the commits that a release may bring at once where their
// signers count.
const maxChange = 1000

var errTooManyCommits = fmt.Errorf("the release brings more than %d commits, too many to look at who signed them", maxChange)

// unseen adds the parents of a commit that were not seen to a list.
func (h *history) unseen(c *object.Commit, seen map[plumbing.Hash]bool, list []*object.Commit) ([]*object.Commit, error) {
	for _, p := range c.ParentHashes {
		if seen[p] {
			continue
		}
		seen[p] = true
		parent, err := object.GetCommit(h.snapshot, p)
		if err != nil {
			return nil, gittree.Missing("commit", p, err)
		}
		list = append(list, parent)
	}
	return list, nil
}

// ancestors returns a commit and all that it has in its history.
func (h *history) ancestors(ctx context.Context, of plumbing.Hash) (map[plumbing.Hash]bool, error) {
	seen := map[plumbing.Hash]bool{of: true}
	first, err := object.GetCommit(h.snapshot, of)
	if err != nil {
		return nil, gittree.Missing("commit", of, err)
	}
	for next := []*object.Commit{first}; len(next) > 0; {
		if err := ctx.Err(); err != nil {
			return nil, err
		}
		c := next[len(next)-1]
		if next, err = h.unseen(c, seen, next[:len(next)-1]); err != nil {
			return nil, err
		}
	}
	return seen, nil
}

// approvedBy is who is recorded as the approver: the principal of the key,
// where a signature counts, and else the author of the commit.
func (h *history) approvedBy(file string, b brought) string {
	if by, ok := h.approvers[file]; ok {
		return limited(cmp.Or(by.Principal, by.Key))
	}
	return b.by
}

// refName is what was followed to a snapshot, for messages.
func (l *look) refName(s *repository.Snapshot) string {
	if s.Tag.Name != "" {
		return s.Tag.Name
	}
	return l.gs.Spec.Ref.String()
}
