package rollout_test

import (
	"context"
	"errors"
	"fmt"
	"os"
	"strings"
	"sync"
	"testing"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/intstr"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/transport"
	"k8s.io/utils/ptr"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/cache"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/config"
	"sigs.k8s.io/controller-runtime/pkg/metrics/server"

	"github.com/tranche-dev/tranche/plan/v1alpha1"
	"github.com/tranche-dev/tranche/rollout"
	"github.com/tranche-dev/tranche/rollout/clustertest"
	"github.com/tranche-dev/tranche/rollout/fromgit"
)

func TestMain(m *testing.M) {
	if namespace := os.Getenv(asController); namespace != "" {
		os.Exit(runController(namespace))
	}
	os.Exit(clustertest.Main(m, clustertest.KeepNamespaces))
}

// startControllerIn runs the BatchRelease reconciler for one namespace, with its
// requests going through these wrappers. It runs until the test ends, or until what
// it returns is called.
func startControllerIn(t testing.TB, c *clustertest.Cluster, namespace string, wrap ...transport.WrapperFunc) (stop func()) {
	t.Helper()
	return startManager(t, c, namespace, func(*ctrl.Options) {}, wrap...)
}

// startManager does so with other options.
func startManager(t testing.TB, c *clustertest.Cluster, namespace string, edit func(*ctrl.Options), wrap ...transport.WrapperFunc) (stop func()) {
	t.Helper()
	return startReconciler(t, c, namespace, rollout.Options{Concurrent: 50}, edit, wrap...)
}

// startReconciler does so with other options of the reconciler, too.
func startReconciler(t testing.TB, c *clustertest.Cluster, namespace string, o rollout.Options, edit func(*ctrl.Options), wrap ...transport.WrapperFunc) (stop func()) {
	t.Helper()
	o.FromGit = &fromgit.Releases{}
	options := managerOptions(c.Scheme, namespace, o.FromGit)
	edit(&options)
	own := rest.CopyConfig(c.Controller)
	for _, w := range wrap {
		own.Wrap(w)
	}
	mgr, err := ctrl.NewManager(own, options)
	if err != nil {
		t.Fatal(err)
	}
	if err := rollout.Add(mgr, o); err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	ended := make(chan error, 1)
	go func() { ended <- mgr.Start(ctx) }()
	stop = sync.OnceFunc(func() {
		cancel()
		if err := <-ended; err != nil {
			t.Errorf("the controller ended with %v", err)
		}
	})
	t.Cleanup(stop)
	return stop
}

// managerOptions are those of a manager that works for one namespace.
func managerOptions(scheme *runtime.Scheme, namespace string, fromGit *fromgit.Releases) ctrl.Options {
	caching := rollout.CacheOptions(fromGit)
	caching.DefaultNamespaces = map[string]cache.Config{namespace: {}}
	return ctrl.Options{
		Scheme:     scheme,
		Cache:      caching,
		Client:     client.Options{Cache: &client.CacheOptions{EnableReadYourWritesConsistency: ptr.To(true)}},
		Metrics:    server.Options{BindAddress: "0"},
		Controller: config.Controller{SkipNameValidation: ptr.To(true)},
	}
}

// env is one Deployment with its plan, in a namespace of its own.
type env struct {
	*testing.T
	c  *clustertest.Cluster
	ns string
	w  *clustertest.Watcher
	// brought counts the commits that have brought a tag.
	brought map[string]int
}

func newEnv(t *testing.T) *env {
	t.Helper()
	c := clustertest.Shared(t)
	ns := c.Namespace(t)
	return &env{T: t, c: c, ns: ns, w: c.Watch(t, ns), brought: map[string]int{"v1": 1}}
}

// install makes a Deployment of n pods natively, and waits until they are available.
func (s *env) install(n int32, edit ...func(*appsv1.Deployment)) {
	s.Helper()
	s.create("web", n, edit...)
	clustertest.Wait(s, "the first install", func() error {
		if d := s.deployment("web"); d.Status.AvailableReplicas != n || d.Status.ObservedGeneration != d.Generation {
			return fmt.Errorf("%d of %d available", d.Status.AvailableReplicas, n)
		}
		return nil
	})
}

