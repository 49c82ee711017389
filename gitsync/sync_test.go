package gitsync_test

import (
	"errors"
	"fmt"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/intstr"
	"k8s.io/client-go/rest"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/controller/controllerutil"

	"github.com/tranche-dev/tranche/plan/v1alpha1"
	"github.com/tranche-dev/tranche/rollout/clustertest"
)

// in is the same env for a subtest.
func (s *env) in(t *testing.T) *env {
	c := *s
	c.T = t
	return &c
}

func owners(o client.Object, field string) string {
	var list []string
	for _, e := range o.GetManagedFields() {
		if e.Subresource == "" && e.FieldsV1 != nil && strings.Contains(e.FieldsV1.GetRawString(), `"f:`+field+`"`) {
			list = append(list, e.Manager+"/"+string(e.Operation))
		}
	}
	return strings.Join(list, " ")
}

// A governed Deployment is installed whole. From then on its template reaches the
// BatchRelease and not the Deployment. Fields that leave the rest of the manifest
// leave the Deployment.
func TestFirstInstallAndTemplateChange(t *testing.T) {
	t.Parallel()
	s := newEnv(t, gitsyncOnly)
	first := s.push(map[string]string{"deploy/web.yaml": web("v1"), "deploy/release.yaml": webPlan})
	s.source()
	s.applied(first)
	d := s.deployment("web")
	if d.Spec.Paused || d.Labels[v1alpha1.LabelHeld] != "" || d.Labels[v1alpha1.LabelSource] != "" || d.Spec.Template.Labels[v1alpha1.LabelSource] != "" {
		t.Errorf("installed as %+v %+v", d.ObjectMeta, d.Spec)
	}
	if got := owners(d, "template"); got != "tranche-rollout/Apply" {
		t.Errorf("the template is %s's", got)
	}
	if got := owners(d, "replicas"); got != "tranche-gitsync/Apply" {
		t.Errorf("replicas is %s's", got)
	}
	br := s.release("web")
	if br.Spec.Commit != first || br.Spec.Template.Spec.Containers[0].Image != "registry.example.org/web:v1" {
		t.Errorf("%+v", br.Spec)
	}
	if len(br.Spec.Template.Spec.RestartPolicy) > 0 {
		t.Error("the template has the API server's defaults")
	}

	second := s.push(map[string]string{"deploy/web.yaml": web("v2", ", team: shop", "", "replicas: 2", "replicas: 3")})
	s.applied(second)
	d = s.deployment("web")
	if image := d.Spec.Template.Spec.Containers[0].Image; image != "registry.example.org/web:v1" {
		t.Errorf("the Deployment has %s", image)
	}
	if *d.Spec.Replicas != 3 {
		t.Errorf("replicas is %d", *d.Spec.Replicas)
	}
	if _, ok := d.Labels["team"]; ok {
		t.Error("a label that left Git is still there")
	}
	br = s.release("web")
	if br.Spec.Commit != second || br.Spec.Template.Spec.Containers[0].Image != "registry.example.org/web:v2" {
		t.Errorf("%+v", br.Spec)
	}
	third := s.push(map[string]string{"README.md": "more\n"})
	s.applied(third)
	if br := s.release("web"); br.Spec.Commit != second {
		t.Errorf("a docs commit became the release's: %s", br.Spec.Commit)
	}
}

