package rollout_test

import (
	"fmt"
	"maps"
	"strings"
	"testing"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"

	"github.com/tranche-dev/tranche/rollout/clustertest"
	"github.com/tranche-dev/tranche/rollout/engine"
)

// The facts about the native controller that the engine is built on, brought about by
// hand with no controller of Tranche there. A version of Kubernetes that changes one
// fails here first.

// byHand is a Deployment of n that was made natively, and its namespace.
func byHand(t *testing.T, n int32, edit ...func(*appsv1.Deployment)) *env {
	t.Helper()
	c := clustertest.Shared(t)
	s := &env{T: t, c: c, ns: c.Namespace(t)}
	s.create("web", n, edit...)
	s.become(map[string]int32{"v1": n})
	s.nativeHasSeen("web")
	return s
}

// heldByHand is one that is held at v2, with ReplicaSets of these sizes.
func heldByHand(t *testing.T, v1, v2 int32) *env {
	t.Helper()
	s := byHand(t, 4)
	s.holdByHand("v2")
	s.makeSet("v2", v2)
	s.nudge()
	if v1 != 4 {
		s.resize("v1", v1)
	}
	s.become(map[string]int32{"v1": v1, "v2": v2})
	return s
}

// holdByHand holds a Deployment, and sets its template in the same write.
func (s *env) holdByHand(tag string) {
	s.Helper()
	s.change(func(d *appsv1.Deployment) {
		d.Spec.Paused, d.Spec.Strategy = true, appsv1.DeploymentStrategy{Type: appsv1.RecreateDeploymentStrategyType}
		d.Spec.Template = template("web", tag)
	})
}

// change changes the Deployment, and waits until the native controller has
// seen it.
func (s *env) change(edit func(*appsv1.Deployment)) {
	s.Helper()
	clustertest.Wait(s, "a change of the Deployment", func() error {
		d := s.deployment("web")
		edit(d)
		return s.c.Client.Update(s.Context(), d)
	})
	s.nativeHasSeen("web")
}

func (s *env) nativeHasSeen(name string) {
	s.Helper()
	clustertest.Wait(s, "the native controller to see "+name, func() error {
		if d := s.deployment(name); d.Status.ObservedGeneration < d.Generation {
			return fmt.Errorf("generation %d, seen %d", d.Generation, d.Status.ObservedGeneration)
		}
		return nil
	})
}

// nudge makes the native controller look, twice, so that it has seen the
// ReplicaSets as they are.
func (s *env) nudge() {
	s.Helper()
	for range 2 {
		s.change(func(d *appsv1.Deployment) {
			d.Spec.ProgressDeadlineSeconds = ptr.To(*d.Spec.ProgressDeadlineSeconds + 1)
		})
	}
}

// set returns the ReplicaSet of a tag.
func (s *env) set(tag string) *appsv1.ReplicaSet {
	s.Helper()
	for _, rs := range s.sets() {
		if strings.HasSuffix(rs.Spec.Template.Spec.Containers[0].Image, ":"+tag) {
			return &rs
		}
	}
	s.Fatalf("there is no ReplicaSet of %s; sizes %v", tag, s.sizes())
	return nil
}

// makeSet makes a ReplicaSet that the Deployment controls.
func (s *env) makeSet(tag string, n int32) {
	s.Helper()
	rs := s.newSet("web-"+tag, tag, n)
	rs.OwnerReferences = []metav1.OwnerReference{*metav1.NewControllerRef(s.deployment("web"), appsv1.SchemeGroupVersion.WithKind("Deployment"))}
	s.must(s.c.Client.Create(s.Context(), rs))
}

// newSet is a ReplicaSet that the Deployment's selector matches.
func (s *env) newSet(name, tag string, n int32) *appsv1.ReplicaSet {
	pods := template("web", tag)
	pods.Labels = map[string]string{"app": "web", appsv1.DefaultDeploymentUniqueLabelKey: name}
	return &appsv1.ReplicaSet{
		ObjectMeta: metav1.ObjectMeta{Name: name, Namespace: s.ns, Labels: pods.Labels},
		Spec:       appsv1.ReplicaSetSpec{Replicas: &n, Selector: &metav1.LabelSelector{MatchLabels: pods.Labels}, Template: pods},
	}
}

