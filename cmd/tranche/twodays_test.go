package main

import (
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"

	"github.com/rogpeppe/go-internal/testscript"
	appsv1 "k8s.io/api/apps/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/tranche-dev/tranche/gitsync/gittest"
	"github.com/tranche-dev/tranche/plan/v1alpha1"
	"github.com/tranche-dev/tranche/rollout/clustertest"
)

// days is what the script of testdata/twodays.txtar runs in: a cluster, a Git server
// and a chat room.
type days struct {
	*env
	mu       sync.Mutex
	notified []string // reasons
}

// The first two days as a newcomer has them, by the commands of the documents alone.
func TestTwoDays(t *testing.T) {
	t.Parallel()
	c := clustertest.Start(t)
	d := &days{env: &env{TB: t, c: c, ns: "shop"}}
	d.repository("web")
	d.kubectl("delete", "clusterrolebinding", "tranche-applier") // a newcomer's cluster has none
	root, err := clustertest.Root()
	d.must(err)
	git := gittest.Serve(t, filepath.Dir(d.bare), gittest.ServeOptions{Username: "ada", Password: "s3cret"})
	room := httptest.NewServer(http.HandlerFunc(d.receive))
	t.Cleanup(room.Close)
	testscript.Run(t, testscript.Params{
		Files: []string{"testdata/twodays.txtar"},
		Setup: func(e *testscript.Env) error {
			bin, url := filepath.Join(e.WorkDir, "bin"), strings.Replace(git.URL, "http://", "http://ada:s3cret@", 1)+"/"+filepath.Base(d.bare)
			program := fmt.Sprintf("#!/bin/sh\n%s=1 exec %q \"$@\"\n", asTranche, os.Args[0])
			notifications := fmt.Sprintf("receivers:\n- {name: room, type: webhook, url: %q}\n", room.URL)
			for name, v := range map[string]string{
				"KUBECONFIG": c.Kubeconfig, "ROOT": root, "BARE": d.bare, "URL": git.URL + "/" + filepath.Base(d.bare), "HOME": e.WorkDir,
				"GIT_CONFIG_NOSYSTEM": "1", "GIT_TERMINAL_PROMPT": "0", "NO_COLOR": "1",
				"PATH": strings.Join([]string{bin, filepath.Join(root, "bin"), os.Getenv("PATH")}, string(os.PathListSeparator)),
			} {
				e.Setenv(name, v)
			}
			return errors.Join(
				os.MkdirAll(bin, 0o755),
				os.WriteFile(filepath.Join(bin, "tranche"), []byte(program), 0o755),
				os.WriteFile(filepath.Join(e.WorkDir, "notifications.yaml"), []byte(notifications), 0o600),
				os.WriteFile(filepath.Join(e.WorkDir, ".gitconfig"), []byte("[user]\nname = Ada\nemail = ada@example.org\n[init]\ndefaultBranch = main\n"), 0o600),
				exec.Command("git", "clone", "--quiet", d.bare, filepath.Join(e.WorkDir, "repo")).Run(),
				exec.Command("git", "-C", filepath.Join(e.WorkDir, "repo"), "remote", "set-url", "origin", url).Run(),
			)
		},
		Cmds: map[string]func(*testscript.TestScript, bool, []string){
			"code": code, "pods": d.command((*days).arePods), "waiting": d.command((*days).isWaiting),
			"applied": d.command((*days).isApplied), "native": d.command((*days).isNative), "notified": d.command((*days).isNotified),
		},
	})
}

// inScript fails the script, and not the test that runs it in another goroutine.
type inScript struct {
	testing.TB
	ts *testscript.TestScript
}

func (s inScript) Fatal(args ...any)                 { s.ts.Fatalf("%s", fmt.Sprint(args...)) }
func (s inScript) Fatalf(format string, args ...any) { s.ts.Fatalf(format, args...) }

