package main

import (
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"testing"

	"github.com/rogpeppe/go-internal/testscript"
	appsv1 "k8s.io/api/apps/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/tools/clientcmd"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/tranche-dev/tranche/plan/v1alpha1"
	"github.com/tranche-dev/tranche/rollout/clustertest"
)

// script is what a script of testdata runs in: a namespace, a repository, and what reads
// the API server from outside.
type script struct {
	*env
	source     string // the name of the GitSource
	kubeconfig string
	room       *room
	setup      func(*testscript.Env) error // more to set up; may be nil
}

// Commands as they are typed: each file of testdata/scripts, in a namespace of its own that
// the context of kubectl names. $BARE is the repository, which the current folder is a
// clone of. A script is judged by exit codes, $BARE and the API server.
func TestScripts(t *testing.T) {
	files, err := filepath.Glob("testdata/scripts/*.txtar")
	if err != nil || len(files) == 0 {
		t.Fatalf("testdata/scripts has %d scripts: %v", len(files), err)
	}
	examples := map[string][2]string{"approve-commit": {"shop", "overlays/production"}, "get-broken": {"web", "nowhere"}}
	play(t, files, func(t testing.TB, name string) *script {
		example, ok := examples[name]
		if !ok {
			example = [2]string{"web", "."}
		}
		s := &script{env: newEnv(t, example[0], example[1]), source: "source"}
		s.kubeconfig = s.kubeconfigHere()
		return s
	})
}

// kubeconfigHere writes a kubeconfig whose context names the namespace.
func (s *script) kubeconfigHere() string {
	s.Helper()
	config, err := clientcmd.LoadFromFile(s.c.Kubeconfig)
	s.must(err)
	config.Contexts[config.CurrentContext].Namespace = s.ns
	file := filepath.Join(s.TempDir(), "kubeconfig")
	s.must(clientcmd.WriteToFile(*config, file))
	return file
}

// play runs scripts beside each other, each in what prepare makes for it once it begins.
func play(t *testing.T, files []string, prepare func(t testing.TB, name string) *script) {
	t.Helper()
	commands := map[string]func(*testscript.TestScript, bool, []string){"code": code, "let": let}
	for name, run := range map[string]func(*script, []string){
		"reaches": (*script).reaches, "pods": (*script).arePods, "waiting": (*script).isWaiting, "applied": (*script).isApplied,
		"insync": (*script).isInSync, "native": (*script).isNative, "notified": (*script).isNotified,
	} {
		commands[name] = command(run)
	}
	testscript.Run(t, testscript.Params{Files: files, Cmds: commands, Setup: func(e *testscript.Env) error {
		t, ok := e.T().(testing.TB)
		if !ok {
			return errors.New("a script is run by a test")
		}
		s := prepare(t, strings.TrimPrefix(filepath.Base(e.WorkDir), "script-"))
		e.Values[scriptKey{}] = s
		return s.begin(e)
	}})
}

// scriptKey finds the script of a command.
type scriptKey struct{}

// begin makes the clone that a script begins in, and sets its environment.
func (s *script) begin(e *testscript.Env) error {
	s.Helper()
	root, err := clustertest.Root()
	s.must(err)
	bin, repo := filepath.Join(e.WorkDir, "bin"), filepath.Join(e.WorkDir, "repo")
	program := fmt.Sprintf("#!/bin/sh\n%s=1 exec %q \"$@\"\n", asTranche, os.Args[0])
	for name, v := range map[string]string{
		"KUBECONFIG": s.kubeconfig, "ROOT": root, "BARE": s.bare, "NS": s.ns, "HOME": e.WorkDir,
		"GIT_CONFIG_NOSYSTEM": "1", "GIT_TERMINAL_PROMPT": "0", "NO_COLOR": "1",
		"PATH": strings.Join([]string{bin, filepath.Join(root, "bin"), os.Getenv("PATH")}, string(os.PathListSeparator)),
	} {
		e.Setenv(name, v)
	}
	e.Cd = repo
	err = errors.Join(
		os.MkdirAll(bin, 0o755),
		os.WriteFile(filepath.Join(bin, "tranche"), []byte(program), 0o755),
		os.WriteFile(filepath.Join(e.WorkDir, ".gitconfig"),
			[]byte("[user]\nname = Ada\nemail = ada@example.org\n[init]\ndefaultBranch = main\n"), 0o600),
		exec.Command("git", "clone", "--quiet", s.bare, repo).Run(),
	)
	if err == nil && s.setup != nil {
		err = s.setup(e)
	}
	return err
}

