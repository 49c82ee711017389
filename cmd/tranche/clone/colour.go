package clone

import (
	"strings"

	"github.com/tranche-dev/tranche/cmd/tranche/terminal"
)

// ColourDiff colours the lines of a diff that Diff has returned.
func ColourDiff(style terminal.Style, diff string) string {
	lines := strings.Split(diff, "\n")
	inHunk := false
	for i, line := range lines {
		switch {
		case strings.HasPrefix(line, "diff --git "): // a line of a hunk has a mark before it
			inHunk = false
			lines[i] = style.Bold(line)
		case strings.HasPrefix(line, "@@ "):
			inHunk = true
			lines[i] = style.Busy(line)
		case !inHunk:
			lines[i] = style.Bold(line)
		case strings.HasPrefix(line, "+"):
			lines[i] = style.Good(line)
		case strings.HasPrefix(line, "-"):
			lines[i] = style.Bad(line)
		}
	}
	return strings.Join(lines, "\n")
}