// command makes a command of the script.
func (d *days) command(run func(d *days, args []string)) func(*testscript.TestScript, bool, []string) {
	outside := d.TB
	return func(ts *testscript.TestScript, _ bool, args []string) {
		d.TB = inScript{outside, ts}
		defer func() { d.TB = outside }()
		run(d, args)
	}
}

// receive is the chat room.
func (d *days) receive(_ http.ResponseWriter, r *http.Request) {
	var event struct{ Type string }
	if err := json.NewDecoder(r.Body).Decode(&event); err == nil {
		d.mu.Lock()
		defer d.mu.Unlock()
		d.notified = append(d.notified, event.Type[strings.LastIndex(event.Type, ".")+1:])
	}
}

// code runs a program that is to end with an exit code.
func code(ts *testscript.TestScript, _ bool, args []string) {
	want, err := strconv.Atoi(args[0])
	ts.Check(err)
	var exit *exec.ExitError
	switch err := ts.Exec(args[1], args[2:]...); {
	case errors.As(err, &exit) && exit.ExitCode() == want, err == nil && want == 0:
	default:
		ts.Fatalf("%v: %v, want exit code %d", args[1:], err, want)
	}
}

// arePods waits for the pods of Deployment web, by tag: pods v1=8 v2=2.
func (d *days) arePods(args []string) {
	want := map[string]int32{}
	for _, a := range args {
		tag, n, _ := strings.Cut(a, "=")
		i, err := strconv.Atoi(n)
		d.must(err)
		want[tag] = int32(i)
	}
	clustertest.Wait(d, fmt.Sprintf("pods %v", want), func() error {
		if got := d.pods("web"); fmt.Sprint(got) != fmt.Sprint(want) {
			return fmt.Errorf("pods %v", got)
		}
		return nil
	})
}

// isWaiting waits until the release waits at the gate of a step.
func (d *days) isWaiting(args []string) {
	step, err := strconv.ParseInt(args[0], 10, 32)
	d.must(err)
	clustertest.Wait(d, fmt.Sprintf("the gate of step %d", step), func() error {
		if at := d.release("web").Status; at.Reason != "WaitingForApproval" || at.CurrentStepIndex != int32(step) {
			return fmt.Errorf("%s at step %d: %s", at.Reason, at.CurrentStepIndex, at.Message)
		}
		return nil
	})
}

// isApplied waits until the tip of the bare repository is applied.
func (d *days) isApplied([]string) {
	tip := d.run(d.bare, "git", "rev-parse", "main")
	clustertest.Wait(d, "commit "+tip+" to be applied", func() error {
		var gs v1alpha1.GitSource
		d.must(d.c.Client.Get(d.Context(), client.ObjectKey{Namespace: d.ns, Name: "shop"}, &gs))
		if gs.Status.AppliedCommit != tip {
			return fmt.Errorf("applied %s: %+v", gs.Status.AppliedCommit, gs.Status.Conditions)
		}
		return nil
	})
}

// isNative waits until Deployment web is an ordinary one.
func (d *days) isNative([]string) {
	clustertest.Wait(d, "a native Deployment", func() error {
		var web appsv1.Deployment
		d.must(d.c.Client.Get(d.Context(), client.ObjectKey{Namespace: d.ns, Name: "web"}, &web))
		if web.Spec.Paused || web.Spec.Strategy.Type != appsv1.RollingUpdateDeploymentStrategyType || metav1.HasLabel(web.ObjectMeta, v1alpha1.LabelHeld) {
			return fmt.Errorf("paused %t, %s, labels %v", web.Spec.Paused, web.Spec.Strategy.Type, web.Labels)
		}
		return nil
	})
}

// isNotified waits until the chat room has received these reasons.
func (d *days) isNotified(args []string) {
	clustertest.Wait(d, "notifications", func() error {
		d.mu.Lock()
		defer d.mu.Unlock()
		for _, reason := range args {
			if !slices.Contains(d.notified, reason) {
				return fmt.Errorf("not told of %s, but of %v", reason, d.notified)
			}
		}
		return nil
	})
}
