package gitsync_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"

	admissionv1 "k8s.io/api/admissionregistration/v1"
	autoscalingv2 "k8s.io/api/autoscaling/v2"
	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/tranche-dev/tranche/plan/v1alpha1"
	"github.com/tranche-dev/tranche/rollout/clustertest"
)

// A commit with one bad object: nothing of it is applied, and the message names
// file, object and field.
func TestAllOrNothing(t *testing.T) {
	t.Parallel()
	s := newEnv(t, gitsyncOnly)
	s.quota()
	s.policy()
	first := s.push(map[string]string{
		"deploy/a.yaml":   configMap("a", "one"),
		"deploy/web.yaml": web("v1"), "deploy/release.yaml": webPlan,
	})
	s.source()
	s.applied(first)
	before := s.objects()
	const file = "deploy/new.yaml"
	for name, tt := range map[string]struct{ file, content, reason, says string }{
		"an unknown field":      {"deploy/web.yaml", web("v2", "image:", "imagee:"), "InvalidManifest", "deploy/web.yaml: Deployment NS/web: spec.template.spec.containers[0].imagee"},
		"a bad template":        {"deploy/web.yaml", web("v2", "name: web\n        image", "name: Web_1\n        image"), "DryRunFailed", "deploy/web.yaml: Deployment NS/web: spec.template.spec.containers[0].name"},
		"a bad plain object":    {file, strings.ReplaceAll(configMap("b", "two"), "\ndata:", "\ndataa:"), "DryRunFailed", file + ": ConfigMap NS/b: dataa: no such field"},
		"a bad strategy":        {"deploy/web.yaml", web("v2", "  template:\n", "  strategy: {rollingUpdate: {maxSurge: 0, maxUnavailable: 0}}\n  template:\n"), "DryRunFailed", "maxUnavailable"},
		"another selector":      {"deploy/web.yaml", web("v2", "app: web", "app: web2"), "DryRunFailed", "is not deleted"},
		"no such kind":          {file, "apiVersion: example.org/v1\nkind: Thing\nmetadata: {name: c}\n", "UnknownKind", file + ": Thing c: the cluster does not know Thing.example.org; install its CustomResourceDefinition"},
		"no such namespace":     {file, strings.ReplaceAll(configMap("d", "x"), "name: d", "name: d, namespace: nowhere-"+s.ns), "DryRunFailed", "create the namespace"},
		"YAML that is not YAML": {file, "a: [\n", "InvalidManifest", file + ": line 1"},

		"a Deployment that says it is held":  {"deploy/web.yaml", web("v2", "team: shop", "tranche.dev/held: ''"), "InvalidManifest", "deploy/web.yaml: Deployment NS/web: metadata.labels[tranche.dev/held]: only the controller sets it; remove it"},
		"a native rollback":                  {"deploy/web.yaml", strings.Replace(web("v2"), "name: web", "name: web\n  annotations: {deprecated.deployment.rollback.to: '0'}", 1), "InvalidManifest", "deploy/web.yaml: Deployment NS/web: metadata.annotations[deprecated.deployment.rollback.to]: only a controller of Kubernetes sets it; remove it"},
		"a native revision":                  {"deploy/web.yaml", strings.Replace(web("v2"), "name: web", "name: web\n  annotations: {deployment.kubernetes.io/revision: '9'}", 1), "InvalidManifest", "deploy/web.yaml: Deployment NS/web: metadata.annotations[deployment.kubernetes.io/revision]: only a controller of Kubernetes sets it; remove it"},
		"a finalizer of the API server":      {file, "apiVersion: v1\nkind: ConfigMap\nmetadata: {name: b, finalizers: [example.org/a, orphan]}\n", "InvalidManifest", file + ": ConfigMap NS/b: metadata.finalizers[1]: only the API server sets orphan, when an object is deleted; remove it"},
		"a ReplicaSet with native marks":     {file, strings.Replace(replicaSet("extra", "none"), "name: extra", "name: extra, annotations: {deployment.kubernetes.io/desired-replicas: '2'}", 1), "InvalidManifest", file + ": ReplicaSet NS/extra: metadata.annotations[deployment.kubernetes.io/desired-replicas]: only a controller of Kubernetes sets it; remove it"},
		"a ReplicaSet to be adopted":         {file, replicaSet("extra", "web"), "InvalidManifest", file + ": ReplicaSet NS/extra: metadata.labels: the selector of Deployment web matches them, so that it would adopt the ReplicaSet"},
		"one that a new one would adopt":     {file, replicaSet("extra", "api") + "---\n" + web("v1", "web", "api"), "InvalidManifest", file + ": ReplicaSet NS/extra: metadata.labels: the selector of Deployment api matches them"},
		"a pod of a ReplicaSet":              {file, "apiVersion: v1\nkind: Pod\nmetadata: {name: p, labels: {app: web, pod-template-hash: abc}}\nspec: {containers: [{name: web, image: registry.example.org/web:v9}]}\n", "InvalidManifest", file + ": Pod NS/p: metadata.labels[pod-template-hash]: only a controller of Kubernetes sets it; remove it"},
		"pods that a ReplicaSet would adopt": {file, "apiVersion: v1\nkind: ReplicationController\nmetadata: {name: rc}\nspec: {template: {metadata: {labels: {app: web, pod-template-hash: abc}}, spec: {containers: [{name: web, image: registry.example.org/web:v9}]}}}\n", "InvalidManifest", file + ": ReplicationController NS/rc: spec.template.metadata.labels[pod-template-hash]: only a controller of Kubernetes sets it; remove it"},
		"a plan of another author":           {"deploy/release.yaml", strings.Replace(webPlan, "{name: web}", "{name: web, annotations: {tranche.dev/commit-author: Grace}}", 1), "InvalidManifest", "deploy/release.yaml: BatchRelease NS/web: metadata.annotations[tranche.dev/commit-author]: only the controller sets it"},
		"an object of another source":        {file, strings.Replace(configMap("b", "x"), "name: b", "name: b, labels: {tranche.dev/source: other}", 1), "InvalidManifest", file + ": ConfigMap NS/b: metadata.labels[tranche.dev/source]: only the controller sets it"},

		"an object twice":              {file, configMap("a", "two"), "DuplicateObject", file + ": ConfigMap NS/a: is also in deploy/a.yaml"},
		"an object in two versions":    {file, autoscaler("web", "v2") + "---\n" + autoscaler("web", "v1"), "DuplicateObject", file + ": HorizontalPodAutoscaler NS/web: is also in " + file},
		"two plans for one Deployment": {file, strings.Replace(webPlan, "{name: web}", "{name: web2}", 1), "InvalidPlan", "deploy/release.yaml: BatchRelease NS/web: spec.workloadRef: Deployment web is governed by BatchRelease NS/web2 in " + file},
		"a plan without a Deployment":  {file, strings.ReplaceAll(webPlan, "web", "api"), "InvalidPlan", file + ": BatchRelease NS/api: spec.workloadRef: no Deployment NS/api is rendered with it"},
		"paused in Git":                {"deploy/web.yaml", web("v2", "replicas: 2", "replicas: 2\n  paused: true"), "InvalidManifest", "deploy/web.yaml: Deployment NS/web: spec.paused: is true, and BatchRelease NS/web governs this Deployment; remove it"},
		"a quota that is used up":      {file, service("db"), "DryRunFailed", file + `: Service NS/db: services "db" is forbidden: exceeded quota: no-services, requested: services=1, used: services=0, limited: services=0`},
		"a policy that says no":        {file, strings.Replace(configMap("b", "x"), "name: b", "name: b, labels: {forbidden: here}", 1), "DryRunFailed", file + ": ConfigMap NS/b: ValidatingAdmissionPolicy 'NS.example.org' with binding 'NS.example.org' denied request: not in this shop"},
		"an item of a List":            {file, "apiVersion: v1\nkind: List\nitems:\n- {apiVersion: v1, kind: ConfigMap, metadata: {name: b}, data: {value: x}}\n- {apiVersion: v1, kind: ConfigMap, metadata: {name: c}, data: {value: [1]}}\n", "DryRunFailed", file + ": ConfigMap NS/c: data.value"},
		"a Secret's value":             {file, "apiVersion: v1\nkind: Secret\nmetadata: {name: b}\nstringData: {password: 31337}\n", "DryRunFailed", file + ": Secret NS/b: stringData.password: expected string; numbers, and words such as true, no and y, need quotes"},
		"a Secret that is not base64":  {file, "apiVersion: v1\nkind: Secret\nmetadata: {name: b}\ndata: {password: 's3cret!'}\n", "DryRunFailed", file + ": Secret NS/b: illegal base64 data at input byte 6"},
		"no name":                      {file, "apiVersion: v1\nkind: ConfigMap\nmetadata: {labels: {app: web}}\n", "InvalidManifest", file + ": ConfigMap: metadata.name: must be set"},
		"a generated name":             {file, "apiVersion: v1\nkind: ConfigMap\nmetadata: {generateName: b-}\n", "InvalidManifest", file + ": ConfigMap: metadata.name: must be set"},
	} {
		t.Run(name, func(t *testing.T) {
			s := s.in(t)
			s.repo.Git("checkout", "-q", first)
			s.repo.Git("checkout", "-q", "-B", "main")
			bad := s.repo.Commit(map[string]string{"deploy/a.yaml": configMap("a", "changed"), tt.file: tt.content})
			s.repo.Push("--force")
			message, says := s.refused(bad, tt.reason), strings.ReplaceAll(tt.says, "NS", s.ns)
			if !strings.Contains(message, says) {
				t.Errorf("%q is not in %q", says, message)
			}
			for _, not := range []string{"31337", "s3cret", "the right"} { // no value of a Secret; rights are not what is amiss
				if strings.Contains(message, not) {
					t.Errorf("%q is in %q", not, message)
				}
			}
			if v := get(s, "a", &corev1.ConfigMap{}).Data["value"]; v != "one" {
				t.Errorf("a is %q: something of a bad commit was applied", v)
			}
			if now := s.objects(); !slices.Equal(now, before) {
				t.Errorf("there were %s, there are %s", before, now)
			}
			if gs := s.gs(); gs.Status.AppliedCommit != first || len(gs.Status.Inventory.Entries) != 3 {
				t.Errorf("%+v", gs.Status)
			}
		})
	}
}

