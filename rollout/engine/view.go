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

// facts are what was observed, sorted out once: nothing of them changes in a round.
type facts struct {
	*Observed
	now time.Time

	records   []Record // of what has been stable, newest first
	releasing []Record // of what is being released
	outdated  []Record // of what is on record as it is now, too

	replicas, surge, unavailable int32
	// strategy to hand back.
	strategy appsv1.DeploymentStrategy
	// badBounds is why strategy is not usable; nil: it is. The bounds are then those of the
	// API server's default strategy.
	badBounds error
}

func newFacts(o *Observed, now time.Time) *facts {
	f := &facts{Observed: o, now: now}
	for _, r := range newestFirst(o.Records) {
		again := func(newer Record) bool { return r.Sent != "" && newer.Sent == r.Sent }
		switch {
		case r.Order == 0:
			f.releasing = append(f.releasing, r)
		case slices.ContainsFunc(f.records, again): // admission has made another template of it since
			f.outdated = append(f.outdated, r)
		default:
			f.records = append(f.records, r)
		}
	}
	if o.Deployment == nil {
		return f
	}
	f.replicas = replicas(o.Deployment)
	f.strategy = manifestStrategy(o, f.records)
	if f.surge, f.unavailable, f.badBounds = plan.Bounds(&f.strategy, f.replicas); f.badBounds != nil {
		f.surge, f.unavailable, _ = plan.Bounds(nil, f.replicas)
		return f
	}
	f.badBounds = refusedBounds(f.strategy.RollingUpdate)
	return f
}

// course is where the way leads, by the facts and a status. It never changes: a round that
// takes another course replaces the whole.
type course struct {
	*facts
	// spec that is followed: that of the release or, where kept, with the commit of the
	// release under way.
	spec    *v1alpha1.BatchReleaseSpec
	brought *revision // what spec.template brings; nil without one
	stable  *revision
	goal    *revision // where the way leads: brought, or back to stable
	// kept: the Deployment is left alone, and what spec brings waits for that to end.
	kept bool
}

// to returns the course that leads to this revision.
func (c course) to(goal *revision) course {
	c.goal = goal
	return c
}

// from returns the course with this stable revision.
func (c course) from(stable *revision) course {
	c.stable = stable
	return c
}

// bringing returns the course with this revision as the one that spec.template brings.
func (c course) bringing(brought *revision) course {
	c.brought = brought
	return c
}

// by returns the course by another plan.
func (c course) by(strategy v1alpha1.BatchStrategy) course {
	c.spec = c.spec.DeepCopy()
	c.spec.Strategy = strategy
	return c
}

// position is a course with the status as the round has it so far. It tells the step that
// the release is at, and what its gates have opened. Its methods read.
type position struct {
	course
	status v1alpha1.BatchReleaseStatus
}

// draft is the decision of a round while it is being made.
type draft struct {
	position
	actions []Action
	events  []Event
	wait    time.Duration
	stalled bool
	// unreleased: nothing is under way, and yet not what spec.template says runs.
	unreleased bool
	needsPods  bool
	unready    bool // pods are on their way
}

// newDraft returns the draft of a round that has decided nothing yet.
func newDraft(o *Observed, now time.Time) *draft {
	return &draft{
		position: position{
			course: course{facts: newFacts(o, now), spec: &o.Release.Spec},
			status: *o.Release.Status.DeepCopy(),
		},
		stalled: meta.IsStatusConditionTrue(o.Release.Status.Conditions, ConditionStalled),
	}
}

// resolve returns the course with its revisions, and says where the way leads. The stable
// revision must be on record.
func (c course) resolve(s *v1alpha1.BatchReleaseStatus) course {
	c.stable = c.recorded(0)
	c.brought = broughtBy(c.facts, c.stable)
	c = c.keep(s)
	c.goal = c.brought
	switch {
	case c.brought == nil:
		c.goal = c.stable
	case hasFailed(&c, s):
		c.goal = c.stable
		if c.brought == c.stable {
			c.goal = c.recorded(1)
		}
	}
	if c.goal == nil {
		c.goal = c.stable
	}
	return c
}

