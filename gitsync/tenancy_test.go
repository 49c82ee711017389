package gitsync_test

import (
	"context"
	"encoding/json"
	"fmt"
	"maps"
	"os"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	eventsv1 "k8s.io/api/events/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/tranche-dev/tranche/gitsync"
	"github.com/tranche-dev/tranche/gitsync/gittest"
	"github.com/tranche-dev/tranche/plan/v1alpha1"
	"github.com/tranche-dev/tranche/rollout/clustertest"
)

// tenancy is a tenant's namespace, whose GitSource is applied as an account that
// is admin there and has no rights elsewhere, and another tenant's namespace.
type tenancy struct {
	*env
	other  string
	commit string // that is applied
}

// secret is in what the other tenant has, and must be in nothing that the
// first one gets to see.
const secret = "8c1f-do-not-tell"

func newTenancy(t *testing.T) *tenancy {
	t.Helper()
	s := &tenancy{env: newIdleEnv(t)}
	s.other = s.c.Namespace(t)
	s.admin("tenant")
	s.t(s.c.KubectlWith(t, theirs, "apply", "-n", s.other, "-f", "-"))
	t.Cleanup(s.startManager(s.c.Controller, func(mgr ctrl.Manager) error {
		return gitsync.Add(mgr, gitsync.Options{Renderer: renderers(), StorageDir: t.TempDir(), Concurrent: 2, NoRemoteBases: true, FileRoots: []string{os.TempDir()}, DefaultServiceAccount: "nobody"})
	}))
	s.commit = s.push(map[string]string{"deploy/a.yaml": configMap("a", "one")})
	s.source(func(gs *v1alpha1.GitSource) { gs.Spec.ServiceAccountName = "tenant" })
	s.applied(s.commit)
	return s
}

// theirs is what the other tenant has.
const theirs = `{apiVersion: v1, kind: ConfigMap, metadata: {name: settings}, data: {value: ` + secret + `}}
---
{apiVersion: v1, kind: Secret, metadata: {name: token}, stringData: {value: ` + secret + `}}
---
apiVersion: apps/v1
kind: Deployment
metadata: {name: web}
spec:
  replicas: 0
  selector: {matchLabels: {app: web}}
  template:
    metadata: {labels: {app: web}}
    spec: {containers: [{name: web, image: "registry.example.org/` + secret + `:v1"}]}
---
apiVersion: tranche.dev/v1alpha1
kind: BatchRelease
metadata: {name: web}
spec:
  workloadRef: {name: web}
  strategy: {steps: [{replicas: 1}, {replicas: 100%}]}
  commit: 3f2c1e0a9b8c7d6e5f4a3b2c1d0e9f8a7b6c5d4e
`

// t fails the test where kubectl did.
func (s *env) t(out string, err error) {
	s.Helper()
	if err != nil {
		s.Fatalf("%v: %s", err, out)
	}
}

// admin makes a service account that is admin of the namespace.
func (s *env) admin(name string) {
	s.Helper()
	s.t(s.c.Kubectl(s, "create", "serviceaccount", name, "-n", s.ns))
	s.t(s.c.Kubectl(s, "create", "rolebinding", name, "-n", s.ns, "--clusterrole=admin", "--serviceaccount="+s.ns+":"+name))
	s.may(name, "create", "gitsources.tranche.dev") // aggregated by a controller
}

func (s *tenancy) in(t *testing.T) *tenancy { return &tenancy{s.env.in(t), s.other, s.commit} }

// kinds are those of which [tenancy.state] tells.
var kinds = []schema.GroupVersionKind{
	{Version: "v1", Kind: "Namespace"}, {Version: "v1", Kind: "ConfigMap"}, {Version: "v1", Kind: "Secret"}, {Version: "v1", Kind: "Service"},
	{Group: "apps", Version: "v1", Kind: "Deployment"},
	{Group: "rbac.authorization.k8s.io", Version: "v1", Kind: "Role"}, {Group: "rbac.authorization.k8s.io", Version: "v1", Kind: "RoleBinding"},
	{Group: "rbac.authorization.k8s.io", Version: "v1", Kind: "ClusterRole"}, {Group: "rbac.authorization.k8s.io", Version: "v1", Kind: "ClusterRoleBinding"},
	v1alpha1.GroupVersion.WithKind("BatchRelease"), v1alpha1.GroupVersion.WithKind("GitSource"),
}

