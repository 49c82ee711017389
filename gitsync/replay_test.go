package gitsync_test

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	appsv1 "k8s.io/api/apps/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/tranche-dev/tranche/plan/v1alpha1"
	"github.com/tranche-dev/tranche/rollout/clustertest"
)

// replay is a release of v2 that was approved and has ended, and was reverted.
type replay struct {
	*env
	*sizes
	stop func()
	// v1, v2, approval and reverted are the commits, and revision is that of v2.
	v1, v2, approval, reverted, revision string
}

func newReplay(t *testing.T) *replay {
	t.Helper()
	r := &replay{env: newIdleEnv(t)}
	r.start()
	t.Cleanup(func() { r.stop() })
	r.v1 = r.push(map[string]string{"deploy/web.yaml": sizedWeb(3, "v1"), "deploy/release.yaml": planOf("web", "1", "50%", "100%")})
	r.applied2(r.v1)
	r.isAt("web", "ReleaseCompleted", 2)
	r.sizes = r.recordSizes("v2")
	r.v2 = r.push(map[string]string{"deploy/web.yaml": sizedWeb(3, "v2")})
	r.isAt("web", "WaitingForApproval", 0)
	r.revision = r.release("web").Status.UpdateRevision
	r.approval = r.push(map[string]string{"deploy/approvals/web.yaml": approvalOf("web", r.revision, r.v2, "1")})
	r.isAt("web", "ReleaseCompleted", 2)
	r.revert(r.v2)
	r.reverted = r.repo.Head()
	return r
}

func (r *replay) start() { r.stop = r.startController(andRollout) }

// revert takes a commit back, and waits until all pods run v1 again.
func (r *replay) revert(commit string) {
	r.Helper()
	r.repo.Revert(commit)
	r.repo.Push()
	r.runs("v1")
	r.applied(r.repo.Head())
}

// runs waits until all pods run an image, and the Deployment is native.
func (r *replay) runs(image string) {
	r.Helper()
	clustertest.Wait(r.env, "all pods to run "+image, func() error {
		d := r.deployment("web")
		if now := d.Spec.Template.Spec.Containers[0].Image; !strings.HasSuffix(now, ":"+image) || d.Spec.Paused || d.Status.UpdatedReplicas != 3 || d.Status.Replicas != 3 || d.Status.AvailableReplicas != 3 {
			return withSource(r, fmt.Errorf("%s, paused %t, %d of %d updated", now, d.Spec.Paused, d.Status.UpdatedReplicas, d.Status.Replicas))
		}
		return nil
	})
}

// merge pushes a merge with the tree of a commit, the parents in this order.
func (r *replay) merge(of string, parents ...string) string {
	r.Helper()
	args := []string{"commit-tree", "-m", "Merge", of + "^{tree}"}
	for _, p := range parents {
		args = append(args, "-p", p)
	}
	r.repo.Git("reset", "-q", "--hard", r.repo.Git(args...))
	r.repo.Push()
	return r.repo.Head()
}

// force pushes a commit, whatever is on the branch.
func (r *replay) force(commit string) string {
	r.Helper()
	r.repo.Git("reset", "-q", "--hard", commit)
	r.repo.Push("--force")
	return commit
}

// brings brings an image by a new commit.
func (r *replay) brings(image string) string {
	r.Helper()
	return r.push(map[string]string{"deploy/web.yaml": sizedWeb(3, image)})
}

// releases brings an image, and approves it.
func (r *replay) releases(image string) {
	r.Helper()
	c := r.brings(image)
	r.isAt("web", "WaitingForApproval", 0)
	r.push(map[string]string{"deploy/approvals/web.yaml": approvalOf("web", r.release("web").Status.UpdateRevision, c, "1")})
	r.runs(image)
	r.isAt("web", "ReleaseCompleted", 2)
}

// forward pushes a commit of which what is on the branch is in the history. It
// returns the version of the API server before.
func (r *replay) forward(to string) uint64 {
	r.Helper()
	version := r.version()
	r.repo.Git("reset", "-q", "--hard", to)
	r.repo.Push()
	return version
}

// forthAndBack pushes by force what was before the change, waits until that is
// released, and pushes the change with its approval again.
func (r *replay) forthAndBack() uint64 {
	r.Helper()
	r.applied(r.force(r.v1))
	r.runs("v1")
	r.isAt("web", "ReleaseCompleted", 2)
	return r.forward(r.approval)
}

// forgets deletes the BatchRelease, and waits until the records of its Deployment are gone. A
// BatchRelease that comes back before has them.
func (r *replay) forgets() {
	r.Helper()
	r.kubectl("delete", "batchrelease/web")
	clustertest.Wait(r.env, "the records to go", func() error {
		var records appsv1.ControllerRevisionList
		if err := r.c.Client.List(r.Context(), &records, client.InNamespace(r.ns)); err != nil {
			return err
		}
		if n := len(records.Items); n > 0 {
			return fmt.Errorf("%d are there", n)
		}
		return nil
	})
}

