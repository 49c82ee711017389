package gitsync_test

import (
	"fmt"
	"strings"
	"testing"

	appsv1 "k8s.io/api/apps/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/tranche-dev/tranche/plan/v1alpha1"
	"github.com/tranche-dev/tranche/rollout/clustertest"
)

// comesBack waits until Deployment web is another object than before, and returns
// its image as it was created.
func (s *env) comesBack(before types.UID, seen *deployments) string {
	s.Helper()
	var d appsv1.Deployment
	clustertest.Wait(s, "the Deployment to come back", func() error {
		if err := s.c.Client.Get(s.Context(), client.ObjectKey{Namespace: s.ns, Name: "web"}, &d); err != nil {
			return withSource(s, err)
		}
		if d.UID == before {
			return fmt.Errorf("it is still there")
		}
		return nil
	})
	clustertest.Wait(s, "the watch to see it", func() error {
		seen.mu.Lock()
		defer seen.mu.Unlock()
		for i := range seen.seen {
			if seen.seen[i].UID == d.UID {
				d = seen.seen[i]
				return nil
			}
		}
		return fmt.Errorf("not seen")
	})
	if d.Spec.Paused {
		s.Error("it was created paused")
	}
	return strings.TrimPrefix(d.Spec.Template.Spec.Containers[0].Image, "registry.example.org/web:")
}

// A Deployment that is deleted in the middle of a release comes back at its stable
// revision, and the release waits at its gate.
func TestDeploymentDeletedInRelease(t *testing.T) {
	t.Parallel()
	s := newRelease(t)
	sizes := s.recordSizes("v2")
	seen, before := s.recordDeployments(), s.deployment("web").UID
	s.kubectl("delete", "deployment/web")
	if image := s.comesBack(before, seen); image != "v1" {
		t.Errorf("it came back at %s", image)
	}
	s.told("DriftUndone", "Deployment "+s.ns+"/web was deleted, and is there again at its stable revision")
	s.isHeldAtGate("v2")
	sizes.atMost(1)
	release := s.release("web")
	s.push(map[string]string{"deploy/approvals/web.yaml": approvalOf("web", release.Status.UpdateRevision, release.Spec.Commit, "0")})
	s.isAt("web", "ReleaseCompleted", 1)
	if image := s.deployment("web").Spec.Template.Spec.Containers[0].Image; !strings.HasSuffix(image, ":v2") {
		t.Errorf("what runs is %s", image)
	}
}

// isHeldAtGate waits until Deployment web is held at an image, with a release that
// waits at its first gate.
func (s *env) isHeldAtGate(image string) {
	s.Helper()
	clustertest.Wait(s, "the release of "+image+" to wait at its first gate", func() error {
		d, br := s.deployment("web"), s.release("web")
		if !strings.HasSuffix(d.Spec.Template.Spec.Containers[0].Image, ":"+image) || !d.Spec.Paused || br.Status.Reason != "WaitingForApproval" || br.Status.CurrentStepIndex != 0 || br.Status.ObservedGeneration != br.Generation {
			return fmt.Errorf("%s, paused %t; step %d: %s", d.Spec.Template.Spec.Containers[0].Image, d.Spec.Paused, br.Status.CurrentStepIndex, br.Status.Message)
		}
		return nil
	})
}

// It does so, too, where it was deleted and Git has moved on while no controller
// was there.
func TestDeploymentDeletedWhileDown(t *testing.T) {
	t.Parallel()
	s := newIdleEnv(t)
	stop := s.startController(andRollout)
	t.Cleanup(func() { stop() })
	s.beginRelease()
	stop()
	seen, before := s.recordDeployments(), s.deployment("web").UID
	s.kubectl("delete", "deployment/web")
	sizes := s.recordSizes("v3")
	s.push(map[string]string{"deploy/web.yaml": web("v3")})
	stop = s.startController(andRollout)
	if image := s.comesBack(before, seen); image != "v1" {
		t.Errorf("it came back at %s", image)
	}
	s.isHeldAtGate("v3")
	sizes.atMost(1)
}

// A plan that was applied by hand is one, too: the Deployment comes back at its
// stable revision, whatever the branch says of the template.
func TestDeploymentOfAPlanByHandDeleted(t *testing.T) {
	t.Parallel()
	s := newEnv(t, andRollout)
	template := func(image string) string {
		return `{"metadata":{"labels":{"app":"web"}},"spec":{"containers":[{"name":"web","image":"registry.example.org/web:` + image + `"}]}}`
	}
	s.applied2(s.push(map[string]string{"deploy/web.yaml": web("v1", "\n        env:\n        - {name: COLOUR, value: blue}", "")}))
	byHand := webPlan + "  template: " + template("v1") + "\n"
	if out, err := s.c.KubectlWith(t, byHand, "apply", "-n", s.ns, "-f", "-"); err != nil {
		t.Fatal(out)
	}
	s.isAt("web", "ReleaseCompleted", 1)
	s.kubectl("patch", "batchrelease/web", "--type=merge", "-p", `{"spec":{"template":`+template("v2")+`}}`)
	s.isAt("web", "WaitingForApproval", 0)
	s.applied(s.push(map[string]string{"deploy/web.yaml": web("v3")}))
	sizes := s.recordSizes("v2")
	seen, before := s.recordDeployments(), s.deployment("web").UID
	s.kubectl("delete", "deployment/web")
	s.lookNow()
	if image := s.comesBack(before, seen); image != "v1" {
		t.Errorf("it came back at %s", image)
	}
	s.isHeldAtGate("v2")
	sizes.atMost(1)
	s.lookNow()
	if got := owners(s.deployment("web"), "template"); strings.Contains(got, "gitsync") {
		t.Errorf("the template is %s's", got)
	}
	s.kubectl("delete", "batchrelease/web")
}