// A plan that comes later takes the template over, and taking it away again
// gives it back; fields that leave Git really go.
func TestPlanComesAndGoes(t *testing.T) {
	t.Parallel()
	s := newIdleEnv(t)
	stop := s.startController(andRollout)
	t.Cleanup(func() { stop() })
	first := s.push(map[string]string{"deploy/web.yaml": web("v1")})
	s.source()
	s.applied(first)
	if got := owners(s.deployment("web"), "template"); got != "tranche-gitsync/Apply" {
		t.Errorf("the template is %s's", got)
	}
	s.applied(s.push(map[string]string{"deploy/release.yaml": webPlan}))
	if got := owners(s.deployment("web"), "template"); got != "tranche-rollout/Apply" {
		t.Errorf("the template is %s's", got)
	}
	s.push(map[string]string{"deploy/web.yaml": web("v2")})
	clustertest.Wait(t, "the hold", func() error {
		if d := s.deployment("web"); d.Labels[v1alpha1.LabelHeld] == "" || d.Spec.Template.Spec.Containers[0].Image != "registry.example.org/web:v2" {
			return fmt.Errorf("%v", d.Spec)
		}
		return nil
	})
	// Plan gone in the middle of the release: it is rollout that hands back.
	stop()
	stop = s.startController(gitsyncOnly)
	gone := s.push(map[string]string{"deploy/release.yaml": ""})
	s.refused(gone, "WaitingForHandBack")
	s.isGone("web", &v1alpha1.BatchRelease{})
	s.lookNow()
	if d := s.deployment("web"); d.Labels[v1alpha1.LabelHeld] == "" || !d.Spec.Paused {
		t.Errorf("taken from under rollout: %+v", d.Spec)
	}
	stop()
	stop = s.startController(andRollout)
	s.applied(gone)
	d := s.deployment("web")
	if d.Labels[v1alpha1.LabelHeld] != "" || d.Spec.Paused || d.Spec.Strategy.Type != appsv1.RollingUpdateDeploymentStrategyType {
		t.Errorf("not handed back: %+v", d.Spec)
	}
	if got := owners(d, "template"); got != "tranche-gitsync/Apply" {
		t.Errorf("the template is %s's", got)
	}
	s.applied(s.push(map[string]string{"deploy/web.yaml": web("v2", "\n        env:\n        - {name: COLOUR, value: blue}", "")}))
	if env := s.deployment("web").Spec.Template.Spec.Containers[0].Env; len(env) > 0 {
		t.Errorf("an env var that left Git is still there: %v", env)
	}
}

func TestPrune(t *testing.T) {
	t.Parallel()
	s := newEnv(t, gitsyncOnly)
	pod := "      volumes: [{name: c, configMap: {name: used}}]\n      containers:\n"
	first := s.push(map[string]string{
		"deploy/a.yaml": configMap("a", "one"), "deploy/b.yaml": configMap("b", "one"), "deploy/used.yaml": configMap("used", "one"),
		"deploy/more.yaml": configMap("more", "one"), "deploy/most.yaml": configMap("most", "one"),
		"deploy/keep.yaml": strings.ReplaceAll(configMap("keep", "one"), "name: keep", "name: keep, annotations: {tranche.dev/prune: disabled}"),
		"deploy/web.yaml":  web("v1", "      containers:\n", pod),
	})
	s.source()
	s.applied(first)
	clustertest.Wait(t, "a ReplicaSet", func() error {
		var sets appsv1.ReplicaSetList
		s.must(s.c.Client.List(s.Context(), &sets, client.InNamespace(s.ns)))
		if len(sets.Items) == 0 {
			return fmt.Errorf("none")
		}
		return nil
	})
	s.applied(s.push(map[string]string{"deploy/b.yaml": "", "deploy/keep.yaml": "", "deploy/used.yaml": ""}))
	s.isGone("b", &corev1.ConfigMap{})
	get(s, "a", &corev1.ConfigMap{})
	get(s, "keep", &corev1.ConfigMap{})
	get(s, "used", &corev1.ConfigMap{})
	ids := fmt.Sprint(s.gs().Status.Inventory.Entries)
	if strings.Contains(ids, "_keep_") || !strings.Contains(ids, "_used_") {
		t.Errorf("the inventory is %s", ids)
	}
	if kept := s.gs().Status.Kept; len(kept) != 1 || kept[0].ID != s.ns+"_used__ConfigMap" || !strings.HasPrefix(kept[0].UsedBy, "ReplicaSet "+s.ns+"/web-") {
		t.Errorf("kept is %+v", kept)
	}
	t.Run("nothing left", func(t *testing.T) {
		s := s.in(t)
		empty := s.push(map[string]string{"deploy/a.yaml": "", "deploy/web.yaml": "", "deploy/more.yaml": "", "deploy/most.yaml": "", "deploy/README.md": "x"})
		s.refused(empty, "NothingToApply")
		get(s, "a", &corev1.ConfigMap{})
	})
	s.endSource()
	s.isGone("a", &corev1.ConfigMap{})
	s.isGone("web", &appsv1.Deployment{})
	s.isGone("used", &corev1.ConfigMap{})
	get(s, "keep", &corev1.ConfigMap{})
}

