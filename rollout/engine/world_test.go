package engine_test

import (
	"fmt"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/intstr"

	"github.com/tranche-dev/tranche/plan"
	"github.com/tranche-dev/tranche/plan/v1alpha1"
	"github.com/tranche-dev/tranche/rollout/engine"
)

// world is a model of what a release lives in: a Deployment, its ReplicaSets
// and pods, and the native controllers as NATIVE.md says they act. Everything
// but Decide is a dumb copy of the facts.
type world struct {
	n, surge, unavailable int32
	// bounds are maxSurge and maxUnavailable as the manifest has them; none:
	// surge and unavailable, whatever n is.
	bounds *[2]intstr.IntOrString

	generation, observed int64
	template             int // of the Deployment: index into templates
	paused, recreate     bool
	held                 bool
	sets                 [versions]replicaSet
	records              []int // versions that have been stable, newest first
	releasing            []int // versions on record that have not

	brought  int
	commits  int // how many there were: the last one brings what is brought
	spec     v1alpha1.BatchReleaseSpec
	status   v1alpha1.BatchReleaseStatus
	approved int32
	changes  int
	badPlan  bool // its steps go down
	scaled   int  // how often N has changed

	measured measuredWorld // what was measured; empty without an analysis

	fights []string
	path   *step // how it came about, for the message of a failed check
}

const versions = 3

// replicaSet: ready pods are available, pending ones become so, stuck ones never do. The
// status is as of the ReplicaSet controller's last turn.
type replicaSet struct {
	exists                bool
	size                  int32
	ready, pending, stuck int32
	statusReady           int32
	observed              bool
	desired, maximum      int32
	sizedAt               int  // how often N had changed when it got its size
	stuckPods             bool // new pods of this version are stuck
	labelled              bool // as of a hold
}

var epoch = time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC)

var templates = func() (ts [versions]*corev1.PodTemplateSpec) {
	for i := range ts {
		ts[i] = &corev1.PodTemplateSpec{
			ObjectMeta: metav1.ObjectMeta{Labels: map[string]string{"app": "web"}},
			Spec:       corev1.PodSpec{Containers: []corev1.Container{{Name: "web", Image: "web:v" + strconv.Itoa(i+1)}}},
		}
	}
	return ts
}()

var hashes = func() (hs [versions]string) {
	for i, t := range templates {
		hs[i] = plan.TemplateHash(t, nil, 0)
	}
	return hs
}()

var digests = func() (ds [versions]string) {
	for i, t := range templates {
		ds[i] = plan.TemplateDigest(t)
	}
	return ds
}()

// hashed are the templates as ReplicaSets have them. Their containers are shared, which
// spares comparing them in each of some hundred thousand states.
var hashed = func() (ts [versions]corev1.PodTemplateSpec) {
	for i, t := range templates {
		ts[i] = *t
		ts[i].Labels = map[string]string{"app": "web", appsv1.DefaultDeploymentUniqueLabelKey: hashes[i]}
	}
	return ts
}()

// commitOf is the first commit that brings a version.
func commitOf(version int) string { return commitNumber(version, 0) }

// commitNumber is the commit that brings a version after so many others.
func commitNumber(version, commits int) string {
	return fmt.Sprintf("%d%07d%032d", version+1, commits, 0)
}

func (w *world) commit() string { return commitNumber(w.brought, w.commits) }

func versionOf(t *corev1.PodTemplateSpec) int {
	for i := range templates { // they differ in nothing else
		if templates[i].Spec.Containers[0].Image == t.Spec.Containers[0].Image {
			return i
		}
	}
	panic("no such template")
}

// newWorld is a Deployment of n pods that all run the first version.
func newWorld(n, surge, unavailable int32, steps ...string) *world {
	w := &world{n: n, surge: surge, unavailable: unavailable, generation: 1, observed: 1}
	for _, s := range steps {
		w.spec.Strategy.Steps = append(w.spec.Strategy.Steps, v1alpha1.Step{Replicas: intstr.Parse(s)})
	}
	w.spec.WorkloadRef.Name = "web"
	w.sets[0] = replicaSet{exists: true, size: n, ready: n, statusReady: n, observed: true, desired: n, maximum: n + surge}
	w.approved = -1
	return w
}

func (w *world) clone() *world {
	c := *w
	c.records = append([]int(nil), w.records...)
	c.releasing = append([]int(nil), w.releasing...)
	c.fights = append([]string(nil), w.fights...)
	return &c
}