// objects are the names of what the commits of [TestAllOrNothing] have.
func (s *env) objects() []string {
	s.Helper()
	var names []string
	for _, gvk := range []schema.GroupVersionKind{
		corev1.SchemeGroupVersion.WithKind("ConfigMapList"), corev1.SchemeGroupVersion.WithKind("ServiceList"), v1alpha1.GroupVersion.WithKind("BatchReleaseList"),
		{Group: "apps", Version: "v1", Kind: "DeploymentList"}, {Group: "autoscaling", Version: "v2", Kind: "HorizontalPodAutoscalerList"},
	} {
		list := &metav1.PartialObjectMetadataList{}
		list.SetGroupVersionKind(gvk)
		s.must(s.c.Client.List(s.Context(), list, client.InNamespace(s.ns)))
		for _, o := range list.Items {
			if o.Name != "kube-root-ca.crt" {
				names = append(names, gvk.Kind+" "+o.Name)
			}
		}
	}
	return names
}

// quota allows no Service.
func (s *env) quota() {
	s.Helper()
	quota := &corev1.ResourceQuota{ObjectMeta: metav1.ObjectMeta{Name: "no-services", Namespace: s.ns}}
	quota.Spec.Hard = corev1.ResourceList{corev1.ResourceServices: resource.MustParse("0")}
	s.must(s.c.Client.Create(s.Context(), quota))
	clustertest.Wait(s, "the quota", func() error {
		if _, ok := get(s, quota.Name, &corev1.ResourceQuota{}).Status.Hard[corev1.ResourceServices]; !ok {
			return fmt.Errorf("not counted yet")
		}
		return nil
	})
}

