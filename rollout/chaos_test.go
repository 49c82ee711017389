package rollout_test

import (
	"flag"
	"fmt"
	"maps"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/intstr"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/tranche-dev/tranche/plan/v1alpha1"
	"github.com/tranche-dev/tranche/rollout/clustertest"
	"github.com/tranche-dev/tranche/rollout/engine"
)

var chaosSeed = flag.Uint64("chaos.seed", uint64(time.Now().UnixNano()), "seed of the chaos")

// TestChaos lets everything happen at once to 50 Deployments: releases,
// supersessions, rollbacks, approvals, scaling to zero and back, pods that are
// deleted, a controller that is killed again and again. The watcher judges every
// event; and when it is over, each Deployment comes to what was asked for last.
// 30 seconds in the suite, five minutes with -full.
func TestChaos(t *testing.T) {
	t.Parallel()
	seed := *chaosSeed
	t.Logf("-chaos.seed=%d", seed)
	r := rand.New(rand.NewPCG(seed, seed))
	c := clustertest.Shared(t)
	ns := c.Namespace(t)
	w := c.Watch(t, ns)
	h := &chaos{T: t, c: c, ns: ns, r: r}
	h.install(50)
	stop := startControllerIn(t, c, ns)
	clustertest.Wait(t, "all plans to be seen", func() error { return h.each(func(br *v1alpha1.BatchRelease) bool { return br.Status.Phase != "" }) })

	lasts := 30 * time.Second
	if *fullFaults {
		lasts = 5 * time.Minute
	}
	kills, next := 0, time.Now().Add(3*time.Second)
	for end := time.Now().Add(lasts); time.Now().Before(end); {
		h.strike()
		if time.Now().After(next) {
			stop()
			stop, next = startControllerIn(t, c, ns), time.Now().Add(time.Duration(2000+r.IntN(6000))*time.Millisecond)
			kills++
		}
	}
	h.calm()
	h.judge()
	t.Logf("%d blows, %d kills; judged I1 %d, I2 %d, I3 %d, I7 %d, I10 %d times",
		h.blows, kills, w.Judged("I1"), w.Judged("I2"), w.Judged("I3"), w.Judged("I7"), w.Judged("I10"))
}

type chaos struct {
	*testing.T
	c     *clustertest.Cluster
	ns    string
	r     *rand.Rand
	names []string
	blows int
}

func (h *chaos) must(err error) {
	h.Helper()
	if err != nil {
		h.Fatal(err)
	}
}

func (h *chaos) install(n int) {
	h.Helper()
	bounds := []intstr.IntOrString{intstr.FromInt32(0), intstr.FromInt32(1), intstr.FromString("25%"), intstr.FromString("50%")}
	for i := range n {
		name := fmt.Sprintf("web-%02d", i)
		h.names = append(h.names, name)
		surge, unavailable := bounds[h.r.IntN(4)], bounds[h.r.IntN(4)]
		if surge.String() == "0" && unavailable.String() == "0" {
			surge = bounds[1]
		}
		h.must(h.c.Client.Create(h.Context(), &appsv1.Deployment{
			ObjectMeta: metav1.ObjectMeta{Name: name, Namespace: h.ns},
			Spec: appsv1.DeploymentSpec{
				Replicas: ptr.To(1 + h.r.Int32N(6)), Selector: &metav1.LabelSelector{MatchLabels: map[string]string{"app": name}}, Template: template(name, "v1"),
				RevisionHistoryLimit: ptr.To(h.r.Int32N(3)),
				Strategy:             appsv1.DeploymentStrategy{RollingUpdate: &appsv1.RollingUpdateDeployment{MaxSurge: &surge, MaxUnavailable: &unavailable}},
			},
		}))
		br := &v1alpha1.BatchRelease{ObjectMeta: metav1.ObjectMeta{Name: name, Namespace: h.ns}}
		br.Spec.WorkloadRef = v1alpha1.WorkloadReference{APIVersion: "apps/v1", Kind: "Deployment", Name: name}
		br.Spec.Template, br.Spec.Commit = ptr.To(template(name, "v1")), commitOf("v1")
		for _, replicas := range [][]string{{"1", "100%"}, {"50%", "100%"}, {"20%", "2", "75%", "100%"}}[h.r.IntN(3)] {
			step := v1alpha1.Step{Replicas: intstr.Parse(replicas)}
			if h.r.IntN(2) == 0 && replicas != "100%" {
				step.Pause = &v1alpha1.Pause{Duration: metav1.Duration{Duration: time.Duration(h.r.IntN(2)) * time.Second}}
			}
			br.Spec.Strategy.Steps = append(br.Spec.Strategy.Steps, step)
		}
		h.must(h.c.Client.Create(h.Context(), br))
	}
}

