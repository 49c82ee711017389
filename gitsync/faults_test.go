package gitsync_test

import (
	"errors"
	"net/http"
	"path/filepath"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/tranche-dev/tranche/gitsync/gittest"
	"github.com/tranche-dev/tranche/plan/v1alpha1"
	"github.com/tranche-dev/tranche/rollout/clustertest"
)

func TestSuspend(t *testing.T) {
	t.Parallel()
	s := newEnv(t, gitsyncOnly)
	first := s.push(map[string]string{"deploy/a.yaml": configMap("a", "one")})
	s.source()
	s.applied(first)
	gs := s.gs()
	gs.Spec.Suspend = true
	s.write(gs)
	clustertest.Wait(t, "the suspension", func() error {
		if m := said(s.gs()); !strings.Contains(m, "InSync=Unknown Suspended") || !strings.Contains(m, "Ready=True Applied") {
			return errors.New(m)
		}
		return nil
	})
	second := s.push(map[string]string{"deploy/a.yaml": configMap("a", "two")})
	s.lookNow()
	if v := get(s, "a", &corev1.ConfigMap{}).Data["value"]; v != "one" {
		t.Errorf("applied %q while suspended", v)
	}
	gs = s.gs()
	gs.Spec.Suspend = false
	s.write(gs)
	s.applied(second)
}

// A plan made by hand governs a Deployment from Git as well as one from Git.
func TestPlanByHand(t *testing.T) {
	t.Parallel()
	s := newEnv(t, gitsyncOnly)
	first := s.push(map[string]string{"deploy/web.yaml": web("v1")})
	s.source()
	s.applied(first)
	d := s.deployment("web")
	br := &v1alpha1.BatchRelease{ObjectMeta: metav1.ObjectMeta{Name: "by-hand", Namespace: s.ns}}
	br.Spec.WorkloadRef.Name = "web"
	br.Spec.Template = &d.Spec.Template
	br.Spec.Strategy.Steps = []v1alpha1.Step{{Replicas: full}}
	s.must(s.c.Client.Create(t.Context(), br))
	s.applied(s.push(map[string]string{"deploy/web.yaml": web("v2", "replicas: 2", "replicas: 4")}))
	d = s.deployment("web")
	if image := d.Spec.Template.Spec.Containers[0].Image; *d.Spec.Replicas != 4 || image != "registry.example.org/web:v1" {
		t.Errorf("replicas %d, image %s", *d.Spec.Replicas, image)
	}
	s.must(s.c.Client.Delete(t.Context(), br))
	s.lookNow()
	if image := s.deployment("web").Spec.Template.Spec.Containers[0].Image; image != "registry.example.org/web:v2" {
		t.Errorf("after the plan: %s", image)
	}
	if notes := s.events("DriftUndone"); len(notes) > 0 {
		t.Errorf("told of drift: %q", notes)
	}
}

// A plan that gets another name goes on governing without a gap.
func TestPlanRenamed(t *testing.T) {
	t.Parallel()
	s := newEnv(t, gitsyncOnly)
	first := s.push(map[string]string{"deploy/web.yaml": web("v1"), "deploy/release.yaml": webPlan})
	s.source(func(gs *v1alpha1.GitSource) { gs.Spec.Prune = false })
	s.applied(first)
	s.applied(s.push(map[string]string{"deploy/release.yaml": strings.Replace(webPlan, "{name: web}", "{name: web-plan}", 1)}))
	s.isGone("web", &v1alpha1.BatchRelease{})
	s.release("web-plan")
	if got := owners(s.deployment("web"), "template"); got != "tranche-rollout/Apply" {
		t.Errorf("the template is %s's", got)
	}
}

// A held Deployment is paused and Recreate. A sync must change none of it, and must
// try a new template in spite of the policy.
func TestLooksAtAHeldDeployment(t *testing.T) {
	t.Parallel()
	s := newEnv(t, andRollout)
	first := s.push(map[string]string{"deploy/web.yaml": web("v1"), "deploy/release.yaml": webPlan})
	s.source()
	s.applied(first)
	s.applied(s.push(map[string]string{"deploy/web.yaml": web("v2")}))
	clustertest.Wait(t, "the hold", func() error {
		if d := s.deployment("web"); d.Labels[v1alpha1.LabelHeld] == "" {
			return errors.New("not held")
		}
		return nil
	})
	held := s.deployment("web")
	s.lookNow()
	s.applied(s.push(map[string]string{"deploy/web.yaml": web("v2", "replicas: 2", "replicas: 3\n  paused: false")}))
	d := s.deployment("web")
	if !d.Spec.Paused || d.Spec.Strategy.Type != appsv1.RecreateDeploymentStrategyType || d.Labels[v1alpha1.LabelHeld] == "" || *d.Spec.Replicas != 3 {
		t.Errorf("was %+v, is %+v", held.Spec, d.Spec)
	}
	bad := s.push(map[string]string{"deploy/web.yaml": web("v3", "name: web\n        image", "name: Web_1\n        image")})
	s.refused(bad, "DryRunFailed")
	s.applied(s.push(map[string]string{"deploy/web.yaml": web("v3")}))
}

