package engine_test

import (
	"cmp"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/intstr"
	"k8s.io/utils/ptr"

	"github.com/tranche-dev/tranche/plan"
	"github.com/tranche-dev/tranche/plan/v1alpha1"
	"github.com/tranche-dev/tranche/rollout/engine"
)

// cluster is a model of the API server, of the native controllers and of the
// controller's cache. It is wider than [world]: it has a clock, several commits
// per version, caches that lag, admission, pods that fail again, and a second
// writer. Its objects are API objects. A write replaces an object and never
// changes it, so a cache keeps an old one by its pointer.
//
// [oracle] judges what the controller does in it.
type cluster struct {
	setup
	now time.Time
	rv  int64 // of the last write

	d       *appsv1.Deployment
	dRead   *appsv1.Deployment // as the cache has it, while dLag
	dLag    bool
	sets    []podSet
	records []engine.Record
	known   []engine.Record      // as the cache has them, while recordsLag
	owners  map[string]types.UID // of a record at a resourceVersion: the Deployment and the BatchRelease

	recordsLag bool
	br         *v1alpha1.BatchRelease
	brRead     *v1alpha1.BatchRelease // as the cache has it, while brLag
	brLag      bool

	version int                // that Git brings
	commits map[string]int     // the version of each commit so far
	commit  string             // that Git brings the version by
	mutates bool               // admission is there, where it comes at some moment
	alters  bool               // so is that on ReplicaSets
	quota   int                // of pods in all; 0: none
	fates   [versions + 1]fate // of new pods, by version; the last for edited ones
	serial  int                // for names and UIDs

	noRecords bool // no record can be made
	capped    int  // the version whose ReplicaSets a policy does not let grow; 0: none
	badBounds bool // Git brings bounds that the API server refuses
	halted    bool // a person has paused the native Deployment

	// The controller's process.
	dryRuns  [versions]*corev1.PodTemplateSpec
	returned *corev1.PodTemplateSpec // by the last write of the Deployment
	trial    setsTrial               // the last ReplicaSet that admission has changed
	halfway  bool                    // it ends once it has made a ReplicaSet, which has no size yet
	looked   int64                   // rv when the controller last looked
	woken    bool                    // it has a reason to look besides rv
	wake     time.Time               // when it wants to look; zero: when something changes

	// A transcript listens: to what is decided, and to the end of the round. It may be nil.
	onDecision func(engine.Decision)
	onRound    func()

	oracle oracle
}

// setup is what a walk begins with.
type setup struct {
	n                  int32
	surge, unavailable intstr.IntOrString
	steps              string // "1 50%/10m 100%": with a pause of 10 minutes after 50%
	minReady           int32
	deadline           int32
	onFailure          v1alpha1.FailurePolicy
	history            int32 // revisionHistoryLimit
	admission          admission
	ownStrategy        bool      // spec.deploymentStrategy is not set
	signed             bool      // spec.requireSignedApprovals
	byHand             bool      // approvals do not say their steps
	setAdmission       admission // on ReplicaSets that the controller makes
	midway             int       // turns of a native rollout to v2, whose pods never come, before the plan; 0: none
	noCommit           bool      // no commit is named: templates and approvals come by hand
}

func (s setup) String() string {
	return fmt.Sprintf("N=%d S=%s U=%s steps=%q minReady=%d deadline=%d onFailure=%s history=%d admission=%q onReplicaSets=%q ownStrategy=%t signed=%t byHand=%t midway=%d",
		s.n, s.surge.String(), s.unavailable.String(), s.steps, s.minReady, s.deadline, s.onFailure, s.history, s.admission, s.setAdmission, s.ownStrategy, s.signed, s.byHand, s.midway)
}

// admission mutates pod templates of Deployments that are written.
type admission string

const (
	admitsAll      admission = ""
	mutatesAlways  admission = "always"
	mutatesSince   admission = "since some moment"
	mutatesNotDry  admission = "outside dry runs"
	annotationMade           = "injected.example.org/by"
	annotationEdit           = "edited.example.org/by"
	byReplicaSets            = "admission of ReplicaSets"
)

// fate is what becomes of a new pod.
type fate string

