package gitserver

import (
	"bytes"
	"context"
	"math/rand"
	"net/http"
	"net/http/httptest"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"
)

// git runs git without the machine's own configuration and fails the test when git fails.
func git(t *testing.T, dir string, args ...string) string {
	t.Helper()
	out, err := tryGit(t, dir, args...)
	if err != nil {
		t.Fatalf("git %s: %v\n%s", strings.Join(args, " "), err, out)
	}
	return strings.TrimSpace(out)
}

func tryGit(t *testing.T, dir string, args ...string) (string, error) {
	t.Helper()
	cmd := exec.CommandContext(t.Context(), "git", args...)
	cmd.Dir = dir
	cmd.Env = append(os.Environ(), "GIT_CONFIG_GLOBAL="+os.DevNull, "GIT_CONFIG_NOSYSTEM=1", "GIT_TERMINAL_PROMPT=0", "GIT_ASKPASS=true",
		"GIT_AUTHOR_NAME=a", "GIT_AUTHOR_EMAIL=a@example.org", "GIT_COMMITTER_NAME=a", "GIT_COMMITTER_EMAIL=a@example.org")
	out, err := cmd.CombinedOutput()
	return string(out), err
}

// newRepositories makes a directory with the bare repository team/shop.git, and returns it by way of a symbolic link.
func newRepositories(t *testing.T) string {
	t.Helper()
	t.Setenv("GIT_CONFIG_GLOBAL", os.DevNull)
	dir := filepath.Join(t.TempDir(), "repositories")
	git(t, "", "init", "--quiet", "--bare", "--initial-branch=main", filepath.Join(dir, "team/shop.git"))
	link := filepath.Join(t.TempDir(), "link")
	if err := os.Symlink(dir, link); err != nil {
		t.Fatal(err)
	}
	return link
}

func newServer(t *testing.T, o Options) string {
	t.Helper()
	h, err := NewHandler(o)
	if err != nil {
		t.Fatal(err)
	}
	server := httptest.NewServer(h)
	t.Cleanup(func() {
		server.Close()
		if err := h.Close(); err != nil {
			t.Error(err)
		}
	})
	return server.URL
}

func TestCloneAndPush(t *testing.T) {
	repository := newServer(t, Options{Dir: newRepositories(t)}) + "/team/shop.git"
	first, second := t.TempDir(), t.TempDir()
	git(t, first, "clone", "--quiet", repository, ".")

	content := make([]byte, 1<<20) // does not compress
	rand.New(rand.NewSource(1)).Read(content)
	for _, push := range []struct {
		name    string
		content []byte
	}{
		{"small", []byte("small")},
		{"chunked, being larger than the buffer of a push", content},
	} {
		if err := os.WriteFile(filepath.Join(first, "file"), push.content, 0o600); err != nil {
			t.Fatal(err)
		}
		git(t, first, "add", ".")
		git(t, first, "commit", "--quiet", "-m", push.name)
		git(t, first, "-c", "http.postBuffer=65536", "push", "--quiet", "origin", "HEAD:main")
	}

	git(t, second, "clone", "--quiet", repository, ".")
	got, err := os.ReadFile(filepath.Join(second, "file"))
	if err != nil {
		t.Fatal(err)
	}
	if !bytes.Equal(got, content) {
		t.Error("the clone differs from what was pushed")
	}
}

func TestPasswordIsAskedFor(t *testing.T) {
	server := newServer(t, Options{Dir: newRepositories(t), Username: "ada", Password: "p@ss:word"})
	for _, test := range []struct {
		reason string
		user   *url.Userinfo
		ok     bool
	}{
		{"nobody", nil, false},
		{"the wrong password", url.UserPassword("ada", "p@ss:wor"), false},
		{"the wrong user", url.UserPassword("bob", "p@ss:word"), false},
		{"no password", url.UserPassword("ada", ""), false},
		{"the right one", url.UserPassword("ada", "p@ss:word"), true},
	} {
		u, err := url.Parse(server + "/team/shop.git")
		if err != nil {
			t.Fatal(err)
		}
		u.User = test.user
		dir := t.TempDir()
		git(t, dir, "init", "--quiet")
		git(t, dir, "commit", "--quiet", "--allow-empty", "-m", test.reason)
		if out, err := tryGit(t, dir, "ls-remote", u.String()); (err == nil) != test.ok {
			t.Errorf("%s: fetching gives %v\n%s", test.reason, err, out)
		}
		if out, err := tryGit(t, dir, "push", u.String(), "HEAD:main"); (err == nil) != test.ok {
			t.Errorf("%s: pushing gives %v\n%s", test.reason, err, out)
		}
	}
}

