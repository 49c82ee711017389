package repository

import (
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"maps"
	"math/big"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/go-git/go-git/v5/plumbing"
	"github.com/go-git/go-git/v5/plumbing/protocol/packp"
	"github.com/go-git/go-git/v5/plumbing/transport"

	"github.com/tranche-dev/tranche/gitsync/gitserver"
	"github.com/tranche-dev/tranche/gitsync/gittest"
	"github.com/tranche-dev/tranche/gitsync/gittree"
	"github.com/tranche-dev/tranche/plan"
	"github.com/tranche-dev/tranche/plan/v1alpha1"
	"github.com/tranche-dev/tranche/rollout/clustertest"
)

func remoteFor(t *testing.T, raw string, data map[string][]byte) gitserver.Remote {
	t.Helper()
	u, err := gitserver.ParseURL(raw)
	if err != nil {
		t.Fatal(err)
	}
	r := gitserver.Remote{URL: u}
	if data != nil {
		r.Secret = "shop/git"
	}
	if r.Access, err = gitserver.NewAccess(u, r.Secret, data, clustertest.Within); err != nil {
		t.Fatal(err)
	}
	return r
}

// lookWithin is how long a fetch may take that ends for a reason. It is short only if
// that reason is the timeout.
func lookWithin(reason string) time.Duration {
	if reason == v1alpha1.ReasonTimeout {
		return time.Second
	}
	return clustertest.Within
}

func lookAt(t *testing.T, ms *Cache, r gitserver.Remote, branch string) (*Snapshot, error) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), clustertest.Within)
	defer cancel()
	s, err := ms.Of(r).Fetch(ctx, r, branch)
	if err == nil {
		t.Cleanup(s.Close)
	}
	return s, err
}

func mustLook(t *testing.T, ms *Cache, r gitserver.Remote, branch string) *Snapshot {
	t.Helper()
	s, err := lookAt(t, ms, r, branch)
	if err != nil {
		t.Fatal(err)
	}
	return s
}

func content(t *testing.T, s *Snapshot, file string) string {
	t.Helper()
	fs, err := gittree.Open(s, s.Commit)
	if err != nil {
		t.Fatal(err)
	}
	b, err := fs.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	return string(b)
}

func TestMirrorFollowsABranch(t *testing.T) {
	repo := gittest.NewRepo(t)
	first := repo.CommitAndPush(map[string]string{"a": "1", "dir/b": "2"})
	server := gittest.Serve(t, filepath.Dir(repo.Bare), gittest.ServeOptions{})
	for name, url := range map[string]string{"file": repo.URL(), "http": server.URL + "/repo.git"} {
		t.Run(name, func(t *testing.T) {
			ms, r := NewCache(t.TempDir()), remoteFor(t, url, nil)
			repo.Git("push", "-q", "--force", "origin", first+":main")
			repo.Git("reset", "-q", "--hard", first)
			old := mustLook(t, ms, r, "main")
			if old.Commit.String() != first || !old.Fetched || content(t, old, "dir/b") != "2" {
				t.Fatalf("%s %t", old.Commit, old.Fetched)
			}
			if again := mustLook(t, ms, r, "main"); again.Fetched {
				t.Error("fetched although nothing had changed")
			}
			second := repo.CommitAndPush(map[string]string{"dir/b": "3"})
			s := mustLook(t, ms, r, "main")
			if s.Commit.String() != second || content(t, s, "dir/b") != "3" {
				t.Errorf("%s: %s", s.Commit, content(t, s, "dir/b"))
			}
			if content(t, old, "dir/b") != "2" {
				t.Error("a snapshot changed")
			}
			if pushed, err := s.ForcePushed(plumbing.NewHash(first)); pushed || err != nil {
				t.Errorf("force-pushed %t, %v", pushed, err)
			}
			// A new process finds the same disk.
			if s := mustLook(t, NewCache(ms.dir), r, "main"); s.Fetched || s.Commit.String() != second {
				t.Errorf("after a restart: fetched %t, %s", s.Fetched, s.Commit)
			}
		})
	}
}

