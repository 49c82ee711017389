package engine_test

import (
	"errors"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/tranche-dev/tranche/plan"
	"github.com/tranche-dev/tranche/plan/v1alpha1"
	"github.com/tranche-dev/tranche/rollout/engine"
	"github.com/tranche-dev/tranche/rollout/engine/facts"
)

// This file is the controller in [cluster]: a dumb copy of what package rollout
// does around Decide.

// decideWith is Decide, with the pods of the update revision where it asks for them.
func (c *cluster) decideWith(o engine.Observed) engine.Decision {
	d := engine.Decide(o, c.now)
	if d.NeedsPods {
		_, _, _, failing, waiting := c.podsOf(c.version)
		o.Pods = &engine.Pods{Failing: failing, Waiting: waiting, PlacedTime: c.placed(c.version), Cause: fmt.Sprintf("%d failing, %d waiting", failing, waiting)}
		d = engine.Decide(o, c.now)
	}
	if d.NeedsReady {
		o.Ready = readyOf(c, &o)
		d = engine.Decide(o, c.now)
	}
	for _, t := range []struct {
		try    func(engine.Observed, engine.Decision) error
		reason string
	}{{c.tryHandBack, v1alpha1.ReasonHandBackRefused}, {c.tryReplicaSets, v1alpha1.ReasonWriteRefused}, {c.tryHandBack, v1alpha1.ReasonHandBackRefused}} {
		if changed := t.try(o, d); changed != nil {
			o.Refused, o.RefusedReason, o.CreationRefused = changed, t.reason, t.reason == v1alpha1.ReasonWriteRefused
			d = engine.Decide(o, c.now)
		}
	}
	return d
}

// readyOf counts the ready pods that the update revision has, whatever its status says.
func readyOf(c *cluster, o *engine.Observed) *int32 {
	var ready int32
	for _, i := range c.live() {
		for _, rs := range o.ReplicaSets {
			if rs.Name == c.sets[i].rs.Name && engine.IsUpdate(o, rs) {
				its, _ := c.count(i)
				ready += its
			}
		}
	}
	return &ready
}

// tryHandBack is the dry run of a hand-back: what admission would make of the
// template runs on no pod.
func (c *cluster) tryHandBack(o engine.Observed, d engine.Decision) error {
	for _, a := range d.Actions {
		h, ok := a.(engine.HandBack)
		if !ok || facts.Replicas(o.Deployment) == 0 {
			continue
		}
		want := h.Template
		if want == nil {
			want = &o.Deployment.Spec.Template
		}
		got := want.DeepCopy()
		c.admit(got, true)
		runs := slices.ContainsFunc(o.ReplicaSets, func(rs *appsv1.ReplicaSet) bool {
			return facts.Size(rs) > 0 && plan.EqualTemplate(&rs.Spec.Template, got)
		})
		if !plan.EqualTemplate(want, got) && !runs {
			return errors.New("admission would change the template")
		}
	}
	return nil
}

// observe builds what Decide is given, from caches that may lag.
func (c *cluster) observe() engine.Observed {
	o := engine.Observed{Release: c.br, Deployment: c.d}
	if c.brLag {
		o.Release = c.brRead
	}
	if c.dLag {
		o.Deployment = c.dRead
	}
	if o.Deployment == nil {
		return o
	}
	for i := range c.sets {
		rs := c.sets[i].rs
		if c.sets[i].lag {
			rs = c.sets[i].read
		}
		if rs != nil && metav1.GetControllerOf(rs).UID == o.Deployment.UID {
			o.ReplicaSets = append(o.ReplicaSets, rs)
		}
	}
	o.Records = slices.Clone(c.records)
	if c.recordsLag {
		o.Records = slices.Clone(c.known)
	}
	c.completeRecords(&o)
	if o.Release != nil && o.Release.Spec.Template != nil && needsTemplate(&o) {
		o.Template = c.dryRun(versionIn(o.Release.Spec.Template))
	}
	return o
}

