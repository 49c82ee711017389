package desired

import (
	"context"
	"strings"

	"github.com/go-git/go-git/v5/plumbing"
	"github.com/go-git/go-git/v5/plumbing/storer"

	"github.com/tranche-dev/tranche/gitsync/gitobject"
	"github.com/tranche-dev/tranche/plan/v1alpha1"
)

// Elsewhere says which fields of a spec make a source look elsewhere than where the objects
// that it has applied come from. Empty: it looks there, or the place is not known. A new URL or
// ref whose commit has the applied one in its history is no other place. An object that is
// missing there was deleted by a commit.
func Elsewhere(ctx context.Context, s storer.EncodedObjectStorer, commit plumbing.Hash, gs *v1alpha1.GitSource) (string, error) {
	was, is := gs.Status.AppliedFrom, gs.Spec.Place()
	if was == nil || *was == *is {
		return "", nil
	}
	var said []string
	add := func(field, was, is string) {
		if was != is {
			said = append(said, "spec."+field+" was "+quoted(was))
		}
	}
	if was.URL != is.URL || was.Ref != is.Ref {
		if follows, err := isAfterApplied(ctx, s, commit, gs); err != nil {
			return "", err
		} else if !follows {
			add("url", was.URL, is.URL)
			add("ref", refName(was.Ref), refName(is.Ref))
		}
	}
	add("path", was.Path, is.Path)
	if was.Path == is.Path && was.ApprovalsPath != "" { // another path has another default
		add("approvals.path", was.ApprovalsPath, is.ApprovalsPath)
	}
	add("targetNamespace", was.TargetNamespace, is.TargetNamespace)
	return strings.Join(said, ", "), nil
}

// isAfterApplied reports whether a commit has the applied one in its history, or is that one.
func isAfterApplied(ctx context.Context, s storer.EncodedObjectStorer, commit plumbing.Hash, gs *v1alpha1.GitSource) (bool, error) {
	applied := plumbing.NewHash(gs.Status.AppliedCommit)
	if s.HasEncodedObject(applied) != nil {
		return false, nil
	}
	return gitobject.IsInHistory(ctx, s, applied, commit)
}

// refName tells each ref from each other one.
func refName(r v1alpha1.GitReference) string {
	name := r.Branch
	for _, pin := range []struct{ field, value string }{{"tag", r.Tag}, {"semver", r.SemVer}, {"commit", r.Commit}} {
		if pin.value != "" {
			name += " with " + pin.field + " " + pin.value
		}
	}
	return name
}

func quoted(value string) string {
	if value == "" {
		return "empty"
	}
	return value
}
