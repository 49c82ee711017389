package position

import (
	"slices"

	appsv1 "k8s.io/api/apps/v1"

	"github.com/tranche-dev/tranche/plan"
	"github.com/tranche-dev/tranche/plan/v1alpha1"
	"github.com/tranche-dev/tranche/rollout/engine/facts"
)

// Course is where the way leads, by the facts and a status. It never changes: a round that
// takes another course replaces the whole.
type Course struct {
	*facts.Facts
	// Spec that is followed: that of the release or, where kept, with the commit of the
	// release under way.
	Spec    *v1alpha1.BatchReleaseSpec
	Brought *facts.Revision // what spec.template brings; nil without one
	Stable  *facts.Revision
	Goal    *facts.Revision // where the way leads: brought, or back to stable
	// Kept: the Deployment is left alone, and what spec brings waits for that to end.
	Kept bool
}

// To returns the course that leads to this revision.
func (c Course) To(goal *facts.Revision) Course {
	c.Goal = goal
	return c
}

// From returns the course with this stable revision.
func (c Course) From(stable *facts.Revision) Course {
	c.Stable = stable
	return c
}

// Bringing returns the course with this revision as the one that spec.template brings.
func (c Course) Bringing(brought *facts.Revision) Course {
	c.Brought = brought
	return c
}

// By returns the course by another plan.
func (c Course) By(strategy v1alpha1.BatchStrategy) Course {
	c.Spec = c.Spec.DeepCopy()
	c.Spec.Strategy = strategy
	return c
}

// Resolve returns the course with its revisions, and says where the way leads. The stable
// revision must be on record.
func (c Course) Resolve(s *v1alpha1.BatchReleaseStatus) Course {
	c.Stable = c.Recorded(0)
	c.Brought = broughtBy(c.Facts, c.Stable)
	c = c.keep(s)
	c.Goal = c.Brought
	switch {
	case c.Brought == nil:
		c.Goal = c.Stable
	case hasFailed(&c, s):
		c.Goal = c.Stable
		if c.Brought == c.Stable {
			c.Goal = c.Recorded(1)
		}
	}
	if c.Goal == nil {
		c.Goal = c.Stable
	}
	return c
}

// broughtBy returns what spec.template brings. A record that was sent as the same is
// it, whatever the API server's defaults and admission make of it today. Else one
// with an equal template is: the manifest may spell out what were defaults.
func broughtBy(f *facts.Facts, stable *facts.Revision) *facts.Revision {
	sent := f.Release.Spec.Template
	if sent == nil {
		sent = f.Template
	}
	if sent == nil {
		return nil
	}
	digest := plan.TemplateDigest(sent)
	for _, same := range []func(r *facts.Record) bool{
		func(r *facts.Record) bool { return r.Sent == digest },
		func(r *facts.Record) bool { return f.Template != nil && plan.EqualTemplate(r.Template, f.Template) },
	} {
		if same(stable.Record) {
			return stable
		}
		record := f.RecordThat(same)
		if record == nil {
			continue
		}
		r := facts.RevisionOfRecord(f.Observed, record)
		if stable.Equal(r.Template) {
			return stable // admission has made the same of it
		}
		r.Sent = sent
		return r
	}
	if f.Template == nil {
		return nil
	}
	r := facts.RevisionOf(f.Observed, f.Template)
	r.ID, r.Sent = digest, sent
	return r
}

func hasFailed(c *Course, s *v1alpha1.BatchReleaseStatus) bool {
	switch {
	case c.Brought == nil || s.FailedRevision == "" || s.FailedCommit != c.Spec.Commit:
		return false
	case s.FailedTemplateDigest == "": // a status of an earlier version
		return s.FailedRevision == c.Brought.Name
	}
	return s.FailedTemplateDigest == c.Brought.ID
}

// Forward reports whether the way leads to another revision than the stable one.
func (c *Course) Forward() bool { return c.Goal != c.Stable }

// isSame reports whether a ReplicaSet runs what the goal runs, under another template:
// admission has made another one of what was sent.
func (c *Course) isSame(rs *appsv1.ReplicaSet) bool {
	return c.Goal.Equal(&rs.Spec.Template) || slices.ContainsFunc(c.Records, func(r facts.Record) bool {
		return r.Sent != "" && r.Sent == c.Goal.ID &&
			(plan.EqualTemplate(r.Template, &rs.Spec.Template) || plan.EqualTemplate(r.Kept, &rs.Spec.Template))
	})
}

