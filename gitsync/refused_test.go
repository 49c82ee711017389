package gitsync_test

import (
	"fmt"
	"strings"
	"testing"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/tranche-dev/tranche/plan/v1alpha1"
	"github.com/tranche-dev/tranche/rollout/clustertest"
)

// apiOf is Deployment api, with the plan of web under its name. A policy refuses it
// where it is forbidden.
func apiOf(image string, forbidden bool) map[string]string {
	m := strings.ReplaceAll(web(image), "web", "api")
	if forbidden {
		m = strings.Replace(m, "team: shop", "team: shop, forbidden: here", 1)
	}
	return map[string]string{"deploy/api.yaml": m, "deploy/api-plan.yaml": strings.ReplaceAll(webPlan, "web", "api")}
}

// newRefused has web at the first gate of v2, beside api, and a policy that refuses
// Deployments which are labelled forbidden.
func newRefused(t *testing.T, edit ...func(*v1alpha1.GitSource)) *env {
	t.Helper()
	s := newEnv(t, andRollout)
	s.policyOn("apps", "deployments", &appsv1.Deployment{Spec: sampleDeployment()})
	s.repo.CommitAndPush(apiOf("v1", false), "api: v1")
	s.repo.CommitAndPush(map[string]string{"deploy/settings.yaml": configMap("settings", "one")}, "settings")
	s.beginRelease(edit...)
	return s
}

func sampleDeployment() appsv1.DeploymentSpec {
	var spec appsv1.DeploymentSpec
	spec.Selector = &metav1.LabelSelector{MatchLabels: map[string]string{"app": "x"}}
	spec.Template.Labels = map[string]string{"app": "x"}
	spec.Template.Spec.Containers = []corev1.Container{{Name: "x", Image: "x"}}
	return spec
}

// runs waits until a Deployment's ReplicaSets have these sizes, by the tag of the image,
// and no other has pods.
func (s *env) runs(name string, want map[string]int32) {
	s.Helper()
	clustertest.Wait(s, fmt.Sprintf("%s to run %v", name, want), func() error {
		var list appsv1.ReplicaSetList
		s.must(s.c.Client.List(s.Context(), &list, client.InNamespace(s.ns), client.MatchingLabels{"app": name}))
		got := map[string]int32{}
		for i := range list.Items {
			rs := &list.Items[i]
			_, tag, _ := strings.Cut(rs.Spec.Template.Spec.Containers[0].Image, ":")
			if *rs.Spec.Replicas > 0 || rs.Status.Replicas > 0 {
				got[tag] += *rs.Spec.Replicas
			}
			if rs.Status.AvailableReplicas != *rs.Spec.Replicas {
				return withSource(s, fmt.Errorf("%d of %d of %s are available", rs.Status.AvailableReplicas, *rs.Spec.Replicas, tag))
			}
		}
		if fmt.Sprint(got) != fmt.Sprint(want) {
			return withSource(s, fmt.Errorf("it runs %v", got))
		}
		return nil
	})
}

// apiRefused waits until a commit is refused for api, and makes sure that nothing of it
// is in the cluster but what counts.
func (s *env) apiRefused(tip, applied string) (message string) {
	s.Helper()
	message = s.refused(tip, "DryRunFailed")
	if !strings.Contains(message, "deploy/api.yaml: Deployment "+s.ns+"/api: ") || !strings.Contains(message, "not in this shop") {
		s.Errorf("the message is %q", message)
	}
	if c := s.inSync(); c.Status != "False" || c.Reason != "DryRunFailed" {
		s.Errorf("%+v", c)
	}
	if gs := s.gs(); gs.Status.AppliedCommit != applied {
		s.Errorf("applied is %s, and was %s", gs.Status.AppliedCommit, applied)
	}
	if d := s.deployment("api"); d.Labels["forbidden"] != "" || !strings.HasSuffix(d.Spec.Template.Spec.Containers[0].Image, ":v1") {
		s.Errorf("api is %v %s", d.Labels, d.Spec.Template.Spec.Containers[0].Image)
	}
	if v := get(s, "settings", &corev1.ConfigMap{}).Data["value"]; v != "one" {
		s.Errorf("something of the commit is applied: settings are %q", v)
	}
	return message
}

// and adds files to others.
func and(files map[string]string, more ...string) map[string]string {
	for i := 0; i+1 < len(more); i += 2 {
		files[more[i]] = more[i+1]
	}
	return files
}

