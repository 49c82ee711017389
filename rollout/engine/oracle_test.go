package engine_test

import (
	"cmp"
	"fmt"
	"slices"
	"strings"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/util/intstr"
	"k8s.io/apimachinery/pkg/util/validation/field"

	"github.com/tranche-dev/tranche/plan"
	"github.com/tranche-dev/tranche/plan/v1alpha1"
	"github.com/tranche-dev/tranche/rollout/engine"
	"github.com/tranche-dev/tranche/rollout/engine/facts"
)

// oracle is a ledger of what users did, and judges the controller's writes by it.
// It never reads a position, a gate or a bound from status. It reads four
// claims of status, to check them: Ready, Stalled, that a release failed, and at which
// step it waits.
//
// A gate can open only in a round, and only on what that round observed. So the ledger
// opens every gate that a round could open. It judges by the plan, the approval and the
// ReplicaSet status of that very round, and by the model's clock. It errs on the side of
// the engine.
type oracle struct {
	releases []release
	stable   int // version
	last     int // version that was stable before; -1: none, or left by a rollback
	// forgotten: last was stable before the plan, so that no record is of it, and it
	// comes as a release.
	forgotten bool

	// adoptable: status was lost or the plan was made again. A Deployment that
	// is not held at the next round counts as stable as it is.
	adoptable bool
	// awaited: it is, once its native rollout has finished.
	awaited bool
	// meddled: a second writer has changed ReplicaSets or the hold, or a round has
	// written on a stale observation. No complete round has found order since.
	meddled string
	// resized, zeroed: N has changed, or has been 0, since the last complete round.
	resized, zeroed bool
	// approvedSteps are the plans that an approval which names no steps may be for.
	approvedSteps [][]intstr.IntOrString
	approvalSeen  bool
	approvedFor   string // the release that the last approval came for, by the ledger's commit
	gate          waitedAt
	away          absence
	// unsaid: the adopted template was not the one that Git brought, or not as admission
	// writes it any more. Git has not brought it as it is since.
	unsaid bool
	// before is the sum before the round.
	before int32
	// sole is the version that all pods ran at the last complete round; -1: several.
	sole int
	// whole: its gates allowed all pods then. The native controller may follow N with it
	// until a round has acted on an edit that takes this back.
	whole bool
	// seen is the release of the last complete round.
	seen struct {
		version int
		commit  string
	}
}

// release is what the ledger knows of one (version, commit).
type release struct {
	version int
	commit  string
	// entered is when it began.
	entered time.Time
	// opened are the replicas values up to the step that the last gate led to;
	// none before any gate opened.
	opened []intstr.IntOrString
	// grown: a round has observed more pods than the first step's. Else no more is known
	// than that a gate could have opened, unless sure.
	grown bool
	// sure: a gate could open in a complete round that moved nothing and saw the hold. The
	// release had begun before, so that round has opened it.
	sure  bool
	could bool // a gate could open in this round
	// first is the replicas value of the first step when the first pod came, or when the
	// release began with pods. It is that of now if no pod is there.
	first []intstr.IntOrString
	// reach is the last step that the gates have led to. In an edited plan it is the last
	// one that wants no more than they have allowed.
	reach int
	// edited: the plan has changed since it began. The gate that is left may be one
	// before the last step.
	edited bool
	// position is the step whose gate is next, in steps.
	position int
	steps    []intstr.IntOrString
	// waits says of each step up to the position since when its pods are available.
	waits  [8]wait
	begun  bool // a round could act on it
	ended  bool
	failed bool
	itself bool // what ran already may have been released to itself, and have ended so
	held   bool // a round has found the Deployment held for it
	midway bool // it was brought while another release was under way
	fault  bool // a pod of it was not ready for a reason of its own
	losses int  // how often a step has lost its pods
	// doubtful: a round that could not act on the plan has found another release in it, with
	// the Deployment native. A release that has moved nothing ends by that.
	doubtful bool
	looked   bool // a complete round has observed it and could act on it
	lost     bool // one had before the status was lost
	full     bool // all pods ran it then, and no other pod has been there since
	// completed is the step that a user completed in status, with the plan of
	// that moment; -1: none.
	completed      int
	completedSteps []intstr.IntOrString
	// statusSteps is the plan that the status was about then: an edit that no round has
	// seen may be taken back.
	statusSteps []intstr.IntOrString
}

// observed is how many pods of a release a round observes.
func (r *release) observed(ob *engine.Observed) (n int32) {
	for _, rs := range ob.ReplicaSets {
		if versionIn(&rs.Spec.Template) == r.version {
			n += facts.Size(rs)
		}
	}
	return n
}

// values are those that the gates of a release have opened, or its first step.
func (r *release) values() []intstr.IntOrString {
	if len(r.opened) == 0 {
		return slices.Clone(r.first)
	}
	return r.opened
}

// allows is how many of n pods the gates of a release allow. Before any has opened, an
// edit of the first step adds none.
func (r *release) allows(n int32) int32 {
	switch {
	case len(r.steps) == 0:
		return n // no round could act on it
	case r.grown || r.sure:
		return most(r.opened, n)
	}
	return max(most(r.opened, n), min(most(r.first, n), most(r.steps[:1], n)))
}

// wait is a step at its gate: since when its pods are available, and the target
// of that moment.
type wait struct {
	since  time.Time
	target int32
}

// violation is what a broken rule panics with.
type violation struct{ rule, text string }

func (c *cluster) violate(rule, format string, args ...any) {
	panic(violation{rule, fmt.Sprintf(format, args...) + "\n  is " + c.String()})
}

func (o *oracle) init(*cluster) { o.last, o.sole, o.adoptable = -1, -1, true }

func (o *oracle) clone() oracle {
	k := *o
	k.releases = slices.Clone(o.releases)
	k.approvedSteps = slices.Clone(o.approvedSteps)
	return k
}

// of returns the ledger's entry.
func (o *oracle) of(c *cluster, version int, commit string) *release {
	for i := range o.releases {
		if r := &o.releases[i]; r.version == version && r.commit == commit {
			return r
		}
	}
	o.releases = append(o.releases, release{version: version, commit: commit, entered: c.now, completed: -1})
	return &o.releases[len(o.releases)-1]
}

