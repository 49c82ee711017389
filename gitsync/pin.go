package gitsync

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

// tag is a tag as a server advertises it.
type tag struct {
	name string
	// object is what the tag names: a tag object, or the commit itself where the tag is
	// a lightweight one.
	object plumbing.Hash
	commit plumbing.Hash
}

// isAnnotated reports whether a tag has an object of its own, which may be signed.
func (t tag) isAnnotated() bool { return t.name != "" && t.object != t.commit }

// tags are those that a server advertises, by name.
func tags(s *gitserver.Session) map[string]tag {
	list := map[string]tag{}
	for ref, object := range s.Refs.References {
		name, ok := strings.CutPrefix(ref, "refs/tags/")
		if !ok {
			continue
		}
		t := tag{name: name, object: object, commit: object}
		if peeled, ok := s.Refs.Peeled[ref]; ok {
			t.commit = peeled
		}
		list[name] = t
	}
	return list
}

// lookAt returns what a reference names as it has been on the server at some time since.
func (m *mirror) lookAt(ctx context.Context, r gitserver.Remote, ref v1alpha1.GitReference, since time.Time) (*snapshot, error) {
	free, err := m.take(ctx, r)
	if err != nil {
		return nil, err
	}
	defer free()
	s, err := m.branchSince(ctx, r, ref.Branch, since)
	if err != nil || !ref.IsPinned() {
		return s, err
	}
	defer s.close()
	pinned, err := m.pin(ctx, r, ref, s)
	if err != nil && isDamage(err) {
		err = errors.Join(err, m.anew()) // the next look clones again
	}
	return pinned, err
}

// pin returns a snapshot at what a reference pins, beside one at the tip of its branch.
func (m *mirror) pin(ctx context.Context, r gitserver.Remote, ref v1alpha1.GitReference, tip *snapshot) (*snapshot, error) {
	pinned := tag{commit: plumbing.NewHash(ref.Commit)}
	if ref.Commit == "" {
		var err error
		if pinned, err = pick(m.seen.tags, ref); err != nil {
			return nil, r.Problem(err)
		}
		if pinned, err = m.bringTag(ctx, r, ref.Branch, pinned); err != nil {
			return nil, err
		}
	}
	s := m.current.snapshot(pinned.commit)
	s.tip, s.pinned, s.tag, s.asked, s.fetched = tip.commit, true, pinned, tip.asked, tip.fetched
	if ref.Commit == "" {
		return s, nil
	}
	_, err := object.GetCommit(s, pinned.commit)
	there := err == nil
	if there {
		if there, err = m.order.Precedes(ctx, s, pinned.commit, s.tip); err != nil {
			s.close()
			return nil, err
		}
	}
	if !there {
		s.close()
		return nil, &plan.Problem{
			Reason: v1alpha1.ReasonCommitNotFound, Where: r.String(), Err: fmt.Errorf("commit %s is not in the history of %s", plan.ShortCommit(ref.Commit), ref.Branch),
			Hint: "push it to that branch, or correct spec.ref.commit",
		}
	}
	return s, nil
}

// pick returns the tag that a reference names.
func pick(tags map[string]tag, ref v1alpha1.GitReference) (tag, error) {
	if ref.SemVer == "" {
		t, ok := tags[ref.Tag]
		if !ok {
			return tag{}, &plan.Problem{Reason: v1alpha1.ReasonTagNotFound, Err: fmt.Errorf("there is no tag %s", plan.OneLine(ref.Tag)), Hint: "push it, or correct spec.ref.tag"}
		}
		return t, nil
	}
	within, err := semver.NewConstraint(ref.SemVer)
	if err != nil {
		return tag{}, &plan.Problem{Reason: v1alpha1.ReasonInvalidSemVer, Where: "spec.ref.semver", Err: errors.New(plan.OneLine(err.Error())), Hint: `write a range such as ">=1.2.0 <2.0.0"`}
	}
	var found tag
	var highest *semver.Version
	for name, t := range tags {
		v, err := semver.StrictNewVersion(strings.TrimPrefix(name, "v"))
		if err != nil || !within.Check(v) {
			continue
		}
		// Versions that differ in build metadata alone are equal: the name decides.
		if highest == nil || v.GreaterThan(highest) || v.Equal(highest) && name > found.name {
			found, highest = t, v
		}
	}
	if highest == nil {
		return tag{}, &plan.Problem{Reason: v1alpha1.ReasonTagNotFound, Err: fmt.Errorf("no tag is a version in %s", plan.OneLine(ref.SemVer)), Hint: "push one, such as v1.2.3, or correct spec.ref.semver"}
	}
	return found, nil
}

