package rollout_test

import (
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"strings"
	"testing"

	admissionv1 "k8s.io/api/admissionregistration/v1"
	appsv1 "k8s.io/api/apps/v1"
	autoscalingv1 "k8s.io/api/autoscaling/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/rest"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/tranche-dev/tranche/plan/v1alpha1"
	"github.com/tranche-dev/tranche/rollout/clustertest"
	"github.com/tranche-dev/tranche/rollout/engine"
)

// I8: with the controller dead nothing changes. A request that would end the hold or
// change what is held is refused, to an admin too. A request that the hold does not
// concern passes.
func TestControllerDead(t *testing.T) {
	t.Parallel()
	s := newEnv(t)
	s.c.Guard(t, s.ns)
	stop := startControllerIn(t, s.c, s.ns)
	s.install(10)
	s.plan("20%", "100%")
	s.waitFor(v1alpha1.ReasonReleaseCompleted, 1, nil)
	s.bring("v2")
	s.waitFor(v1alpha1.ReasonWaitingForApproval, 0, map[string]int32{"v1": 8, "v2": 2})
	stop()
	before := s.deployment("web")
	manifest := `{"apiVersion":"apps/v1","kind":"Deployment","metadata":{"name":"web"},"spec":{"selector":{"matchLabels":{"app":"web"}},` +
		`"template":{"metadata":{"labels":{"app":"web"}},"spec":{"containers":[{"name":"web","image":"registry.example.org/web:v9"}]}}}}`
	const outage, hold = "would take all old pods away", "are the controller's until it ends"
	for _, tc := range []struct{ why, refusal, command string }{
		{"it is an outage (H8)", outage, "rollout resume deployment/web"},
		{"the template is the one under release", hold, "set image deployment/web web=registry.example.org/web:v9"},
		{"the template is the one under release", hold, "set env deployment/web A=b"},
		{"the template is the one under release", hold, "apply --server-side --force-conflicts -f -"},
		{"paused and RollingUpdate adds pods (H7)", hold, `patch deployment/web -p {"spec":{"strategy":{"type":"RollingUpdate"}}}`},
		{"a hand-back is the controller's", hold, `patch deployment/web -p {"spec":{"paused":false,"strategy":{"type":"RollingUpdate"}}}`},
		{"without the label the policy would not know a hold", hold, "label deployment/web tranche.dev/held-"},
		{"it changes nothing of the hold", "", "annotate deployment/web note=hello"},
		{"it changes nothing of the hold", "", "label deployment/web team=web"},
		{"it changes nothing of the hold", "", "scale deployment/web --replicas=10"},
		{"it changes nothing of the hold", "", `patch deployment/web -p {"spec":{"minReadySeconds":1}}`},
	} {
		out, err := s.c.KubectlWith(t, manifest, append([]string{"-n", s.ns}, strings.Fields(tc.command)...)...)
		if (err == nil) != (tc.refusal == "") || !strings.Contains(out, tc.refusal) {
			t.Errorf("kubectl %s: %s: want %q, got %v: %s", tc.command, tc.why, tc.refusal, err, out)
		}
	}
	after := s.deployment("web")
	if !engine.Held(after) || after.Spec.Template.Spec.Containers[0].Image != before.Spec.Template.Spec.Containers[0].Image {
		t.Errorf("the hold has changed: %+v", after.Spec)
	}
	startControllerIn(t, s.c, s.ns)
	s.approve(0)
	s.waitFor(v1alpha1.ReasonReleaseCompleted, 1, map[string]int32{"v2": 10})
	s.untouched()
}

// A tenant's account writes for the controller under the policy, and not for
// itself.
func TestTenantUnderThePolicy(t *testing.T) {
	t.Parallel()
	s := newEnv(t)
	s.c.Guard(t, s.ns)
	startControllerIn(t, s.c, s.ns)
	s.kubectl("create", "serviceaccount", "tenant", "-n", s.ns)
	s.kubectl("create", "rolebinding", "tenant", "-n", s.ns, "--clusterrole=edit", "--serviceaccount="+s.ns+":tenant")
	s.install(4)
	s.plan("1", "100%")
	s.edit(func(spec *v1alpha1.BatchReleaseSpec) { spec.ServiceAccountName = "tenant" })
	s.waitFor(v1alpha1.ReasonReleaseCompleted, 1, nil)
	s.bring("v2")
	s.waitFor(v1alpha1.ReasonWaitingForApproval, 0, map[string]int32{"v1": 3, "v2": 1})
	out, err := s.c.Kubectl(t, "-n", s.ns, "--as=system:serviceaccount:"+s.ns+":tenant", "set", "image", "deployment/web", "web=registry.example.org/web:v9")
	if err == nil || !strings.Contains(out, "are the controller's until it ends") {
		t.Errorf("kubectl set image by the tenant: %v: %s", err, out)
	}
	s.approve(0)
	s.waitFor(v1alpha1.ReasonReleaseCompleted, 1, map[string]int32{"v2": 4})
}

