package v1alpha1

import (
	"cmp"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// GitSource is a branch and a path to keep in the cluster.
//
// +kubebuilder:object:root=true
// +kubebuilder:subresource:status
// +kubebuilder:resource:shortName=gsrc,categories=tranche
// +kubebuilder:printcolumn:name="URL",type=string,JSONPath=`.spec.url`
// +kubebuilder:printcolumn:name="Branch",type=string,JSONPath=`.spec.ref.branch`
// +kubebuilder:printcolumn:name="Ready",type=string,JSONPath=`.status.conditions[?(@.type=="Ready")].status`
// +kubebuilder:printcolumn:name="Applied",type=string,JSONPath=`.status.appliedCommit`
// +kubebuilder:printcolumn:name="Reason",type=string,JSONPath=`.status.conditions[?(@.type=="Ready")].reason`
// +kubebuilder:printcolumn:name="Age",type=date,JSONPath=`.metadata.creationTimestamp`
// +kubebuilder:printcolumn:name="Message",type=string,priority=1,JSONPath=`.status.conditions[?(@.type=="Ready")].message`
type GitSource struct {
	metav1.TypeMeta   `json:",inline"`
	metav1.ObjectMeta `json:"metadata,omitempty"`

	// spec is what to keep in the cluster.
	// +required
	Spec GitSourceSpec `json:"spec"`
	// status is how far the cluster follows the branch.
	// +optional
	Status GitSourceStatus `json:"status,omitempty"`
}

// GitSourceList is a list of GitSources.
//
// +kubebuilder:object:root=true
type GitSourceList struct {
	metav1.TypeMeta `json:",inline"`
	metav1.ListMeta `json:"metadata,omitempty"`
	Items           []GitSource `json:"items"`
}

// GitSourceSpec is a branch and a path to keep in the cluster.
//
// +kubebuilder:validation:XValidation:rule="!has(self.writeBack) || !has(self.writeBack.enabled) || !self.writeBack.enabled || !has(self.ref) || !(has(self.ref.tag) || has(self.ref.semver) || has(self.ref.commit))",message="writeBack.enabled commits to the branch, and what ref.tag, ref.semver or ref.commit pins would not follow: remove one of them"
// +kubebuilder:validation:XValidation:rule="!has(self.verify) || !has(self.verify.mode) || self.verify.mode == 'HEAD' || has(self.ref) && !has(self.ref.commit) && (has(self.ref.tag) || has(self.ref.semver))",message="verify.mode Tag and TagAndHEAD need ref.tag or ref.semver, without ref.commit"
type GitSourceSpec struct {
	// url of the repository: https, http, ssh or file. Credentials are never
	// part of it; they belong in the Secret that secretRef names.
	// +kubebuilder:validation:MaxLength=2048
	// +kubebuilder:validation:Pattern=`^(https?|ssh|file)://`
	// +kubebuilder:validation:XValidation:rule="self.startsWith('ssh://') || !self.matches('^[a-z]+://[^/]*@')",message="no credentials in the URL: name a Secret in spec.secretRef"
	// +required
	URL string `json:"url"`

	// ref is the branch to follow, or what of it is pinned.
	// +kubebuilder:default={branch: main}
	// +optional
	Ref GitReference `json:"ref,omitzero"`

	// path in the repository: a kustomization, or a folder of plain YAML.
	// +kubebuilder:default="."
	// +kubebuilder:validation:MaxLength=1024
	// +kubebuilder:validation:XValidation:rule="!self.startsWith('/') && !self.split('/').exists(e, e == '..')",message="must be a path inside the repository"
	// +optional
	Path string `json:"path,omitempty"`

	// interval between two looks at the repository.
	// +kubebuilder:default="1m"
	// +kubebuilder:validation:XValidation:rule="duration(self) >= duration('1s')",message="must be at least 1s"
	// +optional
	Interval metav1.Duration `json:"interval,omitzero"`

	// retryInterval is when to look again after a look that failed; default: soon
	// where another try may help, and the interval where it cannot.
	// +kubebuilder:validation:XValidation:rule="duration(self) >= duration('1s')",message="must be at least 1s"
	// +optional
	RetryInterval *metav1.Duration `json:"retryInterval,omitempty"`

	// timeout of one exchange with the repository's server.
	// +kubebuilder:default="60s"
	// +kubebuilder:validation:XValidation:rule="duration(self) >= duration('1s')",message="must be at least 1s"
	// +optional
	Timeout metav1.Duration `json:"timeout,omitzero"`

	// suspend stops all looks at the repository and all writes.
	// +optional
	Suspend bool `json:"suspend,omitempty"`

	// prune deletes what was applied and has left the branch.
	// +optional
	Prune bool `json:"prune,omitempty"`

	// dependsOn are the GitSources to be ready before a commit of this one is
	// applied. One that follows the same repository and branch must have applied
	// that commit, too.
	// +kubebuilder:validation:MaxItems=64
	// +optional
	DependsOn []NamespacedObjectReference `json:"dependsOn,omitempty"`

	// wait makes Ready wait until all that was applied is ready by the rules of
	// kstatus: Deployments are rolled out, releases completed, Jobs done.
	// +optional
	Wait bool `json:"wait,omitempty"`

	// targetNamespace is the namespace of every namespaced object, whatever
	// its manifest says; empty: the manifest's own, and the GitSource's
	// where it has none.
	// +kubebuilder:validation:MaxLength=63
	// +optional
	TargetNamespace string `json:"targetNamespace,omitempty"`

	// serviceAccountName is the account, in the GitSource's namespace, that
	// is impersonated for every write; empty: the controller's own.
	// +kubebuilder:validation:MaxLength=253
	// +optional
	ServiceAccountName string `json:"serviceAccountName,omitempty"`

	// secretRef names the Secret, in the same namespace, with the
	// credentials: username and password; bearerToken; identity, known_hosts
	// and password (of the key); ca.crt.
	// +optional
	SecretRef *LocalObjectReference `json:"secretRef,omitempty"`

	// proxySecretRef names the Secret, in the same namespace, with the HTTP proxy that
	// leads to the repository's server: address, username and password. It is for https
	// and http URLs.
	// +optional
	ProxySecretRef *LocalObjectReference `json:"proxySecretRef,omitempty"`

	// webhook lets the repository's server tell of a push.
	// +optional
	Webhook *Webhook `json:"webhook,omitempty"`

	// verify demands that the commit to be applied is signed by a listed key.
	// +optional
	Verify *CommitVerification `json:"verify,omitempty"`

	// approvals says where approvals are and who may give them.
	// +optional
	Approvals *ApprovalPolicy `json:"approvals,omitempty"`

	// writeBack lets the controller commit what it decides.
	// +optional
	WriteBack *WriteBack `json:"writeBack,omitempty"`
}

// GitReference is what to follow: a branch, or a commit or tag that is pinned. Of what is set
// commit comes before semver, semver before tag, and tag before branch. Approvals
// are read from the tip of the branch in any case.
type GitReference struct {
	// branch to follow. Approvals are in its tip, whatever is pinned.
	// +kubebuilder:default=main
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=255
	// +kubebuilder:validation:XValidation:rule="!self.startsWith('-') && !self.startsWith('refs/') && !self.contains('..')",message="must be the name of a branch, without refs/heads/"
	// +optional
	Branch string `json:"branch,omitempty"`

	// tag whose commit is applied.
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=255
	// +kubebuilder:validation:XValidation:rule="!self.startsWith('-') && !self.startsWith('refs/') && !self.contains('..')",message="must be the name of a tag, without refs/tags/"
	// +optional
	Tag string `json:"tag,omitempty"`

	// semver is a range of versions, such as ">=1.2.0 <2.0.0". The commit of the tag
	// with the highest version in it is applied.
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=255
	// +optional
	SemVer string `json:"semver,omitempty"`

	// commit to apply, whole; it must be in the history of the branch.
	// +kubebuilder:validation:Pattern=`^([0-9a-f]{40}|[0-9a-f]{64})$`
	// +optional
	Commit string `json:"commit,omitempty"`
}

// IsPinned reports whether the reference is more than a branch to follow.
func (r GitReference) IsPinned() bool { return r.Tag != "" || r.SemVer != "" || r.Commit != "" }

// String is the reference as it stands in messages: a commit is one of the branch.
func (r GitReference) String() string {
	if r.Commit != "" {
		return r.Branch
	}
	return cmp.Or(r.SemVer, r.Tag, r.Branch)
}

// LocalObjectReference names an object in the same namespace.
type LocalObjectReference struct {
	// name of the object.
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=253
	// +required
	Name string `json:"name"`
}

// NamespacedObjectReference names an object.
type NamespacedObjectReference struct {
	// name of the object.
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=253
	// +required
	Name string `json:"name"`
	// namespace of the object; default: the referring object's. Another one is
	// refused, unless the controller runs with --no-cross-namespace-refs=false.
	// +kubebuilder:validation:MaxLength=63
	// +optional
	Namespace string `json:"namespace,omitempty"`
}

// Webhook lets the repository's server tell of a push.
type Webhook struct {
	// secretRef names a Secret, in the same namespace, whose entry token is
	// the secret that is set for the webhook at the server.
	// +required
	SecretRef LocalObjectReference `json:"secretRef"`
}

// Verification names the keys that a signature must be by.
type Verification struct {
	// secretRef names a Secret whose entries are keys: *.asc are OpenPGP
	// public keys, *.sshpub SSH public keys, one on each line, and
	// allowed_signers is as ssh-keygen has it.
	// +required
	SecretRef LocalObjectReference `json:"secretRef"`
}

// VerificationMode is which of the objects that lead to a commit have to be signed.
type VerificationMode string

// The modes are those of Flux.
const (
	// VerifyHEAD is the commit itself, and the tip that approvals are read from.
	VerifyHEAD VerificationMode = "HEAD"
	// VerifyTag is the annotated tag that is pinned.
	VerifyTag VerificationMode = "Tag"
	// VerifyTagAndHEAD is both.
	VerifyTagAndHEAD VerificationMode = "TagAndHEAD"
)

// CommitVerification names the keys that what leads to a commit must be signed by.
type CommitVerification struct {
	Verification `json:",inline"`
	// mode is what must be signed: HEAD is the commit to be applied and the tip of the
	// branch, which has the approvals; Tag is the annotated tag that ref.tag or
	// ref.semver names; TagAndHEAD is both.
	// +kubebuilder:validation:Enum=HEAD;Tag;TagAndHEAD
	// +kubebuilder:default=HEAD
	// +optional
	Mode VerificationMode `json:"mode,omitempty"`
}

// ApprovalPolicy says where approvals are and who may give them.
//
// +kubebuilder:validation:XValidation:rule="!has(self.distinctAuthor) || !self.distinctAuthor || has(self.signers)",message="distinctAuthor needs signers: without a signature nobody can tell who approves"
type ApprovalPolicy struct {
	// path of the approval files, from the root of the repository; default:
	// approvals below spec.path.
	// +kubebuilder:validation:MaxLength=1024
	// +kubebuilder:validation:XValidation:rule="!self.startsWith('/') && !self.split('/').exists(e, e == '..')",message="must be a path inside the repository"
	// +optional
	Path string `json:"path,omitempty"`

	// signers demands that the commit which brought an approval is signed by
	// a listed key. A change of what decides about a Deployment's releases, such as
	// the steps of its plan, then counts only with such an approval, too.
	// +optional
	Signers *Verification `json:"signers,omitempty"`

	// distinctAuthor demands that an approval is not signed by who signed the
	// change under release, or the change of the plan. A change that is not signed by a listed key, of
	// signers or of spec.verify, cannot be approved.
	// +optional
	DistinctAuthor bool `json:"distinctAuthor,omitempty"`
}

// WriteBack lets the controller commit what it decides.
type WriteBack struct {
	// enabled turns it on.
	// +optional
	Enabled bool `json:"enabled,omitempty"`

	// author of the commits.
	// +optional
	Author *Signature `json:"author,omitempty"`

	// committer of the commits; default: the author.
	// +optional
	Committer *Signature `json:"committer,omitempty"`

	// notes keeps the story of each release as a Git note on its commit:
	// when it began, who approved which step, how it ended. They are read by
	// git log --notes=tranche, once refs/notes/tranche is fetched. It needs no
	// enabled.
	// +optional
	Notes bool `json:"notes,omitempty"`

	// signingKey names a Secret with the key that signs the commits:
	// git.asc and passphrase, or identity and password.
	// +optional
	SigningKey *LocalObjectReference `json:"signingKey,omitempty"`

	// branch to push to for review, instead of the watched one.
	// +kubebuilder:validation:MaxLength=255
	// +kubebuilder:validation:XValidation:rule="!self.startsWith('-') && !self.startsWith('refs/') && !self.contains('..')",message="must be the name of a branch, without refs/heads/"
	// +optional
	Branch string `json:"branch,omitempty"`
}

// Signature is the author of a commit, in Git's sense of the word.
type Signature struct {
	// name of the author.
	// +kubebuilder:default=tranche
	// +kubebuilder:validation:MaxLength=255
	// +kubebuilder:validation:Pattern=`^[^<>\n]*$`
	// +optional
	Name string `json:"name,omitempty"`
	// email of the author.
	// +kubebuilder:validation:MaxLength=255
	// +kubebuilder:validation:Pattern=`^[^<>\n]*$`
	// +optional
	Email string `json:"email,omitempty"`
}

// GitSourceStatus is how far the cluster follows the branch.
type GitSourceStatus struct {
	// observedGeneration is the generation of the spec that this status is about.
	// +optional
	ObservedGeneration int64 `json:"observedGeneration,omitempty"`
	// observedCommit is the tip of the branch at the last look.
	// +optional
	ObservedCommit string `json:"observedCommit,omitempty"`
	// appliedCommit is the last commit that was applied whole.
	// +optional
	AppliedCommit string `json:"appliedCommit,omitempty"`
	// appliedWith is a digest of the spec with which appliedCommit was applied. It
	// is empty from when another commit, or the same one with another spec, begins
	// to be applied until all of that is.
	// +optional
	AppliedWith string `json:"appliedWith,omitempty"`
	// lastHandledReconcileAt is the last value of the annotation
	// tranche.dev/reconcile that was acted on.
	// +optional
	LastHandledReconcileAt string `json:"lastHandledReconcileAt,omitempty"`
	// inventory of what was applied.
	// +optional
	Inventory *Inventory `json:"inventory,omitempty"`
	// kept are the objects of the inventory that left the branch and are not
	// pruned before nothing uses them any more.
	// +listType=map
	// +listMapKey=id
	// +optional
	Kept []KeptObject `json:"kept,omitempty"`
	// endedReleases are the releases that have ended, by Deployment and newest first:
	// no approval opens a gate of one of them again, also where its BatchRelease was
	// lost.
	// +kubebuilder:validation:MaxItems=2048
	// +listType=atomic
	// +optional
	EndedReleases []EndedRelease `json:"endedReleases,omitempty"`
	// plans are what decides about the releases of each Deployment, where
	// spec.approvals.signers is set. A change in Git takes their place when a signer
	// has approved it.
	// +listType=map
	// +listMapKey=deployment
	// +optional
	Plans []GoverningPlan `json:"plans,omitempty"`
	// usedPlanApprovals are the approvals with which plans took effect, newest first:
	// none counts again, however the branch is merged or pushed.
	// +kubebuilder:validation:MaxItems=256
	// +listType=atomic
	// +optional
	UsedPlanApprovals []UsedPlanApproval `json:"usedPlanApprovals,omitempty"`
	// seen are tips of the branch with the time at which the controller saw each for the
	// first time, newest first, where spec.verify or spec.approvals.signers is set. A
	// signature counts only if its key was valid when the commit was first seen. Tips
	// that are older than a day are kept once an hour.
	// +kubebuilder:validation:MaxItems=2048
	// +listType=atomic
	// +optional
	Seen []SeenCommit `json:"seen,omitempty"`
	// conditions: Ready, Reconciling, Stalled, InSync.
	// +listType=map
	// +listMapKey=type
	// +optional
	Conditions []metav1.Condition `json:"conditions,omitempty"`
}

// SeenCommit is a tip of the branch, and when it was seen.
type SeenCommit struct {
	// commit that was the tip.
	Commit string `json:"commit"`
	// time at which the controller saw it for the first time, and with it all of its
	// history that it had not seen before.
	Time metav1.Time `json:"time"`
}

// GoverningPlan is what decides about the releases of one Deployment.
type GoverningPlan struct {
	// deployment is the namespace and name of the Deployment, as namespace/name.
	Deployment string `json:"deployment"`
	// name of the BatchRelease that governs it.
	Name string `json:"name"`
	// terms are the plan's strategy, and the strategy and minReadySeconds of the
	// Deployment, as canonical JSON. Their SHA-256 is the digest that a BatchApproval
	// names in spec.plan.
	// +kubebuilder:validation:MaxLength=8192
	Terms string `json:"terms"`
	// since is the tip of the branch with which they took effect. An approval of
	// other terms counts only if the commit that brought it is not in the history of
	// this one.
	// +kubebuilder:validation:MaxLength=64
	// +optional
	Since string `json:"since,omitempty"`
	// tip is that of the branch at that time, where spec.ref pins another commit; the
	// history is then that of this one.
	// +kubebuilder:validation:MaxLength=64
	// +optional
	Tip string `json:"tip,omitempty"`
}

// UsedPlanApproval names an approval of a plan.
type UsedPlanApproval struct {
	// plan is the digest that it approved.
	Plan string `json:"plan"`
	// commit that brought the approval.
	Commit string `json:"commit"`
	// payload names what that commit says, however its signature is written: the
	// object that it would be without it.
	Payload string `json:"payload"`
}

// EndedRelease names a release that has ended.
type EndedRelease struct {
	// deployment is the namespace and name of the Deployment, as namespace/name.
	Deployment string `json:"deployment"`
	// commit that the release came from.
	Commit string `json:"commit"`
}

// Inventory is the list of the objects that a GitSource applied.
type Inventory struct {
	// entries, sorted by id.
	// +listType=atomic
	// +optional
	Entries []InventoryEntry `json:"entries,omitempty"`
}

// InventoryEntry is one object that was applied, in the format of Flux.
type InventoryEntry struct {
	// id is <namespace>_<name>_<group>_<kind>.
	ID string `json:"id"`
	// v is the API version.
	Version string `json:"v"`
}

// KeptObject is an object that is to be pruned and is still in use.
type KeptObject struct {
	// id is that of the inventory.
	ID string `json:"id"`
	// usedBy is what uses it, such as ReplicaSet shop/web-5c66667f6.
	UsedBy string `json:"usedBy"`
}