// policy refuses ConfigMaps that are labelled forbidden.
func (s *env) policy() {
	s.Helper()
	s.policyOn("", "configmaps", &corev1.ConfigMap{})
}

// policyOn refuses objects of a kind that are labelled forbidden. The object is an
// empty one of the kind.
func (s *env) policyOn(group, resource string, o client.Object) {
	s.Helper()
	var policy admissionv1.ValidatingAdmissionPolicy
	var binding admissionv1.ValidatingAdmissionPolicyBinding
	policy.Name, binding.Name = s.ns+".example.org", s.ns+".example.org"
	rule := admissionv1.NamedRuleWithOperations{}
	rule.Operations = []admissionv1.OperationType{admissionv1.OperationAll}
	rule.APIGroups, rule.APIVersions, rule.Resources = []string{group}, []string{"v1"}, []string{resource}
	policy.Spec.MatchConstraints = &admissionv1.MatchResources{
		NamespaceSelector: &metav1.LabelSelector{MatchLabels: map[string]string{corev1.LabelMetadataName: s.ns}},
		ResourceRules:     []admissionv1.NamedRuleWithOperations{rule},
	}
	policy.Spec.Validations = []admissionv1.Validation{{Expression: "!('forbidden' in object.?metadata.labels.orValue({}))", Message: "not in this shop"}}
	binding.Spec.PolicyName = policy.Name
	binding.Spec.ValidationActions = []admissionv1.ValidationAction{admissionv1.Deny}
	for _, o := range []client.Object{&policy, &binding} {
		s.must(s.c.Client.Create(s.Context(), o))
		s.Cleanup(func() { s.must(s.c.Client.Delete(context.Background(), o)) })
	}
	o.SetName("x")
	o.SetNamespace(s.ns)
	o.SetLabels(map[string]string{"forbidden": "here"})
	clustertest.Wait(s, "the policy", func() error {
		if err := s.c.Client.Create(s.Context(), o, client.DryRunAll); err == nil || !strings.Contains(err.Error(), "not in this shop") {
			return fmt.Errorf("not in force yet: %w", err)
		}
		return nil
	})
}

func autoscaler(name, version string) string {
	return "apiVersion: autoscaling/" + version + "\nkind: HorizontalPodAutoscaler\nmetadata: {name: " + name + "}\n" +
		"spec: {scaleTargetRef: {apiVersion: apps/v1, kind: Deployment, name: " + name + "}, minReplicas: 1, maxReplicas: 9}\n"
}

// replicaSet is one without a Deployment, of which others match the label app.
func replicaSet(name, app string) string {
	return "apiVersion: apps/v1\nkind: ReplicaSet\nmetadata: {name: " + name + ", labels: {app: " + app + "}}\nspec:\n" +
		"  replicas: 0\n  selector: {matchLabels: {set: " + name + "}}\n" +
		"  template: {metadata: {labels: {set: " + name + "}}, spec: {containers: [{name: web, image: registry.example.org/web:v9}]}}\n"
}

func service(name string) string {
	return "apiVersion: v1\nkind: Service\nmetadata: {name: " + name + "}\nspec: {selector: {app: " + name + "}, ports: [{port: 80}]}\n"
}

const toyCRD = `apiVersion: apiextensions.k8s.io/v1
kind: CustomResourceDefinition
metadata: {name: toys.GROUP, annotations: {tranche.dev/prune: enabled}}
spec:
  group: GROUP
  scope: Namespaced
  names: {kind: Toy, plural: toys, singular: toy}
  versions:
  - name: v1
    served: true
    storage: true
    schema: {openAPIV3Schema: {type: object, properties: {spec: {type: object, properties: {size: {type: integer, minimum: 1}}}}}}
`