func (w *world) strategy() appsv1.DeploymentStrategy {
	if w.recreate {
		return appsv1.DeploymentStrategy{Type: appsv1.RecreateDeploymentStrategyType}
	}
	s, u := intstr.FromInt32(w.surge), intstr.FromInt32(w.unavailable)
	if w.bounds != nil {
		s, u = w.bounds[0], w.bounds[1]
	}
	return appsv1.DeploymentStrategy{Type: appsv1.RollingUpdateDeploymentStrategyType, RollingUpdate: &appsv1.RollingUpdateDeployment{MaxSurge: &s, MaxUnavailable: &u}}
}

// observe builds what Decide is given.
func (w *world) observe() engine.Observed {
	replicas := w.n
	d := &appsv1.Deployment{
		ObjectMeta: metav1.ObjectMeta{Name: "web", Namespace: "shop", UID: types.UID("d"), Generation: w.generation},
		Spec: appsv1.DeploymentSpec{
			Replicas: &replicas, Paused: w.paused, Strategy: w.strategy(), Template: *templates[w.template],
			Selector: &metav1.LabelSelector{MatchLabels: map[string]string{"app": "web"}},
		},
		Status: appsv1.DeploymentStatus{ObservedGeneration: w.observed},
	}
	for i, rs := range w.sets {
		pods := rs.ready + rs.pending + rs.stuck
		d.Status.Replicas += pods
		d.Status.AvailableReplicas += rs.statusReady
		if i == w.template {
			d.Status.UpdatedReplicas = pods
		}
	}
	if w.held {
		d.Labels = map[string]string{v1alpha1.LabelHeld: "true"}
	}
	o := engine.Observed{Release: &v1alpha1.BatchRelease{Spec: w.spec, Status: w.status}, Deployment: d, Template: templates[w.brought]}
	o.Release.Spec.Template = templates[w.brought]
	if w.badPlan {
		o.Release.Spec.Strategy.Steps = []v1alpha1.Step{{Replicas: intstr.FromInt32(2)}, {Replicas: intstr.FromInt32(1)}, {Replicas: plan.Full}}
	}
	o.Release.Spec.Commit = w.commit()
	if w.approved >= 0 {
		o.Release.Spec.Approval = &v1alpha1.Approval{Revision: hashes[w.brought], Commit: o.Release.Spec.Commit, Step: w.approved}
	}
	w.measured.observe(w, &o)
	for i, rs := range w.sets {
		if rs.exists {
			o.ReplicaSets = append(o.ReplicaSets, w.object(i, rs))
		}
	}
	s := appsv1.DeploymentStrategy{}
	for i, version := range w.records {
		world := *w
		world.recreate = false
		s = world.strategy()
		o.Records = append(o.Records, record(version, int64(len(w.records)-i), &s))
	}
	for _, version := range w.releasing {
		o.Records = append(o.Records, record(version, 0, &s))
	}
	return o
}

func record(version int, order int64, s *appsv1.DeploymentStrategy) engine.Record {
	return engine.Record{Name: hashes[version], Order: order, Revision: hashes[version], Template: templates[version], Sent: digests[version], Strategy: s}
}

func (w *world) object(i int, rs replicaSet) *appsv1.ReplicaSet {
	size, generation := rs.size, int64(1)
	if rs.observed {
		generation = 0
	}
	labels := map[string]string{appsv1.DefaultDeploymentUniqueLabelKey: hashes[i]}
	if rs.labelled {
		labels[v1alpha1.LabelHeld] = "true"
	}
	return &appsv1.ReplicaSet{
		ObjectMeta: metav1.ObjectMeta{
			Name: "web-" + hashes[i], Generation: generation, CreationTimestamp: metav1.Time{Time: epoch.Add(time.Duration(i) * time.Second)},
			Labels: labels,
			Annotations: map[string]string{
				engine.AnnotationDesiredReplicas: strconv.Itoa(int(rs.desired)), engine.AnnotationMaxReplicas: strconv.Itoa(int(rs.maximum)),
			},
		},
		Spec:   appsv1.ReplicaSetSpec{Replicas: &size, Template: hashed[i]},
		Status: appsv1.ReplicaSetStatus{ReadyReplicas: rs.statusReady, AvailableReplicas: rs.statusReady},
	}
}

// scale sets N, and with it what percentages come to.
func (w *world) scale(n int32) {
	w.n = n
	w.scaled++
	if w.bounds != nil {
		s := w.strategy()
		if w.recreate {
			s = appsv1.DeploymentStrategy{RollingUpdate: &appsv1.RollingUpdateDeployment{MaxSurge: &w.bounds[0], MaxUnavailable: &w.bounds[1]}}
		}
		w.surge, w.unavailable, _ = plan.Bounds(&s, n)
	}
}