func TestWithoutPruneNothingIsDeleted(t *testing.T) {
	t.Parallel()
	s := newEnv(t, gitsyncOnly)
	first := s.push(map[string]string{"deploy/a.yaml": configMap("a", "one"), "deploy/b.yaml": configMap("b", "one")})
	s.source(func(gs *v1alpha1.GitSource) { gs.Spec.Prune = false })
	s.applied(first)
	s.applied(s.push(map[string]string{"deploy/b.yaml": ""}))
	get(s, "b", &corev1.ConfigMap{})
	if n := len(s.gs().Status.Inventory.Entries); n != 1 {
		t.Errorf("%d entries", n)
	}
	s.endSource()
	get(s, "a", &corev1.ConfigMap{})
}

func TestTargetNamespaceThatTheCommitBrings(t *testing.T) {
	s := newEnv(t, gitsyncOnly)
	other := s.ns + "-target"
	first := s.push(map[string]string{
		"deploy/ns.yaml": "apiVersion: v1\nkind: Namespace\nmetadata: {name: " + other + ", annotations: {tranche.dev/prune: enabled}}\n",
		"deploy/a.yaml":  strings.ReplaceAll(configMap("a", "one"), "name: a", "name: a, namespace: elsewhere"),
	})
	s.source(func(gs *v1alpha1.GitSource) { gs.Spec.TargetNamespace = other })
	s.applied(first)
	var cm corev1.ConfigMap
	s.must(s.c.Client.Get(t.Context(), client.ObjectKey{Namespace: other, Name: "a"}, &cm))
	s.kubectl("patch", "gsrc/shop", "--type=merge", "-p", `{"spec":{"targetNamespace":"`+s.ns+`"}}`)
	confirmEdit(s, first)
	s.at(other).isGone("a", &cm)
	get(s, "a", &cm)
}

func TestAnAccountWithoutRightsChangesNothing(t *testing.T) {
	t.Parallel()
	s := newEnv(t, gitsyncOnly)
	s.must(s.c.Client.Create(t.Context(), &corev1.ServiceAccount{ObjectMeta: metav1.ObjectMeta{Name: "tenant", Namespace: s.ns}}))
	first := s.push(map[string]string{"deploy/a.yaml": configMap("a", "one"), "deploy/web.yaml": web("v1"), "deploy/plan.yaml": webPlan})
	s.source(func(gs *v1alpha1.GitSource) { gs.Spec.ServiceAccountName = "tenant" })
	if m := s.refused(first, "Forbidden"); !strings.Contains(m, "give service account "+s.ns+"/tenant the right") {
		t.Error(m)
	}
	// With rights to some of the kinds, or not all to one, still nothing.
	s.grant("configmaps", "", "get", "create", "patch", "delete")
	s.lookNow()
	s.absent("a", &corev1.ConfigMap{})
	s.grant("deployments", "apps", "get", "create", "patch", "delete")
	s.grant("batchreleases", "tranche.dev", "get")
	s.lookNow()
	if m := s.refused(first, "Forbidden"); !strings.Contains(m, `cannot patch resource "batchreleases"`) {
		t.Error(m)
	}
	s.absent("a", &corev1.ConfigMap{})
	s.grant("batchreleases", "tranche.dev", "get", "create", "patch")
	s.lookNow()
	s.applied(first)
	if account := s.release("web").Spec.ServiceAccountName; account != "tenant" {
		t.Errorf("the release is written as %q", account)
	}
	// A plan goes as the account, too.
	gone := s.push(map[string]string{"deploy/plan.yaml": ""})
	if m := s.refused(gone, "Forbidden"); !strings.Contains(m, `cannot delete resource "batchreleases"`) {
		t.Error(m)
	}
	s.release("web")
	// That it may do so by now it finds out by itself.
	s.grant("batchreleases", "tranche.dev", "get", "create", "patch", "delete")
	s.applied(gone)
}