// TestServesNothingElse puts a repository beside the directory, and a link to it inside.
func TestServesNothingElse(t *testing.T) {
	dir, err := filepath.EvalSymlinks(newRepositories(t))
	if err != nil {
		t.Fatal(err)
	}
	outside := filepath.Join(filepath.Dir(dir), "outside.git")
	git(t, "", "init", "--quiet", "--bare", outside)
	for link, target := range map[string]string{"escape.git": outside, "alias.git": "team/shop.git"} {
		if err := os.Symlink(target, filepath.Join(dir, link)); err != nil {
			t.Fatal(err)
		}
	}
	server := newServer(t, Options{Dir: dir})
	const refs = "/info/refs?service=git-upload-pack"
	for _, test := range []struct {
		path, reason string
		want         int
	}{
		{"/team/shop.git" + refs, "a repository", http.StatusOK},
		{"/alias.git" + refs, "a link that stays inside", http.StatusOK},
		{"/escape.git" + refs, "a link that leads outside", http.StatusNotFound},
		{"/../outside.git" + refs, "up and out", http.StatusNotFound},
		{"/team/../../outside.git" + refs, "down, up and out", http.StatusNotFound},
		{"/team/%2e%2e/%2e%2e/outside.git" + refs, "encoded", http.StatusNotFound},
		{"/" + outside + refs, "an absolute path", http.StatusNotFound},
		{"/team" + refs, "a directory that is no repository", http.StatusNotFound},
		{"/nothing.git" + refs, "nothing", http.StatusNotFound},
		{"/team/shop.git/config", "a file of a repository", http.StatusNotFound},
		{"/team/shop.git/HEAD", "the dumb protocol", http.StatusNotFound},
		{"/", "the directory", http.StatusNotFound},
		{refs, "the directory as a repository", http.StatusNotFound},
	} {
		req, err := http.NewRequestWithContext(t.Context(), http.MethodGet, server, nil)
		if err != nil {
			t.Fatal(err)
		}
		// Through Opaque the client sends the path as it is.
		req.URL.Opaque = test.path
		resp, err := http.DefaultTransport.RoundTrip(req)
		if err != nil {
			t.Fatal(err)
		}
		resp.Body.Close()
		if resp.StatusCode != test.want {
			t.Errorf("%s: %s: got %s, want %d", test.path, test.reason, resp.Status, test.want)
		}
	}
}

func TestHooksRefuse(t *testing.T) {
	dir := newRepositories(t)
	hook := filepath.Join(dir, "team/shop.git/hooks/pre-receive")
	if err := os.WriteFile(hook, []byte("#!/bin/sh\necho signed commits only\nexit 1\n"), 0o700); err != nil {
		t.Fatal(err)
	}
	work := t.TempDir()
	git(t, work, "init", "--quiet")
	git(t, work, "commit", "--quiet", "--allow-empty", "-m", "unsigned")
	out, err := tryGit(t, work, "push", newServer(t, Options{Dir: dir})+"/team/shop.git", "HEAD:main")
	if err == nil || !strings.Contains(out, "signed commits only") {
		t.Errorf("the push gives %v and says:\n%s", err, out)
	}
}

func TestServeUntilCancelled(t *testing.T) {
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	o := Options{Dir: newRepositories(t), Addr: "127.0.0.1:0"}
	err := Serve(ctx, o, func(url string) {
		defer cancel()
		git(t, "", "ls-remote", url+"/team/shop.git")
	})
	if err != nil {
		t.Errorf("being stopped is an error: %v", err)
	}
	if ctx.Err() != context.Canceled {
		t.Error("it was never listening")
	}
}

func TestBadOptions(t *testing.T) {
	for _, o := range []Options{
		{Dir: filepath.Join(t.TempDir(), "absent")},
		{Dir: t.TempDir(), Username: "ada"},
		{Dir: t.TempDir(), Password: "secret"},
	} {
		if h, err := NewHandler(o); err == nil {
			t.Errorf("%+v is accepted", o)
			h.Close()
		}
	}
}
