package plan

import (
	"bytes"
	"cmp"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"

	appsv1 "k8s.io/api/apps/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/intstr"

	"github.com/tranche-dev/tranche/plan/measure"
	"github.com/tranche-dev/tranche/plan/v1alpha1"
)

// Terms are what decides about the releases of one Deployment: whether a plan
// governs it, the plan's strategy, and the Deployment's own strategy and
// minReadySeconds. Defaults are filled in, and numbers and percentages are as
// written. Two plans that mean the same have the same terms.
//
// The text is canonical JSON (keys sorted, no white space), as `jq -cS` prints it.
// docs/signatures.md specifies it, since other programs compute the digest, too.
type Terms string

// termsContent is the content of Terms. The names of its fields in JSON are in the
// order of the alphabet, so that encoding it sorts them.
type termsContent struct {
	Analysis   json.RawMessage `json:"analysis,omitempty"`
	Deployment string          `json:"deployment"`
	// Governed is false where no plan governs the Deployment; absent where one does.
	Governed *bool `json:"governed,omitempty"`
	// Jobs are digests of what the metrics of job run, by the name of the CronJob.
	Jobs                    map[string]string    `json:"jobs,omitempty"`
	MinReadySeconds         *int32               `json:"minReadySeconds,omitempty"`
	OnFailure               string               `json:"onFailure,omitempty"`
	ProgressDeadlineSeconds int32                `json:"progressDeadlineSeconds,omitempty"`
	Removed                 bool                 `json:"removed,omitempty"`
	Rollback                []intstr.IntOrString `json:"rollback,omitempty"`
	Steps                   []termsStep          `json:"steps,omitempty"`
	Strategy                *termsBounds         `json:"strategy,omitempty"`
}

type termsStep struct {
	Analysis json.RawMessage `json:"analysis,omitempty"`
	// Gate is "approval", "analysis", or a pause in seconds such as "600s"; empty: the last
	// step, if it has no analysis.
	Gate     string             `json:"gate,omitempty"`
	Replicas intstr.IntOrString `json:"replicas"`
}

type termsBounds struct {
	MaxSurge       intstr.IntOrString `json:"maxSurge"`
	MaxUnavailable intstr.IntOrString `json:"maxUnavailable"`
}

const (
	gateApproval = "approval"
	gateAnalysis = "analysis"
)

func encodeTerms(c termsContent) Terms {
	var text bytes.Buffer
	e := json.NewEncoder(&text)
	e.SetEscapeHTML(false) // jq does not
	if err := e.Encode(c); err != nil {
		panic("encoding terms: " + err.Error()) // it consists of strings and numbers
	}
	return Terms(bytes.TrimSpace(text.Bytes()))
}

// Digest is the SHA-256 of the terms, in 64 hexadecimal digits. A BatchApproval
// names it in spec.plan.
func (t Terms) Digest() string {
	sum := sha256.Sum256([]byte(t))
	return hex.EncodeToString(sum[:])
}

// Terms returns those of a plan with its Deployment. They lack the Jobs: these are in the set.
func (r *Release) Terms() Terms { return r.terms(nil) }

func (r *Release) terms(jobs map[string]string) Terms {
	return NewTerms(r.Deployment.GetNamespace(), r.Deployment.GetName(), &r.Plan.Spec.Strategy, r.Strategy, r.MinReadySeconds, jobs)
}

// NewTerms returns the terms of a Deployment that a plan with this strategy governs.
// A nil strategy of the Deployment has the API server's defaults. The jobs are as [Set.Jobs] has them.
func NewTerms(
	namespace, name string, s *v1alpha1.BatchStrategy, own *appsv1.DeploymentStrategy, minReadySeconds int32, jobs map[string]string,
) Terms {
	c := termsContent{
		Analysis: measure.CanonicalAnalysis(s), Deployment: namespace + "/" + name, MinReadySeconds: &minReadySeconds,
		OnFailure:               string(cmp.Or(s.OnFailure, v1alpha1.FailureHold)),
		ProgressDeadlineSeconds: v1alpha1.DefaultProgressDeadlineSeconds,
		Strategy:                boundsOf(own), Jobs: jobs,
	}
	if s.ProgressDeadlineSeconds != nil {
		c.ProgressDeadlineSeconds = *s.ProgressDeadlineSeconds
	}
	for i, step := range s.Steps {
		to := termsStep{Gate: gateOf(step, i == len(s.Steps)-1), Replicas: step.Replicas}
		if step.Analysis != nil {
			to.Analysis = measure.CanonicalJSON(step.Analysis)
		}
		c.Steps = append(c.Steps, to)
	}
	for _, step := range RollbackSteps(s) {
		c.Rollback = append(c.Rollback, step.Replicas)
	}
	return encodeTerms(c)
}

