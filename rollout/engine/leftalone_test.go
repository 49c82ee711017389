package engine_test

import (
	"strings"
	"testing"
	"time"

	"k8s.io/utils/ptr"

	"github.com/tranche-dev/tranche/plan"
	"github.com/tranche-dev/tranche/plan/v1alpha1"
	"github.com/tranche-dev/tranche/rollout/engine"
)

// Under the annotation tranche.dev/reconcile: disabled a release that has taken the
// hold goes on, and no other one begins.
func TestLeftAlone(t *testing.T) {
	approve := func(o *engine.Observed) {
		o.Release.Spec.Approval = &v1alpha1.Approval{Revision: hashes[1], Commit: commitOf(1), Step: 0}
	}
	for _, tc := range []struct {
		name, why string
		brought   int
		recommit  bool // the template of the release under way, by another commit
		enabled   bool // the annotation is not there
		after     time.Duration
		edit      func(*engine.Observed)
		revision  int // of the release under way afterwards
		back      bool
		step      int32
		reason    string
		kept      bool // the message says that another release waits
	}{
		{name: "nothing comes", why: "it stands at its gate", brought: 1, revision: 1, reason: v1alpha1.ReasonWaitingForApproval},
		{name: "another template", why: "no release begins", brought: 2, revision: 1, reason: v1alpha1.ReasonWaitingForApproval, kept: true},
		{name: "another template, not left alone", why: "it supersedes", brought: 2, enabled: true, revision: 2, reason: v1alpha1.ReasonTakingHold},
		{name: "the same template by another commit", why: "that is another release, too", brought: 1, recommit: true, revision: 1, reason: v1alpha1.ReasonWaitingForApproval, kept: true},
		{name: "another template, approved", why: "the release under way goes on", brought: 2, edit: approve, revision: 1, step: 1, reason: v1alpha1.ReasonUpgrading, kept: true},
		{name: "another template, past the deadline", why: "the release under way fails, and rolls back", brought: 2, after: time.Hour, revision: 0, back: true, step: 1, reason: v1alpha1.ReasonRollingBack, kept: true,
			edit: func(o *engine.Observed) {
				o.Release.Status.CurrentStepState, o.Release.Status.CurrentStepTarget = v1alpha1.StepUpgrade, 0
				o.Release.Spec.Strategy.OnFailure, o.Pods = v1alpha1.FailureRollback, &engine.Pods{Failing: 2}
				o.ReplicaSets[1].Status.AvailableReplicas, o.ReplicaSets[1].Status.ReadyReplicas = 0, 0
			}},
		{name: "no template", why: "the release under way goes on", brought: 1, edit: func(o *engine.Observed) { o.Release.Spec.Template, o.Template = nil, nil },
			revision: 1, reason: v1alpha1.ReasonWaitingForApproval, kept: true},
		{name: "the stable template", why: "going back ends the hold", brought: 0, revision: 0, back: true, step: 1, reason: v1alpha1.ReasonRollingBack},
	} {
		t.Run(tc.name, func(t *testing.T) {
			w := at(0, v1alpha1.StepBlocking, 2, steps("20%", "100%")...)
			w.status.UpdateTemplateDigest = plan.TemplateDigest(templates[1])
			w.brought = tc.brought
			if tc.recommit {
				w.commits++
			}
			o := w.observe()
			if !tc.enabled {
				o.Deployment.Annotations = map[string]string{v1alpha1.AnnotationReconcile: v1alpha1.AnnotationReconcileDisabled}
			}
			o.Release.Spec.Strategy.ProgressDeadlineSeconds = ptr.To(int32(600))
			if tc.edit != nil {
				tc.edit(&o)
			}
			d := engine.Decide(o, epoch.Add(tc.after))
			s := d.Status
			if s.UpdateRevision != hashes[tc.revision] || s.RollingBack != tc.back || s.CurrentStepIndex != tc.step || s.Reason != tc.reason {
				t.Errorf("%s: %s back=%t at step %d: %s: %s", tc.why, s.UpdateRevision, s.RollingBack, s.CurrentStepIndex, s.Reason, s.Message)
			}
			if !tc.back && tc.revision == 1 && s.UpdateCommit != commitOf(1) {
				t.Errorf("%s: commit %s", tc.why, s.UpdateCommit)
			}
			if got := strings.HasSuffix(s.Message, engine.KeptBehind); got != tc.kept {
				t.Errorf("%s: message %q", tc.why, s.Message)
			}
			for _, a := range d.Actions {
				t.Errorf("%s: %s", tc.why, a)
			}
		})
	}
}
