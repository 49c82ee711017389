package repository

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/go-git/go-git/v5/plumbing"
	"github.com/go-git/go-git/v5/plumbing/filemode"
	"github.com/go-git/go-git/v5/plumbing/object"

	"github.com/tranche-dev/tranche/gitsync/gitobject"
	"github.com/tranche-dev/tranche/gitsync/gitserver"
	"github.com/tranche-dev/tranche/gitsync/gittest"
	"github.com/tranche-dev/tranche/plan"
	"github.com/tranche-dev/tranche/rollout/clustertest"
)

// commitOn makes a commit with one more file in a folder.
func commitOn(t *testing.T, s *gitobject.Store, parent plumbing.Hash, file, content string) plumbing.Hash {
	t.Helper()
	before, err := object.GetCommit(s, parent)
	if err != nil {
		t.Fatal(err)
	}
	blob, err := s.WriteBlob([]byte(content))
	if err != nil {
		t.Fatal(err)
	}
	tree, err := s.WriteTree(before.TreeHash, gitobject.Files{file: {Mode: filemode.Regular, Hash: blob}})
	if err != nil {
		t.Fatal(err)
	}
	ada := object.Signature{Name: "Ada", Email: "ada@example.org"}
	made, err := gitobject.Committer{Author: ada, Committer: ada}.Commit(s, tree, []plumbing.Hash{parent}, "Add "+file+"\n", time.Unix(1, 0))
	if err != nil {
		t.Fatal(err)
	}
	return made
}

func pushed(t *testing.T, r gitserver.Remote, s *gitobject.Store, branch string, from, to plumbing.Hash) error {
	t.Helper()
	pack, err := s.Pack(to)
	if err != nil {
		t.Fatal(err)
	}
	return r.Push(t.Context(), gitserver.Update{Branch: branch, From: from, To: to, Pack: pack}, clustertest.Within)
}

// A server has none of the commits of one push: each is made on the one before. The first
// one has objects that the last one does not have.
func TestPush_CommitsOnOneAnother(t *testing.T) {
	t.Parallel()
	ssh := gittest.ServeSSH(t)
	key := ssh.Key("client", "ed25519", "")
	ssh.Let(key)
	identity, err := os.ReadFile(key)
	if err != nil {
		t.Fatal(err)
	}
	secret := map[string][]byte{"identity": identity, "known_hosts": []byte(ssh.KnownHosts("ed25519"))}
	for name, remote := range map[string]func(t *testing.T, repo *gittest.Repo) gitserver.Remote{
		"file": func(t *testing.T, repo *gittest.Repo) gitserver.Remote { return remoteFor(t, repo.URL(), nil) },
		"http": func(t *testing.T, repo *gittest.Repo) gitserver.Remote {
			return remoteFor(t, gittest.Serve(t, filepath.Dir(repo.Bare), gittest.ServeOptions{}).URL+"/"+filepath.Base(repo.Bare), nil)
		},
		"ssh": func(t *testing.T, repo *gittest.Repo) gitserver.Remote {
			return remoteFor(t, ssh.URL(repo.Bare), secret)
		},
	} {
		for _, branch := range []string{"main", "review"} {
			t.Run(name+" "+branch, func(t *testing.T) {
				repo := gittest.NewRepo(t)
				repo.CommitAndPush(map[string]string{"a": "0\n", "dir/a": "0\n"})
				tip := plumbing.NewHash(repo.Head())
				r := remote(t, repo)
				s := gitobject.NewStore(mustLook(t, NewCache(t.TempDir()), r, "main"))
				head := tip
				for i := range 3 {
					head = commitOn(t, s, head, "dir/b", fmt.Sprintln(i))
				}
				from := tip
				if branch != "main" {
					from = plumbing.ZeroHash
				}
				if err := pushed(t, r, s, branch, from, head); err != nil {
					t.Fatal(err)
				}
				gittest.Git(t, repo.Bare, "fsck", "--strict", "--full", "--connectivity-only")
				if got := gittest.Git(t, repo.Bare, "rev-list", "--count", "main.."+branch); branch != "main" && got != "3" {
					t.Errorf("%s commits were pushed", got)
				}
				for i := range 3 {
					if got := gittest.Git(t, repo.Bare, "show", fmt.Sprintf("%s~%d:dir/b", branch, 2-i)); got != fmt.Sprint(i) {
						t.Errorf("commit %d has %q", i, got)
					}
				}
			})
		}
	}
}

