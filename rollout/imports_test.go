package rollout_test

import (
	"os/exec"
	"slices"
	"strings"
	"testing"
)

// mayImport says which packages of this module each package below rollout may import.
var mayImport = map[string][]string{
	"rollout": {"plan", "plan/contest", "plan/records", "plan/v1alpha1", "rollout/account", "rollout/analysis",
		"rollout/clock", "rollout/engine", "rollout/engine/native", "rollout/failures", "rollout/fence", "rollout/fromgit",
		"rollout/impersonate", "rollout/jsonpatch", "rollout/kubeversion", "rollout/managedfields", "rollout/metrics",
		"rollout/notify", "rollout/podcauses", "rollout/share", "rollout/startup", "rollout/tell", "rollout/templates",
		"rollout/transition", "rollout/trials"},
	"rollout/account": nil,
	"rollout/analysis": {"plan/condition", "plan/v1alpha1", "rollout/engine", "rollout/engine/verdict", "rollout/impersonate",
		"rollout/analysis/datadog", "rollout/analysis/job", "rollout/analysis/outbound", "rollout/analysis/pool",
		"rollout/analysis/prometheus", "rollout/analysis/unknown", "rollout/analysis/web"},
	"rollout/analysis/datadog":       {"rollout/analysis/outbound", "rollout/analysis/unknown"},
	"rollout/analysis/job":           {"rollout/analysis/unknown"},
	"rollout/analysis/outbound":      {"rollout/analysis/unknown"},
	"rollout/analysis/pool":          {"rollout/analysis/unknown"},
	"rollout/analysis/prometheus":    {"rollout/analysis/outbound", "rollout/analysis/unknown"},
	"rollout/analysis/unknown":       {"rollout/engine/verdict"},
	"rollout/analysis/web":           {"rollout/analysis/outbound", "rollout/analysis/unknown"},
	"rollout/clock":                  {"plan/v1alpha1", "rollout/engine"},
	"rollout/clustertest":            {"plan", "plan/v1alpha1", "rollout/engine", "rollout/clustertest/invariants"},
	"rollout/clustertest/invariants": {"plan", "plan/v1alpha1", "rollout/engine"},
	"rollout/engine": {"plan", "plan/contest", "plan/v1alpha1", "rollout/engine/action", "rollout/engine/facts",
		"rollout/engine/gates", "rollout/engine/native", "rollout/engine/position", "rollout/engine/rolling", "rollout/engine/verdict"},
	"rollout/engine/action":  {"plan", "plan/v1alpha1", "rollout/engine/facts"},
	"rollout/engine/facts":   {"plan", "plan/v1alpha1", "rollout/engine/verdict"},
	"rollout/engine/gates":   {"plan", "plan/v1alpha1", "rollout/engine/facts", "rollout/engine/position", "rollout/engine/verdict"},
	"rollout/engine/foresee": {"plan", "plan/v1alpha1", "rollout/engine", "rollout/engine/facts", "rollout/engine/position"},
	"rollout/engine/simulation": {"plan", "plan/measure", "plan/v1alpha1", "rollout/engine", "rollout/engine/facts", "rollout/engine/position",
		"rollout/engine/verdict"},
	"rollout/engine/native":     {"rollout/engine/facts"},
	"rollout/engine/position":   {"plan", "plan/v1alpha1", "rollout/engine/facts", "rollout/engine/rolling"},
	"rollout/engine/rolling":    nil,
	"rollout/engine/statistics": nil,
	"rollout/engine/verdict":    {"plan/measure", "plan/v1alpha1", "rollout/engine/statistics"},
	"rollout/failures":          nil,
	"rollout/fence":             {"plan/v1alpha1", "rollout/engine", "rollout/failures"},
	"rollout/fromgit":           {"plan/v1alpha1"},
	"rollout/impersonate":       {"plan/v1alpha1"},
	"rollout/templates":         {"plan", "plan/v1alpha1", "rollout/engine", "rollout/impersonate", "rollout/jsonpatch"},
	"rollout/jsonpatch":         nil,
	"rollout/kubeversion":       nil,
	"rollout/managedfields":     {"plan/v1alpha1", "rollout/jsonpatch"},
	"rollout/metrics":           {"plan", "plan/v1alpha1"},
	"rollout/notify":            nil,
	"rollout/podcauses":         {"rollout/engine"},
	"rollout/share":             nil,
	"rollout/startup":           nil,
	"rollout/tell":              {"plan/v1alpha1", "rollout/engine"},
	"rollout/transition":        {"plan/v1alpha1", "rollout/notify"},
	"rollout/trials":            {"plan/v1alpha1"},
}

// TestImports: each package below rollout imports what mayImport lists, and no other of this
// module. None imports the reconciler, and none knows how files come from Git.
func TestImports(t *testing.T) {
	t.Parallel()
	const module = "github.com/tranche-dev/tranche/"
	out, err := exec.Command("go", "list", "-f", `{{.ImportPath}} {{join .Imports " "}}`, "./...").Output()
	if err != nil {
		t.Fatalf("go list: %v", err)
	}
	for line := range strings.Lines(string(out)) {
		fields := strings.Fields(line)
		pkg := strings.TrimPrefix(fields[0], module)
		may, known := mayImport[pkg]
		if !known {
			t.Errorf("%s is not listed here with what it may import", pkg)
			continue
		}
		for _, dep := range fields[1:] {
			if own, ours := strings.CutPrefix(dep, module); ours && !slices.Contains(may, own) {
				t.Errorf("%s imports %s: of this module it may import %s", pkg, own, strings.Join(may, ", "))
			}
		}
	}
}
