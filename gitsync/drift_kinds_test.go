package gitsync_test

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/tranche-dev/tranche/plan/v1alpha1"
	"github.com/tranche-dev/tranche/rollout/clustertest"
)

// drifting is a kind of object whose drift is found.
type drifting struct {
	apiVersion, kind string
	// body is what the manifest has below its metadata, with the name of the object as NAME.
	body string
	// more are other objects of the manifest.
	more string
	// change is a merge patch of field, which the branch says is want.
	change string
	field  []string
	want   string
	// status is a merge patch of the status alone; empty: the kind has none.
	status string
	// prefix begins the names of the objects.
	prefix        string
	clusterScoped bool
	// stays: no object of the kind is deleted.
	stays bool
}

const (
	driftOfSpec     = "spec"
	driftOfMetadata = "meta"
	driftByDeletion = "gone"
	driftByCreation = "again"  // it is deleted, and created with the same content
	changeOfStatus  = "status" // this is no drift
	driftAfter      = "last"
)

// deploymentBody is a Deployment without pods.
const deploymentBody = `spec:
  replicas: 0
  minReadySeconds: 1
  selector: {matchLabels: {app: NAME}}
  template:
    metadata: {labels: {app: NAME}}
    spec: {containers: [{name: web, image: "registry.example.org/web:v1"}]}
`

// planBody is the spec of a plan.
const planBody = "spec: {workloadRef: {name: NAME}, strategy: {steps: [{replicas: 50%}, {replicas: 100%}]}}\n"

// kindsThatDrift are the kinds by the name of the source that applies them.
func kindsThatDrift(ns string) map[string]drifting {
	const rbac, rule = "rbac.authorization.k8s.io/v1", "rules: [{apiGroups: [\"\"], resources: [pods], verbs: [get]}]\n"
	const otherRule = `{"rules":[{"apiGroups":[""],"resources":["pods"],"verbs":["list"]}]}`
	const otherStatus = `{"status":{"conditions":[{"type":"Checked","status":"True","reason":"Checked","message":"by hand",` +
		`"lastTransitionTime":"2026-01-02T03:04:05Z"}]}}`
	rules := []string{"rules"}
	const wantRules = "[map[apiGroups:[] resources:[pods] verbs:[get]]]"
	minReady := []string{"spec", "minReadySeconds"}
	deployment := drifting{
		apiVersion: "apps/v1", kind: "Deployment", body: deploymentBody, status: otherStatus,
		change: `{"spec":{"minReadySeconds":2}}`, field: minReady, want: "1",
	}
	governed := deployment
	governed.prefix = "governed-"
	governed.more = "apiVersion: tranche.dev/v1alpha1\nkind: BatchRelease\nmetadata: {name: NAME}\n" + planBody
	return map[string]drifting{
		"configmap": {apiVersion: "v1", kind: "ConfigMap", body: "data: {value: one}\n",
			change: `{"data":{"value":"by hand"}}`, field: []string{"data", "value"}, want: "one"},
		"secret": {apiVersion: "v1", kind: "Secret", body: "data: {value: b25l}\n",
			change: `{"data":{"value":"dHdv"}}`, field: []string{"data", "value"}, want: "b25l"},
		"service": {apiVersion: "v1", kind: "Service", body: "spec: {selector: {app: NAME}, ports: [{port: 80}]}\n",
			change: `{"spec":{"selector":{"app":"other"}}}`,
			field:  []string{"spec", "selector", "app"}, want: "NAME",
			status: otherStatus},
		"account": {apiVersion: "v1", kind: "ServiceAccount", body: "automountServiceAccountToken: false\n",
			change: `{"automountServiceAccountToken":true}`, field: []string{"automountServiceAccountToken"}, want: "false"},
		"role": {apiVersion: rbac, kind: "Role", body: rule, change: otherRule, field: rules, want: wantRules},
		"binding": {apiVersion: rbac, kind: "RoleBinding",
			body: "roleRef: {apiGroup: rbac.authorization.k8s.io, kind: Role, name: none}\n" +
				"subjects: [{kind: ServiceAccount, name: NAME, namespace: " + ns + "}]\n",
			change: `{"subjects":[]}`, field: []string{"subjects"}, want: "[map[kind:ServiceAccount name:NAME namespace:" + ns + "]]"},
		"clusterrole": {apiVersion: rbac, kind: "ClusterRole", body: rule, change: otherRule, field: rules, want: wantRules,
			clusterScoped: true, prefix: ns + "-"},
		"namespace": {apiVersion: "v1", kind: "Namespace", clusterScoped: true, prefix: ns + "-", stays: true,
			change: `{"metadata":{"labels":{"team":"hand"}}}`, field: []string{"metadata", "labels", "team"}, want: "shop"},
		"autoscaler": {apiVersion: "autoscaling/v2", kind: "HorizontalPodAutoscaler",
			body:   "spec: {maxReplicas: 3, scaleTargetRef: {apiVersion: apps/v1, kind: Deployment, name: none}}\n",
			change: `{"spec":{"maxReplicas":4}}`, field: []string{"spec", "maxReplicas"}, want: "3", status: otherStatus},
		"toy": {apiVersion: ns + ".example.org/v1", kind: "Toy", body: "spec: {colour: red}\n",
			change: `{"spec":{"colour":"blue"}}`, field: []string{"spec", "colour"}, want: "red", status: `{"status":{"colour":"blue"}}`},
		"deployment": deployment,
		"governed":   governed,
		"plan": {apiVersion: "tranche.dev/v1alpha1", kind: "BatchRelease", body: planBody, prefix: "plan-",
			more:   "apiVersion: apps/v1\nkind: Deployment\nmetadata: {name: NAME}\n" + deploymentBody,
			change: `{"spec":{"strategy":{"steps":[{"replicas":"100%"}]}}}`,
			field:  []string{"spec", "strategy", "steps"}, want: "[map[replicas:50%] map[replicas:100%]]",
			status: `{"status":{"currentStepState":"Completed"}}`},
	}
}

