package gitsync_test

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	appsv1 "k8s.io/api/apps/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/rest"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/tranche-dev/tranche/gitsync/gittest"
	"github.com/tranche-dev/tranche/plan/v1alpha1"
	"github.com/tranche-dev/tranche/rollout/clustertest"
)

// mortal is a controller that dies when it has written something, as it goes on to the
// next write. It survives a refused write, and an apply that changes nothing. A
// successor would repeat those again and again, and come no further.
type mortal struct {
	mu    sync.Mutex
	wrote bool
	dead  chan struct{}
	known map[string]bool // resource versions
	did   string          // the write
}

var errDead = errors.New("the controller is dead")

func (m *mortal) send(next http.RoundTripper, r *http.Request) (*http.Response, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	write := r.Method != http.MethodGet && !r.URL.Query().Has("dryRun") && !strings.Contains(r.URL.Path, "/events") && !strings.HasSuffix(r.URL.Path, "/selfsubjectreviews")
	if !write && !isClosed(m.dead) {
		m.mu.Unlock()
		defer m.mu.Lock()
		return next.RoundTrip(r)
	}
	if m.wrote && !isClosed(m.dead) {
		close(m.dead)
	}
	if isClosed(m.dead) {
		return nil, errDead
	}
	answer, err := next.RoundTrip(r)
	if err != nil {
		return nil, err
	}
	body, err := io.ReadAll(answer.Body)
	if err != nil {
		return nil, err
	}
	_ = answer.Body.Close()
	answer.Body = io.NopCloser(bytes.NewReader(body))
	var o metav1.PartialObjectMetadata
	m.wrote = answer.StatusCode < http.StatusBadRequest && (json.Unmarshal(body, &o) != nil || o.ResourceVersion == "" || !m.known[o.ResourceVersion])
	m.known[o.ResourceVersion] = true
	if m.wrote {
		m.did = r.Method + " " + r.URL.Path
	}
	return answer, nil
}

func isClosed(c chan struct{}) bool {
	select {
	case <-c:
		return true
	default:
		return false
	}
}

// startMortals starts a controller that dies after its first write, and another
// one when it is dead, until the test is over.
func (s *env) startMortals(w components) {
	s.Helper()
	over, ended, lives, known := make(chan struct{}), make(chan struct{}), 0, map[string]bool{}
	var did []string
	go func() {
		defer close(ended)
		for lives = 1; ; lives++ {
			m := &mortal{dead: make(chan struct{}), known: known}
			config := rest.CopyConfig(s.c.Controller)
			config.Wrap(func(next http.RoundTripper) http.RoundTripper {
				return roundTripper(func(r *http.Request) (*http.Response, error) { return m.send(next, r) })
			})
			stop := s.startControllerWith(config, w)
			select {
			case <-m.dead:
				stop()
				did = append(did, time.Now().Format(time.TimeOnly)+" "+m.did)
			case <-over:
				stop()
				return
			}
		}
	}()
	s.Cleanup(func() {
		close(over)
		<-ended
		s.Logf("%d controllers; the writes that they died of:\n%s", lives, strings.Join(did, "\n"))
	})
}

// stage is what is done, what is pushed, and what is there in the end.
type stage struct {
	do   func(*env)
	push map[string]string
	// asks: it takes another sync, which a user requests.
	asks bool
	// confirms: an edit of the spec deletes objects.
	confirms bool
	want     []string
}

// I6 for the cluster. A controller that dies after each of its writes comes to the
// same end as one that lives, with nothing lost and nothing made twice.
func TestKilledAfterEachWrite(t *testing.T) {
	t.Parallel()
	for name, stages := range killedStories {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s := newIdleEnv(t)
			s.startMortals(gitsyncOnly)
			s.play(stages(s))
		})
	}
}

