package plan

import (
	"errors"
	"fmt"
	"io/fs"
	"path"
	"regexp"
	"slices"
	"strings"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/util/intstr"
	"sigs.k8s.io/kustomize/kyaml/filesys"

	"github.com/tranche-dev/tranche/plan/v1alpha1"
)

// Approval is one approval and the file it comes from.
type Approval struct {
	v1alpha1.BatchApproval
	File string
	// Alone: the file has no other document. Who signs a change of a file signs all
	// of its documents.
	Alone bool
	// Linked: a symbolic link is on the way to the file. A signature of the file does
	// not cover who links it.
	Linked bool
	// Namespace is the one that the file has; empty: it has none. That of the metadata
	// may come from the GitSource, and is then not what was signed.
	Namespace string
}

// NotAsSigned is why an approval does not count where only signed ones do, by
// whatever key it is signed; nil: it may. A signature covers what the file itself has,
// in its place.
func (a *Approval) NotAsSigned() *Problem {
	commit := len(a.Spec.Commit)
	switch {
	case a.Linked:
		return a.Ignored("", "a symbolic link is on the way to its file, and only signed approvals count", "put the file itself into the folder for approvals")
	case !a.Alone:
		return a.Ignored("", "its file has other documents, and only signed approvals count", "give it a file of its own")
	case a.Namespace == "":
		return a.Ignored("metadata.namespace", "is not set, and only signed approvals count", "write "+a.Metadata.Namespace+", as tranche approve does")
	case a.Namespace != a.Metadata.Namespace:
		return a.Ignored("metadata.namespace", fmt.Sprintf("is %s, and the release is in %s", a.Namespace, a.Metadata.Namespace), "approve each release by a file of its own")
	case a.ForRelease() && commit != 40 && commit != 64:
		return a.Ignored("spec.commit", fmt.Sprintf("%q is a part of a commit, and only signed approvals count: other commits that begin like it are quickly made", a.Spec.Commit), "write all of spec.commit of the BatchRelease, as tranche approve does")
	}
	return nil
}

// Ignored says of a field of an approval why it counts for nothing, and what
// to do.
func (a *Approval) Ignored(field, fact, hint string) *Problem {
	name := "BatchApproval " + a.Metadata.Namespace + "/" + a.Metadata.Name
	return &Problem{Reason: ReasonApprovalIgnored, Where: where(a.File, name, field), Err: errors.New(fact), Hint: hint}
}

// IsFor reports whether an approval names a commit: all of it, or its first
// characters.
func (a *Approval) IsFor(commit string) bool {
	return abbreviated.MatchString(a.Spec.Commit) && strings.HasPrefix(strings.ToLower(commit), a.Spec.Commit)
}

// ReadApprovals reads the approvals in a folder and below; a folder that is
// not there has none. A file that is none is a problem and keeps no other from
// counting. Approvals without a namespace are in defaultNamespace; where
// targetNamespace is set, all are in that one.
func ReadApprovals(fsys filesys.FileSystem, dir, defaultNamespace, targetNamespace string) ([]Approval, Problems) {
	var approvals []Approval
	var ps Problems
	unread := func(at string, err error) {
		ps = append(ps, &Problem{Reason: ReasonApprovalIgnored, Where: relative(at), Err: fmt.Errorf("%w; approvals there are not read", err), Hint: "make it a folder of the repository"})
	}
	if err := notAFolder(fsys, dir); err != nil {
		unread(rooted(dir), err)
	}
	for _, file := range approvalFiles(fsys, rooted(dir), 0, unread) {
		objects, more := readManifests(fsys, file)
		for _, p := range more {
			p.Reason = ReasonApprovalIgnored
		}
		ps = append(ps, more...)
		alone, linked := len(objects) == 1 && len(more) == 0, isLinked(fsys, file)
		for _, o := range objects {
			namespace := o.GetNamespace()
			switch {
			case targetNamespace != "":
				o.SetNamespace(targetNamespace)
			case o.GetNamespace() == "":
				o.SetNamespace(defaultNamespace)
			}
			a, more := decodeApproval(o)
			ps = append(ps, more...)
			if len(more) == 0 {
				a.Alone, a.Linked, a.Namespace = alone, linked, namespace
				approvals = append(approvals, a)
			}
		}
	}
	if p := storageProblem(fsys, ReasonApprovalIgnored, dir); p != nil {
		return nil, Problems{p}
	}
	return approvals, ps.sorted()
}

// notAFolder says why what is at a path is not read as a folder; nil where it is one, or
// nothing is there. Other file systems than the tree of a commit do not tell the two apart.
func notAFolder(fsys filesys.FileSystem, dir string) error {
	if _, isTree := fsys.(interface{ Err() error }); !isTree {
		return nil
	}
	switch _, name, err := fsys.CleanedAbs(rooted(dir)); {
	case err == nil && name != "":
		return errors.New("it is not a folder")
	case err != nil && !errors.Is(err, fs.ErrNotExist):
		return err
	}
	return nil
}

// isLinked reports whether a symbolic link is on the way to a file.
func isLinked(fsys filesys.FileSystem, file string) bool {
	dir, name, err := fsys.CleanedAbs(file)
	return err == nil && dir.Join(name) != rooted(file)
}