// state is all that the API server has in both namespaces, and what beyond them is
// of this test, without what other controllers write.
func (s *tenancy) state() map[string]string {
	s.Helper()
	state := map[string]string{}
	for _, kind := range kinds {
		list := &unstructured.UnstructuredList{}
		list.SetGroupVersionKind(kind.GroupVersion().WithKind(kind.Kind + "List"))
		s.must(s.c.Client.List(s.Context(), list))
		for _, u := range list.Items {
			mine := u.GetNamespace() == s.ns || u.GetNamespace() == s.other || u.GetNamespace() == "" && (u.GetName() == s.ns || strings.HasPrefix(u.GetName(), s.ns+"-") || u.GetName() == s.other)
			if !mine || u.GetName() == "kube-root-ca.crt" {
				continue
			}
			annotations := map[string]string{}
			maps.Copy(annotations, u.GetAnnotations())
			delete(annotations, v1alpha1.AnnotationReconcile)
			delete(annotations, "deployment.kubernetes.io/revision")
			u.Object["metadata"] = map[string]any{"uid": u.GetUID(), "labels": u.GetLabels(), "annotations": annotations, "name": u.GetName(), "namespace": u.GetNamespace()}
			delete(u.Object, "status")
			raw, err := json.Marshal(u.Object)
			s.must(err)
			state[u.GetKind()+" "+u.GetNamespace()+"/"+u.GetName()] = string(raw)
		}
	}
	return state
}

// unchanged compares with an earlier state, and looks for the secret in what
// the tenant can read.
func (s *tenancy) unchanged(before map[string]string) {
	s.Helper()
	if diff := cmp.Diff(before, s.state()); diff != "" {
		s.Errorf("something was written (-before +after):\n%s", diff)
	}
	var events eventsv1.EventList
	s.must(s.c.Client.List(s.Context(), &events, client.InNamespace(s.ns)))
	seen := []string{said(s.gs())}
	for _, e := range events.Items {
		seen = append(seen, e.Note)
	}
	if i := slices.IndexFunc(seen, func(m string) bool { return strings.Contains(m, secret) }); i >= 0 {
		s.Errorf("it tells what the account may not read: %s", seen[i])
	}
}

// refuses commits files on top of what is applied, together with a change that is
// allowed. Nothing of it may be applied, and the message has to say all this.
func (s *tenancy) refuses(files map[string]string, reason string, says ...string) {
	s.Helper()
	before := s.state()
	s.repo.Git("checkout", "-q", s.commit)
	s.repo.Git("checkout", "-q", "-B", "main")
	all := map[string]string{"deploy/a.yaml": configMap("a", "changed")}
	for name, content := range files {
		all[name] = strings.NewReplacer("OTHER", s.other, "MINE", s.ns).Replace(content)
	}
	bad := s.repo.Commit(all, s.Name()) // one commit of its own for each try
	s.repo.Push("--force")
	message := s.refused(bad, reason)
	for _, want := range says {
		if want = strings.NewReplacer("OTHER", s.other, "MINE", s.ns).Replace(want); !strings.Contains(message, want) {
			s.Errorf("%q is not in %q", want, message)
		}
	}
	s.unchanged(before)
}