// toys is the definition of the kind Toy, in a group of the namespace.
func toys(ns string) string {
	return strings.ReplaceAll(`apiVersion: apiextensions.k8s.io/v1
kind: CustomResourceDefinition
metadata: {name: toys.GROUP}
spec:
  group: GROUP
  scope: Namespaced
  names: {plural: toys, singular: toy, kind: Toy, listKind: ToyList}
  versions:
  - name: v1
    served: true
    storage: true
    subresources: {status: {}}
    schema:
      openAPIV3Schema:
        type: object
        properties:
          spec: {type: object, properties: {colour: {type: string}}}
          status: {type: object, properties: {colour: {type: string}}}
`, "GROUP", ns+".example.org")
}

// variants are the changes that the kind can have.
func (d *drifting) variants() []string {
	all := []string{driftOfSpec, driftOfMetadata}
	if !d.stays {
		all = append(all, driftByDeletion, driftByCreation)
	}
	if d.status != "" {
		all = append(all, changeOfStatus, driftAfter)
	}
	return all
}

// manifest is what the branch has of the kind.
func (d *drifting) manifest(variant string) string {
	text := "apiVersion: " + d.apiVersion + "\nkind: " + d.kind +
		"\nmetadata: {name: NAME, labels: {team: shop}, annotations: {tranche.dev/prune: enabled}}\n" + d.body
	if d.more != "" {
		text += "---\n" + d.more
	}
	return strings.ReplaceAll(text, "NAME", d.prefix+variant)
}

// read returns an object as the API server has it.
func (d *drifting) read(s *env, variant string) (*unstructured.Unstructured, error) {
	o := &unstructured.Unstructured{}
	o.SetGroupVersionKind(schema.FromAPIVersionAndKind(d.apiVersion, d.kind))
	key := client.ObjectKey{Namespace: s.ns, Name: d.prefix + variant}
	if d.clusterScoped {
		key.Namespace = ""
	}
	return o, s.c.Client.Get(s.Context(), key, o)
}

// asInGit returns an error unless an object is again as the branch and its source have it.
func (d *drifting) asInGit(s *env, variant, source string, before types.UID) error {
	o, err := d.read(s, variant)
	if err != nil {
		return err
	}
	got, _, err := unstructured.NestedFieldNoCopy(o.Object, d.field...)
	if err != nil {
		return err
	}
	want := strings.ReplaceAll(d.want, "NAME", o.GetName())
	labels := o.GetLabels()
	isOwned := d.kind == "Deployment" || labels[v1alpha1.LabelSource] == source
	if fmt.Sprint(got) != want || labels["team"] != "shop" || !isOwned || o.GetDeletionTimestamp() != nil {
		return fmt.Errorf("%s is %v, want %s; labels: %v", strings.Join(d.field, "."), got, want, labels)
	}
	if isNew := o.GetUID() != before; isNew != (variant == driftByDeletion || variant == driftByCreation) {
		return fmt.Errorf("it is another object: %t", isNew)
	}
	return nil
}

