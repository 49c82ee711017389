package diff

import (
	"bytes"
	"math/rand/v2"
	"strings"
	"testing"

	"github.com/yuin/goldmark"
	"github.com/yuin/goldmark/extension"
	render "github.com/yuin/goldmark/renderer/html"
	"golang.org/x/net/html"
	"golang.org/x/net/html/atom"
)

// texts returns what each element of a page shows, by its tag.
func texts(t *testing.T, markdown string) map[atom.Atom][]string {
	t.Helper()
	var page bytes.Buffer
	md := goldmark.New(goldmark.WithExtensions(extension.GFM), goldmark.WithRendererOptions(render.WithUnsafe()))
	if err := md.Convert([]byte(markdown), &page); err != nil {
		t.Fatal(err)
	}
	root, err := html.Parse(&page)
	if err != nil {
		t.Fatal(err)
	}
	found := map[atom.Atom][]string{}
	for n := range root.Descendants() {
		if n.Type != html.ElementNode {
			continue
		}
		var shown strings.Builder
		for d := range n.Descendants() {
			if d.Type == html.TextNode {
				shown.WriteString(d.Data)
			}
		}
		found[n.DataAtom] = append(found[n.DataAtom], strings.Join(strings.Fields(shown.String()), " "))
	}
	return found
}

// A text of a repository is shown as it is, and hides nothing of the rest.
func TestReport_HostileMarkdown(t *testing.T) {
	hostile := []string{
		"reg/web:v3\n\nNo other changes.\n\n<!-- ", "web:v1`` <b>bold", "`", "a|b", "\\", "\\|", "<details>", "</details>", "--> x",
		"[text](/x)", "![x](y)", "**bold** _it_ ~~no~~", "# Title", "&lt;script&gt;", "a\r\rb", "a\u2028b", "```\n# Title\n```",
		"x <details>`\n", "\n`<b>x", "``\n",
	}
	parts := []string{"`", "``", "|", "\\", "<", ">", "!--", "-->", "\n", "\n\n", "[", "](x)", "*", "_", "&", "#", "~~", "a", "web:v1", " ",
		"<b>", "</b>", "- ", "+ ", "1. ", "2) ", "=", "---", "    "}
	r := rand.New(rand.NewPCG(1, 2))
	for range 2000 {
		text := ""
		for range 1 + r.IntN(8) {
			text += parts[r.IntN(len(parts))]
		}
		if strings.TrimSpace(text) != "" {
			hostile = append(hostile, text)
		}
	}
	for _, text := range hostile {
		p := &report{markdown: true}
		p.heading("Plan of " + p.code(text))
		p.table([]string{"now"}, [][]string{{text}})
		p.plainList([]string{text})
		p.warning(p.plain(text))
		p.diff(text, "a\n", "b "+text+"\n")
		p.line("As " + p.code(text) + " plans it.")
		p.heading("End")
		want := strings.Join(strings.Fields(text), " ")
		got := texts(t, p.text())
		check := func(tag atom.Atom, want ...string) {
			t.Helper()
			if strings.Join(got[tag], "\n") != strings.Join(want, "\n") {
				t.Errorf("%q: <%s> shows %q, want %q, in\n%s", text, tag, got[tag], want, p.text())
			}
		}
		check(atom.H3, "Plan of "+want, "End")
		check(atom.Td, want)
		check(atom.P, "[!WARNING] "+want, "As "+want+" plans it.")
		check(atom.Li, want)
		check(atom.Summary, want)
		check(atom.Details, strings.Join(strings.Fields(want+" "+strings.Join(got[atom.Pre], " ")), " "))
		for _, tag := range []atom.Atom{atom.A, atom.Img, atom.B, atom.Em, atom.Strong, atom.Del, atom.H1} {
			check(tag)
		}
	}
}
