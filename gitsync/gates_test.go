package gitsync_test

import (
	"context"
	"fmt"
	"strconv"
	"strings"
	"sync"
	"testing"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/yaml"

	"github.com/tranche-dev/tranche/plan"
	"github.com/tranche-dev/tranche/plan/v1alpha1"
	"github.com/tranche-dev/tranche/rollout/clustertest"
)

// sizes are those of the ReplicaSets of an image, as the API server tells them.
type sizes struct {
	*env
	image string

	mu   sync.Mutex
	seen []sized
}

// sized is one version of a ReplicaSet.
type sized struct {
	version uint64
	size    int32
}

// recordSizes watches the ReplicaSets of an image from now on to the end of the
// test.
func (s *env) recordSizes(image string) *sizes {
	s.Helper()
	r := &sizes{env: s, image: image}
	ctx, cancel := context.WithCancel(context.Background())
	var list appsv1.ReplicaSetList
	s.must(s.c.Client.List(ctx, &list, client.InNamespace(s.ns)))
	for i := range list.Items {
		r.add(&list.Items[i])
	}
	events, err := s.c.Client.Watch(ctx, &appsv1.ReplicaSetList{}, client.InNamespace(s.ns),
		&client.ListOptions{Raw: &metav1.ListOptions{ResourceVersion: list.ResourceVersion}})
	s.must(err)
	var running sync.WaitGroup
	running.Go(func() {
		for e := range events.ResultChan() {
			if rs, ok := e.Object.(*appsv1.ReplicaSet); ok {
				r.add(rs)
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

func (r *sizes) add(rs *appsv1.ReplicaSet) {
	if !strings.HasSuffix(rs.Spec.Template.Spec.Containers[0].Image, ":"+r.image) {
		return
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	r.seen = append(r.seen, sized{versionOf(rs.ResourceVersion), *rs.Spec.Replicas})
}

func versionOf(s string) uint64 {
	v, err := strconv.ParseUint(s, 10, 64)
	if err != nil {
		panic("reading a resourceVersion: " + err.Error()) // etcd's are numbers
	}
	return v
}

// now returns the size of the largest ReplicaSet of the image, and the version of
// the answer.
func (r *sizes) now() (size int32, version uint64) {
	r.Helper()
	var list appsv1.ReplicaSetList
	r.must(r.c.Client.List(r.Context(), &list, client.InNamespace(r.ns)))
	for _, rs := range list.Items {
		if strings.HasSuffix(rs.Spec.Template.Spec.Containers[0].Image, ":"+r.image) {
			size = max(size, *rs.Spec.Replicas)
		}
	}
	return size, versionOf(list.ResourceVersion)
}

// most returns the largest size since a version.
func (r *sizes) most(since uint64) (most int32) {
	r.mu.Lock()
	defer r.mu.Unlock()
	for _, s := range r.seen {
		if s.version > since {
			most = max(most, s.size)
		}
	}
	return most
}

// atMost fails the test where a ReplicaSet was larger, since the beginning.
func (r *sizes) atMost(n int32) {
	r.Helper()
	if size, _ := r.now(); max(size, r.most(0)) > n {
		r.Errorf("%d pods were to run %s, and %d may", max(size, r.most(0)), r.image, n)
	}
}

// bound is how many pods may run the update revision from a version on.
type bound struct {
	*sizes
	since uint64
	most  int32
}

// bounded says how many pods of n may run the update revision from now on, until the
// next push. That is the present number, and what the approvals and the plan on the
// branch allow. Both are read from the bare repository, where name is the plan's and
// release the commit that the release comes from.
func (r *sizes) bounded(name, release string, n int32) bound {
	r.Helper()
	var p v1alpha1.BatchRelease
	r.must(yaml.Unmarshal([]byte(r.inBare("show", "main:deploy/release.yaml")), &p))
	if p.Name != name {
		r.Fatalf("the plan on the branch is %s, and not %s", p.Name, name)
	}
	step := int32(0)
	const dir = "deploy/approvals/"
	for _, file := range strings.Fields(r.inBare("ls-tree", "--name-only", "main", dir)) {
		var a v1alpha1.BatchApproval
		r.must(yaml.Unmarshal([]byte(r.inBare("show", "main:"+file)), &a))
		if a.Metadata.Name == name && a.Spec.Commit == release {
			step = min(a.Spec.Step+1, int32(len(p.Spec.Strategy.Steps))-1)
		}
	}
	size, version := r.now()
	return bound{r, version, max(size, plan.Target(p.Spec.Strategy.Steps, int(step), n))}
}

// kept fails the test where more pods were to run the update revision.
func (b bound) kept(what string) {
	b.Helper()
	size, _ := b.now()
	if most := max(size, b.sizes.most(b.since)); most > b.most {
		b.Errorf("%s: %d pods were to run %s, and the branch allows %d", what, most, b.image, b.most)
	}
}

// comesTo waits until a release from a commit waits for an approval, or has ended,
// and returns its status. That is about the present plan and this many replicas.
func (s *env) comesTo(name, commit string, n int32) v1alpha1.BatchReleaseStatus {
	s.Helper()
	var br v1alpha1.BatchRelease
	clustertest.Wait(s, "the release from "+commit+" to wait or to end", func() error {
		if err := s.c.Client.Get(s.Context(), client.ObjectKey{Namespace: s.ns, Name: name}, &br); err != nil {
			return err
		}
		st := br.Status
		if st.UpdateCommit == commit { // before that, pods that come let the former release go on
			s.ungate(-1)
		}
		if st.UpdateCommit != commit || st.ObservedGeneration != br.Generation || st.Replicas != n || st.Reason != "WaitingForApproval" && st.Reason != "ReleaseCompleted" {
			return withSource(s, fmt.Errorf("%s at step %d, from %s, of %d: %s", st.Reason, st.CurrentStepIndex, st.UpdateCommit, st.Replicas, st.Message))
		}
		return nil
	})
	return br.Status
}

// waitsAtGate does so, and fails the test where the release has ended.
func (s *env) waitsAtGate(name, commit string, n int32) v1alpha1.BatchReleaseStatus {
	s.Helper()
	st := s.comesTo(name, commit, n)
	for range 2 {
		s.lookNow()
	}
	if now := s.release(name).Status; st.Phase == v1alpha1.PhaseCompleted || now.Phase == v1alpha1.PhaseCompleted {
		s.Fatalf("the release has ended without an approval: %s", now.Message)
	}
	return st
}

const schedulingGate = "example.org/wait"

// gated has pods that are not scheduled until the test lets them be.
func gated(image string) string {
	return sizedWeb(20, image, "      containers:\n", "      schedulingGates: [{name: "+schedulingGate+"}]\n      containers:\n")
}

// sizedWeb is Deployment web of n replicas.
func sizedWeb(n int, image string, edit ...string) string {
	return web(image, append([]string{"replicas: 2", fmt.Sprintf("replicas: %d", n)}, edit...)...)
}

// ungate lets pods be scheduled until n are, or all of them where n is negative.
// It returns how many are.
func (s *env) ungate(n int) int {
	s.Helper()
	var pods corev1.PodList
	s.must(s.c.Client.List(s.Context(), &pods, client.InNamespace(s.ns), client.MatchingLabels{"gated": "yes"}))
	free := 0
	for _, p := range pods.Items {
		if len(p.Spec.SchedulingGates) == 0 && p.DeletionTimestamp == nil {
			free++
		}
	}
	for i := range pods.Items {
		p := &pods.Items[i]
		if len(p.Spec.SchedulingGates) == 0 || p.DeletionTimestamp != nil || n >= 0 && free >= n {
			continue
		}
		patch := client.MergeFrom(p.DeepCopy())
		p.Spec.SchedulingGates = nil
		s.must(client.IgnoreNotFound(s.c.Client.Patch(s.Context(), p, patch)))
		free++
	}
	return free
}

// freed waits until n pods are scheduled.
func (s *env) freed(n int) {
	s.Helper()
	clustertest.Wait(s, fmt.Sprintf("%d pods to be scheduled", n), func() error {
		if free := s.ungate(n); free < n {
			return fmt.Errorf("%d are", free)
		}
		return nil
	})
}

// A release at its last step, that is not at its end, is reverted and brought again
// in one push. That is another release: its pods stay, and none is added before its
// own gates are approved.
func TestGateRevertedAndAgain(t *testing.T) {
	t.Parallel()
	s := newEnv(t, andRollout)
	v2Text := strings.ReplaceAll(gated("v2"), "labels: {app: web}\n    spec", "labels: {app: web, gated: 'yes'}\n    spec")
	s.applied2(s.push(map[string]string{"deploy/web.yaml": sizedWeb(20, "v1"), "deploy/release.yaml": planOf("web", "1", "30%", "100%")}))
	s.isAt("web", "ReleaseCompleted", 2)
	r := s.recordSizes("v2")
	v2 := s.push(map[string]string{"deploy/web.yaml": v2Text})
	b := r.bounded("web", v2, 20)
	s.freed(1)
	s.isAt("web", "WaitingForApproval", 0)
	b.kept("at step 0")
	revision := s.release("web").Status.UpdateRevision
	s.push(map[string]string{"deploy/approvals/web.yaml": approvalOf("web", revision, v2, "0")})
	b = r.bounded("web", v2, 20)
	s.freed(6)
	s.isAt("web", "WaitingForApproval", 1)
	b.kept("at step 1")
	s.push(map[string]string{"deploy/approvals/web.yaml": approvalOf("web", revision, v2, "1")})
	clustertest.Wait(t, "the last step to get stuck", func() error {
		if size, _ := r.now(); size != 16 {
			return fmt.Errorf("%d pods are to run v2", size)
		}
		return nil
	})

	s.repo.Revert(v2)
	again := s.repo.Commit(map[string]string{"deploy/web.yaml": v2Text}, "v2 again")
	s.repo.Push()
	b = r.bounded("web", again, 20)
	st := s.waitsAtGate("web", again, 20)
	b.kept("reverted and brought again")
	s.says("True InSync")
	s.push(map[string]string{"deploy/approvals/web.yaml": approvalOf("web", st.UpdateRevision, again, "1")})
	s.completes("web", again, 20)
}

// completes waits until the release from a commit has ended.
func (s *env) completes(name, commit string, n int32) {
	s.Helper()
	clustertest.Wait(s, "the end of the release from "+commit, func() error {
		if st := s.comesTo(name, commit, n); st.Phase != v1alpha1.PhaseCompleted {
			return fmt.Errorf("it waits at step %d: %s", st.CurrentStepIndex, st.Message)
		}
		return nil
	})
}

// One commit gives the plan another name and lowers the step that the release is at.
// No pod is added before an approval for the new name.
func TestGateOfARenamedPlan(t *testing.T) {
	t.Parallel()
	s := newEnv(t, andRollout)
	s.applied2(s.push(map[string]string{"deploy/web.yaml": sizedWeb(20, "v1"), "deploy/release.yaml": planOf("web", "1", "30%", "100%")}))
	s.isAt("web", "ReleaseCompleted", 2)
	r := s.recordSizes("v2")
	v2 := s.push(map[string]string{"deploy/web.yaml": sizedWeb(20, "v2")})
	s.isAt("web", "WaitingForApproval", 0)
	revision := s.release("web").Status.UpdateRevision
	s.push(map[string]string{"deploy/approvals/web.yaml": approvalOf("web", revision, v2, "0")})
	b := r.bounded("web", v2, 20)
	s.isAt("web", "WaitingForApproval", 1)
	b.kept("at step 1")

	s.push(map[string]string{"deploy/release.yaml": planOf("next", "1", "20%", "100%")})
	b = r.bounded("next", v2, 20)
	if b.most != 6 {
		t.Errorf("the branch allows %d", b.most)
	}
	st := s.waitsAtGate("next", v2, 20)
	b.kept("renamed and lowered")
	s.push(map[string]string{"deploy/approvals/web.yaml": "", "deploy/approvals/next.yaml": approvalOf("next", st.UpdateRevision, v2, "1")})
	s.completes("next", v2, 20)
}

// While no controller is there, one push makes the Deployment smaller than what
// runs, and edits the steps. Only the first gate was approved: the release does not
// end.
func TestGateOfASmallerDeployment(t *testing.T) {
	t.Parallel()
	s := newIdleEnv(t)
	stop := s.startController(andRollout)
	t.Cleanup(func() { stop() })
	s.applied2(s.push(map[string]string{"deploy/web.yaml": sizedWeb(10, "v1"), "deploy/release.yaml": planOf("web", "1", "50%", "100%")}))
	s.isAt("web", "ReleaseCompleted", 2)
	r := s.recordSizes("v2")
	v2 := s.push(map[string]string{"deploy/web.yaml": sizedWeb(10, "v2")})
	s.isAt("web", "WaitingForApproval", 0)
	revision := s.release("web").Status.UpdateRevision
	s.push(map[string]string{"deploy/approvals/web.yaml": approvalOf("web", revision, v2, "0")})
	s.isAt("web", "WaitingForApproval", 1)
	stop()
	// 50 % of 3 are 2 pods; the step before the last one is 1 pod now. Both changes
	// are in the cluster before rollout sees the first of them.
	edited := s.push(map[string]string{"deploy/web.yaml": sizedWeb(3, "v2"), "deploy/release.yaml": planOf("web", "1", "1", "100%")})
	stop = s.startController(gitsyncOnly)
	s.applied(edited)
	stop()
	b := r.bounded("web", v2, 3)
	stop = s.startController(andRollout)
	st := s.waitsAtGate("web", v2, 3)
	b.kept("made smaller")
	if size, _ := r.now(); size > 2 {
		t.Errorf("%d of 3 pods are to run v2, and the gate that was approved led to 2", size)
	}
	s.push(map[string]string{"deploy/approvals/web.yaml": "# for 3 replicas\n" + approvalOf("web", st.UpdateRevision, v2, "1")})
	s.completes("web", v2, 3)
}

// An approval that was given before the step that it leads to was edited opens no
// gate.
func TestGateOfAnEditedStep(t *testing.T) {
	t.Parallel()
	s := newIdleEnv(t)
	stop := s.startController(andRollout)
	t.Cleanup(func() { stop() })
	s.applied2(s.push(map[string]string{"deploy/web.yaml": sizedWeb(10, "v1"), "deploy/release.yaml": planOf("web", "1", "30%", "100%")}))
	s.isAt("web", "ReleaseCompleted", 2)
	r := s.recordSizes("v2")
	v2 := s.push(map[string]string{"deploy/web.yaml": sizedWeb(10, "v2")})
	s.isAt("web", "WaitingForApproval", 0)
	revision := s.release("web").Status.UpdateRevision
	stop()
	approval := approvalOf("web", revision, v2, "0")
	s.push(map[string]string{"deploy/approvals/web.yaml": approval})
	s.push(map[string]string{"deploy/release.yaml": planOf("web", "1", "80%", "100%")})
	stop = s.startController(andRollout)
	s.says("False ApprovalIgnored: deploy/approvals/web.yaml: BatchApproval " + s.ns + "/web: spec.step: the plan's steps have changed since: step 1 was 30%")
	st := s.waitsAtGate("web", v2, 10)
	r.atMost(1) // the approval that is on the branch is for another plan
	if st.CurrentStepIndex != 0 {
		t.Errorf("the release is at step %d", st.CurrentStepIndex)
	}
	s.push(map[string]string{"deploy/approvals/web.yaml": "# for 80 %\n" + approval})
	s.isAt("web", "WaitingForApproval", 1)
	r.atMost(8)
	s.says("True InSync")
}
