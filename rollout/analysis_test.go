package rollout_test

import (
	"encoding/json"
	"fmt"
	"net/http"
	"net/http/httptest"
	"net/netip"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/intstr"
	"k8s.io/client-go/transport"
	"k8s.io/utils/ptr"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/tranche-dev/tranche/plan/v1alpha1"
	"github.com/tranche-dev/tranche/rollout"
	"github.com/tranche-dev/tranche/rollout/analysis"
	"github.com/tranche-dev/tranche/rollout/clustertest"
)

// metricsServer answers queries as Prometheus does, and probes. It can keep its answers back.
type metricsServer struct {
	*httptest.Server
	mu      sync.Mutex
	asked   []string // what was asked, in order
	stalled chan struct{}
	waiting int
}

func newMetricsServer(t testing.TB) *metricsServer {
	s := &metricsServer{}
	s.Server = httptest.NewServer(http.HandlerFunc(s.serve))
	t.Cleanup(s.Close)
	t.Cleanup(s.resume)
	return s
}

// stall keeps answers back until resume.
func (s *metricsServer) stall() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.stalled = make(chan struct{})
}

func (s *metricsServer) resume() {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.stalled != nil {
		close(s.stalled)
		s.stalled = nil
	}
}

func (s *metricsServer) serve(w http.ResponseWriter, r *http.Request) {
	_ = r.ParseForm()
	key := strings.TrimSpace(r.URL.Path + " " + r.PostForm.Get("query") + " " + r.PostForm.Get("time") + r.Header.Get("Idempotency-Key"))
	s.mu.Lock()
	s.asked = append(s.asked, key)
	s.waiting++
	stalled := s.stalled
	s.mu.Unlock()
	defer func() { s.mu.Lock(); defer s.mu.Unlock(); s.waiting-- }()
	if stalled != nil {
		select {
		case <-stalled:
		case <-r.Context().Done():
			return
		}
	}
	if r.URL.Path == "/probe" {
		_, _ = fmt.Fprintf(w, `{"ok": %t}`, r.Header.Get("Authorization") == "Bearer probe-secret")
		return
	}
	const answer = `{"status":"success","data":{"resultType":"vector","result":[{"value":[%s,"0.25"]}]}}`
	_, _ = fmt.Fprintf(w, answer, r.PostForm.Get("time"))
}

// wait waits until requests are kept back.
func (s *metricsServer) wait(t testing.TB, n int) {
	t.Helper()
	clustertest.Wait(t, "queries", func() error {
		s.mu.Lock()
		defer s.mu.Unlock()
		if s.waiting < n {
			return fmt.Errorf("%d queries wait, want %d; asked %q", s.waiting, n, s.asked)
		}
		return nil
	})
}

func (s *metricsServer) questions() []string {
	s.mu.Lock()
	defer s.mu.Unlock()
	return slices.Clone(s.asked)
}

// measuredEnv is an env whose release is measured.
type measuredEnv struct{ *env }

// startMeasuring runs a controller whose tenants may have servers on this machine asked.
func (s *measuredEnv) startMeasuring(wrap ...func(http.RoundTripper) http.RoundTripper) (stop func()) {
	s.Helper()
	o := rollout.Options{Concurrent: 50, Analysis: analysis.Options{MayReach: func(netip.Addr) error { return nil }}}
	var wrappers []transport.WrapperFunc
	for _, w := range wrap {
		wrappers = append(wrappers, w)
	}
	return startReconciler(s.T, s.c, s.ns, o, func(*ctrl.Options) {}, wrappers...)
}

// analysed adds metrics to the plan, which its first step measures for 10 s.
func (s *measuredEnv) analysed(metrics ...v1alpha1.Metric) {
	s.Helper()
	s.edit(func(spec *v1alpha1.BatchReleaseSpec) {
		spec.Strategy.Steps[0].Analysis = &v1alpha1.StepAnalysis{Duration: metav1.Duration{Duration: 10 * time.Second}}
		spec.Strategy.Analysis = &v1alpha1.Analysis{Metrics: metrics}
	})
}

