package repository

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/Masterminds/semver/v3"
	"github.com/go-git/go-git/v5/plumbing"
	"github.com/go-git/go-git/v5/plumbing/object"

	"github.com/tranche-dev/tranche/gitsync/gitserver"
	"github.com/tranche-dev/tranche/plan"
	"github.com/tranche-dev/tranche/plan/v1alpha1"
)

// A reference may pin a commit or a tag. Manifests then come from what is pinned, and
// approvals from the tip of the branch.

// Tag is a tag as a server advertises it.
type Tag struct {
	// Name is without refs/tags/.
	Name string
	// Object is what the tag names: a tag object, or the commit itself where the tag is
	// a lightweight one.
	Object plumbing.Hash
	// Commit is what the tag leads to.
	Commit plumbing.Hash
}

// IsAnnotated reports whether a tag has an object of its own, which may be signed.
func (t Tag) IsAnnotated() bool { return t.Name != "" && t.Object != t.Commit }

// tags are those that a server advertises, by name.
func tags(s *gitserver.Session) map[string]Tag {
	list := map[string]Tag{}
	for ref, object := range s.Refs.References {
		name, ok := strings.CutPrefix(ref, "refs/tags/")
		if !ok {
			continue
		}
		t := Tag{Name: name, Object: object, Commit: object}
		if peeled, ok := s.Refs.Peeled[ref]; ok {
			t.Commit = peeled
		}
		list[name] = t
	}
	return list
}

// FetchReference returns what a reference names as it has been on the server at some time since.
func (m *Mirror) FetchReference(ctx context.Context, r gitserver.Remote, ref v1alpha1.GitReference, since time.Time) (*Snapshot, error) {
	free, err := m.take(ctx, r)
	if err != nil {
		return nil, err
	}
	defer free()
	s, err := m.branchSince(ctx, r, ref.Branch, since)
	if err != nil || !ref.IsPinned() {
		return s, err
	}
	defer s.Close()
	pinned, err := m.pin(ctx, r, ref, s)
	if err != nil && IsDamaged(err) {
		err = errors.Join(err, m.startEmpty()) // the next sync clones again
	}
	return pinned, err
}

// pin returns a snapshot at what a reference pins, beside one at the tip of its branch.
func (m *Mirror) pin(ctx context.Context, r gitserver.Remote, ref v1alpha1.GitReference, tip *Snapshot) (*Snapshot, error) {
	pinned := Tag{Commit: plumbing.NewHash(ref.Commit)}
	if ref.Commit == "" {
		var err error
		if pinned, err = pick(m.seen.tags, ref); err != nil {
			return nil, r.Problem(err)
		}
		if pinned, err = m.bringTag(ctx, r, ref.Branch, pinned); err != nil {
			return nil, err
		}
	}
	s := m.current.snapshot(pinned.Commit)
	s.Tip, s.Pinned, s.Tag, s.Asked, s.Fetched = tip.Commit, true, pinned, tip.Asked, tip.Fetched
	if ref.Commit == "" {
		return s, nil
	}
	_, err := object.GetCommit(s, pinned.Commit)
	there := err == nil
	if there {
		if there, err = m.order.Precedes(ctx, s, pinned.Commit, s.Tip); err != nil {
			s.Close()
			return nil, err
		}
	}
	if !there {
		s.Close()
		return nil, &plan.Problem{
			Reason: v1alpha1.ReasonCommitNotFound, Where: r.String(),
			Err:  fmt.Errorf("commit %s is not in the history of %s", plan.ShortCommit(ref.Commit), ref.Branch),
			Hint: "push it to that branch, or correct spec.ref.commit",
		}
	}
	return s, nil
}

// pick returns the tag that a reference names.
func pick(tags map[string]Tag, ref v1alpha1.GitReference) (Tag, error) {
	if ref.SemVer == "" {
		t, ok := tags[ref.Tag]
		if !ok {
			return Tag{}, &plan.Problem{
				Reason: v1alpha1.ReasonTagNotFound, Err: fmt.Errorf("there is no tag %s", plan.OneLine(ref.Tag)),
				Hint: "push it, or correct spec.ref.tag",
			}
		}
		return t, nil
	}
	within, err := semver.NewConstraint(ref.SemVer)
	if err != nil {
		return Tag{}, &plan.Problem{
			Reason: v1alpha1.ReasonInvalidSemVer, Where: "spec.ref.semver", Err: errors.New(plan.OneLine(err.Error())),
			Hint: `write a range such as ">=1.2.0 <2.0.0"`,
		}
	}
	var found Tag
	var highest *semver.Version
	for name, t := range tags {
		v, err := semver.StrictNewVersion(strings.TrimPrefix(name, "v"))
		if err != nil || !within.Check(v) {
			continue
		}
		// Versions that differ in build metadata alone are equal: the name decides.
		if highest == nil || v.GreaterThan(highest) || v.Equal(highest) && name > found.Name {
			found, highest = t, v
		}
	}
	if highest == nil {
		return Tag{}, &plan.Problem{
			Reason: v1alpha1.ReasonTagNotFound, Err: fmt.Errorf("no tag is a version in %s", plan.OneLine(ref.SemVer)),
			Hint: "push one, such as v1.2.3, or correct spec.ref.semver",
		}
	}
	return found, nil
}