// A stable revision whose pods the selector does not match cannot come back. Nothing
// is created, the condition says why, and it goes on when that is repaired.
func TestDeploymentDeletedForItsSelector(t *testing.T) {
	t.Parallel()
	other := []string{"app: web}", "app: web, tier: front}"}
	for name, mend := range map[string]struct {
		files map[string]string
		check func(*env)
	}{
		"selector put back": {map[string]string{"deploy/web.yaml": web("v2")}, func(s *env) { s.isHeldAtGate("v2") }},
		"plan removed": {map[string]string{"deploy/plan.yaml": ""}, func(s *env) {
			d := s.deployment("web")
			if image := d.Spec.Template.Spec.Containers[0].Image; !strings.HasSuffix(image, ":v2") || d.Spec.Paused || d.Spec.Selector.MatchLabels["tier"] != "front" {
				s.Errorf("it is %+v", d.Spec)
			}
		}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s := newRelease(t)
			changed := s.push(map[string]string{"deploy/web.yaml": web("v2", other...)})
			s.refused(changed, "DryRunFailed")
			s.kubectl("delete", "deployment/web")
			message := s.refused(changed, "StableRevisionUnusable")
			for _, want := range []string{"deploy/web.yaml: Deployment " + s.ns + "/web: spec.selector: ", "app=web", "put the old selector back", "remove BatchRelease " + s.ns + "/web"} {
				if !strings.Contains(message, want) {
					t.Errorf("the message is without %q", want)
				}
			}
			s.stalled("StableRevisionUnusable")
			s.lookNow()
			s.absent("web", &appsv1.Deployment{})
			s.applied(s.push(mend.files))
			mend.check(s)
		})
	}
}

// I6 for a release under way: a controller that dies after each of its writes hands
// it over, too, and brings the Deployment back.
func TestKilledInRelease(t *testing.T) {
	t.Parallel()
	s := newIdleEnv(t)
	stop := s.startController(andRollout)
	s.applied2(s.push(map[string]string{"deploy/web.yaml": four("v1"), "deploy/release.yaml": planOf("web", "1", "50%", "100%")}))
	s.isAt("web", "ReleaseCompleted", 2)
	s.push(map[string]string{"deploy/web.yaml": four("v2")})
	s.isAt("web", "WaitingForApproval", 0)
	release := s.release("web")
	s.push(map[string]string{"deploy/approvals/web.yaml": approvalOf("web", release.Status.UpdateRevision, release.Spec.Commit, "0")})
	s.isAt("web", "WaitingForApproval", 1)
	stop()

	sizes, held := s.recordSizes("v2"), s.recordDeployments()
	s.startMortals(andRollout)
	s.push(map[string]string{"deploy/release.yaml": planOf("next", "1", "50%", "100%")})
	s.isGone("web", &v1alpha1.BatchRelease{})
	s.isAt("next", "WaitingForApproval", 1)
	if now := s.release("next"); now.Spec.Commit != release.Spec.Commit || !now.Status.StartTime.Equal(release.Status.StartTime) {
		t.Errorf("the release is from %s since %s, and was from %s since %s", now.Spec.Commit, now.Status.StartTime, release.Spec.Commit, release.Status.StartTime)
	}
	s.kubectl("label", "deployment/web", "example.org/end=true")
	before := s.deployment("web")
	for _, d := range held.all(t, before) {
		if d.Labels[v1alpha1.LabelHeld] == "" || !d.Spec.Paused {
			t.Errorf("at version %s it was not held: %+v", d.ResourceVersion, d.Spec)
		}
	}

	s.kubectl("delete", "deployment/web")
	if image := s.comesBack(before.UID, held); image != "v1" {
		t.Errorf("it came back at %s", image)
	}
	clustertest.Wait(t, "the release to wait again", func() error {
		d, br := s.deployment("web"), s.release("next")
		if st := br.Status; !d.Spec.Paused || st.Reason != "WaitingForApproval" || st.ObservedGeneration != br.Generation || st.UpdateRevision != release.Status.UpdateRevision {
			return fmt.Errorf("paused %t, %s at step %d: %s", d.Spec.Paused, st.Reason, st.CurrentStepIndex, st.Message)
		}
		return nil
	})
	sizes.atMost(2)
	s.endSource() // while there is a controller
}