func (w *world) write(f func()) {
	f()
	w.generation++
}

// do makes one write.
func (w *world) do(a engine.Action) {
	label(w, a)
	switch a := a.(type) {
	case engine.Remember:
		version := versionOf(a.Record.Template)
		if a.Written { // admission changes nothing here
			if a.Record.Order == 0 && !slices.Contains(w.releasing, version) && !slices.Contains(w.records, version) {
				w.releasing = append(w.releasing, version)
			}
			return
		}
		if a.Record.Order == 0 {
			w.releasing = append(w.releasing, version)
			return
		}
		if a.Exists && !slices.Contains(w.releasing, version) && a.Record.Order <= int64(len(w.records)) && w.records[0] != version {
			panic("a record that exists must become the newest")
		}
		w.forget(version)
		w.records = append([]int{version}, w.records...)
	case engine.Forget:
		w.forget(versionOf(a.Record.Template))
	case engine.Hold:
		w.write(func() { w.held, w.paused, w.recreate, w.template = true, true, true, versionOf(a.Template) })
	case engine.HandBack:
		w.write(func() {
			w.held, w.paused, w.recreate = false, false, false
			if a.Template != nil {
				w.template = versionOf(a.Template)
			}
		})
	case engine.CreateReplicaSet:
		i := versionOf(&a.ReplicaSet.Spec.Template)
		if w.sets[i].exists {
			panic("created twice")
		}
		desired, _ := strconv.Atoi(a.ReplicaSet.Annotations[engine.AnnotationDesiredReplicas])
		w.sets[i].exists = true
		w.resize(i, *a.ReplicaSet.Spec.Replicas, int32(desired), w.n+w.surge)
	case engine.Resize:
		w.resize(versionOf(&a.ReplicaSet.Spec.Template), a.To, a.Desired, a.Max)
	}
}

// label makes the part of a write that is about the label of a hold.
func label(w *world, a engine.Action) {
	switch a := a.(type) {
	case engine.CreateReplicaSet:
		w.sets[versionOf(&a.ReplicaSet.Spec.Template)].labelled = v1alpha1.HasHeld(a.ReplicaSet.Labels)
	case engine.Resize:
		w.sets[versionOf(&a.ReplicaSet.Spec.Template)].labelled = a.Held
	case engine.UnlabelReplicaSet:
		w.sets[versionOf(&a.ReplicaSet.Spec.Template)].labelled = false
	}
}

func (w *world) forget(version int) {
	is := func(v int) bool { return v == version }
	w.records, w.releasing = slices.DeleteFunc(slices.Clone(w.records), is), slices.DeleteFunc(slices.Clone(w.releasing), is)
}

func (w *world) resize(i int, to, desired, maximum int32) {
	rs := &w.sets[i]
	if rs.size != to {
		rs.observed = false
	}
	rs.size, rs.desired, rs.maximum, rs.sizedAt = to, desired, maximum, w.scaled
}

// turnReplicaSet is the ReplicaSet controller's turn: pods made, the worst
// ones taken away, status written.
func (w *world) turnReplicaSet(i int) {
	rs := &w.sets[i]
	for rs.ready+rs.pending+rs.stuck < rs.size {
		if rs.stuckPods {
			rs.stuck++
		} else {
			rs.pending++
		}
	}
	for rs.ready+rs.pending+rs.stuck > rs.size {
		switch {
		case rs.stuck > 0:
			rs.stuck--
		case rs.pending > 0:
			rs.pending--
		default:
			rs.ready--
		}
	}
	rs.statusReady, rs.observed = rs.ready, true
}

// turnDeployment is the native Deployment controller's turn.
func (w *world) turnDeployment() {
	before := w.sets
	wasHeld := w.held
	active, _ := w.active()
	if w.paused {
		w.nativeScale()
	} else {
		w.nativeRoll()
	}
	w.observed = w.generation
	for i := range w.sets {
		if wasHeld && before[i].size != w.sets[i].size && !w.follows(i, before[i].sizedAt, active) {
			w.fights = append(w.fights, fmt.Sprintf("native: %s from %d to %d", hashes[i], before[i].size, w.sets[i].size))
		}
	}
}

