// Package gittest makes Git repositories for tests, and serves them over HTTP with the
// real git http-backend.
package gittest

import (
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"github.com/go-git/go-git/v5/plumbing"
	"net/http"
	"net/http/cgi"
	"net/http/httptest"
	"os"
	"os/exec"
	"path"
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

// Author of the commits, unless a test names another.
const Author = "Ada Example <ada@example.org>"

// Repo is a bare repository, as a server has it, and a clone to work in.
type Repo struct {
	t testing.TB
	// Bare is the folder of the bare repository.
	Bare string
	// Work is the folder of the clone.
	Work string
	// Author of the next commits.
	Author string
	// Env is added to the environment of git.
	Env []string

	key        *Key // that signs the next commits
	configured bool // by a test, in a way that only git follows
}

// NewRepo makes a repository with branch main and no commit.
func NewRepo(t testing.TB, initArgs ...string) *Repo {
	t.Helper()
	return NewRepoAt(t, filepath.Join(t.TempDir(), "repo.git"), initArgs...)
}

// NewRepoAt makes a repository in a folder.
func NewRepoAt(t testing.TB, bare string, initArgs ...string) *Repo {
	t.Helper()
	r := &Repo{t: t, Bare: bare, Work: filepath.Join(t.TempDir(), "work"), Author: Author, configured: len(initArgs) > 0}
	if len(initArgs) == 0 { // without processes
		initialize(t, bare, "true")
		initialize(t, filepath.Join(r.Work, ".git"), "false")
	} else {
		for _, kind := range [][]string{{"--bare", bare}, {r.Work}} { // without a template, which has hooks as examples
			Git(t, ".", slices.Concat([]string{"init", "-q", "--template=", "-b", "main"}, initArgs, kind)...)
		}
	}
	configure(t, filepath.Join(bare, "config"), noMaintenance)
	configure(t, filepath.Join(r.Work, ".git", "config"),
		noMaintenance+fmt.Sprintf("[remote \"origin\"]\n\turl = %q\n\tfetch = +refs/heads/*:refs/remotes/origin/*\n", bare))
	return r
}

// initialize makes a repository with branch main as `git init` does.
func initialize(t testing.TB, dir, bare string) {
	t.Helper()
	var errs []error
	for _, below := range []string{"objects/info", "objects/pack", "refs/heads", "refs/tags"} {
		errs = append(errs, os.MkdirAll(filepath.Join(dir, below), 0o755))
	}
	for name, content := range map[string]string{
		"HEAD":   "ref: refs/heads/main\n",
		"config": core + bare + "\n",
	} {
		errs = append(errs, os.WriteFile(filepath.Join(dir, name), []byte(content), 0o644))
	}
	if err := errors.Join(errs...); err != nil {
		t.Fatal(err)
	}
}

const core = "[core]\n\trepositoryformatversion = 0\n\tfilemode = true\n\tbare = "

// bareConfig is the configuration of the bare repository, unless a test adds to it.
const bareConfig = core + "true\n" + noMaintenance

// noMaintenance spares each commit and each push a process that finds nothing to do.
const noMaintenance = "[gc]\n\tauto = 0\n[maintenance]\n\tauto = false\n[receive]\n\tautogc = false\n"

// configure adds to a configuration as `git config` does, which would be a process.
func configure(t testing.TB, file, more string) {
	t.Helper()
	f, err := os.OpenFile(file, os.O_APPEND|os.O_WRONLY, 0)
	if err != nil {
		t.Fatal(err)
	}
	_, err = f.WriteString(more)
	if err := errors.Join(err, f.Close()); err != nil {
		t.Fatal(err)
	}
}

// Git runs git in a folder and returns what it prints.
func Git(t testing.TB, dir string, args ...string) string {
	t.Helper()
	return git(t, dir, nil, args...)
}

func git(t testing.TB, dir string, env []string, args ...string) string {
	t.Helper()
	out, err := tryGit(dir, env, args...)
	if err != nil {
		t.Fatalf("git %s: %v\n%s", strings.Join(args, " "), err, out)
	}
	return out
}

func tryGit(dir string, env []string, args ...string) (string, error) {
	cmd := exec.Command("git", args...)
	cmd.Dir = dir
	cmd.Env = append(os.Environ(),
		"GIT_CONFIG_GLOBAL=/dev/null", "GIT_CONFIG_SYSTEM=/dev/null", "GIT_TERMINAL_PROMPT=0",
		"GIT_AUTHOR_NAME=Ada Example", "GIT_AUTHOR_EMAIL=ada@example.org",
		"GIT_COMMITTER_NAME=Ada Example", "GIT_COMMITTER_EMAIL=ada@example.org")
	cmd.Env = append(cmd.Env, env...)
	out, err := cmd.CombinedOutput()
	return strings.TrimSpace(string(out)), err
}

// Git runs git in the clone.
func (r *Repo) Git(args ...string) string {
	r.t.Helper()
	r.configured = r.configured || args[0] == "config"
	return git(r.t, r.Work, r.Env, args...)
}

// URL of the bare repository.
func (r *Repo) URL() string { return "file://" + r.Bare }

// Write writes files into the clone; one without content is removed.
func (r *Repo) Write(files map[string]string) {
	r.t.Helper()
	for name, content := range files {
		r.configured = r.configured || strings.HasPrefix(path.Base(name), ".git") // attributes, ignored files, submodules
		p := filepath.Join(r.Work, filepath.FromSlash(name))
		if content == "" {
			if err := os.Remove(p); err != nil {
				r.t.Fatal(err)
			}
			continue
		}
		if err := os.MkdirAll(filepath.Dir(p), 0o755); err != nil {
			r.t.Fatal(err)
		}
		if err := os.WriteFile(p, []byte(content), 0o644); err != nil {
			r.t.Fatal(err)
		}
	}
}

// Link makes a symbolic link in the clone.
func (r *Repo) Link(name, target string) {
	r.t.Helper()
	at := filepath.Join(r.Work, filepath.FromSlash(name))
	if err := errors.Join(os.MkdirAll(filepath.Dir(at), 0o755), os.Symlink(target, at)); err != nil {
		r.t.Fatal(err)
	}
}

// Head returns the commit that is checked out. It reads what Git has just written, where
// that is a file: most tests ask after each commit.
func (r *Repo) Head() string {
	r.t.Helper()
	head, err := os.ReadFile(filepath.Join(r.Work, ".git", "HEAD"))
	if ref, ok := strings.CutPrefix(string(head), "ref: "); ok && err == nil {
		commit, err := os.ReadFile(filepath.Join(r.Work, ".git", filepath.FromSlash(strings.TrimSpace(ref))))
		if err == nil {
			return strings.TrimSpace(string(commit))
		}
	}
	return r.Git("rev-parse", "HEAD")
}

// CommitAndPush is what a developer does.
func (r *Repo) CommitAndPush(files map[string]string, message ...string) string {
	r.t.Helper()
	c := r.Commit(files, message...)
	r.Push()
	return c
}

// Revert reverts a commit and returns the one that does.
func (r *Repo) Revert(commit string) string {
	r.t.Helper()
	r.Git("revert", "--no-edit", commit)
	return r.Head()
}

// ServeOptions say how a server behaves.
type ServeOptions struct {
	// Username and Password are asked for, if set.
	Username, Password string
	// Token is a bearer token that is asked for, if set.
	Token string
	// TLS serves with a certificate of an authority that no system trusts.
	TLS bool
	// ClientCAs are the authorities of the certificates that clients must have,
	// if set. With TLS only.
	ClientCAs *x509.CertPool
	// Wrap lets a test step in between, to fail or to count.
	Wrap func(http.Handler) http.Handler
}

// Serve serves the repositories of a folder until the test ends.
func Serve(t testing.TB, root string, o ServeOptions) *httptest.Server {
	t.Helper()
	exec := strings.TrimSpace(Git(t, ".", "--exec-path"))
	var h http.Handler = &cgi.Handler{
		Path: filepath.Join(exec, "git-http-backend"),
		Env:  []string{"GIT_PROJECT_ROOT=" + root, "GIT_HTTP_EXPORT_ALL=1", "GIT_CONFIG_GLOBAL=/dev/null", "REMOTE_USER=test"},
	}
	if o.Wrap != nil {
		h = o.Wrap(h)
	}
	h = guarded(h, o)
	s := httptest.NewUnstartedServer(h)
	if o.TLS {
		if o.ClientCAs != nil {
			s.TLS = &tls.Config{ClientAuth: tls.RequireAndVerifyClientCert, ClientCAs: o.ClientCAs}
		}
		s.StartTLS()
	} else {
		s.Start()
	}
	t.Cleanup(s.Close)
	return s
}

func guarded(h http.Handler, o ServeOptions) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		username, password, _ := r.BasicAuth()
		switch {
		case o.Password != "" && (username != o.Username || password != o.Password),
			o.Token != "" && r.Header.Get("Authorization") != "Bearer "+o.Token:
			w.Header().Set("WWW-Authenticate", `Basic realm="git"`)
			http.Error(w, "who are you?", http.StatusUnauthorized)
		default:
			h.ServeHTTP(w, r)
		}
	})
}

// Noise is text that zlib cannot make smaller by much.
func Noise(n int) string {
	var b strings.Builder
	for h := plumbing.ComputeHash(plumbing.BlobObject, nil); b.Len() < n; h = plumbing.ComputeHash(plumbing.BlobObject, h[:]) {
		b.WriteString(h.String())
	}
	return b.String()[:n]
}

// PseudoRandom is text that does not get smaller.
func PseudoRandom(seed, size int) []byte {
	b, x := make([]byte, size), uint32(seed)*2654435761+1 //nolint:gosec // small
	for i := range b {
		x ^= x << 13
		x ^= x >> 17
		x ^= x << 5
		b[i] = byte(x)
	}
	return b
}
