package rollout_test

import (
	"errors"
	"flag"
	"fmt"
	"maps"
	"math/rand/v2"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/intstr"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/tranche-dev/tranche/plan"
	"github.com/tranche-dev/tranche/plan/v1alpha1"
	"github.com/tranche-dev/tranche/rollout/clustertest"
)

var chaosSeed = flag.Uint64("chaos.seed", uint64(time.Now().UnixNano()), "seed of the chaos")

// TestChaos lets everything happen at once to 50 Deployments. There are releases,
// supersessions, rollbacks, edits of plans, approvals in spec and in the status, scaling
// to zero and back. Pods are deleted. Users change ReplicaSets by hand; see [chaosSets].
// Deployments and BatchReleases are deleted and created again. Admission policies and a
// quota come and go; see [chaosAdmissions]. The controller is a process that gets SIGKILL or SIGTERM again and again.
// The watcher judges every event. When it is over, each Deployment comes to the last
// template that was asked for. It takes 30 seconds in the suite, and five minutes with -full.
//
// Two things are left out. A status with more than an approval in it is refused
// (config/policy); [TestWatcherCountsGates] forges one. A restart of the API server
// would disturb the tests beside this one; [TestAPIServerRestart] does that.
func TestChaos(t *testing.T) {
	t.Parallel()
	seed := *chaosSeed
	t.Logf("-chaos.seed=%d", seed)
	r := rand.New(rand.NewPCG(seed, seed))
	c := clustertest.Shared(t)
	ns := c.Namespace(t)
	w := c.Watch(t, ns)
	w.Unguarded()
	h := &chaos{
		T: t, c: c, ns: ns, r: r,
		struck: map[string]int{}, strategies: map[string]appsv1.DeploymentStrategy{}, absent: map[string]*v1alpha1.BatchRelease{},
	}
	h.install(50)
	admissions := &chaosAdmissions{chaos: h}
	end := startProcess(t, c, ns)
	clustertest.Wait(t, "all plans to be seen", func() error {
		_, err := h.each(func(br *v1alpha1.BatchRelease) bool { return br.Status.Phase != "" })
		return err
	})

	lasts := 30 * time.Second
	if *fullFaults {
		lasts = 5 * time.Minute
	}
	ends, next := map[syscall.Signal]int{}, time.Now().Add(3*time.Second)
	turn := time.Now().Add(5 * time.Second)
	for over := time.Now().Add(lasts); time.Now().Before(over); {
		h.strike()
		if time.Now().After(turn) {
			admissions.turn()
			turn = time.Now().Add(5 * time.Second)
		}
		if time.Now().After(next) {
			by := []syscall.Signal{syscall.SIGKILL, syscall.SIGTERM}[r.IntN(2)]
			end(by)
			ends[by]++
			end, next = startProcess(t, c, ns), time.Now().Add(time.Duration(2000+r.IntN(6000))*time.Millisecond)
		}
	}
	admissions.takeAway()
	h.calm()
	h.judge()
	t.Logf("%d blows %v, ends %v; judged I1 %d, I2 %d, I3 %d, I5 %d, I7 %d, I8 %d, I10 %d, H11 %d times",
		h.blows, h.struck, ends, w.Judged("I1"), w.Judged("I2"), w.Judged("I3"), w.Judged("I5"), w.Judged("I7"), w.Judged("I8"), w.Judged("I10"),
		w.Judged("H11"))
}

type chaos struct {
	*testing.T
	c     *clustertest.Cluster
	ns    string
	r     *rand.Rand
	names []string
	blows int
	// struck counts the blows of each kind.
	struck map[string]int
	// strategies are those of the manifests.
	strategies map[string]appsv1.DeploymentStrategy
	// absent are BatchReleases that are deleted, to be created again.
	absent map[string]*v1alpha1.BatchRelease
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
		h.strategies[name] = appsv1.DeploymentStrategy{RollingUpdate: &appsv1.RollingUpdateDeployment{MaxSurge: &surge, MaxUnavailable: &unavailable}}
		h.must(h.c.Client.Create(h.Context(), &appsv1.Deployment{
			ObjectMeta: metav1.ObjectMeta{Name: name, Namespace: h.ns, Labels: map[string]string{"admission": fmt.Sprint(i%5 == 0)}},
			Spec: appsv1.DeploymentSpec{
				Replicas: ptr.To(1 + h.r.Int32N(6)), Selector: &metav1.LabelSelector{MatchLabels: map[string]string{"app": name}}, Template: template(name, "v1"),
				RevisionHistoryLimit: ptr.To(h.r.Int32N(3)),
				Strategy:             h.strategies[name],
			},
		}))
		br := &v1alpha1.BatchRelease{ObjectMeta: metav1.ObjectMeta{Name: name, Namespace: h.ns}}
		br.Spec.WorkloadRef = v1alpha1.WorkloadReference{APIVersion: "apps/v1", Kind: "Deployment", Name: name}
		br.Spec.Template, br.Spec.Commit = ptr.To(template(name, "v1")), commitOf("v1")
		br.Spec.Strategy.Steps = h.steps()
		h.must(h.c.Client.Create(h.Context(), br))
	}
}