// grant gives the account tenant these rights to a resource, and none else.
func (s *env) grant(resource, group string, verbs ...string) {
	s.Helper()
	role := &rbacv1.Role{ObjectMeta: metav1.ObjectMeta{Name: resource, Namespace: s.ns}}
	_, err := controllerutil.CreateOrUpdate(s.Context(), s.c.Client, role, func() error {
		role.Rules = []rbacv1.PolicyRule{{APIGroups: []string{group}, Resources: []string{resource}, Verbs: verbs}}
		return nil
	})
	s.must(err)
	s.must(client.IgnoreAlreadyExists(s.c.Client.Create(s.Context(), &rbacv1.RoleBinding{
		ObjectMeta: metav1.ObjectMeta{Name: resource, Namespace: s.ns},
		RoleRef:    rbacv1.RoleRef{APIGroup: "rbac.authorization.k8s.io", Kind: "Role", Name: resource},
		Subjects:   []rbacv1.Subject{{Kind: "ServiceAccount", Name: "tenant", Namespace: s.ns}},
	})))
	s.may("tenant", verbs[len(verbs)-1], strings.TrimSuffix(resource+"."+group, "."))
}

// may waits until the API server knows of a right of an account: it learns of roles a
// moment after they are written.
func (s *env) may(account, verb, resource string) {
	s.Helper()
	clustertest.Wait(s, "the rights of "+account, func() error {
		if out, err := s.c.Kubectl(s, "auth", "can-i", verb, resource, "-n", s.ns, "--as=system:serviceaccount:"+s.ns+":"+account); err != nil {
			return errors.New(out)
		}
		return nil
	})
}

// lookNow asks for a sync of the GitSource, or of another one of the namespace, and
// waits for it.
func (s *env) lookNow(name ...string) {
	s.Helper()
	of := append(name, "shop")[0]
	gs := get(s, of, &v1alpha1.GitSource{})
	stamp := fmt.Sprint(time.Now().UnixNano())
	patch := client.MergeFrom(gs.DeepCopy())
	gs.Annotations = map[string]string{v1alpha1.AnnotationReconcile: stamp}
	s.must(s.c.Client.Patch(s.Context(), gs, patch))
	clustertest.Wait(s, "a look", func() error {
		if got := get(s, of, &v1alpha1.GitSource{}).Status.LastHandledReconcileAt; got != stamp {
			return fmt.Errorf("last handled is %q", got)
		}
		return nil
	})
}

func TestOwnedByAnother(t *testing.T) {
	t.Parallel()
	s := newEnv(t, gitsyncOnly)
	first := s.push(map[string]string{"deploy/a.yaml": configMap("a", "one")})
	s.source()
	s.applied(first)
	other := &v1alpha1.GitSource{ObjectMeta: metav1.ObjectMeta{Name: "other", Namespace: s.ns}, Spec: s.gs().Spec}
	other.Spec.Prune = false
	s.must(s.c.Client.Create(t.Context(), other))
	clustertest.Wait(t, "the refusal", func() error {
		o := get(s, "other", &v1alpha1.GitSource{})
		if !strings.Contains(said(o), "OwnedByOther") {
			return fmt.Errorf("%s", said(o))
		}
		return nil
	})
	if l := get(s, "a", &corev1.ConfigMap{}).Labels[v1alpha1.LabelSource]; l != "shop" {
		t.Errorf("it is %s's now", l)
	}
	s.must(s.c.Client.Delete(t.Context(), other))
}

