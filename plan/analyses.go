package plan

import (
	"fmt"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/util/validation/field"

	"github.com/tranche-dev/tranche/plan/measure"
	"github.com/tranche-dev/tranche/plan/v1alpha1"
)

var (
	kindAnalysis = v1alpha1.GroupVersion.WithKind("BatchAnalysis").GroupKind()
	kindCronJob  = schema.GroupKind{Group: "batch", Kind: "CronJob"}
)

// MetricCheck checks a metric beyond what its type says: its queries and its condition.
type MetricCheck func(m *v1alpha1.Metric, at *field.Path) field.ErrorList

// ProviderOf returns the type of a provider of the controller's configuration that plans of a
// namespace may name: prometheus or datadog. It is empty without one.
type ProviderOf func(namespace, name string) string

// analyses are the BatchAnalysis files of a set.
type analyses struct {
	files map[key]analysisFile
	check MetricCheck
}

type analysisFile struct {
	Object
	metrics []v1alpha1.Metric
}

// newAnalyses decodes and checks the files, and adds those with problems to faulty.
func newAnalyses(files map[key]Object, check MetricCheck, faulty map[key]bool) (*analyses, Problems) {
	a := &analyses{files: map[key]analysisFile{}, check: check}
	var ps Problems
	for k, o := range files {
		more := a.add(k, o)
		if len(more) > 0 {
			faulty[k] = true
		}
		ps = append(ps, more...)
	}
	return a, ps.Sorted()
}

// add decodes and checks a file.
func (a *analyses) add(k key, o Object) Problems {
	var of v1alpha1.BatchAnalysis
	if o.GetAPIVersion() != v1alpha1.GroupVersion.String() {
		return Problems{o.problem(ReasonInvalidPlan, "apiVersion", o.GetAPIVersion()+" is not known", "write "+v1alpha1.GroupVersion.String())}
	}
	if errs := decode(withoutNullCreation(o.Object), &of, nil); len(errs) > 0 {
		return o.fieldProblems(ReasonInvalidPlan, errs)
	}
	at := field.NewPath("spec", "metrics")
	errs := measure.ValidateMetrics(of.Spec.Metrics, at)
	if len(of.Spec.Metrics) == 0 {
		errs = append(errs, field.Required(at, "must have a metric"))
	}
	a.files[k] = analysisFile{o, of.Spec.Metrics}
	return o.fieldProblems(ReasonInvalidPlan, append(errs, a.checkMetrics(of.Spec.Metrics, at)...))
}

// ofPlan returns the files that a plan names.
func ofPlan(p *v1alpha1.BatchRelease) (files []key) {
	if a := p.Spec.Strategy.Analysis; a != nil {
		for _, name := range a.From {
			files = append(files, key{kindAnalysis, p.Namespace, name})
		}
	}
	return files
}

func (a *analyses) checkMetrics(metrics []v1alpha1.Metric, at *field.Path) field.ErrorList {
	var errs field.ErrorList
	for i := range metrics {
		if a.check != nil {
			errs = append(errs, a.check(&metrics[i], at.Index(i))...)
		}
	}
	return errs
}

// expand checks the metrics of a plan, and adds those of the files that it names. The plan then
// names no files: no object of the cluster does.
func (a *analyses) expand(p *v1alpha1.BatchRelease, o Object) Problems {
	of := p.Spec.Strategy.Analysis
	if of == nil {
		return nil
	}
	strategy := field.NewPath("spec", "strategy")
	at := strategy.Child("analysis")
	var ps Problems
	ps = append(ps, o.fieldProblems(ReasonInvalidPlan, a.checkMetrics(of.Metrics, at.Child("metrics")))...)
	if len(of.From) == 0 {
		return ps
	}
	for i, k := range ofPlan(p) {
		file, ok := a.files[k]
		if !ok {
			ps = append(ps, o.problem(ReasonInvalidPlan, at.Child("from").Index(i).String(),
				fmt.Sprintf("no BatchAnalysis %s/%s is rendered with it", k.namespace, k.name), "put its file below the same spec.path"))
			continue
		}
		for _, m := range file.metrics {
			of.Metrics = append(of.Metrics, *m.DeepCopy())
		}
	}
	of.From = nil
	if len(ps) == 0 {
		ps = o.fieldProblems(ReasonInvalidPlan, measure.Validate(&p.Spec.Strategy, strategy))
	}
	return ps
}