// An approval counts that comes with a commit of which another Deployment is refused, or
// after it, and nothing else of the commit does.
func TestApprovalBesideARefusedDeployment(t *testing.T) {
	t.Parallel()
	s := newRefused(t)
	applied, release := s.gs().Status.AppliedCommit, s.release("web")
	sizes := s.recordSizes("v2")
	tip := s.push(and(apiOf("v2", true), "deploy/settings.yaml", configMap("settings", "two")))
	s.apiRefused(tip, applied)
	s.runs("web", map[string]int32{"v1": 1, "v2": 1})
	sizes.atMost(1)
	tip = s.push(map[string]string{"deploy/approvals/web.yaml": approvalOf("web", release.Status.UpdateRevision, release.Spec.Commit, "0")})
	s.runs("web", map[string]int32{"v2": 2})
	if m := s.apiRefused(tip, applied); strings.Contains(m, "these wait") && strings.Contains(m, "BatchRelease "+s.ns+"/web") {
		t.Errorf("nothing of web waits: %s", m)
	}
	s.isAt("web", "ReleaseCompleted", 1)
	if h := s.release("web").Status.History; len(h) == 0 || len(h[0].Approvals) != 1 || h[0].Approvals[0].Commit != tip {
		t.Errorf("the history is %+v, and %s brought the approval", h, tip)
	}
	tip = s.push(apiOf("v2", false))
	s.isAt("api", "WaitingForApproval", 0)
	s.applied(tip)
	s.runs("web", map[string]int32{"v2": 2})
	if h := s.release("web").Status.History; len(h) != 1 {
		t.Errorf("web was released again: %+v", h)
	}
}

// No gate is passed by it. An approval waits that comes with another plan, one for
// another step or release does not count, and an image of the commit begins nothing. The
// condition names what waits.
func TestGatesBesideARefusedDeployment(t *testing.T) {
	t.Parallel()
	s := newRefused(t)
	applied, release := s.gs().Status.AppliedCommit, s.release("web")
	revision, commit := release.Status.UpdateRevision, release.Spec.Commit
	v2, v3 := s.recordSizes("v2"), s.recordSizes("v3")
	const file = "deploy/approvals/web.yaml"
	good := approvalOf("web", revision, commit, "0")
	for _, tt := range []struct {
		name  string
		files map[string]string
		waits bool
	}{
		{"of another release", map[string]string{file: approvalOf("web", revision, strings.Repeat("0", 40), "0")}, false},
		{"with steps added", map[string]string{file: good, "deploy/plan.yaml": strings.Replace(webPlan, "    - replicas: 100%", "    - replicas: 50%\n    - replicas: 100%", 1)}, true},
		{"with a slower Deployment", map[string]string{file: good, "deploy/web.yaml": web("v2", "  replicas: 2\n", "  replicas: 2\n  minReadySeconds: 5\n")}, true},
		{"with another image", map[string]string{file: good, "deploy/web.yaml": web("v3")}, true},
		{"in a plan that is paused", map[string]string{file: good, "deploy/plan.yaml": strings.Replace(webPlan, "spec:\n", "spec:\n  paused: true\n", 1)}, false},
		{"in a plan that is paused no longer, with another image", map[string]string{file: good, "deploy/web.yaml": web("v3")}, true},
	} {
		s.repo.Git("checkout", "-q", "-B", "main", applied)
		s.repo.Commit(and(apiOf("v2", true), "deploy/settings.yaml", configMap("settings", "two")))
		tip := s.repo.Commit(tt.files)
		s.repo.Push("--force")
		s.lookNow()
		m := s.apiRefused(tip, applied)
		if waits := strings.Contains(m, "BatchRelease "+s.ns+"/web"); waits != tt.waits {
			t.Errorf("%s: it says %q", tt.name, m)
		}
		for range 2 {
			s.lookNow()
		}
		if br := s.release("web"); br.Spec.Commit != commit || len(br.Spec.Strategy.Steps) != 2 {
			t.Errorf("%s: the release is %+v", tt.name, br.Spec)
		}
	}
	v2.atMost(1)
	v3.atMost(0)
	if !s.release("web").Spec.Paused {
		t.Error("a pause does not count")
	}
	s.runs("web", map[string]int32{"v1": 1, "v2": 1})
}