// Objects that others of a commit need are there before those can be tried. The
// refusal then leaves behind nothing else of the commit.
func TestRefusedAfterWhatOthersNeed(t *testing.T) {
	t.Parallel()
	s := newEnv(t, gitsyncOnly)
	group, other := s.ns+".example.org", s.ns+"-new"
	toy := "apiVersion: " + group + "/v1\nkind: Toy\nmetadata: {name: ball}\nspec: {size: 0}\n"
	bad := s.push(map[string]string{
		"deploy/a.yaml": configMap("a", "one"), "deploy/crd.yaml": strings.ReplaceAll(toyCRD, "GROUP", group), "deploy/toy.yaml": toy,
		"deploy/ns.yaml": namespace(other, ", annotations: {tranche.dev/prune: enabled}"),
		"deploy/b.yaml":  strings.Replace(configMap("b", "one"), "name: b", "name: b, namespace: "+other, 1),
		"deploy/c.yaml":  strings.Replace(configMap("c", "one"), "name: c", "name: c, namespace: "+other+", labels: {a: -}", 1),
	})
	s.source()
	message := s.refused(bad, "DryRunFailed")
	for _, says := range []string{"nothing of the commit is applied but ", "Namespace " + other, "deploy/toy.yaml: Toy " + s.ns + "/ball: spec.size: ", "deploy/c.yaml: ConfigMap " + other + "/c: metadata.labels: "} {
		if !strings.Contains(message, says) {
			t.Errorf("%q is not in %q", says, message)
		}
	}
	get(s.at(""), other, &corev1.Namespace{})
	s.absent("a", &corev1.ConfigMap{})
	s.at(other).absent("b", &corev1.ConfigMap{})
	if gs := s.gs(); gs.Status.AppliedCommit != "" || len(gs.Status.Inventory.Entries) != 6 {
		t.Errorf("%+v", gs.Status)
	}
	s.applied(s.push(map[string]string{"deploy/toy.yaml": strings.Replace(toy, "size: 0", "size: 3", 1), "deploy/c.yaml": ""}))
	if out, err := s.c.Kubectl(t, "get", "-n", s.ns, "toys."+group, "ball", "-o", "jsonpath={.spec.size}"); err != nil || out != "3" {
		t.Errorf("%s %v", out, err)
	}
	get(s, "a", &corev1.ConfigMap{})
	get(s.at(other), "b", &corev1.ConfigMap{})
}

// A CRD that is there and changes is applied before its objects are tried, and
// one that stays as it is puts off nothing.
func TestACRDThatChangesWithItsObject(t *testing.T) {
	t.Parallel()
	s := newEnv(t, gitsyncOnly)
	crd := strings.ReplaceAll(toyCRD, "GROUP", s.ns+".example.org")
	toy := "apiVersion: " + s.ns + ".example.org/v1\nkind: Toy\nmetadata: {name: ball}\nspec: {size: 1}\n"
	s.source()
	s.applied(s.push(map[string]string{"deploy/crd.yaml": crd, "deploy/toy.yaml": toy, "deploy/a.yaml": configMap("a", "one")}))
	s.applied(s.push(map[string]string{
		"deploy/crd.yaml": strings.Replace(crd, "{size:", "{colour: {type: string}, size:", 1),
		"deploy/toy.yaml": strings.Replace(toy, "{size: 1}", "{size: 1, colour: red}", 1),
	}))
	if out, err := s.c.Kubectl(t, "get", "-n", s.ns, "toys."+s.ns+".example.org", "ball", "-o", "jsonpath={.spec.colour}"); err != nil || out != "red" {
		t.Errorf("%s %v", out, err)
	}
	message := s.refused(s.push(map[string]string{"deploy/toy.yaml": strings.Replace(toy, "size: 1", "size: 0", 1), "deploy/a.yaml": configMap("a", "two")}), "DryRunFailed")
	if strings.Contains(message, "nothing of the commit is applied but") {
		t.Error(message)
	}
	if v := get(s, "a", &corev1.ConfigMap{}).Data["value"]; v != "one" {
		t.Errorf("a is %q", v)
	}
}

// If the API server does not accept an object for good, the status says so in the
// server's words, at once.
func TestACRDWhoseNamesAreTaken(t *testing.T) {
	t.Parallel()
	s := newEnv(t, gitsyncOnly)
	crd := strings.ReplaceAll(toyCRD, "GROUP", s.ns+".example.org")
	s.source()
	s.applied(s.push(map[string]string{"deploy/crd.yaml": crd}))
	other := strings.NewReplacer("toys", "dolls").Replace(crd) // the kind and the singular are the same
	message := s.refused(s.push(map[string]string{"deploy/other.yaml": other}), "ApplyFailed")
	if !strings.Contains(message, "deploy/other.yaml: CustomResourceDefinition dolls."+s.ns) || !strings.Contains(message, "does not accept its names") || !strings.Contains(message, "already in use") {
		t.Error(message)
	}
}

// at is the same env in another namespace.
func (s *env) at(ns string) *env {
	c := *s
	c.ns = ns
	return &c
}

// absent makes sure that an object is not there.
func (s *env) absent(name string, o client.Object) {
	s.Helper()
	if err := s.c.Client.Get(s.Context(), client.ObjectKey{Namespace: s.ns, Name: name}, o); !apierrors.IsNotFound(err) {
		s.Errorf("%T %s is there: %v", o, name, err)
	}
}

func namespace(name, more string) string {
	return "apiVersion: v1\nkind: Namespace\nmetadata: {name: " + name + more + "}\n"
}

