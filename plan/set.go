package plan

import (
	"cmp"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"

	appsv1 "k8s.io/api/apps/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"

	"github.com/tranche-dev/tranche/plan/order"
	"github.com/tranche-dev/tranche/plan/v1alpha1"
)

// CollectOptions say which namespace objects are in.
type CollectOptions struct {
	// Namespace of namespaced objects that name none.
	Namespace string
	// TargetNamespace is the namespace of all namespaced objects, if set.
	TargetNamespace string
	// Namespaced tells the scope of a kind. It is asked only for kinds that
	// no CRD of the same set defines. Nil: all others are namespaced.
	Namespaced func(schema.GroupVersionKind) (bool, error)
	// CheckMetric checks the metrics of plans. Nil: only by what their types say.
	CheckMetric MetricCheck
	// ProviderOf tells the providers of the controller's configuration. Nil: they are not
	// known, and not checked.
	ProviderOf ProviderOf
}

// Set is what a commit says, ready to be applied.
type Set struct {
	// Objects is everything to apply but the BatchReleases, in the order in
	// which to apply it.
	Objects []Object
	// Releases are the plans with their Deployments, by namespace and name.
	Releases []Release
	// Ignored is what was left out and does no harm.
	Ignored Problems

	governed   map[key]int // into Releases, by Deployment
	autoscaled map[key]bool
}

// Governed returns the release that governs a Deployment, or nil.
func (s *Set) Governed(o Object) *Release {
	if i, ok := s.governed[o.key()]; ok {
		return &s.Releases[i]
	}
	return nil
}

// Autoscaled reports whether an autoscaler of the set owns the replicas of o,
// so that they must be left out of what is applied.
func (s *Set) Autoscaled(o Object) bool { return s.autoscaled[o.key()] }

// Kinds that Collect knows by name.
var (
	kindRelease    = v1alpha1.GroupVersion.WithKind("BatchRelease").GroupKind()
	kindApproval   = v1alpha1.GroupVersion.WithKind("BatchApproval").GroupKind()
	kindDeployment = schema.GroupKind{Group: "apps", Kind: "Deployment"}
	kindCRD        = schema.GroupKind{Group: "apiextensions.k8s.io", Kind: "CustomResourceDefinition"}
)

// Collect puts rendered objects in the order of application, gives each its
// namespace, and pairs plans with Deployments. The objects given are not
// changed.
//
// The error is [Problems]: all that is wrong, at once. Its set is not one to apply. It has the
// releases of which nothing is wrong: neither the plan nor its analyses nor the Deployment.
func Collect(objects []Object, opts CollectOptions) (*Set, error) {
	c := collector{
		opts: opts, scopes: definedScopes(objects), byKey: map[key]Object{}, analyses: map[key]Object{}, faulty: map[key]bool{},
	}
	for _, o := range objects {
		c.add(o)
	}
	s := &Set{Objects: c.objects, Ignored: c.ignored.Sorted(), autoscaled: autoscaled(c.objects)}
	slices.SortStableFunc(s.Objects, func(a, b Object) int { return order.Of(a.groupKind()) - order.Of(b.groupKind()) })
	analyses, ofAnalyses := newAnalyses(c.analyses, opts.CheckMetric, c.faulty)
	ofPlans := s.pair(c.plans, c.byKey, analyses, opts.ProviderOf, c.faulty)
	if !c.unplaced { // else that may follow from it
		c.problems = slices.Concat(c.problems, ofAnalyses, ofPlans)
	}
	s.index()
	err := c.problems.Err()
	if err != nil {
		s.LeaveOut(func(d types.NamespacedName) bool { return c.faulty[key{kindDeployment, d.Namespace, d.Name}] })
	}
	return s, err
}

// LeaveOut leaves out Deployments, and the releases of these.
func (s *Set) LeaveOut(deployment func(types.NamespacedName) bool) {
	s.Objects = slices.DeleteFunc(s.Objects, func(o Object) bool {
		return o.groupKind() == kindDeployment && deployment(types.NamespacedName{Namespace: o.GetNamespace(), Name: o.GetName()})
	})
	s.Releases = slices.DeleteFunc(s.Releases, func(r Release) bool { return deployment(WorkloadOf(&r)) })
	s.index()
}

type collector struct {
	opts   CollectOptions
	scopes map[schema.GroupKind]bool
	byKey  map[key]Object
	// analyses are the BatchAnalysis files. They are no objects to apply.
	analyses map[key]Object

	objects, plans []Object
	ignored        Problems
	problems       Problems
	faulty         map[key]bool // the objects with problems
	unplaced       bool         // of some object the namespace is not known
}