// A release that a refused commit has paused goes on by one that resumes it, and goes back
// by one that also reverts it.
func TestResumedBesideARefusedDeployment(t *testing.T) {
	t.Parallel()
	for name, image := range map[string]string{"goes on": "v2", "goes back": "v1"} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s := newRefused(t)
			applied, release := s.gs().Status.AppliedCommit, s.release("web")
			tip := s.push(and(apiOf("v2", true), "deploy/settings.yaml", configMap("settings", "two"),
				"deploy/plan.yaml", strings.Replace(webPlan, "spec:\n", "spec:\n  paused: true\n", 1),
				"deploy/approvals/web.yaml", approvalOf("web", release.Status.UpdateRevision, release.Spec.Commit, "0")))
			s.apiRefused(tip, applied)
			s.isAt("web", "ReleasePaused", 0)
			s.runs("web", map[string]int32{"v1": 1, "v2": 1})
			tip = s.push(map[string]string{"deploy/plan.yaml": webPlan, "deploy/web.yaml": web(image)})
			s.runs("web", map[string]int32{image: 2})
			s.apiRefused(tip, applied)
		})
	}
}

// A revert counts, in the middle of a release and after it, and the branch is left alone.
func TestRevertBesideARefusedDeployment(t *testing.T) {
	t.Parallel()
	for name, completed := range map[string]bool{"under way": false, "completed": true} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s := newRefused(t, writesBack)
			release := s.release("web")
			if completed {
				s.push(map[string]string{"deploy/approvals/web.yaml": approvalOf("web", release.Status.UpdateRevision, release.Spec.Commit, "0")})
				s.isAt("web", "ReleaseCompleted", 1)
				s.applied(s.inBare("rev-parse", "main"))
			}
			applied := s.gs().Status.AppliedCommit
			tip := s.push(and(apiOf("v2", true), "deploy/settings.yaml", configMap("settings", "two")))
			s.apiRefused(tip, applied)
			tip = s.push(map[string]string{"deploy/web.yaml": web("v1")})
			s.runs("web", map[string]int32{"v1": 2})
			s.apiRefused(tip, applied)
			s.isAt("web", "ReleaseCompleted", s.release("web").Status.CurrentStepIndex)
			for range 3 {
				s.lookNow()
			}
			s.runs("web", map[string]int32{"v1": 2})
			if now := s.inBare("rev-parse", "main"); now != tip {
				t.Errorf("the branch is at %s, and was at %s", now, tip)
			}
			if h := s.release("web").Status.History; len(h) == 0 || h[0].Outcome == v1alpha1.OutcomeSuperseded {
				t.Errorf("the history is %+v", h)
			}
			tip = s.push(apiOf("v1", false))
			s.applied(tip)
			s.runs("web", map[string]int32{"v1": 2})
			if d := s.deployment("web"); d.Spec.Paused || !strings.HasSuffix(d.Spec.Template.Spec.Containers[0].Image, ":v1") {
				t.Errorf("web is %+v", d.Spec)
			}
		})
	}
}

// The cluster decides a rollback while the tip is refused. The controller commits it on
// top of the tip, once, with all else as the tip has it. An approval in the cluster is
// not.
func TestWriteBackBesideARefusedDeployment(t *testing.T) {
	t.Parallel()
	s := newRefused(t, writesBack)
	applied := s.gs().Status.AppliedCommit
	tip := s.push(and(apiOf("v2", true), "deploy/settings.yaml", configMap("settings", "two")))
	s.apiRefused(tip, applied)
	s.rollBack("web")
	s.runs("web", map[string]int32{"v1": 2})
	clustertest.Wait(t, "the revert", func() error {
		if got := s.subjects("main"); got[0] != `Revert "web: v2"` {
			return withSource(s, fmt.Errorf("%q", got))
		}
		return nil
	})
	if changed := s.inBare("diff", "--name-only", tip, "main"); strings.TrimSpace(changed) != "deploy/web.yaml" {
		t.Errorf("it changes %s", changed)
	}
	reverted := s.inBare("rev-parse", "main")
	if parent := s.inBare("rev-parse", "main^"); parent != tip {
		t.Errorf("it is on top of %s, and the tip was %s", parent, tip)
	}
	s.apiRefused(reverted, applied)
	for range 3 {
		s.lookNow()
	}
	if now := s.inBare("rev-parse", "main"); now != reverted {
		t.Errorf("more was committed: %q", s.subjects("main"))
	}
	s.runs("web", map[string]int32{"v1": 2})
	s.repo.Git("pull", "-q", "origin", "main")
	s.applied(s.push(apiOf("v1", false)))
	s.runs("web", map[string]int32{"v1": 2})
	if h := s.release("web").Status.History; len(h) != 1 || h[0].Outcome != v1alpha1.OutcomeRolledBack {
		t.Errorf("the history is %+v", h)
	}
}

