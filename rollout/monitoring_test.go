package rollout_test

import (
	"fmt"
	"testing"

	appsv1 "k8s.io/api/apps/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"

	"github.com/tranche-dev/tranche/rollout/clustertest"
)

// A Prometheus of the test's own sees what the exporter counts, of each Deployment. It can
// be stopped, and the traffic changed.
func TestMonitoring_SeesTrafficOfPods(t *testing.T) {
	t.Parallel()
	c := clustertest.Shared(t)
	ns := c.Namespace(t)
	for name, tag := range map[string]string{"good": "v1", "bad": "v2-errors", "mute": "v3-silent"} {
		d := &appsv1.Deployment{
			ObjectMeta: metav1.ObjectMeta{Namespace: ns, Name: name},
			Spec: appsv1.DeploymentSpec{
				Replicas: ptr.To[int32](2), Template: template(name, tag),
				Selector: &metav1.LabelSelector{MatchLabels: template(name, tag).Labels},
			},
		}
		if err := c.Client.Create(t.Context(), d); err != nil {
			t.Fatal(err)
		}
	}
	m := c.StartMonitoring(t, "--rate", "100", "--errors", "0", "--tag-errors", "0.2")
	share := func(name string) string {
		of := func(codes string) string {
			return fmt.Sprintf(`sum(increase(http_requests_total{namespace=%q,pod=~"%s-.*",code=~%q}[5s]))`, ns, name, codes)
		}
		return of("5..") + "/" + of(".*")
	}
	m.WaitFor(t, share("bad"), func(v float64) bool { return 0.19 < v && v < 0.21 })
	m.WaitFor(t, share("good"), func(v float64) bool { return v == 0 })
	if ok, failed := m.Served(t, ns, "bad-"); failed == 0 || ok < 3.9*failed || ok > 4.1*failed+8 { // two pods, each rounded down
		t.Errorf("%v requests were served and %v failed, want 4 to 1", ok, failed)
	}
	mute := fmt.Sprintf(`count(http_requests_total{namespace=%q,pod=~"mute-.*"})`, ns)
	if n, ok := m.Query(t, mute); ok {
		t.Errorf("the pods of the tag silent have %v series", n)
	}

	m.Stop(t)
	m.Change(t, ns, "v3-silent", `{"silent": false, "errors": 1}`)
	m.Start(t)
	m.WaitFor(t, mute, func(v float64) bool { return v == 4 })
	m.WaitFor(t, share("mute"), func(v float64) bool { return v == 1 })
	m.WaitFor(t, share("bad"), func(v float64) bool { return 0.19 < v && v < 0.21 })
}
