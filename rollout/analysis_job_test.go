package rollout_test

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/rand"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/tranche-dev/tranche/rollout/analysis/job"
	"github.com/tranche-dev/tranche/rollout/analysis/unknown"
	"github.com/tranche-dev/tranche/rollout/clustertest"
)

// jobRun is a measurement by a Job of the CronJob smoke.
func (s *measuredEnv) jobRun(name string) *job.Run {
	s.Helper()
	var owner corev1.Namespace // an owner that is not there would have the Job deleted
	s.must(s.c.Client.Get(s.Context(), types.NamespacedName{Name: s.ns}, &owner))
	began := time.Now()
	return &job.Run{
		Client: s.c.Client, Job: types.NamespacedName{Namespace: s.ns, Name: name}, From: "smoke", Key: "key-of-" + name,
		Owner:   metav1.OwnerReference{APIVersion: "v1", Kind: "Namespace", Name: s.ns, UID: owner.UID},
		Timeout: 10 * time.Minute, Uptime: func() time.Duration { return time.Since(began) },
	}
}

// poll polls until the Job has ended.
func (s *measuredEnv) poll(r *job.Run) (passed bool, why *unknown.Error) {
	s.Helper()
	clustertest.Wait(s, "the Job "+r.Job.Name, func() error {
		var err error
		if passed, err = r.Poll(s.Context()); err == nil {
			why = nil
			return nil
		}
		if errors.As(err, &why); why == nil || why.Pending {
			return err
		}
		return nil
	})
	return passed, why
}

// The test ends pods as kubelets and controllers do, under the real Job controller. Only exit
// code 0 passes, and only 1 to 125 fail.
func TestJob_Results(t *testing.T) {
	t.Parallel()
	s := &measuredEnv{newEnv(t)}
	s.cronJob("smoke")
	terminated := func(reason string) func(*corev1.PodStatus) {
		return func(p *corev1.PodStatus) { p.ContainerStatuses[0].State.Terminated.Reason = reason }
	}
	evicted := func(p *corev1.PodStatus) {
		p.Reason = "Evicted"
		p.Conditions = append(p.Conditions, corev1.PodCondition{
			Type: corev1.DisruptionTarget, Status: corev1.ConditionTrue, Reason: "TerminationByKubelet",
		})
	}
	cases := map[string]struct {
		code int32
		edit func(*corev1.PodStatus)
		want string // Pass, Fail or a part of why it is Unknown
	}{
		"passes":         {0, func(*corev1.PodStatus) {}, "Pass"},
		"fails":          {1, func(*corev1.PodStatus) {}, "Fail"},
		"fails-by-125":   {125, func(*corev1.PodStatus) {}, "Fail"},
		"not-executable": {126, func(*corev1.PodStatus) {}, "JobNotRun: Error"},
		"killed":         {137, func(*corev1.PodStatus) {}, "JobNotRun: Error"},
		"by-255":         {255, func(*corev1.PodStatus) {}, "JobNotRun: Error"},
		"oom":            {137, terminated("OOMKilled"), "JobNotRun: OOMKilled"},
		"oom-of-a-child": {1, terminated("OOMKilled"), "JobNotRun: OOMKilled"},
		"evicted":        {1, evicted, "JobNotRun: Evicted"},
		"evicted-143":    {143, evicted, "JobNotRun: Evicted"},
		"strange-text":   {200, terminated("<secret text>"), "JobNotRun"},
	}
	for name := range cases {
		if _, err := s.jobRun(name).Poll(t.Context()); err == nil {
			t.Errorf("%s: has a result at once", name)
		}
	}
	for name, c := range cases {
		s.exit(s.podOf(client.MatchingLabels{batchv1.JobNameLabel: name}), c.code, c.edit)
	}
	for name, c := range cases {
		passed, why := s.poll(s.jobRun(name)) // by another process than the one that made it
		got := map[bool]string{true: "Pass", false: "Fail"}[passed]
		if why != nil {
			got = why.Error()
		}
		if !strings.HasPrefix(got, c.want) || strings.Contains(got, "secret") || why != nil && why.Retry {
			t.Errorf("%s: %s, want %s", name, got, c.want)
		}
	}
}