// A tenant's commit is applied with the tenant's rights and no others. A refused
// commit is refused whole, and the message says which account lacks which right on
// which object. (That a symbolic link leads nowhere outside of the repository is in
// TestCorpusOfErrors.)
func TestATenantStaysInside(t *testing.T) {
	t.Parallel()
	s := newTenancy(t)
	const account, hint = `User "system:serviceaccount:MINE:tenant" cannot `, "give service account MINE/tenant the right"
	rbac := func(kind, metadata, rest string) string {
		return "apiVersion: rbac.authorization.k8s.io/v1\nkind: " + kind + "\nmetadata: {" + metadata + "}\n" + rest + "\n"
	}
	const everything = `rules: [{apiGroups: ["*"], resources: ["*"], verbs: ["*"]}]`
	const toClusterAdmin = "roleRef: {apiGroup: rbac.authorization.k8s.io, kind: ClusterRole, name: cluster-admin}\nsubjects: [{kind: ServiceAccount, name: tenant, namespace: MINE}]"
	const there = "  name: web\n  namespace: OTHER\n"
	for name, tt := range map[string]struct {
		files  map[string]string
		reason string
		says   []string
	}{
		"an object in another namespace": {
			map[string]string{"deploy/b.yaml": configMap("b, namespace: OTHER", "two")}, "Forbidden",
			[]string{"deploy/b.yaml: ConfigMap OTHER/b", account + `get resource "configmaps" in API group "" in the namespace "OTHER"`, hint},
		},
		"another's ConfigMap": {
			map[string]string{"deploy/b.yaml": configMap("settings, namespace: OTHER", "mine")}, "Forbidden",
			[]string{"ConfigMap OTHER/settings", account + `get resource "configmaps"`, hint},
		},
		"another's Secret, immutable fields and all": {
			map[string]string{"deploy/b.yaml": "apiVersion: v1\nkind: Secret\ntype: example.org/other\nmetadata: {name: token, namespace: OTHER, annotations: {tranche.dev/force: \"true\"}}\n"}, "Forbidden",
			[]string{"Secret OTHER/token", account + `get resource "secrets"`, hint},
		},
		"another's Deployment": {
			map[string]string{"deploy/web.yaml": web("v1", "  name: web\n  labels", there+"  labels")}, "Forbidden",
			[]string{"Deployment OTHER/web", account + `get resource "deployments" in API group "apps" in the namespace "OTHER"`, hint},
		},
		"another's Deployment under a plan": {
			map[string]string{"deploy/web.yaml": web("v1", "  name: web\n  labels", there+"  labels"), "deploy/plan.yaml": strings.ReplaceAll(webPlan, "{name: web}\nspec", "{name: web, namespace: OTHER}\nspec")}, "Forbidden",
			[]string{"Deployment OTHER/web", account + `get resource "deployments"`, hint},
		},
		"a plan here for a Deployment there": {
			map[string]string{"deploy/web.yaml": web("v1", "  name: web\n  labels", there+"  labels"), "deploy/plan.yaml": webPlan}, "InvalidPlan",
			[]string{"BatchRelease MINE/web", "no Deployment"},
		},
		"another's namespace": {
			map[string]string{"deploy/ns.yaml": "apiVersion: v1\nkind: Namespace\nmetadata: {name: OTHER, labels: {mine: \"true\"}}\n", "deploy/b.yaml": configMap("b, namespace: OTHER", "two")}, "Forbidden",
			[]string{"Namespace OTHER", account + `get resource "namespaces"`, hint},
		},
		"a GitSource there": {
			map[string]string{"deploy/gs.yaml": "apiVersion: tranche.dev/v1alpha1\nkind: GitSource\nmetadata: {name: mine, namespace: OTHER}\nspec: {url: \"https://git.example.org/mine\", serviceAccountName: default}\n"}, "Forbidden",
			[]string{"GitSource OTHER/mine", account + `get resource "gitsources" in API group "tranche.dev"`, hint},
		},
		"a ClusterRole": {
			map[string]string{"deploy/b.yaml": rbac("ClusterRole", "name: MINE-all", everything)}, "Forbidden",
			[]string{"ClusterRole MINE-all", account + `get resource "clusterroles"`, hint},
		},
		"a ClusterRoleBinding": {
			map[string]string{"deploy/b.yaml": rbac("ClusterRoleBinding", "name: MINE-all", toClusterAdmin)}, "Forbidden",
			[]string{"ClusterRoleBinding MINE-all", account + `get resource "clusterrolebindings"`, hint},
		},
		"a RoleBinding to cluster-admin": {
			map[string]string{"deploy/b.yaml": rbac("RoleBinding", "name: all", toClusterAdmin)}, "Forbidden",
			[]string{"RoleBinding MINE/all", `user "system:serviceaccount:MINE:tenant"`, "is attempting to grant RBAC permissions not currently held"},
		},
		"a Role with rights that the account has not": {
			map[string]string{"deploy/b.yaml": rbac("Role", "name: all", everything)}, "Forbidden",
			[]string{"Role MINE/all", `user "system:serviceaccount:MINE:tenant"`, "is attempting to grant RBAC permissions not currently held"},
		},
	} {
		t.Run(name, func(t *testing.T) { s.in(t).refuses(tt.files, tt.reason, tt.says...) })
	}
	t.Run("a namespace that is there, and of which only the labels may be changed", func(t *testing.T) {
		s := s.in(t)
		s.t(s.c.Kubectl(t, "create", "role", "labels", "-n", s.ns, "--verb=get,patch", "--resource=namespaces"))
		s.t(s.c.Kubectl(t, "create", "rolebinding", "labels", "-n", s.ns, "--role=labels", "--serviceaccount="+s.ns+":tenant"))
		s.may("tenant", "patch", "namespaces/"+s.ns)
		s.refuses(map[string]string{"deploy/ns.yaml": "apiVersion: v1\nkind: Namespace\nmetadata: {name: MINE, labels: {mine: \"true\"}}\n", "deploy/b.yaml": rbac("RoleBinding", "name: all", toClusterAdmin)},
			"Forbidden", "RoleBinding MINE/all")
	})
	t.Run("targetNamespace", func(t *testing.T) {
		s := s.in(t)
		s.edit(func(gs *v1alpha1.GitSource) { gs.Spec.TargetNamespace = s.other })
		s.refuses(nil, "Forbidden", "ConfigMap OTHER/a", account+`get resource "configmaps"`, hint)
		s.edit(func(gs *v1alpha1.GitSource) { gs.Spec.TargetNamespace = "" })
	})
	t.Run("a repository on the controller's disk", func(t *testing.T) {
		s := s.in(t)
		s.edit(func(gs *v1alpha1.GitSource) { gs.Spec.URL = "file:///var/lib/other.git" })
		before := s.state()
		s.refused(s.gs().Status.ObservedCommit, "InvalidURL")
		s.unchanged(before)
		s.edit(func(gs *v1alpha1.GitSource) { gs.Spec.URL = s.repo.URL() })
	})
	t.Run("an approval of another's release", func(t *testing.T) {
		s := s.in(t)
		s.reset()
		before := s.state()
		approval := "apiVersion: tranche.dev/v1alpha1\nkind: BatchApproval\nmetadata: {name: web, namespace: " + s.other + "}\nspec: {revision: \"5c66667f6\", commit: \"3f2c1e0a9b8c\", step: 0}\n"
		s.applied(s.push(map[string]string{"deploy/approvals/web.yaml": approval}))
		if m := said(s.gs()); !strings.Contains(m, "InSync=False ApprovalIgnored: deploy/approvals/web.yaml") {
			t.Error(m)
		}
		s.unchanged(before)
	})
	t.Run("an inventory that names another's object", func(t *testing.T) {
		s := s.in(t)
		s.reset()
		s.label(s.other, "settings", s.ns, "shop") // as if it were the source's
		whole := s.gs().Status.Inventory
		foreign := &v1alpha1.Inventory{Entries: append(slices.Clone(whole.Entries), v1alpha1.InventoryEntry{ID: s.other + "_settings__ConfigMap", Version: "v1"})}
		editStatus(s.env, func(status *v1alpha1.GitSourceStatus) { status.Inventory = foreign })
		before := s.state()
		s.lookNow()
		if m := said(s.gs()); !strings.Contains(m, "Ready=False Forbidden: ConfigMap "+s.other+"/settings") || !strings.Contains(m, strings.ReplaceAll(hint, "MINE", s.ns)) {
			t.Error(m)
		}
		s.unchanged(before)
		editStatus(s.env, func(status *v1alpha1.GitSourceStatus) { status.Inventory = whole }) // or the source could not go
	})
	t.Run("a source that names no account", func(t *testing.T) {
		s := s.in(t)
		s.edit(func(gs *v1alpha1.GitSource) { gs.Spec.ServiceAccountName = "" })
		s.refuses(nil, "Forbidden", "ConfigMap MINE/a", `User "system:serviceaccount:MINE:nobody" cannot get resource "configmaps"`, "there is no service account MINE/nobody: create it")
		s.kubectl("create", "serviceaccount", "nobody")
		s.lookNow()
		if m := said(s.gs()); !strings.Contains(m, "give service account "+s.ns+"/nobody the right") {
			t.Error(m)
		}
		s.edit(func(gs *v1alpha1.GitSource) { gs.Spec.ServiceAccountName = "tenant" })
	})
}

