package clitest

import (
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/intstr"

	"github.com/tranche-dev/tranche/plan/v1alpha1"
)

// Noon is the time at which the releases are looked at.
var Noon = time.Date(2026, 7, 1, 12, 0, 0, 0, time.UTC)

// Before is a time before that.
func Before(d time.Duration) *metav1.Time { return &metav1.Time{Time: Noon.Add(-d)} }

// Release is one of 10 pods that waits for an approval of its step 1.
func Release() *v1alpha1.BatchRelease {
	template := corev1.PodTemplateSpec{
		Spec: corev1.PodSpec{Containers: []corev1.Container{{Name: "web", Image: "registry.example.org/web:v2"}}},
	}
	return &v1alpha1.BatchRelease{
		ObjectMeta: metav1.ObjectMeta{
			Name: "web", Namespace: "shop", Generation: 3, CreationTimestamp: *Before(48 * time.Hour),
			Labels: map[string]string{v1alpha1.LabelSource: "shop", v1alpha1.LabelSourceNamespace: "shop"},
		},
		Spec: v1alpha1.BatchReleaseSpec{
			WorkloadRef: v1alpha1.WorkloadReference{Name: "web"}, Template: &template, Commit: "c28d103508da1c5c8a4b7f1c1f6e7d6b2a90c3de",
			Strategy: v1alpha1.BatchStrategy{Steps: []v1alpha1.Step{
				{Replicas: intstr.FromString("20%")},
				{Replicas: intstr.FromInt32(5)},
				{Replicas: intstr.FromString("80%"), Pause: &v1alpha1.Pause{Duration: metav1.Duration{Duration: 10 * time.Minute}}},
				{Replicas: intstr.FromString("100%")},
			}},
		},
		Status: v1alpha1.BatchReleaseStatus{
			ObservedGeneration: 3, Phase: v1alpha1.PhaseRollingUpdate, CurrentStepIndex: 1, CurrentStepState: v1alpha1.StepBlocking,
			StableRevision: "58d874c89d", UpdateRevision: "5584f4c7df", Replicas: 10, UpdatedReplicas: 5, UpdatedReadyReplicas: 5,
			UpdatedAvailableReplicas: 5,
			Reason:                   "WaitingForApproval", Message: "5 of 10 pods run 5584f4c7df; approve step 1 to go on to 8",
			StartTime: Before(7 * time.Minute), StepStateTime: Before(2 * time.Minute),
			Approvals: []v1alpha1.StepApproval{{Step: 0, Commit: "90f3b1d00aa0", By: "Ada <ada@example.org>", Time: *Before(5 * time.Minute)}},
			History: []v1alpha1.ReleaseRecord{
				{Revision: "58d874c89d", Commit: "0011223344556677", Outcome: v1alpha1.OutcomeCompleted, StartTime: Before(26 * time.Hour),
					EndTime: *Before(25 * time.Hour), StepTimes: []v1alpha1.StepTimes{
						{Step: 0, AvailableTime: *Before(1555 * time.Minute), OpenTime: Before(1525 * time.Minute)},
						{Step: 1, AvailableTime: *Before(1520 * time.Minute), OpenTime: Before(1505 * time.Minute)}},
					Approvals: []v1alpha1.StepApproval{
						{Step: 0, By: "cluster", Time: *Before(25 * time.Hour)},
						{Step: 1, Commit: "aabbccddeeff", By: "Bea <bea@example.org>", Time: *Before(25 * time.Hour)}}},
				{
					Revision: "58d874c89d", Commit: "a1b2c3d4e5f60718", Outcome: v1alpha1.OutcomeCompleted, Rollback: true,
					StartTime: Before(30 * time.Hour), EndTime: *Before(30 * time.Hour),
				},
				{Revision: "7cb9898744", Commit: "8899aabbccddeeff", Outcome: v1alpha1.OutcomeRolledBack, EndTime: *Before(40 * time.Hour)},
			},
		},
	}
}

