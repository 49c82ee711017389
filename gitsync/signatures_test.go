package gitsync_test

import (
	"fmt"
	"strings"
	"testing"

	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/tranche-dev/tranche/gitsync/gittest"
	"github.com/tranche-dev/tranche/plan/v1alpha1"
	"github.com/tranche-dev/tranche/rollout/clustertest"
)

// lists makes the Secret of that name list keys in the format of ssh-keygen.
func (s *env) lists(name string, lines ...string) *v1alpha1.Verification {
	s.Helper()
	secret := &corev1.Secret{ObjectMeta: metav1.ObjectMeta{Name: name, Namespace: s.ns}}
	content := map[string][]byte{"allowed_signers": []byte(strings.Join(lines, "\n") + "\n")}
	secret.Data = content
	if err := s.c.Client.Create(s.Context(), secret); err != nil {
		secret = get(s, name, &corev1.Secret{})
		secret.Data = content
		s.must(s.c.Client.Update(s.Context(), secret))
	}
	return &v1alpha1.Verification{SecretRef: v1alpha1.LocalObjectReference{Name: name}}
}

// committers demands a signature of what is applied.
func committers(keys *v1alpha1.Verification) *v1alpha1.CommitVerification {
	return &v1alpha1.CommitVerification{Verification: *keys}
}

// No commit is applied unless its tip is signed by a listed key. The objects that were
// applied stay, and each sync reads the keys again.
func TestCommitsMustBeSigned(t *testing.T) {
	t.Parallel()
	s := newEnv(t, gitsyncOnly)
	ada, eve := gittest.NewSSHKey(t, "ed25519", ""), gittest.NewSSHKey(t, "ed25519", "")
	s.repo.Sign(&ada)
	first := s.push(map[string]string{"deploy/a.yaml": configMap("a", "one")})
	s.source(func(gs *v1alpha1.GitSource) {
		gs.Spec.Verify = committers(&v1alpha1.Verification{SecretRef: v1alpha1.LocalObjectReference{Name: "keys"}})
	})
	if m := s.refused(first, "SecretNotFound"); !strings.Contains(m, "spec.verify.secretRef: there is no Secret "+s.ns+"/keys") {
		t.Error(m)
	}
	s.lists("keys", "ada@example.org namespaces=git "+ada.Public)
	s.lookNow()
	if m := s.refused(first, "InvalidSecret"); !strings.Contains(m, "allowed_signers, line 1") {
		t.Error(m)
	}
	s.lists("keys", "ada@example.org "+ada.Public)
	s.lookNow()
	s.applied(first)

	for _, tt := range []struct {
		key  *gittest.Key
		says string
	}{{nil, "it is not signed"}, {&eve, "a key that is not listed: ssh-ed25519 SHA256:"}} {
		s.repo.Sign(tt.key)
		bad := s.push(map[string]string{"deploy/a.yaml": configMap("a", "by somebody")})
		if m := s.refused(bad, "CommitNotVerified"); !strings.Contains(m, "main@"+bad[:12]) || !strings.Contains(m, tt.says) || !strings.Contains(m, "git commit -S") {
			t.Error(m)
		}
		if v := get(s, "a", &corev1.ConfigMap{}).Data["value"]; v != "one" || s.gs().Status.AppliedCommit != first {
			t.Errorf("a is %q: something of an unsigned commit was applied", v)
		}
	}
	clustertest.Wait(t, "the event", func() error {
		if n := len(s.events("CommitNotVerified")); n == 0 {
			return fmt.Errorf("none")
		}
		return nil
	})
	s.lists("keys", "ada@example.org "+ada.Public, "eve@example.org "+eve.Public)
	s.lookNow()
	signed := s.repo.Head()
	s.applied(signed)
	s.repo.Sign(nil)
	s.refused(s.push(map[string]string{"README.md": "by somebody\n"}), "CommitNotVerified") // though it touches nothing
	if applied := s.gs().Status.AppliedCommit; applied != signed {
		t.Errorf("%s counts as applied", applied)
	}
}