// The mirror may have objects that the server has no longer: a force-push took them away,
// and git gc removed them. A commit with the same content brings them again.
func TestPush_ObjectsThatTheServerHasNoLonger(t *testing.T) {
	t.Parallel()
	repo := gittest.NewRepo(t)
	tip := repo.CommitAndPush(map[string]string{"a": "0\n", "dir/a": "0\n"})
	r, cache := remoteFor(t, repo.URL(), nil), NewCache(t.TempDir())
	repo.CommitAndPush(map[string]string{"dir/b": "1\n"})
	mustLook(t, cache, r, "main")
	repo.Git("push", "-q", "--force", "origin", tip+":main")
	gittest.Git(t, repo.Bare, "-c", "gc.reflogExpire=now", "-c", "gc.reflogExpireUnreachable=now", "gc", "-q", "--prune=now")
	s := gitobject.NewStore(mustLook(t, cache, r, "main"))
	from := plumbing.NewHash(tip)
	if err := pushed(t, r, s, "main", from, commitOn(t, s, from, "dir/b", "1\n")); err != nil {
		t.Fatal(err)
	}
	gittest.Git(t, repo.Bare, "fsck", "--strict", "--full", "--connectivity-only")
}

// Advice on rights is given only if rights may be the cause of a refusal.
func TestPush_AdviceOnRefusal(t *testing.T) {
	t.Parallel()
	const rights, server = "let its account push there", "git fsck"
	for name, tt := range map[string]struct {
		hook   string
		lose   bool
		advice string
	}{
		"a hook":          {hook: "#!/bin/sh\necho 'only signed commits' >&2\nexit 1\n", advice: rights},
		"missing objects": {lose: true, advice: server},
	} {
		t.Run(name, func(t *testing.T) {
			repo := gittest.NewRepo(t)
			tip := plumbing.NewHash(repo.CommitAndPush(map[string]string{"a": "0\n"}))
			if tt.hook != "" {
				file := filepath.Join(repo.Bare, "hooks", "pre-receive")
				if err := os.MkdirAll(filepath.Dir(file), 0o755); err != nil {
					t.Fatal(err)
				}
				if err := os.WriteFile(file, []byte(tt.hook), 0o755); err != nil {
					t.Fatal(err)
				}
			}
			r := remoteFor(t, repo.URL(), nil)
			snapshot := mustLook(t, NewCache(t.TempDir()), r, "main")
			s := gitobject.NewStore(snapshot)
			first := commitOn(t, s, tip, "b", "1\n")
			u := gitserver.Update{Branch: "main", From: tip, To: first}
			var err error
			if u.Pack, err = s.Pack(first); err != nil {
				t.Fatal(err)
			}
			if tt.lose { // the pack is of another commit
				u.To = commitOn(t, s, first, "c", "1\n")
			}
			ps := plan.ProblemsOf(r.Push(t.Context(), u, clustertest.Within))
			if len(ps) != 1 || ps[0].Reason != "PushRejected" || !strings.Contains(ps[0].Hint, tt.advice) {
				t.Fatalf("%+v, want advice with %q", ps, tt.advice)
			}
			if other := map[string]string{rights: server, server: rights}[tt.advice]; strings.Contains(ps[0].Hint, other) {
				t.Errorf("it also advises %q", ps[0].Hint)
			}
		})
	}
}