func TestDriftIsUndoneAndIdleLooksWriteNothing(t *testing.T) {
	s := newEnv(t, gitsyncOnly)
	first := s.push(map[string]string{"deploy/a.yaml": configMap("a", "one"), "deploy/web.yaml": web("v1"), "deploy/release.yaml": webPlan,
		"deploy/left.yaml": strings.ReplaceAll(configMap("left", "one"), "name: left", "name: left, annotations: {tranche.dev/reconcile: disabled}")})
	s.source()
	s.applied(first)
	s.lookNow()
	versions := func() string {
		return strings.Join([]string{s.gs().Status.AppliedCommit, get(s, "a", &corev1.ConfigMap{}).ResourceVersion, s.release("web").ResourceVersion, fmt.Sprint(s.deployment("web").Generation)}, " ")
	}
	before, transition := versions(), s.gs().Status.Conditions[0].LastTransitionTime
	s.lookNow()
	if got := versions(); got != before {
		t.Errorf("an idle look wrote: %s, then %s", before, got)
	}
	if got := s.gs().Status.Conditions[0].LastTransitionTime; !got.Equal(&transition) {
		t.Errorf("an idle look changed a condition")
	}
	out, err := s.c.Kubectl(t, "patch", "-n", s.ns, "configmap", "a", "--type=merge", "-p", `{"data":{"value":"by hand"}}`, "--field-manager=intruder")
	if err != nil {
		t.Fatal(out)
	}
	s.lookNow()
	if v := get(s, "a", &corev1.ConfigMap{}).Data["value"]; v != "one" {
		t.Errorf("the drift stays: %q", v)
	}
	clustertest.Wait(t, "the event", func() error {
		want := "ConfigMap " + s.ns + "/a: data.value was changed by intruder, and is again as main@" + first[:12] + " says"
		if notes := s.events("DriftUndone"); len(notes) != 1 || notes[0] != want {
			return fmt.Errorf("%q", notes)
		}
		return nil
	})
}

// A change by another field manager is reported, too, if the next sync is one of a new
// commit.
func TestDriftIsNamedWithACommit(t *testing.T) {
	t.Parallel()
	s := newEnv(t, gitsyncOnly)
	s.source()
	s.applied(s.push(map[string]string{"deploy/a.yaml": configMap("a", "one"), "deploy/b.yaml": configMap("b", "one")}))
	if out, err := s.c.Kubectl(t, "patch", "-n", s.ns, "configmap", "a", "--type=merge", "-p", `{"data":{"value":"by hand"}}`, "--field-manager=intruder"); err != nil {
		t.Fatal(out)
	}
	s.applied(s.push(map[string]string{"deploy/b.yaml": configMap("b", "two")}))
	s.told("FieldConflict", "ConfigMap "+s.ns+`/a: other managers had other values of data.value ("intruder"`)
	if v := get(s, "a", &corev1.ConfigMap{}).Data["value"]; v != "one" {
		t.Errorf("a is %q", v)
	}
}

// An object that was deleted and created again with the same content has other managers, and
// no other values. That is no drift. A later change names the changed field alone.
func TestSameContentByAnotherManagerIsNoDrift(t *testing.T) {
	t.Parallel()
	s := newEnv(t, gitsyncOnly)
	s.source()
	commit := s.push(map[string]string{"deploy/web.yaml": web("v1"), "deploy/a.yaml": configMap("a", "one")})
	s.applied(commit)
	before := s.deployment("web").UID
	for _, object := range []string{"deployment/web", "configmap/a"} {
		out, err := s.c.Kubectl(t, "get", "-n", s.ns, object, "-o", "yaml")
		s.must(err)
		file := filepath.Join(t.TempDir(), "same.yaml")
		s.must(os.WriteFile(file, []byte(out), 0o600))
		s.kubectl("replace", "--force", "-f", file)
	}
	s.lookNow()
	d := s.deployment("web")
	if d.UID == before {
		t.Error("it is the Deployment that was there before")
	}
	if !slices.ContainsFunc(d.ManagedFields, func(e metav1.ManagedFieldsEntry) bool { return e.Manager == v1alpha1.ManagerGitSync }) {
		t.Errorf("gitsync has no field of it: %+v", d.ManagedFields)
	}
	s.kubectl("patch", "configmap/a", "--type=merge", "-p", `{"data":{"value":"by hand"}}`, "--field-manager=intruder")
	s.lookNow()
	want := "ConfigMap " + s.ns + "/a: data.value was changed by intruder, and is again as main@" + commit[:12] + " says"
	s.told("DriftUndone", want)
	if notes := s.events("DriftUndone"); len(notes) != 1 {
		t.Errorf("the events are %q", notes)
	}
}