// resize gives a ReplicaSet a size, and desired-replicas if there is one.
func (s *env) resize(tag string, n int32, desired ...string) {
	s.Helper()
	clustertest.Wait(s, "a size of "+tag, func() error {
		rs := s.set(tag)
		rs.Spec.Replicas = &n
		for _, d := range desired {
			metav1.SetMetaDataAnnotation(&rs.ObjectMeta, engine.AnnotationDesiredReplicas, d)
		}
		return s.c.Client.Update(s.Context(), rs)
	})
}

// become waits for sizes.
func (s *env) become(want map[string]int32) {
	s.Helper()
	clustertest.Wait(s, fmt.Sprintf("sizes %v", want), func() error {
		if got := s.sizes(); !maps.Equal(got, want) {
			return fmt.Errorf("sizes %v", got)
		}
		return nil
	})
}

// stay fails if the native controller, made to look, does not leave the sizes.
func (s *env) stay(want map[string]int32) {
	s.Helper()
	s.nudge()
	if got := s.sizes(); !maps.Equal(got, want) {
		s.Errorf("sizes %v, want them left at %v", got, want)
	}
}

func nativeH01(t *testing.T) {
	s := byHand(t, 4)
	s.holdByHand("v2")
	s.resize("v1", 3)
	s.become(map[string]int32{"v1": 4})
	if rs := s.set("v1"); rs.Generation < 3 {
		t.Errorf("generation %d: it was not forced back", rs.Generation)
	}
}

func nativeH02(t *testing.T) {
	s := heldByHand(t, 1, 2)
	s.resize("v1", 0)
	s.become(map[string]int32{"v2": 4})
}

func nativeH03(t *testing.T) {
	s := heldByHand(t, 1, 2)
	s.stay(map[string]int32{"v1": 1, "v2": 2})
}

func nativeH04(t *testing.T) {
	s := heldByHand(t, 3, 1)
	s.kubectl("-n", s.ns, "scale", "deployment/web", "--replicas=0")
	s.resize("v1", 0)
	s.resize("v2", 0)
	s.stay(map[string]int32{})
	s.kubectl("-n", s.ns, "scale", "deployment/web", "--replicas=4")
	s.become(map[string]int32{"v2": 4})
}

func nativeH05(t *testing.T) {
	s := heldByHand(t, 3, 1)
	s.kubectl("-n", s.ns, "scale", "deployment/web", "--replicas=0")
	s.stay(map[string]int32{"v1": 3, "v2": 1})
}

func nativeH06(t *testing.T) {
	s := heldByHand(t, 2, 2)
	clustertest.Wait(t, "v2's pods", func() error {
		if rs := s.set("v2"); rs.Status.AvailableReplicas != 2 {
			return fmt.Errorf("%d available", rs.Status.AvailableReplicas)
		}
		return nil
	})
	s.kubectl("-n", s.ns, "scale", "deployment/web", "--replicas=2")
	s.stay(map[string]int32{"v1": 2, "v2": 2})
	s.resize("v2", 2, "2")
	s.become(map[string]int32{"v2": 2})
}

func nativeH07(t *testing.T) {
	s := heldByHand(t, 3, 1)
	s.change(func(d *appsv1.Deployment) { d.Spec.Strategy = appsv1.DeploymentStrategy{} })
	s.become(map[string]int32{"v1": 4, "v2": 1})
}

func nativeH08(t *testing.T) {
	s := heldByHand(t, 3, 1)
	s.resize("v2", 1, "4")
	s.resize("v1", 3, "4")
	s.kubectl("-n", s.ns, "rollout", "resume", "deployment/web")
	clustertest.Wait(t, "the outage", func() error {
		if n := s.sizes()["v1"]; n != 0 {
			return fmt.Errorf("%d old pods", n)
		}
		return nil
	})
}

func nativeH10(t *testing.T) {
	s := heldByHand(t, 3, 1)
	s.resize("v2", 1, "9")
	s.kubectl("-n", s.ns, "rollout", "resume", "deployment/web")
	s.stay(map[string]int32{"v1": 3, "v2": 1})
}

