package docs_test

import (
	"fmt"
	"regexp"
	"slices"
	"strings"
	"testing"
)

// maxWords is the length of a sentence above which a reader has to begin again.
const maxWords = 25

// rejected are words that hide the actor of a sentence, metaphors, and phrases for
// which there is a plain word.
var rejected = regexp.MustCompile(`(?i)\b(` + strings.Join([]string{
	"(other|whose) hands", "nobody", "anybody", "whoever", "somebody", "someone", "other people", // who acts?
	"anew", "but for", "for now", "be it", "hangs? on", "for as long as", "goes? round", "mended", // archaic
	"told", "wish(es|ed)?", "glance[sd]?", "books", "the story of", "at rest", // metaphors
	"(a|each|every|the next|the last) look", "looks? at (the|its) (repository|branch)", // a sync
}, "|") + `)\b`)

// inverted are beginnings of a sentence that put off its subject.
var inverted = regexp.MustCompile(`^[*_|( -]*(What|Who|Where|Of) `)

var (
	codeSpan    = regexp.MustCompile("`+[^`]+`+")
	linkTarget  = regexp.MustCompile(`\]\([^()]*\)`)
	sentenceEnd = regexp.MustCompile(`[.?!]["”)*]*\s+`)
	letter      = regexp.MustCompile(`[\p{L}\p{N}]`)
)

// unit is a piece of prose that ends its sentences: a paragraph, a list item, a table
// cell.
type unit struct {
	line int
	text string
}

// prose returns the units of a page.
func prose(text string) []unit {
	var units []unit
	var open *unit
	end := func() { open = nil }
	for i, line := range withoutCode(text) {
		trimmed := strings.TrimSpace(line)
		switch {
		case trimmed == "" || strings.HasPrefix(trimmed, "<!--"):
			end()
		case strings.HasPrefix(trimmed, "|"):
			end()
			for cell := range strings.SplitSeq(codeSpan.ReplaceAllString(trimmed, "code"), "|") {
				units = append(units, unit{i + 1, strings.TrimSpace(cell)})
			}
		case strings.HasPrefix(trimmed, "#"): // a title is no sentence
			end()
		default:
			if open == nil || listItem.MatchString(line) {
				units = append(units, unit{line: i + 1})
				open = &units[len(units)-1]
			}
			open.text += " " + listItem.ReplaceAllString(trimmed, "")
		}
	}
	return units
}

// plain returns a text without what is no prose: code, and the targets of links.
func plain(text string) string {
	return linkTarget.ReplaceAllString(codeSpan.ReplaceAllString(text, "code"), "]")
}

// rejectedWords returns the words of a text that are not plain.
func rejectedWords(text string) []string {
	var found []string
	for _, word := range rejected.FindAllString(plain(text), -1) {
		found = append(found, fmt.Sprintf("%q is not plain: name the actor, or use the word of docs/glossary.md", word))
	}
	return found
}

// problems returns the sentences of a text that are too long, and its rejected words.
func problems(text string) []string {
	found := rejectedWords(text)
	text = plain(text)
	for _, sentence := range sentenceEnd.Split(text+" ", -1) {
		if m := inverted.FindStringSubmatch(sentence); m != nil {
			found = append(found, fmt.Sprintf("a sentence begins with %s: begin with its subject, or with If", m[1]))
		}
		words := slices.DeleteFunc(strings.Fields(sentence), func(w string) bool { return !letter.MatchString(w) })
		if len(words) > maxWords {
			found = append(found, fmt.Sprintf("%d words in a sentence, at most %d: %s", len(words), maxWords, strings.Join(words, " ")))
		}
	}
	return found
}

// The descriptions of the API are checked in docs/api.md, which has them all.
func TestLanguage_Pages(t *testing.T) {
	for file, text := range pages(t) {
		for _, u := range prose(text) {
			for _, problem := range problems(u.text) {
				t.Errorf("%s:%d: %s", file, u.line, problem)
			}
		}
	}
}

func TestProblems_Sentences(t *testing.T) {
	words := func(n int) string { return "A" + strings.Repeat(" word", n-1) + "." }
	for name, c := range map[string]struct {
		text string
		want int
	}{
		"as long as it may be":         {words(25), 0},
		"one word too long":            {words(26), 1},
		"two sentences":                {words(25) + " " + words(25), 0},
		"code is one word":             {words(24) + " `kubectl get deployments -n shop -o yaml`", 0},
		"a rejected word":              {"Nobody approves it.", 1},
		"in code it is a name":         {"The field `nobody` is set.", 0},
		"a link's target is no text":   {"See [the page](books.md).", 0},
		"the subject comes last":       {"It works. Where it fails, retry.", 1},
		"a condition before its verb":  {"If it fails, retry.", 0},
		"part of another word":         {"It is a renewed bookshelf.", 0},
		"two problems in one sentence": {"What nobody wants.", 2},
	} {
		t.Run(name, func(t *testing.T) {
			if got := problems(c.text); len(got) != c.want {
				t.Errorf("%d problems, not %d: %q", len(got), c.want, got)
			}
		})
	}
}

func TestProse_Units(t *testing.T) {
	page := "# Title\n\nA line\nand its end.\n\n- item\n  goes on\n- another\n\nA command:\n\n    code nobody " +
		"reads\n\n```\nnobody\n```\n\n| a | b |\n"
	var got []string
	for _, u := range prose(page) {
		if text := strings.TrimSpace(u.text); text != "" {
			got = append(got, text)
		}
	}
	want := []string{"A line and its end.", "item goes on", "another", "A command:", "a", "b"}
	if !slices.Equal(got, want) {
		t.Errorf("units %q, not %q", got, want)
	}
}

// flagUsage is a line of a command's flags: their names, and two spaces before the text.
var flagUsage = regexp.MustCompile(`^ +(-\w, )?--[^ ]+( \w+)?\s{2,}`)

// fromKubectl are parts of the flags that all programs with a kubeconfig share.
var fromKubectl = regexp.MustCompile(`CLI requests?\.|single server request|kubeconfig context|to impersonate for`)

// helpTexts returns the units of what commands print about themselves, which is in
// code blocks.
func helpTexts(text string) []unit {
	var units []unit
	fenced, open := false, false
	for i, line := range strings.Split(text, "\n") {
		switch {
		case strings.HasPrefix(line, "```"):
			fenced, open = !fenced, false
		case !fenced || strings.TrimSpace(line) == "" || fromKubectl.MatchString(line):
			open = false
		case strings.HasPrefix(line, "  "):
			units = append(units, unit{i + 1, flagUsage.ReplaceAllString(line, "")})
			open = false
		case open:
			units[len(units)-1].text += " " + line
		default:
			units = append(units, unit{i + 1, line})
			open = true
		}
	}
	return units
}

func TestLanguage_CommandLine(t *testing.T) {
	units := helpTexts(pages(t)["docs/cli.md"])
	if len(units) < 100 {
		t.Errorf("only %d texts of commands and flags were found", len(units))
	}
	for _, u := range units {
		for _, problem := range problems(u.text) {
			t.Errorf("docs/cli.md:%d, from cmd/tranche: %s", u.line, problem)
		}
	}
}
