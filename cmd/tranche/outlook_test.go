package main

import (
	"fmt"
	"strings"
	"testing"

	authorizationv1 "k8s.io/api/authorization/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/tranche-dev/tranche/plan/v1alpha1"
	"github.com/tranche-dev/tranche/rollout/clustertest"
)

// diff says of a commit what happens when it is pushed. The commits bring a revision that
// was rolled back, and the last stable one.
func TestDiff_SaysWhatHappens(t *testing.T) {
	s := newEnv(t, "web", ".")
	reader := s.reader()
	v1, gate, v2 := map[string]int32{"v1": 10}, map[string]int32{"v1": 8, "v2": 2}, map[string]int32{"v2": 10}
	commit := func(from, to string) {
		t.Helper()
		s.replace("deployment.yaml", "web:"+from, "web:"+to)
		s.run(s.clone, "git", "commit", "--quiet", "-am", "web: "+to)
	}
	says := func(text string) { // by who may write and by who may only read
		t.Helper()
		for _, flags := range []string{"", " --as " + reader} {
			s.says(0, "diff"+flags, text)
		}
	}
	const gated, back = "A new release, as BatchRelease web plans it.", "at once, without approvals."
	push := func() string {
		t.Helper()
		s.run(s.clone, "git", "push", "--quiet", "origin", "main")
		return s.run(s.clone, "git", "rev-parse", "HEAD")
	}
	s.waitFor("web", "ReleaseCompleted", 2, v1)

	commit("v1", "v2")
	says(gated)
	push()
	s.waitFor("web", "WaitingForApproval", 0, gate)
	says("Nothing would change")
	br := s.release("web")
	asked := client.MergeFrom(br.DeepCopy())
	br.Annotations = map[string]string{v1alpha1.AnnotationRollback: "true"}
	s.must(s.c.Client.Patch(t.Context(), br, asked))
	s.waitFor("web", "RolledBack", 2, v1)
	s.says(0, "diff", "Nothing would change")

	// Back in Git, and brought again, both at once.
	commit("v2", "v1")
	says("Nothing is released: all pods run")
	commit("v1", "v2")
	says("A new release, as BatchRelease web plans it.")
	again := push()
	s.waitFor("web", "WaitingForApproval", 0, gate)
	if got := s.release("web").Spec.Commit; got != again {
		t.Errorf("the release comes from commit %s, not from %s", got, again)
	}
	s.approve(".", "web", 1)
	s.waitFor("web", "ReleaseCompleted", 2, v2)

	commit("v2", "v1")
	says(back)
	push()
	s.waitFor("web", "ReleaseCompleted", 2, v1)

	commit("v1", "v2") // left by going back: nothing to go back to
	says(gated)
	push()
	s.waitFor("web", "WaitingForApproval", 0, gate)

	s.replace("release.yaml", "20%", "40%")
	s.run(s.clone, "git", "commit", "--quiet", "-am", "a larger first step")
	says("The plan changes. The release of " + s.release("web").Status.UpdateRevision + " goes on at step 0.")
	s.applied(push())
	clustertest.Wait(t, "the gate before the larger step", func() error {
		if at := s.release("web").Status; !strings.HasSuffix(at.Message, "approve step 0 to go on to 4, and then to 5") {
			return fmt.Errorf("%s: %s", at.Reason, at.Message)
		}
		return nil
	})
	s.waitFor("web", "WaitingForApproval", 0, gate) // an edit adds no pod
	s.approve(".", "web", 0)
	s.waitFor("web", "WaitingForApproval", 1, map[string]int32{"v1": 5, "v2": 5})
}

// A Deployment that is deleted in the middle of a release comes back at its stable
// revision, and diff says so before.
func TestDiff_DeletedDeployment(t *testing.T) {
	s := newEnv(t, "web", ".")
	s.waitFor("web", "ReleaseCompleted", 2, map[string]int32{"v1": 10})
	s.replace("deployment.yaml", "web:v1", "web:v2")
	s.run(s.clone, "git", "commit", "--quiet", "-am", "web: v2")
	s.run(s.clone, "git", "push", "--quiet", "origin", "main")
	s.waitFor("web", "WaitingForApproval", 0, map[string]int32{"v1": 8, "v2": 2})
	stable := s.release("web").Status.StableRevision
	suspend := func(v string) {
		t.Helper()
		if out, err := s.c.Kubectl(t, "patch", "gitsource", "source", "-n", s.ns, "--type=merge", "-p",
			`{"spec":{"suspend":`+v+`}}`); err != nil {
			t.Fatalf("%v: %s", err, out)
		}
	}
	suspend("true")
	clustertest.Wait(t, "the source to be suspended", func() error {
		var gs v1alpha1.GitSource
		if err := s.c.Client.Get(t.Context(), client.ObjectKey{Namespace: s.ns, Name: "source"}, &gs); err != nil {
			return err
		}
		if gs.Status.ObservedGeneration != gs.Generation {
			return fmt.Errorf("generation %d is observed, %d is there", gs.Status.ObservedGeneration, gs.Generation)
		}
		return nil
	})
	if out, err := s.c.Kubectl(t, "delete", "deployment", "web", "-n", s.ns, "--cascade=foreground", "--wait"); err != nil {
		t.Fatalf("%v: %s", err, out)
	}
	for _, flags := range []string{"", " --as " + s.reader()} {
		out := s.says(0, "diff"+flags, "It was deleted. The controller creates it at its stable revision "+stable+" with all its 10 pods.",
			"web:v1")
		if strings.Contains(out, "installed with all its") || strings.Contains(out, "web:v2") {
			t.Errorf("it shows the pod template from Git:\n%s", out)
		}
	}
	suspend("false")
	s.waitFor("web", "WaitingForApproval", 0, map[string]int32{"v1": 8, "v2": 2})
}

