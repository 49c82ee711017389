package engine

import (
	"errors"
	"fmt"
	"slices"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/intstr"
	"k8s.io/utils/ptr"

	"github.com/tranche-dev/tranche/plan"
	"github.com/tranche-dev/tranche/plan/v1alpha1"
)

// view is what was observed, sorted out: what runs, what is stable, where the
// way leads. A round reads it and writes only its status, actions and events.
type view struct {
	*Observed
	now  time.Time
	spec *v1alpha1.BatchReleaseSpec
	d    *appsv1.Deployment

	records   []Record  // of what has been stable, newest first
	releasing []Record  // of what is being released
	outdated  []Record  // of what is on record as it is now, too
	brought   *revision // what spec.template brings; nil without one
	stable    *revision
	goal      *revision // where the way leads: brought, or back to stable

	replicas, surge, unavailable int32
	strategy                     appsv1.DeploymentStrategy // to hand back

	status  v1alpha1.BatchReleaseStatus
	actions []Action
	events  []Event
	wait    time.Duration
	stalled bool
	// unreleased: nothing is under way, and yet not what spec.template says runs.
	unreleased bool
	// kept: the Deployment is left alone, and what spec brings waits for that to end.
	kept      bool
	needsPods bool
	unready   bool // pods are on their way
}

func newView(o *Observed, now time.Time) *view {
	v := &view{
		Observed: o, now: now, spec: &o.Release.Spec, d: o.Deployment,
		status:  *o.Release.Status.DeepCopy(),
		stalled: meta.IsStatusConditionTrue(o.Release.Status.Conditions, ConditionStalled),
	}
	for _, r := range newestFirst(o.Records) {
		again := func(newer Record) bool { return r.Sent != "" && newer.Sent == r.Sent }
		switch {
		case r.Order == 0:
			v.releasing = append(v.releasing, r)
		case slices.ContainsFunc(v.records, again): // admission has made another template of it since
			v.outdated = append(v.outdated, r)
		default:
			v.records = append(v.records, r)
		}
	}
	return v
}

// resolve names the revisions and says where the way leads. The stable
// revision must be on record.
func (v *view) resolve() {
	v.stable = v.recorded(0)
	v.brought = v.bring()
	v.keep()
	v.goal = v.brought
	switch {
	case v.brought == nil:
		v.goal = v.stable
	case v.failed():
		v.goal = v.stable
		if v.brought == v.stable {
			v.goal = v.recorded(1)
		}
	}
	if v.goal == nil {
		v.goal = v.stable
	}
}

// keep lets the release or rollback under way go on where spec brings another one
// and the Deployment is left alone: that one waits. Going back to the stable revision
// is no beginning: it ends the hold.
func (v *view) keep() {
	s := &v.status
	if !v.leftAlone() || !v.touched() || !releasing(s) || s.UpdateTemplateDigest == "" || v.failed() || v.brought == v.stable {
		return
	}
	if v.brought != nil && v.brought.id == s.UpdateTemplateDigest && v.spec.Commit == s.UpdateCommit {
		return
	}
	record := v.recordSent(s.UpdateTemplateDigest)
	switch {
	case v.stable.record.Sent == s.UpdateTemplateDigest:
		v.brought = v.stable
	case record != nil:
		v.brought = revisionOfRecord(v.Observed, record)
	default:
		return // it has not taken the hold
	}
	spec := *v.spec
	spec.Commit = s.UpdateCommit
	v.spec, v.kept = &spec, true
}

// recordSent returns the record of what was sent as this: of what is being released before
// what was stable. It is nil without one.
func (v *view) recordSent(digest string) *Record {
	if record := v.releasingOf(func(r *Record) bool { return r.Sent == digest }); record != nil {
		return record
	}
	if i := slices.IndexFunc(v.records, func(r Record) bool { return r.Sent == digest }); i >= 0 {
		return &v.records[i]
	}
	return nil
}

// bring returns what spec.template brings. A record that was sent as the same is
// it, whatever the API server's defaults and admission make of it today. Else one
// with an equal template is: the manifest may spell out what were defaults.
func (v *view) bring() *revision {
	sent := v.spec.Template
	if sent == nil {
		sent = v.Template
	}
	if sent == nil {
		return nil
	}
	digest := plan.TemplateDigest(sent)
	for _, same := range []func(r *Record) bool{
		func(r *Record) bool { return r.Sent == digest },
		func(r *Record) bool { return v.Template != nil && plan.EqualTemplate(r.Template, v.Template) },
	} {
		if same(v.stable.record) {
			return v.stable
		}
		record := v.releasingOf(same)
		if i := slices.IndexFunc(v.records, func(r Record) bool { return same(&r) }); record == nil && i >= 0 {
			record = &v.records[i]
		}
		if record == nil {
			continue
		}
		r := revisionOfRecord(v.Observed, record)
		if v.stable.equal(r.template) {
			return v.stable // admission has made the same of it
		}
		r.sent = sent
		return r
	}
	if v.Template == nil {
		return nil
	}
	r := revisionOf(v.Observed, v.Template)
	r.id, r.sent = digest, sent
	return r
}