const (
	comes         fate = "comes"
	never         fate = "never"         // it runs and does not become ready: the application's fault
	unschedulable fate = "unschedulable" // the cluster's fault
)

// pod is one pod. It is available when it has been ready for minReadySeconds.
type pod struct {
	ready  bool
	since  time.Time // it has been ready
	placed time.Time // it has had a node; of an unschedulable pod it says nothing
	fate   fate      // of a pod that is not ready
}

// podSet is a ReplicaSet with its pods.
type podSet struct {
	rs   *appsv1.ReplicaSet // nil once deleted
	read *appsv1.ReplicaSet // as the cache has it, while lag; nil: it has not seen it
	lag  bool
	pods []pod
	// foreign: the native controller made it, or its record is gone.
	foreign bool
	// marked: the controller wrote its size annotations last, and another size than N (H6).
	marked bool
	// unseen: the native controller has had no turn since.
	unseen bool
}

// alien is the version of a template that was edited by a person, or that admission has
// changed in a ReplicaSet.
const alien = versions

// versionIn tells the version of a template by what was said, whatever admission added.
func versionIn(t *corev1.PodTemplateSpec) int {
	if t.Annotations[annotationEdit] != "" || altered(t) {
		return alien
	}
	for i := range templates {
		if templates[i].Spec.Containers[0].Image == t.Spec.Containers[0].Image {
			return i
		}
	}
	return alien
}

func newCluster(s setup) *cluster {
	if s.surge == s.unavailable && s.surge == intstr.FromInt32(0) {
		s.unavailable = intstr.FromInt32(1) // the API server refuses 0 and 0
	}
	c := &cluster{setup: s, now: epoch, commits: map[string]int{}, owners: map[string]types.UID{}, woken: true}
	for i := range c.fates {
		c.fates[i] = comes
	}
	c.makeDeployment(templates[0])
	c.native()
	for range 3 {
		c.turnSets()
		c.readyAll()
		c.now = c.now.Add(time.Duration(s.minReady) * time.Second)
	}
	c.turnSets()
	c.native()
	c.version, c.commit = 0, c.newCommit(0)
	if s.midway > 0 {
		c.rollNatively()
	}
	c.plan()
	c.oracle.init(c)
	return c
}

// rollNatively is a rollout of the native controller to v2 that is stuck.
func (c *cluster) rollNatively() {
	c.fates[1] = never
	c.version, c.commit = 1, c.newCommit(1)
	c.writeDeployment(func(d *appsv1.Deployment) { d.Spec.Template = *templates[1].DeepCopy() })
	for range c.midway {
		c.native()
		c.turnSets()
	}
}

func (c *cluster) clone() *cluster {
	k := *c
	k.sets = slices.Clone(c.sets)
	for i := range k.sets {
		k.sets[i].pods = slices.Clone(c.sets[i].pods)
	}
	k.records, k.known = slices.Clone(c.records), slices.Clone(c.known)
	k.commits, k.owners = maps.Clone(c.commits), maps.Clone(c.owners)
	k.oracle = c.oracle.clone()
	return &k
}

// ---- objects

func (c *cluster) nextVersion() string {
	c.rv++
	return strconv.FormatInt(c.rv, 10)
}

func (c *cluster) uid() types.UID {
	c.serial++
	return types.UID("u" + strconv.Itoa(c.serial))
}

func (c *cluster) newCommit(version int) string {
	commit := fmt.Sprintf("%07d%033d", len(c.commits)+1, 0)
	c.commits[commit] = version
	return commit
}

func (c *cluster) manifestStrategy() appsv1.DeploymentStrategy {
	s, u := c.surge, c.unavailable
	return appsv1.DeploymentStrategy{Type: appsv1.RollingUpdateDeploymentStrategyType, RollingUpdate: &appsv1.RollingUpdateDeployment{MaxSurge: &s, MaxUnavailable: &u}}
}

func (c *cluster) bounds() (surge, unavailable int32) {
	s := c.manifestStrategy()
	surge, unavailable, _ = plan.Bounds(&s, c.replicas())
	return widen(c, surge, unavailable)
}

func (c *cluster) replicas() int32 {
	if c.d == nil {
		return c.n
	}
	return *c.d.Spec.Replicas
}