func TestMirrorNoticesForcePush(t *testing.T) {
	repo := gittest.NewRepo(t)
	repo.CommitAndPush(map[string]string{"a": "1"})
	gone := repo.CommitAndPush(map[string]string{"a": "2"})
	ms, r := NewCache(t.TempDir()), remoteFor(t, repo.URL(), nil)
	mustLook(t, ms, r, "main")
	repo.Git("reset", "-q", "--hard", "HEAD~1")
	tip := repo.Commit(map[string]string{"a": "3"})
	repo.Push("--force")
	s := mustLook(t, ms, r, "main")
	if s.Commit.String() != tip {
		t.Fatalf("at %s, want %s", s.Commit, tip)
	}
	if pushed, err := s.ForcePushed(plumbing.NewHash(gone)); !pushed || err != nil {
		t.Errorf("force-pushed %t, %v", pushed, err)
	}
}

// One of the servers behind an address lags behind. Its answers do not take the branch back, and
// those of all of them do.
func TestMirrorOfServersThatLag(t *testing.T) {
	t.Parallel()
	repo := gittest.NewRepo(t)
	first := repo.CommitAndPush(map[string]string{"a": "1"})
	gittest.Git(t, filepath.Dir(repo.Bare), "clone", "-q", "--bare", repo.Bare, "older.git")
	second := repo.CommitAndPush(map[string]string{"a": "2"})
	var older, asked atomic.Int32
	server := gittest.Serve(t, filepath.Dir(repo.Bare), gittest.ServeOptions{Wrap: func(h http.Handler) http.Handler {
		return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			if r.Method == http.MethodGet && asked.Add(1) <= older.Load() {
				r.URL.Path = strings.Replace(r.URL.Path, "repo.git", "older.git", 1)
			}
			h.ServeHTTP(w, r)
		})
	}})
	ms, r := NewCache(t.TempDir()), remoteFor(t, server.URL+"/repo.git", nil)
	for _, tt := range []struct {
		older, asked int32
		tip, after   string
	}{
		{0, 1, second, "before"},
		{1, 2, second, "one answer of an older server"},
		{2, 3, second, "two answers of an older server"},
		{100, 3, first, "a push by force"},
		{0, 1, second, "a push"},
	} {
		asked.Store(0)
		older.Store(tt.older)
		if s := mustLook(t, ms, r, "main"); s.Commit.String() != tt.tip || asked.Load() != tt.asked {
			t.Errorf("after %s, the branch is at %s, and the server was asked %d times", tt.after, s.Commit, asked.Load())
		}
	}
}

func TestMirrorFollowsManyBranches(t *testing.T) {
	repo := gittest.NewRepo(t)
	repo.CommitAndPush(map[string]string{"a": "main"})
	repo.Git("checkout", "-q", "-b", "release/v1.2")
	repo.CommitAndPush(map[string]string{"a": "release"})
	ms, r := NewCache(t.TempDir()), remoteFor(t, repo.URL(), nil)
	for branch, want := range map[string]string{"main": "main", "release/v1.2": "release"} {
		if got := content(t, mustLook(t, ms, r, branch), "a"); got != want {
			t.Errorf("%s: %q", branch, got)
		}
	}
}

func TestMirrorHeals(t *testing.T) {
	repo := gittest.NewRepo(t)
	repo.CommitAndPush(map[string]string{"a": "1", "b": "x"})
	for name, damage := range map[string]func(dir string){
		"packs gone": func(dir string) {
			files, _ := filepath.Glob(filepath.Join(dir, "objects", "pack", "*"))
			for _, f := range files {
				_ = os.Remove(f)
			}
		},
		"everything gone": func(dir string) { _ = os.RemoveAll(dir) },
	} {
		t.Run(name, func(t *testing.T) {
			ms, r := NewCache(t.TempDir()), remoteFor(t, repo.URL(), nil)
			s := mustLook(t, ms, r, "main")
			damage(s.clone.dir)
			tip := repo.CommitAndPush(map[string]string{"a": name})
			if s := mustLook(t, ms, r, "main"); s.Commit.String() != tip || content(t, s, "b") != "x" {
				t.Errorf("at %s", s.Commit)
			}
		})
	}
}