func seconds(n int) *metav1.Duration {
	return &metav1.Duration{Duration: time.Duration(n) * time.Second}
}

// errorsAt is a metric whose value is asked of a server.
func errorsAt(address string) v1alpha1.Metric {
	return v1alpha1.Metric{
		Name: "errors", Interval: seconds(10), Delay: seconds(0), Max: ptr.To(v1alpha1.Decimal("0.5")),
		Prometheus: &v1alpha1.PrometheusMetric{Address: address, Query: `errors{pod=~"$(pods)"}`},
	}
}

// cronJob makes a suspended CronJob whose pods no node takes, so that the test ends them.
func (s *measuredEnv) cronJob(name string) {
	s.Helper()
	pod := corev1.PodSpec{
		RestartPolicy: corev1.RestartPolicyOnFailure, NodeSelector: map[string]string{"none": "such"},
		Containers: []corev1.Container{{Name: "smoke", Image: "registry.example.org/smoke:v1"}},
	}
	s.must(s.c.Client.Create(s.Context(), &batchv1.CronJob{
		ObjectMeta: metav1.ObjectMeta{Namespace: s.ns, Name: name},
		Spec: batchv1.CronJobSpec{Schedule: "0 0 1 1 *", Suspend: ptr.To(true), JobTemplate: batchv1.JobTemplateSpec{
			ObjectMeta: metav1.ObjectMeta{Labels: map[string]string{"team": "shop"}},
			Spec:       batchv1.JobSpec{Template: corev1.PodTemplateSpec{Spec: pod}},
		}},
	}))
}

// podOf waits for the pod of the only Job.
func (s *measuredEnv) podOf(selector client.ListOption) (pod corev1.Pod) {
	s.Helper()
	clustertest.Wait(s, "the pod of a Job", func() error {
		var pods corev1.PodList
		if err := s.c.Client.List(s.Context(), &pods, client.InNamespace(s.ns), selector); err != nil {
			return err
		}
		if len(pods.Items) != 1 {
			return fmt.Errorf("%d pods", len(pods.Items))
		}
		pod = pods.Items[0]
		return nil
	})
	return pod
}

// exit ends a pod as a kubelet does.
func (s *measuredEnv) exit(pod corev1.Pod, code int32, edit ...func(*corev1.PodStatus)) {
	s.Helper()
	old := pod.DeepCopy()
	reason := "Completed"
	pod.Status.Phase = corev1.PodSucceeded
	if code != 0 {
		pod.Status.Phase, reason = corev1.PodFailed, "Error"
	}
	pod.Status.ContainerStatuses = []corev1.ContainerStatus{{Name: pod.Spec.Containers[0].Name, State: corev1.ContainerState{
		Terminated: &corev1.ContainerStateTerminated{ExitCode: code, Reason: reason},
	}}}
	for _, e := range edit {
		e(&pod.Status)
	}
	s.must(s.c.Client.Status().Patch(s.Context(), &pod, client.MergeFrom(old)))
}

// pending waits until a metric has no value for this reason.
func (s *measuredEnv) pending(metric, reason, message string) {
	s.Helper()
	clustertest.Wait(s, metric+" "+reason, func() error {
		a := s.release().Status.Analysis
		if a == nil {
			return fmt.Errorf("no analysis: %s", s.release().Status.Message)
		}
		for _, m := range a.Metrics {
			if m.Name == metric && m.Pending != nil && m.Pending.Reason == reason && strings.Contains(m.Pending.Message, message) {
				return nil
			}
		}
		said, _ := json.Marshal(a)
		return fmt.Errorf("%s", said)
	})
}