// Running is how many pods run what the goal runs, under any template of it.
func (c *Course) Running() int32 {
	n := facts.Size(c.Goal.ReplicaSet)
	for _, rs := range c.middle() {
		if c.isSame(rs) {
			n += facts.Size(rs)
		}
	}
	return n
}

// middle returns the ReplicaSets with pods that are neither the goal's nor the
// stable one's, oldest first.
func (c *Course) middle() []*appsv1.ReplicaSet {
	var sets []*appsv1.ReplicaSet
	for _, rs := range c.ReplicaSets {
		if facts.Size(rs) > 0 && rs != c.Goal.ReplicaSet && rs != c.Stable.ReplicaSet {
			sets = append(sets, rs)
		}
	}
	slices.SortFunc(sets, facts.Older)
	return sets
}

// keep lets the release or rollback under way go on where spec brings another one
// and the Deployment is left alone: that one waits. Going back to the stable revision
// is no beginning: it ends the hold.
func (c Course) keep(s *v1alpha1.BatchReleaseStatus) Course {
	if !c.LeftAlone() || !c.Touched() || !Releasing(s) || s.UpdateTemplateDigest == "" || hasFailed(&c, s) || c.Brought == c.Stable {
		return c
	}
	if c.Brought != nil && c.Brought.ID == s.UpdateTemplateDigest && c.Spec.Commit == s.UpdateCommit {
		return c
	}
	record := c.RecordSent(s.UpdateTemplateDigest)
	switch {
	case c.Stable.Record.Sent == s.UpdateTemplateDigest:
		c.Brought = c.Stable
	case record != nil:
		c.Brought = facts.RevisionOfRecord(c.Observed, record)
	default:
		return c // it has not taken the hold
	}
	spec := *c.Spec
	spec.Commit = s.UpdateCommit
	c.Spec, c.Kept = &spec, true
	return c
}

// RunsAll reports whether all pods run the goal's revision, and any does.
func (c *Course) RunsAll() bool {
	running := facts.Size(c.Goal.ReplicaSet)
	return running > 0 && running >= c.Replicas && c.others() == 0
}

// Idle reports whether there is nothing to do: the Deployment is native, and
// its template is the stable one, which is where the way leads.
func (c *Course) Idle() bool {
	return !c.Touched() && !c.Forward() && (c.Brought == nil || c.Goal.Equal(&c.Deployment.Spec.Template))
}

// Replaced is how many pods of other revisions the native controller is to replace.
func (c *Course) Replaced() int32 {
	n := c.others()
	for _, rs := range c.ReplicaSets {
		if facts.Deleted(rs) {
			n -= facts.Size(rs)
		}
	}
	return n
}

// others is how many pods do not run the goal's revision.
func (c *Course) others() int32 {
	var n int32
	for _, rs := range c.ReplicaSets {
		if rs != c.Goal.ReplicaSet {
			n += facts.Size(rs)
		}
	}
	return n
}

// Withheld reports whether there is nothing to split since the plan was paused before the
// step's first pod. A hold with one active set would be no safe place to wait. At 0
// replicas the native controller takes that one away, and all pods come up on the update
// revision afterwards (H4).
func (c *Course) Withheld() bool {
	return c.Spec.Paused && c.Forward() && facts.Size(c.Goal.ReplicaSet) == 0 && len(c.middle()) == 0
}

// OnlyStable reports whether all pods run the stable revision.
func (c *Course) OnlyStable() bool {
	for _, rs := range c.ReplicaSets {
		if facts.Size(rs) > 0 && rs != c.Stable.ReplicaSet {
			return false
		}
	}
	return true
}

// InHold reports whether the Deployment is held at the goal's template. That template
// must be on record as the API server returned it for the controller's own write.
func InHold(c *Course) bool {
	return facts.Held(c.Deployment) && c.Goal.Record != nil && c.Goal.Equal(&c.Deployment.Spec.Template)
}

// Unrecorded reports whether the Deployment is held at the goal's template, which is not
// on record. The controller ended between the two writes, or an earlier version took the
// hold.
func Unrecorded(c *Course) bool {
	return facts.Held(c.Deployment) && c.Goal.Record == nil && c.Goal.Equal(&c.Deployment.Spec.Template)
}