// steps is a plan.
func (h *chaos) steps() []v1alpha1.Step {
	var steps []v1alpha1.Step
	for _, replicas := range [][]string{{"1", "100%"}, {"50%", "100%"}, {"20%", "2", "75%", "100%"}, {"2", "60%", "100%"}}[h.r.IntN(4)] {
		step := v1alpha1.Step{Replicas: intstr.Parse(replicas)}
		if h.r.IntN(2) == 0 && replicas != "100%" {
			step.Pause = &v1alpha1.Pause{Duration: metav1.Duration{Duration: time.Duration(h.r.IntN(2)) * time.Second}}
		}
		steps = append(steps, step)
	}
	return steps
}

// strike does one thing to one Deployment.
func (h *chaos) strike() {
	h.Helper()
	h.blows++
	name := h.names[h.r.IntN(len(h.names))]
	if br := h.absent[name]; br != nil {
		h.plan(name, br)
		return
	}
	kind := kinds[h.r.IntN(len(kinds))]
	if kind != "replicaset" {
		h.struck[kind]++
	}
	var err error
	switch kind {
	case "scale":
		err = h.scale(name, h.r.Int32N(7))
	case "bring":
		err = h.bring(name, fmt.Sprintf("v%d", 1+h.r.IntN(4)))
	case "approve":
		err = h.approve(name)
	case "complete":
		err = h.complete(name)
	case "steps":
		err = h.edit(name, func(br *v1alpha1.BatchRelease) { br.Spec.Strategy.Steps = h.steps() })
	case "pause":
		err = h.edit(name, func(br *v1alpha1.BatchRelease) { br.Spec.Paused = !br.Spec.Paused })
	case "rollback":
		err = h.edit(name, func(br *v1alpha1.BatchRelease) {
			metav1.SetMetaDataAnnotation(&br.ObjectMeta, v1alpha1.AnnotationRollback, "true")
		})
	case "pod":
		err = h.deletePod(name)
	case "replicaset":
		err = (&chaosSets{h, name}).strike()
	case "deployment":
		err = h.replaceDeployment(name)
	case "batchrelease":
		err = h.deletePlan(name)
	}
	h.tried(err)
}

// tried fails the test unless a change was made, or was not because others change the object all the time.
func (h *chaos) tried(err error) {
	h.Helper()
	if !apierrors.IsConflict(err) {
		h.must(err)
	}
}

// kinds of blows, as often as they are struck.
var kinds = slices.Concat(slices.Repeat([]string{"scale"}, 7), slices.Repeat([]string{"bring", "approve"}, 8),
	slices.Repeat([]string{"complete"}, 4), slices.Repeat([]string{"pod"}, 3), slices.Repeat([]string{"replicaset"}, 8), slices.Repeat([]string{"steps", "pause"}, 2),
	[]string{"rollback", "deployment", "batchrelease"})

// complete approves the current step in the status.
func (h *chaos) complete(name string) error {
	br := &v1alpha1.BatchRelease{ObjectMeta: metav1.ObjectMeta{Name: name, Namespace: h.ns}}
	return h.c.Client.Status().Patch(h.Context(), br, client.RawPatch("application/merge-patch+json", []byte(`{"status":{"currentStepState":"Completed"}}`)), byHandOf)
}

// byHandOf is the field manager of what users do by hand.
var byHandOf = client.FieldOwner("ada")

// replaceDeployment deletes a Deployment and creates it again, at any template.
func (h *chaos) replaceDeployment(name string) error {
	d := &appsv1.Deployment{}
	if err := h.c.Client.Get(h.Context(), client.ObjectKey{Namespace: h.ns, Name: name}, d); err != nil {
		return err
	}
	if err := h.c.Client.Delete(h.Context(), d, client.PropagationPolicy(metav1.DeletePropagationBackground)); err != nil {
		return err
	}
	next := &appsv1.Deployment{ObjectMeta: metav1.ObjectMeta{Name: name, Namespace: h.ns, Labels: map[string]string{"admission": d.Labels["admission"]}}, Spec: *d.Spec.DeepCopy()}
	next.Spec.Paused, next.Spec.Strategy = false, h.strategies[name]
	next.Spec.Template = template(name, fmt.Sprintf("v%d", 1+h.r.IntN(4)))
	return h.c.Client.Create(h.Context(), next, byHandOf)
}

// deletePlan deletes a BatchRelease, to be created again by a later blow.
func (h *chaos) deletePlan(name string) error {
	br := &v1alpha1.BatchRelease{}
	if err := h.c.Client.Get(h.Context(), client.ObjectKey{Namespace: h.ns, Name: name}, br); err != nil {
		return err
	}
	h.absent[name] = br
	return h.c.Client.Delete(h.Context(), br)
}

