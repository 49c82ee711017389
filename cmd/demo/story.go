package main

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/tranche-dev/tranche/plan/v1alpha1"
)

// reachedWithin is how long the story waits for a state, on a busy machine, too.
const reachedWithin = 3 * time.Minute

const namespace = "shop"

func say(format string, args ...any) { fmt.Printf("\n# "+format+"\n", args...) }

// do runs a command of the story, in the clone, and shows it and what it prints.
func (s *stage) do(ctx context.Context, program string, args ...string) error {
	fmt.Println("$ " + program + " " + quoted(args))
	out, err := s.output(ctx, s.clone(), program, args...)
	if err != nil {
		return err
	}
	for line := range strings.Lines(out) {
		fmt.Print("  " + line)
	}
	return nil
}

func quoted(args []string) string {
	words := make([]string, len(args))
	for i, a := range args {
		if words[i] = a; strings.ContainsAny(a, " {}'\"") {
			words[i] = "'" + a + "'"
		}
	}
	return strings.Join(words, " ")
}

// write writes a file of the clone, and shows it.
func (s *stage) write(name, text string) error {
	fmt.Printf("$ cat > %s <<EOF\n%sEOF\n", name, text)
	path := filepath.Join(s.clone(), name)
	if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
		return err
	}
	return os.WriteFile(path, []byte(text), 0o644)
}

// tag changes the image's tag, as `sed -i` would.
func (s *stage) tag(from, to string) error {
	fmt.Printf("$ sed -i s/:%s/:%s/ deployment.yaml\n", from, to)
	path := filepath.Join(s.clone(), "deployment.yaml")
	text, err := os.ReadFile(path)
	if err != nil {
		return err
	}
	changed := strings.Replace(string(text), ":"+from+"\n", ":"+to+"\n", 1)
	if changed == string(text) {
		return fmt.Errorf("%s has no image with tag %s", path, from)
	}
	return os.WriteFile(path, []byte(changed), 0o644)
}

// state is what the API server says.
type state struct {
	deployment *appsv1.Deployment
	release    *v1alpha1.BatchRelease
	pods       map[string]int32 // by image tag
}

func (s *stage) observe(ctx context.Context) (*state, error) {
	at := &state{deployment: &appsv1.Deployment{}, release: &v1alpha1.BatchRelease{}, pods: map[string]int32{}}
	web := types.NamespacedName{Namespace: namespace, Name: "web"}
	if err := client.IgnoreNotFound(s.client.Get(ctx, web, at.deployment)); err != nil {
		return nil, err
	}
	if err := client.IgnoreNotFound(s.client.Get(ctx, web, at.release)); err != nil {
		return nil, err
	}
	var sets appsv1.ReplicaSetList
	if err := s.client.List(ctx, &sets, client.InNamespace(namespace)); err != nil {
		return nil, err
	}
	for _, rs := range sets.Items {
		if rs.Status.Replicas > 0 {
			image := rs.Spec.Template.Spec.Containers[0].Image
			at.pods[image[strings.LastIndex(image, ":")+1:]] += rs.Status.Replicas
		}
	}
	return at, nil
}

func (at *state) held() bool {
	d := at.deployment
	return d.Spec.Paused && d.Spec.Strategy.Type == appsv1.RecreateDeploymentStrategyType
}

// native reports that the Deployment is as if there had never been a release.
func (at *state) native() bool {
	d := at.deployment
	for _, names := range []map[string]string{d.Labels, d.Annotations} {
		for k := range names {
			if strings.HasPrefix(k, v1alpha1.Group+"/") {
				return false
			}
		}
	}
	return !d.Spec.Paused && d.Spec.Strategy.Type == appsv1.RollingUpdateDeploymentStrategyType
}

// is reports whether exactly these numbers of pods run, by tag.
func (at *state) is(pods map[string]int32) bool {
	return fmt.Sprint(at.pods) == fmt.Sprint(pods)
}

func (at *state) String() string {
	status := at.release.Status
	bar := ""
	for _, tag := range []string{"v1", "v2", "v3", "v4-errors"} {
		bar += strings.Repeat(tag+" ", int(at.pods[tag]))
	}
	return fmt.Sprintf("%-13s step %d %-9s %-22s %s", status.Phase, status.CurrentStepIndex, status.CurrentStepState, status.Reason, bar)
}