// If signers are listed, neither an unsigned approval nor one given in the cluster
// opens a gate, and a signed one does.
func TestOnlySignedApprovalsOpenAGate(t *testing.T) {
	t.Parallel()
	s := newEnv(t, andRollout)
	ada, grace := gittest.NewSSHKey(t, "ed25519", ""), gittest.NewGPG(t).NewKey("Grace Example <grace@example.org>", "never", "")
	signers := s.lists("approvers", "ada@example.org "+ada.Public)
	secret := get(s, "approvers", &corev1.Secret{})
	secret.Data["grace.asc"] = []byte(grace.Public)
	s.must(s.c.Client.Update(t.Context(), secret))
	first := s.push(map[string]string{"deploy/web.yaml": web("v1"), "deploy/release.yaml": webPlan})
	s.source(func(gs *v1alpha1.GitSource) {
		gs.Spec.Approvals = &v1alpha1.ApprovalPolicy{Signers: signers, DistinctAuthor: true}
	})
	s.applied(first)
	s.phase(v1alpha1.PhaseCompleted)
	s.repo.Sign(&ada)
	second := s.push(map[string]string{"deploy/web.yaml": web("v2")})
	s.isAt("web", "WaitingForApproval", 0)

	s.approve("web")
	clustertest.Wait(t, "the refusal", func() error {
		if n := s.events("ApprovalRefused"); len(n) != 1 || !strings.Contains(n[0], "commit a signed one") {
			return fmt.Errorf("%q", n)
		}
		return nil
	})
	s.isAt("web", "WaitingForApproval", 0)

	approval := "apiVersion: tranche.dev/v1alpha1\nkind: BatchApproval\nmetadata: {name: web, namespace: " + s.ns + "}\nspec: {revision: \"" + s.release("web").Status.UpdateRevision + "\", commit: \"" + second + "\", step: 0}\n"
	for i, tt := range []struct {
		key  *gittest.Key
		says string
	}{{nil, "it is not signed"}, {&ada, "is signed by ada@example.org"}} {
		s.repo.Sign(tt.key)
		c := s.push(map[string]string{"deploy/approvals/web.yaml": approval + fmt.Sprintf("# %d\n", i), "deploy/a.yaml": configMap("a", fmt.Sprintf("v%d", i))})
		s.applied(c) // the rest of the sync goes on
		if m := said(s.gs()); !strings.Contains(m, "InSync=False ApprovalIgnored: deploy/approvals/web.yaml") || !strings.Contains(m, tt.says) {
			t.Error(m)
		}
		if a := s.release("web").Spec.Approval; a != nil {
			t.Errorf("%+v counts", a)
		}
	}
	s.isAt("web", "WaitingForApproval", 0)

	s.repo.Sign(&grace)
	last := s.push(map[string]string{"deploy/approvals/web.yaml": approval + "# by Grace\n"})
	s.phase(v1alpha1.PhaseCompleted)
	got := s.release("web").Status.History[0]
	if got.Commit != second || len(got.Approvals) != 1 || got.Approvals[0].By != "Grace Example <grace@example.org>" || got.Approvals[0].Commit != last {
		t.Errorf("%+v", got)
	}
	s.says("True")
}