func (s *env) create(name string, n int32, edit ...func(*appsv1.Deployment)) {
	s.Helper()
	d := &appsv1.Deployment{
		ObjectMeta: metav1.ObjectMeta{Name: name, Namespace: s.ns, Annotations: map[string]string{"team": "shop"}},
		Spec: appsv1.DeploymentSpec{
			Replicas: &n,
			Selector: &metav1.LabelSelector{MatchLabels: map[string]string{"app": name}},
			Template: template(name, "v1"),
		},
	}
	for _, e := range edit {
		e(d)
	}
	s.must(s.c.Client.Create(s.Context(), d))
}

func template(name, tag string) corev1.PodTemplateSpec {
	return corev1.PodTemplateSpec{
		ObjectMeta: metav1.ObjectMeta{Labels: map[string]string{"app": name}},
		Spec:       corev1.PodSpec{Containers: []corev1.Container{{Name: name, Image: "registry.example.org/web:" + tag}}},
	}
}

// plan makes the BatchRelease with these steps, bringing what runs.
func (s *env) plan(steps ...string) {
	s.Helper()
	planOf(s, template("web", "v1"), steps...)
}

// planOf does so where other pods run.
func planOf(s *env, pods corev1.PodTemplateSpec, steps ...string) {
	s.Helper()
	br := &v1alpha1.BatchRelease{
		ObjectMeta: metav1.ObjectMeta{Name: "web", Namespace: s.ns},
		Spec: v1alpha1.BatchReleaseSpec{
			WorkloadRef: v1alpha1.WorkloadReference{APIVersion: "apps/v1", Kind: "Deployment", Name: "web"},
			Template:    &pods,
			Commit:      commitOf("v1"),
		},
	}
	for _, step := range steps {
		br.Spec.Strategy.Steps = append(br.Spec.Strategy.Steps, v1alpha1.Step{Replicas: intstr.Parse(step)})
	}
	s.must(s.c.Client.Create(s.Context(), br))
}

// commitOf is a made-up commit for a tag.
func commitOf(tag string) string { return fmt.Sprintf("%x", tag) + strings.Repeat("0", 36) }

func (s *env) must(err error) {
	s.Helper()
	if err != nil {
		s.Fatal(err)
	}
}

// kubectl runs a command that must succeed.
func (s *env) kubectl(args ...string) {
	s.Helper()
	if out, err := s.c.Kubectl(s, args...); err != nil {
		s.Fatalf("kubectl %s: %v: %s", strings.Join(args, " "), err, out)
	}
}

func (s *env) deployment(name string) *appsv1.Deployment {
	s.Helper()
	var d appsv1.Deployment
	s.must(s.c.Client.Get(s.Context(), types.NamespacedName{Namespace: s.ns, Name: name}, &d))
	return &d
}

func (s *env) release() *v1alpha1.BatchRelease {
	s.Helper()
	var br v1alpha1.BatchRelease
	s.must(s.c.Client.Get(s.Context(), types.NamespacedName{Namespace: s.ns, Name: "web"}, &br))
	return &br
}

// completed waits until a release is at its end.
func (s *env) completed(name string) {
	s.Helper()
	clustertest.Wait(s, "release "+name, func() error {
		var br v1alpha1.BatchRelease
		s.must(s.c.Client.Get(s.Context(), types.NamespacedName{Namespace: s.ns, Name: name}, &br))
		if br.Status.Reason != v1alpha1.ReasonReleaseCompleted {
			return fmt.Errorf("%s: %s", br.Status.Reason, br.Status.Message)
		}
		return nil
	})
}

// sizes returns the size of every ReplicaSet of the namespace, by image tag.
func (s *env) sizes() map[string]int32 {
	s.Helper()
	sizes := map[string]int32{}
	for _, rs := range s.sets() {
		_, tag, _ := strings.Cut(rs.Spec.Template.Spec.Containers[0].Image, ":")
		if *rs.Spec.Replicas > 0 {
			sizes[tag] += *rs.Spec.Replicas
		}
	}
	return sizes
}