// strike does one thing to one Deployment.
func (h *chaos) strike() {
	h.Helper()
	h.blows++
	name := h.names[h.r.IntN(len(h.names))]
	var err error
	switch h.r.IntN(10) {
	case 0, 1:
		err = h.scale(name, h.r.Int32N(7))
	case 2, 3, 4:
		err = h.bring(name, fmt.Sprintf("v%d", 1+h.r.IntN(4)))
	case 5, 6, 7:
		err = h.approve(name)
	case 8:
		err = h.deletePod(name)
	case 9:
		err = h.edit(name, func(br *v1alpha1.BatchRelease) {
			if h.r.IntN(3) == 0 {
				br.Annotations = map[string]string{v1alpha1.AnnotationRollback: "true"}
			} else {
				br.Spec.Paused = !br.Spec.Paused
			}
		})
	}
	if !apierrors.IsConflict(err) {
		h.must(err)
	}
}

func (h *chaos) scale(name string, n int32) error {
	d := &appsv1.Deployment{ObjectMeta: metav1.ObjectMeta{Name: name, Namespace: h.ns}}
	return h.c.Client.Patch(h.Context(), d, client.RawPatch("application/merge-patch+json", []byte(fmt.Sprintf(`{"spec":{"replicas":%d}}`, n))))
}

func (h *chaos) bring(name, tag string) error {
	return h.edit(name, func(br *v1alpha1.BatchRelease) {
		br.Spec.Template, br.Spec.Approval = ptr.To(template(name, tag)), nil
		br.Spec.Commit = fmt.Sprintf("%040x", h.blows)
	})
}

func (h *chaos) approve(name string) error {
	return h.edit(name, func(br *v1alpha1.BatchRelease) {
		br.Spec.Approval = &v1alpha1.Approval{Revision: br.Status.UpdateRevision, Commit: br.Spec.Commit, Step: h.r.Int32N(4), ApprovedBy: "Ada"}
	})
}

func (h *chaos) edit(name string, change func(*v1alpha1.BatchRelease)) error {
	var br v1alpha1.BatchRelease
	if err := h.c.Client.Get(h.Context(), client.ObjectKey{Namespace: h.ns, Name: name}, &br); err != nil {
		return err
	}
	old := br.DeepCopy()
	change(&br)
	return h.c.Client.Patch(h.Context(), &br, client.MergeFrom(old))
}

func (h *chaos) deletePod(name string) error {
	var pods corev1.PodList
	if err := h.c.Client.List(h.Context(), &pods, client.InNamespace(h.ns), client.MatchingLabels{"app": name}); err != nil || len(pods.Items) == 0 {
		return err
	}
	return client.IgnoreNotFound(h.c.Client.Delete(h.Context(), &pods.Items[h.r.IntN(len(pods.Items))]))
}

