package rollout_test

import (
	"fmt"
	"io"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/client-go/rest"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/yaml"

	"github.com/tranche-dev/tranche/plan"
	"github.com/tranche-dev/tranche/plan/v1alpha1"
	"github.com/tranche-dev/tranche/rollout"
	"github.com/tranche-dev/tranche/rollout/clustertest"
	"github.com/tranche-dev/tranche/rollout/fromgit"
)

// The native controller names a revision as package plan does for the version of the cluster. A
// release makes a ReplicaSet of the same name.
func TestNames(t *testing.T) {
	t.Parallel()
	files, err := filepath.Glob("../plan/testdata/templatehash/*.yaml")
	if err != nil || len(files) == 0 {
		t.Fatalf("no templates: %v", err)
	}
	for _, file := range files {
		data, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		var d appsv1.Deployment
		if err := yaml.UnmarshalStrict(data, &d); err != nil {
			t.Fatal(err)
		}
		t.Run(d.Name, func(t *testing.T) {
			t.Parallel()
			c := clustertest.Shared(t)
			if needs := map[string]int{"envfile": 35}[d.Name]; c.Minor < needs {
				t.Skipf("needs Kubernetes 1.%d, which has fileKeyRef by default", needs)
			}
			stable := d.Spec.Template
			update := *stable.DeepCopy()
			update.Spec.Containers[0].Image = "registry.example.org/web:v2"
			twin := &env{T: t, c: c}
			twin.ns = twin.c.Namespace(t)
			s, _ := newEnvWithController(t)
			for _, e := range []*env{twin, s} {
				e.kubectl("-n", e.ns, "create", "serviceaccount", "web")
				e.create("web", 2, func(d *appsv1.Deployment) { d.Spec.Template = stable })
				named(e, stable)
			}
			twin.change(func(d *appsv1.Deployment) { d.Spec.Template = update })
			planOf(s, stable, "1", "100%")
			s.waitFor(v1alpha1.ReasonReleaseCompleted, 1, nil)
			s.edit(func(spec *v1alpha1.BatchReleaseSpec) { spec.Template, spec.Commit = &update, commitOf("v2") })
			s.waitFor(v1alpha1.ReasonWaitingForApproval, 0, nil)
			native, ours := named(twin, update), named(s, update)
			if native != ours || s.release().Status.UpdateRevision != ours {
				t.Errorf("native %s, ours %s, status %s", native, ours, s.release().Status.UpdateRevision)
			}
		})
	}
}

// named waits for the ReplicaSet of a template that the Deployment has, and returns the name of
// the revision. It must be that of package plan for the version of the cluster.
func named(s *env, pods corev1.PodTemplateSpec) (revision string) {
	s.Helper()
	clustertest.Wait(s, "the ReplicaSet", func() error {
		for _, rs := range s.sets() {
			if rs.Spec.Template.Spec.Containers[0].Image == pods.Spec.Containers[0].Image {
				revision = rs.Labels[appsv1.DefaultDeploymentUniqueLabelKey]
				if rs.Name != "web-"+revision {
					s.Errorf("ReplicaSet %s is of revision %s", rs.Name, revision)
				}
				return nil
			}
		}
		return fmt.Errorf("sizes %v", s.sizes())
	})
	d := s.deployment("web")
	if want := plan.TemplateHash(&d.Spec.Template, d.Status.CollisionCount, s.c.Minor); revision != want {
		s.Errorf("the revision is %s in Kubernetes 1.%d, and package plan says %s", revision, s.c.Minor, want)
	}
	return revision
}

// On a cluster that is too old the controller says so at its start, before it has written anything.
func TestAdd_OldCluster(t *testing.T) {
	t.Parallel()
	c := clustertest.Shared(t)
	config := rest.CopyConfig(c.Controller)
	config.Wrap(func(next http.RoundTripper) http.RoundTripper {
		return roundTripper(func(r *http.Request) (*http.Response, error) {
			if r.URL.Path != "/version" {
				return next.RoundTrip(r)
			}
			body := io.NopCloser(strings.NewReader(`{"major":"1","minor":"33","gitVersion":"v1.33.9"}`))
			return &http.Response{StatusCode: http.StatusOK, Header: http.Header{"Content-Type": {"application/json"}}, Body: body, Request: r}, nil
		})
	})
	mgr, err := ctrl.NewManager(config, managerOptions(c.Scheme, c.Namespace(t), &fromgit.Releases{}))
	if err != nil {
		t.Fatal(err)
	}
	err = rollout.Add(mgr, rollout.Options{})
	const want = "the cluster runs Kubernetes 1.33 (v1.33.9), and Tranche needs 1.34 or later; upgrade the cluster first"
	if err == nil || err.Error() != want {
		t.Errorf("got error %v", err)
	}
}