// recorded returns the revision of the i-th newest record of what was stable, nil
// without one. Admission may have changed the template since: then a record of
// what is being released has the same origin, and the template of today. Not where the
// Deployment has the stable one: then the other one is left from before.
func (v *view) recorded(i int) *revision {
	if i >= len(v.records) {
		return nil
	}
	r := revisionOfRecord(v.Observed, &v.records[i])
	if r.equal(&v.d.Spec.Template) {
		return r
	}
	if released := v.releasingOf(func(other *Record) bool { return other.Sent == r.id }); released != nil {
		return revisionOfRecord(v.Observed, released)
	}
	return r
}

// releasingOf returns a record of what is being released: of several, the one that
// the Deployment has.
func (v *view) releasingOf(is func(*Record) bool) *Record {
	var found *Record
	for i := range v.releasing {
		if r := &v.releasing[i]; is(r) && (found == nil || plan.EqualTemplate(r.Template, &v.d.Spec.Template)) {
			found = r
		}
	}
	return found
}

// failed reports whether what Git brings is what was rolled back, and Git has
// said nothing else since.
func (v *view) failed() bool {
	s := &v.status
	switch {
	case v.brought == nil || s.FailedRevision == "" || s.FailedCommit != v.spec.Commit:
		return false
	case s.FailedTemplateDigest == "": // a status of an earlier version
		return s.FailedRevision == v.brought.name
	}
	return s.FailedTemplateDigest == v.brought.id
}

// forward reports whether the way leads to another revision than the stable one.
func (v *view) forward() bool { return v.goal != v.stable }

// measure finds N, S, U and the strategy to hand back. Bounds that cannot be
// read are an error, and the API server's default ones are used.
func (v *view) measure() error {
	v.replicas = replicas(v.d)
	v.strategy = v.manifestStrategy()
	var err error
	if v.surge, v.unavailable, err = plan.Bounds(&v.strategy, v.replicas); err != nil {
		v.surge, v.unavailable, _ = plan.Bounds(nil, v.replicas)
		return err
	}
	return refusedBounds(v.strategy.RollingUpdate)
}

// refusedBounds returns why the API server would not take the bounds on a Deployment.
// While that is held they are only in the plan: it sees them at the hand-back.
func refusedBounds(r *appsv1.RollingUpdateDeployment) error {
	if r == nil || r.MaxSurge == nil || r.MaxUnavailable == nil {
		return nil
	}
	surge, _ := intstr.GetScaledValueFromIntOrPercent(r.MaxSurge, 100, false) // a percentage by its number
	unavailable, _ := intstr.GetScaledValueFromIntOrPercent(r.MaxUnavailable, 100, false)
	switch {
	case surge < 0, unavailable < 0:
		return fmt.Errorf("rollingUpdate: maxSurge %s and maxUnavailable %s may not be negative", r.MaxSurge, r.MaxUnavailable)
	case r.MaxUnavailable.Type == intstr.String && unavailable > 100:
		return fmt.Errorf("rollingUpdate: maxUnavailable may not be more than 100%%, and is %s", r.MaxUnavailable)
	case surge == 0 && unavailable == 0:
		return errors.New("rollingUpdate: maxSurge and maxUnavailable may not both be 0; raise one of them")
	}
	return nil
}

// manifestStrategy is the strategy that Git names. Else it is the live one, unless that
// is the hold's, else the one on record, else the API server's default.
func (v *view) manifestStrategy() appsv1.DeploymentStrategy {
	switch {
	case v.spec.DeploymentStrategy != nil:
		return completeStrategy(v.spec.DeploymentStrategy)
	case !v.touched():
		return v.d.Spec.Strategy
	case len(v.records) > 0 && v.records[0].Strategy != nil:
		return *v.records[0].Strategy
	}
	return completeStrategy(&appsv1.DeploymentStrategy{})
}

// completeStrategy fills in what the API server would.
func completeStrategy(s *appsv1.DeploymentStrategy) appsv1.DeploymentStrategy {
	c := *s.DeepCopy()
	if c.Type == "" {
		c.Type = appsv1.RollingUpdateDeploymentStrategyType
	}
	if c.Type != appsv1.RollingUpdateDeploymentStrategyType {
		return c
	}
	if c.RollingUpdate == nil {
		c.RollingUpdate = &appsv1.RollingUpdateDeployment{}
	}
	if c.RollingUpdate.MaxSurge == nil {
		c.RollingUpdate.MaxSurge = ptr.To(intstr.FromString("25%"))
	}
	if c.RollingUpdate.MaxUnavailable == nil {
		c.RollingUpdate.MaxUnavailable = ptr.To(intstr.FromString("25%"))
	}
	return c
}