// makeDeployment is the first apply of gitsync, or the next one after a deletion.
func (c *cluster) makeDeployment(t *corev1.PodTemplateSpec) {
	n := c.n
	d := &appsv1.Deployment{
		ObjectMeta: metav1.ObjectMeta{Name: "web", Namespace: "shop", UID: c.uid(), Generation: 1, ResourceVersion: c.nextVersion(), CreationTimestamp: metav1.Time{Time: c.now}},
		Spec: appsv1.DeploymentSpec{
			Replicas: &n, Strategy: c.manifestStrategy(), Template: *t.DeepCopy(), MinReadySeconds: c.minReady, RevisionHistoryLimit: ptr.To(c.history),
			Selector: &metav1.LabelSelector{MatchLabels: map[string]string{"app": "web"}},
		},
	}
	c.admit(&d.Spec.Template, false)
	c.d, c.halted = d, false
}

// admit is what admission does to a template.
func (c *cluster) admit(t *corev1.PodTemplateSpec, dryRun bool) {
	switch {
	case c.admission == admitsAll, c.admission == mutatesSince && !c.mutates, c.admission == mutatesNotDry && dryRun:
		return
	}
	annotations := map[string]string{annotationMade: "admission"}
	maps.Copy(annotations, t.Annotations)
	t.Annotations = annotations
}

// writeDeployment is one write of the Deployment's main resource.
func (c *cluster) writeDeployment(change func(*appsv1.Deployment)) {
	d := c.d.DeepCopy()
	change(d)
	c.admit(&d.Spec.Template, false)
	if equality.Semantic.DeepEqual(d, c.d) {
		return
	}
	if !equality.Semantic.DeepEqual(d.Spec, c.d.Spec) {
		d.Generation++
	}
	d.ResourceVersion = c.nextVersion()
	c.d = d
}

// scale writes the scale subresource, which admission does not see.
func (c *cluster) scale(n int32) {
	c.n = n
	if c.d == nil {
		return
	}
	d := c.d.DeepCopy()
	d.Spec.Replicas = &n
	d.Generation++
	d.ResourceVersion = c.nextVersion()
	c.d = d
}

func (c *cluster) writeSet(i int, change func(*appsv1.ReplicaSet)) {
	set := *c.sets[i].rs
	rs := &set // change replaces what it changes
	change(rs)
	if equality.Semantic.DeepEqual(rs, c.sets[i].rs) {
		return
	}
	if !equality.Semantic.DeepEqual(rs.Spec, c.sets[i].rs.Spec) {
		rs.Generation++
	}
	rs.ResourceVersion = c.nextVersion()
	c.sets[i].rs = rs
}

func (c *cluster) createSet(rs *appsv1.ReplicaSet) {
	rs = rs.DeepCopy()
	rs.UID, rs.ResourceVersion, rs.Generation = c.uid(), c.nextVersion(), 1
	rs.CreationTimestamp = metav1.Time{Time: epoch.Add(time.Duration(c.serial) * time.Second)}
	c.sets = append(c.sets, podSet{rs: rs})
}

func (c *cluster) deleteSet(i int) {
	c.rv++
	c.sets[i].rs, c.sets[i].pods = nil, nil
}

// doomed reports whether a ReplicaSet is being deleted. The Deployment controller takes it
// for what it was: it is new or old, and active with a size.
func (c *cluster) doomed(i int) bool { return c.sets[i].rs.DeletionTimestamp != nil }

// doom begins the deletion of a ReplicaSet that a finalizer keeps. No pod of it is made or
// taken away by its size any more. Pods that end are not counted from the start.
func (c *cluster) doom(i int, podsStay bool) {
	rs := *c.sets[i].rs
	rs.DeletionTimestamp, rs.Finalizers = &metav1.Time{Time: c.now}, []string{"example.org/hostage"}
	rs.Generation++
	rs.ResourceVersion = c.nextVersion()
	c.sets[i].rs = &rs
	if !podsStay {
		c.sets[i].pods = nil
	}
}

