package diff

import (
	"fmt"
	"html"
	"io"
	"regexp"
	"strings"

	"github.com/pmezard/go-difflib/difflib"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"sigs.k8s.io/yaml"

	"github.com/tranche-dev/tranche/cmd/tranche/cli"
	"github.com/tranche-dev/tranche/cmd/tranche/terminal"
)

// report is what diff prints: text for a terminal, or Markdown for a comment.
type report struct {
	b        strings.Builder
	markdown bool
	style    terminal.Style
	cut      bool
}

// mostMarkdown is how long a report in Markdown may become before differences
// are left out: GitHub takes 65,536 characters for a comment.
const mostMarkdown = 60_000

func newReport(w io.Writer, output string) *report {
	if output == cli.OutputMarkdown {
		return &report{markdown: true}
	}
	return &report{style: terminal.StyleOf(w)}
}

func (p *report) text() string {
	if p.cut {
		p.warning("Differences are left out where the report became too long; tranche diff without -o markdown shows all.")
	}
	return p.b.String()
}

// code is a name. In Markdown it ends where the name does, whatever that has in it.
func (p *report) code(name string) string {
	if !p.markdown {
		return p.style.Bold(name)
	}
	name = oneLine(name)
	fence := fenceFor(name, 1)
	if strings.HasPrefix(name, "`") || strings.HasSuffix(name, "`") {
		name = " " + name + " " // a space at both ends is left out
	}
	return fence + name + fence
}

// plain is a text of a repository. In Markdown it is shown as it is, whatever that has in it.
func (p *report) plain(text string) string {
	if !p.markdown {
		return text
	}
	text = escaped.Replace(strings.TrimSpace(oneLine(text)))
	return begins.ReplaceAllString(text, `$1\$2`)
}

// begins is what makes a list or a heading at the beginning of a line.
var begins = regexp.MustCompile(`^(\d*)([-+=]|\b[.)])`)

// escaped puts a backslash before what would begin or end something in Markdown.
var escaped = strings.NewReplacer(`\`, `\\`, "`", "\\`", "*", `\*`, "_", `\_`, "~", `\~`, "<", `\<`, ">", `\>`, "[", `\[`, "]", `\]`,
	"|", `\|`, "&", `\&`, "#", `\#`)

func oneLine(text string) string { return strings.Join(strings.FieldsFunc(text, isBreak), " ") }

func isBreak(r rune) bool { return strings.ContainsRune("\n\r\t\v\f\u0085\u2028\u2029", r) }

func (p *report) heading(text string) {
	p.gap()
	if p.markdown {
		text = "### " + text + "\n"
	}
	p.b.WriteString(text + "\n")
}

// gap sets off what comes next.
func (p *report) gap() {
	if p.b.Len() > 0 && !strings.HasSuffix(p.b.String(), "\n\n") {
		p.b.WriteString("\n")
	}
}

func (p *report) line(text string) {
	if p.markdown {
		text += "\n"
	}
	p.b.WriteString(text + "\n")
}

func (p *report) warning(text string) {
	if p.markdown {
		p.b.WriteString("> [!WARNING]\n> " + text + "\n\n")
		return
	}
	p.b.WriteString(p.style.Bad(text) + "\n")
}

func (p *report) list(items []string) {
	bullet := "  "
	if p.markdown {
		bullet = "- "
	}
	for _, item := range items {
		p.b.WriteString(bullet + item + "\n")
	}
	if p.markdown {
		p.b.WriteString("\n")
	}
}

func (p *report) plainList(items []string) {
	plain := make([]string, len(items))
	for i, item := range items {
		plain[i] = p.plain(item)
	}
	p.list(plain)
}

func (p *report) table(head []string, rows [][]string) {
	if !p.markdown {
		p.b.WriteString(indented(cli.Table(append([][]string{head}, rows...))))
		return
	}
	line := func(cells []string) {
		p.b.WriteString("|")
		for _, cell := range cells {
			p.b.WriteString(" " + p.plain(cell) + " |")
		}
		p.b.WriteString("\n")
	}
	line(head)
	p.b.WriteString(strings.Repeat("| --- ", len(head)) + "|\n")
	for _, row := range rows {
		line(row)
	}
	p.b.WriteString("\n")
}

func indented(text string) string {
	var b strings.Builder
	for line := range strings.Lines(text) {
		b.WriteString("  " + line)
	}
	return b.String()
}

// diff writes the difference of two texts, if there is one.
func (p *report) diff(name, before, after string) {
	text, err := difflib.GetUnifiedDiffString(difflib.UnifiedDiff{
		A: difflib.SplitLines(before), B: difflib.SplitLines(after), FromFile: name + ", now", ToFile: name + ", then", Context: 3,
	})
	if err != nil {
		panic(err) // a strings.Builder takes everything
	}
	switch {
	case text == "":
	case !p.markdown:
		p.b.WriteString(p.coloured(text))
	case p.b.Len()+len(text) > mostMarkdown:
		p.cut = true
	default:
		fence := fenceFor(text, 3)
		summary := html.EscapeString(oneLine(name))
		fmt.Fprintf(&p.b, "<details><summary>%s</summary>\n\n%sdiff\n%s%s\n\n</details>\n\n", summary, fence, text, fence)
	}
}

func (p *report) coloured(text string) string {
	var b strings.Builder
	for line := range strings.Lines(text) {
		line = strings.TrimSuffix(line, "\n")
		switch line[:min(1, len(line))] {
		case "+":
			line = p.style.Good(line)
		case "-":
			line = p.style.Bad(line)
		case "@":
			line = p.style.Busy(line)
		}
		b.WriteString(line + "\n")
	}
	return b.String()
}

var backticks = regexp.MustCompile("`+")

// fenceFor is a fence of so many backticks or more that a text does not close.
func fenceFor(text string, least int) string {
	fence := strings.Repeat("`", least)
	for _, run := range backticks.FindAllString(text, -1) {
		if len(run) >= len(fence) {
			fence = run + "`"
		}
	}
	return fence
}

// yamlOf is a value of the API as YAML.
func yamlOf(v any) string {
	text, err := yaml.Marshal(v)
	if err != nil {
		panic(err) // it has been decoded from JSON
	}
	return string(text)
}

// masked returns two versions of an object; of a Secret, without its data.
func masked(before, after *unstructured.Unstructured) (*unstructured.Unstructured, *unstructured.Unstructured) {
	if before.GroupVersionKind().GroupKind() != corev1.SchemeGroupVersion.WithKind("Secret").GroupKind() {
		return before, after
	}
	before, after = before.DeepCopy(), after.DeepCopy()
	for _, field := range []string{"data", "stringData"} {
		was, _, _ := unstructured.NestedMap(before.Object, field)
		is, _, _ := unstructured.NestedMap(after.Object, field)
		for k, v := range was {
			mark := "***"
			if is[k] != v {
				mark = "*** (now)"
			}
			_ = unstructured.SetNestedField(before.Object, mark, field, k) // it is a map, and was read above
		}
		for k, v := range is {
			mark := "***"
			if was[k] != v {
				mark = "*** (then)"
			}
			_ = unstructured.SetNestedField(after.Object, mark, field, k) // it is a map, and was read above
		}
	}
	return before, after
}