func (o *oracle) current(c *cluster, spec *v1alpha1.BatchReleaseSpec) *release {
	return o.of(c, versionIn(spec.Template), commitIn(c, spec))
}

// free reports whether a version may grow with no gate: it is stable, or a
// rollback leads to it. In the middle of another release, only the stable one is a
// way back. r is the release that spec brings.
func (o *oracle) free(version int, r *release) bool {
	return version == o.stable || version == o.last && (version != r.version || !r.midway)
}

// usable reports whether a round could act on the plan.
func usable(ob *engine.Observed) bool {
	return ob.Deployment != nil && ob.Refused == nil && ob.Rival == "" && len(ob.Records) > 0 &&
		!isLeftAlone(ob) && !refusesBounds(ob.Release.Spec.DeploymentStrategy) &&
		len(plan.ValidateStrategy(&ob.Release.Spec.Strategy, field.NewPath("spec"))) == 0
}

// look notes what a round observes, and opens the gates that it could open.
func (o *oracle) look(c *cluster, ob *engine.Observed) {
	o.before = c.sum()
	o.awaited = false
	if ob.Deployment == nil {
		return
	}
	if d := ob.Deployment; o.adoptable && d.Labels[v1alpha1.LabelHeld] == "" && (!d.Spec.Paused || d.Spec.Strategy.Type != appsv1.RecreateDeploymentStrategyType) {
		v, proven := o.adopted(c, ob)
		o.unsaid = versionIn(ob.Release.Spec.Template) != v || c.mutates && ob.Deployment.Spec.Template.Annotations[annotationMade] == ""
		if proven && v != o.stable {
			o.stable, o.last, o.forgotten = v, o.stable, len(ob.Records) == 0
		}
		o.awaited = !proven
	}
	r := o.current(c, &ob.Release.Spec)
	if !usable(ob) {
		return
	}
	r.full, r.could = (r.full || !r.looked) && runsAll(ob, r.version), false
	o.replan(r, ob)
	steps := ob.Release.Spec.Strategy.Steps
	if o.shows(c, ob) && !o.approvalSeen {
		o.approvedSteps = append(o.approvedSteps, valuesOf(steps))
	}
	// Until the hold no observation shows that the pods of a native rollout are its own,
	// if admission acts outside dry runs only. A release that has moved none follows
	// edits.
	unknown := c.admission == mutatesNotDry && !r.held
	// Nor later, where admission has come since that rollout.
	strangers := c.d != nil && c.sizeOf(r.version) == c.foreign(r.version)
	if !r.looked && !r.lost || r.observed(ob) == 0 || unknown || strangers {
		r.first = r.steps[:1]
	}
	r.grown = r.grown || len(r.opened) > 0 && r.observed(ob) > most(r.first, facts.Replicas(ob.Deployment))
	for i := range min(r.reach+1, len(r.steps)) { // an edit raised the step that it is at, and that was approved
		raised := most(r.steps[:i+1], facts.Replicas(ob.Deployment)) > r.allows(facts.Replicas(ob.Deployment))
		if raised && (o.approved(r, ob.Release.Spec.Approval, i) || o.completed(r, ob, i)) {
			r.opened = append(r.values(), r.steps[:i+1]...)
		}
	}
	last := len(steps) - 1
	if o.completed(r, ob, last) || (r.position == last || r.edited && r.position == last-1) && (o.approved(r, ob.Release.Spec.Approval, last-1) && o.approved(r, ob.Release.Spec.Approval, last)) {
		r.opened = append(r.opened, plan.Full) // an edit has left no gate to ask
	}
	for i := range steps {
		if most(r.steps[:i+1], facts.Replicas(ob.Deployment)) <= r.allows(facts.Replicas(ob.Deployment)) {
			r.reach = max(r.reach, i)
		}
	}
	for i := 0; i <= r.position && i < last; i++ {
		if !o.opens(c, r, ob, i) {
			continue
		}
		r.could = true
		if i == r.position {
			r.position, r.completed = i+1, -1
			r.waits[i+1] = wait{}
			r.reach = max(r.reach, i+1)
		}
		r.opened = append(r.opened, valuesOf(steps[:i+2])...)
		slices.SortFunc(r.opened, func(a, b intstr.IntOrString) int { return cmp.Compare(a.String(), b.String()) })
		r.opened = slices.Compact(r.opened)
	}
}

// runsAll reports whether a round observes pods of a version, and no others.
func runsAll(ob *engine.Observed, version int) bool {
	var all, its int32
	for _, rs := range ob.ReplicaSets {
		all += facts.Size(rs)
		if versionIn(&rs.Spec.Template) == version {
			its += facts.Size(rs)
		}
	}
	return all > 0 && its == all
}

// shows reports whether a round observes the approval that there is.
func (o *oracle) shows(c *cluster, ob *engine.Observed) bool {
	a := ob.Release.Spec.Approval
	return a != nil && c.br.Spec.Approval != nil && a.ApprovedIn == c.br.Spec.Approval.ApprovedIn
}

// adopted is the version that a plan with no memory finds, and whether that has proved
// good. It is the Deployment's. While the native controller is rolling that out, it has
// not: if Git brings another version, the one with the most available pods counts. If
// admission acts outside dry runs only, or has come since that rollout began, the
// controller cannot know from what is there what Git brings.
func (o *oracle) adopted(c *cluster, ob *engine.Observed) (version int, proven bool) {
	v := versionIn(&ob.Deployment.Spec.Template)
	if v == o.stable && len(ob.Records) > 0 {
		return v, true // it was before the memory was lost
	}
	told := ob.Template == nil || nameOf(ob.Template) == nameOf(&ob.Deployment.Spec.Template)
	if versionIn(ob.Release.Spec.Template) == v && c.admission != mutatesNotDry && told {
		return v, rolledOut(ob.Deployment)
	}
	found, most := v, int32(0)
	for _, rs := range ob.ReplicaSets {
		if n := rs.Status.AvailableReplicas; n > most {
			found, most = versionIn(&rs.Spec.Template), n
		}
	}
	return found, true
}

