package engine

import (
	"slices"

	appsv1 "k8s.io/api/apps/v1"

	"github.com/tranche-dev/tranche/plan"
	"github.com/tranche-dev/tranche/plan/v1alpha1"
)

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

// runsAll reports whether all pods run the goal's revision, and any does.
func (c *course) runsAll() bool {
	running := size(c.goal.rs)
	return running > 0 && running >= c.replicas && c.others() == 0
}

// idle reports whether there is nothing to do: the Deployment is native, and
// its template is the stable one, which is where the way leads.
func (c *course) idle() bool {
	return !c.touched() && !c.forward() && (c.brought == nil || c.goal.equal(&c.Deployment.Spec.Template))
}

// replaced is how many pods of other revisions the native controller is to replace.
func (c *course) replaced() int32 {
	n := c.others()
	for _, rs := range c.ReplicaSets {
		if deleted(rs) {
			n -= size(rs)
		}
	}
	return n
}

// others is how many pods do not run the goal's revision.
func (c *course) others() int32 {
	var n int32
	for _, rs := range c.ReplicaSets {
		if rs != c.goal.rs {
			n += size(rs)
		}
	}
	return n
}

// withheld reports whether there is nothing to split since the plan was paused before the
// step's first pod. A hold with one active set would be no safe place to wait. At 0
// replicas the native controller takes that one away, and all pods come up on the update
// revision afterwards (H4).
func (c *course) withheld() bool {
	return c.spec.Paused && c.forward() && size(c.goal.rs) == 0 && len(c.middle()) == 0
}

// onlyStable reports whether all pods run the stable revision.
func (c *course) onlyStable() bool {
	for _, rs := range c.ReplicaSets {
		if size(rs) > 0 && rs != c.stable.rs {
			return false
		}
	}
	return true
}