// Damage that only a reader meets is recognized, and cloning again repairs it.
func TestReaderMeetsDamage(t *testing.T) {
	repo := gittest.NewRepo(t)
	repo.CommitAndPush(map[string]string{"dir/a": gittest.Noise(4 << 10), "dir/b": gittest.Noise(4<<10) + "b"})
	truncate := func(pattern string, keep int64) func(t *testing.T, dir string) {
		return func(t *testing.T, dir string) {
			for _, f := range packFiles(t, dir, pattern) {
				if err := errors.Join(os.Chmod(f, 0o600), os.Truncate(f, keep)); err != nil {
					t.Fatal(err)
				}
			}
		}
	}
	for name, damage := range map[string]func(t *testing.T, dir string){
		"a pack cut short":            truncate("*.pack", 200),
		"a pack cut to nothing":       truncate("*.pack", 0),
		"an index cut short":          truncate("*.idx", 100),
		"packs gone":                  func(t *testing.T, dir string) { removeFiles(t, packFiles(t, dir, "*")) },
		"the index gone":              func(t *testing.T, dir string) { removeFiles(t, packFiles(t, dir, "*.idx")) },
		"the pack gone":               func(t *testing.T, dir string) { removeFiles(t, packFiles(t, dir, "*.pack")) },
		"bytes of a pack overwritten": overwrite,
	} {
		t.Run(name, func(t *testing.T) {
			ms, r := NewCache(t.TempDir()), remoteFor(t, repo.URL(), nil)
			s := mustLook(t, ms, r, "main")
			damage(t, s.clone.dir)
			s.EncodedObjectStorer = s.clone.store() // as the next reader has it
			err := readAll(s)
			if !IsDamaged(err) {
				t.Fatalf("%v is not taken for damage", err)
			}
			if err := ms.Of(r).Repair(t.Context(), s); err != nil {
				t.Fatal(err)
			}
			if s := mustLook(t, ms, r, "main"); !s.Fetched || readAll(s) != nil {
				t.Error("not cloned anew")
			}
		})
	}
}

func packFiles(t *testing.T, dir, pattern string) []string {
	t.Helper()
	files, err := filepath.Glob(filepath.Join(dir, "objects", "pack", pattern))
	if err != nil || len(files) == 0 {
		t.Fatalf("%v %v", files, err)
	}
	return files
}

func removeFiles(t *testing.T, files []string) {
	t.Helper()
	for _, f := range files {
		if err := os.Remove(f); err != nil {
			t.Fatal(err)
		}
	}
}

// overwrite puts zeros into the middle of a pack.
func overwrite(t *testing.T, dir string) {
	t.Helper()
	for _, f := range packFiles(t, dir, "*.pack") {
		if err := os.Chmod(f, 0o600); err != nil {
			t.Fatal(err)
		}
		content, err := os.ReadFile(f)
		if err != nil {
			t.Fatal(err)
		}
		clear(content[12 : len(content)-20])
		if err := os.WriteFile(f, content, 0o600); err != nil {
			t.Fatal(err)
		}
	}
}

// readAll reads every file of a snapshot.
func readAll(s *Snapshot) error {
	tree, err := gittree.Open(s, s.Commit)
	if err != nil {
		return err
	}
	err = tree.Walk("/", func(p string, info fs.FileInfo, err error) error {
		if err != nil || info.IsDir() {
			return err
		}
		_, err = tree.ReadFile(p)
		return err
	})
	return errors.Join(err, tree.Err())
}