// follows reports whether a native resize under a hold only follows a new N if there is
// nothing to split. It may resize the one active set, or the stable one if none is, but
// never a revision whose next gate is closed. In the few milliseconds in which that can
// happen the native controller does what Decide would.
func (w *world) follows(i int, sizedAt int, active []int) bool {
	last := int(w.status.CurrentStepIndex) == len(w.spec.Strategy.Steps)-1
	gated := hashes[i] == w.status.UpdateRevision && !w.status.RollingBack && !last
	switch len(active) {
	case 0:
		return !gated
	case 1:
		return active[0] == i && w.sets[i].size == w.n && sizedAt != w.scaled && (!gated || w.n == 0)
	}
	return false
}

func (w *world) active() (active []int, total int32) {
	for i, rs := range w.sets {
		if rs.exists && rs.size > 0 {
			active = append(active, i)
			total += rs.size
		}
	}
	return active, total
}

func (w *world) nativeSurge() int32 {
	if w.recreate {
		return 0
	}
	return w.surge
}

func (w *world) native(i int, size int32) { w.resize(i, size, w.n, w.n+w.nativeSurge()) }

// nativeScale is scale() of NATIVE.md.
func (w *world) nativeScale() {
	active, total := w.active()
	fresh := &w.sets[w.template]
	switch {
	case len(active) == 0:
		target := w.template
		if !fresh.exists {
			for i, rs := range w.sets {
				if rs.exists {
					target = i
				}
			}
		}
		if w.sets[target].exists && w.sets[target].size != w.n {
			w.native(target, w.n)
		}
	case len(active) == 1:
		if w.sets[active[0]].size != w.n {
			w.native(active[0], w.n)
		}
	case fresh.exists && fresh.size == w.n && fresh.desired == w.n && fresh.statusReady == w.n:
		for _, i := range active {
			if i != w.template {
				w.native(i, 0)
			}
		}
	case !w.recreate:
		allowed := int32(0)
		if w.n > 0 {
			allowed = w.n + w.surge
		}
		delta := allowed - total
		largest := active[0]
		for _, i := range active {
			if w.sets[i].size > w.sets[largest].size {
				largest = i
			}
		}
		for _, i := range active { // shared out by size, the rest to the largest
			share := w.sets[i].size * delta / total
			w.native(i, max(0, w.sets[i].size+share))
			delta -= share
			total -= w.sets[i].size - share
			if total <= 0 {
				break
			}
		}
		w.native(largest, max(0, w.sets[largest].size+delta))
	}
}

// nativeRoll is the rolling arithmetic of NATIVE.md, and Recreate's.
func (w *world) nativeRoll() {
	active, _ := w.active()
	for _, i := range active {
		if w.sets[i].desired != w.n {
			w.nativeScale()
			return
		}
	}
	fresh := &w.sets[w.template]
	fresh.exists = true
	if w.recreate {
		for i := range w.sets {
			if i != w.template && w.sets[i].size > 0 {
				w.native(i, 0)
			}
		}
		w.native(w.template, w.n)
		return
	}
	_, total := w.active()
	if fresh.size > w.n {
		w.native(w.template, w.n)
		return
	}
	if room := min(w.n+w.surge-total, w.n-fresh.size); room > 0 {
		w.native(w.template, fresh.size+room)
		return
	}
	var available int32
	for _, rs := range w.sets {
		available += min(rs.statusReady, rs.size)
	}
	most := total - (w.n - w.unavail()) - (fresh.size - min(fresh.statusReady, fresh.size))
	for i := range w.sets {
		rs := &w.sets[i]
		if i == w.template || rs.size == 0 || most <= 0 {
			continue
		}
		unready := rs.size - min(rs.statusReady, rs.size)
		k := min(most, unready)
		if k < rs.size {
			k += max(0, min(rs.size-k, most-k, available-(w.n-w.unavail())))
		}
		if k > 0 {
			most -= k
			w.native(i, rs.size-k)
		}
	}
}

func (w *world) unavail() int32 {
	if w.surge == 0 && w.unavailable == 0 {
		return min(1, w.n)
	}
	return min(w.unavailable, w.n)
}

// available is how many pods are left once every ReplicaSet has its size.
func (w *world) settled() int32 {
	var available int32
	for i := range w.sets {
		c := *w
		c.turnReplicaSet(i)
		available += c.sets[i].ready
	}
	return available
}

func (w *world) String() string {
	var b strings.Builder
	fmt.Fprintf(&b, "N=%d template=v%d held=%t brought=v%d step=%d/%s/%s back=%t reason=%s gen=%d/%d records=%v approved=%d", w.n, w.template+1, w.held, w.brought+1,
		w.status.CurrentStepIndex, w.status.CurrentStepState, w.status.Phase, w.status.RollingBack, w.status.Reason, w.generation, w.observed, w.records, w.approved)
	for i, rs := range w.sets {
		if rs.exists {
			fmt.Fprintf(&b, " v%d{size=%d ready=%d pending=%d stuck=%d status=%d observed=%t desired=%d labelled=%t}", i+1, rs.size, rs.ready, rs.pending, rs.stuck, rs.statusReady, rs.observed, rs.desired, rs.labelled)
		}
	}
	return b.String()
}