// A Secret that is put right needs no other change, and no wait for the
// interval. A repository that cannot be watched is polled.
func TestPollingWithASecret(t *testing.T) {
	t.Parallel()
	s := newEnv(t, gitsyncOnly)
	server := gittest.Serve(t, filepath.Dir(s.repo.Bare), gittest.ServeOptions{Username: "ada", Password: "s3cret"})
	first := s.push(map[string]string{"deploy/a.yaml": configMap("a", "one")})
	s.source(func(gs *v1alpha1.GitSource) {
		gs.Spec.URL = server.URL + "/repo.git"
		gs.Spec.SecretRef = &v1alpha1.LocalObjectReference{Name: "git"}
	})
	s.stalled("SecretNotFound")
	secret := &corev1.Secret{ObjectMeta: metav1.ObjectMeta{Name: "git", Namespace: s.ns}, StringData: map[string]string{"username": "ada", "password": "wr0ng"}}
	s.must(s.c.Client.Create(t.Context(), secret))
	if m := s.stalled("AuthenticationFailed"); strings.Contains(m, "wr0ng") {
		t.Errorf("tells the password: %s", m)
	}
	secret.StringData = map[string]string{"password": "s3cret"}
	s.must(s.c.Client.Update(t.Context(), secret))
	s.applied(first)
	s.must(s.c.Client.Patch(t.Context(), s.gs(), client.RawPatch(types.MergePatchType, []byte(`{"spec":{"interval":"1s"}}`))))
	s.applied(s.push(map[string]string{"deploy/a.yaml": configMap("a", "two")}))
}

// Each credential has a mirror of its own. An answer to a request with a password is
// none for those who have no password, or another one.
func TestMirrorsAreNotShared(t *testing.T) {
	t.Parallel()
	s := newEnv(t, gitsyncOnly)
	var slow atomic.Bool
	asked, answer := make(chan struct{}, 1), make(chan struct{})
	server := gittest.Serve(t, filepath.Dir(s.repo.Bare), gittest.ServeOptions{Username: "ada", Password: "s3cret", Wrap: func(h http.Handler) http.Handler {
		return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			if slow.CompareAndSwap(true, false) {
				asked <- struct{}{}
				<-answer
			}
			h.ServeHTTP(w, r)
		})
	}})
	with := func(secret string) func(*v1alpha1.GitSource) {
		return func(gs *v1alpha1.GitSource) {
			gs.Spec.URL, gs.Spec.Timeout.Duration = server.URL+"/repo.git", time.Hour
			if secret != "" {
				gs.Spec.SecretRef = &v1alpha1.LocalObjectReference{Name: secret}
				s.kubectl("create", "secret", "generic", secret, "--from-literal=username=ada", "--from-literal=password="+secret)
			}
		}
	}
	s.applied2(s.push(map[string]string{"deploy/a.yaml": configMap("a", "one"), "more/b.yaml": configMap("b", "one")}), with("s3cret"))
	t.Cleanup(func() { close(answer) })
	slow.Store(true)
	s.kubectl("annotate", "gsrc/shop", "tranche.dev/reconcile=now")
	select {
	case <-asked:
	case <-time.After(clustertest.Within):
		t.Fatal("the server is not asked")
	}
	s.another("without", "more", with(""))
	s.another("wrong", "more", with("wr0ng"))
	for _, name := range []string{"without", "wrong"} {
		s.ready(name, metav1.ConditionFalse, "AuthenticationFailed") // and does not wait for the answer that shop waits for
	}
	s.absent("b", &corev1.ConfigMap{})
}

func (s *env) stalled(reason string) (message string) {
	s.Helper()
	clustertest.Wait(s, "Stalled "+reason, func() error {
		if message = said(s.gs()); !strings.Contains(message, "Stalled=True "+reason) {
			return errors.New(message)
		}
		return nil
	})
	return message
}