// A repository of which the server itself has not all is not cloned over and
// over, and the mirror that is there stays.
func TestServerWithHoles(t *testing.T) {
	repo := gittest.NewRepo(t)
	repo.CommitAndPush(map[string]string{"a": "1"})
	ms, r := NewCache(t.TempDir()), remoteFor(t, repo.URL(), nil)
	before := mustLook(t, ms, r, "main")
	repo.CommitAndPush(map[string]string{"dir/a": "2"})
	// A blob that no repository has: git upload-pack fails on it.
	blob := gittest.Git(t, repo.Bare, "rev-parse", "main:dir/a")
	if err := os.Remove(filepath.Join(repo.Bare, "objects", blob[:2], blob[2:])); err != nil {
		t.Fatal(err)
	}
	for range 2 {
		_, err := lookAt(t, ms, r, "main")
		ps := plan.ProblemsOf(err)
		if len(ps) != 1 || ps[0].Reason != v1alpha1.ReasonFetchFailed {
			t.Fatalf("%v", err)
		}
		t.Log(err)
	}
	if content(t, before, "a") != "1" {
		t.Error("what was there is gone")
	}
}

// A server says that its pack has four billion objects. That is no reason to take memory
// for them, and to ask again: other tenants have the same process.
func TestServerThatLies(t *testing.T) {
	repo := gittest.NewRepo(t)
	repo.CommitAndPush(map[string]string{"a": "1"})
	var asked atomic.Int32
	var lies atomic.Bool
	server := gittest.Serve(t, filepath.Dir(repo.Bare), gittest.ServeOptions{Wrap: func(h http.Handler) http.Handler {
		return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			if !lies.Load() || !strings.HasSuffix(r.URL.Path, "/git-upload-pack") {
				h.ServeHTTP(w, r)
				return
			}
			asked.Add(1)
			w.Header().Set("Content-Type", "application/x-git-upload-pack-result")
			pack := "PACK\x00\x00\x00\x02\xff\xff\xff\xff" + strings.Repeat("x", 40)
			_, _ = fmt.Fprintf(w, "0008NAK\n%04x\x01%s0000", 5+len(pack), pack)
		})
	}})
	ms, r := NewCache(t.TempDir()), remoteFor(t, server.URL+"/repo.git", nil)
	before := mustLook(t, ms, r, "main")
	repo.CommitAndPush(map[string]string{"a": "2"})
	lies.Store(true)
	for range 3 {
		_, err := lookAt(t, ms, r, "main")
		says := "the server sends 4294967295 objects, and at most 1048576 are taken"
		if !gittree.IsExceeded(err) || !gittest.ErrorSays(err, says) {
			t.Errorf("got %v, want %q", err, says)
		}
	}
	if n := asked.Load(); n != 1 {
		t.Errorf("the server was asked %d times for one tip", n)
	}
	if content(t, before, "a") != "1" {
		t.Error("what was there is gone")
	}
	lies.Store(false)
	repo.CommitAndPush(map[string]string{"a": "3"})
	if s := mustLook(t, ms, r, "main"); content(t, s, "a") != "3" {
		t.Error("the next commit is not brought")
	}
}

func TestMirrorClonesAnewWhenFullOfPacks(t *testing.T) {
	repo := gittest.NewRepo(t)
	repo.CommitAndPush(map[string]string{"a": "0"})
	ms, r := NewCache(t.TempDir()), remoteFor(t, repo.URL(), nil)
	s := mustLook(t, ms, r, "main")
	for i := range maxPacks {
		f := filepath.Join(s.clone.dir, "objects", "pack", "pack-"+strings.Repeat("0", 39)+string(rune('a'+i))+".pack")
		if err := os.WriteFile(f, nil, 0o644); err != nil {
			t.Fatal(err)
		}
	}
	tip := repo.CommitAndPush(map[string]string{"a": "1"})
	next := mustLook(t, ms, r, "main")
	if next.Commit.String() != tip || next.clone == s.clone || next.clone.packs() != 1 {
		t.Errorf("%d packs", next.clone.packs())
	}
	s.Close()
	s.clone.readers = 1 // for the cleanup
	if _, err := os.Stat(s.clone.dir); !os.IsNotExist(err) {
		t.Errorf("the old clone is still there: %v", err)
	}
}