// ExpandAnalyses adds the metrics of BatchAnalysis files to a plan outside of a set.
func ExpandAnalyses(p *v1alpha1.BatchRelease, plan Object, objects []Object) Problems {
	files := map[key]Object{}
	for _, o := range objects {
		if o.groupKind() == kindAnalysis {
			files[o.key()] = o
		}
	}
	a, ps := newAnalyses(files, nil, map[key]bool{})
	return append(ps, a.expand(p, plan)...)
}

// checkSources checks what the metrics of a plan need beside it. These are suspended CronJobs of
// the same commit, configured providers, and a Deployment whose name is short enough.
func (r *Release) checkSources(plan Object, objects map[key]Object, providers ProviderOf) Problems {
	a := r.Plan.Spec.Strategy.Analysis
	if a == nil {
		return nil
	}
	var ps Problems
	for i := range a.Metrics {
		m := &a.Metrics[i]
		at := field.NewPath("spec", "strategy", "analysis", "metrics").Index(i)
		add := func(child, fact, hint string) {
			ps = append(ps, plan.problem(ReasonInvalidPlan, at.Child(child).String(), fact, hint))
		}
		if m.Job != nil {
			if fact, hint := jobProblem(r.Plan.Namespace, m.Job.From, objects); fact != "" {
				add("job.from", fact, hint)
			}
		}
		if name, kind := providerOf(m); name != "" && providers != nil && providers(r.Plan.Namespace, name) != kind {
			add(kind+".provider", fmt.Sprintf("the controller has no provider %s of type %s for namespace %s", name, kind, r.Plan.Namespace),
				"name one of its configuration, or write address and secretRef")
		}
		for _, query := range queriesOf(m) {
			if measure.PodsAmbiguous(query, r.Plan.Spec.WorkloadRef.Name) {
				add("prometheus", fmt.Sprintf("$(pods) does not tell the revisions of Deployment %s apart: its name has more than 46 characters, "+
					"and the names of its pods are cut", r.Plan.Spec.WorkloadRef.Name),
					"select by a label with $(revision) or $(replicaset)")
				break
			}
		}
	}
	return ps
}

func providerOf(m *v1alpha1.Metric) (name, kind string) {
	switch {
	case m.Prometheus != nil:
		return m.Prometheus.Provider, "prometheus"
	case m.Datadog != nil:
		return m.Datadog.Provider, "datadog"
	}
	return "", ""
}

func queriesOf(m *v1alpha1.Metric) []string {
	switch {
	case m.Prometheus != nil:
		return []string{m.Prometheus.Query, m.Prometheus.Total}
	case m.Datadog != nil:
		return []string{m.Datadog.Query, m.Datadog.Total}
	}
	return nil
}

// jobProblem says why no Job can be made of a CronJob.
func jobProblem(namespace, name string, objects map[key]Object) (fact, hint string) {
	o, ok := objects[key{kindCronJob, namespace, name}]
	if !ok {
		return fmt.Sprintf("no CronJob %s/%s is rendered with it", namespace, name), "put its manifest below the same spec.path"
	}
	if suspended, _, _ := unstructured.NestedBool(o.Object, "spec", "suspend"); !suspended {
		return fmt.Sprintf("CronJob %s/%s in %s is not suspended", namespace, name, o.File),
			"set its spec.suspend: true, since its schedule would run it, too"
	}
	return "", ""
}