// A change of an immutable field is reported for each kind in the words of that kind.
// tranche.dev/force has each object created again.
func TestImmutableFields(t *testing.T) {
	t.Parallel()
	s := newEnv(t, gitsyncOnly)
	const force = `tranche.dev/force: "true"`
	kinds := map[string]struct{ manifest, from, to, field string }{
		"Job":       {"apiVersion: batch/v1\nkind: Job\nmetadata: {name: x, annotations: {}}\nspec: {template: {spec: {restartPolicy: Never, containers: [{name: j, image: 'registry.example.org/j:v1'}]}}}\n", "j:v1", "j:v2", "spec.template"},
		"ConfigMap": {strings.Replace(configMap("x", "one"), "name: x", "name: x, annotations: {}", 1) + "immutable: true\n", "one", "two", "data"},
		"Secret":    {"apiVersion: v1\nkind: Secret\nmetadata: {name: x, annotations: {}}\ntype: example.org/a\n", "example.org/a", "example.org/b", "type"},
		"Service":   {"apiVersion: v1\nkind: Service\nmetadata: {name: x, annotations: {}}\nspec: {ports: [{port: 80}]}\n", "ports:", "clusterIP: None, ports:", "spec.clusterIPs[0]"},
		"Deployment": {"apiVersion: apps/v1\nkind: Deployment\nmetadata: {name: x, annotations: {}}\nspec: {selector: {matchLabels: {app: x}}, template: {metadata: {labels: {app: x}}, spec: {containers: [{name: x, image: 'registry.example.org/x'}]}}}\n",
			"app: x", "app: x2", "spec.selector"},
		"StatefulSet": {"apiVersion: apps/v1\nkind: StatefulSet\nmetadata: {name: x, annotations: {}}\nspec: {serviceName: a, selector: {matchLabels: {set: x}}, template: {metadata: {labels: {set: x}}, spec: {containers: [{name: x, image: 'registry.example.org/x'}]}}}\n",
			"serviceName: a", "serviceName: b", "spec"},
		"RoleBinding":           {"apiVersion: rbac.authorization.k8s.io/v1\nkind: RoleBinding\nmetadata: {name: x, annotations: {}}\nroleRef: {apiGroup: rbac.authorization.k8s.io, kind: ClusterRole, name: view}\n", "name: view", "name: edit", "roleRef"},
		"PersistentVolumeClaim": {"apiVersion: v1\nkind: PersistentVolumeClaim\nmetadata: {name: x, annotations: {}}\nspec: {storageClassName: none, accessModes: [ReadWriteOnce], resources: {requests: {storage: 1Gi}}}\n", "ReadWriteOnce", "ReadWriteMany", "spec"},
		"StorageClass":          {"apiVersion: storage.k8s.io/v1\nkind: StorageClass\nmetadata: {name: NS, annotations: {}}\nprovisioner: example.org/a\n", "example.org/a", "example.org/b", "provisioner"},
		"PriorityClass":         {"apiVersion: scheduling.k8s.io/v1\nkind: PriorityClass\nmetadata: {name: NS, annotations: {}}\nvalue: 1\n", "value: 1", "value: 2", "value"},
	}
	first, forced := map[string]string{}, map[string]string{}
	for kind, k := range kinds {
		first["deploy/"+kind+".yaml"] = strings.ReplaceAll(k.manifest, "NS", s.ns)
		forced["deploy/"+kind+".yaml"] = strings.ReplaceAll(strings.Replace(strings.ReplaceAll(k.manifest, k.from, k.to), "annotations: {}", "annotations: {"+force+"}", 1), "NS", s.ns)
	}
	good := s.push(first)
	s.source()
	s.applied(good)
	uids := map[string]string{}
	for kind := range kinds {
		uids[kind] = s.uid(kind)
	}
	for kind, k := range kinds {
		t.Run(kind, func(t *testing.T) {
			s := s.in(t)
			message := s.refused(s.push(map[string]string{"deploy/" + kind + ".yaml": strings.ReplaceAll(strings.ReplaceAll(k.manifest, k.from, k.to), "NS", s.ns)}), "DryRunFailed")
			if !strings.HasPrefix(message, "deploy/"+kind+".yaml: "+kind+" ") || !strings.Contains(message, ": "+k.field) || !strings.Contains(message, force) {
				t.Error(message)
			}
			if uid := s.uid(kind); uid != uids[kind] {
				t.Errorf("it is another one: %s, then %s", uids[kind], uid)
			}
			s.repo.Git("reset", "-q", "--hard", good)
			s.repo.Push("--force")
			s.applied(good)
		})
	}
	s.applied(s.push(forced))
	for kind := range kinds {
		if s.uid(kind) == uids[kind] {
			t.Errorf("the %s is not made anew", kind)
		}
		s.told("Recreated", kind+" ")
	}
}

// An object that tranche.dev/force would delete and could not create again stays. So
// does a Deployment with a plan, which would lose all its pods at once.
func TestNothingIsLostByForce(t *testing.T) {
	t.Parallel()
	s := newEnv(t, gitsyncOnly)
	service := "apiVersion: v1\nkind: Service\nmetadata: {name: x, annotations: {tranche.dev/force: 'true'}}\nspec: {ports: [{port: 80}]}\n"
	first := s.push(map[string]string{"deploy/a.yaml": configMap("a", "one"), "deploy/x.yaml": service, "deploy/web.yaml": web("v1"), "deploy/plan.yaml": webPlan})
	s.source()
	s.applied(first)
	uid := s.uid("Service")
	message := s.refused(s.push(map[string]string{"deploy/a.yaml": configMap("a", "two"), "deploy/x.yaml": strings.Replace(service, "ports:", "clusterIP: 192.0.2.1, ports:", 1)}), "DryRunFailed")
	if !strings.Contains(message, "deploy/x.yaml: Service "+s.ns+"/x: spec.clusterIPs") || !strings.Contains(message, "192.0.2.1") {
		t.Error(message)
	}
	if s.uid("Service") != uid {
		t.Error("the Service is another one")
	}
	crd := strings.Replace(strings.ReplaceAll(toyCRD, "GROUP", s.ns+".example.org"), "tranche.dev/prune: enabled", "tranche.dev/force: 'true'", 1)
	s.applied(s.push(map[string]string{"deploy/x.yaml": service, "deploy/a.yaml": configMap("a", "one"), "deploy/crd.yaml": crd}))
	message = s.refused(s.push(map[string]string{"deploy/a.yaml": configMap("a", "two"), "deploy/crd.yaml": strings.Replace(crd, "Namespaced", "Cluster", 1)}), "DryRunFailed")
	if !strings.Contains(message, "a CustomResourceDefinition is not deleted, since its objects would go with it") || strings.Contains(message, "tranche.dev/force") {
		t.Error(message)
	}
	message = s.refused(s.push(map[string]string{"deploy/crd.yaml": crd, "deploy/x.yaml": service, "deploy/web.yaml": web("v1",
		"matchLabels: {app: web}", "matchLabels: {part: web}", "labels: {app: web}\n", "labels: {app: web, part: web}\n", "labels: {app: web, team: shop}", "annotations: {tranche.dev/force: 'true'}")}), "DryRunFailed")
	if !strings.Contains(message, "a Deployment with a plan is not deleted") || strings.Contains(message, "tranche.dev/force") {
		t.Error(message)
	}
	if v := get(s, "a", &corev1.ConfigMap{}).Data["value"]; v != "one" {
		t.Errorf("a is %q", v)
	}
	s.applied(s.push(map[string]string{"deploy/web.yaml": web("v1")}))
}