// An object that another path brings was not taken away by any client.
func TestAnotherPathIsNoDrift(t *testing.T) {
	t.Parallel()
	s := newEnv(t, gitsyncOnly)
	s.source()
	s.applied(s.push(map[string]string{
		"deploy/a.yaml": configMap("a", "one"), "deploy/web.yaml": web("v1"), "deploy/release.yaml": webPlan,
		"more/a.yaml": configMap("a", "one") + "immutable: false\n", "more/b.yaml": configMap("b", "one"), "more/web.yaml": web("v1"), "more/release.yaml": webPlan,
	}))
	gs := s.gs()
	gs.Spec.WriteBack = &v1alpha1.WriteBack{Enabled: true, Branch: "review"}
	gs.Spec.Path = "more"
	s.write(gs)
	clustertest.Wait(t, "the other path", func() error {
		return s.c.Client.Get(t.Context(), client.ObjectKey{Namespace: s.ns, Name: "b"}, &corev1.ConfigMap{})
	})
	s.lookNow()
	if notes := s.events("DriftUndone"); len(notes) > 0 {
		t.Errorf("told of drift: %q", notes)
	}
	s.kubectl("delete", "configmap/b")
	s.lookNow()
	s.told("DriftUndone", "ConfigMap "+s.ns+"/b was deleted")
}

// An object that is deleted between the read and the apply comes back with the apply,
// and an event says that it was deleted.
func TestDriftIsNamed_DeletedBeforeTheApply(t *testing.T) {
	t.Parallel()
	s := newIdleEnv(t)
	var deletes atomic.Bool
	config := rest.CopyConfig(s.c.Controller)
	config.Wrap(func(next http.RoundTripper) http.RoundTripper {
		return roundTripper(func(r *http.Request) (*http.Response, error) {
			if r.Method == http.MethodPatch && strings.HasSuffix(r.URL.Path, "/configmaps/a") && !r.URL.Query().Has("dryRun") && deletes.CompareAndSwap(true, false) {
				s.kubectl("delete", "configmap/a")
			}
			return next.RoundTrip(r)
		})
	})
	t.Cleanup(s.startControllerWith(config, gitsyncOnly))
	s.source()
	commit := s.push(map[string]string{"deploy/a.yaml": configMap("a", "one")})
	s.applied(commit)
	deletes.Store(true)
	s.kubectl("patch", "configmap/a", "--type=merge", "-p", `{"data":{"value":"by hand"}}`)
	s.lookNow()
	if v := get(s, "a", &corev1.ConfigMap{}).Data["value"]; deletes.Load() || v != "one" {
		t.Errorf("a is %q, deleted: %t", v, !deletes.Load())
	}
	s.told("DriftUndone", "ConfigMap "+s.ns+"/a was deleted, and is again as main@"+commit[:12]+" says")
}

