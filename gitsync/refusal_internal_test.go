package gitsync

import (
	"errors"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/go-git/go-billy/v5/osfs"
	"github.com/go-git/go-git/v5/plumbing"
	"github.com/go-git/go-git/v5/plumbing/cache"
	"github.com/go-git/go-git/v5/storage/filesystem"

	"github.com/tranche-dev/tranche/gitsync/apply"
	"github.com/tranche-dev/tranche/gitsync/gittest"
	"github.com/tranche-dev/tranche/gitsync/gittree"
	"github.com/tranche-dev/tranche/gitsync/repository"
	"github.com/tranche-dev/tranche/plan"
	"github.com/tranche-dev/tranche/plan/v1alpha1"
)

// Damage of the mirror is passed on where a commit is refused, or the mirror would never
// be repaired. That is the damage behind a refusal, and that of the commit which is
// applied.
func TestRefuse_Damage(t *testing.T) {
	problem := &plan.Problem{Reason: v1alpha1.ReasonNothingToApply, Where: "deploy", Err: errors.New("it does not render")}
	src := newSource(t.Context(), &resources{}, &v1alpha1.GitSource{}, cacheEntry{}, time.Now())
	if err := refuse(t.Context(), src, &result{}, attempt{}, errors.Join(gittree.ErrDamaged, problem)); !repository.IsDamaged(err) {
		t.Errorf("damage and a problem: %v", err)
	}
	repo := gittest.NewRepo(t)
	repo.CommitAndPush(map[string]string{"deploy/a.yaml": "kind: A\n"})
	applied, tree := repo.Head(), repo.Git("rev-parse", "HEAD^{tree}")
	if err := os.Remove(filepath.Join(repo.Work, ".git", "objects", tree[:2], tree[2:40])); err != nil {
		t.Fatal(err)
	}
	hash := plumbing.NewHash(applied)
	s := &repository.Snapshot{EncodedObjectStorer: filesystem.NewStorage(osfs.New(filepath.Join(repo.Work, ".git")), cache.NewObjectLRUDefault()), Commit: hash, Tip: hash}
	src.gs.Status.AppliedCommit, src.gs.Status.AppliedWith = applied, apply.Digest(&src.gs.Spec)
	if err := refuse(t.Context(), src, &result{}, attempt{snapshot: s}, problem); !repository.IsDamaged(err) {
		t.Errorf("a tree of the applied commit is gone: %v", err)
	}
}
