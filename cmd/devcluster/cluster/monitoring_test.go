package cluster_test

import (
	"bufio"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/url"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"

	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
	"k8s.io/utils/ptr"
)

// jobs are ended by the native Job controller, as the tags of their images say.
func jobs(t *testing.T, client kubernetes.Interface) {
	t.Parallel()
	jobs := map[string]*batchv1.Job{}
	for _, tag := range []string{"exit-0", "exit-3", "oom", "evict", "hang", "pull", "exit-1"} {
		jobs[tag] = &batchv1.Job{
			ObjectMeta: metav1.ObjectMeta{Name: tag},
			Spec: batchv1.JobSpec{BackoffLimit: ptr.To[int32](0), Template: corev1.PodTemplateSpec{Spec: corev1.PodSpec{
				RestartPolicy: corev1.RestartPolicyNever, Containers: []corev1.Container{{Name: "job", Image: "job:" + tag}},
			}}},
		}
	}
	jobs["hang"].Spec.ActiveDeadlineSeconds = ptr.To[int64](6)
	jobs["exit-1"].Spec.Template.Spec.RestartPolicy = corev1.RestartPolicyOnFailure
	none := jobs["exit-0"].DeepCopy()
	none.Name, none.Spec.Template.Spec.NodeSelector = "unschedulable", map[string]string{"there": "is-none"}
	jobs["unschedulable"] = none
	for _, job := range jobs {
		if _, err := client.BatchV1().Jobs(metav1.NamespaceDefault).Create(t.Context(), job, metav1.CreateOptions{}); err != nil {
			t.Fatal(err)
		}
	}
	for tag, reason := range map[string]string{
		"exit-0": batchv1.JobReasonCompletionsReached,
		"exit-3": batchv1.JobReasonBackoffLimitExceeded, "oom": batchv1.JobReasonBackoffLimitExceeded,
		"evict": batchv1.JobReasonBackoffLimitExceeded, "exit-1": batchv1.JobReasonBackoffLimitExceeded,
		"hang": batchv1.JobReasonDeadlineExceeded,
	} {
		eventually(t, tag+" has ended: "+reason, func(ctx context.Context) (bool, error) {
			job, err := client.BatchV1().Jobs(metav1.NamespaceDefault).Get(ctx, tag, metav1.GetOptions{})
			if err != nil {
				return false, err
			}
			for _, c := range job.Status.Conditions {
				if c.Status == corev1.ConditionTrue && c.Type != batchv1.JobFailureTarget && c.Type != batchv1.JobSuccessCriteriaMet {
					return c.Reason == reason, nil
				}
			}
			return false, nil
		})
	}
	eventually(t, "the image cannot be pulled", func(ctx context.Context) (bool, error) {
		pod, err := podOfJob(ctx, client, "pull")
		return err == nil && len(pod.Status.ContainerStatuses) == 1 && pod.Status.Phase == corev1.PodPending &&
			pod.Status.ContainerStatuses[0].State.Waiting.Reason == "ImagePullBackOff", err
	})
	eventually(t, "there is no node for it", func(ctx context.Context) (bool, error) {
		pod, err := podOfJob(ctx, client, "unschedulable")
		return err == nil && len(pod.Status.Conditions) == 1 && pod.Status.Conditions[0].Reason == corev1.PodReasonUnschedulable, err
	})
}

func podOfJob(ctx context.Context, client kubernetes.Interface, name string) (*corev1.Pod, error) {
	list, err := client.CoreV1().Pods(metav1.NamespaceDefault).List(ctx, metav1.ListOptions{LabelSelector: batchv1.JobNameLabel + "=" + name})
	if err != nil || len(list.Items) == 0 {
		return &corev1.Pod{}, err
	}
	return &list.Items[0], nil
}

// part is a running command that prints one line when it is up, and ends with its input.
type part struct {
	cmd   *exec.Cmd
	stdin io.Closer
	url   string
}

func startPart(t *testing.T, args ...string) *part {
	t.Helper()
	p := &part{cmd: exec.Command(binary(t), append(args, "--until-stdin-ends")...)}
	var stderr strings.Builder
	p.cmd.Stderr = &stderr
	stdout, err := p.cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if p.stdin, err = p.cmd.StdinPipe(); err != nil {
		t.Fatal(err)
	}
	if err := p.cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		_ = p.cmd.Process.Kill() // ended by now, unless the test failed
		_ = p.cmd.Wait()
	})
	line, err := bufio.NewReader(stdout).ReadString('\n')
	if err != nil {
		t.Fatalf("%s: %v\n%s", args[0], err, stderr.String())
	}
	p.url = strings.TrimSpace(line)
	return p
}

// end ends the input, and waits.
func (p *part) end(t *testing.T) {
	t.Helper()
	children := childrenOf(t, p.cmd.Process.Pid)
	if err := p.stdin.Close(); err != nil {
		t.Fatal(err)
	}
	if err := p.cmd.Wait(); err != nil {
		t.Error(err)
	}
	for _, child := range children {
		if alive(child) {
			t.Errorf("process %d is left", child)
		}
	}
}

