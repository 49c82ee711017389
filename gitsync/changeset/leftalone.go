package changeset

import (
	"slices"

	"github.com/tranche-dev/tranche/gitsync/apply"
	"github.com/tranche-dev/tranche/gitsync/fieldmanager"
	"github.com/tranche-dev/tranche/plan"
	"github.com/tranche-dev/tranche/plan/v1alpha1"
)

// leaveAlone leaves the plans alone of Deployments that are left alone: a new template in
// the plan would be released. A plan may be left alone itself. Those of which Git says
// something else are named, in place of why approvals of them do not count. Such
// approvals are compared with the release that Git has, which is not under way.
func (c *Changes) leaveAlone() {
	workloads := map[string]*apply.Target{} // by release
	for _, t := range c.Targets {
		if t.Release != nil && t.Mode == apply.Skip {
			workloads[plan.ReleaseName(t.Release.Plan)] = t
		}
	}
	var differ plan.Problems
	for _, r := range c.Releases {
		name := r.GetNamespace() + "/" + r.GetName()
		t := workloads[name]
		switch {
		case t != nil:
			r.Mode = apply.Skip
		case r.Mode == apply.Skip:
			t = r
		default:
			continue
		}
		if r.Live == nil && t != r || r.Live != nil && fieldmanager.Contains(r.Live.Object["spec"], r.Unstructured.Object["spec"]) {
			continue
		}
		differ = append(differ, t.Problem(v1alpha1.ReasonLeftAlone,
			"what Git says of its release, approvals included, is not applied: annotation "+
				v1alpha1.AnnotationReconcile+" is "+v1alpha1.AnnotationReconcileDisabled,
			"take the annotation off in Git and in the cluster"))
		untrue := c.Reader.Ignored[name]
		c.Ignored = slices.DeleteFunc(c.Ignored, func(p *plan.Problem) bool { return slices.Contains(untrue, p) })
	}
	c.Ignored = append(differ, c.Ignored...)
}