// rolledOut is what "kubectl rollout status" waits for.
func rolledOut(d *appsv1.Deployment) bool {
	s := &d.Status
	switch {
	case s.ObservedGeneration < d.Generation, s.UpdatedReplicas < facts.Replicas(d):
		return false
	default:
		return s.Replicas <= s.UpdatedReplicas && s.AvailableReplicas >= s.UpdatedReplicas
	}
}

// replan puts the position into an edited plan: at the first step whose target is not
// below what runs, and not beyond what is opened. A release whose own step has not changed
// stays at it. The engine may be at an earlier one, whose gates can then open again.
func (o *oracle) replan(r *release, ob *engine.Observed) {
	now := valuesOf(ob.Release.Spec.Strategy.Steps)
	if slices.Equal(now, r.steps) {
		return
	}
	r.edited = len(r.steps) > 0
	if r.reach >= len(now) || r.reach >= len(r.steps) || now[r.reach] != r.steps[r.reach] { // else it stays at its step
		r.reach = 0
	}
	stays := min(r.position, len(now)-1, len(r.steps)-1)
	for stays > 0 && now[stays] != r.steps[stays] {
		stays--
	}
	r.steps, r.position = now, 0
	if len(r.opened) == 0 {
		return
	}
	n, runs := facts.Replicas(ob.Deployment), r.observed(ob)
	for i := range now {
		if most(now[:i+1], n) <= most(r.opened, n) && (i == 0 || most(now[:i], n) < runs) {
			r.position = i
		}
	}
	r.position = min(max(r.position, stays), max(0, len(now)-2))
}

func most(values []intstr.IntOrString, n int32) int32 {
	var limit int32
	for _, v := range values {
		limit = max(limit, plan.Limit(v, n))
	}
	return limit
}

// opens reports whether the gate of step i could open in this round.
func (o *oracle) opens(c *cluster, r *release, ob *engine.Observed, i int) bool {
	n := facts.Replicas(ob.Deployment)
	if n == 0 {
		return false // to zero and back passes no gate
	}
	target := targetOf(c, r, i, n)
	var available int32
	for _, rs := range ob.ReplicaSets {
		if versionIn(&rs.Spec.Template) == r.version {
			available += min(facts.Size(rs), rs.Status.AvailableReplicas)
		}
	}
	w := &r.waits[i]
	low := min(target, w.target)
	low -= tolerated(c, low)
	switch {
	case w.since.IsZero() && available >= target:
		*w = wait{c.now, target}
	case w.since.IsZero():
		return false
	case available < low:
		if engine.Held(ob.Deployment) && ob.Deployment.Status.ObservedGeneration >= ob.Deployment.Generation && !ob.Release.Spec.Paused {
			*w = wait{}
			r.losses++
		}
		return false
	}
	if ob.Release.Spec.Paused || isLacking(c, r.version, target) {
		return false // no gate opens, but the time of a pause counts
	}
	pause := ob.Release.Spec.Strategy.Steps[i].Pause
	return pause != nil && c.now.Sub(w.since) >= pause.Duration.Duration ||
		o.completed(r, ob, i) ||
		o.approved(r, ob.Release.Spec.Approval, i)
}

// targetOf is how many of n pods step i of a release wants.
func targetOf(c *cluster, r *release, i int, n int32) int32 {
	target := most(r.steps[:i+1], n)
	if surge, _ := c.bounds(); surge == 0 {
		target = min(target, n-1) // one other stays until the last step
	}
	return target
}

// isLacking reports whether fewer pods of a version are ready, whatever its ReplicaSet says.
func isLacking(c *cluster, version int, target int32) bool {
	_, ready, _, _, _ := c.podsOf(version)
	return ready < target
}

// tolerated is how many of a target's pods a waiting step may lack.
func tolerated(c *cluster, target int32) int32 {
	s := c.manifestStrategy()
	_, unavailable, _ := plan.Bounds(&s, target)
	return max(0, min(unavailable, target-1))
}

// completed reports whether a user has completed step i in status.
func (o *oracle) completed(r *release, ob *engine.Observed, i int) bool {
	upTo := min(i+1, len(r.steps)-1)
	return r.completed == i && !ob.Release.Spec.RequireSignedApprovals && (sameSteps(r.completedSteps, r.steps, upTo) || sameSteps(r.statusSteps, r.steps, upTo))
}

func sameSteps(a, b []intstr.IntOrString, upTo int) bool {
	return len(a) > upTo && len(b) > upTo && slices.Equal(a[:upTo+1], b[:upTo+1])
}

// approved reports whether an approval opens the gate of step i of a release.
func (o *oracle) approved(r *release, a *v1alpha1.Approval, i int) bool {
	if a == nil || r.ended || int(a.Step) < i || a.Revision == bogus || !namedBy(o, r, a) {
		return false
	}
	upTo := min(i+1, len(r.steps)-1) // of the last step nothing else is asked
	if len(a.Steps) > 0 {
		return sameSteps(a.Steps, r.steps, upTo)
	}
	return slices.ContainsFunc(o.approvedSteps, func(steps []intstr.IntOrString) bool { return sameSteps(steps, r.steps, upTo) })
}

// bogus is the revision of an approval that is for nothing.
const bogus = "5555555555"

// allowed is how many pods of a release gates allow.
func (o *oracle) allowed(c *cluster, r *release, ob *engine.Observed) int32 {
	return max(r.allows(facts.Replicas(ob.Deployment)), r.allows(c.replicas()))
}

// wrote judges one write of the controller.
func (o *oracle) wrote(c, before *cluster, ob *engine.Observed, a engine.Action) {
	if !before.fresh() {
		o.meddled = "a round wrote on a stale observation"
	}
	o.judgeGates(c, before, ob, a)
	if before.informed() {
		o.judgeAvailability(c, before, a)
		o.judgeSafety(c, before, a)
	}
	if m, ok := a.(engine.Remember); ok && m.Record.Order > 0 && !m.Written { // the hand-back may come late
		r, version := o.current(c, &ob.Release.Spec), versionIn(m.Record.Template)
		if o.free(version, r) || version == r.version && (r.whole() || r.full) { // else the hand-back is judged
			o.become(c, before, ob, version)
		}
	}
	if _, ok := a.(engine.Hold); ok && o.awaited && c.admission == admitsAll {
		c.violate("adoption", "%s, and the native rollout of what Git brings has not finished\n was %s", a, before)
	}
	if h, ok := a.(engine.HandBack); ok && !mayHandBack(c, &h.Strategy) {
		c.violate("I7", "%s leaves another strategy than the manifest's\n was %s", a, before)
	}
}

