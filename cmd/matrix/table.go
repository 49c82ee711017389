package main

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"k8s.io/apimachinery/pkg/util/version"
)

// recordFile keeps what the last run of each version has found.
const recordFile = "cmd/matrix/tested.json"

// row is one version of Kubernetes.
type row struct {
	Kubernetes string            `json:"kubernetes"`
	Etcd       string            `json:"etcd"`
	Kwok       string            `json:"kwok"`
	Results    map[string]result `json:"results"`
}

func (r row) String() string { return "Kubernetes " + r.Kubernetes }

// minor returns 1.36 of v1.36.3.
func (r row) minor() string {
	v := r.version()
	return fmt.Sprintf("%d.%d", v.Major(), v.Minor())
}

func (r row) version() *version.Version { return version.MustParseSemantic(r.Kubernetes) }

// tested is what the last run of each version has found.
type tested struct {
	Versions []row `json:"versions"`
	// Upgrades are the versions that one release under way has passed, the oldest first.
	Upgrades []string `json:"upgrades"`
}

// record replaces the rows of the versions that were tested, and keeps the others. The
// upgrades are replaced if there were some.
func record(root string, rows []row, upgrades []string) error {
	all, err := recorded(root)
	if err != nil && !errors.Is(err, os.ErrNotExist) {
		return err
	}
	for _, r := range rows {
		all.Versions = slices.DeleteFunc(all.Versions, func(old row) bool { return old.minor() == r.minor() })
	}
	all.Versions = append(all.Versions, rows...)
	slices.SortFunc(all.Versions, func(a, b row) int {
		if a.version().LessThan(b.version()) {
			return 1
		}
		return -1
	})
	if upgrades != nil {
		all.Upgrades = upgrades
	}
	text, err := json.MarshalIndent(all, "", "\t")
	if err != nil {
		return err
	}
	return os.WriteFile(filepath.Join(root, recordFile), append(text, '\n'), 0o644)
}

func recorded(root string) (tested, error) {
	var all tested
	text, err := os.ReadFile(filepath.Join(root, recordFile))
	if err != nil {
		return all, err
	}
	if err := json.Unmarshal(text, &all); err != nil {
		return all, fmt.Errorf("%s: %w", recordFile, err)
	}
	return all, nil
}

// The table stands between these lines of README.md.
const (
	page  = "README.md"
	begin = "<!-- written by make matrix -->\n"
	end   = "<!-- end -->\n"
)

// writeTable writes the table of what is recorded into the page.
func writeTable(root string) error {
	all, err := recorded(root)
	if err != nil {
		return err
	}
	file := filepath.Join(root, page)
	text, err := os.ReadFile(file)
	if err != nil {
		return err
	}
	before, rest, found := strings.Cut(string(text), begin)
	_, after, closed := strings.Cut(rest, end)
	if !found || !closed {
		return fmt.Errorf("%s has no lines %q and %q", page, strings.TrimSpace(begin), strings.TrimSpace(end))
	}
	return os.WriteFile(file, []byte(before+begin+table(all)+end+after), 0o644)
}

// table is the Markdown of what is recorded.
func table(all tested) string {
	var b bytes.Buffer
	names := columns()
	fmt.Fprintf(&b, "| Kubernetes | etcd | %s | left out |\n", strings.Join(names, " | "))
	fmt.Fprintf(&b, "|---|---|%s---|\n", strings.Repeat("---|", len(names)))
	for _, r := range all.Versions {
		fmt.Fprintf(&b, "| %s | %s |", strings.TrimPrefix(r.Kubernetes, "v"), strings.TrimPrefix(r.Etcd, "v"))
		var left []string
		for _, name := range names {
			got := r.Results[name]
			fmt.Fprintf(&b, " %d |", got.Passed)
			for _, l := range got.LeftOut {
				left = append(left, fmt.Sprintf("`%s`: %s", l.Test, l.Reason))
			}
		}
		fmt.Fprintf(&b, " %s |\n", strings.Join(left, "; "))
	}
	if len(all.Upgrades) > 0 {
		path := strings.ReplaceAll(strings.Join(all.Upgrades, " → "), "v", "")
		fmt.Fprintf(&b, "\nOne release passed these upgrades at its gates: %s.\n", path)
	}
	return b.String()
}

// columns are the names of the suites.
func columns() []string {
	var names []string
	for _, t := range runs {
		for _, s := range t.suites {
			names = append(names, s.name)
		}
	}
	return append(names, story)
}