// reset goes back to what was applied first.
func (s *tenancy) reset() {
	s.Helper()
	s.repo.Git("checkout", "-q", s.commit)
	s.repo.Git("checkout", "-q", "-B", "main")
	s.repo.Push("--force")
	s.applied(s.commit)
}

// edit changes the GitSource, and waits until that has been looked at.
func (s *tenancy) edit(change func(*v1alpha1.GitSource)) {
	s.Helper()
	gs := s.gs()
	before := gs.DeepCopy()
	change(gs)
	s.must(s.c.Client.Patch(s.Context(), gs, client.MergeFrom(before)))
	clustertest.Wait(s, "the change to be looked at", func() error {
		if now := s.gs(); now.Status.ObservedGeneration != gs.Generation {
			return fmt.Errorf("%s", said(now))
		}
		return nil
	})
}

// label says of a ConfigMap which source applies it; no source: none.
func (s *env) label(namespace, name, sourceNamespace, source string) {
	s.Helper()
	labels, err := json.Marshal(map[string]any{"metadata": map[string]any{"labels": map[string]any{v1alpha1.LabelSource: source, v1alpha1.LabelSourceNamespace: sourceNamespace}}})
	s.must(err)
	if source == "" {
		labels = []byte(`{"metadata":{"labels":null,"managedFields":[{}]}}`)
	}
	cm := &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: name}}
	s.must(s.c.Client.Patch(s.Context(), cm, client.RawPatch(types.MergePatchType, labels)))
}