// attempt is a kubectl command, and a part of the answer that refuses it; none
// where it must pass.
type attempt struct{ why, refusal, command string }

// attempt runs the commands in the env's namespace, with these flags.
func (s *env) attempt(attempts []attempt, flags ...string) {
	s.Helper()
	for _, a := range attempts {
		out, err := s.c.Kubectl(s, append(append([]string{"-n", s.ns}, strings.Fields(a.command)...), flags...)...)
		if (err == nil) != (a.refusal == "") || !strings.Contains(out, a.refusal) {
			s.Errorf("kubectl %s %s: %s: want %q, got %v: %s", a.command, strings.Join(flags, " "), a.why, a.refusal, err, out)
		}
	}
}

// No user can take the label tranche.dev/held off without ending the hold. The command
// of docs/reasons.md ends the hold.
func TestHeldLabelLeavesWithTheHold(t *testing.T) {
	t.Parallel()
	c := clustertest.Shared(t)
	s := &env{T: t, c: c, ns: c.Namespace(t)} // with no watcher: what ends here is no release
	stop := startControllerIn(t, c, s.ns)
	s.install(4)
	s.plan("1", "100%")
	s.waitFor(v1alpha1.ReasonReleaseCompleted, 1, nil)
	s.bring("v2")
	s.waitFor(v1alpha1.ReasonWaitingForApproval, 0, map[string]int32{"v1": 3, "v2": 1})
	stop()
	const left, outage = "may leave it only in a write", "would take all old pods away"
	const unlabel = `"metadata":{"labels":{"tranche.dev/held":null}}`
	refused := []attempt{
		{"rollout resume would then pass, and be an outage", left, "label deployment/web tranche.dev/held-"},
		{"native surge pods come, and nothing says why", left, `patch deployment/web --type=merge -p {` + unlabel + `,"spec":{"strategy":{"type":"RollingUpdate"}}}`},
		{"it is an outage (H8)", outage, `patch deployment/web --type=merge -p {` + unlabel + `,"spec":{"paused":false}}`},
	}
	s.attempt(refused, "--dry-run=server")
	for i := range refused {
		refused[i].refusal = "an admission policy or webhook changes the hold of web: exempt it" // it writes a whole hold
	}
	s.attempt(refused, "--dry-run=server", "--as="+s.c.Controller.Impersonate.UserName)

	root, err := clustertest.Root()
	s.must(err)
	const end = `kubectl patch deployment web -n shop --type=merge -p '{"metadata":{"labels":{"tranche.dev/held":null}},"spec":{"paused":null,"strategy":{"type":"RollingUpdate"}}}'`
	for _, page := range []string{"reasons.md", "operating.md"} {
		if text, err := os.ReadFile(filepath.Join(root, "docs", page)); err != nil || !strings.Contains(string(text), end) {
			t.Errorf("docs/%s does not say how a hold is ended by hand: %s (%v)", page, end, err)
		}
	}
	command := strings.NewReplacer("kubectl ", "", "-n shop ", "", "'", "").Replace(end)
	s.attempt([]attempt{{"it ends the hold", "", command}})
	const unlabelled = `kubectl label replicasets -n shop -l tranche.dev/held tranche.dev/held-`
	for _, page := range []string{"reasons.md", "operating.md"} {
		if text, err := os.ReadFile(filepath.Join(root, "docs", page)); err != nil || !strings.Contains(string(text), unlabelled) {
			t.Errorf("docs/%s does not say how the label is taken off ReplicaSets: %s (%v)", page, unlabelled, err)
		}
	}
	clustertest.Wait(t, "the API server's cache to be without the hold", func() error {
		out, err := s.c.Kubectl(t, append([]string{"-n", s.ns}, strings.Fields(strings.NewReplacer("kubectl ", "", "-n shop ", "").Replace(unlabelled))...)...)
		if err != nil {
			return fmt.Errorf("%w: %s", err, out)
		}
		return nil
	})
	s.rolled("web", 4)
	s.become(map[string]int32{"v2": 4})
	s.untouched()
}