// play goes through stages, each to its end.
func (s *env) play(stages []stage) {
	s.Helper()
	for i, stage := range stages {
		before := s.uids()
		if stage.do != nil {
			stage.do(s)
		}
		if stage.push != nil {
			s.push(stage.push)
		}
		if i == 0 {
			s.source()
		}
		if stage.confirms {
			confirmEdit(s, s.repo.Head())
		}
		s.isThere(fmt.Sprintf("stage %d", i), before, stage)
	}
	before := s.uids()
	for _, gs := range s.sources() {
		s.lookNow(gs.Name)
	}
	s.isThere("another look", before, stage{want: withoutAnew(stages[len(stages)-1].want)})
	s.leaveNothing()
}

// leaveNothing ends the sources, with which all goes that is not asked to stay.
func (s *env) leaveNothing() {
	s.Helper()
	for _, gs := range s.sources() {
		s.end(gs.Name)
	}
	for name, o := range s.found() {
		ours := o.GetLabels()[v1alpha1.LabelSource] != "" || o.GetKind() == "Deployment"
		prune := o.GetAnnotations()[v1alpha1.AnnotationPrune]
		stays := prune == "disabled" || o.GetKind() == "PersistentVolumeClaim" && prune == ""
		if is := o.GetDeletionTimestamp() == nil; ours && is != stays {
			s.Errorf("%s is there when its source is deleted: %t, want %t", name, is, stays)
		}
	}
}

func withoutAnew(lines []string) []string {
	lines = slices.Clone(lines)
	for i := range lines {
		lines[i] = strings.Replace(lines[i], ", anew", "", 1)
	}
	return lines
}

// isThere waits until all is applied and the objects are those that should be.
func (s *env) isThere(name string, before map[string]types.UID, stage stage) {
	s.Helper()
	clustertest.Wait(s, "the end of "+name, func() error {
		var why []string
		if stage.asks {
			s.lookNow()
		}
		for _, gs := range s.sources() {
			if !meta.IsStatusConditionTrue(gs.Status.Conditions, "Ready") || gs.Status.AppliedCommit != s.repo.Head() {
				why = append(why, gs.Name+" at "+gs.Status.AppliedCommit+":\n"+said(&gs))
			}
		}
		if diff := cmp.Diff(stage.want, s.outside(before)); diff != "" {
			why = append(why, "(-want +got):\n"+diff)
		}
		if len(why) > 0 {
			return errors.New(strings.Join(why, "\n"))
		}
		return nil
	})
}

func (s *env) sources() []v1alpha1.GitSource {
	s.Helper()
	var list v1alpha1.GitSourceList
	s.must(s.c.Client.List(s.Context(), &list, client.InNamespace(s.ns)))
	return list.Items
}

// found are the objects in the namespace, and the cluster's that are named
// after it, of the kinds that the stories have.
func (s *env) found() map[string]*unstructured.Unstructured {
	s.Helper()
	found := map[string]*unstructured.Unstructured{}
	add := func(o *unstructured.Unstructured) {
		if name := s.nameOf(o.GetNamespace(), o.GetName()); name != "" && o.GetName() != "kube-root-ca.crt" {
			found[o.GetKind()+" "+name] = o
		}
	}
	namespaces := []string{s.ns}
	for _, o := range s.metadata(schema.GroupVersionKind{Version: "v1", Kind: "Namespace"}) {
		if strings.HasPrefix(o.GetName(), s.ns+"-") {
			namespaces = append(namespaces, o.GetName())
		}
		add(o)
	}
	for _, o := range s.metadata(schema.GroupVersionKind{Group: "apiextensions.k8s.io", Version: "v1", Kind: "CustomResourceDefinition"}) {
		add(o)
	}
	for _, gvk := range []schema.GroupVersionKind{
		{Version: "v1", Kind: "ConfigMap"}, {Version: "v1", Kind: "PersistentVolumeClaim"},
		{Group: "apps", Version: "v1", Kind: "Deployment"}, {Group: "autoscaling", Version: "v2", Kind: "HorizontalPodAutoscaler"},
		{Group: "tranche.dev", Version: "v1alpha1", Kind: "BatchRelease"}, {Group: s.ns + ".example.org", Version: "v1", Kind: "Toy"},
	} {
		for _, ns := range namespaces {
			list := &unstructured.UnstructuredList{}
			list.SetGroupVersionKind(gvk)
			err := s.c.Client.List(s.Context(), list, client.InNamespace(ns))
			if meta.IsNoMatchError(err) || client.IgnoreNotFound(err) == nil && err != nil {
				break
			}
			s.must(err)
			for i := range list.Items {
				add(&list.Items[i])
			}
		}
	}
	return found
}