// clientCertificate makes one, its key, and the pool of authorities that vouches
// for it.
func clientCertificate(t *testing.T) (cert, key []byte, pool *x509.CertPool) {
	t.Helper()
	private, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	template := &x509.Certificate{SerialNumber: big.NewInt(1), Subject: pkix.Name{CommonName: "tranche"}, NotAfter: time.Now().Add(time.Hour), ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageClientAuth}}
	der, err := x509.CreateCertificate(rand.Reader, template, template, private.Public(), private)
	if err != nil {
		t.Fatal(err)
	}
	keyDER, err := x509.MarshalECPrivateKey(private)
	if err != nil {
		t.Fatal(err)
	}
	cert = pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: der})
	pool = x509.NewCertPool()
	pool.AppendCertsFromPEM(cert)
	return cert, pem.EncodeToMemory(&pem.Block{Type: "EC PRIVATE KEY", Bytes: keyDER}), pool
}

func TestMirrorSaysWhatIsWrong(t *testing.T) {
	repo := gittest.NewRepo(t)
	repo.CommitAndPush(map[string]string{"a": "1"})
	root := filepath.Dir(repo.Bare)
	gittest.NewRepoAt(t, filepath.Join(root, "empty.git"))
	sha256 := gittest.NewRepoAt(t, filepath.Join(root, "sha256.git"), "--object-format=sha256")
	sha256.CommitAndPush(map[string]string{"a": "1"})
	open := gittest.Serve(t, root, gittest.ServeOptions{})
	closed := gittest.Serve(t, root, gittest.ServeOptions{Username: "ada", Password: "s3cret"})
	secure := gittest.Serve(t, root, gittest.ServeOptions{TLS: true})
	cert, key, clients := clientCertificate(t)
	mutual := gittest.Serve(t, root, gittest.ServeOptions{TLS: true, ClientCAs: clients})
	trusts := func(s *httptest.Server, more map[string][]byte) map[string][]byte {
		data := map[string][]byte{"ca.crt": pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: s.Certificate().Raw})}
		maps.Copy(data, more)
		return data
	}
	broken := gittest.Serve(t, root, gittest.ServeOptions{Wrap: func(http.Handler) http.Handler {
		return http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
			http.Error(w, "out of order", http.StatusServiceUnavailable)
		})
	}})
	slow := gittest.Serve(t, root, gittest.ServeOptions{Wrap: func(http.Handler) http.Handler {
		return http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) { <-r.Context().Done() })
	}})
	answering := func(f http.HandlerFunc) *httptest.Server {
		return gittest.Serve(t, root, gittest.ServeOptions{Wrap: func(http.Handler) http.Handler { return f }})
	}
	page := answering(func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Type", "text/html; charset=utf-8")
		_, _ = io.WriteString(w, "<!DOCTYPE html>\n<html><head><title>\nSign in</title></head><body><input name=csrf value=s3cret></body></html>")
	})
	login := answering(func(w http.ResponseWriter, r *http.Request) { http.Redirect(w, r, page.URL+"/login", http.StatusFound) })
	garbage := answering(func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Type", "application/octet-stream")
		_, _ = w.Write([]byte{0xff, 0xfe, 0, 1, 2, 3, 4, 5, 6, 7})
	})
	gone := gittest.Serve(t, root, gittest.ServeOptions{})
	gone.Close()
	good := map[string][]byte{"username": []byte("ada"), "password": []byte("s3cret")}
	bad := map[string][]byte{"username": []byte("ada"), "password": []byte("wr0ng")}
	tests := []struct {
		name, url, branch string
		data              map[string][]byte
		reason, says      string
		retry             bool
	}{
		{"not found by http", open.URL + "/nothing.git", "main", nil, v1alpha1.ReasonRepositoryNotFound, "no such repository", false},
		{"not found by file", "file://" + root + "/nothing.git", "main", nil, v1alpha1.ReasonRepositoryNotFound, "no such repository", false},
		{"no credentials", closed.URL + "/repo.git", "main", nil, v1alpha1.ReasonAuthenticationFailed, "spec.secretRef", false},
		{"wrong credentials", closed.URL + "/repo.git", "main", bad, v1alpha1.ReasonAuthenticationFailed, "Secret shop/git", false},
		{"right credentials", closed.URL + "/repo.git", "main", good, "", "", false},
		{"right token", gittest.Serve(t, root, gittest.ServeOptions{Token: "t0ken"}).URL + "/repo.git", "main", map[string][]byte{"bearerToken": []byte("t0ken")}, "", "", false},
		{"no branch", open.URL + "/repo.git", "next", nil, v1alpha1.ReasonBranchNotFound, "there is no branch next; there is main, the default one; push it, or set spec.ref.branch to one that is there", false},
		{"empty by http", open.URL + "/empty.git", "main", nil, v1alpha1.ReasonEmptyRepository, "push a branch", false},
		{"empty by file", "file://" + root + "/empty.git", "main", nil, v1alpha1.ReasonEmptyRepository, "push a branch", false},
		{"SHA-256 by http", open.URL + "/sha256.git", "main", nil, v1alpha1.ReasonUnsupportedObjectFormat, "SHA-256", false},
		{"SHA-256 by file", "file://" + root + "/sha256.git", "main", nil, v1alpha1.ReasonUnsupportedObjectFormat, "SHA-256", false},
		{"unknown authority", secure.URL + "/repo.git", "main", nil, v1alpha1.ReasonTLSFailed, "ca.crt", false},
		{"known authority", secure.URL + "/repo.git", "main", trusts(secure, nil), "", "", false},
		{"client certificate", mutual.URL + "/repo.git", "main", trusts(mutual, map[string][]byte{"tls.crt": cert, "tls.key": key}), "", "", false},
		{"no client certificate", mutual.URL + "/repo.git", "main", trusts(mutual, nil), v1alpha1.ReasonTLSFailed, "tls.crt and tls.key", false},
		{"not TLS", strings.Replace(open.URL, "http:", "https:", 1) + "/repo.git", "main", nil, v1alpha1.ReasonTLSFailed, "", false},
		{"server error", broken.URL + "/repo.git", "main", nil, v1alpha1.ReasonFetchFailed, "503", true},
		{"a page", page.URL + "/repo.git", "main", nil, v1alpha1.ReasonNotGit, `no Git: it sends text/html, a page with the title "Sign in"; check spec.url; a repository that is not public needs a Secret`, true},
		{"a login page", login.URL + "/repo.git", "main", good, v1alpha1.ReasonNotGit, "no Git: it leads to " + page.URL + "/login; it may be a login page: check the credentials, and Secret shop/git", true},
		{"garbage", garbage.URL + "/repo.git", "main", nil, v1alpha1.ReasonNotGit, "what answers is no Git: it sends application/octet-stream; check spec.url, and the proxies", true},
		{"slow", slow.URL + "/repo.git", "main", nil, v1alpha1.ReasonTimeout, "spec.timeout", true},
		{"refused", gone.URL + "/repo.git", "main", nil, v1alpha1.ReasonHostUnreachable, "refused", true},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			r := remoteFor(t, tt.url, tt.data)
			ctx, cancel := context.WithTimeout(t.Context(), lookWithin(tt.reason))
			defer cancel()
			s, err := NewCache(t.TempDir()).Of(r).Fetch(ctx, r, tt.branch)
			if tt.reason == "" {
				if err != nil {
					t.Fatal(err)
				}
				s.Close()
				return
			}
			ps := plan.ProblemsOf(err)
			if len(ps) != 1 {
				t.Fatalf("%v is no problem", err)
			}
			p := ps[0]
			t.Log(p.Error())
			if p.Reason != tt.reason || !strings.Contains(p.Error(), tt.says) || p.Retry != tt.retry {
				t.Errorf("%s, retry %t: %s", p.Reason, p.Retry, p)
			}
			for _, secret := range []string{"s3cret", "wr0ng", "@"} {
				if strings.Contains(p.Error(), secret) {
					t.Errorf("tells %q: %s", secret, p)
				}
			}
		})
	}
}