// maxTags is how many tags one fetch brings.
const maxTags = 1000

// bringTag brings a tag into the current clone, if it is not there. It returns the tag as
// it was brought: it may have moved. Each fetch is one more pack, and a clone has few: so
// it brings other tags, too, which another source may have pinned.
func (m *mirror) bringTag(ctx context.Context, r gitserver.Remote, branch string, t tag) (tag, error) {
	if m.current.hasTag(t) {
		return t, nil
	}
	name := plumbing.NewTagReferenceName(t.name)
	if f, ok := m.refused[name.String()]; ok && f.tip == t.object && (f.until.IsZero() || time.Now().Before(f.until)) {
		return t, f.err
	}
	defer m.measure()
	if m.current.hasObjects(t) {
		if err := m.current.nameTag(r, name, t); err != nil {
			return t, m.refuse(r, name.String(), t.object, err)
		}
		return t, nil
	}
	if m.current.packs() >= maxPacks {
		s, err := m.cloneAnew(ctx, r, branch)
		if err != nil {
			return t, err
		}
		s.close()
	}
	now, err := m.fetchTag(ctx, r, t.name)
	if err == nil {
		err = m.current.nameTag(r, name, now)
	}
	if err != nil && !now.object.IsZero() {
		err = m.refuse(r, name.String(), now.object, err)
	}
	return now, err
}

// fetchTag brings what a tag names, and other tags, as the server has them now. Where the
// others cannot be brought, it brings the one alone. The object of the tag that it returns
// is the zero hash where the server was not reached, or has no such tag.
func (m *mirror) fetchTag(ctx context.Context, r gitserver.Remote, name string) (tag, error) {
	for alone := false; ; alone = true {
		s, err := gitserver.Connect(ctx, r)
		if err != nil {
			return tag{}, err
		}
		all := tags(s)
		now, ok := all[name]
		if !ok {
			s.Close()
			return tag{}, r.Problem(&plan.Problem{Reason: v1alpha1.ReasonTagNotFound, Err: fmt.Errorf("there is no tag %s any more", name), Hint: "push it again, or correct spec.ref"})
		}
		wants := []plumbing.Hash{now.object}
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
func (m *mirror) otherTags(all map[string]tag, but tag) []plumbing.Hash {
	store := m.current.store()
	var objects []plumbing.Hash
	for _, name := range slices.Sorted(maps.Keys(all)) {
		t := all[name]
		if t == but || store.HasEncodedObject(t.object) == nil || slices.Contains(objects, t.object) {
			continue
		}
		if len(objects) < maxTags-1 && (m.pinned[name] || store.HasEncodedObject(t.commit) == nil) {
			objects = append(objects, t.object)
		}
	}
	return objects
}

// notePinned remembers the tags that were pinned: those for which a new clone lacks the
// commits are brought into it together.
func (m *mirror) notePinned(name string) {
	if m.pinned == nil || len(m.pinned) >= maxTags {
		m.pinned = map[string]bool{}
	}
	m.pinned[name] = true
}

// hasTag reports whether a tag was brought whole: its reference is written after that.
func (c *clone) hasTag(t tag) bool {
	ref, err := c.store().Reference(plumbing.NewTagReferenceName(t.name))
	return err == nil && ref.Hash() == t.object
}

// hasObjects reports whether all is there that a tag names.
func (c *clone) hasObjects(t tag) bool {
	store := c.store()
	return store.HasEncodedObject(t.object) == nil && store.HasEncodedObject(t.commit) == nil
}

// nameTag names a tag whose objects are there.
func (c *clone) nameTag(r gitserver.Remote, name plumbing.ReferenceName, t tag) error {
	store := c.store()
	if _, err := object.GetCommit(store, t.commit); err != nil {
		return &plan.Problem{Reason: v1alpha1.ReasonTagNotFound, Where: r.String(), Err: fmt.Errorf("tag %s does not name a commit", t.name), Hint: "move it to one, or correct spec.ref"}
	}
	if err := c.sound(t.commit, plumbing.ZeroHash); err != nil {
		return err
	}
	if err := store.SetReference(plumbing.NewHashReference(name, t.object)); err != nil {
		return gitserver.StorageProblem(err)
	}
	return nil
}

// isNoCommit tells the problem of a tag that names no commit, until it is moved.
func isNoCommit(err error) bool {
	p, ok := errors.AsType[*plan.Problem](err)
	return ok && p.Reason == v1alpha1.ReasonTagNotFound
}