// metadata lists all objects of a kind, without what is big: the schemas of
// CustomResourceDefinitions are, and many tests look often.
func (s *env) metadata(gvk schema.GroupVersionKind) []*unstructured.Unstructured {
	s.Helper()
	list := &metav1.PartialObjectMetadataList{}
	list.SetGroupVersionKind(gvk)
	s.must(s.c.Client.List(s.Context(), list))
	var all []*unstructured.Unstructured
	for i := range list.Items {
		object, err := runtime.DefaultUnstructuredConverter.ToUnstructured(&list.Items[i])
		s.must(err)
		o := &unstructured.Unstructured{Object: object}
		o.SetGroupVersionKind(gvk)
		all = append(all, o)
	}
	return all
}

// nameOf is how one of the env's objects is called here, where NS stands for
// its namespace; empty: it is another's.
func (s *env) nameOf(namespace, name string) string {
	switch {
	case namespace == s.ns:
		return name
	case strings.HasPrefix(namespace, s.ns+"-"):
		name = namespace + "/" + name
	case namespace != "" || !strings.HasPrefix(name, s.ns+"-") && !strings.Contains(name, "."+s.ns+"."):
		return ""
	}
	return strings.ReplaceAll(name, s.ns, "NS")
}

func (s *env) uids() map[string]types.UID {
	s.Helper()
	uids := map[string]types.UID{}
	for name, o := range s.found() {
		uids[name] = o.GetUID()
	}
	return uids
}

// outside is the state of the cluster that counts: the objects with what they have,
// and the sources in whose inventory they are. It marks those that were there before
// as another object.
func (s *env) outside(before map[string]types.UID) []string {
	s.Helper()
	lines := map[string]string{}
	for name, o := range s.found() {
		lines[name] = name + valueOf(s, o)
		if uid, ok := before[name]; ok && uid != o.GetUID() {
			lines[name] += ", anew"
		}
	}
	of := map[string][]string{}
	for _, gs := range s.sources() {
		if gs.Status.Inventory == nil {
			continue
		}
		for _, e := range gs.Status.Inventory.Entries {
			parts := strings.Split(e.ID, "_")
			name := parts[len(parts)-1] + " " + s.nameOf(parts[0], parts[1])
			of[name] = append(of[name], gs.Name)
			if lines[name] == "" {
				lines[name] = name + " is not there"
			}
		}
	}
	var all []string
	for name, line := range lines {
		switch sources := strings.Join(of[name], " and "); sources {
		case "shop":
		case "":
			line += ", nobody's"
		default:
			line += ", " + sources + "'s"
		}
		all = append(all, line)
	}
	slices.Sort(all)
	return all
}

// valueOf is what counts of an object.
func valueOf(s *env, o *unstructured.Unstructured) string {
	switch o.GetKind() {
	case "ConfigMap":
		value, _, _ := unstructured.NestedString(o.Object, "data", "value")
		return ": " + value
	case "Deployment":
		var d appsv1.Deployment
		s.must(runtime.DefaultUnstructuredConverter.FromUnstructured(o.Object, &d))
		c := d.Spec.Template.Spec.Containers[0]
		_, tag, _ := strings.Cut(c.Image, ":")
		by := map[string]string{"tranche-gitsync/Apply": "gitsync's", "tranche-rollout/Apply": "rollout's"}[owners(&d, "template")]
		return fmt.Sprintf(": %d x %s with %d env and %d labels, %s", *d.Spec.Replicas, tag, len(c.Env), len(d.Labels), by)
	case "BatchRelease":
		commit, _, _ := unstructured.NestedString(o.Object, "spec", "commit")
		at := ""
		if phase, _, _ := unstructured.NestedString(o.Object, "status", "phase"); phase != "" {
			step, _, _ := unstructured.NestedInt64(o.Object, "status", "currentStepIndex")
			at = fmt.Sprintf(", at step %d", step)
		}
		return fmt.Sprintf(": has a commit: %t%s", commit != "", at)
	default:
		return ""
	}
}