// judgeGates is I3 and I5.
func (o *oracle) judgeGates(c, before *cluster, ob *engine.Observed, a engine.Action) {
	r := o.current(c, &ob.Release.Spec)
	var version int
	switch a := a.(type) {
	case engine.CreateReplicaSet:
		version = versionIn(&a.ReplicaSet.Spec.Template)
		if facts.Size(a.ReplicaSet) == 0 {
			return
		}
	case engine.Resize:
		version = versionIn(&a.ReplicaSet.Spec.Template)
		if a.To <= facts.Size(a.ReplicaSet) {
			return
		}
	case engine.HandBack:
		o.judgeHandBack(c, before, ob, r)
		return
	case engine.Remember:
		judgeEnd(o, c, before, &a, r)
		return
	default:
		return
	}
	pods := c.sizeOf(version) - c.foreign(version) - unmade(c, version)
	switch {
	case o.free(version, r):
	case version != r.version:
		c.violate("I3", "%s: v%d grows, and spec brings v%d; stable is v%d\n was %s", a, version+1, r.version+1, o.stable+1, before)
	case r.failed:
		c.violate("I3", "%s: v%d by %.7s has failed, and grows again\n was %s", a, version+1, r.commit, before)
	case o.allowed(c, r, ob) >= max(c.replicas(), facts.Replicas(ob.Deployment)): // the surge is I2's
	case pods > o.allowed(c, r, ob):
		c.violate("I3", "%s: %d pods of v%d by %.7s, and its gates allow %d (opened: %s)\n was %s", a, pods, version+1, r.commit, o.allowed(c, r, ob), said(r.opened), before)
	}
}

func said(values []intstr.IntOrString) string {
	if len(values) == 0 {
		return "none, the first step counts"
	}
	var fields []string
	for _, v := range values {
		fields = append(fields, v.String())
	}
	return strings.Join(fields, " ")
}

func (c *cluster) sizeOf(version int) (n int32) {
	for _, i := range c.live() {
		if versionIn(&c.sets[i].rs.Spec.Template) == version {
			n += c.size(i)
		}
	}
	return n
}

// foreign is how many pods of a version run under another template than the Deployment's,
// in ReplicaSets that no record is of. Admission has changed what the native controller
// made them of, and no controller knows them to be the same.
func (c *cluster) foreign(version int) (n int32) {
	for _, i := range c.live() {
		t := &c.sets[i].rs.Spec.Template
		if c.sets[i].foreign && versionIn(t) == version && nameOf(t) != nameOf(&c.d.Spec.Template) {
			n += c.size(i)
		}
	}
	return n
}

// unmade is how many pods of a version will not come, as their ReplicaSet is being deleted:
// its controller makes no more.
func unmade(c *cluster, version int) (n int32) {
	for _, i := range c.live() {
		if c.doomed(i) && versionIn(&c.sets[i].rs.Spec.Template) == version {
			n += max(0, c.size(i)-int32(len(c.sets[i].pods)))
		}
	}
	return n
}

// judgeHandBack: the native controller brings all pods to the template that it is handed.
// So that must be free, or allowed as a whole. At 0 replicas it must be allowed for any
// number that may come.
func (o *oracle) judgeHandBack(c, before *cluster, ob *engine.Observed, r *release) {
	version := versionIn(&c.d.Spec.Template)
	o.judgeMutation(c, before)
	_, total := c.active()
	all := r.full && version == r.version && c.sizeOf(version) >= c.replicas() && c.sizeOf(version) == total && total > 0
	if !o.free(version, r) && !all && (version != r.version || !r.whole()) {
		c.violate("I3", "the hand-back lets the native controller bring all pods to v%d; stable is v%d, and the gates of v%d by %.7s allow %d\n was %s",
			version+1, o.stable+1, r.version+1, r.commit, o.allowed(c, r, ob), before)
	}
	o.become(c, before, ob, version)
	if fresh := c.newSet(); c.br != nil && fresh >= 0 && c.doomed(fresh) && c.replicas() > 0 {
		for _, i := range c.live() {
			if !c.doomed(i) && c.size(i) > 0 && nameOf(&c.sets[i].rs.Spec.Template) == nameOf(&c.d.Spec.Template) {
				c.violate("hand-back", "the native controller takes pods from %s for the ReplicaSet of the same template that is being deleted\n was %s", c.sets[i].rs.Name, before)
			}
		}
	}
}

// judgeEnd: a version may become stable before it is handed back, if another one comes. All pods run it then, and
// its gates have led to that, or it was a way back.
func judgeEnd(o *oracle, c, before *cluster, a *engine.Remember, r *release) {
	version := versionIn(a.Record.Template)
	if a.Record.Order == 0 || a.Written || version == r.version || version == o.stable {
		return
	}
	whole := slices.ContainsFunc(o.releases, func(r release) bool { return r.version == version && r.whole() })
	_, total := c.active()
	if total == 0 || total != c.sizeOf(version) || total < c.replicas() || !whole && version != o.last {
		c.violate("I3", "v%d is recorded as stable, with %d of %d pods; its gates are open: %t\n was %s",
			version+1, c.sizeOf(version), total, whole, before)
	}
	o.stable, o.last, o.forgotten = version, o.stable, false
	if !whole {
		o.last = -1 // it was left by a rollback
	}
}

// whole reports whether the gates of a release allow all pods, however many come. A step
// of 3 pods is not the last one because there are 3 at this moment.
func (r *release) whole() bool { return r.allows(1000) == 1000 }

// become notes that a version is stable: all pods run it, or may, and none is there. A
// version that a rollback left is nothing to go back to. A version that was left through
// gates is, also if they led to what had been stable before.
func (o *oracle) become(c, before *cluster, ob *engine.Observed, version int) {
	r := o.current(c, &ob.Release.Spec)
	_, total := c.active()
	n := min(c.replicas(), facts.Replicas(ob.Deployment)) // the hand-back meets a conflict where N has changed
	if n == 0 && version == o.last && (version != r.version || before.brLag || before.dLag) {
		return // it is parked there by a round that has not read what came after
	}
	if version == o.stable || total != c.sizeOf(version) && n > 0 || total < n {
		return
	}
	if version == o.last && !r.whole() && !o.forgotten {
		o.last = -1
	} else {
		o.last = o.stable
	}
	o.stable, o.forgotten = version, false
}