func gateOf(s v1alpha1.Step, last bool) string {
	switch {
	case s.Analysis != nil:
		return gateAnalysis
	case last:
		return ""
	case s.Pause == nil:
		return gateApproval
	}
	d := s.Pause.Duration.Duration
	seconds := strconv.FormatInt(int64(d/1e9), 10)
	if rest := d % 1e9; rest != 0 {
		seconds += "." + strings.TrimRight(fmt.Sprintf("%09d", int64(rest)), "0")
	}
	return seconds + "s"
}

func boundsOf(s *appsv1.DeploymentStrategy) *termsBounds {
	b := &termsBounds{intstr.FromString("25%"), intstr.FromString("25%")}
	if s == nil || s.RollingUpdate == nil {
		return b
	}
	if s.RollingUpdate.MaxSurge != nil {
		b.MaxSurge = *s.RollingUpdate.MaxSurge
	}
	if s.RollingUpdate.MaxUnavailable != nil {
		b.MaxUnavailable = *s.RollingUpdate.MaxUnavailable
	}
	return b
}

// Terms returns those that a set has for a Deployment. They are those of the plan that
// governs it, or say that none does, or that the set has no such Deployment.
func (s *Set) Terms(namespace, name string) Terms {
	k := key{kindDeployment, namespace, name}
	if i, ok := s.governed[k]; ok {
		r := &s.Releases[i]
		return r.terms(s.Jobs(namespace, &r.Plan.Spec.Strategy))
	}
	no := false
	return encodeTerms(termsContent{
		Deployment: namespace + "/" + name, Governed: &no,
		Removed: !slices.ContainsFunc(s.Objects, func(o Object) bool { return o.key() == k }),
	})
}

// Jobs returns digests of what the metrics of job run, by the name of the CronJob. Each is the
// SHA-256 of its spec.jobTemplate, as it is rendered, in canonical JSON. A Job decides about a gate
// as a query does. It is nil without such a metric.
func (s *Set) Jobs(namespace string, of *v1alpha1.BatchStrategy) map[string]string {
	if of.Analysis == nil {
		return nil
	}
	var jobs map[string]string
	for _, m := range of.Analysis.Metrics {
		if m.Job == nil {
			continue
		}
		if jobs == nil {
			jobs = map[string]string{}
		}
		jobs[m.Job.From] = s.JobDigest(namespace, m.Job.From)
	}
	return jobs
}

// JobDigest returns the digest of what a CronJob runs; empty: the set has no such CronJob.
func (s *Set) JobDigest(namespace, name string) string {
	at := slices.IndexFunc(s.Objects, func(o Object) bool { return o.key() == key{kindCronJob, namespace, name} })
	if at < 0 {
		return ""
	}
	template, _, _ := unstructured.NestedFieldNoCopy(s.Objects[at].Object, "spec", "jobTemplate")
	sum := sha256.Sum256(measure.CanonicalJSON(template))
	return hex.EncodeToString(sum[:])
}

// Jobs returns the digests of what metrics of job run, by the name of the CronJob.
func (t Terms) Jobs() map[string]string {
	c, err := t.content()
	if err != nil {
		return nil
	}
	return c.Jobs
}

// Govern reports whether the terms are of a Deployment that a plan governs.
func (t Terms) Govern() bool {
	c, err := t.content()
	return err == nil && c.Governed == nil
}

func (t Terms) content() (termsContent, error) {
	var c termsContent
	d := json.NewDecoder(strings.NewReader(string(t)))
	d.DisallowUnknownFields()
	if err := d.Decode(&c); err != nil {
		return c, fmt.Errorf("reading the terms of a plan: %w", err)
	}
	return c, nil
}