// A change by other clients to a Deployment with a plan is reverted at once, and not
// when the interval is over. An autoscaler's is not.
func TestDriftOfAGovernedDeploymentIsWatched(t *testing.T) {
	t.Parallel()
	s := newEnv(t, gitsyncOnly)
	s.source()
	s.applied(s.push(map[string]string{"deploy/web.yaml": web("v1"), "deploy/release.yaml": webPlan}))
	undone := func(what string, is func(*appsv1.Deployment) bool) {
		t.Helper()
		clustertest.Wait(t, what, func() error {
			var d appsv1.Deployment
			if err := s.c.Client.Get(t.Context(), client.ObjectKey{Namespace: s.ns, Name: "web"}, &d); err != nil {
				return err
			}
			if !is(&d) {
				return fmt.Errorf("%v, %+v", d.Labels, d.Spec)
			}
			return nil
		})
	}
	s.kubectl("scale", "deployment/web", "--replicas=5")
	s.told("DriftUndone", "Deployment "+s.ns+"/web: spec.replicas was changed by kubectl")
	undone("Git's replicas", func(d *appsv1.Deployment) bool { return *d.Spec.Replicas == 2 })
	s.kubectl("label", "deployment/web", "team=hand", "--overwrite")
	undone("Git's label", func(d *appsv1.Deployment) bool { return d.Labels["team"] == "shop" })
	s.kubectl("delete", "deployment/web")
	undone("the Deployment", func(*appsv1.Deployment) bool { return true })

	s.applied(s.push(map[string]string{"deploy/hpa.yaml": autoscaler("web", "v2")}))
	s.kubectl("scale", "deployment/web", "--replicas=4")
	s.kubectl("label", "deployment/web", "team=hand", "--overwrite")
	undone("Git's label, and not the autoscaler's replicas", func(d *appsv1.Deployment) bool { return d.Labels["team"] == "shop" && *d.Spec.Replicas == 4 })

	s.applied(s.push(map[string]string{"deploy/hpa.yaml": "", "deploy/web.yaml": web("v1", "  replicas: 2\n", "")}))
	s.kubectl("scale", "deployment/web", "--replicas=3")
	s.kubectl("label", "deployment/web", "team=hand", "--overwrite")
	undone("Git's label, and the user's replicas where Git has none", func(d *appsv1.Deployment) bool { return d.Labels["team"] == "shop" && *d.Spec.Replicas == 3 })
	s.lookNow()
	undone("the user's replicas after a sync", func(d *appsv1.Deployment) bool { return *d.Spec.Replicas == 3 })
}

// Fields and objects that other clients removed, scaled and deleted are there again,
// and an event names each field and the manager. They did it while no controller was
// there.
func TestDriftIsNamed(t *testing.T) {
	t.Parallel()
	s := newIdleEnv(t)
	stop := s.startController(gitsyncOnly)
	t.Cleanup(func() { stop() })
	first := s.push(map[string]string{"deploy/a.yaml": configMap("a", "one"), "deploy/b.yaml": configMap("b", "one"), "deploy/web.yaml": web("v1")})
	s.source()
	s.applied(first)
	stop()
	for _, args := range [][]string{
		{"patch", "configmap", "a", "--type=json", "-p", `[{"op":"remove","path":"/data/value"}]`},
		{"delete", "configmap", "b"},
		{"scale", "deployment", "web", "--replicas=1"},
		{"set", "image", "deployment/web", "web=registry.example.org/web:v2", "--field-manager=intruder"},
	} {
		if out, err := s.c.Kubectl(t, append([]string{"-n", s.ns}, args...)...); err != nil {
			t.Fatal(out)
		}
	}
	stop = s.startController(gitsyncOnly)
	s.lookNow()
	if v := get(s, "a", &corev1.ConfigMap{}).Data["value"]; v != "one" {
		t.Errorf("value is %q", v)
	}
	get(s, "b", &corev1.ConfigMap{})
	if d := s.deployment("web"); *d.Spec.Replicas != 2 || d.Spec.Template.Spec.Containers[0].Image != "registry.example.org/web:v1" {
		t.Errorf("%+v", d.Spec)
	}
	clustertest.Wait(t, "the events", func() error {
		notes := strings.Join(s.events("DriftUndone"), "\n")
		for _, want := range []string{
			"ConfigMap " + s.ns + "/a: data.value was removed",
			"ConfigMap " + s.ns + "/b was deleted",
			"Deployment " + s.ns + "/web: ", "spec.replicas was changed by kubectl", `spec.template.spec.containers[name="web"].image was changed by intruder`,
		} {
			if !strings.Contains(notes, want) {
				return fmt.Errorf("%q is not in %s", want, notes)
			}
		}
		return nil
	})
}

