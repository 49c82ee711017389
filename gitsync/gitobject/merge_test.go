package gitobject

import (
	"fmt"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
)

func TestMerge3(t *testing.T) {
	for _, c := range []struct {
		because            string
		base, ours, theirs string
		want               string // empty: a conflict
	}{
		{"nobody changed anything", "a\nb\n", "a\nb\n", "a\nb\n", "a\nb\n"},
		{"only they did", "a\nb\n", "a\nb\n", "a\nc\n", "a\nc\n"},
		{"lines apart", "a\nb\nc\nd\n", "x\nb\nc\nd\n", "a\nb\nc\ny\n", "x\nb\nc\ny\n"},
		{"neighbours: an image and the replicas above it", "r: 1\ni: 2\n", "r: 5\ni: 2\n", "r: 1\ni: 1\n", "r: 5\ni: 1\n"},
		{"one line, differently", "a\nb\nc\n", "a\nx\nc\n", "a\ny\nc\n", ""},
		{"one line, alike", "a\nb\nc\n", "a\nx\nc\n", "a\nx\nc\n", "a\nx\nc\n"},
		{"a line that goes and changes", "a\nb\nc\n", "a\nc\n", "a\ny\nc\n", ""},
		{"two lines put at one place: in which order?", "a\nb\n", "a\nx\nb\n", "a\ny\nb\n", ""},
		{"a line put before one that changes", "a\nb\n", "a\nx\nb\n", "a\nc\n", "a\nx\nc\n"},
		{"a line put after one that changes", "a\nb\n", "a\nb\nx\n", "a\nc\n", "a\nc\nx\n"},
		{"a line put into lines that go", "a\nb\nc\nd\n", "a\nb\nx\nc\nd\n", "a\nd\n", ""},
		{"no newline at the end", "a\nb", "x\nb", "a\nc", "x\nc"},
		{"from nothing", "", "a\n", "", "a\n"},
		{"not text", "a\x00", "b\x00", "a\x00", ""},
	} {
		got, ok := Merge3([]byte(c.base), []byte(c.ours), []byte(c.theirs))
		if string(got) != c.want || ok != (c.want != "") {
			t.Errorf("%s: %q, %t; want %q", c.because, got, ok, c.want)
		}
	}
}

// Changes to theirs that are in conflict are left out, and the others are taken.
func TestMergeWhatFits(t *testing.T) {
	for _, c := range []struct {
		because            string
		base, ours, theirs string
		want               string
	}{
		{"no conflict", "a\nb\nc\n", "x\nb\nc\n", "a\nb\ny\n", "x\nb\ny\n"},
		{"one of two is in conflict", "a\nb\nc\n", "x\nb\nc\n", "y\nb\nz\n", "x\nb\nz\n"},
		{"both did the same", "a\nb\nc\n", "x\nb\nc\n", "x\nb\nz\n", "x\nb\nz\n"},
		{"lines that go have another one now", "a\nb\nc\nd\n", "a\nb\nx\nc\nd\n", "a\nz\n", "a\nb\nx\nc\nd\n"},
		{"two lines put at one place", "a\nb\n", "a\nx\nb\n", "a\ny\nb\n", "a\nx\nb\n"},
		{"not text", "a\x00", "b\x00", "a\x00", ""},
	} {
		got, ok := MergeWhatFits([]byte(c.base), []byte(c.ours), []byte(c.theirs))
		if string(got) != c.want || ok != (c.want != "") {
			t.Errorf("%s: %q, %t; want %q", c.because, got, ok, c.want)
		}
	}
}

// If git merges without a conflict, so does Merge3, with the same result. Lines are all
// different, so that there is but one way to see what changed.
func TestMerge3IsGits(t *testing.T) {
	dir, random := t.TempDir(), rand.New(rand.NewPCG(1, 2))
	next := 0
	change := func(lines []string) []string {
		var out []string
		for _, l := range lines {
			switch random.IntN(8) {
			case 0: // goes
			case 1:
				next++
				out = append(out, fmt.Sprintf("changed %d", next))
			case 2:
				next++
				out = append(out, fmt.Sprintf("new %d", next), l)
			default:
				out = append(out, l)
			}
		}
		return out
	}
	clean := 0
	for range 150 {
		var base []string
		for i := range 2 + random.IntN(12) {
			base = append(base, fmt.Sprintf("line %d", i))
		}
		texts := [3]string{}
		for i, lines := range [][]string{change(base), base, change(base)} {
			texts[i] = strings.Join(lines, "\n") + "\n"
			if err := os.WriteFile(filepath.Join(dir, fmt.Sprint(i)), []byte(texts[i]), 0o600); err != nil {
				t.Fatal(err)
			}
		}
		cmd := exec.Command("git", "merge-file", "-p", "-q", "0", "1", "2")
		cmd.Dir = dir
		want, err := cmd.Output()
		if err != nil {
			continue // a conflict to git
		}
		clean++
		got, ok := Merge3([]byte(texts[1]), []byte(texts[0]), []byte(texts[2]))
		if !ok || string(got) != string(want) {
			t.Fatalf("base %q\nours %q\ntheirs %q\ngot %t %q\nwant %q", texts[1], texts[0], texts[2], ok, got, want)
		}
	}
	if clean < 20 {
		t.Errorf("only %d merges had no conflict", clean)
	}
}