// monitoring has Prometheus tell what the pods of the Deployment good serve.
func monitoring(t *testing.T, dir string) {
	t.Parallel()
	traffic := startPart(t, "traffic", "--kubeconfig", filepath.Join(dir, "kubeconfig"), "--rate", "100", "--errors", "0.1")
	home := filepath.Join(dir, "prometheus")
	start := func(port string) *part {
		return startPart(t, "prometheus", "--dir", home, "--port", port, "--scrape", "traffic="+traffic.url+"/metrics")
	}
	prometheus := start("0")
	const errorRate = `sum by (namespace) (rate(http_requests_total{pod=~"good-.*",code=~"5.."}[5s]))`
	near := func(want float64) func(result) bool {
		return func(r result) bool { return want*0.9 < r.value && r.value < want*1.1 }
	}
	waitQuery(t, prometheus.url, errorRate, near(30)) // 3 pods × 100 × 0.1
	waitQuery(t, prometheus.url, `sum(rate(http_requests_total{pod=~"good-.*",code="200"}[5s]))`, near(270))
	waitQuery(t, prometheus.url, `histogram_quantile(0.5, sum by (le) (rate(http_request_duration_seconds_bucket{pod=~"good-.*"}[5s])))`,
		func(r result) bool { return 0.025 < r.value && r.value < 0.05 }) // the median of 50 ms × ln 2
	first := waitQuery(t, prometheus.url, "min(min_over_time(timestamp(up)[1h:1s]))", func(result) bool { return true })

	u, err := url.Parse(prometheus.url)
	if err != nil {
		t.Fatal(err)
	}
	prometheus.end(t)
	again := start(u.Port())
	if again.url != prometheus.url {
		t.Errorf("it is at %s again, want %s", again.url, prometheus.url)
	}
	waitQuery(t, again.url, errorRate, near(30))
	values := url.Values{"query": {"up"}, "step": {"1"}, "start": {fmt.Sprint(first.value)}, "end": {fmt.Sprint(first.value + 2)}}
	if got, err := query(t.Context(), again.url+"/api/v1/query_range?"+values.Encode()); err != nil || got.samples < 2 {
		t.Errorf("the series of the first run are lost: %+v, %v", got, err)
	}
	again.end(t)
	traffic.end(t)
}

// result is that of a query that has one series.
type result struct {
	value   float64 // of an instant query
	samples int     // of a range query
}

func waitQuery(t *testing.T, prometheus, text string, wanted func(result) bool) result {
	t.Helper()
	var got result
	eventually(t, text, func(ctx context.Context) (bool, error) {
		var err error
		got, err = query(ctx, prometheus+"/api/v1/query?"+url.Values{"query": {text}}.Encode())
		return err == nil && wanted(got), nil
	})
	return got
}

func query(ctx context.Context, address string) (result, error) {
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, address, nil)
	if err != nil {
		return result{}, err
	}
	client := http.Client{Timeout: 30 * time.Second}
	res, err := client.Do(req)
	if err != nil {
		return result{}, err
	}
	defer res.Body.Close()
	var found struct {
		Error string
		Data  struct {
			Result []struct {
				Value  [2]any
				Values []any
			}
		}
	}
	if err := json.NewDecoder(res.Body).Decode(&found); err != nil {
		return result{}, err
	}
	if found.Error != "" || len(found.Data.Result) != 1 {
		return result{}, fmt.Errorf("%d series: %s", len(found.Data.Result), found.Error)
	}
	series := found.Data.Result[0]
	if series.Values != nil {
		return result{samples: len(series.Values)}, nil
	}
	value, err := strconv.ParseFloat(fmt.Sprint(series.Value[1]), 64)
	return result{value: value}, err
}

func TestPrometheusOptionsAreChecked(t *testing.T) {
	taken, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer taken.Close()
	_, port, err := net.SplitHostPort(taken.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	for _, test := range []struct{ args, want string }{
		{"--scrape a=nowhere", `scraping a: "nowhere" is not an HTTP URL`},
		{"", "there is nothing to scrape"},
		{"--scrape a=http://127.0.0.1:1/ --interval 1us", "an interval of 1µs"},
		{"--scrape a=http://127.0.0.1:1/ --config x", "none of the others can be"},
		{"--program no-such-file", "run 'make bin/prometheus' first"},
		{"--scrape a=http://127.0.0.1:1/ --port " + port, "starting prometheus: looking for a free port: listen tcp 127.0.0.1:" + port},
		{"--config no-such-file", "prometheus ended unexpectedly"},
	} {
		args := append([]string{"prometheus", "--dir", t.TempDir()}, strings.Fields(test.args)...)
		out, err := exec.Command(binary(t), args...).CombinedOutput()
		if err == nil || !strings.Contains(string(out), test.want) {
			t.Errorf("%s: %v, want %q:\n%s", test.args, err, test.want, out)
		}
	}
}