// `tranche diff` says so when the account may not read what the controller decides on.
func TestDiff_Unreadable(t *testing.T) {
	s := newEnv(t, "web", ".")
	s.waitFor("web", "ReleaseCompleted", 2, map[string]int32{"v1": 10})
	user := "half-" + s.ns
	s.binds(user, rbacv1.Subject{Kind: rbacv1.UserKind, APIGroup: rbacv1.GroupName, Name: user},
		rbacv1.PolicyRule{APIGroups: []string{"", "autoscaling", v1alpha1.Group}, Resources: []string{"*"}, Verbs: []string{"get", "list"}},
		rbacv1.PolicyRule{APIGroups: []string{"apps"}, Resources: []string{"deployments"}, Verbs: []string{"get", "list"}})
	s.replace("deployment.yaml", "web:v1", "web:v2")
	s.run(s.clone, "git", "commit", "--quiet", "-am", "web: v2")
	const sources = "Not checked: whether a GitSource of another namespace takes what is pruned."
	out := s.says(0, "diff --as "+user, "Not checked: whether a release begins, or the controller goes back at once.", "replicasets",
		"an approval")
	s.lacks(out, sources) // nothing is pruned
	s.run(s.clone, "git", "rm", "--quiet", "service.yaml")
	s.run(s.clone, "git", "commit", "--quiet", "-m", "no Service")
	s.says(0, "diff --as "+user, "Pruned:\n  Service "+s.ns+"/web", sources)
	s.lacks(s.says(0, "diff", "Pruned:\n  Service "+s.ns+"/web"), sources)
	if strings.Contains(out, "A new release") {
		t.Errorf("it is a guess:\n%s", out)
	}
}

// The account that a source names needs the right to write what would change.
func TestDiff_Rights(t *testing.T) {
	t.Parallel()
	s := envOf(t, "web")
	s.follow("source", ".", s.own, func(gs *v1alpha1.GitSource) { gs.Spec.ServiceAccountName = "tenant" }) // no controller applies it
	s.binds("tenant", rbacv1.Subject{Kind: rbacv1.ServiceAccountKind, Name: "tenant", Namespace: s.ns},
		rbacv1.PolicyRule{APIGroups: []string{"apps", v1alpha1.Group}, Resources: []string{"*"}, Verbs: []string{"*"}})
	s.says(1, "diff", "service.yaml: Service "+s.ns+"/web: ServiceAccount "+s.ns+"/tenant may not create it", "problems: 2;")
	s.says(0, "diff --as "+s.reader(), "Not checked: the rights of ServiceAccount "+s.ns+"/tenant.")
	s.binds("more", rbacv1.Subject{Kind: rbacv1.ServiceAccountKind, Name: "tenant", Namespace: s.ns},
		rbacv1.PolicyRule{APIGroups: []string{""}, Resources: []string{"services"}, Verbs: []string{"create", "patch"}})
	s.says(0, "diff", "Created:")
}

// lacks fails where the output has the text.
func (s *env) lacks(out, text string) {
	s.Helper()
	if strings.Contains(out, text) {
		s.Errorf("with %q:\n%s", text, out)
	}
}

// binds gives rights in the namespace.
func (s *env) binds(name string, to rbacv1.Subject, rules ...rbacv1.PolicyRule) {
	s.Helper()
	at := metav1.ObjectMeta{Name: name, Namespace: s.ns}
	s.must(s.c.Client.Create(s.Context(), &rbacv1.Role{ObjectMeta: at, Rules: rules}))
	s.must(s.c.Client.Create(s.Context(), &rbacv1.RoleBinding{
		ObjectMeta: at, RoleRef: rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "Role", Name: name}, Subjects: []rbacv1.Subject{to},
	}))
	user, last := to.Name, rules[len(rules)-1]
	if to.Kind == rbacv1.ServiceAccountKind {
		user = "system:serviceaccount:" + to.Namespace + ":" + to.Name
	}
	allows(s, user, authorizationv1.ResourceAttributes{Verb: last.Verbs[0], Group: last.APIGroups[0], Resource: last.Resources[0]})
}

// allows waits until the API server lets a user do this in the namespace: it reads rights
// from a cache.
func allows(s *env, user string, what authorizationv1.ResourceAttributes) {
	s.Helper()
	what.Namespace = s.ns
	clustertest.Wait(s, "the rights of "+user, func() error {
		review := &authorizationv1.SubjectAccessReview{Spec: authorizationv1.SubjectAccessReviewSpec{User: user, ResourceAttributes: &what}}
		if err := s.c.Client.Create(s.Context(), review); err != nil {
			return err
		}
		if !review.Status.Allowed {
			return fmt.Errorf("may not %s %s: %s", what.Verb, what.Resource, review.Status.Reason)
		}
		return nil
	})
}