// inScript fails the script, with the line that it is at.
type inScript struct {
	testing.TB
	ts *testscript.TestScript
}

func (s inScript) Fatal(args ...any)                 { s.ts.Fatalf("%s", fmt.Sprint(args...)) }
func (s inScript) Fatalf(format string, args ...any) { s.ts.Fatalf(format, args...) }

// command makes a command of scripts.
func command(run func(*script, []string)) func(*testscript.TestScript, bool, []string) {
	return func(ts *testscript.TestScript, _ bool, args []string) {
		s, ok := ts.Value(scriptKey{}).(*script)
		if !ok {
			ts.Fatalf("the script has no namespace")
		}
		outside := s.TB
		s.TB = inScript{outside, ts}
		defer func() { s.TB = outside }()
		run(s, args)
	}
}

// let sets a variable to what a program prints: let COMMIT git rev-parse HEAD.
func let(ts *testscript.TestScript, _ bool, args []string) {
	ts.Check(ts.Exec(args[1], args[2:]...))
	ts.Setenv(args[0], strings.TrimSpace(ts.ReadFile("stdout")))
}

// reaches waits until a release has a reason at a step, with these pods, by tag:
// reaches web WaitingForApproval 0 v1=8 v2=2.
func (s *script) reaches(args []string) {
	step, err := strconv.ParseInt(args[2], 10, 32)
	s.must(err)
	s.waitFor(args[0], args[1], int32(step), s.byTag(args[3:]))
}

// byTag reads numbers of pods: v1=8 v2=2. None is nil.
func (s *script) byTag(args []string) map[string]int32 {
	var pods map[string]int32
	for _, a := range args {
		tag, n, _ := strings.Cut(a, "=")
		i, err := strconv.ParseInt(n, 10, 32)
		s.must(err)
		if pods == nil {
			pods = map[string]int32{}
		}
		pods[tag] = int32(i)
	}
	return pods
}

// isInSync waits until the condition InSync of the source has a reason.
func (s *script) isInSync(args []string) {
	clustertest.Wait(s, "InSync to be "+args[0], func() error {
		if c := meta.FindStatusCondition(s.env.source().Status.Conditions, "InSync"); c == nil || c.Reason != args[0] {
			return fmt.Errorf("%+v", c)
		}
		return nil
	})
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
func (s *script) arePods(args []string) {
	want := s.byTag(args)
	clustertest.Wait(s, fmt.Sprintf("pods %v", want), func() error {
		if got := s.pods("web"); fmt.Sprint(got) != fmt.Sprint(want) {
			return fmt.Errorf("pods %v", got)
		}
		return nil
	})
}

// isWaiting waits until the release waits at the gate of a step.
func (s *script) isWaiting(args []string) {
	step, err := strconv.ParseInt(args[0], 10, 32)
	s.must(err)
	clustertest.Wait(s, fmt.Sprintf("the gate of step %d", step), func() error {
		if at := s.release("web").Status; at.Reason != "WaitingForApproval" || at.CurrentStepIndex != int32(step) {
			return fmt.Errorf("%s at step %d: %s", at.Reason, at.CurrentStepIndex, at.Message)
		}
		return nil
	})
}

// isApplied waits until the tip of the bare repository is applied.
func (s *script) isApplied([]string) {
	tip := s.run(s.bare, "git", "rev-parse", "main")
	clustertest.Wait(s, "commit "+tip+" to be applied", func() error {
		var gs v1alpha1.GitSource
		s.must(s.c.Client.Get(s.Context(), client.ObjectKey{Namespace: s.ns, Name: s.source}, &gs))
		if gs.Status.AppliedCommit != tip {
			return fmt.Errorf("applied %s: %+v", gs.Status.AppliedCommit, gs.Status.Conditions)
		}
		return nil
	})
}

// isNative waits until Deployment web is an ordinary one.
func (s *script) isNative([]string) {
	clustertest.Wait(s, "a native Deployment", func() error {
		var web appsv1.Deployment
		s.must(s.c.Client.Get(s.Context(), client.ObjectKey{Namespace: s.ns, Name: "web"}, &web))
		if web.Spec.Paused || web.Spec.Strategy.Type != appsv1.RollingUpdateDeploymentStrategyType ||
			metav1.HasLabel(web.ObjectMeta, v1alpha1.LabelHeld) {
			return fmt.Errorf("paused %t, %s, labels %v", web.Spec.Paused, web.Spec.Strategy.Type, web.Labels)
		}
		return nil
	})
}