// calm lets everything come to its end: all gates open, nothing paused, some
// replicas.
func (h *chaos) calm() {
	h.Helper()
	for _, name := range h.names {
		h.must(h.scale(name, 1+h.r.Int32N(5)))
		clustertest.Wait(h, "the plan of "+name+" to be opened", func() error {
			return h.edit(name, func(br *v1alpha1.BatchRelease) {
				br.Spec.Paused = false
				for i := range br.Spec.Strategy.Steps[:len(br.Spec.Strategy.Steps)-1] {
					br.Spec.Strategy.Steps[i].Pause = &v1alpha1.Pause{}
				}
			})
		})
	}
	clustertest.Wait(h, "all releases to end", func() error {
		return h.each(func(br *v1alpha1.BatchRelease) bool {
			return br.Status.Phase == v1alpha1.PhaseCompleted && br.Status.ObservedGeneration == br.Generation && br.Annotations[v1alpha1.AnnotationRollback] == "" &&
				(br.Status.Reason == engine.ReasonReleaseCompleted || br.Status.Reason == engine.ReasonRolledBack)
		})
	})
}

// each returns an error that names the releases which are not as they should be.
func (h *chaos) each(ok func(*v1alpha1.BatchRelease) bool) error {
	var list v1alpha1.BatchReleaseList
	if err := h.c.Client.List(h.Context(), &list, client.InNamespace(h.ns)); err != nil {
		return err
	}
	var not []string
	for i := range list.Items {
		if br := &list.Items[i]; !ok(br) {
			not = append(not, fmt.Sprintf("%s %s step %d %s: %s", br.Name, br.Status.Phase, br.Status.CurrentStepIndex, br.Status.Reason, br.Status.Message))
		}
	}
	if len(not) > 0 {
		return fmt.Errorf("%d are not: %s", len(not), strings.Join(not[:min(5, len(not))], "; "))
	}
	return nil
}

// judge reads what is there in the end, once the native controller, too, has
// nothing to do any more.
func (h *chaos) judge() {
	h.Helper()
	clustertest.Wait(h, "what runs to be what was asked for last", func() error {
		wrong := h.wrong()
		if len(wrong) == 0 {
			return nil
		}
		return fmt.Errorf("%d Deployments are not: %s", len(wrong), strings.Join(slices.Sorted(maps.Keys(wrong)), "; "))
	})
}

func (h *chaos) wrong() map[string]bool {
	h.Helper()
	var deployments appsv1.DeploymentList
	var sets appsv1.ReplicaSetList
	var releases v1alpha1.BatchReleaseList
	for _, list := range []client.ObjectList{&deployments, &sets, &releases} {
		h.must(h.c.Client.List(h.Context(), list, client.InNamespace(h.ns)))
	}
	wanted := map[string]string{} // image
	for _, br := range releases.Items {
		wanted[br.Name] = br.Spec.Template.Spec.Containers[0].Image
		if br.Status.Reason == engine.ReasonRolledBack {
			wanted[br.Name] = "not " + wanted[br.Name]
		}
	}
	wrong := map[string]bool{}
	for i := range deployments.Items {
		d := &deployments.Items[i]
		image := d.Spec.Template.Spec.Containers[0].Image
		refused, rolledBack := strings.CutPrefix(wanted[d.Name], "not ")
		if rolledBack == (image == refused) || d.Spec.Paused || d.Labels[v1alpha1.LabelHeld] != "" || d.Spec.Strategy.Type != appsv1.RollingUpdateDeploymentStrategyType || d.Status.AvailableReplicas != *d.Spec.Replicas {
			wrong[fmt.Sprintf("%s runs %s, wanted %s: paused=%t, held %q, %d of %d available", d.Name, image, wanted[d.Name], d.Spec.Paused, d.Labels[v1alpha1.LabelHeld], d.Status.AvailableReplicas, *d.Spec.Replicas)] = true
		}
		for _, rs := range sets.Items {
			if metav1.IsControlledBy(&rs, d) && *rs.Spec.Replicas > 0 && rs.Spec.Template.Spec.Containers[0].Image != image {
				wrong[fmt.Sprintf("%s has %d pods of %s beside %s", d.Name, *rs.Spec.Replicas, rs.Spec.Template.Spec.Containers[0].Image, image)] = true
			}
		}
	}
	return wrong
}
