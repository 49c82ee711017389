package gitsync_test

import (
	"context"
	"fmt"
	"net/http"
	"strings"
	"sync"
	"testing"

	appsv1 "k8s.io/api/apps/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/rest"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/tranche-dev/tranche/plan/v1alpha1"
	"github.com/tranche-dev/tranche/rollout/clustertest"
)

// deployments records every version of the Deployments of a namespace.
type deployments struct {
	mu   sync.Mutex
	seen []appsv1.Deployment
}

// recordDeployments watches from now on to the end of the test.
func (s *env) recordDeployments() *deployments {
	s.Helper()
	r := &deployments{}
	ctx, cancel := context.WithCancel(context.Background())
	var list appsv1.DeploymentList
	s.must(s.c.Client.List(ctx, &list, client.InNamespace(s.ns)))
	events, err := s.c.Client.Watch(ctx, &appsv1.DeploymentList{}, client.InNamespace(s.ns),
		&client.ListOptions{Raw: &metav1.ListOptions{ResourceVersion: list.ResourceVersion}})
	s.must(err)
	var running sync.WaitGroup
	running.Go(func() {
		for e := range events.ResultChan() {
			if d, ok := e.Object.(*appsv1.Deployment); ok && e.Type != watch.Deleted {
				r.mu.Lock()
				r.seen = append(r.seen, *d)
				r.mu.Unlock()
			}
		}
	})
	s.Cleanup(func() {
		events.Stop()
		cancel()
		running.Wait()
	})
	return r
}

// all returns what was seen of one Deployment, once a version of it has been.
func (r *deployments) all(t testing.TB, upTo *appsv1.Deployment) []appsv1.Deployment {
	t.Helper()
	var all []appsv1.Deployment
	clustertest.Wait(t, "the watch to come up", func() error {
		r.mu.Lock()
		defer r.mu.Unlock()
		all = nil
		for _, d := range r.seen {
			if d.UID != upTo.UID {
				continue
			}
			if all = append(all, d); d.ResourceVersion == upTo.ResourceVersion {
				return nil
			}
		}
		return fmt.Errorf("version %s has not been seen", upTo.ResourceVersion)
	})
	return all
}

// four is a Deployment of four replicas.
func four(image string) string { return web(image, "replicas: 2", "replicas: 4") }

// A plan that gets another name in the middle of a release hands it over: hold,
// status and history. The approvals name the old plan, and do not count for the
// new one.
func TestPlanRenamedInRelease(t *testing.T) {
	t.Parallel()
	s := newEnv(t, andRollout)
	s.applied2(s.push(map[string]string{"deploy/web.yaml": four("v0"), "deploy/release.yaml": planOf("web", "1", "50%", "100%")}))
	s.isAt("web", "ReleaseCompleted", 2)
	s.push(map[string]string{"deploy/web.yaml": four("v1")})
	s.isAt("web", "WaitingForApproval", 0)
	v1 := s.release("web")
	s.push(map[string]string{"deploy/approvals/web.yaml": approvalOf("web", v1.Status.UpdateRevision, v1.Spec.Commit, "1")})
	s.isAt("web", "ReleaseCompleted", 2)
	s.push(map[string]string{"deploy/web.yaml": four("v2")})
	s.isAt("web", "WaitingForApproval", 0)
	before := s.release("web")
	s.push(map[string]string{"deploy/approvals/web.yaml": approvalOf("web", before.Status.UpdateRevision, before.Spec.Commit, "0")})
	s.isAt("web", "WaitingForApproval", 1)
	before = s.release("web")

	held := s.recordDeployments()
	renamed := s.push(map[string]string{"deploy/release.yaml": planOf("next", "1", "50%", "100%")})
	s.applied(renamed)
	s.isGone("web", &v1alpha1.BatchRelease{})
	s.isAt("next", "WaitingForApproval", 1)
	after := s.release("next")
	if after.Spec.Commit != before.Spec.Commit || after.Status.UpdateRevision != before.Status.UpdateRevision || after.Status.StableRevision != before.Status.StableRevision {
		t.Errorf("it is %s to %s from %s, was %s to %s from %s", after.Status.StableRevision, after.Status.UpdateRevision, after.Spec.Commit,
			before.Status.StableRevision, before.Status.UpdateRevision, before.Spec.Commit)
	}
	if !after.Status.StartTime.Equal(before.Status.StartTime) || len(after.Status.Approvals) != 1 || len(after.Status.History) != len(before.Status.History) || len(after.Status.History) == 0 {
		t.Errorf("the status is %+v, was %+v", after.Status, before.Status)
	}
	if after.Spec.Approval != nil {
		t.Errorf("the approval of the old name counts: %+v", after.Spec.Approval)
	}
	s.says("False ApprovalIgnored: deploy/approvals/web.yaml: BatchApproval " + s.ns + "/web: names no BatchRelease")
	now := s.deployment("web")
	s.kubectl("label", "deployment/web", "example.org/end=true")
	for _, d := range held.all(t, s.deployment("web")) {
		if d.UID != now.UID || d.Labels[v1alpha1.LabelHeld] == "" || !d.Spec.Paused {
			t.Errorf("at version %s it was not held: %+v", d.ResourceVersion, d.Spec)
		}
	}
	var records appsv1.ControllerRevisionList
	s.must(s.c.Client.List(t.Context(), &records, client.InNamespace(s.ns), client.MatchingLabels{"app.kubernetes.io/managed-by": "tranche"}))
	owned := 0
	for _, r := range records.Items {
		for _, o := range r.OwnerReferences {
			if o.UID == after.UID {
				owned++
			}
		}
	}
	if owned == 0 || owned != len(records.Items) {
		t.Errorf("the new plan owns %d of %d records", owned, len(records.Items))
	}
	s.push(map[string]string{"deploy/approvals/web.yaml": "", "deploy/approvals/next.yaml": approvalOf("next", after.Status.UpdateRevision, after.Spec.Commit, "1")})
	s.isAt("next", "ReleaseCompleted", 2)
	s.says("True InSync")
}

