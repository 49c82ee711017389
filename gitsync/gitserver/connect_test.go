package gitserver

import (
	"net/url"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

func TestParseURL(t *testing.T) {
	for raw, wrong := range map[string]bool{
		"https://git.example.org/shop":         false,
		"ssh://git@git.example.org/shop":       false,
		"https://ada:s3cret@git.example.org/s": true,
		"https://ada@git.example.org/s":        true,
		"ssh://ada:s3cret@git.example.org/s":   true,
		"https://%zz":                          true,
	} {
		_, err := ParseURL(raw)
		if (err != nil) != wrong {
			t.Errorf("%s: %v", raw, err)
		}
		if err != nil && strings.Contains(err.Error(), "s3cret") {
			t.Errorf("tells the password: %v", err)
		}
	}
	u, _ := url.Parse("ssh://git@git.example.org/shop")
	if got := (Remote{URL: u}).String(); got != "ssh://git.example.org/shop" {
		t.Errorf("%s", got)
	}
}

// A file URL leads nowhere but below the folders that the controller names.
func TestMayRead(t *testing.T) {
	root, other := t.TempDir(), t.TempDir()
	for link, to := range map[string]string{filepath.Join(root, "out"): other, filepath.Join(other, "in"): root} {
		if err := os.Symlink(to, link); err != nil {
			t.Fatal(err)
		}
	}
	for at, want := range map[string]bool{
		"https://git.example.org/a": true, "ssh://git@git.example.org/a": true,
		"file://" + root: true, "file://" + root + "/a.git": true, "file://" + root + "/not/there.git": true,
		"file://" + other + "/in/a.git": true,
		"file://" + other:               false, "file://" + root + "x": false, "file://" + root + "/../a.git": false,
		"file://" + root + "/out/a.git": false, "file:///": false,
	} {
		u, err := ParseURL(at)
		if err != nil {
			t.Fatal(err)
		}
		if _, err := MayRead([]string{root}, u); (err == nil) != want {
			t.Errorf("%s: %v", at, err)
		}
		if _, err := MayRead(nil, u); (err == nil) != (u.Scheme != "file") {
			t.Errorf("%s, where nothing may be read: %v", at, err)
		}
	}
}

// The path of a file URL that is read is the one that was checked: cleaned, with links
// followed.
func TestMayRead_Resolved(t *testing.T) {
	root, err := filepath.EvalSymlinks(t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	outside := t.TempDir()
	for _, dir := range []string{filepath.Join(root, "repo"), filepath.Join(outside, "deep")} {
		if err := os.Mkdir(dir, 0o750); err != nil {
			t.Fatal(err)
		}
	}
	for link, to := range map[string]string{"out": filepath.Join(outside, "deep"), "in": "repo"} {
		if err := os.Symlink(to, filepath.Join(root, link)); err != nil {
			t.Fatal(err)
		}
	}
	// The system takes out/.. for the folder that the link leads out of.
	for path, want := range map[string]string{"/out/../repo": "/repo", "/in": "/repo", "/./repo/": "/repo", "/in/new": "/repo/new"} {
		u, err := ParseURL("file://" + root + path)
		if err != nil {
			t.Fatal(err)
		}
		got, err := MayRead([]string{root}, u)
		if err != nil || got.String() != "file://"+root+want {
			t.Errorf("%s: %v, %v", path, got, err)
		}
	}
}

// Commits are pushed where the read path leads, after links were followed.
func TestMayWrite(t *testing.T) {
	root := t.TempDir()
	for _, dir := range []string{"read", "write/deep"} {
		if err := os.MkdirAll(filepath.Join(root, dir), 0o750); err != nil {
			t.Fatal(err)
		}
	}
	for link, to := range map[string]string{"write/out": "../read", "read/in": "../write/deep", "linked": "write"} {
		if err := os.Symlink(to, filepath.Join(root, link)); err != nil {
			t.Fatal(err)
		}
	}
	for path, want := range map[string]bool{
		"/write/a.git": true, "/write/deep/a.git": true, "/read/in/a.git": true, "/linked/a.git": true,
		"/read/a.git": false, "/write/out/a.git": false, "/write/../read/a.git": false, "/writex/a.git": false, "/write/deep/../../read": false,
	} {
		asked, err := ParseURL("file://" + root + path)
		if err != nil {
			t.Fatal(err)
		}
		u, err := MayRead([]string{root}, asked)
		if err != nil {
			t.Fatal(err)
		}
		for _, roots := range [][]string{{root + "/write"}, {root + "/linked"}, {root + "/none", root + "/write/."}} {
			if got := MayWrite(roots, u); got != want {
				t.Errorf("%s, with %s: %v", path, roots, got)
			}
		}
		if MayWrite(nil, u) {
			t.Errorf("%s may be written, where nothing may", path)
		}
	}
	if u, err := ParseURL("https://git.example.org/a.git"); err != nil || !MayWrite(nil, u) {
		t.Errorf("https: %v", err)
	}
}

// A server's answer that go-git panics of is an error of that server's source.
func TestWithin_Panics(t *testing.T) {
	undone := false
	err := within(t.Context(), func() error { panic("index out of range") }, func() { undone = true })
	if err == nil || !strings.Contains(err.Error(), "index out of range") || undone {
		t.Errorf("%v, undone: %t", err, undone)
	}
}
