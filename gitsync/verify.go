package gitsync

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"
	"time"

	"github.com/go-git/go-git/v5/plumbing"
	"github.com/go-git/go-git/v5/plumbing/filemode"
	"github.com/go-git/go-git/v5/plumbing/object"
	"github.com/go-git/go-git/v5/plumbing/storer"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"sigs.k8s.io/controller-runtime/pkg/client"

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
	now            time.Time
	// changes are the commits that a release's commit brought to the branch,
	// by that commit, from earlier looks; added to.
	changes map[string][]plumbing.Hash
}

// keptChanges bounds what is kept of releases; it costs little to find again.
const keptChanges = 100

// signatures reads the keys. As with the credentials, that is at each look, so
// a key that is taken from a Secret counts for nothing from the next one on.
func (l *look) signatures(ctx context.Context) (s signatures, err error) {
	if l.keep.changes == nil || len(l.keep.changes) > keptChanges {
		l.keep.changes = map[string][]plumbing.Hash{}
	}
	s.now, s.changes = time.Now(), l.keep.changes
	if s.verify, err = l.keys(ctx, "spec.verify", l.gs.Spec.Verify); err != nil {
		return s, err
	}
	if a := l.gs.Spec.Approvals; a != nil {
		s.distinctAuthor = a.DistinctAuthor
		s.signers, err = l.keys(ctx, "spec.approvals.signers", a.Signers)
	}
	return s, err
}

func (l *look) keys(ctx context.Context, field string, v *v1alpha1.Verification) (*signature.Keys, error) {
	if v == nil {
		return nil, nil
	}
	name := client.ObjectKey{Namespace: l.gs.Namespace, Name: v.SecretRef.Name}
	var secret corev1.Secret
	err := l.own.Get(ctx, name, &secret)
	if apierrors.IsNotFound(err) {
		return nil, &plan.Problem{Reason: reasonSecretNotFound, Where: field + ".secretRef", Err: fmt.Errorf("there is no Secret %s", name), Hint: "create it, or correct the name"}
	}
	if err != nil {
		return nil, fmt.Errorf("getting Secret %s: %w", name, err)
	}
	keys, err := signature.ParseKeys(secret.Data)
	if err != nil {
		return nil, &plan.Problem{Reason: reasonInvalidSecret, Where: "Secret " + name.String(), Err: errors.New(oneLine(err.Error()))}
	}
	return keys, nil
}

// verified checks that the tip is signed, where the spec demands it. The tip
// is enough: its signature covers the whole tree, and the whole history.
func (l *look) verified(s *snapshot, by signatures) error {
	if by.verify == nil {
		return nil
	}
	_, why, err := signerOf(s, s.commit, by.verify, by.now)
	if err != nil || why == "" {
		return err
	}
	return &plan.Problem{
		Reason: reasonCommitNotVerified, Where: at(l.gs.Spec.Ref.Branch, s.commit.String()), Err: errors.New(why),
		Hint: "push a commit on top that is signed by a key in Secret " + l.gs.Namespace + "/" + l.gs.Spec.Verify.SecretRef.Name + " (git commit -S), or list the key there; what was applied stays",
	}
}

// listed checks that spec.verify lists the key that signs what is written
// back, or the first commit of the controller would be the last one followed.
func (l *look) listed(ctx context.Context, signer signature.Signer) error {
	keys, err := l.keys(ctx, "spec.verify", l.gs.Spec.Verify)
	if err != nil || keys == nil {
		return err
	}
	now := time.Now()
	head := fmt.Sprintf("tree %s\nauthor t <> %[2]d +0000\ncommitter t <> %[2]d +0000\n", plumbing.ZeroHash, now.Unix())
	armored, err := signer.Sign([]byte(head + "\n"))
	if err != nil {
		return err
	}
	try := head + "gpgsig " + strings.ReplaceAll(strings.TrimSuffix(armored, "\n"), "\n", "\n ") + "\n\n"
	if _, err := signature.Verify([]byte(try), keys, now); err != nil {
		return &plan.Problem{
			Reason: reasonWriteBackConflict, Where: "spec.writeBack.signingKey", Err: errors.New("spec.verify would not let a commit signed with it be applied: " + oneLine(err.Error())),
			Hint: "list its public key in Secret " + l.gs.Namespace + "/" + l.gs.Spec.Verify.SecretRef.Name,
		}
	}
	return nil
}

