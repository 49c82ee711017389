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

// script is what the scripts of testdata run in: a namespace, a repository, and what
// reads the API server from outside.
type script struct {
	*env
	source     string // the name of the GitSource
	kubeconfig string
}

// Commands as they are typed: each file of testdata/scripts, in a namespace of its own that
// the context of kubectl names. $BARE is the repository, which the current folder is a
// clone of. A script is judged by exit codes, $BARE and the API server.
func TestScripts(t *testing.T) {
	t.Parallel()
	files, err := filepath.Glob("testdata/scripts/*.txtar")
	if err != nil || len(files) == 0 {
		t.Fatalf("testdata/scripts has %d scripts: %v", len(files), err)
	}
	examples := map[string][2]string{"approve-commit": {"shop", "overlays/production"}, "get-broken": {"web", "nowhere"}}
	for _, file := range files {
		name := strings.TrimSuffix(filepath.Base(file), ".txtar")
		t.Run(name, func(t *testing.T) {
			example, ok := examples[name]
			if !ok {
				example = [2]string{"web", "."}
			}
			s := &script{env: newEnv(t, example[0], example[1]), source: "source"}
			s.kubeconfig = s.kubeconfigHere()
			s.play(file, nil, nil)
		})
	}
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

// play runs a script in a clone. More commands may be given, and more to set up.
func (s *script) play(file string, commands map[string]func([]string), setup func(*testscript.Env) error) {
	s.Helper()
	t, ok := s.TB.(*testing.T)
	if !ok {
		s.Fatal("a script is run by a test")
	}
	root, err := clustertest.Root()
	s.must(err)
	all := map[string]func(*testscript.TestScript, bool, []string){
		"code": code, "let": let, "reaches": s.command(s.reaches), "pods": s.command(s.arePods), "waiting": s.command(s.isWaiting),
		"applied": s.command(s.isApplied), "insync": s.command(s.isInSync), "native": s.command(s.isNative),
	}
	for name, run := range commands {
		all[name] = s.command(run)
	}
	testscript.Run(t, testscript.Params{Files: []string{file}, Cmds: all, Setup: func(e *testscript.Env) error {
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
		err := errors.Join(
			os.MkdirAll(bin, 0o755),
			os.WriteFile(filepath.Join(bin, "tranche"), []byte(program), 0o755),
			os.WriteFile(filepath.Join(e.WorkDir, ".gitconfig"), []byte("[user]\nname = Ada\nemail = ada@example.org\n[init]\ndefaultBranch = main\n"), 0o600),
			exec.Command("git", "clone", "--quiet", s.bare, repo).Run(),
		)
		if err == nil && setup != nil {
			err = setup(e)
		}
		return err
	}})
}

// inScript fails the script, and not the test that runs it in another goroutine.
type inScript struct {
	testing.TB
	ts *testscript.TestScript
}

func (s inScript) Fatal(args ...any)                 { s.ts.Fatalf("%s", fmt.Sprint(args...)) }
func (s inScript) Fatalf(format string, args ...any) { s.ts.Fatalf(format, args...) }

// command makes a command of the script.
func (s *script) command(run func([]string)) func(*testscript.TestScript, bool, []string) {
	outside := s.TB
	return func(ts *testscript.TestScript, _ bool, args []string) {
		s.TB = inScript{outside, ts}
		defer func() { s.TB = outside }()
		run(args)
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
		if web.Spec.Paused || web.Spec.Strategy.Type != appsv1.RollingUpdateDeploymentStrategyType || metav1.HasLabel(web.ObjectMeta, v1alpha1.LabelHeld) {
			return fmt.Errorf("paused %t, %s, labels %v", web.Spec.Paused, web.Spec.Strategy.Type, web.Labels)
		}
		return nil
	})
}