// One answer of the server serves all who asked before it was given.
func TestMirrorAsksOnceForMany(t *testing.T) {
	repo := gittest.NewRepo(t)
	repo.CommitAndPush(map[string]string{"a": "1"})
	var asked atomic.Int32
	var waiting sync.WaitGroup
	server := gittest.Serve(t, filepath.Dir(repo.Bare), gittest.ServeOptions{Wrap: func(h http.Handler) http.Handler {
		return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			if strings.HasSuffix(r.URL.Path, "/info/refs") {
				asked.Add(1)
				waiting.Wait() // the first answer comes when all have asked
			}
			h.ServeHTTP(w, r)
		})
	}})
	ms, r := NewCache(t.TempDir()), remoteFor(t, server.URL+"/repo.git", nil)
	mustLook(t, ms, r, "main")
	asked.Store(0)
	done := make(chan error)
	const sources = 50
	waiting.Add(sources)
	for range sources {
		go func() {
			now := time.Now()
			waiting.Done()
			s, err := ms.Of(r).fetchSince(context.Background(), r, "main", now)
			if err == nil {
				s.Close()
			}
			done <- err
		}()
	}
	for range sources {
		if err := <-done; err != nil {
			t.Error(err)
		}
	}
	if n := asked.Load(); n > 2 {
		t.Errorf("asked %d times for %d sources", n, sources)
	}
	// One after the other, all after one push.
	pushed := time.Now()
	asked.Store(0)
	for range sources {
		s, err := ms.Of(r).fetchSince(t.Context(), r, "main", pushed)
		if err != nil {
			t.Fatal(err)
		}
		s.Close()
	}
	if n := asked.Load(); n != 1 {
		t.Errorf("asked %d times for %d sources after one push", n, sources)
	}
	r.Access.Identity = "another" // the Secret has changed
	asked.Store(0)
	s, err := ms.Of(r).fetchSince(t.Context(), r, "main", pushed)
	if err != nil {
		t.Fatal(err)
	}
	s.Close()
	if n := asked.Load(); n != 1 {
		t.Errorf("asked %d times with another password", n)
	}
}

