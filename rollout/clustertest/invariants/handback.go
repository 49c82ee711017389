package invariants

import (
	"maps"
	"slices"
	"strconv"
	"strings"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/tranche-dev/tranche/plan"
	"github.com/tranche-dev/tranche/plan/v1alpha1"
	"github.com/tranche-dev/tranche/rollout/engine"
)

// judgeHold checks I8.
func (j *Judge) judgeHold(d *deployment) {
	j.judged["I8"]++
	if !d.Spec.Paused && d.Spec.Strategy.Type == appsv1.RecreateDeploymentStrategyType {
		j.fail(d, "I8: held, Recreate and not paused")
	}
}

// judgeHandBack checks I7 at the write that takes the label away.
func (j *Judge) judgeHandBack(d *deployment) {
	j.judged["I7"]++
	if d.Spec.Paused {
		j.fail(d, "I7: handed back, and still paused")
	}
	asWritten := func(s *appsv1.DeploymentStrategy) bool {
		return equality.Semantic.DeepEqual(complete(s), complete(&d.Spec.Strategy))
	}
	if wanted := j.ns.strategies(d); len(wanted) > 0 && !slices.ContainsFunc(wanted, asWritten) {
		j.fail(d, "I7: handed back with strategy %s, and the manifest's is %s", encode(d.Spec.Strategy), encode(wanted[0]))
	}
	for _, e := range d.ManagedFields {
		if e.Manager == v1alpha1.ManagerRollout && (owns(e, "f:metadata", "f:labels", "f:"+v1alpha1.LabelHeld) || owns(e, "f:spec", "f:paused")) {
			j.fail(d, "I7: %s still owns the hold's fields", e.Manager)
		}
	}
	j.judgeDelivered(d)
	j.judgeMarks(d, "Deployment", d.Deployment, nil, ofPeople)
	for _, rs := range j.ns.setsOf(d) {
		j.judgeMarks(d, "ReplicaSet", rs, &rs.Spec.Template, j.allowed(d, rs))
	}
	j.judgeSizeAnnotations(d, true)
}

// ofPeople are the annotations that people write in their manifests.
var ofPeople = []string{v1alpha1.AnnotationReconcile, v1alpha1.AnnotationPrune, v1alpha1.AnnotationForce}

// judgeMarks checks that an object bears nothing of ours but what is allowed.
func (j *Judge) judgeMarks(d *deployment, kind string, o client.Object, t *corev1.PodTemplateSpec, allowed []string) {
	marks := map[string]map[string]string{"label": o.GetLabels(), "annotation": o.GetAnnotations()}
	if t != nil {
		marks["label of the template"], marks["annotation of the template"] = t.Labels, t.Annotations
	}
	for _, what := range slices.Sorted(maps.Keys(marks)) {
		for _, k := range slices.Sorted(maps.Keys(marks[what])) {
			if strings.HasPrefix(k, v1alpha1.Group+"/") && !slices.Contains(allowed, k) {
				j.fail(d, "I7: %s %s on %s %s", what, k, kind, o.GetName())
			}
		}
	}
}

// Older says that a version leads that does not know the label of a hold on ReplicaSets. It
// leaves the label where it is.
func (j *Judge) Older() { j.ns.older = true }

// allowed are the labels and annotations of ours that a ReplicaSet may bear. It loses the label
// of the hold before the hold ends.
func (j *Judge) allowed(d *deployment, rs *appsv1.ReplicaSet) []string {
	if Held(d.Deployment) || j.ns.older || labelledByOthers(rs) {
		return append(slices.Clone(ofPeople), v1alpha1.LabelHeld)
	}
	return ofPeople
}

// labelledByOthers reports whether another user has given a ReplicaSet the label of a hold.
func labelledByOthers(rs *appsv1.ReplicaSet) bool {
	return slices.ContainsFunc(rs.ManagedFields, func(e metav1.ManagedFieldsEntry) bool {
		return e.Manager != v1alpha1.ManagerRollout && owns(e, "f:metadata", "f:labels", "f:"+v1alpha1.LabelHeld)
	})
}

// judgeSizeAnnotations checks H11: with an only active ReplicaSet of size N
// that says otherwise the native controller never makes another one.
func (j *Judge) judgeSizeAnnotations(d *deployment, surge bool) {
	active := slices.DeleteFunc(j.ns.setsOf(d), func(rs *appsv1.ReplicaSet) bool { return *rs.Spec.Replicas == 0 })
	if len(active) != 1 || *active[0].Spec.Replicas != *d.Spec.Replicas {
		return
	}
	rs := active[0]
	desired, maximum := rs.Annotations[engine.AnnotationDesiredReplicas], rs.Annotations[engine.AnnotationMaxReplicas]
	j.judged["H11"]++
	var wantDesired, wantMaximum []string
	for _, n := range d.replicas.within(j.ns.now) {
		s, _, err := plan.Bounds(&d.Spec.Strategy, n)
		if err != nil {
			continue
		}
		wantDesired, wantMaximum = append(wantDesired, strconv.Itoa(int(n))), append(wantMaximum, strconv.Itoa(int(n+s)))
	}
	if !surge && isMarked(rs, j.ns.now) || mismarked(j.ns, rs, surge) {
		return
	}
	surge = surge && j.ns.now.Sub(d.tookOver) > lag && j.ns.now.Sub(d.resized) > lag
	if !slices.Contains(wantDesired, desired) || surge && !slices.Contains(wantMaximum, maximum) {
		j.fail(d, "I7: the only ReplicaSet with pods, %s, has desired-replicas %q and max-replicas %q; want %s and %s",
			rs.Name, desired, maximum, wantDesired[0], wantMaximum[0])
	}
}

// isMarked reports whether Tranche has given a ReplicaSet another desired size within lag.
// It does so before a hold where several have pods: the native controller would take one of
// size N for saturated (H6). Its rollout may end before the hold comes.
func isMarked(rs *appsv1.ReplicaSet, now time.Time) bool {
	return slices.ContainsFunc(rs.ManagedFields, func(e metav1.ManagedFieldsEntry) bool {
		return e.Manager == v1alpha1.ManagerRollout && e.Time != nil && now.Sub(e.Time.Time) <= lag &&
			owns(e, "f:metadata", "f:annotations", "f:"+engine.AnnotationDesiredReplicas)
	})
}

// judgeDelivered checks I3 at a hand-back: the native controller brings all pods to
// the template that it is handed.
func (j *Judge) judgeDelivered(d *deployment) {
	l, p := j.ledgerOf(d.Name), j.ns.planOf(d, false)
	t := &d.Spec.Template
	if !l.gates(d, p, t) || l.hasAdmitted(t) {
		return
	}
	if j.ns.planOf(d, true) != nil {
		return // it is for the plan that was deleted, and the next one has not been seen
	}
	n, size := *d.Spec.Replicas, j.ns.sizeOf(d, t)
	limit, _, of := l.limitOf(d, p, t)
	switch {
	case of == nil:
		j.fail(d, "I3: handed back with a template that is neither stable nor what spec brings")
	case n > 0 && (size >= n || limit >= n), n == 0 && of.whole(p.Spec.Strategy.Steps):
		j.judged["I3"]++
	default:
		j.fail(d, "I3: handed back with %d of %d pods, and the limit is %d: %s", size, n, limit, of)
	}
}
