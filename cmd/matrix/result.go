package main

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"regexp"
	"slices"
	"strings"
)

// result is how a suite went.
type result struct {
	Passed  int       `json:"passed"`
	LeftOut []leftOut `json:"leftOut,omitempty"`
}

// leftOut is a test that a version does not run.
type leftOut struct {
	Test   string `json:"test"`
	Reason string `json:"reason"`
}

// event is a line of go test -json.
type event struct {
	Action, Test, Output string
}

// log is how the tests of a package ended, and what they have printed, by test. The empty
// name is that of the package.
type log struct {
	ended, output map[string]string
}

func readLog(r io.Reader) (*log, error) {
	l := &log{ended: map[string]string{}, output: map[string]string{}}
	for decoder := json.NewDecoder(r); ; {
		var e event
		err := decoder.Decode(&e)
		if errors.Is(err, io.EOF) {
			return l, nil
		}
		if err != nil {
			return nil, fmt.Errorf("reading the output of go test: %w", err)
		}
		switch e.Action {
		case "output":
			l.output[e.Test] += e.Output
		case "pass", "fail", "skip":
			l.ended[e.Test] = e.Action
		}
	}
}

// parents are the tests that have subtests.
func (l *log) parents() map[string]bool {
	parents := map[string]bool{"": true} // the package
	for test := range l.ended {
		for i, c := range test {
			if c == '/' {
				parents[test[:i]] = true
			}
		}
	}
	return parents
}

// readResults counts the tests that have no subtests, for each suite. It returns an error with the
// output of those that failed.
func readResults(r io.Reader, suites []suite) (map[string]result, error) {
	l, err := readLog(r)
	if err != nil {
		return nil, err
	}
	results := map[string]result{}
	var failed strings.Builder
	parents := l.parents()
	for _, test := range slices.Sorted(maps.Keys(l.ended)) {
		name := suiteOf(test, suites)
		got := results[name]
		switch action := l.ended[test]; {
		case action == "fail":
			failed.WriteString(l.output[test])
		case parents[test]:
		case action == "skip":
			got.LeftOut = append(got.LeftOut, leftOut{test, reasonOf(l.output[test])})
		default:
			got.Passed++
		}
		results[name] = got
	}
	delete(results, "")
	if failed.Len() > 0 {
		return results, fmt.Errorf("failed:\n%s", &failed)
	}
	return results, nil
}

// suiteOf returns the suite of a test; empty for none.
func suiteOf(test string, suites []suite) string {
	top, _, _ := strings.Cut(test, "/")
	for _, s := range suites {
		if regexp.MustCompile("^Test(" + s.tests + ")$").MatchString(top) {
			return s.name
		}
	}
	return ""
}

// skipped finds what t.Skip has printed.
var skipped = regexp.MustCompile(`(?m)^ *\w+\.go:\d+: (.*)$`)

func reasonOf(output string) string {
	if m := skipped.FindStringSubmatch(output); m != nil {
		return m[1]
	}
	return "no reason"
}