// An object that the platform's GitSource applies to a tenant's namespace stays the
// platform's. The tenant may write it, and so its labels and managed fields.
func TestATenantTakesNothingOver(t *testing.T) {
	t.Parallel()
	s := newTenancy(t)
	s.admin("platform")
	platform := gittest.NewRepo(t)
	policed := platform.CommitAndPush(map[string]string{"deploy/policy.yaml": configMap("policy", "strict"), "deploy/web.yaml": web("v1", "name: web\n  labels", "name: agent\n  labels", "replicas: 2", "replicas: 0")})
	gs := &v1alpha1.GitSource{ObjectMeta: metav1.ObjectMeta{Name: "platform", Namespace: s.ns}, Spec: s.gs().Spec}
	gs.Spec.URL, gs.Spec.ServiceAccountName, gs.Spec.Prune = platform.URL(), "platform", false
	s.must(s.c.Client.Create(t.Context(), gs))
	t.Cleanup(func() { s.must(client.IgnoreNotFound(s.c.Client.Delete(context.Background(), gs))) })
	enforced := func() {
		t.Helper()
		clustertest.Wait(t, "the platform's commit", func() error {
			s.must(s.c.Client.Get(t.Context(), client.ObjectKeyFromObject(gs), gs))
			if c := meta.FindStatusCondition(gs.Status.Conditions, "Ready"); c == nil || c.Status != metav1.ConditionTrue || gs.Status.AppliedCommit != policed {
				return fmt.Errorf("%s", said(gs))
			}
			cm := get(s.env, "policy", &corev1.ConfigMap{})
			if cm.Data["value"] != "strict" || cm.Labels[v1alpha1.LabelSource] != "platform" {
				return fmt.Errorf("%v %v", cm.Labels, cm.Data)
			}
			return nil
		})
	}
	enforced()
	policy := map[string]string{"deploy/policy.yaml": configMap("policy", "none")}
	agent := map[string]string{"deploy/web.yaml": web("v2", "name: web\n  labels", "name: agent\n  labels")}
	const says = "GitSource MINE/platform applies it already"
	for name, tt := range map[string]struct {
		forge func(*tenancy)
		files map[string]string
	}{
		"by name":                        {func(*tenancy) {}, policy},
		"by its labels":                  {func(s *tenancy) { s.label(s.ns, "policy", s.ns, "shop") }, policy},
		"by the labels of one not there": {func(s *tenancy) { s.label(s.ns, "policy", s.ns, "gone") }, policy},
		"without labels and managers":    {func(s *tenancy) { s.label(s.ns, "policy", "", "") }, policy},
		"a Deployment":                   {func(*tenancy) {}, agent},
		"a Deployment under a plan":      {func(*tenancy) {}, map[string]string{"deploy/web.yaml": agent["deploy/web.yaml"], "deploy/plan.yaml": strings.ReplaceAll(webPlan, "web", "agent")}},
	} {
		t.Run(name, func(t *testing.T) {
			s := s.in(t)
			tt.forge(s)
			s.refuses(tt.files, "OwnedByOther", says)
			s.lookNow("platform")
			enforced()
		})
	}
}