func (c *cluster) writeRelease(change func(*v1alpha1.BatchRelease)) {
	br := c.br.DeepCopy()
	change(br)
	if equality.Semantic.DeepEqual(br, c.br) {
		return
	}
	if !equality.Semantic.DeepEqual(br.Spec, c.br.Spec) {
		br.Generation++
	}
	br.ResourceVersion = c.nextVersion()
	c.br = br
}

// writeStatus writes the status, which is another one.
func (c *cluster) writeStatus(s v1alpha1.BatchReleaseStatus) {
	br := *c.br
	br.Status, br.ResourceVersion = *s.DeepCopy(), c.nextVersion()
	c.br = &br
}

// plan makes the BatchRelease.
func (c *cluster) plan() {
	c.br = &v1alpha1.BatchRelease{ObjectMeta: metav1.ObjectMeta{Name: "web", Namespace: "shop", UID: c.uid(), Generation: 1, ResourceVersion: c.nextVersion()}}
	c.br.Spec.WorkloadRef.Name = "web"
	c.br.Spec.Strategy = v1alpha1.BatchStrategy{Steps: parseSteps(c.steps), ProgressDeadlineSeconds: &c.deadline, OnFailure: c.onFailure}
	c.br.Spec.Template, c.br.Spec.Commit, c.br.Spec.RequireSignedApprovals = templates[c.version], named(c), c.signed
	if !c.ownStrategy {
		c.br.Spec.DeploymentStrategy = brought(c)
	}
	c.woken, c.brLag = true, false
}

// parseSteps reads "1 50%/10m 100%".
func parseSteps(s string) []v1alpha1.Step {
	var steps []v1alpha1.Step
	for _, f := range strings.Fields(s) {
		replicas, pause, paused := strings.Cut(f, "/")
		step := v1alpha1.Step{Replicas: intstr.Parse(replicas)}
		if paused {
			d, err := time.ParseDuration(pause)
			if err != nil {
				panic(err)
			}
			step.Pause = &v1alpha1.Pause{Duration: metav1.Duration{Duration: d}}
		}
		steps = append(steps, step)
	}
	return steps
}

func valuesOf(steps []v1alpha1.Step) []intstr.IntOrString {
	values := make([]intstr.IntOrString, len(steps))
	for i, s := range steps {
		values[i] = s.Replicas
	}
	return values
}

// ---- the native controllers

// held reports whether the hold is whole. [Held] is the engine's.
func (c *cluster) held() bool {
	return c.d != nil && c.d.Labels[v1alpha1.LabelHeld] != "" && c.d.Spec.Paused && c.d.Spec.Strategy.Type == appsv1.RecreateDeploymentStrategyType
}

// live returns the indexes of the ReplicaSets that exist, oldest first.
func (c *cluster) live() []int {
	var is []int
	for i := range c.sets {
		if c.sets[i].rs != nil {
			is = append(is, i)
		}
	}
	return is
}

func (c *cluster) size(i int) int32 { return *c.sets[i].rs.Spec.Replicas }

// active returns those with a size, and the sum of sizes.
func (c *cluster) active() (is []int, total int32) {
	for _, i := range c.live() {
		if n := c.size(i); n > 0 {
			is = append(is, i)
			total += n
		}
	}
	return is, total
}

// newSet is the oldest ReplicaSet with the Deployment's template; -1: none.
func (c *cluster) newSet() int {
	for _, i := range c.live() {
		if nameOf(&c.sets[i].rs.Spec.Template) == nameOf(&c.d.Spec.Template) {
			return i
		}
	}
	return -1
}

// nameOf tells apart the templates that there are in the model.
func nameOf(t *corev1.PodTemplateSpec) string {
	return t.Spec.Containers[0].Image + " " + t.Annotations[annotationMade] + " " + t.Annotations[annotationEdit]
}

func (c *cluster) nativeResize(i int, to int32) {
	n, surge := c.replicas(), int32(0)
	if c.d.Spec.Strategy.Type == appsv1.RollingUpdateDeploymentStrategyType {
		surge, _, _ = plan.Bounds(&c.d.Spec.Strategy, n)
	}
	c.writeSet(i, func(rs *appsv1.ReplicaSet) {
		rs.Spec.Replicas = &to
		rs.Annotations = maps.Clone(rs.Annotations)
		if rs.Annotations == nil {
			rs.Annotations = map[string]string{}
		}
		maps.Copy(rs.Annotations, engine.SizeAnnotations(n, n+surge))
	})
	c.sets[i].mark(false)
}