// reach waits until the API server shows a state, and shows the way there.
func (s *stage) reach(ctx context.Context, what string, reached func(*state) bool) error {
	deadline := time.Now().Add(reachedWithin)
	last := ""
	for {
		at, err := s.observe(ctx)
		if err != nil {
			return fmt.Errorf("looking at the cluster: %w", err)
		}
		if line := at.String(); line != last {
			fmt.Println("  " + line)
			last = line
		}
		if reached(at) {
			fmt.Println("  ✓ " + what)
			return nil
		}
		if time.Now().After(deadline) {
			return fmt.Errorf("not reached within %s: %s; last seen: %s (%s)", reachedWithin, what, at, at.release.Status.Message)
		}
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-time.After(100 * time.Millisecond):
		}
	}
}

const source = `apiVersion: tranche.dev/v1alpha1
kind: GitSource
metadata:
  name: web
  namespace: shop
spec:
  url: %s
  ref: {branch: main}
  interval: 1m
  serviceAccountName: deployer
  writeBack: {enabled: true}
`

// install pushes the first commit, and lets the cluster follow the branch.
func (s *stage) install(ctx context.Context) error {
	file := filepath.Join(s.dir, "source.yaml")
	if err := os.WriteFile(file, fmt.Appendf(nil, source, s.followed()), 0o644); err != nil {
		return err
	}
	fmt.Printf("$ cat %s\n", file)
	fmt.Printf(source, s.followed())
	err := steps(
		func() error { return s.do(ctx, "git", "add", ".") },
		func() error { return s.do(ctx, "git", "commit", "--quiet", "-m", "web: v1, with its release plan") },
		func() error { return s.do(ctx, "git", "push", "--quiet", "origin", "HEAD:main") },
		func() error { return s.do(ctx, "kubectl", "create", "namespace", namespace) },
		func() error {
			return s.do(ctx, "kubectl", "create", "serviceaccount", "deployer", "-n", namespace)
		},
		func() error {
			return s.do(ctx, "kubectl", "create", "rolebinding", "deployer", "-n", namespace, "--clusterrole=admin",
				"--serviceaccount="+namespace+":deployer")
		},
		func() error { return s.do(ctx, "kubectl", "apply", "-f", file) },
	)
	if err != nil {
		return err
	}
	return s.reach(ctx, "10 pods run v1, rolled out natively", func(at *state) bool {
		return at.is(map[string]int32{"v1": 10}) && at.deployment.Status.AvailableReplicas == 10 && at.native() &&
			at.release.Status.Phase == v1alpha1.PhaseCompleted
	})
}

// steps runs one after the other, until one fails.
func steps(fs ...func() error) error {
	for _, f := range fs {
		if err := f(); err != nil {
			return err
		}
	}
	return nil
}

func (s *stage) commit(ctx context.Context, message string) error {
	return steps(
		func() error { return s.do(ctx, "git", "add", ".") },
		func() error { return s.do(ctx, "git", "commit", "--quiet", "-m", message) },
		func() error { return s.do(ctx, "git", "push", "--quiet") },
	)
}

// approve commits an approval of a step of the release under way.
func (s *stage) approve(ctx context.Context, step int) error {
	at, err := s.observe(ctx)
	if err != nil {
		return err
	}
	text := fmt.Sprintf(`apiVersion: tranche.dev/v1alpha1
kind: BatchApproval
metadata: {name: web, namespace: shop}
spec: {revision: "%s", commit: "%.12s", step: %d}
`, at.release.Status.UpdateRevision, at.release.Spec.Commit, step)
	if err := s.write("approvals/web.yaml", text); err != nil {
		return err
	}
	return s.commit(ctx, fmt.Sprintf("Approve step %d of web", step))
}

// waiting is a gate: these pods, held, waiting for the approval of a step.
func (s *stage) waiting(ctx context.Context, step int32, pods map[string]int32) error {
	return s.reach(ctx, fmt.Sprintf("step %d waits for an approval, and the native controller is held", step), func(at *state) bool {
		status := at.release.Status
		return status.CurrentStepState == v1alpha1.StepBlocking && status.CurrentStepIndex == step && at.held() && at.is(pods)
	})
}