// A tenant's namespace can be deleted as it is: the account's rights go, in any
// order, together with what it would have to prune.
func TestATenantsNamespaceGoes(t *testing.T) {
	t.Parallel()
	s := newTenancy(t)
	ns := &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: s.ns}}
	s.t(s.c.Kubectl(t, "delete", "rolebinding", "tenant", "-n", s.ns)) // the worst order
	s.must(s.c.Client.Delete(t.Context(), ns))
	s.goes(ns)
}

// goes waits for the end of a namespace.
func (s *env) goes(ns *corev1.Namespace) {
	s.Helper()
	clustertest.Wait(s, "the end of the namespace", func() error {
		err := s.c.Client.Get(s.Context(), client.ObjectKeyFromObject(ns), ns)
		if err == nil {
			return fmt.Errorf("%+v", ns.Status)
		}
		return client.IgnoreNotFound(err)
	})
}

// The namespace that a tenant's source applies to may be gone, and with it the
// rights there: nothing of it holds the source up.
func TestATenantsTargetIsGone(t *testing.T) {
	t.Parallel()
	s := newTenancy(t)
	s.t(s.c.Kubectl(t, "create", "rolebinding", "tenant", "-n", s.other, "--clusterrole=admin", "--serviceaccount="+s.ns+":tenant"))
	s.edit(func(gs *v1alpha1.GitSource) { gs.Spec.TargetNamespace = s.other })
	clustertest.Wait(t, "the ConfigMap there", func() error {
		s.lookNow()
		confirmEdit(s.env, s.repo.Head())
		return s.c.Client.Get(t.Context(), client.ObjectKey{Namespace: s.other, Name: "a"}, &corev1.ConfigMap{})
	})
	there := &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: s.other}}
	s.must(s.c.Client.Delete(t.Context(), there))
	s.goes(there)
	s.end("shop")
}

// A tenant's namespace can be deleted in the middle of a release, too: the hold
// ends with it, whatever goes first.
func TestATenantsNamespaceGoesInARelease(t *testing.T) {
	t.Parallel()
	s := newIdleEnv(t)
	s.admin("tenant")
	s.t(s.c.Kubectl(t, "create", "role", "collisions", "-n", s.ns, "--verb=patch", "--resource=deployments/status"))
	s.t(s.c.Kubectl(t, "create", "rolebinding", "collisions", "-n", s.ns, "--role=collisions", "--serviceaccount="+s.ns+":tenant"))
	t.Cleanup(s.startControllerWith(s.c.Controller, andRollout))
	s.beginRelease(func(gs *v1alpha1.GitSource) { gs.Spec.ServiceAccountName = "tenant" })
	ns := &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: s.ns}}
	s.t(s.c.Kubectl(t, "delete", "rolebinding", "tenant", "collisions", "-n", s.ns))
	s.must(s.c.Client.Delete(t.Context(), ns))
	s.goes(ns)
}