// maxTags is how many tags one fetch brings.
const maxTags = 1000

// bringTag brings a tag into the current clone, if it is not there. It returns the tag as
// it was brought: it may have moved. Each fetch is one more pack, and a clone has few: so
// it brings other tags, too, which another source may have pinned.
func (m *Mirror) bringTag(ctx context.Context, r gitserver.Remote, branch string, t Tag) (Tag, error) {
	if m.current.hasTag(t) {
		return t, nil
	}
	name := plumbing.NewTagReferenceName(t.Name)
	if f, ok := m.refused[name.String()]; ok && f.tip == t.Object && (f.until.IsZero() || time.Now().Before(f.until)) {
		return t, f.err
	}
	defer m.measure()
	if m.current.hasObjects(t) {
		if err := m.current.nameTag(r, name, t); err != nil {
			return t, m.refuse(r, name.String(), t.Object, err)
		}
		return t, nil
	}
	if m.current.packs() >= maxPacks {
		s, err := m.reclone(ctx, r, branch)
		if err != nil {
			return t, err
		}
		s.Close()
	}
	now, err := m.fetchTag(ctx, r, t.Name)
	if err == nil {
		err = m.current.nameTag(r, name, now)
	}
	if err != nil && !now.Object.IsZero() {
		err = m.refuse(r, name.String(), now.Object, err)
	}
	return now, err
}

// fetchTag brings what a tag names, and other tags, as the server has them now. If the
// others cannot be brought, it brings the one alone. The object of the tag that it
// returns is the zero hash if the server was not reached, or has no such tag.
func (m *Mirror) fetchTag(ctx context.Context, r gitserver.Remote, name string) (Tag, error) {
	for alone := false; ; alone = true {
		s, err := gitserver.Connect(ctx, r)
		if err != nil {
			return Tag{}, err
		}
		all := tags(s)
		now, ok := all[name]
		if !ok {
			s.Close()
			return Tag{}, r.Problem(&plan.Problem{
				Reason: v1alpha1.ReasonTagNotFound, Err: fmt.Errorf("there is no tag %s any more", name),
				Hint: "push it again, or correct spec.ref",
			})
		}
		wants := []plumbing.Hash{now.Object}
		if !alone {
			wants = append(wants, m.otherTags(all, now)...)
		}
		err = m.current.bring(ctx, s, wants...)
		s.Close()
		if err == nil || len(wants) == 1 || ctx.Err() != nil {
			m.notePinned(name)
			return now, err
		}
	}
}

// otherTags are the objects of tags that are not there and cost little: their commits are
// there, or a source has pinned them before.
func (m *Mirror) otherTags(all map[string]Tag, but Tag) []plumbing.Hash {
	store := m.current.store()
	var objects []plumbing.Hash
	for _, name := range slices.Sorted(maps.Keys(all)) {
		t := all[name]
		if t == but || store.HasEncodedObject(t.Object) == nil || slices.Contains(objects, t.Object) {
			continue
		}
		if len(objects) < maxTags-1 && (m.pinned[name] || store.HasEncodedObject(t.Commit) == nil) {
			objects = append(objects, t.Object)
		}
	}
	return objects
}

// notePinned remembers the tags that were pinned: those for which a new clone lacks the
// commits are brought into it together.
func (m *Mirror) notePinned(name string) {
	if m.pinned == nil || len(m.pinned) >= maxTags {
		m.pinned = map[string]bool{}
	}
	m.pinned[name] = true
}

// hasTag reports whether a tag was brought whole: its reference is written after that.
func (c *clone) hasTag(t Tag) bool {
	ref, err := c.store().Reference(plumbing.NewTagReferenceName(t.Name))
	return err == nil && ref.Hash() == t.Object
}

// hasObjects reports whether all is there that a tag names.
func (c *clone) hasObjects(t Tag) bool {
	store := c.store()
	return store.HasEncodedObject(t.Object) == nil && store.HasEncodedObject(t.Commit) == nil
}

// nameTag names a tag whose objects are there.
func (c *clone) nameTag(r gitserver.Remote, name plumbing.ReferenceName, t Tag) error {
	store := c.store()
	if _, err := object.GetCommit(store, t.Commit); err != nil {
		return &plan.Problem{
			Reason: v1alpha1.ReasonTagNotFound, Where: r.String(), Err: fmt.Errorf("tag %s does not name a commit", t.Name),
			Hint: "move it to one, or correct spec.ref",
		}
	}
	if err := c.verifyComplete(t.Commit, plumbing.ZeroHash); err != nil {
		return err
	}
	if err := store.SetReference(plumbing.NewHashReference(name, t.Object)); err != nil {
		return gitserver.StorageProblem(err)
	}
	return nil
}

// isNoCommit tells the problem of a tag that names no commit, until it is moved.
func isNoCommit(err error) bool {
	p, ok := errors.AsType[*plan.Problem](err)
	return ok && p.Reason == v1alpha1.ReasonTagNotFound
}