// A Job that is not scheduled in time says so. Without its CronJob, and beyond
// a quota, there is none, and the message has the words of the quota.
func TestJob_NotRun(t *testing.T) {
	t.Parallel()
	s := &measuredEnv{newEnv(t)}
	r := s.jobRun("early")
	if _, err := r.Poll(t.Context()); !strings.Contains(fmt.Sprint(err), "CronJob smoke not found") || !unknown.Of(err).Retry {
		t.Errorf("without a CronJob: %v", err)
	}
	s.cronJob("smoke")
	late := s.jobRun("late")
	late.Timeout = time.Second
	if _, err := late.Poll(t.Context()); !unknown.Of(err).Pending {
		t.Errorf("as it begins: %v", err)
	}
	if passed, why := s.poll(late); passed || why == nil || why.Reason != unknown.JobNotRun || !strings.Contains(why.Detail, "in time") {
		t.Errorf("late: %t, %v", passed, why)
	}
	slow := s.jobRun("slow")
	_, _ = slow.Poll(t.Context())
	s.podOf(client.MatchingLabels{batchv1.JobNameLabel: "slow"})
	uptime := slow.Uptime
	slow.Uptime = func() time.Duration { return uptime() + 30*time.Second }
	clustertest.Wait(s, "what the Job waits for", func() error {
		if _, err := slow.Poll(t.Context()); unknown.Of(err).Detail != "Unschedulable" || !unknown.Of(err).Pending {
			return fmt.Errorf("polling the Job: %w", err)
		}
		return nil
	})
	slow.Uptime = func() time.Duration { return uptime() + time.Hour } // the Job controller is down
	if _, err := slow.Poll(t.Context()); unknown.Of(err).Detail != "the Job did not end in time: Unschedulable" {
		t.Errorf("after an hour: %v", err)
	}
	quota := &corev1.ResourceQuota{ObjectMeta: metav1.ObjectMeta{Namespace: s.ns, Name: "no-jobs"}}
	quota.Spec.Hard = corev1.ResourceList{"count/jobs.batch": resource.MustParse("0")}
	s.must(s.c.Client.Create(t.Context(), quota))
	clustertest.Wait(s, "the quota to refuse a Job", func() error {
		_, err := s.jobRun("too-many-" + rand.String(8)).Poll(t.Context())
		if why := unknown.Of(err); !why.Retry || !strings.HasPrefix(why.Detail, "the API server refuses the Job of CronJob smoke: exceeded quota: no-jobs, requested:") {
			return fmt.Errorf("polling the Job: %w", err)
		}
		return nil
	})
}

// A Job of the same measurement is adopted, and one of another origin is not touched.
func TestJob_Adopted(t *testing.T) {
	t.Parallel()
	s := &measuredEnv{newEnv(t)}
	s.cronJob("smoke")
	for range 3 {
		if _, err := s.jobRun("one").Poll(context.Background()); !unknown.Of(err).Pending {
			t.Fatal(err)
		}
	}
	var jobs batchv1.JobList
	s.must(s.c.Client.List(t.Context(), &jobs, client.InNamespace(s.ns)))
	if len(jobs.Items) != 1 {
		t.Errorf("%d Jobs of one measurement", len(jobs.Items))
	}
	other := s.jobRun("one")
	other.Key = "another"
	if _, err := other.Poll(t.Context()); !strings.Contains(fmt.Sprint(err), "another origin") {
		t.Errorf("a Job of another measurement: %v", err)
	}
	other = s.jobRun("one")
	other.Owner.UID = "00000000-0000-0000-0000-000000000002"
	if _, err := other.Poll(t.Context()); !strings.Contains(fmt.Sprint(err), "another origin") {
		t.Errorf("a Job of another release: %v", err)
	}
}
