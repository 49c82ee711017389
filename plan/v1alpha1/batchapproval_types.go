package v1alpha1

import metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

// BatchApproval is a file in Git, never an object in the cluster; there is one
// per release, replaced by the next. Revision and commit together name one
// release: a revision can come back, and must then be approved again.
type BatchApproval struct {
	metav1.TypeMeta `json:",inline"`
	// Metadata names the release. A field of its own and not embedded, so that
	// no CustomResourceDefinition is made for a kind that is only a file.
	Metadata metav1.ObjectMeta `json:"metadata,omitempty"`

	// spec is what is approved.
	Spec BatchApprovalSpec `json:"spec"`
}

// BatchApprovalSpec lets the steps of one release up to and including Step go on,
// or a plan take effect, or both.
type BatchApprovalSpec struct {
	// revision that is approved. With commit and step it names a release; the three
	// are absent where only a plan is approved.
	Revision string `json:"revision,omitempty"`
	// commit is the release's spec.commit, or at least seven characters of it.
	Commit string `json:"commit,omitempty"`
	// step up to and including which the release may go on, from 0.
	Step int32 `json:"step"`
	// plan is the digest of what decides about the releases of a Deployment: 64
	// hexadecimal digits, as `tranche diff` prints them. Where the GitSource lists
	// signers, a change of the plan counts from such an approval on.
	Plan string `json:"plan,omitempty"`
}