// drift changes an object as a client other than the controller does, and returns its UID
// before.
func (d *drifting) drift(s *env, variant string) types.UID {
	s.Helper()
	o, err := d.read(s, variant)
	s.must(err)
	merge := func(patch string) client.Patch { return client.RawPatch(types.MergePatchType, []byte(patch)) }
	by := client.FieldOwner("hand")
	uid := o.GetUID()
	switch variant {
	case driftOfSpec:
		err = s.c.Client.Patch(s.Context(), o, merge(d.change), by)
	case driftOfMetadata, driftAfter:
		err = s.c.Client.Patch(s.Context(), o, merge(`{"metadata":{"labels":{"team":"hand"}}}`), by)
	case changeOfStatus:
		err = s.c.Client.Status().Patch(s.Context(), o, merge(d.status), client.FieldOwner("hand"))
	default:
		err = s.c.Client.Delete(s.Context(), o, client.PropagationPolicy(metav1.DeletePropagationBackground))
	}
	s.must(err)
	if variant == driftByCreation {
		// The controller may have created it by now.
		out, err := s.c.KubectlWith(s, d.manifest(variant), "create", "-n", s.ns, "-f", "-")
		if err != nil && !strings.Contains(out, "AlreadyExists") {
			s.Fatal(out)
		}
	}
	return uid
}

// Drift of each kind of object is found within the interval, however the object was changed.
// Each kind has a source of its own: drift of one does not have another one read.
func TestInterval_DriftOfEachKind(t *testing.T) {
	t.Parallel()
	s := newIdleEnv(t)
	if out, err := s.c.KubectlWith(t, toys(s.ns), "apply", "-f", "-"); err != nil {
		t.Fatal(out)
	}
	t.Cleanup(func() { deleteToys(s) })
	s.kubectl("wait", "--for=condition=Established", "crd/toys."+s.ns+".example.org", "--timeout=4m")
	kinds, files := kindsThatDrift(s.ns), map[string]string{}
	for name, kind := range kinds {
		for _, variant := range kind.variants() {
			files[name+"/"+variant+".yaml"] = kind.manifest(variant)
		}
	}
	tip := s.push(files)
	t.Cleanup(s.startControllerWith(s.c.Config, gitsyncOnly))
	names := slices.Sorted(maps.Keys(kinds))
	for _, name := range names {
		s.another(name, name, func(gs *v1alpha1.GitSource) { gs.Spec.Interval.Duration = 2 * time.Second })
	}
	for _, name := range names {
		s.isAppliedBy(name, tip)
	}
	for _, variant := range []string{driftOfSpec, driftOfMetadata, driftByDeletion, driftByCreation, changeOfStatus} {
		before := map[string]types.UID{}
		for name, kind := range kinds {
			if slices.Contains(kind.variants(), variant) {
				before[name] = kind.drift(s, variant)
			}
		}
		if variant == changeOfStatus {
			leavesStatus(s, kinds, before)
			continue
		}
		for name := range before {
			kind := kinds[name]
			clustertest.Wait(t, name+", "+variant+": the end of the drift", func() error {
				return kind.asInGit(s, variant, name, before[name])
			})
		}
	}
}

// leavesStatus expects that objects whose status was changed are not written. Drift of another
// object of the source, which came later, is reverted first.
func leavesStatus(s *env, kinds map[string]drifting, of map[string]types.UID) {
	s.Helper()
	written := map[string]string{}
	for name := range of {
		kind := kinds[name]
		written[name] = kind.lastWrite(s)
	}
	for name := range of {
		kind := kinds[name]
		uid := kind.drift(s, driftAfter)
		clustertest.Wait(s, name+": the end of the later drift", func() error { return kind.asInGit(s, driftAfter, name, uid) })
		if now := kind.lastWrite(s); now != written[name] {
			s.Errorf("%s: its status was changed; the controller wrote it at %s, and again at %s", name, written[name], now)
		}
	}
	for _, note := range s.events("DriftUndone") {
		if object, _, _ := strings.Cut(note, ":"); strings.HasSuffix(object, changeOfStatus) {
			s.Errorf("the change of a status is taken for drift: %s", note)
		}
	}
}

// lastWrite is when gitsync wrote the object last whose status is changed, and its generation.
func (d *drifting) lastWrite(s *env) string {
	s.Helper()
	o, err := d.read(s, changeOfStatus)
	s.must(err)
	var at []string
	for _, f := range o.GetManagedFields() {
		if f.Manager == v1alpha1.ManagerGitSync && f.Subresource == "" {
			at = append(at, f.Time.String())
		}
	}
	return fmt.Sprint(at, " generation ", o.GetGeneration())
}

// deleteToys deletes the definition of the kind Toy.
func deleteToys(s *env) {
	s.Helper()
	crd := &unstructured.Unstructured{}
	crd.SetName("toys." + s.ns + ".example.org")
	crd.SetGroupVersionKind(schema.GroupVersionKind{Group: "apiextensions.k8s.io", Version: "v1", Kind: "CustomResourceDefinition"})
	if err := s.c.Client.Delete(context.Background(), crd); err != nil {
		s.Error(errors.Join(errors.New("deleting the definition of toys"), err))
	}
}