func (s *env) uid(kind string) string {
	s.Helper()
	name := "x"
	if kind == "StorageClass" || kind == "PriorityClass" {
		name = s.ns
	}
	out, err := s.c.Kubectl(s, "get", "-n", s.ns, kind, name, "-o", "jsonpath={.metadata.uid}")
	if err != nil {
		s.Fatal(out)
	}
	return out
}

// An object that other clients have made and Git brings is ours from then on, as far
// as Git says something of it. A namespace that an object cannot have is left out.
func TestTakenOver(t *testing.T) {
	t.Parallel()
	s := newEnv(t, gitsyncOnly)
	s.kubectl("create", "configmap", "a", "--from-literal=value=theirs", "--from-literal=more=theirs")
	role := "apiVersion: rbac.authorization.k8s.io/v1\nkind: ClusterRole\nmetadata: {name: " + s.ns + ", namespace: nowhere}\n"
	s.source()
	s.applied(s.push(map[string]string{
		"deploy/role.yaml": role,
		"deploy/list.yaml": "apiVersion: v1\nkind: ConfigMapList\nitems:\n- {metadata: {name: a}, data: {value: ours}}\n- {metadata: {name: b}, data: {value: ours}}\n",
	}))
	has := func() string { cm := get(s, "a", &corev1.ConfigMap{}); return cm.Data["value"] + " " + cm.Data["more"] }
	if got := has(); got != "ours theirs" {
		t.Errorf("taken over, it is %s", got)
	}
	s.told("FieldConflict", "ConfigMap "+s.ns+`/a: other managers had other values of data.value ("kubectl-create"`)
	if l := get(s.at(""), s.ns, &rbacv1.ClusterRole{}).Labels[v1alpha1.LabelSource]; l != "shop" {
		t.Errorf("the ClusterRole is %q's", l)
	}
	if out, err := s.c.KubectlWith(t, configMap("a", "theirs"), "apply", "-n", s.ns, "--server-side", "--force-conflicts", "--field-manager=somebody", "-f", "-"); err != nil {
		t.Fatal(out)
	}
	s.lookNow()
	if got := has(); got != "ours theirs" {
		t.Errorf("after another's apply it is %s", got)
	}
	s.told("DriftUndone", "ConfigMap "+s.ns+"/a: data.value was changed by somebody")
}

// An object that holds data or other objects is pruned only where its annotation in
// the cluster says so. An object that other clients have made is never pruned.
func TestPruneTakesNothingOfOthers(t *testing.T) {
	t.Parallel()
	s := newEnv(t, gitsyncOnly)
	files := map[string]string{}
	for _, name := range []string{"a", "b", "c", "d", "e", "bare", "theirs"} {
		files["deploy/"+name+".yaml"] = configMap(name, "one")
	}
	for _, name := range []string{"left", "asked"} {
		files["deploy/claim-"+name+".yaml"] = "apiVersion: v1\nkind: PersistentVolumeClaim\nmetadata: {name: " + name + "}\nspec: {storageClassName: none, accessModes: [ReadWriteOnce], resources: {requests: {storage: 1Gi}}}\n"
		files["deploy/ns-"+name+".yaml"] = namespace(s.ns+"-"+name, "")
	}
	first := s.push(files)
	s.source()
	s.applied(first)
	s.kubectl("annotate", "pvc/asked", "tranche.dev/prune=enabled")
	s.kubectl("annotate", "ns/"+s.ns+"-asked", "tranche.dev/prune=enabled")

	s.applied(s.push(map[string]string{"deploy/claim-left.yaml": "", "deploy/claim-asked.yaml": ""}))
	s.isGone("asked", &corev1.PersistentVolumeClaim{})
	s.told("Orphaned", "PersistentVolumeClaim "+s.ns+"/left left the branch and stays in the cluster: a PersistentVolumeClaim is deleted only with annotation tranche.dev/prune: enabled")
	s.applied(s.push(map[string]string{"deploy/ns-left.yaml": "", "deploy/ns-asked.yaml": ""}))
	s.at("").isGone(s.ns+"-asked", &corev1.Namespace{})
	s.told("Orphaned", "Namespace "+s.ns+"-left left the branch and stays in the cluster: a Namespace is deleted only")
	s.kubectl("label", "configmap/bare", v1alpha1.LabelSource+"-")
	s.kubectl("delete", "configmap/theirs")
	s.kubectl("create", "configmap", "theirs", "--from-literal=value=theirs")
	s.applied(s.push(map[string]string{"deploy/bare.yaml": "", "deploy/theirs.yaml": ""}))
	for _, name := range []string{"bare", "theirs"} {
		s.told("Orphaned", "ConfigMap "+s.ns+"/"+name+" left the branch and stays in the cluster: this GitSource does not apply it")
	}
	s.lookNow()
	left := get(s.at(""), s.ns+"-left", &corev1.Namespace{})
	s.Cleanup(func() { s.must(s.c.Client.Delete(context.Background(), left)) })
	if left.DeletionTimestamp != nil {
		t.Error("the Namespace that nobody asked for goes")
	}
	if left := get(s, "left", &corev1.PersistentVolumeClaim{}); left.DeletionTimestamp != nil {
		t.Error("the claim that nobody asked for goes")
	}
	get(s, "bare", &corev1.ConfigMap{})
	if v := get(s, "theirs", &corev1.ConfigMap{}).Data["value"]; v != "theirs" {
		t.Errorf("it is %q", v)
	}
	if n := len(s.gs().Status.Inventory.Entries); n != 5 {
		t.Errorf("%d entries", n)
	}

	t.Run("the source is deleted while it is suspended", func(t *testing.T) {
		s := s.in(t)
		s.kubectl("patch", "gitsource/shop", "--type=merge", "-p", `{"spec":{"suspend":true}}`)
		s.endSource()
		for _, name := range []string{"a", "b", "c", "d", "e"} {
			get(s, name, &corev1.ConfigMap{})
		}
	})
}