// badEnd sends all of a pack and fails after that.
type badEnd struct{ transport.UploadPackSession }

func (b badEnd) UploadPack(ctx context.Context, r *packp.UploadPackRequest) (*packp.UploadPackResponse, error) {
	answer, err := b.UploadPackSession.UploadPack(ctx, r)
	if err != nil {
		return nil, err
	}
	return packp.NewUploadPackResponseWithPackfile(r, lateFailure{answer}), nil
}

type lateFailure struct{ io.ReadCloser }

func (lateFailure) Close() error { return errors.New("exit status 1") }

// Objects that came with an exchange that fails at its end are there for later readers.
func TestMirrorReadsWhatCameBeforeAFailure(t *testing.T) {
	repo := gittest.NewRepo(t)
	repo.CommitAndPush(map[string]string{"a": "1"})
	r := remoteFor(t, repo.URL(), nil)
	m := NewCache(t.TempDir()).Of(r)
	first, err := m.Fetch(t.Context(), r, "main")
	if err != nil {
		t.Fatal(err)
	}
	content(t, first, "a")
	first.Close()
	second := plumbing.NewHash(repo.CommitAndPush(map[string]string{"a": "2"}))
	s, err := gitserver.Connect(t.Context(), r)
	if err != nil {
		t.Fatal(err)
	}
	defer s.Close()
	s.Git = badEnd{s.Git}
	if err := m.current.fetch(t.Context(), s, "main", second); err == nil {
		t.Fatal("no error")
	}
	now, err := m.Fetch(t.Context(), r, "main")
	if err != nil {
		t.Fatal(err)
	}
	defer now.Close()
	if got := content(t, now, "a"); now.Commit != second || got != "2" {
		t.Errorf("%s: %s", now.Commit, got)
	}
}