func nativeH11(t *testing.T) {
	s := byHand(t, 2)
	s.resize("v1", 2, "9")
	s.nudge()
	s.kubectl("-n", s.ns, "set", "image", "deployment/web", "web=registry.example.org/web:v2")
	s.stay(map[string]int32{"v1": 2})
	if sets := s.sets(); len(sets) != 1 {
		t.Errorf("%d ReplicaSets", len(sets))
	}
	s.resize("v1", 2, "2")
	clustertest.Wait(t, "the rollout, with the annotation put right", func() error {
		if s.sizes()["v2"] == 0 {
			return fmt.Errorf("sizes %v", s.sizes())
		}
		return nil
	})
}

func nativeH12(t *testing.T) {
	s := heldByHand(t, 3, 1)
	s.change(func(d *appsv1.Deployment) { d.Spec.RevisionHistoryLimit = ptr.To(int32(0)) })
	s.resize("v1", 0)
	clustertest.Wait(t, "v1 to be deleted under the hold", func() error {
		if sets := s.sets(); len(sets) != 1 {
			return fmt.Errorf("%d ReplicaSets", len(sets))
		}
		return nil
	})
}

func nativeH13(t *testing.T) {
	s := byHand(t, 1)
	s.kubectl("-n", s.ns, "annotate", "deployment/web", "leaks=yes")
	leaked := func() {
		t.Helper()
		clustertest.Wait(t, "the annotation on the ReplicaSet", func() error {
			if a := s.set("v1").Annotations; a["leaks"] != "yes" {
				return fmt.Errorf("annotations %v", a)
			}
			return nil
		})
	}
	leaked()
	s.kubectl("-n", s.ns, "annotate", "deployment/web", "leaks-")
	s.kubectl("-n", s.ns, "set", "image", "deployment/web", "web=registry.example.org/web:v2")
	s.nudge()
	leaked() // for good
	s.kubectl("-n", s.ns, "rollout", "undo", "deployment/web")
	if d := s.deployment("web"); d.Annotations["leaks"] != "yes" {
		t.Errorf("kubectl rollout undo did not bring it back: %v", d.Annotations)
	}
}

func nativeH14(t *testing.T) {
	s := heldByHand(t, 3, 1)
	if c := s.nativeCondition(appsv1.DeploymentProgressing); c.Status != corev1.ConditionUnknown || c.Reason != "DeploymentPaused" {
		t.Errorf("Progressing is %s, %s", c.Status, c.Reason)
	}
}

func nativeH15(t *testing.T) {
	s := byHand(t, 4)
	s.holdByHand("v1")
	s.makeSet("broken", 1)
	s.nudge()
	s.resize("v1", 3)
	clustertest.Wait(t, "three of four, with maxUnavailable of one, not to be Available", func() error {
		d, c := s.deployment("web"), s.nativeCondition(appsv1.DeploymentAvailable)
		if d.Status.AvailableReplicas != 3 || c.Status != corev1.ConditionFalse {
			return fmt.Errorf("%d available, Available is %s, %s", d.Status.AvailableReplicas, c.Status, c.Reason)
		}
		return nil
	})
}

func (s *env) nativeCondition(kind appsv1.DeploymentConditionType) appsv1.DeploymentCondition {
	s.Helper()
	for _, c := range s.deployment("web").Status.Conditions {
		if c.Type == kind {
			return c
		}
	}
	return appsv1.DeploymentCondition{}
}

func nativeH16(t *testing.T) {
	s := heldByHand(t, 3, 1)
	clustertest.Wait(t, "the revision of v2 under the hold", func() error {
		if a := s.set("v2").Annotations; a[engine.AnnotationRevision] != "2" {
			return fmt.Errorf("annotations %v", a)
		}
		return nil
	})
	s.change(func(d *appsv1.Deployment) { d.Spec.Template = template("web", "v1") })
	if a := s.set("v1").Annotations; a[engine.AnnotationRevision] != "3" || a[engine.AnnotationRevisionHistory] != "1" {
		t.Errorf("annotations %v", a)
	}
}

