package main

import (
	"bytes"
	"strings"
	"testing"
)

// lint says which harm goes unnoticed. The steps have 1 and 5 of 10 pods, as there is no
// Deployment beside the plan; the last one has all.
func TestLint_Sensitivity(t *testing.T) {
	for args, want := range map[string]string{
		"--requests 3": "analyze/testdata/release.yaml: BatchRelease web: errors at step 0: " +
			"10 min at 3 req/s a pod see 1,800 requests: an increase below 0.77 points goes unnoticed\n" +
			"analyze/testdata/release.yaml: BatchRelease web: errors at step 1: " +
			"5 min at 3 req/s a pod see 4,500 requests: an increase below 0.71 points goes unnoticed\n",
		"--requests 0":                "--requests must be above 0",
		"--requests 3 --failing 1":    "--failing 1: must be a percentage from 0% to below 100%",
		"--requests 3 --failing 100%": "--failing 100%: must be a percentage from 0% to below 100%",
	} {
		var out bytes.Buffer
		root := newRoot()
		root.SetArgs(append([]string{"lint", "analyze/testdata/release.yaml"}, strings.Fields(args)...))
		root.SetOut(&out)
		got := ""
		if err := root.Execute(); err != nil {
			got = err.Error()
		}
		if got += out.String(); got != want {
			t.Errorf("%s:\n%s\nnot\n%s", args, got, want)
		}
	}
}