// steps of the way: the plan's, or the rollback's.
func (v *view) steps() []v1alpha1.Step {
	if !v.status.RollingBack {
		return v.spec.Strategy.Steps
	}
	return plan.RollbackSteps(&v.spec.Strategy)
}

// lastStep reports whether the release is at the step that ends it.
func (v *view) lastStep() bool {
	return int(v.status.CurrentStepIndex) >= len(v.steps())-1 && !v.capped()
}

// capped reports whether the plan, as edited, lets the step have more than the
// last gate allowed. The step then waits at a gate before that.
//
// The last step is everything, at any N. At 0 replicas, or at 1, a number would allow as
// much, and the release would end past its gates.
func (v *view) capped() bool {
	switch step := int(v.status.CurrentStepIndex); {
	case v.status.RollingBack:
		return false
	case step >= len(v.steps())-1:
		return !v.full()
	default:
		return v.planned(step) > v.allowed()
	}
}

// full reports whether all pods may run the update revision.
func (v *view) full() bool { return slices.Contains(v.opened(), plan.Full) || v.beganFull() }

// runsAll reports whether all pods run the goal's revision, and any does.
func (v *view) runsAll() bool {
	running := size(v.goal.rs)
	return running > 0 && running >= v.replicas && v.others() == 0
}

// beganFull reports whether the release began with all pods, and has them still: then
// it has nothing to ask a gate for, and opens none.
func (v *view) beganFull() bool { return v.status.BeganFull && v.replicas > 0 && v.runsAll() }

// allowed is how many pods of N the last gate of this release has let run the
// update revision (I3).
func (v *view) allowed() int32 {
	if v.status.RollingBack || v.beganFull() {
		return v.replicas
	}
	var most int32
	for _, r := range v.opened() {
		most = max(most, plan.Limit(r, v.replicas))
	}
	return most
}

// opened is what the gates of this release have opened the way to.
func (v *view) opened() []intstr.IntOrString {
	switch {
	case len(v.status.OpenedReplicas) > 0:
		return v.status.OpenedReplicas
	case v.status.CurrentStepReplicas != nil: // a status of an earlier version
		return []intstr.IntOrString{*v.status.CurrentStepReplicas}
	}
	return v.openTo(0)
}

// openTo returns what the steps up to this one allow: the largest number and the
// largest percentage among them.
func (v *view) openTo(step int) []intstr.IntOrString {
	var number, percent *intstr.IntOrString
	for _, s := range v.steps()[:step+1] {
		r := s.Replicas
		value, isPercent, err := plan.ParseReplicas(r)
		if err != nil {
			continue
		}
		largest := &number
		if isPercent {
			largest = &percent
		}
		if *largest != nil {
			if before, _, _ := plan.ParseReplicas(**largest); before >= value {
				continue
			}
		}
		*largest = &r
	}
	var opened []intstr.IntOrString
	for _, r := range []*intstr.IntOrString{number, percent} {
		if r != nil {
			opened = append(opened, *r)
		}
	}
	return opened
}

// planned returns how many pods of N the plan lets run the goal's revision at
// step i.
func (v *view) planned(i int) int32 {
	steps := v.steps()
	return plan.Target(steps, max(0, min(i, len(steps)-1)), v.replicas) // the plan may have become shorter
}

// target returns how many pods of N run the goal's revision when step i is done, and how
// many run others. The goal's are never more than the gates allow.
//
// Before the last step the others keep at least one pod. With only the goal active the
// native controller would bring the goal to a new N by itself. With a surge that pod is
// one above N. Without one the goal gets one less. That is 0 if N is 1: there is nothing
// to split.
func (v *view) target(i int) (goal, others int32) {
	return v.splitAt(i, min(v.planned(i), v.allowed()))
}

// splitAt returns the split of N at step i for a goal of this size.
func (v *view) splitAt(i int, goal int32) (int32, int32) {
	if i >= len(v.steps())-1 && goal == v.replicas && (v.status.RollingBack || v.full()) {
		return goal, 0
	}
	return v.apart(goal)
}

// apart returns the split of N at a goal of this size, with at least one other.
func (v *view) apart(goal int32) (int32, int32) {
	switch n := v.replicas; {
	case goal < n || n == 0:
		return goal, n - goal
	case v.surge > 0:
		return n, 1
	default:
		return n - 1, 1
	}
}

