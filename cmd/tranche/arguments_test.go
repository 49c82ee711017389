package main

import (
	"bytes"
	"path/filepath"
	"strings"
	"testing"
)

// Arguments of commands are checked before a cluster is asked.
func TestArguments(t *testing.T) {
	t.Setenv("KUBECONFIG", filepath.Join(t.TempDir(), "none"))
	for args, want := range map[string]string{
		"status":                           "accepts 1 arg",
		"status web --timeout 1m":          "--timeout and --commit are for --watch",
		"status web --watch --timeout -1s": "--timeout must not be negative",
		"status web -w -o json":            "exclude each other",
		"status web -w --commit abc":       "--commit abc: must be at least seven characters of a commit's hash",
		"status web -w --commit feature/x": "$(git rev-parse HEAD)",
		"approve --commit HEAD -y":         "--commit HEAD: must be at least seven characters",
		"status web -o wide":               "--output wide: must be one of table, json, yaml",
		"get -o jsn":                       "--output jsn: must be one of table, json, yaml, wide, name",
		"history a b":                      "accepts at most 1 arg",
		"history --since clitest.Noon":     "--since clitest.Noon: must be how long ago",
		"history -A --source shop":         "if any flags in the group",
		"events -o wide":                   "--output wide: must be one of table, json, yaml",
		"sync":                             "accepts 1 arg",
		"sync shop --timeout -1s":          "--timeout must not be negative",
		"reject web":                       "--reason is missing",
		"get sources -o jsn":               "--output jsn: must be one of",
		"nonsense":                         "unknown command",
	} {
		root := newRoot()
		root.SetArgs(strings.Fields(args))
		root.SetOut(&bytes.Buffer{})
		if err := root.Execute(); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("tranche %s: %v, want an error that says %q", args, err, want)
		}
	}
}
