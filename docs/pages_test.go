package docs_test

import (
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
)

// root is the folder of the repository.
const root = ".."

// pages returns the text of each Markdown file that users read, by its path in the
// repository.
func pages(t *testing.T) map[string]string {
	t.Helper()
	texts := map[string]string{}
	for _, pattern := range []string{"*.md", "docs/*.md"} {
		files, err := filepath.Glob(filepath.Join(root, pattern))
		if err != nil {
			t.Fatal(err)
		}
		for _, file := range files {
			text, err := os.ReadFile(file)
			if err != nil {
				t.Fatal(err)
			}
			texts[strings.TrimPrefix(filepath.ToSlash(file), root+"/")] = string(text)
		}
	}
	return texts
}

// withoutCode returns the lines of a page with those of code blocks emptied, so that
// line numbers stay.
func withoutCode(text string) []string {
	lines := strings.Split(text, "\n")
	fenced, indented, list := false, false, false
	for i, line := range lines {
		trimmed := strings.TrimSpace(line)
		fence := strings.HasPrefix(trimmed, "```")
		if trimmed != "" && !strings.HasPrefix(line, " ") {
			list = listItem.MatchString(line)
		}
		afterBlank := i == 0 || strings.TrimSpace(lines[i-1]) == "" || indented
		indented = !fenced && !list && strings.HasPrefix(line, "    ") && afterBlank
		if fenced || fence || indented {
			lines[i] = ""
		}
		if fence {
			fenced = !fenced
		}
	}
	return lines
}

var listItem = regexp.MustCompile(`^\s*([-*]|\d+\.) `)

var (
	link    = regexp.MustCompile(`\]\(([^()\s]*)\)`)
	heading = regexp.MustCompile(`(?m)^#+ (.*)$`)
	markup  = regexp.MustCompile("[^a-z0-9 _-]")
)

// anchors returns the names that a forge gives to the headings of a page.
func anchors(text string) map[string]bool {
	names := map[string]bool{}
	for _, m := range heading.FindAllStringSubmatch(strings.Join(withoutCode(text), "\n"), -1) {
		title := link.ReplaceAllString(m[1], "]")
		names[strings.ReplaceAll(markup.ReplaceAllString(strings.ToLower(title), ""), " ", "-")] = true
	}
	return names
}

func TestLinks_LeadToFilesAndHeadings(t *testing.T) {
	texts := pages(t)
	for file, text := range texts {
		for _, m := range link.FindAllStringSubmatch(strings.Join(withoutCode(text), "\n"), -1) {
			if strings.Contains(m[1], "://") {
				continue
			}
			path, anchor, _ := strings.Cut(m[1], "#")
			target := file
			if path != "" {
				target = filepath.Join(filepath.Dir(file), path)
			}
			if _, err := os.Stat(filepath.Join(root, target)); err != nil {
				t.Errorf("%s: link to %s: %v", file, m[1], err)
				continue
			}
			if anchor != "" && !anchors(texts[target])[anchor] {
				t.Errorf("%s: link to %s: %s has no such heading", file, m[1], target)
			}
		}
	}
}

// A page that no other page links to is not found by a reader.
func TestLinks_ReachEachPage(t *testing.T) {
	texts := pages(t)
	linked := map[string]bool{}
	for file, text := range texts {
		for _, m := range link.FindAllStringSubmatch(text, -1) {
			path, _, _ := strings.Cut(m[1], "#")
			if target := filepath.Join(filepath.Dir(file), path); target != file {
				linked[target] = true
			}
		}
	}
	for file := range texts {
		if strings.HasPrefix(file, "docs/") && !linked[file] {
			t.Errorf("no page links to %s", file)
		}
	}
}

var firstBuild = regexp.MustCompile(`first build[^.]*? takes about (\w+) minutes`)

// A reader who waits for the first build has seen one number.
func TestFirstBuild_IsOneNumber(t *testing.T) {
	seen := map[string][]string{}
	for _, file := range []string{"README.md", "CONTRIBUTING.md", "Makefile"} {
		text, err := os.ReadFile(filepath.Join(root, file))
		if err != nil {
			t.Fatal(err)
		}
		m := firstBuild.FindSubmatch(text)
		if m == nil {
			t.Errorf("%s does not say how long the first build takes", file)
			continue
		}
		seen[string(m[1])] = append(seen[string(m[1])], file)
	}
	if len(seen) != 1 {
		t.Errorf("minutes of a first build, by file: %v", seen)
	}
}

var conflictMarker = regexp.MustCompile(`(?m)^(<{7}|>{7})( |$)`)

// A conflict of a merge that was committed is seen by readers, and by no compiler.
func TestFiles_HaveNoConflictMarkers(t *testing.T) {
	n := 0
	err := filepath.WalkDir(root, func(at string, e fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		if e.IsDir() && slices.Contains([]string{".git", ".dev", "bin"}, e.Name()) {
			return filepath.SkipDir
		}
		if !e.Type().IsRegular() {
			return nil
		}
		text, err := os.ReadFile(at)
		if err != nil {
			return err
		}
		n++
		if m := conflictMarker.FindIndex(text); m != nil {
			t.Errorf("%s:%d: has the marker of a merge conflict", at, 1+strings.Count(string(text[:m[0]]), "\n"))
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	if n < 100 {
		t.Errorf("%d files only", n)
	}
}