// maxApprovalDepth bounds how deep folders of approvals may be nested, links
// to a parent included.
const maxApprovalDepth = 8

func approvalFiles(fsys filesys.FileSystem, dir string, depth int, unread func(at string, err error)) []string {
	if depth > maxApprovalDepth || !fsys.IsDir(dir) {
		return nil
	}
	names, err := fsys.ReadDir(dir)
	if err != nil {
		return nil // gone meanwhile; a storage error is asked for at the end
	}
	slices.Sort(names)
	var files []string
	for _, name := range names {
		at := path.Join(dir, name)
		switch {
		case strings.HasPrefix(name, "."):
		case fsys.IsDir(at):
			files = append(files, approvalFiles(fsys, at, depth+1, unread)...)
		case isManifest(name):
			files = append(files, at)
		default: // another file, or a link that leads nowhere
			if _, _, err := fsys.CleanedAbs(at); err != nil {
				unread(at, err)
			}
		}
	}
	return files
}

// ForRelease reports whether an approval names a release. One that does not
// approves a plan, and nothing else.
func (a *Approval) ForRelease() bool { return a.Spec.Commit != "" }

// digest is that of a plan. A part of one does not count: others that begin with the
// same characters are quickly found.
var digest = regexp.MustCompile(`^[0-9a-f]{64}$`)

// abbreviated is a commit or the beginning of one.
var abbreviated = regexp.MustCompile(`^[0-9a-f]{7,64}$`)

func decodeApproval(o Object) (Approval, Problems) {
	var ps Problems
	add := func(field, fact, hint string) {
		ps = append(ps, o.problem(ReasonApprovalIgnored, field, fact, hint))
	}
	if o.groupKind() != kindApproval || o.GetAPIVersion() != v1alpha1.GroupVersion.String() {
		add("", fmt.Sprintf("is a %s of %s in the folder for approvals", o.GetKind(), o.GetAPIVersion()), "only a BatchApproval of "+v1alpha1.GroupVersion.String()+" counts there")
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
		add("spec.commit", fmt.Sprintf("%q is not a commit", a.Spec.Commit), "write spec.commit of the BatchRelease, or at least seven characters of it")
	}
	if a.Spec.Step < 0 {
		add("spec.step", fmt.Sprintf("%d: must not be negative", a.Spec.Step), "")
	}
	return a, ps
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
			ps = append(ps, a.Ignored("spec.commit", fmt.Sprintf("%s is another release; the present one comes from %s", a.Spec.Commit, abbreviate(commit)), "replace it when that one is to be approved"))
		case a.Spec.Step < 0 || a.Spec.Step > last:
			ps = append(ps, a.Ignored("spec.step", fmt.Sprintf("%d: the plan has steps 0 to %d", a.Spec.Step, last), ""))
		default:
			fit = append(fit, a)
		}
	}
	if len(fit) == 1 {
		return fit[0], ps.sorted()
	}
	for i, a := range fit {
		other := fit[(i+1)%len(fit)]
		ps = append(ps, a.Ignored("", "there is another for the same release in "+other.File+", so neither counts", "keep one of them"))
	}
	return nil, ps.sorted()
}

// OtherRevision says that an approval is for another revision than the one
// that its release brings.
func OtherRevision(a *Approval, revision string) *Problem {
	return a.Ignored("spec.revision", fmt.Sprintf("%s is another revision; the one under way is %s", a.Spec.Revision, revision), "replace it when that one is to be approved")
}

// StepReplicas returns the replicas of steps.
func StepReplicas(steps []v1alpha1.Step) []intstr.IntOrString {
	replicas := make([]intstr.IntOrString, len(steps))
	for i, s := range steps {
		replicas[i] = s.Replicas
	}
	return replicas
}

// ChangedStep returns the first step that is not as it was approved, or -1. It
// compares the steps that an approval of step upTo lets a release reach: those
// from 0 to the one after upTo. The gate of step j may open only if no step from
// 0 to j+1 has changed, so the first gate that stays closed is that of the step
// before the one returned. Pauses do not count: they are no sizes.
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

// StepsChanged says that an approval opens no gate, or not all gates that it
// names, since the plan has other steps than in the commit that brought it. It is
// nil where the steps that count are the same.
func (a *Approval) StepsChanged(approved []intstr.IntOrString, in string, steps []v1alpha1.Step) *Problem {
	i := ChangedStep(approved, a.Spec.Step, steps)
	if i < 0 {
		return nil
	}
	was := "was not there"
	if i < len(approved) {
		was = "was " + approved[i].String()
	}
	fact := fmt.Sprintf("the plan's steps have changed since: step %d %s in commit %s, which brought the approval, and is %s now", i, was, abbreviate(in), steps[i].Replicas.String())
	if i > 1 {
		fact += fmt.Sprintf("; it counts up to step %d", i-2)
	}
	return a.Ignored("spec.step", fact, hintApproveAgain)
}

// StepsUnknown says that an approval does not count, since the commit that
// brought it has no plan for the Deployment of its release.
func (a *Approval) StepsUnknown(r *Release, in string) *Problem {
	return a.Ignored("spec.step", fmt.Sprintf("commit %s, which brought the approval, renders no plan for %s, so the steps that it approves are not known", abbreviate(in), r.Deployment), hintApproveAgain)
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
	return ps.sorted()
}