// Secrets are read and Jobs are made as the account of the release, which needs the rights for
// that. A Job is made once, belongs to the release, and its exit code counts. No secret is in
// the status.
func TestAnalysis_AsTheAccount(t *testing.T) {
	t.Parallel()
	s, server := &measuredEnv{newEnv(t)}, newMetricsServer(t)
	var users sync.Map // by what they do
	s.startMeasuring(func(next http.RoundTripper) http.RoundTripper {
		return roundTripper(func(r *http.Request) (*http.Response, error) {
			for _, of := range []string{"/secrets/probes", "/cronjobs/", "/jobs"} {
				if strings.Contains(r.URL.Path, of) {
					users.Store(r.Header.Get("Impersonate-User"), true)
				}
			}
			return next.RoundTrip(r)
		})
	})
	s.kubectl("create", "role", "releases", "-n", s.ns, "--resource=deployments.apps,replicasets.apps", "--verb=get,list,create,patch,update")
	tenant := s.account("tenant", "--role=releases")
	s.kubectl("create", "secret", "generic", "probes", "-n", s.ns, "--from-literal=bearerToken=probe-secret")
	s.cronJob("smoke")
	s.install(2)
	s.plan("1", "100%")
	s.analysed(
		v1alpha1.Metric{Name: "smoke", Job: &v1alpha1.JobMetric{From: "smoke", Timeout: seconds(600)}},
		v1alpha1.Metric{Name: "probe", Count: 1, Condition: "status == 200 && body.ok",
			Web: &v1alpha1.WebMetric{URL: server.URL + "/probe", SecretRef: &v1alpha1.LocalObjectReference{Name: "probes"}}})
	s.edit(func(spec *v1alpha1.BatchReleaseSpec) { spec.ServiceAccountName = "tenant" })
	s.bring("v2")
	s.pending("probe", "SecretNotReadable", "may not get Secret probes")
	s.pending("smoke", "JobNotRun", "may not get Jobs")
	if asked := server.questions(); len(asked) != 0 {
		t.Errorf("asked %q without credentials", asked)
	}
	s.kubectl("create", "role", "measures", "-n", s.ns, "--resource=jobs.batch,cronjobs.batch,secrets,pods", "--verb=get,create,list")
	s.kubectl("create", "rolebinding", "measures", "-n", s.ns, "--role=measures", "--serviceaccount="+s.ns+":tenant")
	pod := s.podOf(client.HasLabels{batchv1.JobNameLabel})
	var jobs batchv1.JobList
	s.must(s.c.Client.List(s.Context(), &jobs, client.InNamespace(s.ns)))
	if len(jobs.Items) != 1 {
		t.Fatalf("%d Jobs", len(jobs.Items))
	}
	j := jobs.Items[0]
	if j.OwnerReferences[0].UID != s.release().UID || j.Labels["team"] != "shop" || *j.Spec.BackoffLimit != 0 ||
		*j.Spec.ActiveDeadlineSeconds != 600 ||
		j.Spec.TTLSecondsAfterFinished == nil || !strings.HasPrefix(j.Name, "web-smoke-") {
		t.Errorf("the Job is %+v", j)
	}
	s.exit(pod, 0)
	clustertest.Wait(s, "all pods run v2", func() error {
		if got := s.sizes(); got["v2"] != 2 {
			return fmt.Errorf("sizes %v: %s", got, s.release().Status.Message)
		}
		return nil
	})
	users.Range(func(user, _ any) bool {
		if user != tenant {
			t.Errorf("user %q reads Secrets or makes Jobs", user)
		}
		return true
	})
	if text, _ := json.Marshal(s.release()); strings.Contains(string(text), "probe-secret") {
		t.Errorf("the Secret is in %s", text)
	}
}