// Measure lets the gate at which the release waits measure. One metric is a proportion that
// fails, with a window without an answer, and one a latency that is being measured. An earlier
// release was rolled back for what was measured.
func Measure(br *v1alpha1.BatchRelease) {
	decimal := func(d v1alpha1.Decimal) *v1alpha1.Decimal { return &d }
	spec, at := &br.Spec.Strategy, &br.Status
	spec.Steps[1].Analysis = &v1alpha1.StepAnalysis{Duration: metav1.Duration{Duration: 5 * time.Minute}}
	measured := func(name string, v v1alpha1.Verdict, reason, update, stable string) v1alpha1.MetricRecord {
		return v1alpha1.MetricRecord{Name: name, Verdict: v, Reason: reason, Update: update, Stable: stable}
	}
	spec.Analysis = &v1alpha1.Analysis{Metrics: []v1alpha1.Metric{
		{Name: "errors", Prometheus: &v1alpha1.PrometheusMetric{Query: "q", Total: "t"}, Max: decimal("2%"),
			Compare: &v1alpha1.Comparison{Worse: v1alpha1.WorseHigher, By: "0.5%", Confidence: "95%"}},
		{Name: "p99", Prometheus: &v1alpha1.PrometheusMetric{Query: "q"}, Max: decimal("0.3")},
	}}
	window := func(n int32, update, stable, reason string) v1alpha1.MetricMeasurement {
		from, to := Before(time.Duration(10-n)*time.Minute), Before(time.Duration(9-n)*time.Minute)
		return v1alpha1.MetricMeasurement{N: n, From: from, To: *to, Update: update, Stable: stable, Reason: reason}
	}
	at.Reason, at.Message = v1alpha1.ReasonAnalysisFailed, "errors 4.0 % (82/2044) against 0.1 % (24/18420) of stable; max 2%"
	at.Analysis = &v1alpha1.AnalysisStatus{
		Step: 1, StartTime: Before(9 * time.Minute), Verdict: v1alpha1.VerdictFail, Reason: "AboveMax", Message: at.Message,
		Metrics: []v1alpha1.MetricStatus{
			{Name: "errors", Verdict: v1alpha1.VerdictFail, Reason: "AboveMax", Message: at.Message, Next: 5, Count: 3, Unknown: 1,
				Update: "82/2044", Stable: "24/18420", P: "1.2e-60", Measurements: []v1alpha1.MetricMeasurement{
					window(1, "12/511", "8/4605", ""), window(2, "29/511", "5/4605", ""), window(3, "", "", "ProviderUnavailable"),
					window(4, "41/1022", "11/9210", ""),
				}},
			{Name: "p99", Verdict: v1alpha1.VerdictUnknown, Reason: "Measuring", Message: "p99 0.21 (median of 4); 4 of 5 measurements",
				Next: 5, Count: 4, UpdateValues: []string{"0.2", "0.22", "0.19", "0.25"}, StableValues: []string{"0.2", "0.21"},
				Pending:      &v1alpha1.UnknownReason{Reason: "ProviderUnavailable", Message: "connection refused"},
				Measurements: []v1alpha1.MetricMeasurement{window(3, "0.19", "", ""), window(4, "0.25", "0.21", "")}},
		},
		Records: []v1alpha1.MetricRecord{measured("errors", v1alpha1.VerdictPass, "WithinLimits", "1/2000", "20/18000")},
	}
	at.History[2].Analysis = []v1alpha1.MetricRecord{
		measured("errors", v1alpha1.VerdictFail, "AboveMax", "41/1022", "12/9210"),
		measured("checkout", v1alpha1.VerdictUnknown, "NoData", "", ""),
	}
}

// Source is the GitSource of that release.
func Source() *v1alpha1.GitSource {
	return &v1alpha1.GitSource{
		ObjectMeta: metav1.ObjectMeta{Name: "shop", Namespace: "shop"},
		Spec: v1alpha1.GitSourceSpec{
			URL: "ssh://git@git.example.org/shop.git", Ref: v1alpha1.GitReference{Branch: "main"}, Path: "apps/web",
		},
		Status: v1alpha1.GitSourceStatus{AppliedCommit: "90f3b1d00aa0", ObservedCommit: "90f3b1d00aa0"},
	}
}

// Sources returns GitSources: one in sync, one whose commit is refused, one whose
// approval is ignored, one suspended, and one that no controller has seen.
func Sources() []v1alpha1.GitSource {
	of := func(name string, edit func(*v1alpha1.GitSource), conditions ...metav1.Condition) v1alpha1.GitSource {
		gs := *Source()
		gs.Name, gs.CreationTimestamp, gs.Generation = name, *Before(48 * time.Hour), 2
		gs.Status.ObservedGeneration, gs.Status.Conditions = 2, conditions
		edit(&gs)
		return gs
	}
	ready := func(status metav1.ConditionStatus, reason, message string) metav1.Condition {
		return metav1.Condition{Type: "Ready", Status: status, Reason: reason, Message: message}
	}
	same := func(*v1alpha1.GitSource) {}
	const refused = "service.yaml: Service shop/web: spec.ports[0].port: must be a number"
	return []v1alpha1.GitSource{
		of("good", same, ready("True", "Applied", "applied main@90f3b1d"), metav1.Condition{Type: "InSync", Status: "True"}),
		of("refused", same, ready("False", "InvalidManifest", refused), metav1.Condition{
			Type: "Stalled", Status: "True", Reason: "InvalidManifest", Message: refused,
		}),
		of("ignored", same, ready("True", "Applied", "applied main@90f3b1d"), metav1.Condition{
			Type: "InSync", Status: "False", Reason: "ApprovalIgnored", Message: "approvals/web.yaml: counts for nothing",
		}),
		of("suspended", func(gs *v1alpha1.GitSource) { gs.Spec.Suspend = true }, ready("False", "HostUnreachable", "no route to host")),
		of("new", func(gs *v1alpha1.GitSource) { gs.Status = v1alpha1.GitSourceStatus{} }),
	}
}