func (c *collector) add(o Object) {
	o.Unstructured = o.DeepCopy()
	if o.groupKind() == kindApproval {
		c.ignored = append(c.ignored, o.problem(ReasonApprovalIgnored, "", "is not in the folder for approvals",
			"move it to the path that the GitSource names in spec.approvals.path"))
		return
	}
	if err := c.place(o); err != nil {
		c.problems = append(c.problems, asProblem(err, o))
		c.unplaced = true
		return
	}
	if first, ok := c.byKey[o.key()]; ok {
		c.problems = append(c.problems, o.problem(ReasonDuplicateObject, "", "is also in "+first.File, "keep one of the two"))
		c.faulty[o.key()] = true
		return
	}
	c.byKey[o.key()] = o
	if ps := reserved(o); len(ps) > 0 {
		c.problems = append(c.problems, ps...)
		c.faulty[o.key()] = true
	}
	switch o.groupKind() {
	case kindRelease:
		c.plans = append(c.plans, o)
	case kindAnalysis:
		c.analyses[o.key()] = o
	default:
		c.objects = append(c.objects, o)
	}
}

// inGit says what is wrong with what users set in the cluster.
var inGit = map[string]string{v1alpha1.AnnotationRollback: "in Git it would roll back each release that follows"}

// controllersOwn are the labels and annotations that only the controller writes. From a manifest they
// would say of a Deployment that it is held, or of an object that another GitSource applies it.
var controllersOwn = []string{
	v1alpha1.LabelHeld, v1alpha1.LabelSource, v1alpha1.LabelSourceNamespace, v1alpha1.AnnotationPush, v1alpha1.AnnotationCommitAuthor,
	v1alpha1.AnnotationCommitURL, v1alpha1.AnnotationRejected, v1alpha1.AnnotationReturns, v1alpha1.AnnotationRollback,
}

// nativesOwn are the prefixes of the labels and annotations by which the controllers of
// Kubernetes know their objects. From a manifest they would have the Deployment
// controller roll back to another template, past every gate, or take a ReplicaSet for
// complete. Each of them would write without end what a GitSource takes back.
var nativesOwn = map[schema.GroupKind][]string{
	kindDeployment:                      {appsv1.DeprecatedRollbackTo, "deployment.kubernetes.io/"},
	{Group: "apps", Kind: "ReplicaSet"}: {appsv1.DeprecatedRollbackTo, "deployment.kubernetes.io/"},
}

// IsServersFinalizer reports whether a finalizer is one that the API server sets for a
// deletion and that the garbage collector removes.
func IsServersFinalizer(name string) bool {
	return name == metav1.FinalizerOrphanDependents || name == metav1.FinalizerDeleteDependents
}

// reserved returns a problem for each label, annotation and finalizer of o that only the
// controller, or a component of Kubernetes, writes, whatever its value.
func reserved(o Object) Problems {
	var ps Problems
	for i, name := range o.GetFinalizers() {
		if IsServersFinalizer(name) {
			field := fmt.Sprintf("metadata.finalizers[%d]", i)
			ps = append(ps, o.problem(ReasonInvalidManifest, field, "only the API server sets "+name+", when an object is deleted", "remove it"))
		}
	}
	for _, field := range []string{"labels", "annotations"} {
		m, _, _ := unstructured.NestedFieldNoCopy(o.Object, "metadata", field)
		values, _ := m.(map[string]any) // without any, there is nothing to refuse
		for _, key := range controllersOwn {
			if _, ok := values[key]; ok {
				at, says := "metadata."+field+"["+key+"]", cmp.Or(inGit[key], "only the controller sets it")
				ps = append(ps, o.problem(ReasonInvalidManifest, at, says, "remove it"))
			}
		}
		for _, key := range slices.Sorted(maps.Keys(values)) {
			if slices.ContainsFunc(nativesOwn[o.groupKind()], func(prefix string) bool { return strings.HasPrefix(key, prefix) }) {
				ps = append(ps, o.problem(ReasonInvalidManifest, "metadata."+field+"["+key+"]", "only a controller of Kubernetes sets it", "remove it"))
			}
		}
	}
	for _, field := range hashLabels(o.Object) {
		ps = append(ps, o.problem(ReasonInvalidManifest, field, "only a controller of Kubernetes sets it", "remove it"))
	}
	return ps
}

