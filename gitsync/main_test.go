package gitsync_test

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"strings"
	"sync"
	"testing"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	eventsv1 "k8s.io/api/events/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/intstr"
	"k8s.io/client-go/rest"
	"k8s.io/utils/ptr"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/cache"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/config"
	"sigs.k8s.io/controller-runtime/pkg/metrics/server"

	"github.com/tranche-dev/tranche/gitsync"
	"github.com/tranche-dev/tranche/gitsync/gittest"
	"github.com/tranche-dev/tranche/gitsync/sandbox"
	"github.com/tranche-dev/tranche/plan/v1alpha1"
	"github.com/tranche-dev/tranche/rollout"
	"github.com/tranche-dev/tranche/rollout/clustertest"
	"github.com/tranche-dev/tranche/rollout/fromgit"
)

// failed are the tests with an env that have failed. They are named again at the
// end: between a test's own report and the end there are those of all other tests.
var failed struct {
	mu    sync.Mutex
	names []string
}

func TestMain(m *testing.M) {
	if len(os.Args) > 1 && os.Args[1] == renderWorker {
		if err := sandbox.Main(os.Args[2:]); err != nil {
			fmt.Fprintln(os.Stderr, err)
			os.Exit(1)
		}
		return
	}
	code := clustertest.Main(m, clustertest.KeepNamespaces)
	for _, name := range failed.names {
		fmt.Fprintln(os.Stderr, "failed:", name)
	}
	os.Exit(code)
}

// renderWorker is the argument that makes the test binary a renderer.
const renderWorker = "render-worker"

// renderers renders in processes of this test binary, as the controller does.
var renderers = sync.OnceValue(func() *sandbox.Pool {
	command, err := sandbox.Command(renderWorker)
	if err != nil {
		panic(err)
	}
	return sandbox.NewPool(sandbox.Options{Command: command, Workers: 3, Memory: 256 << 20, Timeout: clustertest.Within, Log: ctrl.Log})
})

// components says which reconcilers run.
type components int

const (
	gitsyncOnly components = iota
	andRollout
)

// env is a namespace, a repository and a GitSource between them.
type env struct {
	*testing.T
	c    *clustertest.Cluster
	ns   string
	repo *gittest.Repo
}

func newEnv(t *testing.T, w components) *env {
	t.Helper()
	s := newIdleEnv(t)
	t.Cleanup(s.startController(w))
	return s
}

// newIdleEnv has no controller yet.
func newIdleEnv(t *testing.T) *env {
	t.Helper()
	t.Cleanup(func() {
		if t.Failed() {
			failed.mu.Lock()
			defer failed.mu.Unlock()
			failed.names = append(failed.names, t.Name())
		}
	})
	c := clustertest.Shared(t)
	ns := c.Namespace(t)
	c.Watch(t, ns)
	return &env{T: t, c: c, ns: ns, repo: gittest.NewRepo(t)}
}

func (s *env) startController(w components) (stop func()) {
	s.Helper()
	return s.startControllerWith(s.c.Controller, w)
}

func (s *env) startControllerWith(c *rest.Config, w components) (stop func()) {
	s.Helper()
	return s.startManager(c, func(mgr ctrl.Manager) error {
		if w == andRollout {
			s.must(rollout.Add(mgr, rollout.Options{Concurrent: 2}))
		}
		return gitsync.Add(mgr, gitsync.Options{Renderer: renderers(), StorageDir: s.TempDir(), Concurrent: 2, NoCrossNamespaceRefs: true, NoRemoteBases: true, FileRoots: []string{os.TempDir()}, FileWriteRoots: []string{os.TempDir()}})
	})
}

// startManager runs what add adds to a manager of the test's namespace, and of more.
// Tests run beside each other, and each has its own controller.
func (s *env) startManager(c *rest.Config, add func(ctrl.Manager) error, more ...string) (stop func()) {
	s.Helper()
	caching := rollout.CacheOptions(&fromgit.Releases{})
	caching.DefaultNamespaces = map[string]cache.Config{s.ns: {}}
	for _, ns := range more {
		caching.DefaultNamespaces[ns] = cache.Config{}
	}
	mgr, err := ctrl.NewManager(c, ctrl.Options{
		Scheme:     s.c.Scheme,
		Cache:      caching,
		Client:     client.Options{Cache: &client.CacheOptions{EnableReadYourWritesConsistency: ptr.To(true)}},
		Metrics:    server.Options{BindAddress: "0"},
		Controller: config.Controller{SkipNameValidation: ptr.To(true)},
	})
	s.must(err)
	s.must(add(mgr))
	ctx, cancel := context.WithCancel(context.Background())
	ended := make(chan error, 1)
	go func() { ended <- mgr.Start(ctx) }()
	// A test that fails after it has stopped its controller stops it again at its end.
	return sync.OnceFunc(func() {
		cancel()
		if err := <-ended; err != nil {
			s.Errorf("the controller ended with %v", err)
		}
	})
}