// keep lets the release or rollback under way go on where spec brings another one
// and the Deployment is left alone: that one waits. Going back to the stable revision
// is no beginning: it ends the hold.
func (c course) keep(s *v1alpha1.BatchReleaseStatus) course {
	if !c.leftAlone() || !c.touched() || !releasing(s) || s.UpdateTemplateDigest == "" || hasFailed(&c, s) || c.brought == c.stable {
		return c
	}
	if c.brought != nil && c.brought.id == s.UpdateTemplateDigest && c.spec.Commit == s.UpdateCommit {
		return c
	}
	record := c.recordSent(s.UpdateTemplateDigest)
	switch {
	case c.stable.record.Sent == s.UpdateTemplateDigest:
		c.brought = c.stable
	case record != nil:
		c.brought = revisionOfRecord(c.Observed, record)
	default:
		return c // it has not taken the hold
	}
	spec := *c.spec
	spec.Commit = s.UpdateCommit
	c.spec, c.kept = &spec, true
	return c
}

// recordSent returns the record of what was sent as this: of what is being released before
// what was stable. It is nil without one.
func (f *facts) recordSent(digest string) *Record {
	if record := f.releasingOf(func(r *Record) bool { return r.Sent == digest }); record != nil {
		return record
	}
	if i := slices.IndexFunc(f.records, func(r Record) bool { return r.Sent == digest }); i >= 0 {
		return &f.records[i]
	}
	return nil
}

// broughtBy returns what spec.template brings. A record that was sent as the same is
// it, whatever the API server's defaults and admission make of it today. Else one
// with an equal template is: the manifest may spell out what were defaults.
func broughtBy(f *facts, stable *revision) *revision {
	sent := f.Release.Spec.Template
	if sent == nil {
		sent = f.Template
	}
	if sent == nil {
		return nil
	}
	digest := plan.TemplateDigest(sent)
	for _, same := range []func(r *Record) bool{
		func(r *Record) bool { return r.Sent == digest },
		func(r *Record) bool { return f.Template != nil && plan.EqualTemplate(r.Template, f.Template) },
	} {
		if same(stable.record) {
			return stable
		}
		record := f.releasingOf(same)
		if i := slices.IndexFunc(f.records, func(r Record) bool { return same(&r) }); record == nil && i >= 0 {
			record = &f.records[i]
		}
		if record == nil {
			continue
		}
		r := revisionOfRecord(f.Observed, record)
		if stable.equal(r.template) {
			return stable // admission has made the same of it
		}
		r.sent = sent
		return r
	}
	if f.Template == nil {
		return nil
	}
	r := revisionOf(f.Observed, f.Template)
	r.id, r.sent = digest, sent
	return r
}

// recorded returns the revision of the i-th newest record of what was stable, nil
// without one. Admission may have changed the template since: then a record of
// what is being released has the same origin, and the template of today. Not where the
// Deployment has the stable one: then the other one is left from before.
func (f *facts) recorded(i int) *revision {
	if i >= len(f.records) {
		return nil
	}
	r := revisionOfRecord(f.Observed, &f.records[i])
	if r.equal(&f.Deployment.Spec.Template) {
		return r
	}
	if released := f.releasingOf(func(other *Record) bool { return other.Sent == r.id }); released != nil {
		return revisionOfRecord(f.Observed, released)
	}
	return r
}

// releasingOf returns a record of what is being released: of several, the one that
// the Deployment has.
func (f *facts) releasingOf(is func(*Record) bool) *Record {
	var found *Record
	for i := range f.releasing {
		if r := &f.releasing[i]; is(r) && (found == nil || plan.EqualTemplate(r.Template, &f.Deployment.Spec.Template)) {
			found = r
		}
	}
	return found
}

