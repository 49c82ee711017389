package main

import (
	"bytes"
	"context"
	"debug/buildinfo"
	"errors"
	"fmt"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"time"

	"github.com/tranche-dev/tranche/rollout/clustertest"
)

// testRun is a run of tests of a package, all on one cluster.
type testRun struct {
	dir, pkg string
	suites   []suite
	flags    []string
}

// suite is a column of the table.
type suite struct {
	name, tests string // tests is a regular expression of what follows Test
}

// runs are of what a version of Kubernetes can break. The rest of the tests is for the newest
// version.
var runs = []testRun{
	{dir: "cmd/devcluster", pkg: "./cluster", suites: []suite{{"cluster", "Up"}}},
	{dir: ".", pkg: "./rollout", suites: []suite{
		{"hazards", "Hazards"},
		{"names", "Names"},
		{"policies", "ControllerDead|TenantUnderThePolicy|HeldLabel.*|ReplicaSets.*|AutoscalerOfAReplicaSet|StatusIsTheControllers|" +
			"PlanNeedsTheRightToPatch|PolicyExpressions|Identity_.*"},
		{"releases", "Release|ReleaseEqualsNative|Supersede|Rollback|Scale|BadPlans|DriftUnderHold"},
	}},
	{dir: ".", pkg: "./gitsync", suites: []suite{{"Git", "FirstInstallAndTemplateChange|PlanComesAndGoes|Prune|AllOrNothing|TakenOver|" +
		"ApprovalReachesTheRelease|DriftIsNamed.*|ACRD.*|ImmutableFields|Autoscaler.*|WriteBackApproval|WriteBackRollback"}}},
}

// upgrades is a test of all versions together. It is compiled for the matrix alone.
var upgrades = testRun{dir: ".", pkg: "./rollout", flags: []string{"-tags=matrix"}, suites: []suite{{"upgrades", "UpgradeOfTheCluster"}}}

// story is the column of the demo: a release, an approval and a rollback from README.md.
const story = "story"

// timeout is for a suite on a busy machine.
const timeout = 20 * time.Minute

// test runs all suites on one version of Kubernetes. It goes on after a failure.
func test(ctx context.Context, folder string) (row, error) {
	r, err := readVersions(filepath.Join(folder, "devcluster"))
	if err != nil {
		return row{Kubernetes: folder}, err
	}
	folder, err = filepath.Abs(folder)
	if err != nil {
		return r, err
	}
	var problems []error
	for _, t := range runs {
		results, err := t.run(ctx, r.Kubernetes, clustertest.Programs+"="+folder, "DEVCLUSTER="+filepath.Join(folder, "devcluster"))
		if err != nil {
			problems = append(problems, err)
		}
		maps.Copy(r.Results, results)
	}
	if err := checkHashes(ctx, r.minor()); err != nil {
		problems = append(problems, fmt.Errorf("hashes: %w", err))
	}
	began := time.Now()
	if out, err := exec.CommandContext(ctx, "bin/demo", "--cluster", folder).CombinedOutput(); err != nil {
		problems = append(problems, fmt.Errorf("%s: %w\n%s", story, err, out))
	} else {
		r.Results[story] = result{Passed: 1}
	}
	fmt.Printf("%-8s %s: %.0f s\n", r.Kubernetes, story, time.Since(began).Seconds())
	return r, errors.Join(problems...)
}

// readVersions tells what a devcluster is made of.
func readVersions(devcluster string) (row, error) {
	info, err := buildinfo.ReadFile(devcluster)
	if err != nil {
		return row{}, fmt.Errorf("reading what it is made of; run `make devcluster`: %w", err)
	}
	r := row{Results: map[string]result{}}
	for _, m := range info.Deps {
		switch m.Path {
		case "k8s.io/kubernetes":
			r.Kubernetes = m.Version
		case "go.etcd.io/etcd/server/v3":
			r.Etcd = m.Version
		case "sigs.k8s.io/kwok":
			r.Kwok = m.Version
		}
	}
	return r, nil
}

// upgrade runs the test of upgrades if there are several versions, and returns them.
func upgrade(ctx context.Context, folders []string, rows []row) ([]string, error) {
	if len(folders) < 2 {
		return nil, nil
	}
	var path, versions []string
	for i, folder := range folders {
		folder, err := filepath.Abs(folder)
		if err != nil {
			return nil, err
		}
		path, versions = append(path, folder), append(versions, rows[i].Kubernetes)
	}
	if _, err := upgrades.run(ctx, "all", "TRANCHE_TEST_UPGRADE="+strings.Join(path, string(os.PathListSeparator))); err != nil {
		return nil, fmt.Errorf("upgrades %s: %w", strings.Join(versions, " to "), err)
	}
	return versions, nil
}

// run runs the tests, and prints how that went for a version. It returns the result of each suite.
func (t testRun) run(ctx context.Context, version string, env ...string) (map[string]result, error) {
	var tests []string
	for _, s := range t.suites {
		tests = append(tests, s.tests)
	}
	args := append([]string{"test", "-json", "-count=1", "-parallel=6", "-timeout=" + timeout.String()}, t.flags...)
	cmd := exec.CommandContext(ctx, "go", append(args, "-run=^Test("+strings.Join(tests, "|")+")$", t.pkg)...)
	cmd.Dir = t.dir
	cmd.Env = append(os.Environ(), env...)
	var stdout, stderr bytes.Buffer
	cmd.Stdout, cmd.Stderr = &stdout, &stderr
	began := time.Now()
	ended := cmd.Run()
	results, err := readResults(&stdout, t.suites)
	for _, s := range t.suites {
		got := results[s.name]
		fmt.Printf("%-8s %s: %d passed, %d left out\n", version, s.name, got.Passed, len(got.LeftOut))
		if got.Passed == 0 {
			err = errors.Join(err, fmt.Errorf("%s: no test has passed", s.name))
		}
	}
	fmt.Printf("%-8s %s: %.0f s\n", version, t.pkg, time.Since(began).Seconds())
	if ended != nil || err != nil {
		return results, fmt.Errorf("%s: %w\n%s", t.pkg, errors.Join(ended, err), &stderr)
	}
	return results, nil
}

// checkHashes compares the hashes that plan's tests know with those that this version gives.
func checkHashes(ctx context.Context, minor string) error {
	module := "go-" + minor + ".mod"
	if _, err := os.Stat(filepath.Join("cmd", "devcluster", module)); err != nil {
		module = "go.mod"
	}
	const folder = "plan/testdata/templatehash"
	args := []string{"-C", "cmd/devcluster", "run", "-modfile=" + module, "../../" + folder + "/main.go"}
	for _, name := range []string{"minimal", "rich", "newer", "envfile"} {
		args = append(args, "../../"+folder+"/"+name+".yaml")
	}
	cmd := exec.CommandContext(ctx, "go", args...)
	cmd.Stderr = os.Stderr
	got, err := cmd.Output()
	if err != nil {
		return fmt.Errorf("printing the hashes of Kubernetes %s: %w", minor, err)
	}
	file := folder + "-" + minor + ".json"
	want, err := os.ReadFile(file)
	if err != nil {
		return err
	}
	if !bytes.Equal(got, want) {
		return fmt.Errorf("%s is not what Kubernetes %s gives", file, minor)
	}
	return nil
}
