package apply

import (
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"strings"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"sigs.k8s.io/structured-merge-diff/v6/fieldpath"

	"github.com/tranche-dev/tranche/gitsync/fieldmanager"
	"github.com/tranche-dev/tranche/gitsync/inventory"
	"github.com/tranche-dev/tranche/plan"
	"github.com/tranche-dev/tranche/plan/v1alpha1"
)

// Drift says which values other managers had changed in an object that an apply has put
// right; empty: none. It may have been applied, and been autoscaled, before.
func (t *Target) Drift(before *unstructured.Unstructured, c Change, applied, autoscaled bool) (string, error) {
	switch {
	case c == Created && applied:
		return t.String() + " was deleted", nil
	case c != Configured || before == nil || t.Applied == nil:
		return "", nil
	}
	lost, err := fieldmanager.Regained(before, t.Applied)
	if err != nil {
		return "", err
	}
	if autoscaled && !t.Autoscaled {
		lost = lost.Difference(fieldpath.NewSet(fieldpath.MakePathOrDie("spec", "replicas"))) // the autoscaler's until now
	}
	if lost = fieldmanager.Differing(before, t.Applied, lost); lost.Empty() {
		return "", nil // another manager has taken fields with the values that Git has
	}
	by, err := fieldmanager.Changes(before, lost)
	if err != nil {
		return "", err
	}
	return t.String() + ": " + strings.Join(by, "; "), nil
}

// Resized returns the problem of a workload that has another size than its manifest says, after an
// apply or a dry run that changes nothing. It returns nil if the sizes agree.
func (t *Target) Resized() *plan.Problem {
	is := t.Applied
	if is == nil && t.Unchanged {
		is = t.Live
	}
	if is == nil || t.KeepsReplicas() || !inventory.IsWorkload(t.GroupKind()) || !hasReplicas(is) {
		return nil
	}
	wanted, _, err := unstructured.NestedInt64(t.Unstructured.Object, "spec", "replicas")
	got, _, _ := unstructured.NestedInt64(is.Object, "spec", "replicas")
	if err != nil || got == wanted || !hasReplicas(t.Unstructured) {
		return nil
	}
	fact := fmt.Sprintf("spec.replicas is %d, and %d in Git: an admission policy or webhook changes what is applied", got, wanted)
	return t.Problem(v1alpha1.ReasonFieldConflict, fact, "exempt the object from it, or have Git say the same")
}

// IsApplied reports whether a commit is what was applied last, all of it, and with the spec
// that the source has now. A new path, namespace or account brings other objects and fields,
// which are no drift.
func IsApplied(gs *v1alpha1.GitSource, commit string) bool {
	return commit != "" && commit == gs.Status.AppliedCommit && gs.Status.AppliedWith == Digest(&gs.Spec)
}

// digestSize is how many bytes of a hash tell one spec from another.
const digestSize = 16

// Digest returns a hash of those fields of a source's spec on which the applied objects
// depend.
func Digest(spec *v1alpha1.GitSourceSpec) string {
	s := spec.DeepCopy()
	s.Interval, s.RetryInterval, s.Timeout, s.Suspend, s.DependsOn = metav1.Duration{}, nil, metav1.Duration{}, false, nil
	raw, err := json.Marshal(s)
	if err != nil {
		return err.Error() // which it never is
	}
	sum := sha256.Sum256(raw)
	return hex.EncodeToString(sum[:digestSize])
}