// Changes names what differs between two terms, for people.
func (t Terms) Changes(other Terms) []string {
	var a, b map[string]json.RawMessage
	if json.Unmarshal([]byte(t), &a) != nil || json.Unmarshal([]byte(other), &b) != nil {
		return nil
	}
	if _, ungoverned := b["governed"]; ungoverned {
		if _, removed := b["removed"]; removed {
			return []string{"the Deployment is removed"}
		}
		return []string{"no plan governs it"}
	}
	names := maps.Clone(a)
	maps.Copy(names, b)
	var changed []string
	for _, name := range slices.Sorted(maps.Keys(names)) {
		if !bytes.Equal(a[name], b[name]) {
			changed = append(changed, name)
		}
	}
	return changed
}

// strategies returns the strategy of the plan, that of the Deployment, and its
// minReadySeconds.
func (t Terms) strategies() (*v1alpha1.BatchStrategy, *appsv1.DeploymentStrategy, int32, error) {
	c, err := t.content()
	if err != nil {
		return nil, nil, 0, err
	}
	if c.Governed != nil || c.Strategy == nil || c.MinReadySeconds == nil {
		return nil, nil, 0, fmt.Errorf("reading the terms of a plan: Deployment %s has none", c.Deployment)
	}
	s := &v1alpha1.BatchStrategy{OnFailure: v1alpha1.FailurePolicy(c.OnFailure), ProgressDeadlineSeconds: &c.ProgressDeadlineSeconds}
	for i, step := range c.Steps {
		to := v1alpha1.Step{Replicas: step.Replicas}
		if len(step.Analysis) > 0 {
			to.Analysis = &v1alpha1.StepAnalysis{}
			if err := json.Unmarshal(step.Analysis, to.Analysis); err != nil {
				return nil, nil, 0, fmt.Errorf("reading the terms of a plan: analysis of step %d: %w", i, err)
			}
		} else if step.Gate != gateApproval && i < len(c.Steps)-1 {
			to.Pause = &v1alpha1.Pause{}
			if err := json.Unmarshal([]byte(strconv.Quote(step.Gate)), &to.Pause.Duration); err != nil {
				return nil, nil, 0, fmt.Errorf("reading the terms of a plan: gate of step %d: %w", i, err)
			}
		}
		s.Steps = append(s.Steps, to)
	}
	if len(c.Analysis) > 0 {
		s.Analysis = &v1alpha1.Analysis{}
		if err := json.Unmarshal(c.Analysis, s.Analysis); err != nil {
			return nil, nil, 0, fmt.Errorf("reading the terms of a plan: analysis: %w", err)
		}
	}
	if !slices.Equal(c.Rollback, []intstr.IntOrString{intstr.FromInt32(1), Full}) {
		s.Rollback = &v1alpha1.RollbackStrategy{}
		for _, r := range c.Rollback {
			s.Rollback.Steps = append(s.Rollback.Steps, v1alpha1.RollbackStep{Replicas: r})
		}
	}
	own := &appsv1.DeploymentStrategy{
		Type:          appsv1.RollingUpdateDeploymentStrategyType,
		RollingUpdate: &appsv1.RollingUpdateDeployment{MaxSurge: &c.Strategy.MaxSurge, MaxUnavailable: &c.Strategy.MaxUnavailable},
	}
	return s, own, *c.MinReadySeconds, nil
}

// Kept are the terms that go on governing a Deployment, since those of a set do not
// count yet.
type Kept struct {
	// Namespace and Name of the Deployment.
	Namespace, Name string
	// Plan is the metadata of the BatchRelease that goes on governing it, and its
	// spec.paused.
	Plan  metav1.ObjectMeta
	Pause bool
	Terms Terms
}