func (s *env) must(err error) {
	s.Helper()
	if err != nil {
		s.Fatal(err)
	}
}

// editStatus edits the status of the GitSource, also while the controller writes it.
func editStatus(s *env, edit func(*v1alpha1.GitSourceStatus)) {
	s.Helper()
	clustertest.Wait(s, "the status to be written", func() error {
		gs := s.gs()
		edit(&gs.Status)
		return s.c.Client.Status().Update(s.Context(), gs)
	})
}

// source makes the GitSource. Its interval is long: what is seen soon is seen
// because of the push.
func (s *env) source(edit ...func(*v1alpha1.GitSource)) {
	s.Helper()
	gs := &v1alpha1.GitSource{
		ObjectMeta: metav1.ObjectMeta{Name: "shop", Namespace: s.ns},
		Spec: v1alpha1.GitSourceSpec{
			URL: s.repo.URL(), Path: "deploy", Prune: true, Ref: v1alpha1.GitReference{Branch: "main"},
			Interval: metav1.Duration{Duration: time.Hour}, Timeout: metav1.Duration{Duration: 10 * time.Second},
		},
	}
	for _, e := range edit {
		e(gs)
	}
	s.must(s.c.Client.Create(s.Context(), gs))
	s.Cleanup(func() { s.endSource() })
}

func (s *env) endSource() {
	s.Helper()
	s.end("shop")
}

// end deletes a GitSource and waits for its end.
func (s *env) end(name string) {
	s.Helper()
	ctx := context.Background()
	gs := &v1alpha1.GitSource{ObjectMeta: metav1.ObjectMeta{Name: name, Namespace: s.ns}}
	s.must(client.IgnoreNotFound(s.c.Client.Delete(ctx, gs)))
	clustertest.WaitAtEnd(s, "the end of GitSource "+name, func() error {
		if s.c.Client.Get(ctx, client.ObjectKeyFromObject(gs), gs) == nil {
			return fmt.Errorf("it is still there: %s", said(gs))
		}
		return nil
	})
}

func (s *env) gs() *v1alpha1.GitSource {
	s.Helper()
	gs := &v1alpha1.GitSource{}
	s.must(s.c.Client.Get(s.Context(), client.ObjectKey{Namespace: s.ns, Name: "shop"}, gs))
	return gs
}

// write writes spec, labels and annotations of a GitSource, whatever the controller
// has written to its status since it was read.
func (s *env) write(gs *v1alpha1.GitSource) {
	s.Helper()
	clustertest.Wait(s, "the write of GitSource "+gs.Name, func() error {
		now := get(s, gs.Name, &v1alpha1.GitSource{})
		now.Spec, now.Labels, now.Annotations = gs.Spec, gs.Labels, gs.Annotations
		err := s.c.Client.Update(s.Context(), now)
		if err != nil && !apierrors.IsConflict(err) {
			s.Fatal(err)
		}
		return err
	})
}

// push commits and pushes.
func (s *env) push(files map[string]string) string {
	s.Helper()
	return s.repo.CommitAndPush(files)
}

// differing has the pairs of commits that git found to differ below a path. A test that waits
// asks many times.
var differing sync.Map

// askWhereUntouched asks a source by its annotation for a commit that changes nothing below
// its path. The controller writes no status for such a commit alone.
func (s *env) askWhereUntouched(gs *v1alpha1.GitSource, commit string) {
	s.Helper()
	if gs.Status.AppliedCommit == "" || gs.Status.AppliedCommit == commit || gs.Annotations[v1alpha1.AnnotationReconcile] == commit {
		return
	}
	between := strings.Join([]string{s.repo.Bare, gs.Status.AppliedCommit, commit, gs.Spec.Path}, " ")
	if _, known := differing.Load(between); known {
		return
	}
	diff := exec.Command("git", "diff", "--quiet", gs.Status.AppliedCommit, commit, "--", gs.Spec.Path)
	diff.Dir = s.repo.Bare
	if err := diff.Run(); err != nil { // it differs, or is not known there
		if diff.ProcessState != nil && diff.ProcessState.ExitCode() == 1 {
			differing.Store(between, true)
		}
		return
	}
	patch := fmt.Appendf(nil, `{"metadata":{"annotations":{%q:%q}}}`, v1alpha1.AnnotationReconcile, commit)
	s.must(s.c.Client.Patch(s.Context(), gs.DeepCopy(), client.RawPatch(types.MergePatchType, patch)))
}