// labelSets gives ReplicaSets the label of a hold as the controller does; NAME- takes it off.
func labelSets(s *env, names ...string) {
	s.Helper()
	for _, name := range names {
		name, off := strings.CutSuffix(name, "-")
		change := map[bool]string{false: "tranche.dev/held=true", true: "tranche.dev/held-"}[off]
		s.kubectl("-n", s.ns, "label", "rs/"+name, change, "--as="+s.c.Controller.Impersonate.UserName)
	}
}

// ofWeb is a patch that makes the Deployment web the controller of a ReplicaSet.
func ofWeb(s *env) string {
	s.Helper()
	owner := metav1.NewControllerRef(s.deployment("web"), appsv1.SchemeGroupVersion.WithKind("Deployment"))
	patch, err := json.Marshal(map[string]any{"metadata": map[string]any{"ownerReferences": []any{owner}}})
	s.must(err)
	return string(patch)
}

// H26: the ReplicaSets of a held Deployment are the controller's, and no others. Those that
// have the label of the hold are guarded by one policy, and those without it by another. No
// user gets from one to the other, or past both.
func TestReplicaSetsUnderThePolicy(t *testing.T) {
	t.Parallel()
	s, stop := atGateOf(t, 4)
	s.c.Guard(t, s.ns)
	stop()
	v1, v2, other := s.set("v1").Name, s.set("v2").Name, ""
	if one, two := s.set("v1").Labels, s.set("v2").Labels; !v1alpha1.HasHeld(one) || !v1alpha1.HasHeld(two) {
		t.Errorf("labels %v and %v", one, two)
	}
	s.create("other", 1)
	clustertest.Wait(t, "the native ReplicaSet of other", func() error {
		for _, rs := range s.sets() {
			if strings.HasPrefix(rs.Name, "other-") {
				other = rs.Name
				return nil
			}
		}
		return fmt.Errorf("sizes %v", s.sizes())
	})
	free := s.newSet("web-frontend", "v1", 1)
	free.Labels = map[string]string{"app": "free"}
	free.Spec.Selector.MatchLabels, free.Spec.Template.Labels = free.Labels, free.Labels
	s.must(s.c.Client.Create(t.Context(), free))
	clustertest.Wait(t, "the API server's cache to have the label", func() error {
		if out, err := s.c.Kubectl(t, "-n", s.ns, "scale", "rs", v1, "--replicas=0", "--dry-run=server"); err == nil {
			return fmt.Errorf("it passes: %s", out)
		}
		return nil
	})
	attempts := onSets(v1, v2, other)
	s.attempt(attempts, "--dry-run=server")
	betweenPolicies(s, v1, other)
	labelSets(s, "web-frontend-", other+"-", v1+"-", v2+"-")
	s.attempt(append(attempts, attempt{"it changes nothing of the release", "", "label rs/" + v1 + " team=web"}), "--dry-run=server")
	if got := s.sizes(); got["v2"] != 1 {
		t.Errorf("sizes %v", got)
	}
	// In foreground, so that the Deployment is there while the garbage collector
	// deletes its ReplicaSets.
	s.kubectl("-n", s.ns, "delete", "deployment/web", "--cascade=foreground", "--timeout=4m")
	for _, rs := range s.sets() {
		if rs.Name == v1 || rs.Name == v2 {
			t.Errorf("ReplicaSet %s is left", rs.Name)
		}
	}
}

// heldSet is in the refusal of a write to a ReplicaSet of a held Deployment.
const heldSet = "which is held for a release in batches"

