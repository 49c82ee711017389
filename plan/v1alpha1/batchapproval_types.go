package v1alpha1

import metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

// BatchApproval is a file in Git, never an object in the cluster. Each release has one,
// and the next release replaces it. Revision and commit together name one release. A
// revision that comes back needs a new approval.
type BatchApproval struct {
	metav1.TypeMeta `json:",inline"`
	// Metadata names the release. A field of its own and not embedded, so that
	// no CustomResourceDefinition is made for a kind that is only a file.
	Metadata metav1.ObjectMeta `json:"metadata,omitempty"`

	// spec has the release or the plan that is approved.
	Spec BatchApprovalSpec `json:"spec"`
}

// BatchApprovalSpec opens the gates of one release up to a step, or lets a plan take
// effect, or both.
type BatchApprovalSpec struct {
	// revision is the approved revision. Revision, commit and step are absent where only
	// a plan is approved.
	Revision string `json:"revision,omitempty"`
	// commit is the release's spec.commit, or at least seven characters of it.
	Commit string `json:"commit,omitempty"`
	// step is the last step whose gate may open, counted from 0.
	Step int32 `json:"step"`
	// plan is the digest of a plan: 64 hexadecimal digits, as `tranche diff` prints them.
	// If the GitSource lists signers, a change of the plan needs such an approval.
	Plan string `json:"plan,omitempty"`
	// override lets the gate of this step open, and of no other one, although metrics do
	// not pass. It needs revision, commit and step.
	Override *Override `json:"override,omitempty"`
}