// signerOf returns which of the keys signed a commit, or why that is none of
// them; an error is one of the repository. It decides from the object's bytes,
// once they are known to be those of the commit.
func signerOf(s storer.EncodedObjectStorer, commit plumbing.Hash, keys *signature.Keys, now time.Time) (by signature.Signature, why string, err error) {
	raw, err := rawCommit(s, commit)
	if err != nil {
		return by, "", missing("commit", commit, err)
	}
	if plumbing.ComputeHash(plumbing.CommitObject, raw) != commit {
		return by, "", fmt.Errorf("%w: the bytes of commit %s are others", errDamaged, commit)
	}
	by, verdict := signature.Verify(raw, keys, now)
	if verdict != nil {
		why = oneLine(verdict.Error())
	}
	return by, why, nil
}

// payloadOf names what a commit says, however its signature is written: by the object
// that it would be without it.
func payloadOf(s storer.EncodedObjectStorer, commit plumbing.Hash) (plumbing.Hash, error) {
	raw, err := rawCommit(s, commit)
	if err != nil {
		return plumbing.ZeroHash, missing("commit", commit, err)
	}
	return plumbing.ComputeHash(plumbing.CommitObject, signature.Payload(raw)), nil
}

func rawCommit(s storer.EncodedObjectStorer, commit plumbing.Hash) (raw []byte, err error) {
	o, err := s.EncodedObject(plumbing.CommitObject, commit)
	if err != nil {
		return nil, err
	}
	r, err := o.Reader()
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, r.Close()) }()
	return io.ReadAll(r)
}