// failed reports whether what Git brings is what was rolled back, and Git has
// said nothing else since.
func (p *position) failed() bool { return hasFailed(&p.course, &p.status) }

func hasFailed(c *course, s *v1alpha1.BatchReleaseStatus) bool {
	switch {
	case c.brought == nil || s.FailedRevision == "" || s.FailedCommit != c.spec.Commit:
		return false
	case s.FailedTemplateDigest == "": // a status of an earlier version
		return s.FailedRevision == c.brought.name
	}
	return s.FailedTemplateDigest == c.brought.id
}

// forward reports whether the way leads to another revision than the stable one.
func (c *course) forward() bool { return c.goal != c.stable }

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
func manifestStrategy(o *Observed, records []Record) appsv1.DeploymentStrategy {
	switch {
	case o.Release.Spec.DeploymentStrategy != nil:
		return completeStrategy(o.Release.Spec.DeploymentStrategy)
	case !touched(o.Deployment, len(o.Records) > 0):
		return o.Deployment.Spec.Strategy
	case len(records) > 0 && records[0].Strategy != nil:
		return *records[0].Strategy
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
func (p *position) steps() []v1alpha1.Step {
	if !p.status.RollingBack {
		return p.spec.Strategy.Steps
	}
	return plan.RollbackSteps(&p.spec.Strategy)
}

// lastStep reports whether the release is at the step that ends it.
func (p *position) lastStep() bool {
	return int(p.status.CurrentStepIndex) >= len(p.steps())-1 && !p.capped()
}

// capped reports whether the plan, as edited, lets the step have more than the
// last gate allowed. The step then waits at a gate before that.
//
// The last step is everything, at any N. At 0 replicas, or at 1, a number would allow as
// much, and the release would end past its gates.
func (p *position) capped() bool {
	switch step := int(p.status.CurrentStepIndex); {
	case p.status.RollingBack:
		return false
	case step >= len(p.steps())-1:
		return !p.full()
	default:
		return p.planned(step) > p.allowed()
	}
}

// full reports whether all pods may run the update revision.
func (p *position) full() bool { return slices.Contains(p.opened(), plan.Full) || p.beganFull() }

// runsAll reports whether all pods run the goal's revision, and any does.
func (c *course) runsAll() bool {
	running := size(c.goal.rs)
	return running > 0 && running >= c.replicas && c.others() == 0
}

// beganFull reports whether the release began with all pods, and has them still: then
// it has nothing to ask a gate for, and opens none. A round that has not resolved what it
// leads to does not know.
func (p *position) beganFull() bool {
	return p.status.BeganFull && p.goal != nil && p.replicas > 0 && p.runsAll()
}

// allowed is how many pods of N the last gate of this release has let run the
// update revision (I3).
func (p *position) allowed() int32 {
	if p.status.RollingBack || p.beganFull() {
		return p.replicas
	}
	var most int32
	for _, r := range p.opened() {
		most = max(most, plan.Limit(r, p.replicas))
	}
	return most
}

// opened is what the gates of this release have opened the way to.
func (p *position) opened() []intstr.IntOrString {
	switch {
	case len(p.status.OpenedReplicas) > 0:
		return p.status.OpenedReplicas
	case p.status.CurrentStepReplicas != nil: // a status of an earlier version
		return []intstr.IntOrString{*p.status.CurrentStepReplicas}
	}
	return p.openTo(0)
}

// openTo returns what the steps up to this one allow: the largest number and the
// largest percentage among them.
func (p *position) openTo(step int) []intstr.IntOrString {
	var number, percent *intstr.IntOrString
	for _, s := range p.steps()[:step+1] {
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
func (p *position) planned(i int) int32 {
	steps := p.steps()
	return plan.Target(steps, max(0, min(i, len(steps)-1)), p.replicas) // the plan may have become shorter
}

// target returns how many pods of N run the goal's revision when step i is done, and how
// many run others. The goal's are never more than the gates allow.
//
// Before the last step the others keep at least one pod. With only the goal active the
// native controller would bring the goal to a new N by itself. With a surge that pod is
// one above N. Without one the goal gets one less. That is 0 if N is 1: there is nothing
// to split.
func (p *position) target(i int) (goal, others int32) {
	return p.splitAt(i, min(p.planned(i), p.allowed()))
}

// splitAt returns the split of N at step i for a goal of this size.
func (p *position) splitAt(i int, goal int32) (int32, int32) {
	if i >= len(p.steps())-1 && goal == p.replicas && (p.status.RollingBack || p.full()) {
		return goal, 0
	}
	return p.apart(goal)
}

// apart returns the split of N at a goal of this size, with at least one other.
func (f *facts) apart(goal int32) (int32, int32) {
	switch n := f.replicas; {
	case goal < n || n == 0:
		return goal, n - goal
	case f.surge > 0:
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
func (p *position) split() []set { return p.shares(p.stopped()) }

func (p *position) shares(stopped bool) []set {
	goal, others := p.target(int(p.status.CurrentStepIndex))
	sets := []set{newSet(*p.goal)}
	if stay := min(sets[0].size, p.allowed()); stay > goal && p.forward() { // an edit takes no pod away
		goal, others = p.apart(stay)
	}
	if stopped {
		goal = min(goal, sets[0].size)
		others = max(others, p.replicas-goal)
	}
	for _, rs := range p.middle() {
		s := newSet(revisionOfReplicaSet(rs))
		s.want = stays(rs)
		sets = append(sets, s)
	}
	if same := p.running() - size(p.goal.rs); same > 0 && p.forward() && goal < p.replicas { // together they stay within what the gates allow (I3)
		goal = max(goal-same, min(goal, sets[0].size))
		others = max(others, p.replicas-goal)
	}
	if p.forward() {
		sets[0].want = goal
		stable := newSet(*p.stable)
		stable.want = others
		return append(sets, stable)
	}
	var middle int32
	for _, s := range sets[1:] {
		middle += s.most()
	}
	keep(sets[1:], others)
	sets[0].want = max(goal, p.replicas-middle)
	return sets
}

// isSame reports whether a ReplicaSet runs what the goal runs, under another template:
// admission has made another one of what was sent.
func (c *course) isSame(rs *appsv1.ReplicaSet) bool {
	return c.goal.equal(&rs.Spec.Template) || slices.ContainsFunc(c.Records, func(r Record) bool {
		return r.Sent != "" && r.Sent == c.goal.id && (plan.EqualTemplate(r.Template, &rs.Spec.Template) || plan.EqualTemplate(r.Kept, &rs.Spec.Template))
	})
}

// running is how many pods run what the goal runs, under any template of it.
func (c *course) running() int32 {
	n := size(c.goal.rs)
	for _, rs := range c.middle() {
		if c.isSame(rs) {
			n += size(rs)
		}
	}
	return n
}

// stopped reports whether the goal must not grow: the plan is paused, or the
// step has missed its deadline.
func (p *position) stopped() bool {
	return p.spec.Paused || p.status.CurrentStepState == v1alpha1.StepUpgrade && !p.status.RollingBack && p.deadline() <= 0
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
func (c *course) middle() []*appsv1.ReplicaSet {
	var sets []*appsv1.ReplicaSet
	for _, rs := range c.ReplicaSets {
		if size(rs) > 0 && rs != c.goal.rs && rs != c.stable.rs {
			sets = append(sets, rs)
		}
	}
	slices.SortFunc(sets, older)
	return sets
}

func (d *draft) do(a Action) { d.actions = append(d.actions, a) }

func (d *draft) event(reason, message string) {
	d.events = append(d.events, Event{Reason: reason, Message: message})
}

func (d *draft) warn(reason, message string) {
	d.events = append(d.events, Event{Warning: true, Reason: reason, Message: message})
}

func (f *facts) time() *metav1.Time { return &metav1.Time{Time: f.now} }
