package main

import (
	"encoding/json"
	"fmt"
	"math"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/tranche-dev/tranche/cmd/tranche/analyze"
	"github.com/tranche-dev/tranche/plan/v1alpha1"
	"github.com/tranche-dev/tranche/rollout/clustertest"
)

// measuredPlan is a plan whose first step opens by one metric, the share of failed requests
// in windows of ten seconds.
const measuredPlan = `apiVersion: tranche.dev/v1alpha1
kind: BatchRelease
metadata: {name: web}
spec:
  workloadRef: {apiVersion: apps/v1, kind: Deployment, name: web}
  strategy:
    steps:
    - replicas: 50%%
      analysis: {duration: %s}
    - replicas: 100%%
    analysis:
      onFailure: Rollback
      unknownDeadlineSeconds: 3
      metrics:
      - name: errors
        prometheus:
          provider: %s
          query: sum(increase(http_requests_total{namespace="$(namespace)",pod=~"$(pods)",code=~"5.."}[$(window)]))
          total: sum(increase(http_requests_total{namespace="$(namespace)",pod=~"$(pods)"}[$(window)]))
        interval: 10s
        delay: 2s
        max: 2%%
        minimum: 100
`

// half is where a release with that plan is measured.
func half(stable, update string) map[string]int32 { return map[string]int32{stable: 2, update: 2} }

// measured is a namespace whose release is measured by a real Prometheus. Four pods run the
// first tag.
type measured struct {
	*env
	m *clustertest.Monitoring
}

func newMeasured(s *env, m *clustertest.Monitoring, named, tag, duration string, edit ...func(*v1alpha1.GitSource)) *measured {
	s.Helper()
	s.write("release.yaml", fmt.Sprintf(measuredPlan, duration, named))
	s.replace("deployment.yaml", "replicas: 10", "replicas: 4")
	if tag != "v1" {
		s.replace("deployment.yaml", "web:v1", "web:"+tag)
	}
	s.push("measured")
	s.follow("source", ".", append(edit, func(gs *v1alpha1.GitSource) { gs.Spec.WriteBack = &v1alpha1.WriteBack{Enabled: true} })...)
	s.waitFor("web", "ReleaseCompleted", 1, map[string]int32{tag: 4})
	return &measured{s, m}
}

// sharedMeasured is measured for ten seconds, by the Prometheus of all tests.
func sharedMeasured(s *env, tag string) *measured {
	s.Helper()
	m := s.c.Monitoring(s)
	return newMeasured(s, m, provider(s, m.URL), tag, "10s")
}

// bring pushes another tag, and waits until two pods of it are measured.
func (s *measured) bring(from, to string) (commit string) {
	s.Helper()
	s.replace("deployment.yaml", "web:"+from, "web:"+to)
	commit = s.push("web: " + to)
	s.waitFor("web", "WaitingForAnalysis", 0, half(from, to))
	return commit
}

// metric returns what the status says of the metric.
func (s *measured) metric() v1alpha1.MetricStatus {
	s.Helper()
	if a := s.release("web").Status.Analysis; a != nil {
		for _, m := range a.Metrics {
			if m.Name == "errors" {
				return m
			}
		}
	}
	return v1alpha1.MetricStatus{}
}

// replicaSet returns the name of the ReplicaSet of a tag.
func (s *measured) replicaSet(tag string) string {
	s.Helper()
	var sets appsv1.ReplicaSetList
	s.must(s.c.Client.List(s.Context(), &sets, client.InNamespace(s.ns)))
	at := slices.IndexFunc(sets.Items, func(rs appsv1.ReplicaSet) bool {
		return strings.HasSuffix(rs.Spec.Template.Spec.Containers[0].Image, ":"+tag)
	})
	if at < 0 {
		s.Fatalf("there is no ReplicaSet of %s", tag)
	}
	return sets.Items[at].Name
}

// stays fails if the sizes change before the analysis has taken another n measurements.
func (s *measured) stays(n int32, pods map[string]int32) {
	s.Helper()
	first := s.metric()
	clustertest.Wait(s, "more measurements", func() error {
		if got := s.pods("web"); fmt.Sprint(got) != fmt.Sprint(pods) {
			s.Fatalf("pods %v, want %v: %s", got, pods, s.release("web").Status.Message)
		}
		if now := s.metric(); now.Count+now.Unknown < first.Count+first.Unknown+n {
			return fmt.Errorf("%d values and %d without: %s", now.Count, now.Unknown, now.Message)
		}
		return nil
	})
}