// A refused commit brings the revision again which failed, after a commit that took it
// back. So it tries it again on purpose, and is not reverted.
func TestWriteBackBesideARefusedDeployment_Retried(t *testing.T) {
	t.Parallel()
	s := newRefused(t, writesBack)
	applied := s.gs().Status.AppliedCommit
	s.suspend("shop")
	s.rollBack("web")
	s.runs("web", map[string]int32{"v1": 2})
	s.repo.Commit(map[string]string{"deploy/web.yaml": web("v1")}, "web: v1 by hand")
	tip := s.push(and(apiOf("v2", true), "deploy/web.yaml", web("v2")))
	s.resume("shop")
	s.apiRefused(tip, applied)
	for range 2 {
		s.lookNow()
	}
	if now := s.inBare("rev-parse", "main"); now != tip {
		t.Errorf("the branch has %q", s.subjects("main"))
	}
	s.runs("web", map[string]int32{"v1": 2})
}

// An object that is deleted or changed by hand comes back while the tip is refused,
// whether the tip renders or not. It comes back as the last commit has it that was
// applied.
func TestRestoredBesideARefusedCommit(t *testing.T) {
	t.Parallel()
	for name, bad := range map[string]func() map[string]string{
		"refused":         func() map[string]string { return apiOf("v2", true) },
		"does not render": func() map[string]string { return map[string]string{"deploy/bad.yaml": "a: [\n"} },
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s := newRefused(t)
			applied := s.gs().Status.AppliedCommit
			tip := s.push(and(bad(), "deploy/settings.yaml", configMap("settings", "two")))
			clustertest.Wait(t, "the refusal", func() error {
				if gs := s.gs(); gs.Status.ObservedCommit != tip || gs.Status.AppliedCommit != applied || s.inSync().Status != "False" {
					return fmt.Errorf("%s", said(gs))
				}
				return nil
			})
			sizes := s.recordSizes("v2")
			seen, before := s.recordDeployments(), s.deployment("web").UID
			s.kubectl("patch", "configmap/settings", "--type=merge", "-p", `{"data":{"value":"by hand"}}`)
			s.kubectl("delete", "deployment/web")
			s.kubectl("delete", "deployment/api")
			if image := s.comesBack(before, seen); image != "v1" {
				t.Errorf("it came back at %s", image)
			}
			s.runs("web", map[string]int32{"v1": 1, "v2": 1})
			s.isHeldAtGate("v2")
			sizes.atMost(1)
			s.runs("api", map[string]int32{"v1": 2})
			clustertest.Wait(t, "the ConfigMap as it was", func() error {
				s.lookNow()
				if v := get(s, "settings", &corev1.ConfigMap{}).Data["value"]; v != "one" {
					return withSource(s, fmt.Errorf("it is %q", v))
				}
				return nil
			})
			if now := s.gs().Status; now.AppliedCommit != applied {
				t.Errorf("applied is %s", now.AppliedCommit)
			}
		})
	}
}

// A controller that starts while the tip does not render brings again what was deleted,
// and says why it applies nothing else.
func TestRestartBesideARefusedCommit(t *testing.T) {
	t.Parallel()
	s := newIdleEnv(t)
	stop := s.startController(gitsyncOnly)
	t.Cleanup(func() { stop() })
	applied := s.push(map[string]string{"deploy/a.yaml": configMap("a", "one"), "deploy/b.yaml": configMap("b", "one")})
	s.applied2(applied)
	tip := s.push(map[string]string{"deploy/bad.yaml": "a: [\n"})
	was := s.refused(tip, "InvalidManifest")
	stop()
	s.kubectl("delete", "configmap/b")
	stop = s.startController(gitsyncOnly)
	s.holds("b", "one")
	s.lookNow()
	if now := s.refused(tip, "InvalidManifest"); now != was {
		t.Errorf("the message is %q, and was %q", now, was)
	}
	if now := s.gs().Status.AppliedCommit; now != applied {
		t.Errorf("applied is %s", now)
	}
}