// hashLabels returns the path of each label pod-template-hash in v, as in a pod template.
// It looks into all maps of labels, whatever the kind: an operator copies those of a
// custom resource to pods. Selectors are no such maps.
//
// The ReplicaSets of a Deployment select pods by that label. When another controller lets
// go a pod that has it, such a ReplicaSet adopts the pod, and deletes an approved one.
func hashLabels(v any) []string {
	const key = appsv1.DefaultDeploymentUniqueLabelKey
	var paths []string
	within := func(name string, value any) {
		for _, p := range hashLabels(value) {
			if !strings.HasPrefix(p, "[") {
				p = "." + p
			}
			paths = append(paths, name+p)
		}
	}
	switch v := v.(type) {
	case map[string]any:
		for name, value := range v {
			if m, ok := value.(map[string]any); ok && isLabels(name) {
				if _, ok := m[key]; ok {
					paths = append(paths, name+"["+key+"]")
				}
			}
			within(name, value)
		}
	case []any:
		for i, item := range v {
			within(fmt.Sprintf("[%d]", i), item)
		}
	}
	return paths
}

// isLabels reports whether a field of that name holds labels, such as podLabels.
func isLabels(field string) bool {
	return strings.HasSuffix(strings.ToLower(field), "labels") && field != "matchLabels"
}

// place sets the namespace of o, or takes it away where its kind has none.
func (c *collector) place(o Object) error {
	namespaced, err := c.namespaced(o)
	if err != nil {
		return err
	}
	switch {
	case !namespaced:
		unstructured.RemoveNestedField(o.Object, "metadata", "namespace")
	case c.opts.TargetNamespace != "":
		o.SetNamespace(c.opts.TargetNamespace)
	case o.GetNamespace() == "" && c.opts.Namespace != "":
		o.SetNamespace(c.opts.Namespace)
	}
	return nil
}

func (c *collector) namespaced(o Object) (bool, error) {
	gk := o.groupKind()
	if gk.Group == v1alpha1.Group {
		return true, nil
	}
	if namespaced, ok := c.scopes[gk]; ok {
		return namespaced, nil
	}
	if c.opts.Namespaced == nil {
		return true, nil
	}
	namespaced, err := c.opts.Namespaced(o.GroupVersionKind())
	if err != nil {
		return false, err
	}
	c.scopes[gk] = namespaced
	return namespaced, nil
}

func asProblem(err error, o Object) *Problem {
	if p, ok := errors.AsType[*Problem](err); ok {
		about := *p
		about.Where = Where(o.File, o.String(), p.Where)
		return &about
	}
	return &Problem{
		Reason: ReasonInvalidManifest, Where: Where(o.File, o.String()),
		Err: fmt.Errorf("finding the scope of %s: %w", o.groupKind(), err), Retry: true,
	}
}

// definedScopes returns the scope of the kinds that CRDs among the objects define.
func definedScopes(objects []Object) map[schema.GroupKind]bool {
	scopes := map[schema.GroupKind]bool{}
	for _, o := range objects {
		if o.groupKind() != kindCRD {
			continue
		}
		group, _, _ := unstructured.NestedString(o.Object, "spec", "group")
		kind, _, _ := unstructured.NestedString(o.Object, "spec", "names", "kind")
		scope, _, _ := unstructured.NestedString(o.Object, "spec", "scope")
		scopes[schema.GroupKind{Group: group, Kind: kind}] = scope != "Cluster"
	}
	return scopes
}

// autoscaled returns the workloads whose replicas an autoscaler owns.
func autoscaled(objects []Object) map[key]bool {
	owned := map[key]bool{}
	for _, o := range objects {
		switch o.groupKind() {
		case schema.GroupKind{Group: "autoscaling", Kind: "HorizontalPodAutoscaler"},
			schema.GroupKind{Group: "keda.sh", Kind: "ScaledObject"}:
		default:
			continue
		}
		target := func(field, otherwise string) string {
			if s, _, _ := unstructured.NestedString(o.Object, "spec", "scaleTargetRef", field); s != "" {
				return s
			}
			return otherwise
		}
		gv, err := schema.ParseGroupVersion(target("apiVersion", "apps/v1"))
		if err != nil {
			continue // the server refuses it
		}
		gk := schema.GroupKind{Group: gv.Group, Kind: target("kind", kindDeployment.Kind)}
		owned[key{gk, o.GetNamespace(), target("name", "")}] = true
	}
	return owned
}