// judgeMutation: a hand-back whose template admission changes, as a dry run tells,
// lets the native controller replace pods of the same version, without gates.
func (o *oracle) judgeMutation(c, before *cluster) {
	is, was := before.newSet(), nameOf(&before.d.Spec.Template)
	if c.admission == mutatesNotDry || c.replicas() == 0 || !before.fresh() || nameOf(&c.d.Spec.Template) == was || is < 0 || before.size(is) == 0 {
		return
	}
	if versionIn(&c.d.Spec.Template) == versionIn(&before.d.Spec.Template) {
		c.violate("I3", "the hand-back lets the native controller replace %d pods by ones that admission has changed\n was %s", before.size(is), before)
	}
}

// informed reports whether the controller sees the ReplicaSets as they are, or
// worse than they are.
func (c *cluster) informed() bool {
	if !c.fresh() || c.d == nil {
		return false
	}
	for _, i := range c.live() {
		rs := c.sets[i].rs
		ready, available := c.count(i)
		if rs.Status.ReadyReplicas != ready || rs.Status.AvailableReplicas > available {
			return false
		}
	}
	return true
}

// worst is how many available pods are left at least once every ReplicaSet has its size.
// Pods that are not ready go first, available ones next.
func (c *cluster) worst() (n int32) {
	for _, i := range c.live() {
		ready, available := c.count(i)
		unready := int32(len(c.sets[i].pods)) - ready
		gone := max(0, int32(len(c.sets[i].pods))-c.size(i)-unready)
		if c.doomed(i) {
			gone = 0
		}
		n += max(0, available-gone)
	}
	return n
}

// sum is the sum of sizes, and of what pods a ReplicaSet that is being deleted has above
// its own: no size takes them away.
func (c *cluster) sum() (n int32) {
	for _, i := range c.live() {
		of := c.size(i)
		if c.doomed(i) {
			of = max(of, int32(len(c.sets[i].pods)))
		}
		n += of
	}
	return n
}

// judgeAvailability is I1 and I2.
func (o *oracle) judgeAvailability(c, before *cluster, a engine.Action) {
	surge, unavailable := c.bounds()
	n := c.replicas()
	total, was := c.sum(), before.sum()
	if total < was && c.worst() < min(before.worst(), n-unavailable) {
		c.violate("I1", "%s leaves %d pods available, below %d\n was %s", a, c.worst(), n-unavailable, before)
	}
	limit := n + max(1, surge)
	if active, _ := before.active(); len(active) == 1 && total == was+1 {
		limit = max(limit, o.before+1) // for the length of one write, so that another is active (H26)
	}
	if total > was && total > limit {
		c.violate("I2", "%s makes %d pods, above %d\n was %s", a, total, limit, before)
	}
}

// judgeSafety is I10 before it happens: after a write of the controller the native
// controller would resize, and before it would not.
func (o *oracle) judgeSafety(c, before *cluster, a engine.Action) {
	_, hold := a.(engine.Hold)
	_, back := a.(engine.HandBack)
	if (hold || back) && c.d.Spec.Paused != (c.d.Spec.Strategy.Type == "Recreate") {
		c.violate("I10", "%s leaves half a hold\n was %s", a, before)
	}
	if !c.held() || before.held() && before.fights() != "" {
		return
	}
	if hold && !before.held() && c.admission == mutatesNotDry {
		o.meddled = "no dry run tells which ReplicaSet the hold makes the new one"
		return
	}
	if d := before.d; d != nil && !before.held() && (d.Labels[v1alpha1.LabelHeld] != "" || d.Spec.Paused) {
		return // a second writer has opened the hold (H8); it is put back
	}
	if f := c.fights(); f != "" && !o.follows(c) {
		c.violate("I10", "after %s the native controller %s\n was %s", a, f, before)
	}
}

// fights is what the native controller would resize now.
func (c *cluster) fights() string {
	k := c.clone()
	k.nativeScale()
	return k.resizedSince(c)
}

// allAvailable is the cluster with all pods available: it then sees what is saturated.
func (c *cluster) allAvailable() *cluster {
	k := c.clone()
	for _, i := range k.live() {
		k.writeSet(i, func(rs *appsv1.ReplicaSet) { rs.Status.AvailableReplicas = *rs.Spec.Replicas })
	}
	return k
}

func (c *cluster) resizedSince(before *cluster) string {
	var changes []string
	for i := range min(len(c.sets), len(before.sets)) {
		if c.sets[i].rs != nil && before.sets[i].rs != nil && c.size(i) != before.size(i) {
			changes = append(changes, fmt.Sprintf("resizes v%d from %d to %d", versionIn(&c.sets[i].rs.Spec.Template)+1, before.size(i), c.size(i)))
		}
	}
	return strings.Join(changes, ", ")
}

// fought judges a turn of the native controller under a hold (I10). If there is nothing
// to split, it may follow a new N until the controller's next round. A revision whose
// gates are closed may follow only in two cases, also where a second writer has left
// nothing else. N was 0 in that time, which the controller never saw, or the release began
// with all pods.
func (o *oracle) fought(c, before *cluster) {
	f := c.resizedSince(before)
	if !before.held() || f == "" || o.meddled != "" {
		return
	}
	active, _ := before.active()
	if !o.resized || len(active) > 1 {
		c.violate("I10", "the native controller %s under the hold\n was %s", f, before)
	}
	if o.zeroed || c.br == nil {
		return
	}
	r := o.of(c, o.seen.version, o.seen.commit)
	for i := range before.sets {
		rs := c.sets[i].rs
		if rs == nil || before.sets[i].rs == nil || c.size(i) <= before.size(i) {
			continue
		}
		if v := versionIn(&rs.Spec.Template); o.free(v, r) || v == o.sole && (v != r.version || r.full || o.whole) {
			continue
		}
		if c.size(i) > r.allows(c.replicas()) {
			c.violate("I10", "the native controller %s past a gate\n was %s", f, before)
		}
	}
}