// native is one turn of the Deployment controller.
func (c *cluster) native() {
	for i := range c.sets {
		c.sets[i].unseen = false
	}
	if c.d == nil {
		return
	}
	for range 4 { // a turn's own writes bring it back
		before := c.rv
		switch {
		case c.d.Spec.Paused:
			c.nativeScale()
			c.nativeCleanup()
		case c.nativeScaling():
			c.nativeScale()
		case c.d.Spec.Strategy.Type == appsv1.RecreateDeploymentStrategyType:
			c.nativeRecreate()
		default:
			c.nativeRoll()
		}
		c.nativeStatus()
		if c.rv == before {
			return
		}
	}
}

// nativeStatus writes the Deployment's status.
func (c *cluster) nativeStatus() {
	s := appsv1.DeploymentStatus{ObservedGeneration: c.d.Generation, CollisionCount: c.d.Status.CollisionCount}
	fresh := c.newSet()
	for _, i := range c.live() {
		of := c.sets[i].rs.Status
		s.Replicas, s.ReadyReplicas, s.AvailableReplicas = s.Replicas+of.Replicas, s.ReadyReplicas+of.ReadyReplicas, s.AvailableReplicas+of.AvailableReplicas
		if i == fresh {
			s.UpdatedReplicas = of.Replicas
		}
	}
	s.UnavailableReplicas = max(0, s.Replicas-s.AvailableReplicas)
	if is := c.d.Status; s.ObservedGeneration != is.ObservedGeneration || s.Replicas != is.Replicas || s.ReadyReplicas != is.ReadyReplicas ||
		s.AvailableReplicas != is.AvailableReplicas || s.UpdatedReplicas != is.UpdatedReplicas {
		d := c.d.DeepCopy()
		d.Status = s
		d.ResourceVersion = c.nextVersion()
		c.d = d
	}
}

// nativeScaling reports a scaling event.
func (c *cluster) nativeScaling() bool {
	active, _ := c.active()
	return slices.ContainsFunc(active, func(i int) bool {
		desired, ok := c.sets[i].rs.Annotations[engine.AnnotationDesiredReplicas]
		return ok && desired != strconv.Itoa(int(c.replicas()))
	})
}

// nativeScale is scale() of the Deployment controller.
func (c *cluster) nativeScale() {
	active, total := c.active()
	live, fresh, n := c.live(), c.newSet(), c.replicas()
	switch {
	case len(active) <= 1:
		target := -1
		switch {
		case len(active) == 1:
			target = active[0]
		case fresh >= 0:
			target = fresh
		case len(live) > 0:
			target = live[len(live)-1]
		}
		if target >= 0 && c.size(target) != n {
			c.nativeResize(target, n)
		}
	case c.saturated(fresh):
		for _, i := range active {
			if i != fresh {
				c.nativeResize(i, 0)
			}
		}
	case c.d.Spec.Strategy.Type == appsv1.RollingUpdateDeploymentStrategyType:
		c.nativeShare(active, total)
	}
}

func (c *cluster) saturated(fresh int) bool {
	if fresh < 0 {
		return false
	}
	rs, n := c.sets[fresh].rs, c.replicas()
	return *rs.Spec.Replicas == n && rs.Annotations[engine.AnnotationDesiredReplicas] == strconv.Itoa(int(n)) && rs.Status.AvailableReplicas == n
}

// nativeShare brings the sum to N+S by size, the rest to the largest.
func (c *cluster) nativeShare(active []int, total int32) {
	allowed := int32(0)
	if n := c.replicas(); n > 0 {
		surge, _, _ := plan.Bounds(&c.d.Spec.Strategy, n)
		allowed = n + surge
	}
	delta := allowed - total
	sizes := map[int]int32{}
	largest := active[0]
	left := delta
	for _, i := range active {
		if c.size(i) > c.size(largest) {
			largest = i
		}
		share := c.size(i) * delta / max(1, total)
		sizes[i] = max(0, c.size(i)+share)
		left -= share
	}
	sizes[largest] = max(0, sizes[largest]+left)
	for _, i := range active {
		c.nativeResize(i, sizes[i])
	}
}