// A gate asks what the signed terms say. An unsigned commit does not change a CronJob that they
// name, and brings no Secret that they name.
func TestUnsignedCommitDoesNotDecideWhatIsMeasured(t *testing.T) {
	t.Parallel()
	s := newEnv(t, andRollout)
	const metrics = `    analysis:
      metrics:
      - {name: smoke, job: {from: check}}
      - {name: scoped, web: {url: "https://metrics.example.org", secretRef: {name: scope}}, condition: "true"}
    steps:
    - {replicas: 1, analysis: {duration: 1h}}
`
	measures := strings.Replace(webPlan, "    steps:\n    - replicas: 1\n", metrics, 1)
	check := func(tag string) string {
		return "apiVersion: batch/v1\nkind: CronJob\nmetadata: {name: check}\nspec:\n  suspend: true\n  schedule: 0 0 1 1 *\n  jobTemplate:\n" +
			"    spec: {template: {spec: {restartPolicy: Never, containers: [{name: c, image: '" + tag + "'}]}}}\n"
	}
	runs := func(because, tag string) {
		t.Helper()
		if got := get(s, "check", &batchv1.CronJob{}).Spec.JobTemplate.Spec.Template.Spec.Containers[0].Image; got != tag {
			t.Errorf("%s: the Job has %s, want %s", because, got, tag)
		}
	}
	jobs := func(tag string) string { // as docs/signatures.md specifies them
		return `"jobs":{"check":"` + digestOf(`{"spec":{"template":{"spec":{"containers":[{"image":"`+tag+`","name":"c"}],"restartPolicy":"Never"}}}}`) + `"}`
	}
	ada := gittest.NewSSHKey(t, "ed25519", "")
	signers := s.lists("approvers", "ada@example.org "+ada.Public)
	first := s.push(map[string]string{"deploy/web.yaml": web("v1"), "deploy/release.yaml": measures, "deploy/check.yaml": check("v1")})
	s.source(func(gs *v1alpha1.GitSource) { gs.Spec.Approvals = &v1alpha1.ApprovalPolicy{Signers: signers} })
	s.applied(first)
	governing := s.gs().Status.Plans[0].Terms
	if !strings.Contains(governing, jobs("v1")) {
		t.Errorf("%s is without %s", governing, jobs("v1"))
	}
	for _, c := range []struct {
		because string
		files   map[string]string
	}{
		{"another CronJob", map[string]string{"deploy/check.yaml": check("v2")}},
		{"another one, and a plan that does not name it", map[string]string{"deploy/release.yaml": webPlan}},
		{"no CronJob", map[string]string{"deploy/check.yaml": configMap("a", "b")}},
		{"another CronJob again", map[string]string{"deploy/release.yaml": measures, "deploy/check.yaml": check("v2")}},
	} {
		if m := s.refused(s.push(c.files), "PlanNotApproved"); !strings.Contains(m, "CronJob "+s.ns+"/check, which a signer has to approve") {
			t.Errorf("%s: %s", c.because, m)
		}
		runs(c.because, "v1")
	}
	secret := "apiVersion: v1\nkind: Secret\nmetadata: {name: scope}\nstringData: {header.X-Scope: shop}\n"
	m := s.refused(s.push(map[string]string{"deploy/scope.yaml": secret}), "MetricNotSigned")
	if want := "deploy/scope.yaml: Secret " + s.ns + "/scope"; !strings.Contains(m, want) {
		t.Errorf("%s does not name %s", m, want)
	}
	s.absent("scope", &corev1.Secret{})

	s.repo.Sign(&ada)
	digest := digestOf(strings.Replace(governing, jobs("v1"), jobs("v2"), 1))
	approval := "apiVersion: tranche.dev/v1alpha1\nkind: BatchApproval\nmetadata: {name: web, namespace: " + s.ns + "}\n"
	files := map[string]string{planApproval: approval + "spec: {plan: " + digest + "}\n", "deploy/scope.yaml": configMap("c", "d")}
	s.applied(s.push(files))
	runs("approved", "v2")
}