// onSets are writes to ReplicaSets of web, which is held, of other, which is not, and of none.
func onSets(v1, v2, other string) []attempt {
	const held = heldSet
	return []attempt{
		{"the native controller would bring v2 to 4", held, "scale rs/" + v1 + " --replicas=0"},
		{"the sizes are the controller's", held, "scale rs/" + v2 + " --replicas=3"},
		{"the sizes are the controller's", held, "patch rs/" + v1 + ` -p {"spec":{"replicas":0}}`},
		{"the native controller would bring v2 to 4", held, "delete rs/" + v1},
		{"the native controller would bring v2 to 4", held, "delete rs -l app=web"},
		{"it would be of another owner, and v2 alone", held, `patch rs/` + v1 + ` -p {"metadata":{"ownerReferences":[{"$patch":"replace"},{"apiVersion":"v1","kind":"ConfigMap","name":"x","uid":"1","controller":true}]}}`},
		{"it and its pods would outlive the Deployment", held,
			`patch rs/` + v1 + ` --type=merge -p {"metadata":{"finalizers":["example.org/keep"]}}`},
		{"the name of the revision would lie", held, "set image rs/" + v2 + " web=registry.example.org/web:v9"},
		{"its pods would pass for available too early", held, "patch rs/" + v2 + ` -p {"spec":{"minReadySeconds":5}}`},
		{"the native controller would release it", held, "label rs/" + v1 + " app=another --overwrite"},
		{"its pods would be of no revision", held, "label rs/" + v1 + " pod-template-hash=zzz --overwrite"},
		{"its pods would be of no revision", held, "label rs/" + v2 + " pod-template-hash-"},
		{"it would pass for saturated (H6)", held, "annotate rs/" + v2 + " deployment.kubernetes.io/desired-replicas=1 --overwrite"},
		{"it would pass for another size", held, "annotate rs/" + v1 + " deployment.kubernetes.io/max-replicas-"},
		{"it changes nothing of the release", "", "annotate rs/" + v1 + " note=hello"},
		{"it changes nothing of the release", "", "scale rs/" + v1 + " --replicas=3"},
		{"scaling is the Deployment's", "", "scale deployment/web --replicas=5"},
		{"other is not held", "", "scale rs/" + other + " --replicas=0"},
		{"other is not held", "", "delete rs/" + other},
		{"other is not held", "", "set image rs/" + other + " other=registry.example.org/web:v9"},
		{"it is of no Deployment, whatever its name", "", "scale rs/web-frontend --replicas=0"},
		{"it is of no Deployment, whatever its name", "", "delete rs/web-frontend"},
	}
}

// betweenPolicies tries to get a ReplicaSet from one policy to the other, and past both.
func betweenPolicies(s *env, v1, other string) {
	s.Helper()
	const held, puts = heldSet, "only the controller of Tranche gives a ReplicaSet the label"
	s.attempt([]attempt{
		{"the selector may name it", held, "label rs/" + v1 + " team=web"},
		{"the policy with parameters would judge it from then on", held, "label rs/" + v1 + " tranche.dev/held-"},
		{"beside it, too", held, "patch rs/" + v1 + ` --type=merge -p {"metadata":{"labels":{"tranche.dev/held":null}},"spec":{"replicas":0}}`},
		{"it is a label, too", held, "label rs/" + v1 + " tranche.dev/held=other --overwrite"},
		{"no policy would guard against its adoption", puts, "label rs/web-frontend tranche.dev/held=true"},
		{"both policies refuse it", "denied request", "label rs/web-frontend tranche.dev/held=true app=web --overwrite"},
		{"no user could delete it", puts, "label rs/" + other + " tranche.dev/held="},
	}, "--dry-run=server")
	labelSets(s, "web-frontend", other)
	s.attempt([]attempt{
		{"it would be adopted", held, "label rs/web-frontend app=web --overwrite"},
		{"it would be adopted", held, "patch rs/web-frontend --type=merge -p " + ofWeb(s)},
		{"it would be adopted", "would adopt this ReplicaSet", "patch rs/web-frontend --type=merge -p " + `{"metadata":{"labels":{"app":"web","tranche.dev/held":null}}}`},
		{"no object controls it", "", "delete rs/web-frontend"},
		{"no hold is left", "", "label rs/web-frontend tranche.dev/held-"},
		{"the label tells of a hold", "take the label off", "delete rs/" + other},
		{"no hold is left", "", "label rs/" + other + " tranche.dev/held-"},
		{"a Scale has no labels", "", "scale rs/" + other + " --replicas=0"},
	}, "--dry-run=server")
}