// follows reports whether the native controller would only follow a new N down with the
// one active ReplicaSet, as the next write would. If no ReplicaSet is active, it may
// bring the stable one up.
func (o *oracle) follows(c *cluster) bool {
	active, _ := c.active()
	if len(active) == 0 {
		k := c.clone()
		k.nativeScale()
		up, _ := k.active()
		return len(up) == 1 && o.free(versionIn(&k.sets[up[0]].rs.Spec.Template), o.of(c, c.version, c.commit))
	}
	return o.resized && len(active) == 1 && c.size(active[0]) > c.replicas()
}

// since notes what is true while the clock goes on.
func (o *oracle) since(c *cluster, _ time.Time) {
	for i := range o.releases {
		r := &o.releases[i]
		if _, _, _, failing, _ := c.podsOf(r.version); failing > 0 {
			r.fault = true
		}
	}
}

// said judges a status that was written.
func (o *oracle) said(c *cluster, ob *engine.Observed, before v1alpha1.BatchReleaseStatus) {
	s := c.br.Status
	r := o.current(c, &ob.Release.Spec)
	deadline := time.Duration(c.deadlineOf(ob)) * time.Second
	if s.FailedCommit == r.commit && s.FailedRevision != "" && before.FailedRevision == "" {
		if ob.Release.Annotations[v1alpha1.AnnotationRollback] == "" {
			o.since(c, c.now) // a deadline that is made shorter ends at a moment in which a pod has just failed
			if !r.fault {
				c.violate("false rollback", "no pod of v%d has failed by itself: %s", r.version+1, s.FailedMessage)
			}
			if placed := c.placed(r.version); c.now.Sub(placed) < deadline/10 {
				c.violate("false rollback", "the pods of v%d that fail have had their nodes for %s, with a deadline of %s: %s", r.version+1, c.now.Sub(placed), deadline, s.FailedMessage)
			}
			if c.now.Sub(r.entered) < deadline {
				c.violate("false rollback", "%s after the last gate of v%d opened, with a deadline of %s", c.now.Sub(r.entered), r.version+1, deadline)
			}
		}
		r.ended, r.failed = true, true
	}
	if s.Reason == v1alpha1.ReasonProgressDeadlineExceeded && before.Reason != s.Reason && !s.RollingBack && c.now.Sub(r.entered) < deadline-time.Duration(r.losses)*time.Second { // each loss of pods counts for a second more
		c.violate("I14", "the deadline is said to be over %s after the step began, and it is %s", c.now.Sub(r.entered), deadline)
	}
	if meta.IsStatusConditionTrue(s.Conditions, v1alpha1.ConditionReady) && c.fresh() && o.meddled == "" && usable(ob) && c.d != nil && c.d.Status.ObservedGeneration >= c.d.Generation {
		for _, i := range c.live() {
			if v := versionIn(&c.sets[i].rs.Spec.Template); v != r.version && c.size(i) > 0 {
				c.violate("Ready", "Ready=True, and %d pods run v%d while spec says v%d", c.size(i), v+1, r.version+1)
			}
		}
	}
}

func (c *cluster) deadlineOf(ob *engine.Observed) int64 {
	seconds := int64(v1alpha1.DefaultProgressDeadlineSeconds)
	if s := ob.Release.Spec.Strategy.ProgressDeadlineSeconds; s != nil {
		seconds = int64(*s)
	}
	return seconds
}

// doubt notes that a round could not act on the plan, and found another release in it.
func (o *oracle) doubt(c *cluster, ob *engine.Observed) {
	if d := ob.Deployment; usable(ob) || d == nil || ob.Rival != "" || d.Labels[v1alpha1.LabelHeld] != "" || engine.Held(d) {
		return
	}
	r := o.current(c, &ob.Release.Spec)
	for i := range o.releases {
		o.releases[i].doubtful = o.releases[i].doubtful || &o.releases[i] != r
	}
}

// holds reports whether the hold is of this release. That of the one before may be there, whose version is stable.
func holds(o *oracle, r *release, ob *engine.Observed) bool {
	former := r.version != o.stable && versionIn(&ob.Deployment.Spec.Template) == o.stable
	return ob.Deployment.Labels[v1alpha1.LabelHeld] != "" && !former
}

// rounded notes that a round was complete.
func (o *oracle) rounded(c *cluster, ob *engine.Observed, actions []engine.Action) {
	o.doubt(c, ob)
	if usable(ob) {
		before := *o.of(c, o.seen.version, o.seen.commit)
		current := o.current(c, &ob.Release.Spec)
		current.sure = current.sure || current.could && current.looked && len(actions) == 0 && c.fresh() && engine.Held(ob.Deployment)
		current.looked = true
		if before.version != current.version || before.commit != current.commit {
			current.midway = before.held && !before.ended && !before.failed && !o.free(before.version, &before)
		}
		// A template that was there already when it was brought is no release, which
		// could end.
		held := ob.Deployment.Labels[v1alpha1.LabelHeld] != ""
		current.held = current.held || holds(o, current, ob)
		current.begun = current.begun || held || current.version != o.stable || current.version != o.seen.version && before.held
		// No dry run tells, or the dry run tells what the adopted pods were not made by.
		current.itself = current.itself || c.admission == mutatesNotDry || o.unsaid && c.mutates && current.version == o.stable
		current.ended = current.ended || current.begun && !held && current.version == o.stable && c.rests()
		o.seen.version, o.seen.commit = current.version, current.commit
		for i := range o.releases {
			r := &o.releases[i]
			if r.version == current.version && r.commit == current.commit {
				continue
			}
			*r = release{version: r.version, commit: r.commit, entered: c.now, completed: -1, begun: r.begun, ended: r.begun, itself: r.itself, doubtful: r.doubtful}
		}
		o.unsaid = o.unsaid && (c.mutates || !c.rests())
		o.adoptable = o.adoptable && o.awaited
		o.approvalSeen = o.approvalSeen || o.shows(c, ob)
	}
	if !c.fresh() || c.d == nil || c.d.Status.ObservedGeneration < c.d.Generation {
		return
	}
	surge, _ := c.bounds()
	if total := c.sum(); total > o.before && total > c.replicas()+max(1, surge) {
		c.violate("I2", "a round makes %d pods of %d, above %d and a surge of %d", total, o.before, c.replicas(), surge)
	}
	o.resized, o.zeroed = false, c.replicas() == 0
	o.sole, o.whole = -1, usable(ob) && o.current(c, &ob.Release.Spec).whole()
	if active, total := c.active(); total > 0 {
		if v := versionIn(&c.sets[active[0]].rs.Spec.Template); c.sizeOf(v) == total {
			o.sole = v
		}
	}
	_, there := c.active()
	emptied := there == 0 && c.replicas() > 0 // a second writer has, and any ReplicaSet that is made is the native controller's to fill
	if touched := c.d.Labels[v1alpha1.LabelHeld] != "" || c.d.Spec.Paused; len(actions) == 0 && (!touched || !emptied && !c.aloneUntilAvailable()) && c.held() == touched && (!touched || c.fights() == "" && c.allAvailable().fights() == "") {
		o.meddled = ""
	}
}