// completed is the end of a release: these pods, and a native Deployment.
func (s *stage) completed(ctx context.Context, pods map[string]int32) error {
	err := s.reach(ctx, "handed back: an ordinary Deployment again, nothing of Tranche's left on it", func(at *state) bool {
		return at.release.Status.Phase == v1alpha1.PhaseCompleted && at.native() && at.is(pods) && at.deployment.Status.AvailableReplicas == 10
	})
	if err != nil {
		return err
	}
	return s.do(ctx, "kubectl", "get", "batchreleases,deployments,replicasets", "-n", namespace)
}

// measuredPlan has two pods of the update revision measured.
const measuredPlan = `apiVersion: tranche.dev/v1alpha1
kind: BatchRelease
metadata:
  name: web
spec:
  workloadRef: {apiVersion: apps/v1, kind: Deployment, name: web}
  strategy:
    steps:
    - replicas: 20%
      analysis: {duration: 10s}
    - replicas: 100%
    analysis:
      onFailure: Rollback
      metrics:
      - name: errors
        prometheus:
          provider: platform
          query: sum(increase(http_requests_total{pod=~"$(pods)",code=~"5.."}[$(window)]))
          total: sum(increase(http_requests_total{pod=~"$(pods)"}[$(window)]))
        interval: 10s
        delay: 2s
        max: 2%
`

// measure releases a tag whose requests fail. Prometheus sees that.
func measure(ctx context.Context, s *stage) error {
	measured := func(at *state) bool {
		return at.release.Status.Reason == v1alpha1.ReasonWaitingForAnalysis && at.held() && at.is(map[string]int32{"v2": 8, "v4-errors": 2})
	}
	reverted := func(*state) bool {
		message, err := s.output(ctx, s.bare(), "git", "log", "-1", "--format=%B", "main")
		return err == nil && strings.Contains(message, "This reverts commit") && strings.Contains(message, "errors")
	}
	return steps(
		func() error { return s.write("release.yaml", measuredPlan) },
		func() error { return s.commit(ctx, "web: measure the first step") },
		func() error { return s.tag("v2", "v4-errors") },
		func() error { return s.commit(ctx, "web: v4") },
		func() error {
			return s.reach(ctx, "step 0 is measured by Prometheus: 5% of its requests fail", measured)
		},
		func() error { return s.completed(ctx, map[string]int32{"v2": 10}) },
		func() error { return s.reach(ctx, "the branch has the revert, with what was measured", reverted) },
		func() error { return s.do(ctx, "git", "pull", "--quiet") },
		func() error { return s.do(ctx, "git", "show", "--stat") },
	)
}

func (s *stage) tell(ctx context.Context) error {
	began := time.Now()
	err := steps(
		func() error { say("First install: the branch says v1."); return s.install(ctx) },
		func() error {
			say("A commit with a new image tag starts a release: 20%% of the pods, then it waits.")
			return steps(func() error { return s.tag("v1", "v2") }, func() error { return s.commit(ctx, "web: v2") })
		},
		func() error { return s.waiting(ctx, 0, map[string]int32{"v1": 8, "v2": 2}) },
		func() error { return s.do(ctx, "kubectl", "get", "batchreleases", "-n", namespace, "-o", "wide") },
		func() error { say("A commit with an approval file lets the next batch go."); return s.approve(ctx, 0) },
		func() error { return s.waiting(ctx, 1, map[string]int32{"v1": 5, "v2": 5}) },
		func() error { say("And the last one."); return s.approve(ctx, 1) },
		func() error { return s.completed(ctx, map[string]int32{"v2": 10}) },
		func() error {
			say("The next release, and in the middle of it second thoughts: git revert rolls back.")
			return steps(func() error { return s.tag("v2", "v3") }, func() error { return s.commit(ctx, "web: v3") })
		},
		func() error { return s.waiting(ctx, 0, map[string]int32{"v2": 8, "v3": 2}) },
		func() error { return s.do(ctx, "git", "revert", "--no-edit", "HEAD") },
		func() error { return s.do(ctx, "git", "push", "--quiet") },
		func() error { return s.completed(ctx, map[string]int32{"v2": 10}) },
		func() error {
			say("A plan with a metric: the next release has errors, and goes back by itself.")
			return measure(ctx, s)
		},
		func() error { say("The branch tells it all."); return s.do(ctx, "git", "log", "--oneline") },
	)
	if err == nil {
		say("Every state was reached, in %s.", time.Since(began).Round(time.Second))
	}
	return err
}