// A good release goes on by itself, by the values that Prometheus and the exporter have.
func TestAnalysis_GoodReleasePasses(t *testing.T) {
	s := controlledEnv(t, "web")
	m := sharedMeasured(s, "v1")
	m.bring("v1", "v2")
	m.waitFor("web", "ReleaseCompleted", 1, map[string]int32{"v2": 4})
	m.untouched("web")
	if ok, failed := m.m.Served(t, m.ns, m.replicaSet("v2")); failed > ok/500 { // 0.1 %
		t.Errorf("%v requests have failed of %v", failed, ok)
	}
	m.analyzed("v2")
}

// analyzed tries the plan on the only release, that of a tag, and compares the first window with what
// Prometheus has of it.
func (s *measured) analyzed(tag string) {
	s.Helper()
	out, code := s.tranche("analyze", "web", ".", "--prometheus", s.m.URL, "-o", "json")
	var got analyze.Replay
	if err := json.Unmarshal([]byte(out), &got); code != 0 || err != nil || len(got.Items) != 1 || len(got.Items[0].Steps) != 1 {
		s.Fatalf("tranche analyze: exit code %d, %v:\n%s", code, err, out)
	}
	step := got.Items[0].Steps[0]
	to := step.From.Add(10 * time.Second)
	var failed, total float64
	if _, err := fmt.Sscanf(step.Metrics[0].Update, "%g/%g", &failed, &total); err != nil {
		s.Fatalf("reading %q: %v", step.Metrics[0].Update, err)
	}
	wantFailed, want := s.increase(tag, `,code=~"5.."`, to), s.increase(tag, "", to)
	verdict := v1alpha1.VerdictPass
	if want < 100 { // on a busy machine the window may have fewer requests than the metric's minimum
		verdict = v1alpha1.VerdictUnknown
	}
	if step.Verdict != verdict || math.Abs(failed-wantFailed) > 1e-3 || math.Abs(total-want) > 1e-3 {
		s.Errorf("%s %v/%v, and Prometheus has %v/%v:\n%s", step.Verdict, failed, total, wantFailed, want, out)
	}
}

// A release whose requests fail is rolled back, and the branch says why.
func TestAnalysis_ErrorsRollBack(t *testing.T) {
	s := controlledEnv(t, "web")
	m := sharedMeasured(s, "v1")
	began := m.bring("v1", "v2-errors")
	bad := m.replicaSet("v2-errors")
	share := 0.0 // that the exporter has counted before the pods were gone
	clustertest.Wait(t, "a rollback for what was measured", func() error {
		if ok, failed := m.m.Served(t, m.ns, bad); ok+failed > 0 {
			share = failed / (ok + failed)
		}
		if got := m.pods("web"); fmt.Sprint(got) != fmt.Sprint(map[string]int32{"v1": 4}) {
			return fmt.Errorf("pods %v: %s", got, m.release("web").Status.Message)
		}
		return nil
	})
	if share < 0.04 || share > 0.06 {
		t.Errorf("the exporter counts a share of failures of %v", share)
	}
	clustertest.Wait(t, "the revert in the branch", func() error {
		message := m.run(m.bare, "git", "log", "-1", "--format=%B", "main")
		for _, part := range []string{`Revert "web: v2-errors"`, "This reverts commit " + began, "analysis of", "errors", "max 2%",
			"METRIC", "\nTranche-Analysis: errors Fail AboveMax update="} {
			if !strings.Contains(message, part) {
				return fmt.Errorf("it does not say %q:\n%s", part, message)
			}
		}
		return nil
	})
	if text := m.run(m.bare, "git", "show", "main:deployment.yaml"); !strings.Contains(text, "web:v1\n") {
		t.Errorf("the branch does not say what runs:\n%s", text)
	}
	clustertest.Wait(t, "the hand-back", func() error { // the revert may come before it
		var d appsv1.Deployment
		m.must(m.c.Client.Get(t.Context(), client.ObjectKey{Namespace: m.ns, Name: "web"}, &d))
		if d.Spec.Paused {
			return fmt.Errorf("it is held: %s", m.release("web").Status.Message)
		}
		return nil
	})
	m.untouched("web")
}

// Pods without series are Unknown. The release goes on by itself once they have some.
func TestAnalysis_SilenceHolds(t *testing.T) {
	s := controlledEnv(t, "web")
	m := sharedMeasured(s, "v1")
	m.bring("v1", "v2-silent")
	m.waitFor("web", "AnalysisUnknown", 0, half("v1", "v2-silent"))
	if got := m.metric(); got.Verdict != v1alpha1.VerdictUnknown || got.Count != 0 {
		t.Errorf("%s after %d values: %s", got.Verdict, got.Count, got.Message)
	}
	m.stays(1, half("v1", "v2-silent"))
	m.m.Change(t, m.ns, "v2-silent", `{"silent": false}`)
	m.waitFor("web", "ReleaseCompleted", 1, map[string]int32{"v2-silent": 4})
}