// aloneUntilAvailable reports whether one ReplicaSet is active, and has ready pods that are
// not available yet. None of these may go before they are, and without a surge no other pod
// has room.
func (c *cluster) aloneUntilAvailable() bool {
	active, _ := c.active()
	if len(active) != 1 {
		return false
	}
	ready, available := c.count(active[0])
	return available < ready
}

// ---- I14

// rests reports whether what spec says runs on all pods, natively.
func (c *cluster) rests() bool {
	if c.d == nil || c.d.Labels[v1alpha1.LabelHeld] != "" || c.d.Spec.Paused != c.halted || !facts.EqualStrategy(c.d.Spec.Strategy, c.manifestStrategy()) ||
		versionIn(&c.d.Spec.Template) != c.version {
		return false
	}
	_, total := c.active()
	return total == c.replicas() && c.sizeOf(c.version) == total
}

// waiting are the reasons of waiting for a person or for a named time.
var waiting = map[string]bool{
	v1alpha1.ReasonWaitingForApproval: true, v1alpha1.ReasonWaitingForReview: true, v1alpha1.ReasonWaitingForPause: true, v1alpha1.ReasonReleasePaused: true, v1alpha1.ReasonScaledToZero: true,
}

// checkRest judges what is said when nothing moves any more.
func (c *cluster) checkRest() {
	if failure := c.quiet(); failure != "" {
		c.violate("I14", "%s", failure)
	}
	checkLeft(c)
	if c.br == nil {
		if c.d != nil && c.d.Labels[v1alpha1.LabelHeld] != "" {
			c.violate("I14", "the plan is gone, and the Deployment is held")
		}
		return
	}
	s := c.br.Status
	if c.d == nil {
		if s.Reason != v1alpha1.ReasonDeploymentNotFound {
			c.violate("I14", "there is no Deployment, and the reason is %s", s.Reason)
		}
		return
	}
	stalled, ready := meta.IsStatusConditionTrue(s.Conditions, v1alpha1.ConditionStalled), meta.IsStatusConditionTrue(s.Conditions, v1alpha1.ConditionReady)
	size, _, available, _, _ := c.podsOf(c.version)
	_, total := c.active()
	var lacking int32
	for v := range versions + 1 {
		size, _, available, _, _ := c.podsOf(v)
		lacking += size - available
	}
	switch {
	case c.rests() && (c.admission == mutatesNotDry || c.oracle.unsaid && c.mutates) && waiting[s.Reason]:
		// Git's text of the adopted template is not known, and no dry run shows it. It is
		// released to itself, behind its gates.
	case c.rests():
		r := c.oracle.current(c, &c.br.Spec) // its rollback waits, or its release does
		waits := standsStill(c) && (isAlone(c) || r.failed || r.version != c.oracle.stable)
		if !ready && lacking == 0 && !stalled && !waits {
			c.violate("I14", "all pods run v%d, and Ready is not True: %s", c.version+1, s.Reason)
		}
	case ready:
		c.violate("Ready", "Ready=True, and it is not so")
	case stalled:
		c.checkStalled(s.Reason, lacking, total)
	case s.Reason == v1alpha1.ReasonReleasePaused:
		if !standsStill(c) {
			c.violate("I14", "it says that the plan is paused")
		}
	case s.Reason == v1alpha1.ReasonScaledToZero:
		if c.replicas() != 0 {
			c.violate("I14", "it says that there are no replicas")
		}
	case s.Reason == v1alpha1.ReasonWaitingForApproval, s.Reason == v1alpha1.ReasonWaitingForReview:
		if wanted := c.oracle.wanted(c, int(s.CurrentStepIndex), size); wanted-available > tolerated(c, wanted) {
			c.violate("I14", "it waits for an approval, and %d of %d pods are not available", wanted-available, wanted)
		}
		if reach := c.oracle.current(c, &c.br.Spec).reach; int(s.CurrentStepIndex) > reach {
			c.violate("I3", "it waits at step %d, and no gate has led beyond step %d", s.CurrentStepIndex, reach)
		}
	case waiting[s.Reason]:
	default:
		c.violate("I14", "nothing moves, nothing is waited for, it is not stalled: %s", s.Reason)
	}
}

// wanted is how many of the pods that there are the gate of a step waits for. An
// edit that lowers the steps leaves more. The step is a claim of status: that its
// pods are there.
func (o *oracle) wanted(c *cluster, step int, size int32) int32 {
	r := o.current(c, &c.br.Spec)
	if step >= len(r.steps) {
		return size
	}
	allowed := r.allows(c.replicas())
	if step == 0 { // a gate that could have opened by now may not have
		allowed = most(r.first, c.replicas())
	}
	return min(size, most(r.steps[:step+1], c.replicas()), allowed)
}

// nativelyStuck reports whether the native controller makes no ReplicaSet of a template
// until N changes. The rollout before the plan has left one of size N which is desired
// otherwise, and a user has deleted the others (H11). Or a user has paused it. Tranche has not
// touched it.
func (c *cluster) nativelyStuck() bool {
	return c.halted || c.midway > 0 && len(c.records) == 0 && c.newSet() < 0 && c.nativeScaling()
}