// Objects that others need are written before them, whatever the names of the files.
func TestOrder(t *testing.T) {
	t.Parallel()
	s := newIdleEnv(t)
	requests := &ledger{}
	t.Cleanup(s.startControllerWith(requests.config(s.c.Config), gitsyncOnly))
	s.applied2(s.push(map[string]string{
		"deploy/1.yaml": webPlan, "deploy/2.yaml": autoscaler("web", "v2"), "deploy/3.yaml": web("v1"), "deploy/4.yaml": service("web"), "deploy/5.yaml": configMap("web", "one"),
		"deploy/6.yaml": "apiVersion: v1\nkind: ServiceAccount\nmetadata: {name: web}\n",
	}))
	want := []string{"serviceaccounts", "configmaps", "services", "deployments", "horizontalpodautoscalers", "batchreleases"}
	var got []string
	list, _ := requests.since(0)
	for _, r := range list {
		if path, ok := strings.CutSuffix(r, "/web"); ok && strings.HasPrefix(r, "PATCH ") {
			kind := path[strings.LastIndex(path, "/")+1:]
			got = append(slices.DeleteFunc(got, func(k string) bool { return k == kind }), kind) // of all attempts, the last
		}
	}
	if !slices.Equal(got, want) {
		t.Errorf("written are %s, want %s", got, want)
	}
}

func TestApprovalReachesTheRelease(t *testing.T) {
	t.Parallel()
	s := newEnv(t, gitsyncOnly)
	approval := func(commit, step string) string {
		return "apiVersion: tranche.dev/v1alpha1\nkind: BatchApproval\nmetadata: {name: web}\nspec: {revision: abc, commit: \"" + commit + "\", step: " + step + "}\n"
	}
	first := s.push(map[string]string{"deploy/web.yaml": web("v1"), "deploy/release.yaml": webPlan})
	s.source()
	s.applied(first)
	s.repo.Author = "Grace Example <grace@example.org>"
	second := s.push(map[string]string{"deploy/approvals/web.yaml": approval(first[:8], "0")})
	s.applied(second)
	want := v1alpha1.Approval{Revision: "abc", Commit: first, Step: 0, ApprovedBy: "Grace Example <grace@example.org>", ApprovedIn: second, Steps: []intstr.IntOrString{intstr.FromInt32(1), full}}
	if diff := cmp.Diff(&want, s.release("web").Spec.Approval); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
	third := s.push(map[string]string{"deploy/approvals/web.yaml": approval("0123456", "0")})
	s.applied(third)
	if got := s.release("web").Spec.Approval; got != nil {
		t.Errorf("%+v stays", got)
	}
	if m := said(s.gs()); !strings.Contains(m, "InSync=False ApprovalIgnored: deploy/approvals/web.yaml") {
		t.Error(m)
	}
	s.lookNow()
	clustertest.Wait(t, "the event", func() error {
		if n := len(s.events("ApprovalIgnored")); n != 1 {
			return fmt.Errorf("%d events", n)
		}
		return nil
	})
}

// A plan goes when its source does, or when it leaves the branch, with spec.prune or
// without. The Deployment is handed back at once, and the native controller finishes
// what Git says.
func TestPlansGoWithoutPrune(t *testing.T) {
	t.Parallel()
	unpruned := func(gs *v1alpha1.GitSource) { gs.Spec.Prune = false }
	for name, remove := range map[string]func(*env){
		"source deleted":  func(s *env) { s.endSource() },
		"plan has left":   func(s *env) { s.applied(s.push(map[string]string{"deploy/plan.yaml": ""})) },
		"on the way back": func(s *env) { s.rollBack("web"); s.endSource() },
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s := newRelease(t, unpruned)
			remove(s)
			s.isGone("web", &v1alpha1.BatchRelease{})
			clustertest.Wait(s, "the native controller to finish", func() error {
				d := s.deployment("web")
				if d.Spec.Paused || d.Labels[v1alpha1.LabelHeld] != "" || d.Status.ObservedGeneration != d.Generation ||
					d.Status.UpdatedReplicas != *d.Spec.Replicas || d.Status.Replicas != *d.Spec.Replicas || d.Status.AvailableReplicas != *d.Spec.Replicas {
					return fmt.Errorf("paused=%t labels=%v status=%+v", d.Spec.Paused, d.Labels, d.Status)
				}
				return nil
			})
			if image := s.deployment("web").Spec.Template.Spec.Containers[0].Image; name != "on the way back" && !strings.HasSuffix(image, ":v2") {
				t.Errorf("what runs is %s", image)
			}
		})
	}
}