// A metric that fails in both revisions is no reason to roll back.
func TestAnalysis_BothRevisionsBadHold(t *testing.T) {
	s := controlledEnv(t, "web")
	m := sharedMeasured(s, "v1-errors")
	pods := half("v1-errors", "v2-errors")
	m.bring("v1-errors", "v2-errors")
	m.waitFor("web", "AnalysisUnknown", 0, pods)
	if got := m.metric(); got.Reason != "StableFailsToo" {
		t.Errorf("%s %s: %s", got.Verdict, got.Reason, got.Message)
	}
	m.stays(1, pods)
	t.Run("in the browser", m.isShown)
}

// A Prometheus that is down opens no gate and moves no pod. The release goes on once it is back.
func TestAnalysis_PrometheusIsDown(t *testing.T) {
	s := controlledEnv(t, "web")
	own := s.c.StartMonitoring(t)
	m := newMeasured(s, own, provider(s, own.URL), "v1", "10s")
	m.bring("v1", "v2")
	own.Stop(t)
	m.waitFor("web", "AnalysisUnknown", 0, half("v1", "v2"))
	if got := m.metric(); got.Verdict != v1alpha1.VerdictUnknown || got.Pending == nil {
		t.Errorf("%s: %s; pending %+v", got.Verdict, got.Message, got.Pending)
	}
	own.Start(t)
	m.waitFor("web", "ReleaseCompleted", 1, map[string]int32{"v2": 4})
}

// A controller is killed in the first of three windows, and started after the last one. It
// has the values of the windows as the schedule has them.
func TestAnalysis_ControllerIsKilled(t *testing.T) {
	t.Parallel()
	s := envOf(t, "web")
	config := filepath.Join(t.TempDir(), "providers.yaml")
	s.must(os.WriteFile(config, providers(map[string]string{s.ns: s.c.Monitoring(t).URL}), 0o600))
	kill := killable(s, "--analysis-config", config)
	m := newMeasured(s, s.c.Monitoring(t), s.ns, "v1", "30s, approval: true", s.own)
	m.bring("v1", "v2")
	kill()
	start := m.release("web").Status.Analysis.StartTime.Time
	passed := func(windows int) {
		m.m.WaitFor(t, "time()", func(now float64) bool { return now > float64(start.Unix()+10*int64(windows)) })
	}
	// Other windows have other values.
	passed(1)
	m.m.Change(t, m.ns, "v2", `{"errors": 0.015}`)
	passed(2)
	m.m.Change(t, m.ns, "v2", `{"rate": 100}`)
	passed(4)
	if got := m.pods("web"); fmt.Sprint(got) != fmt.Sprint(half("v1", "v2")) {
		t.Fatalf("pods %v, though there is no controller", got)
	}
	killable(s, "--analysis-config", config)
	m.waitFor("web", "WaitingForApproval", 0, half("v1", "v2"))
	got := m.metric()
	for tag, sum := range map[string]string{"v1": got.Stable, "v2": got.Update} {
		var failed, total float64
		for n := range 3 {
			failed += m.increase(tag, `,code=~"5.."`, start.Add(time.Duration(n+1)*10*time.Second))
			total += m.increase(tag, "", start.Add(time.Duration(n+1)*10*time.Second))
		}
		var gotFailed, gotTotal float64
		if _, err := fmt.Sscanf(sum, "%g/%g", &gotFailed, &gotTotal); err != nil {
			t.Fatalf("reading %q: %v", sum, err)
		}
		if math.Abs(gotFailed-failed) > 1e-3 || math.Abs(gotTotal-total) > 1e-3 || total < 1000 {
			t.Errorf("%s: %s, and Prometheus has %v/%v in the three windows", tag, sum, failed, total)
		}
	}
}

// increase returns what Prometheus has for the ten seconds up to a time.
func (s *measured) increase(tag, labels string, to time.Time) float64 {
	s.Helper()
	query := fmt.Sprintf(`sum(increase(http_requests_total{namespace=%q,pod=~"%s-.*"%s}[10s]))`, s.ns, s.replicaSet(tag), labels)
	v, ok := s.m.QueryAt(s, query, to)
	if !ok {
		s.Fatalf("there is nothing of %s", query)
	}
	return v
}
