//go:build unix

package main

import (
	"errors"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"syscall"
	"testing"

	"github.com/tranche-dev/tranche/rollout/clustertest"
)

// chartOf is the chart with the CustomResourceDefinitions, roles and policies of a version. The
// version before the first chart has none of its own.
func chartOf(t *testing.T, v trancheVersion) string {
	t.Helper()
	dir := t.TempDir()
	err := os.CopyFS(dir, os.DirFS(absolutePath(t, "../../config/chart/tranche")))
	if err != nil {
		t.Fatal(err)
	}
	for from, to := range map[string]string{"crd/bases": "crd", "rbac": "rbac", "policy": "policy", "cluster-admin": "cluster-admin"} {
		files, err := os.ReadDir(filepath.Join(dir, "files", to))
		if err != nil {
			t.Fatal(err)
		}
		for _, f := range files {
			file := filepath.Join(dir, "files", to, f.Name())
			text, err := os.ReadFile(filepath.Join(v.config, from, f.Name()))
			switch {
			case err == nil:
				err = os.WriteFile(file, text, 0o600)
			case errors.Is(err, fs.ErrNotExist): // it is of a later version
				err = os.Remove(file)
			}
			if err != nil {
				t.Fatal(err)
			}
		}
	}
	return dir
}

// helmProgram builds what does as helm does: Helm is a library of another Go module.
func helmProgram(t *testing.T) string {
	t.Helper()
	program := filepath.Join(t.TempDir(), "helm")
	build := exec.Command("go", "build", "-buildvcs=false", "-o", program, "./helm")
	build.Dir = absolutePath(t, "../../config/chart/charttest")
	if out, err := build.CombinedOutput(); err != nil {
		t.Fatalf("building helm: %v: %s", err, out)
	}
	return program
}

// Tranche is upgraded and rolled back by its chart, with a release in each phase. Nothing moves
// by it, and afterwards each release goes to its end.
func TestUpgrade_ByChart(t *testing.T) {
	t.Parallel()
	before, this := versionBefore(t), ofThisVersion(t)
	c := clustertest.StartEmpty(t)
	u := &upgrades{env: &env{TB: t, c: c}}
	program := helmProgram(t)
	helm := func(verb string, args ...string) {
		t.Helper()
		cmd := exec.Command(program, append([]string{verb, "tranche-system", "tranche"}, args...)...)
		cmd.Env = append(os.Environ(), "KUBECONFIG="+c.Kubeconfig)
		if out, err := cmd.CombinedOutput(); err != nil {
			t.Fatalf("helm %s: %v: %s", verb, err, out)
		}
	}
	helm("install", chartOf(t, before), "rights: cluster-admin")
	u.lead(before, 0)
	all := u.follow(phases)
	u.upgrade(all, "v1", "v2", func() {
		helm("upgrade", chartOf(t, this), "{}")
		u.lead(this, syscall.SIGTERM)
	}, func() {
		helm("rollback", "1")
		u.lead(before, syscall.SIGTERM)
	}, func() {
		helm("upgrade", chartOf(t, this), "{}")
		u.lead(this, syscall.SIGTERM)
	})
}