func (c *cluster) checkStalled(reason string, lacking, total int32) {
	kept := slices.ContainsFunc(c.live(), c.doomed)
	switch reason {
	case v1alpha1.ReasonTakingHold, v1alpha1.ReasonHandingBack, v1alpha1.ReasonPodsUnavailable, v1alpha1.ReasonRollingBack:
		if !kept {
			c.violate("I14", "Stalled=True with %s, and no ReplicaSet is being deleted", reason)
		}
	case v1alpha1.ReasonProgressDeadlineExceeded, "NativeRollout":
		stuck := reason == "NativeRollout" && c.nativelyStuck()
		if lacking == 0 && !kept && total >= c.replicas() && !stuck {
			c.violate("I14", "Stalled=True with %s, and all pods are available", reason)
		}
		if reason == v1alpha1.ReasonProgressDeadlineExceeded {
			c.oracle.judgeHealth(c)
		}
	case v1alpha1.ReasonRecordsLost:
		if total > 0 || len(c.records) > 0 {
			c.violate("I14", "Stalled=True with %s, and there are %d pods and %d records", reason, total, len(c.records))
		}
	case v1alpha1.ReasonRolledBack:
		if r := c.oracle.current(c, &c.br.Spec); !r.failed && !r.ended {
			c.violate("I14", "Stalled=True with %s, and no release has failed", reason)
		}
	case v1alpha1.ReasonInvalidPlan:
		if len(plan.ValidateStrategy(&c.br.Spec.Strategy, field.NewPath("spec"))) == 0 {
			c.violate("I14", "Stalled=True with %s, and the plan is valid", reason)
		}
	case v1alpha1.ReasonHandBackRefused:
		if c.admission != mutatesAlways && !c.mutates {
			c.violate("I14", "Stalled=True with %s, and admission would change nothing", reason)
		}
	case v1alpha1.ReasonWriteRefused:
		judgeRefusal(c, lacking, total)
	default:
		judgeCause(c, reason)
	}
}

// judgeRefusal is about a release of which a write is refused: what is not, follows N.
func judgeRefusal(c *cluster, lacking, total int32) {
	if c.capped == 0 && (c.setAdmission == admitsAll || c.setAdmission == mutatesSince && !c.alters) {
		c.violate("I14", "Stalled=True with WriteRefused, and admission would change nothing")
	}
	there := c.capped-1 != c.oracle.stable && slices.ContainsFunc(c.live(), func(i int) bool {
		return versionIn(&c.sets[i].rs.Spec.Template) == c.oracle.stable && !c.doomed(i)
	})
	if there && lacking == 0 && total < c.replicas() { // only creations are refused, or growth of another one
		c.violate("I14", "Stalled=True with WriteRefused, and there are %d pods of %d", total, c.replicas())
	}
}

// judgeHealth is about a release that stands still for longer than its deadline, and is
// to go back if its pods fail by themselves. If a step has had its pods, those count: a
// raised target rolls nothing back. The step is a claim of status, and so is that a
// rollback is under way.
func (o *oracle) judgeHealth(c *cluster) {
	r, s := o.current(c, &c.br.Spec), c.br.Status
	if c.br.Spec.Strategy.OnFailure != v1alpha1.FailureRollback || c.br.Spec.Paused || s.RollingBack || r.failed || o.free(r.version, r) {
		return
	}
	size, _, available, failing, _ := c.podsOf(r.version)
	wanted := o.wanted(c, int(s.CurrentStepIndex), size)
	if w := r.waits[s.CurrentStepIndex]; !w.since.IsZero() {
		wanted = min(wanted, w.target)
		wanted -= tolerated(c, wanted)
	}
	if failing > 0 && available < wanted {
		c.violate("health", "%d pods of v%d fail by themselves, %d are available of %d, and it does not go back", failing, r.version+1, available, wanted)
	}
}

// ends checks I14 from here. The status is true whenever the controller has nothing left
// to do. Once pods come up and approvals are given, the release ends.
func (c *cluster) ends() {
	c.checkRest()
	c.goWell()
	approved := false
	for range 12 {
		c.checkRest()
		s := c.br.Status
		if c.rests() && meta.IsStatusConditionTrue(s.Conditions, v1alpha1.ConditionReady) {
			return
		}
		r := c.oracle.current(c, &c.br.Spec)
		switch s.Reason {
		case v1alpha1.ReasonWaitingForApproval, v1alpha1.ReasonWaitingForReview:
			if approved && !r.ended && !r.itself && !r.doubtful {
				c.violate("I14", "the approval of the last step opens no gate")
			}
			if approved {
				c.exec("recommit")
			} else {
				c.exec(fmt.Sprintf("approve %d", len(c.br.Spec.Strategy.Steps)))
			}
			approved = !approved
		case v1alpha1.ReasonRolledBack:
			c.exec("recommit")
			approved = false
		case v1alpha1.ReasonNativeRollout:
			if !c.nativelyStuck() {
				c.violate("I14", "pods come up, and it does not end: %s", s.Reason)
			}
			c.exec(fmt.Sprintf("scale %d", c.replicas()+1))
		case v1alpha1.ReasonHandBackRefused:
			c.mutates = false // the policy goes, and nothing tells the controller
			c.exec("time 1m")
		case v1alpha1.ReasonWriteRefused:
			c.setAdmission, c.capped = admitsAll, 0
			c.exec("time 1h") // the longest wait for the next trial
		default:
			c.violate("I14", "pods come up, approvals are given, and it does not end: %s", s.Reason)
		}
	}
	c.violate("I14", "it does not end after 12 approvals and commits")
}

// goWell takes away all that keeps a release from its end, but approvals.
func (c *cluster) goWell() {
	for i := range c.fates {
		c.fates[i] = comes
	}
	for i := range c.sets {
		for j := range c.sets[i].pods {
			c.sets[i].pods[j].mend(c.now)
		}
	}
	c.quota = 0
	for _, m := range []string{"gone", "deploy", "replan", "unpause", "steps " + c.steps, "bounds good", "together", "resume"} {
		c.exec(m)
	}
	if c.replicas() == 0 {
		c.exec("scale 3")
	}
}
