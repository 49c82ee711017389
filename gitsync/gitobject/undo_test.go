package gitobject

import (
	"bytes"
	"fmt"
	"maps"
	"math/rand/v2"
	"os/exec"
	"slices"
	"testing"
	"time"

	"github.com/go-git/go-git/v5/plumbing"
	"github.com/go-git/go-git/v5/plumbing/filemode"
	"github.com/go-git/go-git/v5/plumbing/object"
	"github.com/google/go-cmp/cmp"

	"github.com/tranche-dev/tranche/gitsync/gittest"
)

// treeAt is the tree of a commit.
func treeAt(repo *gittest.Repo, commit string) plumbing.Hash {
	return plumbing.NewHash(repo.Git("rev-parse", commit+"^{tree}"))
}

// send brings the objects of a commit into a repository, as a push does.
func send(t *testing.T, repo *gittest.Repo, s *Store, commit plumbing.Hash) {
	t.Helper()
	pack, err := s.Pack(commit)
	if err != nil {
		t.Fatal(err)
	}
	cmd := exec.Command("git", "index-pack", "--stdin", "--strict")
	cmd.Dir, cmd.Stdin = repo.Work, bytes.NewReader(pack)
	if out, err := cmd.CombinedOutput(); err != nil {
		t.Fatalf("%v: %s", err, out)
	}
}

// Trees are what git makes of the same files (G15), and packs are what git
// takes, whatever the names.
func TestWriteTreeIsGits(t *testing.T) {
	repo, random := gittest.NewRepo(t), rand.New(rand.NewPCG(3, 4))
	names := []string{"a", "a.yaml", "a-b", "a0", "b/c", "b.d", "b-e/f", "b/c.d/g", "b/c0", "h/i/j"}
	commit := plumbing.NewHash(repo.Commit(map[string]string{"a.yaml": "0\n", "b/c.d/g": "0\n", "h/i/j": "0\n"}))
	now := map[string]string{"a.yaml": "0\n", "b/c.d/g": "0\n", "h/i/j": "0\n"}
	for i := range 30 {
		s := NewStore(gittest.Objects(repo.Work + "/.git"))
		put, write := Files{}, map[string]string{}
		for range 1 + random.IntN(4) {
			name := names[random.IntN(len(names))]
			content := fmt.Sprintf("%d\n", i)
			if _, there := now[name]; there && random.IntN(2) == 0 && len(now) > 3 {
				put[name], write[name] = object.TreeEntry{}, ""
				delete(now, name)
				continue
			}
			blob, err := s.WriteBlob([]byte(content))
			if err != nil {
				t.Fatal(err)
			}
			put[name], write[name], now[name] = object.TreeEntry{Mode: filemode.Regular, Hash: blob}, content, content
		}
		before, err := object.GetCommit(s, commit)
		if err != nil {
			t.Fatal(err)
		}
		tree, err := s.WriteTree(before.TreeHash, put)
		if err != nil {
			t.Fatal(err)
		}
		ada := object.Signature{Name: "Ada", Email: "ada@example.org"}
		made, err := Committer{Author: ada, Committer: ada}.Commit(s, tree, []plumbing.Hash{commit}, "Change\n", time.Unix(1, 0))
		if err != nil {
			t.Fatal(err)
		}
		send(t, repo, s, made)
		repo.Git("reset", "-q", "--hard", commit.String())
		for name, content := range write {
			if content == "" {
				repo.Git("rm", "-q", "--cached", "--ignore-unmatch", name)
				delete(write, name)
			}
		}
		repo.Git("clean", "-qfd")
		repo.Write(write)
		for name := range write {
			repo.Git("add", name)
		}
		if want := repo.Git("write-tree"); tree.String() != want {
			t.Fatalf("%v: tree %s\n%s\nwant %s\n%s", put, tree, repo.Git("ls-tree", "-r", tree.String()), want, repo.Git("ls-tree", "-r", want))
		}
		commit = made
	}
	repo.Git("fsck", "--strict")
}