// A selector of expressions selects by labels, too.
func TestReplicaSetsSelectedByExpressions(t *testing.T) {
	t.Parallel()
	s, stop := atGateOf(t, 4, func(d *appsv1.Deployment) {
		d.Spec.Selector = &metav1.LabelSelector{MatchExpressions: []metav1.LabelSelectorRequirement{{Key: "app", Operator: metav1.LabelSelectorOpIn, Values: []string{"web"}}}}
	})
	s.c.Guard(t, s.ns)
	stop()
	const held = "which is held for a release in batches"
	v1 := s.set("v1").Name
	clustertest.Wait(t, "the API server's cache to have the label", func() error {
		if out, err := s.c.Kubectl(t, "-n", s.ns, "delete", "rs", v1, "--dry-run=server"); err == nil {
			return fmt.Errorf("it passes: %s", out)
		}
		return nil
	})
	released := []attempt{
		{"the native controller would release it", held, "label rs/" + v1 + " app=another --overwrite"},
		{"the native controller would release it", held, "label rs/" + v1 + " app-"},
	}
	s.attempt(released, "--dry-run=server")
	labelSets(s, v1+"-")
	s.attempt(append(released, attempt{"it changes nothing of the release", "", "label rs/" + v1 + " team=web"}), "--dry-run=server")
}

// A ReplicaSet that a held Deployment would adopt is refused. The native controller takes
// an older one of the same template for the update revision, and by its marks for
// complete. It then scales all others to 0.
func TestReplicaSetsToBeAdopted(t *testing.T) {
	t.Parallel()
	s, stop := atGateOf(t, 4, func(d *appsv1.Deployment) {
		d.Spec.Selector.MatchExpressions = []metav1.LabelSelectorRequirement{
			{Key: "app", Operator: metav1.LabelSelectorOpIn, Values: []string{"web"}}, {Key: "app", Operator: metav1.LabelSelectorOpExists},
			{Key: "app", Operator: metav1.LabelSelectorOpNotIn, Values: []string{"api"}}, {Key: "old", Operator: metav1.LabelSelectorOpDoesNotExist},
		}
	})
	s.c.Guard(t, s.ns)
	stop()
	extra := func(name string, owner *metav1.OwnerReference, labels map[string]string) *appsv1.ReplicaSet {
		rs := s.newSet(name, "v2", 4)
		rs.Labels = labels
		metav1.SetMetaDataAnnotation(&rs.ObjectMeta, engine.AnnotationDesiredReplicas, "4")
		if owner != nil {
			rs.OwnerReferences = []metav1.OwnerReference{*owner}
		}
		return rs
	}
	web := map[string]string{"app": "web"}
	clustertest.Wait(t, "the API server's cache to have the label", func() error {
		if err := s.c.Client.Create(t.Context(), extra("extra", nil, web), client.DryRunAll); !apierrors.IsForbidden(err) {
			return fmt.Errorf("it passes: %w", err)
		}
		return nil
	})
	d := s.deployment("web")
	for name, tt := range map[string]struct {
		owner  *metav1.OwnerReference
		labels map[string]string
		passes bool
	}{
		"owned by the Deployment":       {metav1.NewControllerRef(d, appsv1.SchemeGroupVersion.WithKind("Deployment")), web, false},
		"owned, and not controlled":     {&metav1.OwnerReference{APIVersion: "apps/v1", Kind: "Deployment", Name: d.Name, UID: d.UID}, web, false},
		"controlled by another object":  {&metav1.OwnerReference{APIVersion: "v1", Kind: "ConfigMap", Name: "x", UID: "1", Controller: new(true)}, web, true},
		"another value":                 {nil, map[string]string{"app": "api"}, true},
		"no labels":                     {nil, nil, true},
		"a label that is not to exist":  {nil, map[string]string{"app": "web", "old": ""}, true},
		"a label that is not looked at": {nil, map[string]string{"app": "web", "team": "a"}, false},
	} {
		labelled := extra("extra", tt.owner, maps.Clone(tt.labels))
		metav1.SetMetaDataLabel(&labelled.ObjectMeta, v1alpha1.LabelHeld, "true")
		if err := s.c.Client.Create(t.Context(), labelled, client.DryRunAll); !apierrors.IsForbidden(err) {
			t.Errorf("%s, with the label of a hold: %v", name, err)
		}
		err := s.c.Client.Create(t.Context(), extra("extra", tt.owner, tt.labels), client.DryRunAll)
		if tt.passes != (err == nil) || err != nil && !strings.Contains(err.Error(), "Deployment web would adopt this ReplicaSet") {
			t.Errorf("%s: %v", name, err)
		}
	}
	rs := extra("extra", nil, map[string]string{"app": "none"})
	s.must(s.c.Client.Create(t.Context(), rs))
	s.attempt([]attempt{{"the native controller would take v1 to 0", "would adopt this ReplicaSet", "label rs/extra --overwrite app=web"}})
	if got := s.set("v1"); *got.Spec.Replicas != 3 {
		t.Errorf("v1 has %d pods", *got.Spec.Replicas)
	}
}

