package desired

import (
	"errors"
	"fmt"
	"path"
	"strconv"
	"strings"

	"sigs.k8s.io/kustomize/kyaml/filesys"

	"github.com/tranche-dev/tranche/gitsync/gittree"
	"github.com/tranche-dev/tranche/gitsync/repository"
	"github.com/tranche-dev/tranche/plan"
	"github.com/tranche-dev/tranche/plan/manifest"
	"github.com/tranche-dev/tranche/plan/v1alpha1"
)

const (
	// maxBases is how many remote bases one rendering may name, those of bases included.
	maxBases = 32
)

// Unfetched is the error of a rendering that needs a remote base which its server does not
// give now. So it is not known what the commit renders: the server may belong to who gains
// by that.
type Unfetched struct{ Err error }

func (u Unfetched) Error() string { return u.Err.Error() }

func (u Unfetched) Unwrap() error { return u.Err }

func IsUnfetched(err error) bool {
	_, ok := errors.AsType[Unfetched](err)
	return ok
}

// baseTrees is the tree of a commit with, beside it, those of remote bases.
type baseTrees struct {
	*gittree.Tree
	at        map[manifest.RemoteBase]string
	trees     map[string]*gittree.Tree // by the name of their folder
	snapshots []*repository.Snapshot
	size      int64 // on disk, in bytes
}

func newBaseTrees(t *gittree.Tree) *baseTrees {
	return &baseTrees{Tree: t, at: map[manifest.RemoteBase]string{}, trees: map[string]*gittree.Tree{}}
}

// add fetches bases, of which none is there. The list comes from a renderer, which has
// read what a tenant has committed.
func (b *baseTrees) add(list []manifest.RemoteBase, fetch repository.FetchBase) error {
	if len(b.at)+len(list) > maxBases {
		return gittree.Exceeded("", fmt.Sprintf("%d remote bases are named, and at most %d are fetched", len(b.at)+len(list), maxBases), "")
	}
	before := len(b.at)
	for _, base := range list {
		if _, ok := b.at[base]; ok {
			continue
		}
		s, err := fetch(base)
		if p, ok := errors.AsType[*plan.Problem](err); ok && p.Reason == v1alpha1.ReasonInvalidURL {
			return err
		}
		if err != nil {
			return Unfetched{err}
		}
		b.snapshots = append(b.snapshots, s)
		// They stay on disk until the rendering ends, also those that makeRoom drops.
		if b.size += s.DiskSize(); b.size > repository.BaseShare*s.Limits().RepositorySize {
			return Unfetched{gittree.Exceeded("", "the remote bases take more than one repository may", "--max-repository-size")}
		}
		tree, err := gittree.Open(s, s.Commit)
		if err != nil {
			return Unfetched{repository.BaseProblem(base, err)}
		}
		name := ".tranche-base-" + strconv.Itoa(len(b.at))
		b.at[base], b.trees[name] = "/"+name, tree
	}
	if len(b.at) == before {
		return &plan.Problem{Reason: plan.ReasonRenderFailed, Err: errors.New("remote bases that are there are asked for again")}
	}
	return nil
}

func (b *baseTrees) close() {
	for _, s := range b.snapshots {
		s.Close()
	}
}

// tree returns the tree that a path leads into, the folder of that tree, and the path in
// it. The folder is empty for the tree of the commit itself.
func (b *baseTrees) tree(p string) (t *gittree.Tree, root, below string) {
	p = path.Clean("/" + p)
	name, rest, _ := strings.Cut(p[1:], "/")
	if t, ok := b.trees[name]; ok {
		return t, "/" + name, "/" + rest
	}
	return b.Tree, "", p
}

// Err returns the first error of a storer, or nil.
func (b *baseTrees) Err() error {
	err := b.Tree.Err()
	for _, t := range b.trees {
		if err == nil {
			err = t.Err()
		}
	}
	return err
}

func (b *baseTrees) ReadFile(p string) ([]byte, error) {
	t, _, below := b.tree(p)
	return t.ReadFile(below)
}

func (b *baseTrees) ReadDir(p string) ([]string, error) {
	t, _, below := b.tree(p)
	return t.ReadDir(below)
}

func (b *baseTrees) Exists(p string) bool {
	t, _, below := b.tree(p)
	return t.Exists(below)
}

func (b *baseTrees) IsDir(p string) bool {
	t, _, below := b.tree(p)
	return t.IsDir(below)
}

func (b *baseTrees) CleanedAbs(p string) (filesys.ConfirmedDir, string, error) {
	t, root, below := b.tree(p)
	dir, file, err := t.CleanedAbs(below)
	if err == nil && root != "" {
		dir = filesys.ConfirmedDir(path.Join(root, string(dir)))
	}
	return dir, file, err
}