// An object that an account may not delete stays, and is not forgotten; the others go
// all the same.
func TestPruneWithoutTheRight(t *testing.T) {
	t.Parallel()
	s := newEnv(t, gitsyncOnly)
	const account, secrets = "tenant", "apiVersion: v1\nkind: Secret\nmetadata: {name: b}\n"
	s.kubectl("create", "serviceaccount", account)
	s.kubectl("create", "role", "writes", "--verb=get,create,patch", "--resource=configmaps,secrets")
	s.kubectl("create", "role", "deletes", "--verb=delete", "--resource=configmaps")
	for _, role := range []string{"writes", "deletes"} {
		s.kubectl("create", "rolebinding", role, "--role="+role, "--serviceaccount="+s.ns+":"+account)
	}
	s.may(account, "create", "secrets")
	s.may(account, "delete", "configmaps")
	s.applied2(s.push(map[string]string{"deploy/a.yaml": configMap("a", "one"), "deploy/b.yaml": secrets, "deploy/c.yaml": configMap("c", "one")}),
		func(gs *v1alpha1.GitSource) { gs.Spec.ServiceAccountName = account })
	const says = `cannot delete resource "secrets"`
	tip := s.push(map[string]string{"deploy/b.yaml": "", "deploy/c.yaml": ""})
	if m := s.refused(tip, "Forbidden"); !strings.HasPrefix(m, "Secret "+s.ns+"/b: ") || !strings.Contains(m, says) || !strings.Contains(m, "give service account "+s.ns+"/tenant the right") {
		t.Error(m)
	}
	s.isGone("c", &corev1.ConfigMap{})
	if ids := fmt.Sprint(s.gs().Status.Inventory.Entries); !strings.Contains(ids, "_b__Secret") || strings.Contains(ids, "_c__ConfigMap") {
		t.Errorf("the inventory is %s", ids)
	}
	s.must(s.c.Client.Delete(t.Context(), s.gs()))
	clustertest.Wait(s, "the end to be told of", func() error {
		if m := said(s.gs()); s.gs().DeletionTimestamp == nil || !strings.Contains(m, says) || !strings.Contains(m, "set spec.suspend to true") {
			return errors.New(m)
		}
		return nil
	})
	s.isGone("a", &corev1.ConfigMap{})
	get(s, "b", &corev1.Secret{})
	s.kubectl("create", "role", "secrets", "--verb=delete", "--resource=secrets")
	s.kubectl("create", "rolebinding", "secrets", "--role=secrets", "--serviceaccount="+s.ns+":"+account)
	s.kubectl("annotate", "gsrc/shop", "tranche.dev/reconcile=now")
	s.endSource()
	s.absent("b", &corev1.Secret{})
}

// kubectl runs in the env's namespace.
func (s *env) kubectl(args ...string) string {
	s.Helper()
	out, err := s.c.Kubectl(s, append([]string{"-n", s.ns}, args...)...)
	if err != nil {
		s.Fatalf("kubectl %s: %s", strings.Join(args, " "), out)
	}
	return out
}