// An autoscaler may be made by any user, and would scale a ReplicaSet of a held
// Deployment as a component of the control plane.
func TestAutoscalerOfAReplicaSet(t *testing.T) {
	t.Parallel()
	s, stop := atGateOf(t, 4)
	s.c.Guard(t, s.ns)
	stop()
	v2 := s.set("v2")
	for _, user := range []string{"system:serviceaccount:kube-system:horizontal-pod-autoscaler", "system:kube-controller-manager"} {
		config := rest.CopyConfig(s.c.Config)
		config.Impersonate = rest.ImpersonationConfig{UserName: user, Groups: []string{"system:masters"}}
		c, err := client.New(config, client.Options{Scheme: s.c.Scheme})
		s.must(err)
		clustertest.Wait(t, "the refusal of "+user, func() error {
			scale := &autoscalingv1.Scale{Spec: autoscalingv1.ScaleSpec{Replicas: 4}}
			err := c.SubResource("scale").Update(t.Context(), v2.DeepCopy(), client.WithSubResourceBody(scale), client.DryRunAll)
			if !apierrors.IsForbidden(err) {
				return fmt.Errorf("it passes: %w", err)
			}
			return nil
		})
	}
}

// The API server lets a write of the status change labels, annotations, owners and finalizers of
// a ReplicaSet, too. A user who may write the status gets past no gate by it.
func TestReplicaSetsThroughTheirStatus(t *testing.T) {
	t.Parallel()
	s, _ := atGateOf(t, 4)
	s.c.Guard(t, s.ns)
	free := s.newSet("free", "v0", 0)
	free.Labels = map[string]string{"app": "free"}
	free.Spec.Selector.MatchLabels, free.Spec.Template.Labels = free.Labels, free.Labels
	s.must(s.c.Client.Create(t.Context(), free))
	v1, v2 := s.set("v1").Name, s.set("v2").Name
	const refusal = "are not changed through its status"
	patch := func(rs, metadata string) string {
		return "patch rs/" + rs + " --subresource=status --type=merge -p {\"metadata\":{" + metadata + "}}"
	}
	attempts := []attempt{
		{"the native controller would release it, and bring v2 to 4 (H26)", refusal, patch(v1, `"labels":{"app":"another"}`)},
		{"it would pass for saturated (H6)", refusal, patch(v2, `"annotations":{"deployment.kubernetes.io/desired-replicas":"1"}`)},
		{"it would be of another owner", refusal, patch(v1, `"ownerReferences":[{"apiVersion":"v1","kind":"ConfigMap","name":"x","uid":"1"}]`)},
		{"it and its pods would outlive the Deployment", refusal, patch(v1, `"finalizers":["example.org/keep"]`)},
		{"web would adopt it", refusal, patch("free", `"labels":{"app":"web"}`)},
		{"no user could delete it", refusal, patch("free", `"labels":{"tranche.dev/held":"true"}`)},
		{"it changes nothing of the release", "", patch(v1, `"annotations":{"note":"hello"}`)},
	}
	s.attempt(append(attempts, attempt{"another policy would judge it", refusal, patch(v1, `"labels":{"tranche.dev/held":null}`)}))
	labelSets(s, v1+"-", v2+"-")
	s.attempt(attempts)
	s.approve(0)
	s.waitFor(v1alpha1.ReasonReleaseCompleted, 1, map[string]int32{"v2": 4})
	s.untouched()
}

// If drift is corrected, the policy on ReplicaSets lets it pass.
func TestReplicaSetsWhereDriftIsCorrected(t *testing.T) {
	t.Parallel()
	s, stop := atGateOf(t, 4)
	stop()
	v1 := s.set("v1").Name
	s.attempt([]attempt{
		{"the namespace says so", "", "scale rs/" + v1 + " --replicas=0"},
		{"the namespace says so", "", "delete rs/" + v1},
	}, "--dry-run=server")
}