// atStep writes a status as rollout does, with the controller's account.
func (s *env) atStep(name string, step int32) {
	s.Helper()
	c, err := client.New(s.c.Controller, client.Options{Scheme: s.c.Scheme})
	s.must(err)
	s.must(c.Status().Patch(s.Context(), s.release(name), client.RawPatch(types.MergePatchType,
		fmt.Appendf(nil, `{"status":{"phase":"RollingUpdate","currentStepIndex":%d,"currentStepState":"Blocking","updateRevision":"abc"}}`, step))))
}

// A decision for the old plan between the copy of its status and its deletion is not
// lost. A rollback that was asked for is asked of the new plan.
func TestPlanRenamedWhileItDecides(t *testing.T) {
	t.Parallel()
	s := newIdleEnv(t)
	var decides sync.Once
	config := rest.CopyConfig(s.c.Controller)
	config.Wrap(func(next http.RoundTripper) http.RoundTripper {
		return roundTripper(func(r *http.Request) (*http.Response, error) {
			if r.Method == http.MethodDelete && strings.HasSuffix(r.URL.Path, "/batchreleases/web") {
				decides.Do(func() {
					s.atStep("web", 2)
					s.kubectl("annotate", "batchrelease/web", v1alpha1.AnnotationRollback+"=true")
				})
			}
			return next.RoundTrip(r)
		})
	})
	t.Cleanup(s.startControllerWith(config, gitsyncOnly))
	first := s.push(map[string]string{"deploy/web.yaml": web("v1"), "deploy/release.yaml": planOf("web", "1", "50%", "100%")})
	s.applied2(first)
	s.atStep("web", 1)
	s.applied(s.push(map[string]string{"deploy/release.yaml": planOf("next", "1", "50%", "100%")}))
	s.isGone("web", &v1alpha1.BatchRelease{})
	next := s.release("next")
	if next.Spec.Commit != first || next.Status.CurrentStepIndex != 2 || next.Status.UpdateRevision != "abc" || next.Status.ObservedGeneration != 0 || next.Annotations[v1alpha1.AnnotationRollback] != "true" {
		t.Errorf("the new plan is from %s with %v and %+v", next.Spec.Commit, next.Annotations, next.Status)
	}
}

// A plan stays where the new one is not applied, or its Deployment would be
// without a plan.
func TestPlanRenamedAndLeftAlone(t *testing.T) {
	t.Parallel()
	s := newEnv(t, gitsyncOnly)
	s.applied2(s.push(manifests("v1")))
	s.atStep("web", 1)
	off := strings.Replace(planOf("next", "1", "100%"), "{name: next}", "{name: next, annotations: {tranche.dev/reconcile: disabled}}", 1)
	s.applied(s.push(map[string]string{"deploy/plan.yaml": off}))
	s.lookNow()
	s.absent("next", &v1alpha1.BatchRelease{})
	if br := s.release("web"); br.DeletionTimestamp != nil {
		t.Error("the old plan is being deleted")
	}
	s.applied(s.push(map[string]string{"deploy/plan.yaml": planOf("next", "1", "100%")}))
	s.isGone("web", &v1alpha1.BatchRelease{})
	if step := s.release("next").Status.CurrentStepIndex; step != 1 {
		t.Errorf("the new plan is at step %d", step)
	}
}