// completeRecords reads records as the API server would complete them today, where
// none is the Deployment's template.
func (c *cluster) completeRecords(o *engine.Observed) {
	live := &o.Deployment.Spec.Template
	if slices.ContainsFunc(o.Records, func(r engine.Record) bool { return plan.EqualTemplate(r.Template, live) }) {
		return
	}
	for i := range o.Records {
		t := o.Records[i].Template.DeepCopy()
		c.admit(t, true)
		if plan.EqualTemplate(t, live) {
			o.Records[i].Template, o.Records[i].Kept = t, o.Records[i].Template
		}
	}
}

// needsTemplate reports whether package rollout asks the API server.
func needsTemplate(o *engine.Observed) bool {
	digest := plan.TemplateDigest(o.Release.Spec.Template)
	sent := slices.ContainsFunc(o.Records, func(r engine.Record) bool { return r.Sent == digest })
	stable := plan.StableRecord(o.Records)
	return !sent || !engine.Held(o.Deployment) && (stable == nil || stable.Sent != digest)
}

// ownRecords makes the Deployment and the BatchRelease the owners of all records,
// before a round is decided.
func (c *cluster) ownRecords(o *engine.Observed) error {
	for i := range o.Records {
		r := &o.Records[i]
		owner := o.Deployment.UID + "/" + o.Release.UID
		if c.owners[r.ResourceVersion] == owner {
			continue
		}
		k := slices.IndexFunc(c.records, func(there engine.Record) bool { return there.Name == r.Name })
		if k < 0 || c.records[k].ResourceVersion != r.ResourceVersion {
			return errConflict
		}
		c.records = slices.Clone(c.records)
		c.records[k].ResourceVersion = c.nextVersion()
		c.owners[c.records[k].ResourceVersion] = owner
	}
	return nil
}

// dryRun is what the API server makes of a template. The process asks once.
func (c *cluster) dryRun(version int) *corev1.PodTemplateSpec {
	if c.dryRuns[version] == nil {
		t := templates[version].DeepCopy()
		c.admit(t, true)
		c.dryRuns[version] = t
	}
	return c.dryRuns[version]
}

// fresh reports whether no cache lags.
func (c *cluster) fresh() bool {
	return !c.dLag && !c.brLag && !c.recordsLag && !slices.ContainsFunc(c.sets, func(s podSet) bool { return s.lag })
}

// deliver lets all caches read what there is.
func (c *cluster) deliver() {
	if c.fresh() {
		return
	}
	c.dLag, c.brLag, c.recordsLag, c.woken = false, false, false, true
	for i := range c.sets {
		c.sets[i].lag = false
	}
	c.compact()
}

// compact drops ReplicaSets that are gone from the API server and from the cache.
func (c *cluster) compact() {
	c.sets = slices.DeleteFunc(c.sets, func(s podSet) bool { return s.rs == nil && !s.lag })
}

var (
	errConflict = errors.New("conflict")
	errAgain    = errors.New("not as observed")
)

// round is one round of the controller: the first k writes, or all and the
// status where k is negative. It returns how many writes were decided.
func (c *cluster) round(k int) int {
	if c.br == nil {
		return c.abandon(k)
	}
	o := c.observe()
	c.looked, c.woken, c.wake = c.rv, false, time.Time{}
	if o.Release == nil {
		return 0
	}
	if o.Deployment != nil && c.ownRecords(&o) != nil {
		c.wake = c.now.Add(100 * time.Millisecond)
		return 0 // it has decided nothing
	}
	c.awaitTrial(&o)
	c.oracle.look(c, &o)
	d := c.decideWith(o)
	if c.onDecision != nil {
		c.onDecision(d)
		defer c.onRound()
	}
	if tryGrowth(c, &o, d) != nil {
		resizeRest(c, &o)
		return len(d.Actions)
	}
	for i, a := range d.Actions {
		if i == k {
			return len(d.Actions)
		}
		before := c.clone()
		err := c.apply(&o, a)
		c.oracle.judgeTemplates(c, before, a)
		if err != nil {
			c.fail(&o, err)
			return len(d.Actions)
		}
		judgeWrite(c, before, &o, a)
	}
	if k >= 0 {
		return len(d.Actions)
	}
	if d.Wait > 0 {
		c.wake = c.now.Add(d.Wait)
	}
	if !equality.Semantic.DeepEqual(o.Release.Status, d.Status) {
		if o.Release.ResourceVersion != c.br.ResourceVersion {
			c.wake = c.now.Add(100 * time.Millisecond)
			return len(d.Actions)
		}
		before := c.br.Status
		c.writeStatus(d.Status)
		c.brRead = c.br // it reads its own writes
		judgeStatus(c, &o, before)
	}
	judgeRound(c, &o, d.Actions)
	return len(d.Actions)
}