// key tells states apart; what only counts or tells the time is left out.
func (w *world) key() string {
	s := &w.status
	current := func(commit string) bool { return commit == w.commit() }
	ended := slices.Contains(s.EndedReleases, v1alpha1.ReleaseName{Revision: hashes[w.brought], Commit: w.commit()})
	return fmt.Sprint(w.n, w.template, w.paused, w.recreate, w.held, w.generation == w.observed, w.brought, w.approved, w.spec.Paused, w.sets, w.records, w.releasing,
		s.CurrentStepIndex, s.CurrentStepState, s.Phase, s.RollingBack, s.UpdateRevision, s.StableRevision, s.FailedRevision, w.changes, w.badPlan,
		s.OpenedReplicas, s.BeganFull, s.CurrentStepTarget > 0, current(s.UpdateCommit), current(s.FailedCommit), s.Approval != nil, s.RequestedApproval != nil, ended) +
		w.measured.key(w)
}

func (w *world) decide() engine.Decision {
	return engine.Decide(w.observe(), epoch.Add(w.measured.now))
}

// make makes the first k writes of a round; k < 0: all, and the status.
func (w *world) make(t *testing.T, d engine.Decision, k int) {
	start := w.clone()
	for i, a := range d.Actions {
		if i == k {
			w.measured.answers = nil // they were in the memory of the process
			return
		}
		before := w.clone()
		w.do(a)
		w.checkWrite(t, before, a)
	}
	if k < 0 {
		d.Status.LastUpdateTime = nil
		w.status = d.Status
		w.status.History = nil
		w.checkTarget(t, start)
		w.measured.wrote(t, start, w)
	}
}

// checkWrite checks I1 and I2 on one write.
func (w *world) checkWrite(t *testing.T, before *world, a engine.Action) {
	t.Helper()
	_, total := w.active()
	_, was := before.active()
	if floor := w.n - w.unavail(); total < was && w.settled() < min(before.settled(), floor) {
		t.Fatalf("I1: %s leaves %d available, below %d\npath %s\nbefore %s\nafter  %s", a, w.settled(), floor, w.path, before, w)
	}
	most := w.n + w.surge
	if w.surge == 0 {
		most = w.n + 1
	}
	if total > was && total > most {
		t.Fatalf("I2: %s makes %d pods of %d+%d\npath %s\nbefore %s\nafter  %s", a, total, w.n, w.surge, w.path, before, w)
	}
	checkLabels(t, w, before, a)
	if h, ok := a.(engine.HandBack); ok && h.Template == nil && w.status.Phase == v1alpha1.PhaseFinalizing {
		for i, rs := range w.sets {
			if i != w.template && rs.size > 0 {
				t.Fatalf("hand-back with old pods\n%s", w)
			}
		}
	}
}

// checkLabels checks I7 for the label of a hold: it leaves the ReplicaSets before the hold
// ends, and each of them with its pods.
func checkLabels(t *testing.T, w, before *world, a engine.Action) {
	t.Helper()
	for i, rs := range w.sets {
		if rs.labelled && (!w.held || rs.size == 0 && before.sets[i].size > 0) {
			t.Fatalf("I7: v%d has the label of a hold after %s\npath %s\nbefore %s\nafter  %s", i+1, a, w.path, before, w)
		}
	}
}

// checkTarget checks I3: the update revision does not grow above the limit of
// the furthest open step.
func (w *world) checkTarget(t *testing.T, before *world) {
	t.Helper()
	s := w.status
	if s.RollingBack || s.Phase != v1alpha1.PhaseRollingUpdate || int(s.CurrentStepIndex) >= len(w.spec.Strategy.Steps) {
		return
	}
	var limit int32 // of the furthest step: a plan that mixes numbers and percentages may go down at this N
	for _, step := range w.spec.Strategy.Steps[:s.CurrentStepIndex+1] {
		limit = max(limit, plan.Limit(step.Replicas, w.n))
	}
	for i, rs := range w.sets {
		if hashes[i] == s.UpdateRevision && rs.size > limit && rs.size > before.sets[i].size {
			t.Fatalf("I3: %d above the limit %d\npath %s\nbefore %s\nafter  %s", rs.size, limit, w.path, before, w)
		}
	}
}