// The status of a BatchRelease is the controller's; a user with the documented
// roles approves in it, as docs/write-back.md says and as `tranche approve
// --direct` does.
func TestStatusIsTheControllers(t *testing.T) {
	t.Parallel()
	s, stop := atGateOf(t, 4)
	stop()
	const user = "ada"
	for _, role := range []string{"tranche-view", "tranche-edit"} {
		s.kubectl("create", "rolebinding", role, "-n", s.ns, "--clusterrole="+role, "--user="+user)
	}
	clustertest.Wait(t, "ada's rights", func() error {
		out, err := s.c.Kubectl(t, "auth", "can-i", "patch", "batchreleases", "--subresource=status", "-n", s.ns, "--as="+user)
		if err != nil {
			return fmt.Errorf("%w: %s", err, out)
		}
		return nil
	})
	const memory, completed = "is the memory of the controller", "may be set only to Completed"
	status := func(fields string) string {
		return `patch br/web --subresource=status --type=merge -p {"status":` + fields + `}`
	}
	refused := []attempt{
		{"it opens gates that no approval opened", memory, status(`{"openedReplicas":["100%"]}`)},
		{"it skips a step", memory, status(`{"currentStepIndex":1}`)},
		{"it skips a step, beside what may be written", memory, status(`{"currentStepIndex":1,"currentStepState":"Completed"}`)},
		{"it makes an approval of another release count", memory, status(`{"approval":{"revision":"x","step":1}}`)},
		{"it tells of an approval that was none", memory, status(`{"approvals":[{"step":0,"by":"Ada","time":"2026-01-01T00:00:00Z"}]}`)},
		{"it forgets what was stable", memory, status(`{"stableRevision":null}`)},
		{"it forgets everything", memory, `patch br/web --subresource=status --type=json -p [{"op":"remove","path":"/status"}]`},
		{"only Completed is an approval", completed, status(`{"currentStepState":"Upgrade"}`)},
		{"only Completed is an approval", completed, status(`{"currentStepState":null}`)},
	}
	s.attempt(refused, "--dry-run=server") // an admin
	s.attempt(refused, "--dry-run=server", "--as="+user)
	s.attempt([]attempt{
		{"that is an approval", "", status(`{"currentStepState":"Completed"}`)},
		{"that changes nothing", "", status(`{"currentStepState":"Blocking"}`)},
		{"that is no status", "", "annotate br/web note=hello"},
		{"that is no status", "", `patch br/web --type=merge -p {"spec":{"paused":true}}`},
	}, "--dry-run=server", "--as="+user)
	s.attempt([]attempt{{"it is the controller", "", status(`{"currentStepIndex":1}`)}}, "--dry-run=server", "--as="+s.c.Controller.Impersonate.UserName)

	for _, as := range []rest.ImpersonationConfig{
		{UserName: user},
		{UserName: "admin", Groups: []string{"system:masters"}, Extra: map[string][]string{v1alpha1.ExtraController: {"true"}}},
	} {
		config := rest.CopyConfig(s.c.Config)
		config.Impersonate = as
		c, err := client.New(config, client.Options{Scheme: s.c.Scheme})
		s.must(err)
		br := s.release()
		patch := client.MergeFromWithOptions(br.DeepCopy(), client.MergeFromWithOptimisticLock{})
		br.Status.CurrentStepState = v1alpha1.StepCompleted
		if as.Extra != nil {
			br.Status.OpenedReplicas = nil
		}
		if err := c.Status().Patch(t.Context(), br, patch, client.DryRunAll); err != nil {
			t.Errorf("as %s: %v", as.UserName, err)
		}
	}
}