// An approval that is given in the cluster while the Deployment is missing is
// refused, too, and opens no gate when the Deployment is back.
func TestApprovalInTheClusterWithNoDeployment(t *testing.T) {
	t.Parallel()
	s := newEnv(t, andRollout)
	ada := gittest.NewSSHKey(t, "ed25519", "")
	signers := s.lists("approvers", "ada@example.org "+ada.Public)
	s.applied2(s.push(map[string]string{"deploy/web.yaml": four("v1"), "deploy/release.yaml": planOf("web", "1", "50%", "100%")}),
		func(gs *v1alpha1.GitSource) { gs.Spec.Approvals = &v1alpha1.ApprovalPolicy{Signers: signers} })
	s.isAt("web", "ReleaseCompleted", 2)
	r := s.recordSizes("v2")
	s.push(map[string]string{"deploy/web.yaml": four("v2")})
	s.isAt("web", "WaitingForApproval", 0)
	s.kubectl("patch", "gitsource/shop", "--type=merge", "-p", `{"spec":{"suspend":true}}`)
	clustertest.Wait(t, "the source to be suspended", func() error {
		if gs := s.gs(); gs.Status.ObservedGeneration != gs.Generation {
			return fmt.Errorf("%s", said(gs))
		}
		return nil
	})
	s.kubectl("delete", "deployment/web", "--cascade=foreground")
	s.isAt("web", "DeploymentNotFound", 0)
	s.approve("web")
	s.told("ApprovalRefused", "only signed approvals count")
	clustertest.Wait(t, "the state to be put back", func() error {
		if st := s.release("web").Status; st.CurrentStepState != v1alpha1.StepBlocking || st.CurrentStepIndex != 0 {
			return fmt.Errorf("step %d is %s", st.CurrentStepIndex, st.CurrentStepState)
		}
		return nil
	})
	s.kubectl("patch", "gitsource/shop", "--type=merge", "-p", `{"spec":{"suspend":false}}`)
	s.isAt("web", "WaitingForApproval", 0)
	r.atMost(1)
}

// phase waits for the release of web to be in a phase, with the template that
// the branch has.
func (s *env) phase(want v1alpha1.ReleasePhase) {
	s.Helper()
	clustertest.Wait(s, "phase "+string(want), func() error {
		br := s.release("web")
		if br.Status.Phase != want || br.Status.ObservedGeneration != br.Generation {
			return fmt.Errorf("%s: %s %s", br.Status.Phase, br.Status.Reason, br.Status.Message)
		}
		return nil
	})
}

// The controller's commits must be good for spec.verify, or nothing would be followed
// from then on.
func TestWriteBackMustBeGoodForVerify(t *testing.T) {
	t.Parallel()
	s := newEnv(t, andRollout)
	ada, robot := gittest.NewSSHKey(t, "ed25519", ""), gittest.NewGPG(t).NewKey("robot@example.org", "never", "open sesame")
	s.must(s.c.Client.Create(t.Context(), &corev1.Secret{
		ObjectMeta: metav1.ObjectMeta{Namespace: s.ns, Name: "signing"}, Data: map[string][]byte{"git.asc": []byte(robot.Private), "passphrase": []byte("open sesame")},
	}))
	keys := s.lists("keys", "ada@example.org "+ada.Public)
	s.repo.Sign(&ada)
	s.beginRelease(writesBack, func(gs *v1alpha1.GitSource) {
		gs.Spec.Verify, gs.Spec.WriteBack.SigningKey = committers(keys), &v1alpha1.LocalObjectReference{Name: "signing"}
	})
	s.rollBack("web")
	if m := s.differs("WriteBackConflict"); !strings.Contains(m, "signed by a key that is not listed: OpenPGP key") || !strings.Contains(m, "list its public key in Secret "+s.ns+"/keys") {
		t.Error(m)
	}
	s.has("web: v2", "web: v1")
	secret := get(s, "keys", &corev1.Secret{})
	secret.Data["robot.asc"] = []byte(robot.Public)
	s.must(s.c.Client.Update(t.Context(), secret))
	s.lookNow()
	s.ends("Revert \"web: v2\"", "web: v2", "web: v1")
	s.rolledBack("web")
}

// An approver without a list of approvers is a mistake that the API server
// refuses.
func TestDistinctAuthorNeedsSigners(t *testing.T) {
	s := newIdleEnv(t)
	err := s.c.Client.Create(t.Context(), &v1alpha1.GitSource{
		ObjectMeta: metav1.ObjectMeta{Name: "shop", Namespace: s.ns},
		Spec:       v1alpha1.GitSourceSpec{URL: s.repo.URL(), Approvals: &v1alpha1.ApprovalPolicy{DistinctAuthor: true}},
	})
	if err == nil || !strings.Contains(err.Error(), "distinctAuthor requires signers") {
		t.Errorf("%v", err)
	}
}
