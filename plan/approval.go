package plan

import (
	"errors"
	"fmt"
	"regexp"
	"slices"
	"strings"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/util/intstr"

	"github.com/tranche-dev/tranche/plan/v1alpha1"
)

// Approval is one approval and the file it comes from.
type Approval struct {
	v1alpha1.BatchApproval
	File string
	// Alone: the file has no other document. A signature of a change of a file signs all
	// of its documents.
	Alone bool
	// Linked: a symbolic link is on the way to the file. A signature of the file does
	// not cover who links it.
	Linked bool
	// NamesNamespace: the file has a namespace. Without one, that of the metadata comes
	// from the GitSource, and is not what was signed.
	NamesNamespace bool
}

// NotAsSigned is why an approval does not count where only signed ones do, by
// whatever key it is signed; nil: it may. A signature covers what the file itself has,
// in its place.
func (a *Approval) NotAsSigned() *Problem {
	commit := len(a.Spec.Commit)
	switch {
	case a.Linked:
		return a.Ignored("", "a symbolic link is on the way to its file, and only signed approvals count",
			"put the file itself into the folder for approvals")
	case !a.Alone:
		return a.Ignored("", "its file has other documents, and only signed approvals count", "give it a file of its own")
	case !a.NamesNamespace:
		return a.Ignored("metadata.namespace", "is not set, and only signed approvals count",
			"write "+a.Metadata.Namespace+", as tranche approve does")
	case a.ForRelease() && commit != 40 && commit != 64:
		return a.Ignored("spec.commit", fmt.Sprintf("%q is a part of a commit, and only signed approvals count: other commits that begin like "+
			"it are quickly made", a.Spec.Commit), "write all of spec.commit of the BatchRelease, as tranche approve does")
	}
	return nil
}

// Ignored says of a field of an approval why it counts for nothing, and what
// to do.
func (a *Approval) Ignored(field, fact, hint string) *Problem {
	name := "BatchApproval " + a.Metadata.Namespace + "/" + a.Metadata.Name
	return &Problem{Reason: ReasonApprovalIgnored, Where: Where(a.File, name, field), Err: errors.New(fact), Hint: hint}
}

// IsFor reports whether an approval names a commit: all of it, or its first
// characters.
func (a *Approval) IsFor(commit string) bool {
	return abbreviated.MatchString(a.Spec.Commit) && strings.HasPrefix(strings.ToLower(commit), a.Spec.Commit)
}

// ForRelease reports whether an approval names a release. One that does not
// approves a plan, and nothing else.
func (a *Approval) ForRelease() bool { return a.Spec.Commit != "" }

// digest is that of a plan. A part of one does not count: others that begin with the
// same characters are quickly found.
var digest = regexp.MustCompile(`^[0-9a-f]{64}$`)

// abbreviated is a commit or the beginning of one.
var abbreviated = regexp.MustCompile(`^[0-9a-f]{7,64}$`)

// DecodeApproval decodes and validates one approval. It counts for nothing where there
// are problems.
func DecodeApproval(o Object) (Approval, Problems) {
	var ps Problems
	add := func(field, fact, hint string) {
		ps = append(ps, o.problem(ReasonApprovalIgnored, field, fact, hint))
	}
	if o.groupKind() != kindApproval || o.GetAPIVersion() != v1alpha1.GroupVersion.String() {
		add("", fmt.Sprintf("is a %s of %s in the folder for approvals", o.GetKind(), o.GetAPIVersion()),
			"only a BatchApproval of "+v1alpha1.GroupVersion.String()+" counts there")
		return Approval{}, ps
	}
	a := Approval{File: o.File}
	if errs := decode(withoutNullCreation(o.Object), &a.BatchApproval, nil); len(errs) > 0 {
		return a, o.fieldProblems(ReasonApprovalIgnored, errs)
	}
	has := func(name string) bool {
		v, ok, _ := unstructured.NestedFieldNoCopy(o.Object, "spec", name)
		return ok && v != nil && v != ""
	}
	release := []string{"revision", "commit", "step"}
	for _, name := range release {
		// An absent step would read as step 0.
		if !has(name) && (!has("plan") || slices.ContainsFunc(release, has)) {
			add("spec."+name, "must be set", "")
		}
	}
	if has("plan") && !digest.MatchString(a.Spec.Plan) {
		add("spec.plan", fmt.Sprintf("%q is not a digest", a.Spec.Plan), "write all 64 hexadecimal digits, as tranche diff prints them")
	}
	a.Spec.Commit = strings.ToLower(a.Spec.Commit)
	if a.Spec.Commit != "" && !abbreviated.MatchString(a.Spec.Commit) {
		add("spec.commit", fmt.Sprintf("%q is not a commit", a.Spec.Commit),
			"write spec.commit of the BatchRelease, or at least seven characters of it")
	}
	addOverride(&a, add)
	if a.Spec.Step < 0 {
		add("spec.step", fmt.Sprintf("%d: must not be negative", a.Spec.Step), "")
	}
	return a, ps
}

// addOverride adds what is wrong with the override of an approval.
func addOverride(a *Approval, add func(field, fact, hint string)) {
	o := a.Spec.Override
	switch {
	case o == nil:
		return
	case a.Spec.Commit == "":
		add("spec.override", "is for a release", "write revision, commit and step, too")
	case len(o.Metrics) == 0 || len(o.Metrics) > 12:
		add("spec.override.metrics", "must have 1 to 12 names of metrics", "")
	case strings.TrimSpace(o.Reason) == "" || len(o.Reason) > 512:
		add("spec.override.reason", "must be set, to at most 512 characters", "")
	}
}

