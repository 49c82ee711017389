package gitsync

import (
	"context"
	"encoding/base64"
	"maps"
	"slices"
	"strings"

	autoscalingv2 "k8s.io/api/autoscaling/v2"
	"k8s.io/apimachinery/pkg/api/equality"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/tranche-dev/tranche/plan"
	"github.com/tranche-dev/tranche/plan/v1alpha1"
)

// Difference is what applying a commit would do to one object.
type Difference struct {
	// Object is its kind, namespace and name, as people say them.
	Object string
	// Live is what is there, and Applied what would be; nil where it is not
	// there. Without status and what only the API server sets; of a Deployment
	// with a plan, with the template, strategy and paused that it has.
	Live, Applied *unstructured.Unstructured
	// Recreated: it would be deleted and made anew.
	Recreated bool
	// Kept says why an object that left the branch stays; empty: it goes.
	Kept string
	// Estimated: the account may not ask the API server, so that Applied is Live
	// with what the manifest says put in place. Its defaults and normal forms
	// are not known.
	Estimated bool
}

// Preview returns what applying a set for a source would do to the objects of
// the cluster that it changes, in the order of application, and then what it
// would prune. It reads with the rights of c, writes nothing, and has the API
// server try what c may write. What cannot be applied is an error of
// [plan.Problems]; the differences of all other objects are returned with it.
//
// What a release would do to a Deployment's pods is not part of it.
func Preview(ctx context.Context, c client.Client, gs *v1alpha1.GitSource, set *plan.Set) ([]Difference, error) {
	p := &previewer{
		applier:  &applier{gs: gs, c: c},
		observer: &observer{gs: gs, as: c, own: c, plans: map[string][]v1alpha1.BatchRelease{}, hpas: map[string][]autoscalingv2.HorizontalPodAutoscaler{}},
	}
	targets, err := p.observer.targets(ctx, set)
	if err != nil {
		return nil, err
	}
	var differences []Difference
	var problems plan.Problems
	wanted := inventory{}
	take := func(e entry, d *Difference, ps plan.Problems, err error) error {
		wanted.add(e)
		problems = append(problems, ps...)
		if d != nil {
			differences = append(differences, *d)
		}
		return err
	}
	for _, t := range targets {
		d, ps, err := p.object(ctx, t)
		if err := take(t.entry(), d, ps, err); err != nil {
			return nil, err
		}
	}
	for i := range set.Releases {
		e, d, ps, err := p.release(ctx, &set.Releases[i])
		if err := take(e, d, ps, err); err != nil {
			return nil, err
		}
	}
	gone, err := p.pruned(ctx, wanted)
	if err != nil {
		return nil, err
	}
	differences = append(differences, gone...)
	if len(problems) > 0 {
		return differences, problems
	}
	return differences, nil
}

type previewer struct {
	applier  *applier
	observer *observer
}

func (p *previewer) object(ctx context.Context, t *target) (*Difference, plan.Problems, error) {
	if t.way == notAtAll || t.way == afterHandBack {
		return nil, nil, nil
	}
	u := p.applier.body(t)
	if t.way == asGoverned {
		if err := takeOver(u, t.live, rolloutFields...); err != nil {
			return nil, nil, err
		}
	}
	return p.tried(ctx, t, u)
}

// release is a plan, with what the controller has set of it.
func (p *previewer) release(ctx context.Context, r *plan.Release) (entry, *Difference, plan.Problems, error) {
	br := r.Plan.DeepCopy()
	br.SetGroupVersionKind(v1alpha1.GroupVersion.WithKind("BatchRelease"))
	o, err := releaseObject(br, r.File)
	if err != nil {
		return entry{}, nil, nil, err
	}
	t := &target{Object: o}
	if t.live, err = get(ctx, p.applier.c, t.entry()); err != nil {
		return t.entry(), nil, nil, err
	}
	u := p.applier.manifest(o)
	if t.live != nil {
		marked := u.GetLabels()
		for k, v := range p.applier.gs.Labels {
			if t.live.GetLabels()[k] == v {
				marked[k] = v // handed on, for the controllers that share the work
			}
		}
		u.SetLabels(marked)
		if err := takeOver(u, t.live, "template", "commit", "approval", "deploymentStrategy", "serviceAccountName", "requireSignedApprovals", "reviewApprovals"); err != nil {
			return t.entry(), nil, nil, err
		}
	}
	d, ps, err := p.tried(ctx, t, u)
	return t.entry(), d, ps, err
}