// A provider that does not answer delays no other release. A new commit supersedes the release
// that asks it at once, and the query is cancelled.
func TestAnalysis_SlowProvider(t *testing.T) {
	t.Parallel()
	s, server := &measuredEnv{newEnv(t)}, newMetricsServer(t)
	server.stall()
	s.startMeasuring()
	s.install(2)
	s.plan("1", "100%")
	s.analysed(errorsAt(server.URL))
	s.bring("v2")
	server.wait(s, 1)
	s.create("other", 2)
	other := s.release()
	other.ObjectMeta = metav1.ObjectMeta{Namespace: s.ns, Name: "other"}
	other.Spec.WorkloadRef.Name, other.Spec.Template, other.Spec.Strategy = "other", ptr.To(template("other", "v1")), v1alpha1.BatchStrategy{}
	other.Spec.Strategy.Steps = []v1alpha1.Step{{Replicas: intstr.FromString("100%")}}
	s.must(s.c.Client.Create(s.Context(), other))
	s.completed("other")
	old := other.DeepCopy()
	s.must(s.c.Client.Get(s.Context(), client.ObjectKeyFromObject(other), old))
	next := old.DeepCopy()
	next.Spec.Template = ptr.To(template("other", "v2"))
	s.must(s.c.Client.Patch(s.Context(), next, client.MergeFrom(old)))
	clustertest.Wait(s, "the other release", func() error {
		for _, rs := range s.sets() {
			if rs.Labels["app"] == "other" && strings.HasSuffix(rs.Spec.Template.Spec.Containers[0].Image, ":v2") {
				return nil
			}
		}
		return fmt.Errorf("no ReplicaSet of v2")
	})
	server.wait(s, 1) // the slow one still is
	s.bring("v3")
	clustertest.Wait(s, "the query to be cancelled", func() error {
		server.mu.Lock()
		defer server.mu.Unlock()
		if server.waiting > 0 {
			return fmt.Errorf("%d queries wait", server.waiting)
		}
		return nil
	})
}

// The provider of a background metric does not answer. No pause and no approval opens a gate, and
// the release does not end, until there is a value.
func TestAnalysis_BackgroundWithoutAnswer(t *testing.T) {
	t.Parallel()
	s, server := &measuredEnv{newEnv(t)}, newMetricsServer(t)
	server.stall()
	s.startMeasuring()
	s.install(2)
	s.plan("1", "100%")
	s.edit(func(spec *v1alpha1.BatchReleaseSpec) {
		spec.Strategy.Steps[0].Pause = &v1alpha1.Pause{Duration: *seconds(1)}
		spec.Strategy.Analysis = &v1alpha1.Analysis{Background: []string{"errors"}, Metrics: []v1alpha1.Metric{errorsAt(server.URL)}}
	})
	s.bring("v2")
	server.wait(s, 1) // the window is longer than the pause
	s.waitFor("WaitingForAnalysis", 0, map[string]int32{"v1": 1, "v2": 1})
	s.approve(1)
	s.waitFor("WaitingForAnalysis", 0, map[string]int32{"v1": 1, "v2": 1})
	server.resume()
	s.waitFor("ReleaseCompleted", 1, map[string]int32{"v2": 2})
	s.untouched()
}

// The controller ends while a query and a probe are under way. The next one asks the same about
// the same window, and the measurement counts once.
func TestAnalysis_Restart(t *testing.T) {
	t.Parallel()
	s, server := &measuredEnv{newEnv(t)}, newMetricsServer(t)
	s.kubectl("create", "secret", "generic", "probes", "-n", s.ns, "--from-literal=bearerToken=probe-secret")
	stop := s.startMeasuring()
	s.install(2)
	s.plan("1", "100%")
	s.analysed(errorsAt(server.URL), v1alpha1.Metric{Name: "probe", Count: 1, Condition: "body.ok", Interval: seconds(10),
		Web: &v1alpha1.WebMetric{URL: server.URL + "/probe", Method: "POST", SecretRef: &v1alpha1.LocalObjectReference{Name: "probes"}}})
	server.stall()
	s.bring("v2")
	server.wait(s, 2)
	stop()
	before := server.questions()
	if s.release().Status.CurrentStepIndex != 0 {
		t.Error("the gate opened without a value")
	}
	s.startMeasuring()
	server.wait(s, 2)
	server.resume()
	clustertest.Wait(s, "all pods run v2", func() error {
		if got := s.sizes(); got["v2"] != 2 {
			return fmt.Errorf("sizes %v: %s", got, s.release().Status.Message)
		}
		return nil
	})
	asked := server.questions()
	slices.Sort(asked)
	if got := slices.Compact(asked); len(got) > 3 || len(asked) < 4 { // the query of each revision, and the probe
		t.Errorf("asked %q; before the end %q", got, before)
	}
	for _, record := range s.release().Status.Analysis.Records {
		if record.Verdict != v1alpha1.VerdictPass {
			t.Errorf("%+v", record)
		}
	}
}