// nativeCreate makes the ReplicaSet of the Deployment's template.
func (c *cluster) nativeCreate(size int32) bool {
	hash := plan.TemplateHash(&c.d.Spec.Template, c.d.Status.CollisionCount, 0)
	labels := map[string]string{"app": "web", appsv1.DefaultDeploymentUniqueLabelKey: hash}
	rs := &appsv1.ReplicaSet{
		ObjectMeta: metav1.ObjectMeta{
			Name: "web-" + hash, Namespace: "shop", Labels: labels,
			Annotations:     map[string]string{engine.AnnotationRevision: strconv.FormatInt(c.highest()+1, 10)},
			OwnerReferences: []metav1.OwnerReference{*metav1.NewControllerRef(c.d, appsv1.SchemeGroupVersion.WithKind("Deployment"))},
		},
		Spec: appsv1.ReplicaSetSpec{
			Replicas: &size, MinReadySeconds: c.d.Spec.MinReadySeconds, Selector: &metav1.LabelSelector{MatchLabels: labels}, Template: *c.d.Spec.Template.DeepCopy(),
		},
	}
	rs.Spec.Template.Labels = labels
	if slices.ContainsFunc(c.live(), func(i int) bool { return c.sets[i].rs.Name == rs.Name }) {
		c.collide()
		return false
	}
	c.createSet(rs)
	c.sets[len(c.sets)-1].foreign = true
	c.nativeResize(len(c.sets)-1, size)
	return true
}

// highest is the highest revision number of a ReplicaSet.
func (c *cluster) highest() (n int64) {
	for _, i := range c.live() {
		if k, err := strconv.ParseInt(c.sets[i].rs.Annotations[engine.AnnotationRevision], 10, 64); err == nil {
			n = max(n, k)
		}
	}
	return n
}

func (c *cluster) collide() {
	d := c.d.DeepCopy()
	d.Status.CollisionCount = ptr.To(ptr.Deref(d.Status.CollisionCount, 0) + 1)
	d.ResourceVersion = c.nextVersion()
	c.d = d
}

func (c *cluster) nativeRecreate() {
	active, _ := c.active()
	fresh := c.newSet()
	for _, i := range active {
		if i != fresh {
			c.nativeResize(i, 0)
		}
	}
	for _, i := range c.live() {
		if i != fresh && len(c.sets[i].pods) > 0 {
			return
		}
	}
	if fresh < 0 {
		c.nativeCreate(c.replicas())
	} else if c.size(fresh) != c.replicas() {
		c.nativeResize(fresh, c.replicas())
	}
}

func (c *cluster) nativeRoll() {
	n := c.replicas()
	surge, unavailable, _ := plan.Bounds(&c.d.Spec.Strategy, n)
	_, total := c.active()
	fresh := c.newSet()
	if fresh < 0 {
		c.nativeCreate(max(0, min(n+surge-total, n)))
		return
	}
	if size := c.size(fresh); size > n {
		c.nativeResize(fresh, n)
		return
	} else if room := min(n+surge-total, n-size); room > 0 {
		c.nativeResize(fresh, size+room)
		return
	}
	most := total - (n - unavailable) - (c.size(fresh) - c.sets[fresh].rs.Status.AvailableReplicas)
	var available int32
	for _, i := range c.live() {
		available += c.sets[i].rs.Status.AvailableReplicas
	}
	spare := available - (n - unavailable)
	for _, unhealthy := range []bool{true, false} {
		for _, i := range c.live() {
			if i == fresh || c.size(i) == 0 {
				continue
			}
			k := min(most, c.size(i)-c.sets[i].rs.Status.AvailableReplicas)
			if !unhealthy {
				k = min(most, spare, c.size(i))
				spare -= max(0, k)
			}
			if k > 0 {
				most -= k
				c.nativeResize(i, c.size(i)-k)
			}
		}
	}
	if c.size(fresh) == n && total == n {
		c.nativeCleanup()
	}
}

