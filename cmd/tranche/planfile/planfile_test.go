package planfile

import (
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

func TestSetPaused(t *testing.T) {
	for _, tc := range []struct{ reason, text, want string }{
		{
			"added, with the file's own indentation",
			"kind: BatchRelease\nmetadata: {name: web}\nspec:\n    # the workload\n    workloadRef: {name: web}\n",
			"kind: BatchRelease\nmetadata: {name: web}\nspec:\n    # the workload\n    paused: true\n    workloadRef: {name: web}\n",
		},
		{
			"changed, comments stay", "kind: BatchRelease\nspec:\n  strategy: {}\n  paused: false # not now\n",
			"kind: BatchRelease\nspec:\n  strategy: {}\n  paused: true # not now\n",
		},
		{
			"on one line", "{kind: BatchRelease, spec: {workloadRef: {name: web}}}\n",
			"{kind: BatchRelease, spec: {paused: true, workloadRef: {name: web}}}\n",
		},
		{
			"of two, the one of that name",
			"kind: BatchRelease\nmetadata: {name: api}\nspec: {a: b}\n---\nkind: BatchRelease\nmetadata: {name: web}\nspec: {a: b}\n",
			"kind: BatchRelease\nmetadata: {name: api}\nspec: {a: b}\n---\nkind: BatchRelease\nmetadata: {name: web}\nspec: {paused: true, a: b}\n",
		},
		{"none", "kind: Service\nspec: {a: b}\n", ""},
		{"two, none of that name", "kind: BatchRelease\nspec: {a: b}\n---\nkind: BatchRelease\nspec: {a: b}\n", ""},
	} {
		got, err := SetPaused(tc.text, "web", true)
		if (err != nil) != (tc.want == "") {
			t.Errorf("%s: %v", tc.reason, err)
		}
		if diff := cmp.Diff(tc.want, got); diff != "" {
			t.Errorf("%s (-want +got):\n%s", tc.reason, diff)
		}
	}
}

// The patch of an overlay comes and goes, and the rest of the file stays.
func TestPausePatch(t *testing.T) {
	const patch = "- target: {kind: BatchRelease, name: web}\n  patch: |-\n    - op: add\n      path: /spec/paused\n      value: true\n"
	indented := "  " + strings.ReplaceAll(strings.TrimSuffix(patch, "\n"), "\n", "\n  ") + "\n"
	for _, tc := range []struct{ why, text, want string }{
		{"no patches yet", "# shop\nresources: [../base]\n", "# shop\nresources: [../base]\npatches:\n" + patch},
		{"no newline at the end", "resources: [../base]", "resources: [../base]\npatches:\n" + patch},
		{
			"others", "patches: # of ours\n- path: a.yaml # one\n\nimages: []\n",
			"patches: # of ours\n" + patch + "- path: a.yaml # one\n\nimages: []\n",
		},
		{"indented", "patches:\n  - path: a.yaml\nimages: []\n", "patches:\n" + indented + "  - path: a.yaml\nimages: []\n"},
		{"in one line", "patches: [{path: a.yaml}]\n", ""},
		{"empty", "patches: []\n", ""},
		{"no mapping", "{resources: []}\n", ""},
	} {
		got, err := AddPausePatch(tc.text, "web", true)
		if (err == nil) != (tc.want != "") {
			t.Errorf("%s: %v", tc.why, err)
			continue
		}
		if diff := cmp.Diff(tc.want, got); diff != "" {
			t.Errorf("%s (-want +got):\n%s", tc.why, diff)
		}
		if err != nil {
			continue
		}
		back, there := DropPausePatch(got, "web")
		if want := strings.TrimSuffix(tc.text, "\n") + "\n"; !there || back != want {
			t.Errorf("%s: taken out: %t (-want +got):\n%s", tc.why, there, cmp.Diff(want, back))
		}
		if _, there := DropPausePatch(got, "other"); there {
			t.Errorf("%s: the patch of another plan is taken out", tc.why)
		}
	}
	last := "patches:\n- path: a.yaml\n" + patch + "\nimages: []\n"
	if got, there := DropPausePatch(last, "web"); !there || got != "patches:\n- path: a.yaml\n\nimages: []\n" {
		t.Errorf("the last one: %t\n%s", there, got)
	}
	other := strings.Replace(patch, "value: true\n", "value: true\n    - op: remove\n      path: /spec/a\n", 1)
	if _, there := DropPausePatch("patches:\n"+other, "web"); there {
		t.Error("a patch that does more is taken out")
	}
}
