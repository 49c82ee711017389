package clitest

import (
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
)

// Run runs a program as Ada, and returns what it prints.
func Run(t testing.TB, dir, program string, args ...string) string {
	t.Helper()
	cmd := exec.Command(program, args...)
	cmd.Dir = dir
	cmd.Env = append(os.Environ(), "GIT_CONFIG_GLOBAL="+os.DevNull, "GIT_CONFIG_NOSYSTEM=1",
		"GIT_AUTHOR_NAME=Ada", "GIT_AUTHOR_EMAIL=ada@example.org", "GIT_COMMITTER_NAME=Ada", "GIT_COMMITTER_EMAIL=ada@example.org")
	out, err := cmd.CombinedOutput()
	if err != nil {
		t.Fatalf("%s %v: %v: %s", program, args, err, out)
	}
	return strings.TrimSpace(string(out))
}

// Clone is a clone of a repository, with a worktree.
type Clone struct {
	testing.TB
	Dir string
}

// Run runs a program in the clone, and returns what it prints.
func (c Clone) Run(program string, args ...string) string {
	c.Helper()
	return Run(c, c.Dir, program, args...)
}

// Replace changes a file.
func (c Clone) Replace(file, from, to string) {
	c.Helper()
	path := filepath.Join(c.Dir, file)
	text, err := os.ReadFile(path)
	if err != nil {
		c.Fatal(err)
	}
	changed := strings.ReplaceAll(string(text), from, to)
	if changed == string(text) {
		c.Fatalf("%s does not contain %q", file, from)
	}
	if err := os.WriteFile(path, []byte(changed), 0o600); err != nil {
		c.Fatal(err)
	}
}

// Write writes a file.
func (c Clone) Write(file, text string) {
	c.Helper()
	path := filepath.Join(c.Dir, file)
	if err := os.MkdirAll(filepath.Dir(path), 0o750); err != nil {
		c.Fatal(err)
	}
	if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
		c.Fatal(err)
	}
}
