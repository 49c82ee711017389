package job

import (
	"context"
	"testing"
	"time"

	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"

	"github.com/tranche-dev/tranche/rollout/analysis/unknown"
)

// A Job of no completions is complete at once. No program has said that all is well.
func TestResult_NoPod(t *testing.T) {
	r := Run{Uptime: func() time.Duration { return 0 }}
	j := &batchv1.Job{Status: batchv1.JobStatus{Conditions: []batchv1.JobCondition{{Type: batchv1.JobComplete, Status: corev1.ConditionTrue}}}}
	if ok, err := r.result(context.Background(), j); ok || err == nil || unknown.Of(err).Reason != unknown.JobNotRun || unknown.Of(err).Retry {
		t.Errorf("a Job without a pod: %t, %v", ok, err)
	}
	j.Status.Succeeded = 1
	if ok, err := r.result(context.Background(), j); !ok || err != nil {
		t.Errorf("a Job with one: %t, %v", ok, err)
	}
}