// fail ends a round whose write has failed.
func (c *cluster) fail(o *engine.Observed, err error) {
	switch {
	case errors.Is(err, errAltered):
		tellAltered(c, o)
	case errors.Is(err, errCapped):
		resizeRest(c, o)
	case errors.Is(err, errUnrecorded):
		tellRefused(c, o, err)
	default:
		c.wake = c.now.Add(100 * time.Millisecond)
	}
}

// abandon is the round of a plan that is gone.
func (c *cluster) abandon(k int) int {
	c.looked, c.woken, c.wake = c.rv, false, time.Time{}
	o := c.observe()
	o.Release = nil
	if o.Deployment == nil || o.Deployment.Labels[v1alpha1.LabelHeld] == "" && len(o.Records) == 0 {
		return 0
	}
	if c.d == nil || c.d.UID != o.Deployment.UID || c.d.ResourceVersion != o.Deployment.ResourceVersion { // the shell asks the API server
		c.wake = c.now.Add(100 * time.Millisecond)
		return 0
	}
	actions := engine.Abandon(o)
	for i, a := range actions {
		if i == k {
			break
		}
		if err := c.apply(&o, a); err != nil {
			c.wake = c.now.Add(100 * time.Millisecond)
			break
		}
	}
	return len(actions)
}

// restart is a new process.
func (c *cluster) restart() {
	c.woken, c.wake, c.trial, c.halfway = true, time.Time{}, setsTrial{}, false
	c.dryRuns = [versions]*corev1.PodTemplateSpec{}
}

// apply makes one write, on the condition that the object is as observed. Nothing but
// the controller writes records, and it reads its own writes.
func (c *cluster) apply(o *engine.Observed, a engine.Action) error {
	defer func() { c.known = c.records }()
	switch a := a.(type) {
	case engine.Remember:
		return c.remember(o, a)
	case engine.Forget:
		i := slices.IndexFunc(c.records, func(r engine.Record) bool { return r.Name == a.Record.Name })
		if i < 0 {
			return nil
		}
		if c.records[i].ResourceVersion != a.Record.ResourceVersion {
			return errConflict
		}
		c.records = slices.Delete(c.records, i, i+1)
		c.rv++
	case engine.Hold:
		return c.patchDeployment(o, func(d *appsv1.Deployment) {
			d.Labels = engine.With(d.Labels, "")
			delete(d.Labels, appsv1.DefaultDeploymentUniqueLabelKey)
			d.Labels[v1alpha1.LabelHeld] = "true"
			d.Spec.Paused, d.Spec.Strategy = true, appsv1.DeploymentStrategy{Type: appsv1.RecreateDeploymentStrategyType}
			d.Spec.Template = *a.Template.DeepCopy()
		})
	case engine.HandBack:
		return c.patchDeployment(o, func(d *appsv1.Deployment) {
			d.Labels = maps.Clone(d.Labels)
			delete(d.Labels, v1alpha1.LabelHeld)
			d.Spec.Paused, d.Spec.Strategy = false, *a.Strategy.DeepCopy()
			if a.Template != nil {
				d.Spec.Template = *a.Template.DeepCopy()
			}
		})
	case engine.Unlabel:
		return c.patchDeployment(o, func(d *appsv1.Deployment) {
			d.Labels = maps.Clone(d.Labels)
			delete(d.Labels, v1alpha1.LabelHeld)
		})
	case engine.CreateReplicaSet:
		return c.create(o, a.ReplicaSet)
	case engine.CountCollision:
		if c.d == nil || c.d.ResourceVersion != o.Deployment.ResourceVersion {
			return errConflict
		}
		c.collide()
		return errAgain
	case engine.Resize:
		return resizeSet(c, a)
	case engine.UnlabelReplicaSet:
		return unlabelSet(c, a.ReplicaSet)
	case engine.ClearRollback:
		if c.br.ResourceVersion != o.Release.ResourceVersion {
			return errConflict
		}
		c.writeRelease(func(br *v1alpha1.BatchRelease) { br.Annotations = nil })
		c.brRead = c.br
		// The status is written on the version that this write returned only in
		// package rollout's next round.
	default:
		panic(fmt.Sprintf("%T is not an action of the model", a))
	}
	return nil
}