// Under returns the set with other terms for some Deployments, and without the
// objects of another list, nor the plans of Deployments among them. All else stays as the set has it:
// the pod template, spec.replicas, and spec.paused of the plan. Deployments that the
// set does not have are left out. A set beside problems is as that of [Collect].
func (s *Set) Under(kept []Kept, without []Object) (*Set, error) {
	u := &Set{Ignored: s.Ignored, autoscaled: s.autoscaled}
	out := map[key]bool{}
	for _, o := range without {
		out[o.key()] = true
	}
	by := map[key]Kept{}
	for _, k := range kept {
		by[key{kindDeployment, k.Namespace, k.Name}] = k
	}
	var ps Problems
	for _, o := range s.Objects {
		k, keeps := by[o.key()]
		r := s.Governed(o)
		switch {
		case out[o.key()]:
			continue
		case keeps:
			var err error
			if r, err = s.keep(k, o); err != nil {
				ps = append(ps, problemsOf(err, o)...)
				continue
			}
			o = r.Deployment
		}
		u.Objects = append(u.Objects, o)
		if r != nil {
			u.Releases = append(u.Releases, *r)
		}
	}
	u.index()
	return u, append(ps, u.sameNames()...).Err()
}

// keep returns a Deployment of the set as the terms that are kept have it.
func (s *Set) keep(k Kept, o Object) (*Release, error) {
	strategy, own, minReady, err := k.Terms.strategies()
	if err != nil {
		return nil, err
	}
	o.Unstructured = o.DeepCopy()
	unstructured.RemoveNestedField(o.Object, "spec", "paused")
	fields := map[string]any{
		"strategy": map[string]any{"type": string(own.Type), "rollingUpdate": map[string]any{
			"maxSurge": jsonOf(*own.RollingUpdate.MaxSurge), "maxUnavailable": jsonOf(*own.RollingUpdate.MaxUnavailable),
		}},
		"minReadySeconds": int64(minReady),
	}
	for name, value := range fields {
		if err := unstructured.SetNestedField(o.Object, value, "spec", name); err != nil {
			return nil, fmt.Errorf("setting spec.%s: %w", name, err)
		}
	}
	r := &Release{Plan: &v1alpha1.BatchRelease{ObjectMeta: *k.Plan.DeepCopy()}, File: o.File}
	r.Plan.Namespace = k.Namespace
	r.Plan.Spec = v1alpha1.BatchReleaseSpec{
		WorkloadRef: v1alpha1.WorkloadReference{APIVersion: "apps/v1", Kind: kindDeployment.Kind, Name: k.Name}, Paused: k.Pause,
	}
	if now := s.Governed(o); now != nil {
		r.File, r.Plan = now.File, now.Plan.DeepCopy()
		r.Plan.Name = k.Plan.Name
	}
	r.Plan.Spec.Strategy = *strategy
	d := &appsv1.Deployment{}
	if errs := decodeGoverned(o, d); len(errs) > 0 {
		return nil, o.fieldProblems(ReasonInvalidManifest, errs)
	}
	r.Deployment, r.Template, r.Strategy, r.MinReadySeconds = o, &d.Spec.Template, own, minReady
	return r, nil
}

func problemsOf(err error, o Object) Problems {
	if ps, ok := errors.AsType[Problems](err); ok {
		return ps
	}
	return Problems{o.problem(ReasonInvalidManifest, "", err.Error(), "")}
}

func jsonOf(v intstr.IntOrString) any {
	if v.Type == intstr.String {
		return v.StrVal
	}
	return int64(v.IntVal)
}

// sameNames finds releases that have the same name, and leaves them out: a plan that is kept,
// and one for another Deployment. The releases are sorted.
func (s *Set) sameNames() Problems {
	var ps Problems
	same := map[types.NamespacedName]bool{}
	for i, r := range s.Releases {
		if other := s.Releases[max(i-1, 0)]; i > 0 && other.Plan.Namespace == r.Plan.Namespace && other.Plan.Name == r.Plan.Name {
			ps = append(ps, &Problem{
				Reason: ReasonPlanNotApproved, Where: Where(r.File, r.String()),
				Err: fmt.Errorf("a plan of this name governs %s or %s already, and the branch has one of the name for the other",
					other.Deployment, r.Deployment),
				Hint: "give the new plan another name",
			})
			same[WorkloadOf(&r)], same[WorkloadOf(&other)] = true, true
		}
	}
	s.LeaveOut(func(deployment types.NamespacedName) bool { return same[deployment] })
	return ps
}
