package plan

import (
	"cmp"
	"fmt"
	"slices"
	"strings"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/util/validation/field"

	"github.com/tranche-dev/tranche/plan/v1alpha1"
)

// Release is a plan and the Deployment that it governs, both from Git.
type Release struct {
	// Plan without what only the controller sets: template, commit,
	// approval, approvalsSince, deploymentStrategy, serviceAccountName, requireSignedApprovals,
	// status.
	Plan *v1alpha1.BatchRelease
	// File of the plan.
	File string
	// Deployment is the manifest.
	Deployment Object
	// Template of the manifest, before the API server's defaults.
	Template *corev1.PodTemplateSpec
	// Strategy of the manifest; nil where it names none.
	Strategy *appsv1.DeploymentStrategy
	// MinReadySeconds of the manifest.
	MinReadySeconds int32
}

// ComparePlans orders the plans of one Deployment: the first one counts. A plan that a
// GitSource applies goes before one that a user made by hand, whatever their ages.
// Otherwise a user who may write BatchReleases would have Git's plan count for nothing.
// Among equals it is the oldest one, then the first by name.
func ComparePlans(a, b *v1alpha1.BatchRelease) int {
	return cmp.Or(
		cmp.Compare(rankOf(a), rankOf(b)),
		a.CreationTimestamp.Compare(b.CreationTimestamp.Time),
		strings.Compare(a.Name, b.Name),
	)
}

// rankOf is 0 for a plan with the label of a GitSource, which an admission policy guards,
// and 1 for any other.
func rankOf(br *v1alpha1.BatchRelease) int {
	if br.Labels[v1alpha1.LabelSource] != "" {
		return 0
	}
	return 1
}

// String is "BatchRelease shop/web".
func (r *Release) String() string {
	return "BatchRelease " + r.Plan.Namespace + "/" + r.Plan.Name
}

// pair decodes the plans and finds their Deployments. It adds the Deployments of plans with
// problems to faulty.
func (s *Set) pair(plans []Object, objects map[key]Object, analyses *analyses, providers ProviderOf, faulty map[key]bool) Problems {
	var ps Problems
	by := map[key]Object{} // the plan that governs a Deployment
	for _, o := range plans {
		p, more := DecodePlan(o)
		if p == nil {
			name, _, _ := unstructured.NestedString(o.Object, "spec", "workloadRef", "name")
			faulty[key{kindDeployment, o.GetNamespace(), name}] = true
			ps = append(ps, more...)
			continue
		}
		k := key{kindDeployment, p.Namespace, p.Spec.WorkloadRef.Name}
		isFaulty := faulty[o.key()] || slices.ContainsFunc(ofPlan(p), func(file key) bool { return faulty[file] })
		more = append(more, analyses.expand(p, o)...)
		d, ok := objects[k]
		if other, twice := by[k]; twice {
			more = append(more, o.problem(ReasonInvalidPlan, "spec.workloadRef",
				fmt.Sprintf("Deployment %s is governed by %s in %s already", k.name, other, other.File), "keep one of the two plans"))
		} else if by[k] = o; ok {
			r := Release{Plan: p, File: o.File, Deployment: d}
			more = append(more, s.govern(&r, o)...)
			more = append(more, r.checkSources(o, objects, providers)...)
			s.Releases = append(s.Releases, r)
		} else {
			more = append(more, o.problem(ReasonInvalidPlan, "spec.workloadRef",
				fmt.Sprintf("no Deployment %s/%s is rendered with it", k.namespace, k.name), hintAt(k, objects)))
		}
		if isFaulty || len(more) > 0 {
			faulty[k] = true
		}
		ps = append(ps, more...)
	}
	return ps
}

// index sorts the releases, so that each is found by its Deployment.
func (s *Set) index() {
	slices.SortFunc(s.Releases, func(a, b Release) int {
		return cmp.Or(cmp.Compare(a.Plan.Namespace, b.Plan.Namespace), cmp.Compare(a.Plan.Name, b.Plan.Name))
	})
	s.governed = map[key]int{}
	for i, r := range s.Releases {
		s.governed[r.Deployment.key()] = i
	}
}

// hintAt says where the Deployment of a plan may be.
func hintAt(missing key, objects map[key]Object) string {
	var renamed []string
	for k := range objects {
		if k.GroupKind == kindDeployment && k.namespace == missing.namespace && missing.name != "" && strings.Contains(k.name, missing.name) {
			renamed = append(renamed, k.name)
		}
	}
	if len(renamed) == 0 {
		return "put its manifest below the same spec.path, or remove the plan"
	}
	return "there is " + slices.Min(renamed) + "; kustomize renames in spec.workloadRef only with a nameReference in its configurations"
}

// controllerFields of a BatchRelease have no place in Git.
var controllerFields = []struct{ path, why string }{
	{"metadata.ownerReferences", "with an owner that is gone the plan would be deleted, and its gates with it"},
	{"spec.template", "the Deployment's manifest has it"},
	{"spec.deploymentStrategy", "the Deployment's manifest has it"},
	{"spec.commit", "it is set from Git's history"},
	{"spec.approval", "a BatchApproval file gives it"},
	{"spec.approvalsSince", "it is set from Git's history"},
	{"spec.serviceAccountName", "the GitSource gives it"},
	{"spec.reviewApprovals", "the GitSource gives it"},
	{"spec.requireSignedApprovals", "the GitSource gives it"},
	{"status", "it is the controller's"},
}