// tried is the difference that a manifest makes; nil where it makes none.
func (p *previewer) tried(ctx context.Context, t *target, u *unstructured.Unstructured) (*Difference, plan.Problems, error) {
	d := &Difference{Object: t.entry().String(), Applied: u}
	manifest := u.DeepCopy()
	var err error
	if !t.late {
		withoutNulls(u.Object)
		err = p.applier.dryRunApply(ctx, u)
	}
	switch {
	case isImmutable(err) && mayRecreate(t):
		d.Recreated, d.Applied = true, manifest
	case apierrors.IsForbidden(err):
		d.Estimated, d.Applied = true, manifest
		encodeSecret(manifest)
		if t.live != nil {
			d.Applied = &unstructured.Unstructured{Object: overlaid(t.live.Object, manifest.Object)}
		}
	case err != nil:
		return nil, apiProblems(reasonDryRunFailed, t.Object, p.applier.gs, err), nil
	}
	if t.live != nil {
		d.Live = plainOf(t.live)
	}
	d.Applied = plainOf(d.Applied)
	if d.Live != nil && !d.Recreated && equality.Semantic.DeepEqual(d.Live.Object, d.Applied.Object) {
		return nil, nil, nil
	}
	return d, nil, nil
}

// pruned are the objects of the inventory that the set does not have.
func (p *previewer) pruned(ctx context.Context, wanted inventory) ([]Difference, error) {
	gs := p.applier.gs
	if !gs.Spec.Prune {
		return nil, nil
	}
	gone := readInventory(gs.Status.Inventory).without(wanted)
	pr := &pruner{gs: gs, as: p.applier.c, own: p.applier.c}
	used, err := pr.used(ctx, gone)
	if err != nil {
		return nil, err
	}
	var differences []Difference
	for _, e := range gone {
		live, err := pr.present(ctx, e)
		if err != nil {
			return nil, err
		}
		if live == nil {
			continue
		}
		d := Difference{Object: e.String(), Live: plainOf(live)}
		if v, because := judge(live, gs, used); v != remove {
			d.Kept = because
		}
		differences = append(differences, d)
	}
	return differences, nil
}

// plainOf is an object as people write it.
func plainOf(u *unstructured.Unstructured) *unstructured.Unstructured {
	u = withoutServersOwn(u)
	u.SetLabels(without(u.GetLabels(), func(k string) bool { return k == v1alpha1.LabelSource || k == v1alpha1.LabelSourceNamespace }))
	u.SetAnnotations(without(u.GetAnnotations(), func(k string) bool {
		return k == "kubectl.kubernetes.io/last-applied-configuration" || strings.HasPrefix(k, "deployment.kubernetes.io/")
	}))
	return u
}

// without returns nil where nothing is left.
func without(m map[string]string, drop func(key string) bool) map[string]string {
	maps.DeleteFunc(m, func(k, _ string) bool { return drop(k) })
	if len(m) == 0 {
		return nil
	}
	return m
}

// encodeSecret writes stringData of a Secret as data, as the API server does.
func encodeSecret(u *unstructured.Unstructured) {
	texts, ok, _ := unstructured.NestedStringMap(u.Object, "stringData")
	if !ok || entryOf(u).gvk.GroupKind() != secretKind {
		return
	}
	data, _, _ := unstructured.NestedStringMap(u.Object, "data")
	if data == nil {
		data = map[string]string{}
	}
	for k, v := range texts {
		data[k] = base64.StdEncoding.EncodeToString([]byte(v))
	}
	unstructured.RemoveNestedField(u.Object, "stringData")
	_ = unstructured.SetNestedStringMap(u.Object, data, "data") // at the top there is nothing in the way
}

// overlaid is a live value with what a manifest says put in place: objects
// member by member, lists of named objects by their names, all else whole.
func overlaid(live, manifest map[string]any) map[string]any {
	merged := runtime.DeepCopyJSON(live)
	for k, v := range manifest {
		merged[k] = overlay(merged[k], v)
	}
	return merged
}

func overlay(live, manifest any) any {
	switch m := manifest.(type) {
	case map[string]any:
		if l, ok := live.(map[string]any); ok {
			return overlaid(l, m)
		}
	case []any:
		l, ok := live.([]any)
		if !ok {
			break
		}
		merged := make([]any, len(m))
		for i, v := range m {
			merged[i] = overlay(counterpart(l, v, i), v)
		}
		return merged
	}
	return runtime.DeepCopyJSONValue(manifest)
}

// counterpart is the element of a live list that one of a manifest is about: of the
// same name, or at the same place where they have none.
func counterpart(live []any, v any, i int) any {
	name := nameIn(v)
	if name == "" {
		if i < len(live) && nameIn(live[i]) == "" {
			return live[i]
		}
		return nil
	}
	if at := slices.IndexFunc(live, func(l any) bool { return nameIn(l) == name }); at >= 0 {
		return live[at]
	}
	return nil
}

func nameIn(v any) string {
	m, _ := v.(map[string]any)
	name, _ := m["name"].(string)
	return name
}
