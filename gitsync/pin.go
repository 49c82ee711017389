package gitsync

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/Masterminds/semver/v3"
	"github.com/go-git/go-git/v5/plumbing"
	"github.com/go-git/go-git/v5/plumbing/object"

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
func tags(s *session) map[string]tag {
	list := map[string]tag{}
	for ref, object := range s.refs.References {
		name, ok := strings.CutPrefix(ref, "refs/tags/")
		if !ok {
			continue
		}
		t := tag{name: name, object: object, commit: object}
		if peeled, ok := s.refs.Peeled[ref]; ok {
			t.commit = peeled
		}
		list[name] = t
	}
	return list
}

// lookAt returns what a reference names as it has been on the server at some time since.
func (m *mirror) lookAt(ctx context.Context, r remote, ref v1alpha1.GitReference, since time.Time) (*snapshot, error) {
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
func (m *mirror) pin(ctx context.Context, r remote, ref v1alpha1.GitReference, tip *snapshot) (*snapshot, error) {
	pinned := tag{commit: plumbing.NewHash(ref.Commit)}
	if ref.Commit == "" {
		var err error
		if pinned, err = pick(m.seen.tags, ref); err != nil {
			return nil, r.problem(err)
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
		if there, err = m.order.precedes(ctx, s, pinned.commit, s.tip); err != nil {
			s.close()
			return nil, err
		}
	}
	if !there {
		s.close()
		return nil, &plan.Problem{
			Reason: reasonCommitNotFound, Where: r.String(), Err: fmt.Errorf("commit %s is not in the history of %s", shortCommit(ref.Commit), ref.Branch),
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
			return tag{}, &plan.Problem{Reason: reasonTagNotFound, Err: fmt.Errorf("there is no tag %s", oneLine(ref.Tag)), Hint: "push it, or correct spec.ref.tag"}
		}
		return t, nil
	}
	within, err := semver.NewConstraint(ref.SemVer)
	if err != nil {
		return tag{}, &plan.Problem{Reason: reasonInvalidSemVer, Where: "spec.ref.semver", Err: errors.New(oneLine(err.Error())), Hint: `write a range such as ">=1.2.0 <2.0.0"`}
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
		return tag{}, &plan.Problem{Reason: reasonTagNotFound, Err: fmt.Errorf("no tag is a version in %s", oneLine(ref.SemVer)), Hint: "push one, such as v1.2.3, or correct spec.ref.semver"}
	}
	return found, nil
}

// bringTag brings a tag into the current clone, if it is not there. It returns the tag as
// it was brought: it may have moved.
func (m *mirror) bringTag(ctx context.Context, r remote, branch string, t tag) (tag, error) {
	if m.current.hasTag(t) {
		return t, nil
	}
	name := plumbing.NewTagReferenceName(t.name)
	if f, ok := m.refused[name.String()]; ok && f.tip == t.object && (f.until.IsZero() || time.Now().Before(f.until)) {
		return t, f.err
	}
	defer m.measure()
	if m.current.packs() >= maxPacks {
		s, err := m.cloneAnew(ctx, r, branch)
		if err != nil {
			return t, err
		}
		s.close()
	}
	s, err := connect(ctx, r)
	if err != nil {
		return t, err
	}
	defer s.close()
	now, ok := tags(s)[t.name]
	if !ok {
		return t, r.problem(&plan.Problem{Reason: reasonTagNotFound, Err: fmt.Errorf("there is no tag %s any more", t.name), Hint: "push it again, or correct spec.ref"})
	}
	if err := m.current.fetchTag(ctx, s, name, now); err != nil {
		return t, m.refuse(r, name.String(), now.object, err)
	}
	return now, nil
}

// hasTag reports whether a tag was brought whole: its reference is written after that.
func (c *clone) hasTag(t tag) bool {
	ref, err := c.store().Reference(plumbing.NewTagReferenceName(t.name))
	return err == nil && ref.Hash() == t.object
}

// fetchTag brings what a tag names.
func (c *clone) fetchTag(ctx context.Context, s *session, name plumbing.ReferenceName, t tag) error {
	store := c.store()
	if store.HasEncodedObject(t.object) != nil || store.HasEncodedObject(t.commit) != nil {
		if err := c.bring(ctx, s, t.object); err != nil {
			return err
		}
		store = c.store() // with the pack that has come
	}
	if _, err := object.GetCommit(store, t.commit); err != nil {
		return &plan.Problem{Reason: reasonTagNotFound, Where: s.remote.String(), Err: fmt.Errorf("tag %s does not name a commit", t.name), Hint: "move it to one, or correct spec.ref"}
	}
	if err := c.sound(t.commit, plumbing.ZeroHash); err != nil {
		return err
	}
	if err := store.SetReference(plumbing.NewHashReference(name, t.object)); err != nil {
		return storageProblem(err)
	}
	return nil
}

// isNoCommit tells the problem of a tag that names no commit, until it is moved.
func isNoCommit(err error) bool {
	p, ok := errors.AsType[*plan.Problem](err)
	return ok && p.Reason == reasonTagNotFound
}

// refName is what was followed to a snapshot, for messages.
func (l *look) refName(s *snapshot) string {
	if s.tag.name != "" {
		return s.tag.name
	}
	return l.gs.Spec.Ref.String()
}