// nativeCleanup deletes history beyond the limit.
func (c *cluster) nativeCleanup() {
	fresh := c.newSet()
	var old []int
	for _, i := range c.live() {
		if i != fresh {
			old = append(old, i)
		}
	}
	for k := len(old) - int(*c.d.Spec.RevisionHistoryLimit); k > 0; k-- {
		i := old[0]
		old = old[1:]
		if rs := c.sets[i].rs; rs.DeletionTimestamp == nil && *rs.Spec.Replicas == 0 && rs.Status.Replicas == 0 && rs.Status.ObservedGeneration >= rs.Generation {
			c.deleteSet(i)
		}
	}
}

// turnSets is a turn of the ReplicaSet controller for all.
func (c *cluster) turnSets() {
	for _, i := range c.live() {
		c.turnSet(i)
	}
}

// turnSet makes pods and takes the worst ones away: those that are not ready,
// and then, as pod-deletion-cost may have it, available before ready ones.
func (c *cluster) turnSet(i int) {
	s := &c.sets[i]
	if c.doomed(i) { // only its status
		c.turnStatus(i)
		return
	}
	for len(s.pods) < int(c.size(i)) && (c.quota == 0 || c.pods() < c.quota) {
		f := c.fates[versionIn(&s.rs.Spec.Template)]
		s.pods = append(s.pods, pod{fate: f, placed: c.now})
	}
	slices.SortStableFunc(s.pods, func(a, b pod) int { // the last ones go
		if a.ready != b.ready {
			return cmp.Compare(truthNumber(b.ready), truthNumber(a.ready))
		}
		return cmp.Compare(b.since.UnixNano(), a.since.UnixNano())
	})
	if n := int(c.size(i)); len(s.pods) > n {
		gone := len(s.pods) - n
		unready := 0
		for _, p := range s.pods {
			if !p.ready {
				unready++
			}
		}
		ready := s.pods[:len(s.pods)-unready]
		rest := s.pods[len(s.pods)-unready:]
		if k := min(gone, unready); k > 0 {
			rest, gone = rest[:unready-k], gone-k
		}
		ready = ready[:len(ready)-gone]
		s.pods = append(slices.Clone(ready), rest...)
	}
	c.turnStatus(i)
}

// turnStatus writes the status of a ReplicaSet.
func (c *cluster) turnStatus(i int) {
	s := &c.sets[i]
	ready, available := c.count(i)
	if is := s.rs.Status; is.Replicas == int32(len(s.pods)) && is.ReadyReplicas == ready && is.AvailableReplicas == available && is.ObservedGeneration == s.rs.Generation {
		return
	}
	c.writeSet(i, func(rs *appsv1.ReplicaSet) {
		rs.Status.Replicas, rs.Status.ReadyReplicas, rs.Status.AvailableReplicas = int32(len(s.pods)), ready, available
		rs.Status.ObservedGeneration = rs.Generation
	})
}

func truthNumber(b bool) int {
	if b {
		return 1
	}
	return 0
}

func (c *cluster) pods() int {
	n := 0
	for i := range c.sets {
		n += len(c.sets[i].pods)
	}
	return n
}

func (c *cluster) available(p pod, rs *appsv1.ReplicaSet) bool {
	return p.ready && !c.now.Before(p.since.Add(time.Duration(rs.Spec.MinReadySeconds)*time.Second))
}

// count returns how many pods of a ReplicaSet are ready and available.
func (c *cluster) count(i int) (ready, available int32) {
	for _, p := range c.sets[i].pods {
		if p.ready {
			ready++
		}
		if c.available(p, c.sets[i].rs) {
			available++
		}
	}
	return ready, available
}

// readyAll is the kubelets' turn: all pods that come are ready.
func (c *cluster) readyAll() (changed bool) {
	for i := range c.sets {
		for j := range c.sets[i].pods {
			if p := &c.sets[i].pods[j]; !p.ready && p.fate == comes {
				p.ready, p.since, changed = true, c.now, true
			}
		}
	}
	return changed
}

// nextAvailable is when the next pod that is ready becomes available.
func (c *cluster) nextAvailable() time.Time {
	var next time.Time
	for _, i := range c.live() {
		for _, p := range c.sets[i].pods {
			if at := p.since.Add(time.Duration(c.sets[i].rs.Spec.MinReadySeconds) * time.Second); p.ready && at.After(c.now) && (next.IsZero() || at.Before(next)) {
				next = at
			}
		}
	}
	return next
}