// removePlan pushes a commit without the plan, and waits for the end of its object.
func (r *replay) removePlan() string {
	r.Helper()
	c := r.push(map[string]string{"deploy/release.yaml": ""})
	r.applied(c)
	r.isGone("web", &v1alpha1.BatchRelease{})
	return c
}

// isStopped waits until v2 is at its first gate again, and fails the test where any
// pod more was to run it since a version. A new commit and a new approval then
// release it.
func (r *replay) isStopped(since uint64) {
	r.Helper()
	var st v1alpha1.BatchReleaseStatus
	clustertest.Wait(r.env, "v2 to wait at its first gate", func() error {
		var br v1alpha1.BatchRelease
		if err := r.c.Client.Get(r.Context(), client.ObjectKey{Namespace: r.ns, Name: "web"}, &br); err != nil {
			return err
		}
		if st = br.Status; st.UpdateRevision != r.revision || st.Reason != "WaitingForApproval" && st.Reason != "ReleaseCompleted" || st.ObservedGeneration != br.Generation {
			return withSource(r, fmt.Errorf("%s of %s: %s", st.Reason, st.UpdateRevision, st.Message))
		}
		return nil
	})
	for range 2 {
		r.lookNow()
	}
	if size, _ := r.now(); max(size, r.most(since)) > 1 {
		r.Errorf("%d pods were to run v2, which was not approved again: %s\n%s", max(size, r.most(since)), st.Message, said(r.gs()))
	}
	r.brings("v1")
	r.runs("v1")
	again := r.brings("v2")
	r.push(map[string]string{"deploy/approvals/web.yaml": approvalOf("web", r.revision, again, "1")})
	r.completes("web", again, 3)
}

// version is the present one of the API server.
func (r *replay) version() uint64 {
	r.Helper()
	_, version := r.now()
	return version
}

// An approval that was used opens no gate again, however the branch is merged or
// pushed, and whatever became of the plan since. Each attack returns the version of the API
// server before its last push.
func TestReplayedApproval(t *testing.T) {
	t.Parallel()
	for name, attack := range map[string]func(r *replay) uint64{
		"a merge whose first parents lead behind what was applied": func(r *replay) uint64 {
			version := r.version()
			r.merge(r.approval, r.approval, r.reverted)
			return version
		},
		"a push by force": func(r *replay) uint64 {
			version := r.version()
			r.force(r.approval)
			return version
		},
		"a push by force while no controller is there, and its mirror is lost": func(r *replay) uint64 {
			r.stop()
			version := r.version()
			r.force(r.approval)
			r.start()
			return version
		},
		"a push by force to what was before the change, and forward again": func(r *replay) uint64 {
			r.applied(r.force(r.v1))
			return r.forward(r.approval)
		},
		"the BatchRelease is deleted in the cluster and comes back, and a push by force": func(r *replay) uint64 {
			r.kubectl("delete", "batchrelease/web")
			r.lookNow()
			r.isAt("web", "ReleaseCompleted", 2)
			version := r.version()
			r.force(r.approval)
			return version
		},
		"the BatchRelease is lost, and a push by force to what was before the change, and forward again": func(r *replay) uint64 {
			r.kubectl("delete", "batchrelease/web")
			r.lookNow()
			r.isAt("web", "ReleaseCompleted", 2)
			return r.forthAndBack()
		},
		"the BatchRelease is lost while no controller is there, and so on": func(r *replay) uint64 {
			r.stop()
			r.kubectl("delete", "batchrelease/web")
			r.start()
			return r.forthAndBack()
		},
		"the BatchRelease is restored without its status, and so on": func(r *replay) uint64 {
			r.stop()
			br := r.release("web")
			r.kubectl("delete", "batchrelease/web")
			br.ObjectMeta = metav1.ObjectMeta{Namespace: br.Namespace, Name: br.Name, Labels: br.Labels, Annotations: br.Annotations}
			br.Status = v1alpha1.BatchReleaseStatus{}
			r.must(r.c.Client.Create(r.Context(), br))
			r.start()
			return r.forthAndBack()
		},
		"the release ends while the branch is refused, the BatchRelease is lost, and so on": func(r *replay) uint64 {
			r.brings("v2")
			r.isAt("web", "WaitingForApproval", 0)
			again := r.release("web").Spec.Commit
			r.approval = r.push(map[string]string{"deploy/approvals/web.yaml": approvalOf("web", r.revision, again, "1")})
			clustertest.Wait(r.env, "the approval to be handed over", func() error {
				if a := r.release("web").Spec.Approval; a == nil || a.Commit != again {
					return fmt.Errorf("%+v", a)
				}
				return nil
			})
			bad := r.push(map[string]string{"deploy/a.yaml": "a: [\n"})
			r.runs("v2")
			r.isAt("web", "ReleaseCompleted", 2)
			r.lookNow()
			r.refused(bad, "InvalidManifest")
			if !slices.ContainsFunc(r.gs().Status.EndedReleases, func(e v1alpha1.EndedRelease) bool {
				return e.Deployment == r.ns+"/web" && e.Commit == again
			}) {
				r.Errorf("%+v are known, without %s; the BatchRelease has %+v", r.gs().Status.EndedReleases, again, r.release("web").Status.EndedReleases)
			}
			r.forgets()
			r.repo.Commit(map[string]string{"deploy/a.yaml": ""})
			r.releases("v1") // v2 was stable: a release, and no way back
			r.releases("v3")
			r.brings("v1")
			r.runs("v1") // now v2 is not what was stable last
			return r.forthAndBack()
		},
		"the BatchRelease is lost, the source has the names of newer releases, and so on": func(r *replay) uint64 {
			r.stop()
			r.kubectl("delete", "batchrelease/web")
			editStatus(r.env, func(status *v1alpha1.GitSourceStatus) {
				status.EndedReleases = nil
				for i := range 256 {
					status.EndedReleases = append(status.EndedReleases, v1alpha1.EndedRelease{Deployment: r.ns + "/web", Commit: fmt.Sprintf("%040x", i)})
				}
			})
			r.start()
			return r.forthAndBack()
		},
		"the plan leaves and comes back, and a push by force": func(r *replay) uint64 {
			r.removePlan()
			r.repo.Revert("HEAD")
			r.repo.Push()
			r.applied(r.repo.Head())
			r.isAt("web", "ReleaseCompleted", 2)
			version := r.version()
			r.force(r.approval)
			return version
		},
		"the plan leaves, and a push by force brings it back before the change, and forward again": func(r *replay) uint64 {
			r.removePlan()
			r.applied(r.force(r.v1))
			r.isAt("web", "ReleaseCompleted", 2)
			return r.forward(r.approval)
		},
		"the plan leaves in the middle of a release, comes back before the change, and forward again": func(r *replay) uint64 {
			again := r.brings("v2")
			r.isAt("web", "WaitingForApproval", 0)
			used := r.push(map[string]string{"deploy/approvals/web.yaml": approvalOf("web", r.revision, again, "0")})
			r.isAt("web", "WaitingForApproval", 1)
			r.removePlan()
			r.runs("v2")
			r.brings("v1")
			r.runs("v1")
			r.applied(r.force(r.reverted))
			r.isAt("web", "ReleaseCompleted", 2)
			return r.forward(used)
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			r := newReplay(t)
			r.isStopped(attack(r))
		})
	}
}

