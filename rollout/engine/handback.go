package engine

import (
	"fmt"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/tranche-dev/tranche/plan"
	"github.com/tranche-dev/tranche/plan/v1alpha1"
	"github.com/tranche-dev/tranche/rollout/engine/action"
	"github.com/tranche-dev/tranche/rollout/engine/facts"
	"github.com/tranche-dev/tranche/rollout/engine/native"
)

// HandedBack returns the last status of a plan that is being deleted, and that finalizers keep, once
// its Deployment is handed back, or gone. No release is under way, and no gate waits.
func HandedBack(br *v1alpha1.BatchRelease, gone bool, now time.Time) v1alpha1.BatchReleaseStatus {
	d := newDraft(&Observed{Release: br}, now)
	s := &d.Status
	s.Phase, s.CurrentStepState, s.RequestedApproval, s.Analysis = "", "", nil, nil
	became := "handed back to the native controller"
	if gone {
		became = "gone"
		s.Replicas, s.UpdatedReplicas, s.UpdatedReadyReplicas, s.UpdatedAvailableReplicas = 0, 0, 0, 0
	}
	d.report(v1alpha1.ReasonHandedBack,
		fmt.Sprintf("the plan is being deleted, and Deployment %s is %s; the finalizers %s keep only this object",
			br.Spec.WorkloadRef.Name, became, plan.JoinNames(br.Finalizers)))
	s.ObservedGeneration, s.ReasonTime, s.LastUpdateTime = br.Generation, d.Time(), d.Time()
	for _, name := range []string{v1alpha1.ConditionReady, v1alpha1.ConditionReconciling, v1alpha1.ConditionStalled} {
		d.condition(name, metav1.ConditionFalse, s.Reason, s.Message)
	}
	d.condition(v1alpha1.ConditionHeld, metav1.ConditionFalse, v1alpha1.ReasonNotHeld, "the Deployment is native")
	return d.Status
}

// handBack ends the hold, and keeps the template that the Deployment then has:
// admission may change it with the write.
func (d *draft) handBack(why action.Why, template *corev1.PodTemplateSpec) {
	endHold(d, why, template)
	if len(d.StableRecords) == 0 {
		return
	}
	record := d.StableRecords[0]
	if g := d.Goal; g != nil && (template == nil || g.Equal(template)) {
		record = d.RecordOf(g, 0)
		if g.Record != nil {
			record = *g.Record
		}
	}
	record.Order = d.newest() + 1
	d.do(Remember{Why: why, Record: record, Written: true})
}

// endHold ends the hold. It first puts a ReplicaSet right that has the Deployment's size and other size annotations. If that
// one is the only one active, or another user deletes the others, the native controller never makes a ReplicaSet again (H11).
// It leaves the one of the hold's template alone beside others: that would pass for saturated (H6). The labels go before the
// hold does, so that a next round finds it. In place of bounds that the API server would refuse, it hands back the default ones.
func endHold(d *draft, why action.Why, template *corev1.PodTemplateSpec) {
	for _, rs := range d.ReplicaSets {
		safe := !d.SeveralActive() || !plan.EqualTemplate(&rs.Spec.Template, &d.Deployment.Spec.Template)
		full := facts.Size(rs) > 0 && facts.Size(rs) == d.Replicas
		switch {
		case safe && full && !native.HasSizeAnnotations(rs, d.Replicas, d.Replicas+d.Surge):
			d.do(Resize{Why: why, ReplicaSet: rs, To: d.Replicas, Desired: d.Replicas, Max: d.Replicas + d.Surge,
				Held: facts.Label(d.Deployment, rs, false)})
		case facts.Labelled(d.Deployment, rs):
			d.do(UnlabelReplicaSet{Why: why, ReplicaSet: rs})
		}
	}
	strategy := d.Strategy
	if d.BadBounds != nil {
		strategy = facts.CompleteStrategy(&appsv1.DeploymentStrategy{})
	}
	d.do(HandBack{Why: why, Strategy: strategy, Template: template})
}

// unhold leaves the Deployment to the native controller, at the stable template.
func unhold(d *draft) {
	if d.Shadowed(d.Stable.Template) {
		return
	}
	if d.Touched() || !d.Stable.Equal(&d.Deployment.Spec.Template) {
		d.handBack("there is nothing to split", d.Stable.Template)
	}
}
