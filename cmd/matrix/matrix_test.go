package main

import (
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

const root = "../.."

// The table of README.md is what the last run has found, of each version that devcluster can be.
func TestTable(t *testing.T) {
	all, err := recorded(root)
	if err != nil {
		t.Fatal(err)
	}
	text, err := os.ReadFile(filepath.Join(root, page))
	if err != nil {
		t.Fatal(err)
	}
	_, rest, _ := strings.Cut(string(text), begin)
	shown, _, _ := strings.Cut(rest, end)
	if diff := cmp.Diff(table(all), shown); diff != "" {
		t.Errorf("what is recorded (-) and the table of %s (+); run `make generate`:\n%s", page, diff)
	}
	var got, want, versions []string
	for _, r := range all.Versions {
		got = append(got, r.Kubernetes+" with etcd "+r.Etcd+" and kwok "+r.Kwok)
		versions = append(versions, r.Kubernetes)
		for _, name := range columns() {
			if r.Results[name].Passed == 0 {
				t.Errorf("%s: nothing of %s has passed", r, name)
			}
		}
	}
	for _, module := range []string{"go.mod", "go-1.35.mod", "go-1.34.mod"} {
		text, err := os.ReadFile(filepath.Join(root, "cmd/devcluster", module))
		if err != nil {
			t.Fatal(err)
		}
		version := func(path string) string {
			m := regexp.MustCompile(`(?m)^\t` + path + ` (v\S+)`).FindSubmatch(text)
			if m == nil {
				t.Fatalf("%s has no %s", module, path)
			}
			return string(m[1])
		}
		want = append(want, version("k8s.io/kubernetes")+" with etcd "+version("go.etcd.io/etcd/server/v3")+
			" and kwok "+version("sigs.k8s.io/kwok"))
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("versions of cmd/devcluster (-) and those tested (+); run `make matrix`:\n%s", diff)
	}
	slices.Reverse(versions)
	if diff := cmp.Diff(versions, all.Upgrades); diff != "" {
		t.Errorf("versions (-) and those of the upgrades (+); run `make matrix`:\n%s", diff)
	}
}

// readResults reads what go test prints of tests that pass, fail and are left out.
func TestReadResults(t *testing.T) {
	suites := []suite{{"hazards", "Hazards"}, {"rest", "B|C"}}
	lines := func(all ...string) string { return strings.Join(all, "\n") }
	passes := lines(`{"Action":"start"}`, `{"Action":"run","Test":"TestHazards"}`,
		`{"Action":"output","Test":"TestHazards/x","Output":"ok\n"}`, `{"Action":"pass","Test":"TestHazards/x"}`,
		`{"Action":"pass","Test":"TestHazards/y"}`, `{"Action":"pass","Test":"TestHazards"}`)
	skips := lines(`{"Action":"output","Test":"TestB","Output":"    b_test.go:12: needs Kubernetes 1.36\n"}`,
		`{"Action":"skip","Test":"TestB"}`)
	fails := lines(`{"Action":"output","Test":"TestC","Output":"no pods\n"}`, `{"Action":"fail","Test":"TestC"}`, `{"Action":"fail"}`)
	hazards := result{Passed: 2}
	for _, tc := range []struct {
		reason, in string
		want       map[string]result
		failure    string
	}{
		{"subtests count, and not their parent", passes, map[string]result{"hazards": hazards}, ""},
		{"a test that is left out has its reason", lines(passes, skips),
			map[string]result{"hazards": hazards, "rest": {LeftOut: []leftOut{{"TestB", "needs Kubernetes 1.36"}}}}, ""},
		{"a failure shows what it has printed", lines(passes, fails), map[string]result{"hazards": hazards, "rest": {}}, "no pods"},
		{"no cluster", lines(`{"Action":"output","Output":"no etcd\n"}`, `{"Action":"fail"}`), map[string]result{}, "no etcd"},
		{"no JSON", "panic", nil, "reading the output of go test"},
	} {
		got, err := readResults(strings.NewReader(tc.in), suites)
		if diff := cmp.Diff(tc.want, got); diff != "" {
			t.Errorf("%s (-want +got):\n%s", tc.reason, diff)
		}
		if (err == nil) != (tc.failure == "") || err != nil && !strings.Contains(err.Error(), tc.failure) {
			t.Errorf("%s: %v", tc.reason, err)
		}
	}
}

// A run of one version keeps the rows of the others.
func TestRecord(t *testing.T) {
	dir := t.TempDir()
	if err := os.MkdirAll(filepath.Join(dir, filepath.Dir(recordFile)), 0o755); err != nil {
		t.Fatal(err)
	}
	for _, run := range []tested{
		{[]row{{Kubernetes: "v1.34.4"}, {Kubernetes: "v1.36.3"}}, []string{"v1.34.4", "v1.36.3"}},
		{[]row{{Kubernetes: "v1.34.5"}}, nil},
		{[]row{{Kubernetes: "v1.35.4"}}, nil},
	} {
		if err := record(dir, run.Versions, run.Upgrades); err != nil {
			t.Fatal(err)
		}
	}
	got, err := recorded(dir)
	if err != nil {
		t.Fatal(err)
	}
	want := tested{[]row{{Kubernetes: "v1.36.3"}, {Kubernetes: "v1.35.4"}, {Kubernetes: "v1.34.5"}}, []string{"v1.34.4", "v1.36.3"}}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("rows (-want +got):\n%s", diff)
	}
}