// plan creates a BatchRelease again, once the one before is gone.
func (h *chaos) plan(name string, old *v1alpha1.BatchRelease) {
	h.Helper()
	br := &v1alpha1.BatchRelease{ObjectMeta: metav1.ObjectMeta{Name: name, Namespace: h.ns}, Spec: *old.Spec.DeepCopy()}
	br.Spec.Commit, br.Spec.Approval = fmt.Sprintf("%040x", h.blows), nil
	err := h.c.Client.Create(h.Context(), br, byHandOf)
	if apierrors.IsAlreadyExists(err) {
		return
	}
	h.must(err)
	delete(h.absent, name)
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

// calm lets everything come to its end. Every plan is there and not paused, and there are
// some replicas. Each step that waits for an approval gets
// it.
func (h *chaos) calm() {
	h.Helper()
	for _, name := range h.names {
		clustertest.Wait(h, "the plan of "+name+" to be there", func() error {
			if br := h.absent[name]; br != nil {
				h.plan(name, br)
			}
			if h.absent[name] != nil {
				return errors.New("the one before is not gone")
			}
			return nil
		})
		size := 1 + h.r.Int32N(5)
		clustertest.Wait(h, name+" to be scaled", func() error { return h.scale(name, size) })
		clustertest.Wait(h, "the plan of "+name+" to be opened", func() error {
			return h.edit(name, func(br *v1alpha1.BatchRelease) {
				br.Spec.Paused = false
				for i := range br.Spec.Strategy.Steps[:len(br.Spec.Strategy.Steps)-1] {
					br.Spec.Strategy.Steps[i].Pause = &v1alpha1.Pause{}
				}
			})
		})
	}
	for left := len(h.names); left > 0; {
		clustertest.Wait(h, fmt.Sprintf("%d releases to end", left), func() error {
			now, err := h.each(ended)
			if now < left {
				left = now
				return nil
			}
			h.approveWaiting()
			return err
		})
	}
}

func ended(br *v1alpha1.BatchRelease) bool {
	return br.Status.Phase == v1alpha1.PhaseCompleted && br.Status.ObservedGeneration == br.Generation && br.Annotations[v1alpha1.AnnotationRollback] == "" &&
		(br.Status.Reason == v1alpha1.ReasonReleaseCompleted || br.Status.Reason == v1alpha1.ReasonRolledBack)
}

// refusals are the reasons of a write that admission has refused.
var refusals = map[string]bool{
	v1alpha1.ReasonWriteRefused: true, v1alpha1.ReasonTemplateRefused: true, v1alpha1.ReasonHandBackRefused: true,
}

// approveWaiting approves all steps of the releases that wait for it. An edit of the plan
// may have left them at a gate that no pause opens.
func (h *chaos) approveWaiting() {
	h.Helper()
	var list v1alpha1.BatchReleaseList
	h.must(h.c.Client.List(h.Context(), &list, client.InNamespace(h.ns)))
	for _, br := range list.Items {
		switch {
		case br.Status.ObservedGeneration != br.Generation:
			continue
		case refusals[br.Status.Reason]: // it tries again in a minute, or once a user changes the plan
			h.tried(h.edit(br.Name, func(br *v1alpha1.BatchRelease) {
				metav1.SetMetaDataAnnotation(&br.ObjectMeta, "example.org/look", br.ResourceVersion)
			}))
			continue
		case br.Status.Reason != v1alpha1.ReasonWaitingForApproval:
			continue
		}
		h.tried(h.edit(br.Name, func(br *v1alpha1.BatchRelease) {
			br.Spec.Approval = &v1alpha1.Approval{
				Revision: br.Status.UpdateRevision, Commit: br.Spec.Commit, Step: 29, Steps: plan.StepReplicas(br.Spec.Strategy.Steps),
			}
		}))
	}
}

// each returns how many releases are not as they should be, and an error that names
// them.
func (h *chaos) each(ok func(*v1alpha1.BatchRelease) bool) (int, error) {
	var list v1alpha1.BatchReleaseList
	if err := h.c.Client.List(h.Context(), &list, client.InNamespace(h.ns)); err != nil {
		return len(h.names), err
	}
	var not []string
	for i := range list.Items {
		if br := &list.Items[i]; !ok(br) {
			not = append(not, fmt.Sprintf("%s %s step %d %s: %s", br.Name, br.Status.Phase, br.Status.CurrentStepIndex, br.Status.Reason, br.Status.Message))
		}
	}
	if len(not) > 0 {
		return len(not), fmt.Errorf("%d are not: %s", len(not), strings.Join(not[:min(5, len(not))], "; "))
	}
	return 0, nil
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
		if br.Status.Reason == v1alpha1.ReasonRolledBack {
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