// An approval counts that was pushed with its image, whatever kept the controller from
// seeing the two one after the other. So does one that is given ahead.
func TestApprovalPushedWithItsImage(t *testing.T) {
	t.Parallel()
	r := newReplay(t)
	suspend := func(v bool) {
		gs := r.gs()
		patch := client.MergeFrom(gs.DeepCopy())
		gs.Spec.Suspend = v
		r.must(r.c.Client.Patch(r.Context(), gs, patch))
	}
	var before []string
	for _, c := range []struct {
		name        string
		begin, last func()
	}{
		{"no controller is there", func() { r.stop() }, func() { r.start() }},
		{"the source is suspended", func() { suspend(true) }, func() { suspend(false) }},
		{"another object is refused", func() {
			bad := r.push(map[string]string{"deploy/port.yaml": "apiVersion: v1\nkind: Service\nmetadata: {name: web}\nspec: {ports: [{port: 80000}]}\n"})
			r.refused(bad, "DryRunFailed")
		}, func() { r.push(map[string]string{"deploy/port.yaml": ""}) }},
		{"nothing keeps it", func() {}, func() {}},
	} {
		c.begin()
		v2 := r.repo.Commit(map[string]string{"deploy/web.yaml": sizedWeb(3, "v2")}, c.name)
		r.push(map[string]string{"deploy/approvals/web.yaml": approvalOf("web", r.revision, v2, "1")})
		c.last()
		r.completes("web", v2, 3)
		r.runs("v2")
		r.brings("v1")
		r.runs("v1")
		before = append(before, v2)
	}
	ended := map[string]bool{}
	for _, e := range r.release("web").Status.EndedReleases {
		ended[e.Commit] = true
	}
	for _, v2 := range append(before, r.v2) {
		if !ended[v2] {
			t.Errorf("the release from %s is not known to have ended", v2)
		}
	}
}

// A push by force brings back a commit whose release has ended. No approval in Git opens its
// gates, and both objects say so.
func TestApprovalOfWhatHasEndedBefore(t *testing.T) {
	t.Parallel()
	r := newReplay(t)
	r.applied(r.force(r.v2))
	const why = "this release has ended before, so no approval in Git opens step 0"
	clustertest.Wait(t, "the release to say why", func() error {
		if st := r.release("web").Status; st.Reason != "WaitingForApproval" || !strings.Contains(st.Message, why) {
			return fmt.Errorf("%s: %s", st.Reason, st.Message)
		}
		return nil
	})
	version := r.version()
	r.push(map[string]string{"deploy/approvals/web.yaml": approvalOf("web", r.revision, r.v2, "1")})
	r.says("False ApprovalIgnored")
	if m := r.inSync().Message; !strings.Contains(m, "has ended before; bring the change by a new commit") {
		t.Errorf("InSync does not say why: %s", m)
	}
	r.isStopped(version)
}
