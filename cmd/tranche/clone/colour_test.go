package clone

import (
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/tranche-dev/tranche/cmd/tranche/terminal"
)

// The content and the names of files reach no terminal with what it acts by. Attributes
// hide no change.
func TestDiff_Printable(t *testing.T) {
	const text = "hello\r\n\x1b[2J\x1b[H\x1b[32mforged\x9b1m \u009b2J \u202egnorw\u2066\ttab\u2028\x07\n"
	_, c, run := repository(t)
	run("config", "core.quotePath", "false")
	run("config", "color.ui", "always")
	run("config", "diff.hidden.textconv", "true")
	if err := os.WriteFile(filepath.Join(c.Dir, ".gitattributes"), []byte("*.yaml diff=hidden\n*.txt -diff\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	run("add", "--all")
	run("commit", "--quiet", "-m", "attributes")
	ctx := t.Context()
	ch, err := c.Begin(ctx)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = ch.Close() }()
	for _, name := range []string{"a.yaml", "n\u009b2J.txt"} {
		if err := ch.Write(ctx, name, text); err != nil {
			t.Fatal(err)
		}
	}
	diff, err := ch.Diff(ctx)
	if err != nil ||
		strings.Count(diff, "+hello\uFFFD\n+\uFFFD[2J\uFFFD[H\uFFFD[32mforged\uFFFD1m \uFFFD2J \uFFFDgnorw\uFFFD\ttab\uFFFD\uFFFD") != 2 {
		t.Errorf("%q: %v", diff, err)
	}
	coloured := ColourDiff(terminal.Style{Colour: true}, diff)
	if !strings.Contains(coloured, "\x1b[32m+hello") || !strings.Contains(coloured, "\x1b[1m+++ ") {
		t.Errorf("want colours of our own: %q", coloured)
	}
	if plain := regexp.MustCompile("\x1b\\[[0-9]+m").ReplaceAllString(coloured, ""); plain != diff || terminal.Printable(diff) != diff {
		t.Errorf("want nothing else: %q", plain)
	}
	if plain := ColourDiff(terminal.Style{}, diff); plain != diff {
		t.Errorf("without colours: %q", plain)
	}
}
