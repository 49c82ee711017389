package gittest

import (
	"bytes"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/go-git/go-git/v5/plumbing"
)

// Import makes commits on top of the head of a branch, each with the parents that
// are given by their place; none: the head. when is the date of the committer, in seconds
// since 1970. It returns the commits.
func (r *Repo) Import(branch string, parents [][]int, when func(i int) int) []plumbing.Hash {
	r.t.Helper()
	var in bytes.Buffer
	head := r.Git("rev-parse", branch)
	for i, of := range parents {
		fmt.Fprintf(&in, "commit refs/heads/%s\nmark :%d\ncommitter t <t@example.org> %d +0000\ndata 0\n", branch, i+1, when(i))
		if len(of) == 0 {
			fmt.Fprintf(&in, "from %s\n", head)
		}
		for n, p := range of {
			fmt.Fprintf(&in, "%s :%d\n", []string{"from", "merge"}[min(n, 1)], p+1)
		}
		in.WriteByte('\n')
	}
	marks := filepath.Join(r.t.TempDir(), "marks")
	FastImport(r.t, r.Work, &in, "--force", "--export-marks="+marks)
	data, err := os.ReadFile(marks)
	if err != nil {
		r.t.Fatal(err)
	}
	list := make([]plumbing.Hash, len(parents))
	for line := range strings.Lines(string(data)) {
		var n int
		var hash string
		if _, err := fmt.Sscanf(line, ":%d %s", &n, &hash); err != nil {
			r.t.Fatal(err)
		}
		list[n-1] = plumbing.NewHash(hash)
	}
	return list
}

// FastImport runs git fast-import in a repository.
func FastImport(t testing.TB, dir string, in io.Reader, args ...string) {
	t.Helper()
	cmd := exec.CommandContext(t.Context(), "git", append([]string{"fast-import", "--quiet"}, args...)...)
	cmd.Dir, cmd.Stdin = dir, in
	// glibc would give memory back after each commit, and that stops every core of a virtual machine.
	cmd.Env = append(os.Environ(), "MALLOC_TRIM_THRESHOLD_=1073741824")
	if out, err := cmd.CombinedOutput(); err != nil {
		t.Fatalf("git fast-import in %s: %v: %s", dir, err, out)
	}
}

// Chain is n commits, each the parent of the next, for [Repo.Import].
func Chain(n int) [][]int {
	list := make([][]int, n)
	for i := 1; i < n; i++ {
		list[i] = []int{i - 1}
	}
	return list
}