// tranche.dev/reconcile: disabled, written in Git or in the cluster, leaves an object
// as it is while it stands there.
func TestLeftAlone(t *testing.T) {
	t.Parallel()
	s := newEnv(t, gitsyncOnly)
	const disabled = "{tranche.dev/reconcile: disabled}"
	files := map[string]string{}
	names := []string{"git", "cluster"}
	for _, name := range names {
		files["deploy/"+name+".yaml"] = configMap(name, "one")
	}
	s.source()
	s.applied(s.push(files))
	are := func(want string) {
		t.Helper()
		for _, name := range names {
			if v := get(s, name, &corev1.ConfigMap{}).Data["value"]; v != want {
				t.Errorf("%s is %q, want %q", name, v, want)
			}
		}
	}
	s.kubectl("annotate", "configmap/cluster", "tranche.dev/reconcile=disabled")
	s.applied(s.push(map[string]string{
		"deploy/cluster.yaml": configMap("cluster", "two"),
		"deploy/git.yaml":     strings.Replace(configMap("git", "two"), "name: git", "name: git, annotations: "+disabled, 1),
	}))
	are("one")
	for _, name := range names {
		s.kubectl("patch", "configmap/"+name, "-p", `{"data":{"value":"by hand"}}`)
	}
	s.lookNow()
	are("by hand")
	if n := len(s.gs().Status.Inventory.Entries); n != 2 {
		t.Errorf("%d entries", n)
	}
	s.kubectl("annotate", "configmap/cluster", "tranche.dev/reconcile-")
	s.applied(s.push(map[string]string{"deploy/git.yaml": configMap("git", "two")}))
	are("two")
}

// spec.replicas is Git's if nothing scales the Deployment, and otherwise the
// autoscaler's. The autoscaler is in the tree from the first day, in the cluster only,
// or added later.
func TestAutoscalers(t *testing.T) {
	t.Parallel()
	s := newEnv(t, gitsyncOnly)
	api := func(replicas string) string { return web("v1", "web", "api", "replicas: 2", "replicas: "+replicas) }
	git := func(replicas string) map[string]string {
		return map[string]string{"deploy/api.yaml": api(replicas), "deploy/web.yaml": web("v1", "replicas: 2", "replicas: "+replicas)}
	}
	are := func(want int32, why string) {
		t.Helper()
		for _, name := range []string{"api", "web"} { // plain, governed
			if n := *s.deployment(name).Spec.Replicas; n != want {
				t.Errorf("%s: %s has %d replicas, want %d", why, name, n, want)
			}
		}
	}
	areOthers := func(why string) {
		t.Helper()
		for _, name := range []string{"api", "web"} {
			if got := owners(s.deployment(name), "replicas"); strings.Contains(got, v1alpha1.ManagerGitSync) {
				t.Errorf("%s: replicas of %s is %s's", why, name, got)
			}
		}
	}
	files, both := git("2"), autoscaler("web", "v2")+"---\n"+autoscaler("api", "v1")
	files["deploy/plan.yaml"], files["deploy/hpa.yaml"] = webPlan, both
	s.source()
	s.applied(s.push(files))
	are(2, "installed")
	s.lookNow()
	areOthers("installed")
	s.scale(5)
	s.applied(s.push(git("3")))
	are(5, "scaled")

	s.applied(s.push(map[string]string{"deploy/hpa.yaml": ""}))
	s.isGone("web", &autoscalingv2.HorizontalPodAutoscaler{})
	s.isGone("api", &autoscalingv2.HorizontalPodAutoscaler{})
	s.lookNow()
	are(3, "no autoscaler any more")

	s.applied(s.push(map[string]string{"deploy/hpa.yaml": both}))
	are(3, "an autoscaler again")
	areOthers("an autoscaler again")
	s.scale(6)
	s.lookNow()
	are(6, "scaled again")
	s.applied(s.push(map[string]string{"deploy/hpa.yaml": ""}))
	s.lookNow()
	are(3, "no autoscaler once more")

	if out, err := s.c.KubectlWith(t, both, "apply", "-n", s.ns, "-f", "-"); err != nil {
		t.Fatal(out)
	}
	s.lookNow()
	s.scale(7)
	s.applied(s.push(git("4")))
	are(7, "scaled by an autoscaler of the cluster")
	s.kubectl("delete", "hpa/web", "hpa/api")
	s.lookNow()
	are(4, "deleted by hand")
}

// scale sets the size of Deployments as an autoscaler does.
func (s *env) scale(replicas int32, names ...string) {
	s.Helper()
	if len(names) == 0 {
		names = []string{"api", "web"}
	}
	for _, name := range names {
		patch := client.RawPatch(types.MergePatchType, fmt.Appendf(nil, `{"spec":{"replicas":%d}}`, replicas))
		s.must(s.c.Client.SubResource("scale").Patch(s.Context(), s.deployment(name), patch, client.FieldOwner("kube-controller-manager")))
	}
}

// An autoscaler goes on scaling while a release is held, and Git's number is
// not put back.
func TestAutoscalerDuringARelease(t *testing.T) {
	t.Parallel()
	s := newRelease(t)
	s.applied(s.push(map[string]string{"deploy/hpa.yaml": autoscaler("web", "v2")}))
	s.scale(4, "web")
	s.lookNow()
	s.applied(s.push(map[string]string{"deploy/web.yaml": web("v2", "replicas: 2", "replicas: 3")}))
	clustertest.Wait(t, "the split of 4", func() error {
		if br := s.release("web"); br.Status.Replicas != 4 || br.Status.UpdatedReplicas != 1 || br.Status.Reason != "WaitingForApproval" {
			return fmt.Errorf("%d of %d: %s", br.Status.UpdatedReplicas, br.Status.Replicas, br.Status.Reason)
		}
		return nil
	})
	s.lookNow()
	if d := s.deployment("web"); *d.Spec.Replicas != 4 || d.Labels[v1alpha1.LabelHeld] == "" {
		t.Errorf("replicas is %d, labels %v", *d.Spec.Replicas, d.Labels)
	}
	if notes := s.events("DriftUndone"); len(notes) > 0 {
		t.Errorf("told of drift: %q", notes)
	}
}