func (s *env) sets() []appsv1.ReplicaSet {
	s.Helper()
	var sets appsv1.ReplicaSetList
	s.must(s.c.Client.List(s.Context(), &sets, client.InNamespace(s.ns)))
	return sets.Items
}

// edit changes the BatchRelease's spec.
func (s *env) edit(change func(*v1alpha1.BatchReleaseSpec)) {
	s.Helper()
	old := s.release()
	br := old.DeepCopy()
	change(&br.Spec)
	s.must(s.c.Client.Patch(s.Context(), br, client.MergeFrom(old)))
}

// bring releases a tag.
func (s *env) bring(tag string) {
	s.Helper()
	s.edit(func(spec *v1alpha1.BatchReleaseSpec) {
		spec.Template, spec.Commit, spec.Approval = ptr.To(template("web", tag)), commitOf(tag), nil
		if n := s.brought[tag]; n > 0 { // the same template by another commit
			spec.Commit = fmt.Sprintf("%s%04d", spec.Commit[:36], n)
		}
	})
	if s.brought == nil {
		s.brought = map[string]int{}
	}
	s.brought[tag]++
}

// approve approves a step of the release under way.
func (s *env) approve(step int32) {
	s.Helper()
	revision := s.release().Status.UpdateRevision
	s.edit(func(spec *v1alpha1.BatchReleaseSpec) {
		spec.Approval = &v1alpha1.Approval{Revision: revision, Commit: spec.Commit, Step: step, ApprovedBy: "Ada <ada@example.org>", ApprovedIn: "abcdef1"}
	})
}

// waitFor waits for a reason at a step, with these sizes.
func (s *env) waitFor(reason string, step int32, sizes map[string]int32) {
	s.Helper()
	clustertest.Wait(s, fmt.Sprintf("%s at step %d", reason, step), func() error {
		br := s.release()
		at := br.Status
		if at.ObservedGeneration != br.Generation || at.Reason != reason || at.CurrentStepIndex != step {
			return fmt.Errorf("%s at step %d: %s; sizes %v", at.Reason, at.CurrentStepIndex, at.Message, s.sizes())
		}
		for tag, n := range sizes {
			if got := s.sizes(); got[tag] != n || len(got) != len(sizes) {
				return fmt.Errorf("sizes %v, want %v", got, sizes)
			}
		}
		return nil
	})
}

// untouched fails unless the Deployment and its ReplicaSets are native, with
// nothing of ours (I7).
func (s *env) untouched() {
	s.Helper()
	d := s.deployment("web")
	var problems []error
	if d.Spec.Paused || d.Spec.Strategy.Type != appsv1.RollingUpdateDeploymentStrategyType {
		problems = append(problems, fmt.Errorf("paused=%t, strategy %s", d.Spec.Paused, d.Spec.Strategy.Type))
	}
	for _, rs := range s.sets() {
		for k := range rs.Annotations {
			if strings.Contains(k, v1alpha1.Group) {
				problems = append(problems, fmt.Errorf("annotation %s on ReplicaSet %s", k, rs.Name))
			}
		}
		for k := range rs.Labels {
			if strings.Contains(k, v1alpha1.Group) {
				problems = append(problems, fmt.Errorf("label %s on ReplicaSet %s", k, rs.Name))
			}
		}
	}
	for k := range d.Labels {
		if strings.Contains(k, v1alpha1.Group) {
			problems = append(problems, fmt.Errorf("label %s on the Deployment", k))
		}
	}
	for k := range d.Annotations {
		if strings.Contains(k, v1alpha1.Group) {
			problems = append(problems, fmt.Errorf("annotation %s on the Deployment", k))
		}
	}
	if err := errors.Join(problems...); err != nil {
		s.Fatalf("something of ours is left: %v", err)
	}
}