// set is one ReplicaSet of the split; its ReplicaSet may have to be made yet.
type set struct {
	revision
	pods
}

func newSet(r revision) set {
	s := set{revision: r, pods: pods{observed: true}}
	if r.rs != nil {
		s.pods = pods{
			size: size(r.rs), ready: r.rs.Status.ReadyReplicas, available: r.rs.Status.AvailableReplicas,
			observed: r.rs.Status.ObservedGeneration >= r.rs.Generation,
		}
	}
	return s
}

// most is how many pods the set can have at its size.
func (s *set) most() int32 {
	if deleted(s.rs) {
		return stays(s.rs)
	}
	return s.size
}

// split returns the sets of the release with what each is to have. The goal's is first,
// then come middle revisions, oldest first, and the stable one last.
//
// A revision that was superseded keeps nothing: the goal has its share, the stable
// revision the rest. On the way back the stable revision is the goal, and the middle ones
// hold the rest until they are gone.
func (v *view) split() []set { return v.shares(v.stopped()) }

func (v *view) shares(stopped bool) []set {
	goal, others := v.target(int(v.status.CurrentStepIndex))
	sets := []set{newSet(*v.goal)}
	if stay := min(sets[0].size, v.allowed()); stay > goal && v.forward() { // an edit takes no pod away
		goal, others = v.apart(stay)
	}
	if stopped {
		goal = min(goal, sets[0].size)
		others = max(others, v.replicas-goal)
	}
	for _, rs := range v.middle() {
		s := newSet(revisionOfReplicaSet(rs))
		s.want = stays(rs)
		sets = append(sets, s)
	}
	if same := v.running() - size(v.goal.rs); same > 0 && v.forward() && goal < v.replicas { // together they stay within what the gates allow (I3)
		goal = max(goal-same, min(goal, sets[0].size))
		others = max(others, v.replicas-goal)
	}
	if v.forward() {
		sets[0].want = goal
		stable := newSet(*v.stable)
		stable.want = others
		return append(sets, stable)
	}
	var middle int32
	for _, s := range sets[1:] {
		middle += s.most()
	}
	keep(sets[1:], others)
	sets[0].want = max(goal, v.replicas-middle)
	return sets
}

// isSame reports whether a ReplicaSet runs what the goal runs, under another template:
// admission has made another one of what was sent.
func (v *view) isSame(rs *appsv1.ReplicaSet) bool {
	return v.goal.equal(&rs.Spec.Template) || slices.ContainsFunc(v.Records, func(r Record) bool {
		return r.Sent != "" && r.Sent == v.goal.id && (plan.EqualTemplate(r.Template, &rs.Spec.Template) || plan.EqualTemplate(r.Kept, &rs.Spec.Template))
	})
}

// running is how many pods run what the goal runs, under any template of it.
func (v *view) running() int32 {
	n := size(v.goal.rs)
	for _, rs := range v.middle() {
		if v.isSame(rs) {
			n += size(rs)
		}
	}
	return n
}

// stopped reports whether the goal must not grow: the plan is paused, or the
// step has missed its deadline.
func (v *view) stopped() bool {
	return v.spec.Paused || v.status.CurrentStepState == v1alpha1.StepUpgrade && !v.status.RollingBack && v.deadline() <= 0
}

// keep leaves n pods in all to the sets: what is not ready goes first, then
// what comes first.
func keep(sets []set, n int32) {
	excess := -n
	for i := range sets {
		sets[i].want = sets[i].most()
		excess += sets[i].want
	}
	for _, unreadyOnly := range []bool{true, false} {
		for i := range sets {
			if deleted(sets[i].rs) {
				continue
			}
			most := sets[i].want
			if unreadyOnly {
				most = sets[i].clamp().unready()
			}
			k := max(0, min(excess, most))
			sets[i].want -= k
			excess -= k
		}
	}
}

// middle returns the ReplicaSets with pods that are neither the goal's nor the
// stable one's, oldest first.
func (v *view) middle() []*appsv1.ReplicaSet {
	var sets []*appsv1.ReplicaSet
	for _, rs := range v.ReplicaSets {
		if size(rs) > 0 && rs != v.goal.rs && rs != v.stable.rs {
			sets = append(sets, rs)
		}
	}
	slices.SortFunc(sets, older)
	return sets
}

func (v *view) do(a Action) { v.actions = append(v.actions, a) }

func (v *view) event(reason, message string) {
	v.events = append(v.events, Event{Reason: reason, Message: message})
}

func (v *view) warn(reason, message string) {
	v.events = append(v.events, Event{Warning: true, Reason: reason, Message: message})
}

func (v *view) time() *metav1.Time { return &metav1.Time{Time: v.now} }