// podsOf returns how many pods of a version are ready, are available, have
// failed by themselves, and are kept away by the cluster.
func (c *cluster) podsOf(version int) (size, ready, available, failing, waiting int32) {
	for _, i := range c.live() {
		if versionIn(&c.sets[i].rs.Spec.Template) != version {
			continue
		}
		r, a := c.count(i)
		size, ready, available = size+c.size(i), ready+r, available+a
		waiting += max(0, c.size(i)-int32(len(c.sets[i].pods)))
		for _, p := range c.sets[i].pods {
			if !p.ready && p.fate == unschedulable {
				waiting++
			} else if !p.ready {
				failing++
			}
		}
	}
	return size, ready, available, failing, waiting
}

// placed returns when the first of the pods of a version that have failed by
// themselves got its node.
func (c *cluster) placed(version int) (first time.Time) {
	for _, i := range c.live() {
		if versionIn(&c.sets[i].rs.Spec.Template) != version {
			continue
		}
		for _, p := range c.sets[i].pods {
			if !p.ready && p.fate != unschedulable && (first.IsZero() || p.placed.Before(first)) {
				first = p.placed
			}
		}
	}
	return first
}

// ---- what a failed check prints

func (c *cluster) String() string {
	var b strings.Builder
	fmt.Fprintf(&b, "at %s brought=v%d@%.7s ", c.now.Sub(epoch), c.version+1, c.commit)
	if c.d == nil {
		b.WriteString("no Deployment")
	} else {
		fmt.Fprintf(&b, "N=%d template=v%d%s label=%t paused=%t %s gen=%d/%d", c.replicas(), versionIn(&c.d.Spec.Template)+1, madeBy(&c.d.Spec.Template),
			c.d.Labels[v1alpha1.LabelHeld] != "", c.d.Spec.Paused, c.d.Spec.Strategy.Type, c.d.Status.ObservedGeneration, c.d.Generation)
		if c.dLag {
			b.WriteString(" (cache lags)")
		}
	}
	if c.br == nil {
		b.WriteString("; no plan")
	} else {
		s := c.br.Status
		fmt.Fprintf(&b, "; plan %v", values(c.br.Spec.Strategy.Steps))
		if a := c.br.Spec.Approval; a != nil {
			fmt.Fprintf(&b, " approved=%.7s:%d", a.Commit, a.Step)
		}
		fmt.Fprintf(&b, "; step=%d/%s/%s back=%t %s: %s", s.CurrentStepIndex, s.CurrentStepState, s.Phase, s.RollingBack, s.Reason, s.Message)
		if c.brLag {
			b.WriteString(" (cache lags)")
		}
	}
	for _, r := range c.records {
		fmt.Fprintf(&b, "; record %d=v%d", r.Order, versionIn(r.Template)+1)
	}
	for i := range c.sets {
		rs := c.sets[i].rs
		if rs == nil {
			continue
		}
		ready, available := c.count(i)
		fmt.Fprintf(&b, "; %s v%d%s{size=%d pods=%d ready=%d available=%d status=%d/%d/%d gen=%d/%d desired=%s lag=%t deleted=%t}", rs.Name, versionIn(&rs.Spec.Template)+1, madeBy(&rs.Spec.Template),
			*rs.Spec.Replicas, len(c.sets[i].pods), ready, available, rs.Status.Replicas, rs.Status.ReadyReplicas, rs.Status.AvailableReplicas, rs.Status.ObservedGeneration, rs.Generation, rs.Annotations[engine.AnnotationDesiredReplicas], c.sets[i].lag, c.doomed(i))
	}
	return b.String()
}

func madeBy(t *corev1.PodTemplateSpec) string {
	if t.Annotations[annotationMade] != "" {
		return "(mutated)"
	}
	return ""
}

func values(steps []v1alpha1.Step) string {
	var fields []string
	for _, s := range steps {
		f := s.Replicas.String()
		if s.Pause != nil {
			f += "/" + s.Pause.Duration.Duration.String()
		}
		fields = append(fields, f)
	}
	return strings.Join(fields, " ")
}
