package main

import (
	"bytes"
	"path/filepath"
	"strings"
	"testing"
)

// A command that commits fails where there is no terminal, before it asks the cluster
// or prints anything. The cluster is one that cannot be reached.
func TestCanAsk_NoTerminal(t *testing.T) {
	t.Setenv("KUBECONFIG", filepath.Join(t.TempDir(), "absent"))
	for _, command := range []string{
		"approve web --push", "approve web --direct", "approve web --plan", "approve --commit 0123456", "rollback web --push",
		"rollback web --direct",
		"reject web --reason slow", "pause web --push", "resume web",
	} {
		var out bytes.Buffer
		root := newRoot()
		root.SetArgs(strings.Fields(command))
		root.SetIn(strings.NewReader("y\n"))
		root.SetOut(&out)
		root.SetErr(&out)
		if err := root.Execute(); err == nil || !strings.Contains(err.Error(), "give --yes") {
			t.Errorf("tranche %s without a terminal: %v", command, err)
		}
		if out.Len() > 0 {
			t.Errorf("tranche %s printed\n%s", command, out.String())
		}
	}
}
