package clone

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
	"unicode/utf16"

	"github.com/tranche-dev/tranche/gitsync/revert"
)

// utf16Text is a text in UTF-16 with a byte order mark.
func utf16Text(text string) string {
	b := []byte{0xff, 0xfe}
	for _, u := range utf16.Encode([]rune(text)) {
		b = append(b, byte(u), byte(u>>8))
	}
	return string(b)
}

// A file that git would convert when all is added is not part of the commit. A file that is
// written is committed byte by byte.
func TestChange_CommitsOnlyItsFiles(t *testing.T) {
	_, c, run := repository(t)
	write := func(name, text string) {
		t.Helper()
		at := filepath.Join(c.Dir, name)
		if err := os.MkdirAll(filepath.Dir(at), 0o700); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(at, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	const script, edited = "#!/bin/sh\r\n", "#!/bin/sh\r\n# $Id: x$\r\n"
	write("approvals/planted.yaml", utf16Text("step: 2\n"))
	write("notes.txt", "of another\r\n")
	write("run.sh", script)
	write("old.txt", "old\r\n")
	run("add", "--all")
	run("update-index", "--chmod=+x", "run.sh")
	run("commit", "--quiet", "-m", "planted")
	write(".gitattributes", "*.yaml working-tree-encoding=UTF-16\n* text ident\n")
	run("add", ".gitattributes")
	run("commit", "--quiet", "-m", "attributes")

	ctx := t.Context()
	ch, err := c.Begin(ctx)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = ch.Close() }()
	if got, err := ch.Read(ctx, "run.sh"); got != script || err != nil {
		t.Errorf("read %q: %v", got, err)
	}
	for name, text := range map[string]string{"approvals/web.yaml": "step: 0\r\n", "run.sh": edited} {
		if err := ch.Write(ctx, name, text); err != nil {
			t.Fatal(err)
		}
		if got, err := ch.Read(ctx, name); got != text || err != nil {
			t.Errorf("read %q: %v, want %q", got, err, text)
		}
	}
	if err := ch.Put(ctx, "old.txt", revert.File{Gone: true}); err != nil {
		t.Fatal(err)
	}
	diff, err := ch.Diff(ctx)
	if err != nil || strings.Contains(diff, "planted") || strings.Contains(diff, "notes.txt") {
		t.Fatal(diff, err)
	}
	commit, err := ch.Commit(ctx, "a change", false)
	if err != nil {
		t.Fatal(err)
	}
	if got, want := run("diff", "--name-status", "HEAD", commit), "A\tapprovals/web.yaml\nD\told.txt\nM\trun.sh"; got != want {
		t.Errorf("the commit changes\n%s\nwant\n%s", got, want)
	}
	if got := run("cat-file", "blob", commit+":run.sh"); got != strings.TrimSpace(edited) {
		t.Errorf("committed %q", got)
	}
	if got := run("ls-tree", commit, "run.sh"); !strings.HasPrefix(got, "100755") {
		t.Errorf("the file is executable no more: %s", got)
	}
}

// A commit that has another file than those shown, such as by a hook, is not taken over.
func TestChange_OtherFiles(t *testing.T) {
	_, c, run := repository(t)
	hook := filepath.Join(c.Dir, ".git", "hooks", "pre-commit")
	if err := os.WriteFile(hook, []byte("#!/bin/sh\necho x > other.txt && git add other.txt\n"), 0o700); err != nil { //nolint:gosec // a hook
		t.Fatal(err)
	}
	ctx, head := t.Context(), run("rev-parse", "HEAD")
	ch, err := c.Begin(ctx)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = ch.Close() }()
	if err := ch.Write(ctx, "a.yaml", "x: 1\n"); err != nil {
		t.Fatal(err)
	}
	if _, err := ch.Diff(ctx); err != nil {
		t.Fatal(err)
	}
	if _, err := ch.Commit(ctx, "a change", false); err == nil || !strings.Contains(err.Error(), "other.txt") {
		t.Errorf("%v, want an error that names other.txt", err)
	}
	if err := ch.Take(ctx); err == nil || run("rev-parse", "HEAD") != head {
		t.Errorf("the branch moved: %v", err)
	}
}
