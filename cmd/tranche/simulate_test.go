package main

import (
	"bytes"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/tranche-dev/tranche/cmd/tranche/clitest"
)

// The output of simulate, for each case a file in testdata/simulate.
func TestSimulate(t *testing.T) {
	for name, args := range map[string]string{
		"web":      "../../examples/web",
		"plan":     "../../examples/web/release.yaml --replicas 4 --max-surge 0 --max-unavailable 1 --min-ready-seconds 10",
		"hold":     "../../examples/web/release.yaml --fail-at 1",
		"rollback": "testdata/simulate/rollback.yaml --fail-at 1 --approve-after 1m",
		"none":     "../../examples/web --replicas 0",
		"one":      "../../examples/web --replicas 1",
		"large":    "../../examples/web --replicas 1000 --pod-ready 10s",
		"shop":     "../../examples/shop/overlays/production",
	} {
		t.Run(name, func(t *testing.T) {
			var out bytes.Buffer
			root := newRoot()
			root.SetArgs(append([]string{"simulate"}, strings.Fields(args)...))
			root.SetOut(&out)
			if err := root.Execute(); err != nil {
				t.Fatal(err)
			}
			clitest.Golden(t, filepath.Join("testdata", "simulate", name+".txt"), out.String())
		})
	}
}

// simulate reports errors with the file and the field.
func TestSimulateErrors(t *testing.T) {
	dir := t.TempDir()
	plan, err := os.ReadFile("../../examples/web/release.yaml")
	if err != nil {
		t.Fatal(err)
	}
	down, unknown, unit := filepath.Join(dir, "down.yaml"), filepath.Join(dir, "unknown.yaml"), filepath.Join(dir, "unit.yaml")
	huge := filepath.Join(dir, "huge.yaml")
	deployment, err := os.ReadFile("../../examples/web/deployment.yaml")
	if err != nil {
		t.Fatal(err)
	}
	for file, text := range map[string]string{
		down:    strings.Replace(string(plan), "20%", "60%", 1),
		unknown: strings.Replace(string(plan), "steps:", "stepz: []\n    steps:", 1),
		huge:    string(plan) + "---\n" + strings.Replace(string(deployment), "replicas: 10", "replicas: 2147483647", 1),
		unit:    strings.Replace(string(plan), "20%", "20%\n      pause: {duration: 10}", 1),
	} {
		if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	for args, want := range map[string]string{
		"nowhere":                            "nowhere",
		"../../README.md":                    "there is no BatchRelease in it",
		down:                                 "spec.strategy.steps[1].replicas",
		unknown:                              "spec.strategy.stepz",
		unit:                                 "spec.strategy.steps[0].pause.duration: must be a time with its unit",
		"../../examples/web --fail-at 3":     "the steps 0 to 2",
		"../../examples/web --fail-at -1":    "--fail-at",
		"../../examples/web --replicas -1":   "--replicas",
		"../../examples/web --pod-ready -1s": "--pod-ready",
		"../../examples/web --replicas 2147483647":  "at most 1000000",
		"../../examples/web --replicas 1000001":     "at most 1000000",
		huge:                                        "at most 1000000",
		"../../examples/web --max-surge lots":       "maxSurge",
		"../../examples/web --release api":          "--release api",
		"../../examples/web --min-ready-seconds -1": "--min-ready-seconds",
	} {
		root := newRoot()
		root.SetArgs(append([]string{"simulate"}, strings.Fields(args)...))
		root.SetOut(&bytes.Buffer{})
		if err := root.Execute(); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("tranche simulate %s: %v, want an error that names %s", args, err, want)
		}
	}
}