// resizeSet writes a size, its annotations and the label.
func resizeSet(c *cluster, a engine.Resize) error {
	i := slices.IndexFunc(c.sets, func(s podSet) bool { return s.rs != nil && s.rs.UID == a.ReplicaSet.UID })
	if i < 0 || c.sets[i].rs.ResourceVersion != a.ReplicaSet.ResourceVersion {
		return errConflict
	}
	if refusesGrowth(c, i, a.To) {
		return errCapped
	}
	c.writeSet(i, func(rs *appsv1.ReplicaSet) {
		rs.Annotations = maps.Clone(rs.Annotations)
		if rs.Annotations == nil {
			rs.Annotations = map[string]string{}
		}
		maps.Copy(rs.Annotations, engine.SizeAnnotations(a.Desired, a.Max))
		rs.Spec.Replicas = &a.To
		setLabel(rs, a.Held)
	})
	c.sets[i].written(a.Desired != c.replicas())
	return nil
}

// unlabelSet takes the label of a hold off.
func unlabelSet(c *cluster, rs *appsv1.ReplicaSet) error {
	i := slices.IndexFunc(c.sets, func(s podSet) bool { return s.rs != nil && s.rs.UID == rs.UID })
	if i < 0 {
		return nil
	}
	if !v1alpha1.HasHeld(c.sets[i].rs.Labels) {
		return errConflict
	}
	c.writeSet(i, func(rs *appsv1.ReplicaSet) { setLabel(rs, false) })
	return nil
}

// setLabel gives a ReplicaSet the label of a hold, or takes it off.
func setLabel(rs *appsv1.ReplicaSet, held bool) {
	rs.Labels = maps.Clone(rs.Labels)
	delete(rs.Labels, v1alpha1.LabelHeld)
	if held {
		rs.Labels[v1alpha1.LabelHeld] = "true"
	}
}

func (c *cluster) patchDeployment(o *engine.Observed, change func(*appsv1.Deployment)) error {
	if c.d == nil || c.d.UID != o.Deployment.UID || c.d.ResourceVersion != o.Deployment.ResourceVersion {
		return errConflict
	}
	if refusesWrite(c, change) {
		return errRefused
	}
	c.writeDeployment(change)
	c.returned, c.halted = &c.d.Spec.Template, c.halted && c.d.Spec.Paused
	return nil
}

// remember creates or changes a ControllerRevision. The data of one that is
// there never changes.
func (c *cluster) remember(o *engine.Observed, a engine.Remember) error {
	r := a.Record
	if a.Written {
		if r.Order > 0 && plan.EqualTemplate(r.Template, c.returned) {
			return nil
		}
		if r.Template = c.returned; r.Order == 0 && a.Renames {
			r.Revision = plan.TemplateHash(r.Template, o.Deployment.Status.CollisionCount, o.Minor)
		}
	}
	i := slices.IndexFunc(c.records, func(k engine.Record) bool { return r.Name != "" && k.Name == r.Name })
	switch {
	case a.Written && i >= 0 && plan.EqualTemplate(c.records[i].Template, r.Template):
		return nil
	case a.Exists && i < 0, a.Exists && c.records[i].ResourceVersion != r.ResourceVersion:
		return errConflict
	case a.Exists && !a.Written:
		r.Template = c.records[i].Template
		r.ResourceVersion = c.nextVersion()
		c.owners[r.ResourceVersion] = c.owners[c.records[i].ResourceVersion]
		c.records = slices.Clone(c.records)
		c.records[i] = r
		return nil
	}
	r.Name = r.Revision + "-" + plan.TemplateDigest(r.Template)[:10]
	if i := slices.IndexFunc(c.records, func(k engine.Record) bool { return k.Name == r.Name }); i >= 0 {
		r.Order, r.ResourceVersion = max(c.records[i].Order, r.Order), c.nextVersion()
		c.owners[r.ResourceVersion] = o.Deployment.UID + "/" + o.Release.UID
		c.records = slices.Clone(c.records)
		c.records[i] = r
		return nil
	}
	return addRecord(c, o, r)
}