// crashProxy is a Git server at whose k-th exchange the controller dies. That is when the
// server has done what was asked, and before the answer is there.
type crashProxy struct {
	mu     sync.Mutex
	armed  bool
	begun  bool
	dead   bool
	left   int
	killed chan struct{}
}

func (r *crashProxy) wrap(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, req *http.Request) {
		r.mu.Lock()
		defer r.mu.Unlock()
		if r.dead {
			panic(http.ErrAbortHandler)
		}
		// A write-back begins where the server is asked whether it takes a push,
		// and ends when what was pushed has been fetched.
		r.begun = r.armed && (r.begun || strings.Contains(req.URL.String(), "git-receive-pack"))
		if r.begun {
			r.left--
			r.armed = !strings.HasSuffix(req.URL.Path, "git-upload-pack")
		}
		if !r.begun || r.left != 0 {
			next.ServeHTTP(w, req)
			return
		}
		next.ServeHTTP(httptest.NewRecorder(), req)
		r.dead = true
		close(r.killed)
		panic(http.ErrAbortHandler)
	})
}

func (r *crashProxy) set(f func()) {
	r.mu.Lock()
	defer r.mu.Unlock()
	f()
}

// I6 for Git: whatever exchange with the server the controller dies in, there
// is one commit in the end.
func TestWriteBackKilled(t *testing.T) {
	t.Parallel()
	for _, story := range []struct {
		name string
		tell func(s *env)
		end  func(s *env)
		want []string
	}{
		{
			"approval", func(s *env) { s.approve("web") }, func(s *env) { s.isAt("web", "ReleaseCompleted", 1) },
			[]string{"Approve step 0 of web", "web: v2", "web: v1"},
		},
		{
			"rollback", func(s *env) { s.rollBack("web") }, func(s *env) { s.rolledBack("web") },
			[]string{"Revert \"web: v2\"", "web: v2", "web: v1"},
		},
	} {
		t.Run(story.name, func(t *testing.T) {
			t.Parallel()
			for k, more := 1, true; more; k++ {
				t.Run(fmt.Sprintf("exchange %d", k), func(t *testing.T) {
					more = killedAt(t, &crashProxy{left: k, killed: make(chan struct{})}, story.tell, story.end, story.want) && !t.Failed()
				})
			}
		})
	}
}

// killedAt tells a story with a controller that dies. It returns false where
// the story was over before that.
func killedAt(t *testing.T, r *crashProxy, tell, end func(*env), want []string) bool {
	s := newIdleEnv(t)
	server := gittest.Serve(t, filepath.Dir(s.repo.Bare), gittest.ServeOptions{Wrap: r.wrap})
	stop := s.startController(andRollout)
	over := make(chan struct{})
	replaced := make(chan func())
	go func() {
		select {
		case <-r.killed:
			stop()
			r.set(func() { r.dead = false })
			replaced <- s.startController(andRollout)
		case <-over:
			replaced <- stop
		}
	}()
	t.Cleanup(func() {
		close(over)
		(<-replaced)()
	})
	s.beginRelease(writesBack, func(gs *v1alpha1.GitSource) {
		gs.Spec.URL = server.URL + "/" + filepath.Base(s.repo.Bare)
	})
	r.set(func() { r.armed = true })
	tell(s)
	s.has(want...)
	reached := false
	r.set(func() { reached = r.left <= 0 })
	end(s)
	s.ends(want...)
	return reached
}