// A user without the right to patch the Deployment can make no plan for it. Such a user
// cannot change what the controller writes to it either, with a template or without.
func TestPlanNeedsTheRightToPatch(t *testing.T) {
	t.Parallel()
	c := clustertest.Shared(t)
	s := &env{T: t, c: c, ns: c.Namespace(t)}
	s.kubectl("create", "role", "releases", "-n", s.ns, "--resource=batchreleases", "--verb=get,create,patch,delete")
	helper := s.account("helper", "--role=releases")
	clustertest.Wait(t, "the helper's rights", func() error {
		out, err := s.c.Kubectl(t, "auth", "can-i", "create", "batchreleases", "-n", s.ns, "--as="+helper)
		if err != nil {
			return fmt.Errorf("%w: %s", err, out)
		}
		return nil
	})
	const refused = "may not patch Deployment"
	plan := `{"apiVersion":"tranche.dev/v1alpha1","kind":"BatchRelease","metadata":{"name":"another"},"spec":{` +
		`"workloadRef":{"name":"web"},"deploymentStrategy":{"type":"RollingUpdate","rollingUpdate":{"maxUnavailable":"100%"}},"strategy":{"steps":[{"replicas":"100%"}]}}}`
	for _, manifest := range []string{plan, strings.Replace(plan, `"deploymentStrategy"`, `"template":{"spec":{}},"deploymentStrategy"`, 1)} {
		if out, err := s.c.KubectlWith(t, manifest, "create", "-n", s.ns, "--as="+helper, "--dry-run=server", "-f", "-"); err == nil || !strings.Contains(out, refused) {
			t.Errorf("a plan of the helper's: %v: %s", err, out)
		}
		if out, err := s.c.KubectlWith(t, manifest, "create", "-n", s.ns, "--dry-run=server", "-f", "-"); err != nil {
			t.Errorf("a plan of an admin's: %v: %s", err, out)
		}
	}
	s.plan("1", "100%")
	s.edit(func(spec *v1alpha1.BatchReleaseSpec) { spec.Template = nil })
	merge := func(spec string) string { return `patch br/web --type=merge -p {"spec":` + spec + `}` }
	const analysis = `{"strategy":{"analysis":{"metrics":[{"name":"errors","interval":"10s","condition":"body.a==1",` +
		`"web":{"url":"https://example.org/","secretRef":{"name":"db"}}}]}}}`
	attempts := []attempt{
		{"it is written to the Deployment at hand-back", refused, merge(`{"deploymentStrategy":{"type":"RollingUpdate","rollingUpdate":{"maxUnavailable":"100%"}}}`)},
		{"it may be an account with more rights", refused, merge(`{"serviceAccountName":"default"}`)},
		{"it is written to the Deployment", refused, merge(`{"template":{"spec":{"hostNetwork":true}}}`)},
		{"it would read a Secret as the account", refused, merge(analysis)},
		{"that is how a release goes on", "", merge(`{"paused":true}`)},
		{"that is how a release goes on", "", merge(`{"strategy":{"steps":[{"replicas":"100%"}]}}`)},
		{"that is how a release goes on", "", merge(`{"approval":{"revision":"5c66667f6","step":0}}`)},
		{"it says nothing of what is written", "", "annotate br/web note=hello"},
	}
	s.attempt(attempts, "--dry-run=server", "--as="+helper)
	s.edit(func(spec *v1alpha1.BatchReleaseSpec) {
		spec.Template, spec.ServiceAccountName = ptr.To(template("web", "v1")), "default"
		spec.DeploymentStrategy = &appsv1.DeploymentStrategy{Type: appsv1.RollingUpdateDeploymentStrategyType}
	})
	s.attempt([]attempt{
		{"hand-back would take what it finds", refused, merge(`{"deploymentStrategy":null}`)},
		{"it may be an account with more rights", refused, merge(`{"serviceAccountName":null}`)},
		{"without a template the plan still governs", refused, merge(`{"template":null}`)},
	}, "--dry-run=server", "--as="+helper)
	s.attempt([]attempt{{"an admin may", "", merge(analysis)}})
	s.attempt([]attempt{
		{"it would read another Secret", refused, merge(strings.Replace(analysis, `"db"`, `"other"`, 1))},
		{"the verdict would be another", refused, merge(`{"strategy":{"analysis":null}}`)},
		{"that is how a release goes on", "", merge(`{"strategy":{"steps":[{"replicas":"50%"},{"replicas":"100%"}]}}`)},
	}, "--dry-run=server", "--as="+helper)
}

// The expressions of config/policy fit the kinds that they are evaluated on. A wrong
// field would be an error of every request, or none at all.
func TestPolicyExpressions(t *testing.T) {
	t.Parallel()
	c := clustertest.Shared(t)
	for _, name := range []string{"tranche-held-deployments", "tranche-held-replicasets", "tranche-labelled-replicasets",
		"tranche-replicaset-templates", "tranche-replicaset-status",
		"tranche-batchreleases", "tranche-batchreleases-of-git", "tranche-batchrelease-status"} {
		var policy admissionv1.ValidatingAdmissionPolicy
		clustertest.Wait(t, "the check of policy "+name, func() error {
			if err := c.Client.Get(t.Context(), client.ObjectKey{Name: name}, &policy); err != nil {
				return err
			}
			if policy.Status.TypeChecking == nil || policy.Status.ObservedGeneration != policy.Generation {
				return errors.New("not checked yet")
			}
			return nil
		})
		for _, w := range policy.Status.TypeChecking.ExpressionWarnings {
			t.Errorf("policy %s: %s: %s", name, w.FieldRef, w.Warning)
		}
	}
}