// signed returns the approvals without those for this release that are not
// signed as the spec demands, and why those do not count. One that is not
// signed is left out before anything else is asked, or anybody could keep a
// signed one from counting with a second file.
func (h *history) signed(ctx context.Context, release *plan.Release, commit string, approvals []plan.Approval) ([]plan.Approval, plan.Problems, error) {
	if h.signatures.signers == nil {
		return approvals, nil, nil
	}
	var counted []plan.Approval
	var ps plan.Problems
	for i := range approvals {
		a := &approvals[i]
		if a.Metadata.Namespace == release.Plan.Namespace && a.Metadata.Name == release.Plan.Name && strings.HasPrefix(commit, a.Spec.Commit) {
			p, err := h.unsigned(ctx, a, commit)
			if err != nil {
				return nil, nil, err
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
func (h *history) unsigned(ctx context.Context, a *plan.Approval, release string) (*plan.Problem, error) {
	b, err := h.bringer(a.File)
	if err != nil {
		return nil, err
	}
	by, why, err := signerOf(h.snapshot, plumbing.NewHash(b.in), h.signatures.signers, h.signatures.now)
	switch {
	case err != nil:
		return nil, err
	case why != "":
		return a.Ignored("spec", fmt.Sprintf("commit %s brought it: %s", shortCommit(b.in), why),
			"have it committed by a key that spec.approvals.signers of the GitSource lists (git commit -S)"), nil
	}
	h.approvers[a.File] = by
	if !h.signatures.distinctAuthor {
		return nil, nil
	}
	return h.sameAuthor(ctx, a, b.in, by, release)
}

// sameAuthor says why it cannot be shown that an approval is by another person
// than the change, and nil where it can: every commit of the change is signed
// by a listed key, and none of them is the approver's. An author's name and
// address prove nothing, and neither does a key that is not listed, since
// anybody can make a second one.
func (h *history) sameAuthor(ctx context.Context, a *plan.Approval, in string, approver signature.Signature, release string) (*plan.Problem, error) {
	commits, err := h.change(ctx, release)
	if errors.Is(err, errTooManyCommits) {
		return a.Ignored("spec", err.Error(), "release fewer commits at a time"), nil
	}
	if err != nil {
		return nil, err
	}
	fact, hint, err := h.writtenBy(commits, in, approver)
	if err != nil || fact == "" {
		return nil, err
	}
	return a.Ignored("spec", fact, hint), nil
}

// writtenBy says that the approver has signed one of the commits, or that it cannot
// be shown that another person has signed each of them; empty: neither. The approval
// came in another commit.
func (h *history) writtenBy(commits []plumbing.Hash, in string, approver signature.Signature) (fact, hint string, err error) {
	keys := signature.Join(h.signatures.signers, h.signatures.verify)
	for _, c := range commits {
		author, why, err := signerOf(h.snapshot, c, keys, h.signatures.now)
		switch {
		case err != nil:
			return "", "", err
		case why != "":
			return fmt.Sprintf("that the change is by another than %s, who approves it, cannot be shown: commit %s of it: %s", approver, shortCommit(c.String()), why),
				"sign the change with a key that spec.approvals.signers or spec.verify of the GitSource lists", nil
		case author.Same(approver):
			return fmt.Sprintf("commit %s, which brought it, is signed by %s, as is commit %s of the change", shortCommit(in), approver, shortCommit(c.String())),
				"let somebody else approve it", nil
		}
	}
	return "", "", nil
}

// maxChange bounds the commits that a release may bring at once where their
// signers count.
const maxChange = 1000

var errTooManyCommits = fmt.Errorf("the release brings more than %d commits, too many to look at who signed them", maxChange)

// change returns the commits that a release's commit brought to the branch and
// that have a content of their own: itself, and for a merge those that came
// with it. A merge that only puts together what its parents have is nobody's
// change; forges make these, and sign them, if at all, with a key of their own.
func (h *history) change(ctx context.Context, release string) ([]plumbing.Hash, error) {
	if known, ok := h.signatures.changes[release]; ok {
		return known, nil
	}
	tip, err := object.GetCommit(h.snapshot, plumbing.NewHash(release))
	if err != nil {
		return nil, missing("commit", plumbing.NewHash(release), err)
	}
	had := map[plumbing.Hash]bool{}
	if len(tip.ParentHashes) > 1 {
		if had, err = h.ancestors(ctx, tip.ParentHashes[0]); err != nil {
			return nil, err
		}
	}
	var list []plumbing.Hash
	for next := []*object.Commit{tip}; len(next) > 0; {
		if err := ctx.Err(); err != nil {
			return nil, err
		}
		c := next[0]
		next = next[1:]
		if len(had) > 0 {
			if next, err = h.unseen(c, had, next); err != nil {
				return nil, err
			}
		}
		own, err := h.ownContent(c)
		if err != nil {
			return nil, err
		}
		if own {
			list = append(list, c.Hash)
		}
		if len(list)+len(next) > maxChange {
			return nil, errTooManyCommits
		}
	}
	h.signatures.changes[release] = list
	return list, nil
}

// unseen adds the parents of a commit that were not seen to a list.
func (h *history) unseen(c *object.Commit, seen map[plumbing.Hash]bool, list []*object.Commit) ([]*object.Commit, error) {
	for _, p := range c.ParentHashes {
		if seen[p] {
			continue
		}
		seen[p] = true
		parent, err := object.GetCommit(h.snapshot, p)
		if err != nil {
			return nil, missing("commit", p, err)
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
		return nil, missing("commit", of, err)
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

// ownContent reports whether a commit has something that none of its parents
// has. Of a commit with one parent, or none, that is always said.
func (h *history) ownContent(c *object.Commit) (bool, error) {
	if len(c.ParentHashes) < 2 {
		return true, nil
	}
	var parents []plumbing.Hash
	for _, p := range c.ParentHashes {
		parent, err := object.GetCommit(h.snapshot, p)
		if err != nil {
			return false, missing("commit", p, err)
		}
		parents = append(parents, parent.TreeHash)
	}
	return h.ownTree(c.TreeHash, parents)
}

// ownTree compares a tree with those of the parents, name by name.
func (h *history) ownTree(tree plumbing.Hash, parents []plumbing.Hash) (bool, error) {
	if slices.Contains(parents, tree) {
		return false, nil
	}
	entries, err := h.entriesOf(tree)
	if err != nil {
		return false, err
	}
	names, others := map[string]bool{}, make([]map[string]object.TreeEntry, len(parents))
	for name := range entries {
		names[name] = true
	}
	for i, p := range parents {
		if others[i], err = h.entriesOf(p); err != nil {
			return false, err
		}
		for name := range others[i] {
			names[name] = true
		}
	}
	for name := range names {
		own, err := h.ownEntry(entries[name], name, others)
		if own || err != nil {
			return own, err
		}
	}
	return false, nil
}

// ownEntry compares one entry with those of the parents. An entry that is not
// there is the zero one.
func (h *history) ownEntry(e object.TreeEntry, name string, parents []map[string]object.TreeEntry) (bool, error) {
	var trees []plumbing.Hash
	for _, p := range parents {
		other := p[name]
		if other.Hash == e.Hash && other.Mode == e.Mode {
			return false, nil
		}
		if other.Mode == filemode.Dir {
			trees = append(trees, other.Hash)
		}
	}
	if e.Mode != filemode.Dir || len(trees) == 0 {
		return true, nil
	}
	return h.ownTree(e.Hash, trees)
}

func (h *history) entriesOf(tree plumbing.Hash) (map[string]object.TreeEntry, error) {
	t, err := object.GetTree(h.snapshot, tree)
	if err != nil {
		return nil, missing("tree", tree, err)
	}
	entries := make(map[string]object.TreeEntry, len(t.Entries))
	for _, e := range t.Entries {
		entries[e.Name] = e
	}
	return entries, nil
}

// approvedBy is who is recorded as the approver: the principal of the key,
// where a signature counts, and else the author of the commit.
func (h *history) approvedBy(file string, b brought) string {
	if by, ok := h.approvers[file]; ok {
		return limited(cmp.Or(by.Principal, by.Key))
	}
	return b.by
}