// DecodePlan decodes and validates a plan file as far as it goes by itself.
// The plan is nil where it does not decode.
func DecodePlan(o Object) (*v1alpha1.BatchRelease, Problems) {
	if v := o.GetAPIVersion(); v != v1alpha1.GroupVersion.String() {
		return nil, Problems{o.problem(ReasonInvalidPlan, "apiVersion", v+" is not known", "write "+v1alpha1.GroupVersion.String())}
	}
	p := &v1alpha1.BatchRelease{}
	content := withoutNullCreation(o.Object)
	var ps Problems
	for _, f := range controllerFields {
		fields := pathOf(f.path)
		if v, ok, _ := unstructured.NestedFieldNoCopy(content, fields...); ok {
			unstructured.RemoveNestedField(content, fields...)
			if v != nil {
				ps = append(ps, o.problem(ReasonInvalidPlan, f.path, "is not set in Git: "+f.why, "remove it"))
			}
		}
	}
	if errs := decode(content, p, nil); len(errs) > 0 {
		return nil, append(ps, o.fieldProblems(ReasonInvalidPlan, errs)...)
	}
	p.Spec.WorkloadRef.APIVersion = cmp.Or(p.Spec.WorkloadRef.APIVersion, "apps/v1")
	p.Spec.WorkloadRef.Kind = cmp.Or(p.Spec.WorkloadRef.Kind, kindDeployment.Kind)
	errs := validateRef(p.Spec.WorkloadRef, field.NewPath("spec", "workloadRef"))
	if len(errs) > 0 {
		return nil, append(ps, o.fieldProblems(ReasonInvalidPlan, errs)...)
	}
	errs = ValidateStrategy(&p.Spec.Strategy, field.NewPath("spec", "strategy"))
	return p, append(ps, o.fieldProblems(ReasonInvalidPlan, errs)...)
}

// withoutNullCreation takes off what tools that print Go types leave behind.
func withoutNullCreation(m map[string]any) map[string]any {
	c := (&unstructured.Unstructured{Object: m}).DeepCopy().Object
	if meta, ok := c["metadata"].(map[string]any); ok && meta["creationTimestamp"] == nil {
		delete(meta, "creationTimestamp")
	}
	return c
}

func validateRef(ref v1alpha1.WorkloadReference, at *field.Path) field.ErrorList {
	var errs field.ErrorList
	if ref.APIVersion != "apps/v1" || ref.Kind != kindDeployment.Kind {
		errs = append(errs,
			field.Invalid(at, "", fmt.Sprintf("%s %s cannot be released in batches; name a Deployment of apps/v1", ref.APIVersion, ref.Kind)))
	}
	if ref.Name == "" {
		errs = append(errs, field.Required(at.Child("name"), "must be the Deployment's name"))
	}
	return errs
}

// govern takes from the Deployment what the release needs, and checks it and
// the plan against each other.
func (s *Set) govern(r *Release, plan Object) Problems {
	d := &appsv1.Deployment{}
	ps := r.Deployment.fieldProblems(ReasonInvalidManifest, decodeGoverned(r.Deployment, d))
	if len(ps) > 0 {
		return ps
	}
	add := func(field, fact, hint string) {
		ps = append(ps, r.Deployment.problem(ReasonInvalidManifest, field, fact, hint))
	}
	if d.Spec.Paused {
		add("spec.paused", "is true, and "+plan.String()+" governs this Deployment",
			"remove it; to freeze a release set spec.paused of the BatchRelease")
	}
	if d.Spec.Strategy.Type == appsv1.RecreateDeploymentStrategyType {
		add("spec.strategy.type", "Recreate cannot be released in batches", "write RollingUpdate, or remove the plan in "+plan.File)
	}
	if _, ok, _ := unstructured.NestedMap(r.Deployment.Object, "spec", "template"); !ok {
		add("spec.template", "must be set", "")
	}
	r.Template, r.MinReadySeconds = &d.Spec.Template, d.Spec.MinReadySeconds
	if _, ok, _ := unstructured.NestedMap(r.Deployment.Object, "spec", "strategy"); ok {
		r.Strategy = &d.Spec.Strategy
	}
	n := d.Spec.Replicas
	known := n != nil && *n >= 0 && !s.Autoscaled(r.Deployment)
	if _, _, err := Bounds(r.Strategy, 1); err != nil {
		add("spec.strategy.rollingUpdate", err.Error(), "write a number or a percentage")
	}
	if known {
		ps = append(ps, validateAt(r.Plan, plan, *n)...)
	}
	return ps
}

// validateAt checks the steps at the manifest's replicas.
func validateAt(p *v1alpha1.BatchRelease, o Object, n int32) Problems {
	strategy := field.NewPath("spec", "strategy")
	if len(ValidateStrategy(&p.Spec.Strategy, strategy)) > 0 {
		return nil // said already
	}
	errs := ValidateSteps(p.Spec.Strategy.Steps, n, strategy.Child("steps"))
	if back := p.Spec.Strategy.Rollback; back != nil {
		steps := make([]v1alpha1.Step, len(back.Steps))
		for i, s := range back.Steps {
			steps[i].Replicas = s.Replicas
		}
		errs = append(errs, ValidateSteps(steps, n, strategy.Child("rollback", "steps"))...)
	}
	return o.fieldProblems(ReasonInvalidPlan, errs)
}

// decodeGoverned decodes a Deployment. It refuses a field that this version of the types
// does not know if the release carries the typed value to the cluster. Such a field would
// get lost on the way. Elsewhere the server decides.
func decodeGoverned(o Object, d *appsv1.Deployment) field.ErrorList {
	content := o.DeepCopy().Object
	delete(content, "status")
	var errs field.ErrorList
	for _, e := range decode(content, d, nil) {
		carried := under(e.Field, "spec.template") || under(e.Field, "spec.strategy")
		if carried || !isUnknown(e) {
			errs = append(errs, e)
			continue
		}
		unstructured.RemoveNestedField(content, pathOf(e.Field)...)
	}
	if len(errs) > 0 {
		return errs
	}
	return decode(content, d, nil)
}