// unknownMetric returns a name of an override that no metric of the plan has.
func unknownMetric(r *Release, o *v1alpha1.Override) string {
	for _, name := range o.Metrics {
		a := r.Plan.Spec.Strategy.Analysis
		if a == nil || !slices.ContainsFunc(a.Metrics, func(m v1alpha1.Metric) bool { return m.Name == name }) {
			return name
		}
	}
	return ""
}

// MatchApproval returns the one approval that counts for a release at its
// spec.commit, or nil, and why others that name the release do not. Whether
// the revision is the one under release, only the cluster knows.
func MatchApproval(r *Release, commit string, approvals []Approval) (*Approval, Problems) {
	var ps Problems
	var fit []*Approval
	last := int32(len(r.Plan.Spec.Strategy.Steps)) - 1
	for i := range approvals {
		a := &approvals[i]
		switch {
		case a.Metadata.Namespace != r.Plan.Namespace || a.Metadata.Name != r.Plan.Name || !a.ForRelease():
		case commit == "":
			ps = append(ps, a.Ignored("spec.commit", "no release is under way that it could be for", "remove it"))
		case !a.IsFor(commit):
			ps = append(ps, a.Ignored("spec.commit", fmt.Sprintf("%s is another release; the present one comes from %s",
				a.Spec.Commit, abbreviate(commit)), "replace it when that one is to be approved"))
		case a.Spec.Step < 0 || a.Spec.Step > last:
			ps = append(ps, a.Ignored("spec.step", fmt.Sprintf("%d: the plan has steps 0 to %d", a.Spec.Step, last), ""))
		case a.Spec.Override != nil && unknownMetric(r, a.Spec.Override) != "":
			ps = append(ps, a.Ignored("spec.override.metrics", fmt.Sprintf("the plan has no metric %s", unknownMetric(r, a.Spec.Override)), ""))
		default:
			fit = append(fit, a)
		}
	}
	if len(fit) == 1 {
		return fit[0], ps.Sorted()
	}
	for i, a := range fit {
		other := fit[(i+1)%len(fit)]
		ps = append(ps, a.Ignored("", "there is another for the same release in "+other.File+", so neither counts", "keep one of them"))
	}
	return nil, ps.Sorted()
}

// OtherRevision says that an approval is for another revision than the one
// that its release brings.
func OtherRevision(a *Approval, revision string) *Problem {
	return a.Ignored("spec.revision", fmt.Sprintf("%s is another revision; the one under way is %s", a.Spec.Revision, revision),
		"replace it when that one is to be approved")
}

// StepReplicas returns the replicas of steps.
func StepReplicas(steps []v1alpha1.Step) []intstr.IntOrString {
	replicas := make([]intstr.IntOrString, len(steps))
	for i, s := range steps {
		replicas[i] = s.Replicas
	}
	return replicas
}

// ChangedStep returns the first step that is not as it was approved, or -1. It compares
// the steps that an approval of step upTo lets a release reach: those from 0 to the one
// after upTo. The gate of step j may open only if no step from 0 to j+1 has changed. So
// the first gate that stays closed is that of the step before the one returned. Pauses do
// not count: they are no sizes.
func ChangedStep(approved []intstr.IntOrString, upTo int32, steps []v1alpha1.Step) int {
	for i := range min(int(upTo)+2, len(steps)) {
		if i >= len(approved) || approved[i] != steps[i].Replicas {
			return i
		}
	}
	return -1
}

// hintApproveAgain says how to approve what an approval file says already: the
// commit that counts is the one that brought the content of the file.
const hintApproveAgain = "approve again: commit a change of the file, such as a comment"

// StepsChanged says that an approval opens no gate, or not all gates that it names. The
// plan has other steps than in the commit that brought it. It is nil if the steps that
// count are the same.
func (a *Approval) StepsChanged(approved []intstr.IntOrString, in string, steps []v1alpha1.Step) *Problem {
	i := ChangedStep(approved, a.Spec.Step, steps)
	if i < 0 {
		return nil
	}
	was := "was not there"
	if i < len(approved) {
		was = "was " + approved[i].String()
	}
	fact := fmt.Sprintf("the plan's steps have changed since: step %d %s in commit %s, which brought the approval, and is %s now",
		i, was, abbreviate(in), steps[i].Replicas.String())
	if i > 1 {
		fact += fmt.Sprintf("; it counts up to step %d", i-2)
	}
	return a.Ignored("spec.step", fact, hintApproveAgain)
}

// StepsUnknown says that an approval does not count. The commit that brought it has no
// valid plan of its name, or no valid Deployment of its release.
func (a *Approval) StepsUnknown(r *Release, in string) *Problem {
	return a.Ignored("spec.step", fmt.Sprintf("commit %s, which brought the approval, has no valid plan %s for a valid %s, so the steps "+
		"that it approves are not known", abbreviate(in), a.Metadata.Name, r.Deployment), hintApproveAgain)
}

// abbreviate makes a commit as long as people write it.
func abbreviate(commit string) string { return commit[:min(len(commit), 7)] }

// UnknownApprovals returns a problem for each approval that names no release. An
// approval of a plan may come before the plan does.
func UnknownApprovals(releases []Release, approvals []Approval) Problems {
	var ps Problems
	for i := range approvals {
		a := &approvals[i]
		known := slices.ContainsFunc(releases, func(r Release) bool {
			return r.Plan.Namespace == a.Metadata.Namespace && r.Plan.Name == a.Metadata.Name
		})
		if !known && a.ForRelease() {
			ps = append(ps, a.Ignored("", "names no BatchRelease", "give it the name and namespace of one, or remove it"))
		}
	}
	return ps.Sorted()
}