func addRecord(c *cluster, o *engine.Observed, r engine.Record) error {
	if c.noRecords {
		return errUnrecorded
	}
	r.ResourceVersion = c.nextVersion()
	c.owners[r.ResourceVersion] = o.Deployment.UID + "/" + o.Release.UID
	r.Template = r.Template.DeepCopy()
	c.records = append(slices.Clone(c.records), r)
	return nil
}

// create makes a ReplicaSet, and counts a collision where another one has its name.
func (c *cluster) create(o *engine.Observed, rs *appsv1.ReplicaSet) error {
	if c.d == nil || metav1.GetControllerOf(rs).UID != c.d.UID {
		return errAgain // the garbage collector deletes it at once
	}
	i := slices.IndexFunc(c.sets, func(s podSet) bool { return s.rs != nil && s.rs.Name == rs.Name })
	switch {
	case i < 0:
		return c.makeSet(rs)
	case !c.doomed(i) && plan.EqualTemplate(&c.sets[i].rs.Spec.Template, &rs.Spec.Template):
		return errAgain
	case c.d.ResourceVersion != o.Deployment.ResourceVersion:
		return errConflict
	case altered(&c.alter(rs, true).Spec.Template):
		return errAltered
	}
	c.collide()
	return errAgain
}

// quiet runs the cluster until nothing happens any more: native controllers,
// pods that come, the clock, and the controller whenever it has a reason. It
// says why it stopped, if that was not rest.
func (c *cluster) quiet() (failure string) { return c.quietUntil(time.Time{}) }

// quietUntil is quiet that ends at a time; zero: when nothing happens any more.
func (c *cluster) quietUntil(end time.Time) (failure string) {
	c.deliver()
	rounds, idle, start := 0, 0, c.now
	for {
		for range 100 {
			before := c.rv
			c.native()
			c.turnSets()
			if c.rv == before && !c.readyAll() {
				break
			}
		}
		if c.looked != c.rv || c.woken || !c.wake.IsZero() && !c.now.Before(c.wake) {
			before := c.said()
			c.round(-1)
			rounds++
			if idle++; before != c.said() {
				idle = 0
			}
			if rounds > 600 {
				return "it does not rest in 600 rounds and " + c.now.Sub(start).String()
			}
			if idle < 40 {
				continue
			}
			return "" // it looks again and again, and finds the same
		}
		next := c.nextAvailable()
		if next.IsZero() || !c.wake.IsZero() && c.wake.Before(next) {
			next = c.wake
		}
		if !end.IsZero() && (next.IsZero() || next.After(end)) {
			next = end
		}
		if next.IsZero() {
			return ""
		}
		passTo(c, next)
		if next.Equal(end) {
			return ""
		}
	}
}

// run gives everybody turns until a time, and changes no pod. Caches that lag do
// so all the time.
func (c *cluster) run(until time.Time) {
	for range 200 {
		before := c.clone()
		c.native()
		c.oracle.fought(c, before)
		c.turnSets()
		if c.woken || c.looked != c.rv || !c.wake.IsZero() && !c.now.Before(c.wake) {
			c.round(-1)
			continue
		}
		next := until
		if at := c.nextAvailable(); !at.IsZero() && at.Before(next) {
			next = at
		}
		if !c.wake.IsZero() && c.wake.Before(next) {
			next = c.wake
		}
		passTo(c, next)
		if !next.Before(until) {
			return
		}
	}
	c.now = until
	c.restart()
}

// said is what can be seen of the cluster, but the time.
func (c *cluster) said() string {
	s := ""
	for _, i := range c.live() {
		s += c.sets[i].rs.ResourceVersion + " "
	}
	if c.d != nil {
		s += c.d.ResourceVersion
	}
	if c.br != nil {
		b := c.br.Status
		s += fmt.Sprint(b.Phase, b.CurrentStepIndex, b.CurrentStepState, b.Reason, b.RollingBack, b.UpdateRevision, b.UpdateCommit)
	}
	return s + strconv.Itoa(len(c.records))
}