func nativeH17(t *testing.T) {
	s := heldByHand(t, 3, 1)
	s.change(func(d *appsv1.Deployment) { d.Spec.MinReadySeconds = 1 })
	if rs := s.set("v2"); rs.Spec.MinReadySeconds != 1 {
		t.Errorf("minReadySeconds %d", rs.Spec.MinReadySeconds)
	}
}

func nativeH18(t *testing.T) {
	s := byHand(t, 2)
	s.holdByHand("v1")
	s.must(s.c.Client.Create(t.Context(), s.newSet("orphan", "v9", 1)))
	s.owned("v9", true)
	s.kubectl("-n", s.ns, "label", "rs/orphan", "app=other", "--overwrite")
	s.owned("v9", false)
}

// owned waits until the Deployment controls the ReplicaSet of a tag, or not.
func (s *env) owned(tag string, want bool) {
	s.Helper()
	clustertest.Wait(s, fmt.Sprintf("owned=%t of %s", want, tag), func() error {
		if owner := metav1.GetControllerOf(s.set(tag)); (owner != nil) != want {
			return fmt.Errorf("owner %v", owner)
		}
		return nil
	})
}

func nativeH19(t *testing.T) {
	s := byHand(t, 2)
	s.must(s.c.Client.Create(t.Context(), s.newSet("zz", "v1", 0)))
	s.kubectl("-n", s.ns, "scale", "deployment/web", "--replicas=0")
	s.become(map[string]int32{})
	s.kubectl("-n", s.ns, "scale", "deployment/web", "--replicas=3")
	clustertest.Wait(t, "the oldest to grow", func() error {
		for _, rs := range s.sets() {
			if rs.Name != "zz" && *rs.Spec.Replicas == 3 {
				return nil
			}
		}
		return fmt.Errorf("sizes %v", s.sizes())
	})
}

func nativeH20(t *testing.T) {
	s := byHand(t, 2)
	s.holdByHand("v2")
	s.stay(map[string]int32{"v1": 2})
	if sets := s.sets(); len(sets) != 1 {
		t.Errorf("%d ReplicaSets", len(sets))
	}
}

func nativeH21(t *testing.T) {
	c := clustertest.Shared(t)
	s := &env{T: t, c: c, ns: c.Namespace(t)}
	s.create("web", 2, func(d *appsv1.Deployment) { d.Spec.Paused = true })
	s.nativeHasSeen("web")
	s.stay(map[string]int32{})
}

func nativeH23(t *testing.T) {
	s := heldByHand(t, 3, 1)
	before := s.deployment("web").Generation
	s.kubectl("-n", s.ns, "annotate", "deployment/web", "note=hello")
	s.nativeHasSeen("web")
	if after := s.deployment("web").Generation; after != before+1 {
		t.Errorf("generation %d, then %d", before, after)
	}
}

func nativeH25(t *testing.T) {
	s := byHand(t, 2)
	s.serverSideApply("another", `{"strategy":{"type":"RollingUpdate","rollingUpdate":{"maxSurge":3}},"paused":false}`)
	out, err := s.apply("third", `{"strategy":{"rollingUpdate":{"maxSurge":1}}}`)
	if err == nil || !strings.Contains(out, `conflict with "another"`) {
		t.Errorf("server-side apply over another's strategy: %v: %s", err, out)
	}
}

// serverSideApply applies a part of the Deployment's spec as a manager.
func (s *env) serverSideApply(manager, spec string) {
	s.Helper()
	if out, err := s.apply(manager, spec, "--force-conflicts"); err != nil {
		s.Fatalf("kubectl apply --server-side: %v: %s", err, out)
	}
}

func (s *env) apply(manager, spec string, flags ...string) (string, error) {
	s.Helper()
	manifest := `{"apiVersion":"apps/v1","kind":"Deployment","metadata":{"name":"web"},"spec":` + spec + `}`
	return s.c.KubectlWith(s, manifest, append([]string{"-n", s.ns, "apply", "--server-side", "--field-manager=" + manager, "-f", "-"}, flags...)...)
}