// applied waits until a commit is applied whole, or leaves all as it is.
func (s *env) applied(commit string) {
	s.Helper()
	clustertest.Wait(s, "commit "+commit, func() error {
		gs := s.gs()
		s.askWhereUntouched(gs, commit)
		ready := meta.FindStatusCondition(gs.Status.Conditions, "Ready")
		if gs.Status.AppliedCommit != commit || ready == nil || ready.Status != metav1.ConditionTrue || ready.Message != "applied main@"+commit[:12] {
			return fmt.Errorf("applied is %s; conditions: %s", gs.Status.AppliedCommit, said(gs))
		}
		return nil
	})
}

// refused waits until Ready is False for a reason, and returns the message.
func (s *env) refused(commit, reason string) string {
	s.Helper()
	message := ""
	clustertest.Wait(s, "refusal "+reason, func() error {
		gs := s.gs()
		ready := meta.FindStatusCondition(gs.Status.Conditions, "Ready")
		if gs.Status.ObservedCommit != commit || ready == nil || ready.Status != metav1.ConditionFalse || ready.Reason != reason {
			return fmt.Errorf("observed %s; conditions: %s", gs.Status.ObservedCommit, said(gs))
		}
		message = ready.Message
		return nil
	})
	s.Log(message)
	return message
}

func said(gs *v1alpha1.GitSource) string {
	var lines []string
	for _, c := range gs.Status.Conditions {
		lines = append(lines, fmt.Sprintf("%s=%s %s: %s", c.Type, c.Status, c.Reason, c.Message))
	}
	return strings.Join(lines, "\n")
}

// withSource adds what the source says to what a wait has not found. It reads the source only
// if the wait fails.
func withSource(s sourced, err error) error { return sourceSays{err, s} }

type sourced interface{ gs() *v1alpha1.GitSource }

type sourceSays struct {
	error
	of sourced
}

func (e sourceSays) Error() string { return e.error.Error() + "\n" + said(e.of.gs()) }

func get[T client.Object](s *env, name string, o T) T {
	s.Helper()
	s.must(s.c.Client.Get(s.Context(), client.ObjectKey{Namespace: s.ns, Name: name}, o))
	return o
}

// isGone waits until an object is no longer there.
func (s *env) isGone(name string, o client.Object) {
	s.Helper()
	clustertest.Wait(s, fmt.Sprintf("the end of %T %s", o, name), func() error {
		err := s.c.Client.Get(s.Context(), client.ObjectKey{Namespace: s.ns, Name: name}, o)
		if err == nil {
			return errors.New("it is still there")
		}
		return client.IgnoreNotFound(err)
	})
}

func (s *env) deployment(name string) *appsv1.Deployment {
	s.Helper()
	return get(s, name, &appsv1.Deployment{})
}

func (s *env) release(name string) *v1alpha1.BatchRelease {
	s.Helper()
	return get(s, name, &v1alpha1.BatchRelease{})
}

func (s *env) events(reason string) []string {
	s.Helper()
	var list eventsv1.EventList
	s.must(s.c.Client.List(s.Context(), &list, client.InNamespace(s.ns)))
	var notes []string
	for _, e := range list.Items {
		if e.Reason == reason {
			notes = append(notes, e.Note)
		}
	}
	return notes
}

// full is the last step of a plan.
var full = intstr.FromString("100%")

// web is the manifest of a Deployment.
func web(image string, edit ...string) string {
	m := `apiVersion: apps/v1
kind: Deployment
metadata:
  name: web
  labels: {app: web, team: shop}
spec:
  replicas: 2
  selector: {matchLabels: {app: web}}
  template:
    metadata:
      labels: {app: web}
    spec:
      containers:
      - name: web
        image: registry.example.org/web:` + image + `
        env:
        - {name: COLOUR, value: blue}
`
	for i := 0; i+1 < len(edit); i += 2 {
		m = strings.ReplaceAll(m, edit[i], edit[i+1])
	}
	return m
}

const webPlan = `apiVersion: tranche.dev/v1alpha1
kind: BatchRelease
metadata: {name: web}
spec:
  workloadRef: {name: web}
  strategy:
    steps:
    - replicas: 1
    - replicas: 100%
`

func configMap(name, value string) string {
	return "apiVersion: v1\nkind: ConfigMap\nmetadata: {name: " + name + "}\ndata: {value: " + value + "}\n"
}