// Undo takes back what a commit changed. Later changes to other files and in other lines
// stay.
func TestUndo(t *testing.T) {
	base := map[string]string{"web.yaml": "replicas: 1\nlabel: a\nimage: v1\n", "old.yaml": "old\n", "kept.yaml": "kept\n"}
	release := map[string]string{"web.yaml": "replicas: 1\nlabel: a\nimage: v2\n", "old.yaml": "", "new.yaml": "new\n"}
	for _, c := range []struct {
		because   string
		since     map[string]string
		want      map[string]string // of the result, where it is not as the base
		conflicts []string
	}{
		{"nothing came since", nil, nil, nil},
		{"other files stay", map[string]string{"more.yaml": "more\n", "kept.yaml": ""}, map[string]string{"more.yaml": "more\n", "kept.yaml": ""}, nil},
		{"other lines stay", map[string]string{"web.yaml": "replicas: 5\nlabel: b\nimage: v2\n"}, map[string]string{"web.yaml": "replicas: 5\nlabel: b\nimage: v1\n"}, nil},
		{"the same line", map[string]string{"web.yaml": "replicas: 1\nlabel: a\nimage: v3\n"}, map[string]string{"web.yaml": "replicas: 1\nlabel: a\nimage: v3\n"}, []string{"web.yaml"}},
		{"a file of the release that was changed does not go", map[string]string{"new.yaml": "newer\n"}, map[string]string{"new.yaml": "newer\n"}, []string{"new.yaml"}},
		{"one that went already is gone", map[string]string{"new.yaml": ""}, nil, nil},
		{"one that came again, differently", map[string]string{"old.yaml": "other\n"}, map[string]string{"old.yaml": "other\n"}, []string{"old.yaml"}},
		{"taken back by hand already", map[string]string{"web.yaml": base["web.yaml"], "old.yaml": "old\n", "new.yaml": ""}, nil, nil},
	} {
		repo := gittest.NewRepo(t)
		before := repo.Commit(base)
		after := repo.Commit(release)
		tip := after
		if c.since != nil {
			tip = repo.Commit(c.since)
		}
		s := NewStore(gittest.Objects(repo.Work + "/.git"))
		changes, err := Diff(s, treeAt(repo, before), treeAt(repo, after))
		if err != nil {
			t.Fatal(err)
		}
		tree, conflicts, err := Undo(s, treeAt(repo, tip), changes)
		if err != nil {
			t.Fatal(err)
		}
		if diff := cmp.Diff(c.conflicts, conflicts); diff != "" {
			t.Errorf("%s: conflicts (-want +got):\n%s", c.because, diff)
		}
		want := map[string]string{}
		for _, from := range []map[string]string{base, c.want} {
			for name, content := range from {
				want[name] = content
			}
		}
		for name, content := range want {
			e, err := EntryAt(s, tree, name)
			if err != nil {
				t.Fatal(err)
			}
			got := ""
			if e.Mode != filemode.Empty {
				b, err := ReadBlob(s, e.Hash)
				if err != nil {
					t.Fatal(err)
				}
				got = string(b)
			}
			if got != content {
				t.Errorf("%s: %s is %q, want %q", c.because, name, got, content)
			}
		}
	}
}

// A change is taken back in the file that has its content now, if only one file has.
func TestFollow(t *testing.T) {
	base := map[string]string{"web.yaml": "v1\n", "twin.yaml": "v2\n"}
	for _, c := range []struct {
		because string
		release map[string]string
		since   map[string]string
		want    []string // paths of the changes
	}{
		{"the file is there", map[string]string{"web.yaml": "v2\n"}, map[string]string{"copy.yaml": "v2\n"}, []string{"web.yaml"}},
		{"it has moved", map[string]string{"web.yaml": "v2\n"}, map[string]string{"web.yaml": "", "app/web.yaml": "v2\n"}, []string{"app/web.yaml"}},
		{"a new file has moved", map[string]string{"new.yaml": "new\n"}, map[string]string{"new.yaml": "", "app/new.yaml": "new\n"}, []string{"app/new.yaml"}},
		{"it has moved to two places", map[string]string{"web.yaml": "v2\n"}, map[string]string{"web.yaml": "", "a.yaml": "v2\n", "b.yaml": "v2\n"}, []string{"web.yaml"}},
		{"it has moved and changed", map[string]string{"web.yaml": "v2\n"}, map[string]string{"web.yaml": "", "a.yaml": "v2 # moved\n"}, []string{"web.yaml"}},
		{"a file that was there before is another one", map[string]string{"web.yaml": "v2\n"}, map[string]string{"web.yaml": ""}, []string{"web.yaml"}},
		{"two of the same content", map[string]string{"web.yaml": "v3\n", "twin.yaml": "v3\n"}, map[string]string{"web.yaml": "", "twin.yaml": "", "a.yaml": "v3\n"}, []string{"twin.yaml", "web.yaml"}},
		{"a file that the change removed stays where it was", map[string]string{"web.yaml": ""}, map[string]string{"a.yaml": "v1\n"}, []string{"web.yaml"}},
	} {
		repo := gittest.NewRepo(t)
		before, after, tip := repo.Commit(base), repo.Commit(c.release), repo.Commit(c.since)
		s := NewStore(gittest.Objects(repo.Work + "/.git"))
		changes, err := Diff(s, treeAt(repo, before), treeAt(repo, after))
		if err != nil {
			t.Fatal(err)
		}
		followed, err := Follow(s, treeAt(repo, after), treeAt(repo, tip), changes)
		if err != nil {
			t.Fatal(err)
		}
		if diff := cmp.Diff(c.want, slices.Sorted(maps.Keys(followed))); diff != "" {
			t.Errorf("%s (-want +got):\n%s", c.because, diff)
		}
	}
}
