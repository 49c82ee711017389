package gitsync_test

import (
	"errors"
	"fmt"
	"net/http"
	"slices"
	"strings"
	"sync"
	"testing"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/rest"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/tranche-dev/tranche/plan/v1alpha1"
	"github.com/tranche-dev/tranche/rollout/clustertest"
)

// failing is a way to the API server on which each kind of request fails at its
// first time, in one way after the other.
type failing struct {
	mu    sync.Mutex
	begun bool
	seen  []string
	ns    string
}

func (f *failing) send(next http.RoundTripper, r *http.Request) (*http.Response, error) {
	n := f.first(r)
	if n < 0 {
		return next.RoundTrip(r)
	}
	switch n % 5 {
	case 0:
		return clustertest.Refusal(r, http.StatusInternalServerError, metav1.StatusReasonInternalError), nil
	case 1:
		return clustertest.Refusal(r, http.StatusServiceUnavailable, metav1.StatusReasonServiceUnavailable), nil
	case 2:
		if r.Method != http.MethodGet {
			return clustertest.Refusal(r, http.StatusConflict, metav1.StatusReasonConflict), nil
		}
		return clustertest.Refusal(r, http.StatusGatewayTimeout, metav1.StatusReasonTimeout), nil
	case 3:
		return nil, errors.New("connection reset by peer")
	default: // it is done, and the answer does not come
		answer, err := next.RoundTrip(r)
		if err == nil {
			_ = answer.Body.Close()
		}
		return nil, errors.Join(errors.New("the answer is lost"), err)
	}
}

// first numbers the kinds of requests as they come; -1: it is not the first one.
func (f *failing) first(r *http.Request) int {
	kind := r.Method + " " + strings.ReplaceAll(r.URL.Path, f.ns, "NS")
	for _, q := range []string{"dryRun", "watch", "fieldManager"} {
		if v := r.URL.Query().Get(q); v != "" {
			kind += " " + q + "=" + v
		}
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	if !f.begun || strings.Contains(kind, "/events") || slices.Contains(f.seen, kind) {
		return -1
	}
	f.seen = append(f.seen, kind)
	return len(f.seen) - 1
}

// I6 for requests: whichever fails, and however, the end is the same.
func TestEachRequestFailsOnce(t *testing.T) {
	t.Parallel()
	s := newIdleEnv(t)
	f := &failing{ns: s.ns}
	config := rest.CopyConfig(s.c.Config)
	config.Wrap(func(next http.RoundTripper) http.RoundTripper {
		return roundTripper(func(r *http.Request) (*http.Response, error) { return f.send(next, r) })
	})
	t.Cleanup(s.startControllerWith(config, gitsyncOnly)) // one that cannot start is started again by others
	f.mu.Lock()
	f.begun = true
	f.mu.Unlock()
	stages := killedStories["a plan comes and goes"](s)
	for i := range stages {
		stages[i].asks = true // or it would be looked at again after some seconds, for each request
	}
	s.play(stages)
	if len(f.seen) < 30 {
		t.Errorf("%d kinds of requests failed: %s", len(f.seen), f.seen)
	}
}

// An object that is being deleted, and that Git brings again, is created once it is
// gone, and nothing else waits for it.
func TestMadeAnewOnceGone(t *testing.T) {
	t.Parallel()
	s := newEnv(t, gitsyncOnly)
	s.source()
	s.applied(s.push(map[string]string{"deploy/a.yaml": configMap("a", "one"), "deploy/b.yaml": configMap("b", "one")}))
	finalizers := func(list string) {
		s.kubectl("patch", "configmap/a", "--type=merge", "-p", `{"metadata":{"finalizers":`+list+`}}`)
	}
	finalizers(`["example.org/slow"]`)
	s.applied(s.push(map[string]string{"deploy/a.yaml": ""}))
	if cm := get(s, "a", &corev1.ConfigMap{}); cm.DeletionTimestamp == nil {
		t.Error("it is not deleted")
	}
	tip := s.push(map[string]string{"deploy/a.yaml": configMap("a", "two"), "deploy/b.yaml": configMap("b", "two")})
	const says = "ConfigMap %s/a: it is being deleted, and is created again once it is gone; it has the finalizers example.org/slow"
	if m := s.refused(tip, "ApplyFailed"); !strings.Contains(m, fmt.Sprintf(says, s.ns)) {
		t.Error(m)
	}
	if v := get(s, "b", &corev1.ConfigMap{}).Data["value"]; v != "two" {
		t.Errorf("b waits, too: it is %q", v)
	}
	finalizers("null")
	s.lookNow() // or it takes some seconds
	s.applied(tip)
	if v := get(s, "a", &corev1.ConfigMap{}).Data["value"]; v != "two" {
		t.Errorf("a is %q", v)
	}
}

// A Deployment that is another source's by now is not pruned by the one that it has
// left. That source had deleted it before and has not written that down.
func TestPruneLeavesAnothersDeployment(t *testing.T) {
	t.Parallel()
	s := newEnv(t, gitsyncOnly)
	s.source()
	s.applied(s.push(map[string]string{"deploy/web.yaml": web("v1"), "deploy/a.yaml": configMap("a", "one")}))
	edited(func(gs *v1alpha1.GitSource) { gs.Spec.Suspend = true })(s)
	s.says("Unknown Suspended")
	tip := s.push(map[string]string{"deploy/web.yaml": "", "more/web.yaml": web("v1")})
	s.kubectl("delete", "deployment/web")
	s.another("other", "more")
	s.ready("other", metav1.ConditionTrue, "Applied")
	uid := s.deployment("web").UID
	edited(func(gs *v1alpha1.GitSource) { gs.Spec.Suspend = false })(s)
	s.applied(tip)
	if now := s.deployment("web"); now.UID != uid || now.DeletionTimestamp != nil {
		t.Error("the other source's Deployment was deleted")
	}
	s.told("HandedOver", "GitSource "+s.ns+"/other has it now")
}

// An object that a Deployment refers to is kept before the Deployment has made any
// pod.
func TestADeploymentKeepsItsConfigMap(t *testing.T) {
	t.Parallel()
	s := newEnv(t, gitsyncOnly)
	s.source()
	s.applied(s.push(map[string]string{"deploy/a.yaml": configMap("a", "one"), "deploy/settings.yaml": configMap("settings", "one")}))
	paused := web("v1", "spec:\n  replicas: 2", "spec:\n  paused: true\n  replicas: 2", "      containers:\n", "      volumes: [{name: c, configMap: {name: settings}}]\n      containers:\n")
	if out, err := s.c.KubectlWith(t, paused, "apply", "-n", s.ns, "-f", "-"); err != nil {
		t.Fatal(out)
	}
	s.applied(s.push(map[string]string{"deploy/settings.yaml": ""}))
	get(s, "settings", &corev1.ConfigMap{})
	if kept := s.gs().Status.Kept; len(kept) != 1 || kept[0].UsedBy != "Deployment "+s.ns+"/web" {
		t.Errorf("kept is %+v", kept)
	}
	s.must(s.c.Client.Delete(t.Context(), &appsv1.Deployment{ObjectMeta: metav1.ObjectMeta{Name: "web", Namespace: s.ns}}, client.PropagationPolicy(metav1.DeletePropagationBackground)))
	s.lookNow()
	s.isGone("settings", &corev1.ConfigMap{})
}
