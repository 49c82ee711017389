package v1alpha1

import (
	"cmp"
	"path"
	"slices"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// GitSource keeps a branch and a path of a repository in the cluster.
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

	// spec selects what to keep in the cluster, and how.
	// +required
	Spec GitSourceSpec `json:"spec"`
	// status is the observed state of the source.
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

// GitSourceSpec selects what to keep in the cluster, and how.
//
// +kubebuilder:validation:XValidation:rule="!has(self.writeBack) || !has(self.writeBack.enabled) || !self.writeBack.enabled || !has(self.ref) || !(has(self.ref.tag) || has(self.ref.semver) || has(self.ref.commit))",message="writeBack.enabled commits to the branch, and a source with ref.tag, ref.semver or ref.commit does not follow the branch: remove one of them"
// +kubebuilder:validation:XValidation:rule="!has(self.verify) || !has(self.verify.mode) || self.verify.mode == 'HEAD' || has(self.ref) && !has(self.ref.commit) && (has(self.ref.tag) || has(self.ref.semver))",message="verify.mode Tag and TagAndHEAD need ref.tag or ref.semver, without ref.commit"
type GitSourceSpec struct {
	// url of the repository: https, http, ssh or file. Credentials are never
	// part of it; they belong in the Secret that secretRef names.
	// +kubebuilder:validation:MaxLength=2048
	// +kubebuilder:validation:Pattern=`^(https?|ssh|file)://`
	// +kubebuilder:validation:XValidation:rule="self.startsWith('ssh://') || !self.matches('^[a-z]+://[^/]*@')",message="no credentials in the URL: name a Secret in spec.secretRef"
	// +required
	URL string `json:"url"`

	// ref is the branch to follow, or the pin: a tag, a range of versions or a commit.
	// +kubebuilder:default={branch: main}
	// +optional
	Ref GitReference `json:"ref,omitzero"`

	// path is a folder of the repository, with a kustomization or with plain YAML.
	// +kubebuilder:default="."
	// +kubebuilder:validation:MaxLength=1024
	// +kubebuilder:validation:XValidation:rule="!self.startsWith('/') && !self.split('/').exists(e, e == '..')",message="must be a path inside the repository"
	// +optional
	Path string `json:"path,omitempty"`

	// interval is the time between two syncs.
	// +kubebuilder:default="1m"
	// +kubebuilder:validation:XValidation:rule="duration(self) >= duration('1s')",message="must be at least 1s"
	// +optional
	Interval metav1.Duration `json:"interval,omitzero"`

	// retryInterval is the time between a failed sync and the next one. Default: half a
	// minute at most where another try may help, and otherwise interval.
	// +kubebuilder:validation:XValidation:rule="duration(self) >= duration('1s')",message="must be at least 1s"
	// +optional
	RetryInterval *metav1.Duration `json:"retryInterval,omitempty"`

	// timeout is the limit for one exchange with the Git server.
	// +kubebuilder:default="60s"
	// +kubebuilder:validation:XValidation:rule="duration(self) >= duration('1s')",message="must be at least 1s"
	// +optional
	Timeout metav1.Duration `json:"timeout,omitzero"`

	// suspend stops all syncs and all writes.
	// +optional
	Suspend bool `json:"suspend,omitempty"`

	// prune deletes objects that were applied and are no longer in Git.
	// +optional
	Prune bool `json:"prune,omitempty"`

	// dependsOn lists GitSources that must be ready before a commit of this one is
	// applied. One that follows the same repository and branch must have applied that
	// commit, too.
	// +kubebuilder:validation:MaxItems=64
	// +optional
	DependsOn []NamespacedObjectReference `json:"dependsOn,omitempty"`

	// wait delays Ready until all applied objects are ready by the rules of kstatus.
	// Deployments are then rolled out, releases completed and Jobs done.
	// +optional
	Wait bool `json:"wait,omitempty"`

	// targetNamespace replaces the namespace of every namespaced object. If it is
	// empty, the manifest's namespace counts, and without one the GitSource's.
	// +kubebuilder:validation:MaxLength=63
	// +optional
	TargetNamespace string `json:"targetNamespace,omitempty"`

	// serviceAccountName is the ServiceAccount in the GitSource's namespace that the
	// controller impersonates for every write. Default: the account of
	// --default-service-account, and without that flag the controller's own.
	// +kubebuilder:validation:MaxLength=253
	// +optional
	ServiceAccountName string `json:"serviceAccountName,omitempty"`

	// secretRef names the Secret with the credentials, in the same namespace. Its keys
	// are username and password; bearerToken; identity, known_hosts and password (of the
	// key); ca.crt.
	// +optional
	SecretRef *LocalObjectReference `json:"secretRef,omitempty"`

	// proxySecretRef names the Secret with the HTTP proxy, in the same namespace. Its
	// keys are address, username and password. It is for https and http URLs.
	// +optional
	ProxySecretRef *LocalObjectReference `json:"proxySecretRef,omitempty"`

	// webhook lets the Git server announce a push.
	// +optional
	Webhook *Webhook `json:"webhook,omitempty"`

	// verify requires that the commit to be applied is signed by a listed key.
	// +optional
	Verify *CommitVerification `json:"verify,omitempty"`

	// approvals is where approvals are, and who may give them.
	// +optional
	Approvals *ApprovalPolicy `json:"approvals,omitempty"`

	// writeBack makes the controller commit what the cluster decides.
	// +optional
	WriteBack *WriteBack `json:"writeBack,omitempty"`
}

// GitReference is a branch, or a commit or tag that is pinned. If several fields are set,
// commit comes before semver, semver before tag, and tag before branch. Approvals always
// come from the tip of the branch.
type GitReference struct {
	// branch is the branch to follow. Approvals are in its tip, also with a pin.
	// +kubebuilder:default=main
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=255
	// +kubebuilder:validation:XValidation:rule=`!self.startsWith('-') && !self.startsWith('refs/') && self != 'HEAD' && !self.contains('..') && !self.contains('@{') && !self.endsWith('.') && !self.matches(r'[\x00-\x20\x7f~^:?*\[\\]') && self.split('/').all(e, e != '' && !e.startsWith('.') && !e.endsWith('.lock'))`,message="must be the name of a branch, without refs/heads/"
	// +optional
	Branch string `json:"branch,omitempty"`

	// tag is the tag whose commit is applied.
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

	// commit is the full name of the commit to apply. It must be in the history of the
	// branch.
	// +kubebuilder:validation:Pattern=`^([0-9a-f]{40}|[0-9a-f]{64})$`
	// +optional
	Commit string `json:"commit,omitempty"`
}

// The times of a GitSource that was written past the API server's defaults.
const (
	DefaultInterval = time.Minute
	DefaultTimeout  = 60 * time.Second
)

// DefaultNamespace is that of what the branch has without a namespace.
func (gs *GitSource) DefaultNamespace() string { return cmp.Or(gs.Spec.TargetNamespace, gs.Namespace) }

// ApprovalsPath returns the folder of the approval files, from the root of the repository.
func (s *GitSourceSpec) ApprovalsPath() string {
	if s.Approvals != nil && s.Approvals.Path != "" {
		return path.Clean(s.Approvals.Path)
	}
	return path.Join(s.Path, "approvals")
}

// IntervalOrDefault is the time from one sync to the next.
func (s *GitSourceSpec) IntervalOrDefault() time.Duration {
	return cmp.Or(s.Interval.Duration, DefaultInterval)
}

// TimeoutOrDefault is the time that one exchange with the Git server may take.
func (s *GitSourceSpec) TimeoutOrDefault() time.Duration {
	return cmp.Or(s.Timeout.Duration, DefaultTimeout)
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

// SourcePlace is what a GitSource reads, and the namespace that it is for.
type SourcePlace struct {
	// url of the repository.
	// +optional
	URL string `json:"url,omitempty"`
	// ref is the branch, or the commit or tag that is pinned.
	// +optional
	Ref GitReference `json:"ref,omitzero"`
	// path is the folder in the repository.
	// +optional
	Path string `json:"path,omitempty"`
	// targetNamespace is the namespace of every namespaced object.
	// +optional
	TargetNamespace string `json:"targetNamespace,omitempty"`
	// approvalsPath is the folder of the approval files, which are no manifests. Earlier versions
	// have not set it.
	// +optional
	ApprovalsPath string `json:"approvalsPath,omitempty"`
}

// Place returns where a source reads.
func (s *GitSourceSpec) Place() *SourcePlace {
	return &SourcePlace{
		URL: s.URL, Ref: s.Ref, Path: s.Path, TargetNamespace: s.TargetNamespace, ApprovalsPath: s.ApprovalsPath(),
	}
}

// LocalObjectReference names an object in the same namespace.
//
// +structType=atomic
type LocalObjectReference struct {
	// name is the name of the object.
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
	// namespace is the namespace of the object. Default: that of the referring object.
	// Another namespace is refused, unless the controller runs with
	// --no-cross-namespace-refs=false.
	// +kubebuilder:validation:MaxLength=63
	// +optional
	Namespace string `json:"namespace,omitempty"`
}

// Webhook lets the Git server announce a push.
//
// +structType=atomic
type Webhook struct {
	// secretRef names a Secret in the same namespace. Its key token is the secret of the
	// webhook at the Git server.
	// +required
	SecretRef LocalObjectReference `json:"secretRef"`
}

// Verification names the keys that a signature must be by.
//
// +structType=atomic
type Verification struct {
	// secretRef names a Secret whose entries are public keys. *.asc are OpenPGP keys,
	// *.sshpub are SSH keys, one on each line. allowed_signers has the format of
	// ssh-keygen.
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

// CommitVerification names the keys that must have signed a commit or its tag.
//
// +structType=atomic
type CommitVerification struct {
	Verification `json:",inline"`
	// mode is what must be signed. HEAD is the commit to be applied, and the tip of the
	// branch with the approvals. Tag is the annotated tag that ref.tag or ref.semver
	// names. TagAndHEAD is both.
	// +kubebuilder:validation:Enum=HEAD;Tag;TagAndHEAD
	// +kubebuilder:default=HEAD
	// +optional
	Mode VerificationMode `json:"mode,omitempty"`
}

// ApprovalPolicy is where approvals are, and who may give them.
//
// +kubebuilder:validation:XValidation:rule="!has(self.distinctAuthor) || !self.distinctAuthor || has(self.signers)",message="distinctAuthor requires signers: set spec.approvals.signers, or remove distinctAuthor"
type ApprovalPolicy struct {
	// path is the folder of the approval files, from the root of the repository. Default:
	// approvals below spec.path.
	// +kubebuilder:validation:MaxLength=1024
	// +kubebuilder:validation:XValidation:rule="!self.startsWith('/') && !self.split('/').exists(e, e == '..' || e.lowerAscii() == '.git')",message="must be a path inside the repository"
	// +optional
	Path string `json:"path,omitempty"`

	// signers requires that the commit of an approval is signed by a listed key. A change
	// of the plan, such as its steps, then also needs a signed approval.
	// +optional
	Signers *Verification `json:"signers,omitempty"`

	// distinctAuthor requires that the approver has not signed the change under release,
	// or the change of the plan. A change without a signature by a key of signers or
	// spec.verify cannot be approved.
	// +optional
	DistinctAuthor bool `json:"distinctAuthor,omitempty"`
}

// WriteBack makes the controller commit what the cluster decides.
type WriteBack struct {
	// enabled turns write-back on.
	// +optional
	Enabled bool `json:"enabled,omitempty"`

	// author is the author of the commits.
	// +optional
	Author *Signature `json:"author,omitempty"`

	// committer is the committer of the commits. Default: the author.
	// +optional
	Committer *Signature `json:"committer,omitempty"`

	// notes records each release as a Git note on its commit: begin, approvals, outcome.
	// After a fetch of refs/notes/tranche, git log --notes=tranche shows them. It works
	// without enabled.
	// +optional
	Notes bool `json:"notes,omitempty"`

	// signingKey names a Secret with the key that signs the commits. Its keys are git.asc
	// and passphrase, or identity and password.
	// +optional
	SigningKey *LocalObjectReference `json:"signingKey,omitempty"`

	// branch is a branch for review. The controller pushes there instead of to the
	// watched branch.
	// +kubebuilder:validation:MaxLength=255
	// +kubebuilder:validation:XValidation:rule=`self == '' || !self.startsWith('-') && !self.startsWith('refs/') && self != 'HEAD' && !self.contains('..') && !self.contains('@{') && !self.endsWith('.') && !self.matches(r'[\x00-\x20\x7f~^:?*\[\\]') && self.split('/').all(e, e != '' && !e.startsWith('.') && !e.endsWith('.lock'))`,message="must be the name of a branch, without refs/heads/"
	// +optional
	Branch string `json:"branch,omitempty"`
}

// Signature is the author of a commit, in Git's sense of the word.
type Signature struct {
	// name is the name of the author.
	// +kubebuilder:default=tranche
	// +kubebuilder:validation:MaxLength=255
	// +kubebuilder:validation:Pattern=`^[^<>\n]*$`
	// +optional
	Name string `json:"name,omitempty"`
	// email is the address of the author.
	// +kubebuilder:validation:MaxLength=255
	// +kubebuilder:validation:Pattern=`^[^<>\n]*$`
	// +optional
	Email string `json:"email,omitempty"`
}

// GitSourceStatus is the observed state of a GitSource.
type GitSourceStatus struct {
	// observedGeneration is the generation of the spec that this status is about.
	// +optional
	ObservedGeneration int64 `json:"observedGeneration,omitempty"`
	// observedCommit is the tip of the branch when this status was written. A later commit
	// that touches nothing of the source is not written at once. It is written when
	// something of the source changes, when the interval is over, or when the annotation
	// tranche.dev/reconcile asks for a sync.
	// +optional
	ObservedCommit string `json:"observedCommit,omitempty"`
	// appliedCommit is the last commit that was applied completely. A later commit that touches
	// nothing of the source is as good as applied. It is written like observedCommit: when
	// something of the source changes, when the interval is over, or when tranche.dev/reconcile
	// asks for a sync.
	// +optional
	AppliedCommit string `json:"appliedCommit,omitempty"`
	// appliedWith is a digest of the spec with which appliedCommit was applied. It is
	// cleared while another commit or spec is being applied.
	// +optional
	AppliedWith string `json:"appliedWith,omitempty"`
	// appliedFrom is where the objects of the inventory come from. An edit of the spec that
	// would delete some of them has to be confirmed.
	// +optional
	AppliedFrom *SourcePlace `json:"appliedFrom,omitempty"`
	// lastHandledReconcileAt is the last value of the annotation tranche.dev/reconcile
	// that caused a sync.
	// +optional
	LastHandledReconcileAt string `json:"lastHandledReconcileAt,omitempty"`
	// inventory lists the objects that were applied.
	// +optional
	Inventory *Inventory `json:"inventory,omitempty"`
	// kept lists objects of the inventory that left the branch and are still in use. They
	// are pruned when they are unused. It also lists objects that are deleted and that
	// finalizers keep.
	// +listType=map
	// +listMapKey=id
	// +optional
	Kept []KeptObject `json:"kept,omitempty"`
	// endedReleases lists releases that have ended, by Deployment and newest first. No
	// approval opens a gate of such a release again, even if its BatchRelease was lost.
	// +kubebuilder:validation:MaxItems=2048
	// +listType=atomic
	// +optional
	EndedReleases []EndedRelease `json:"endedReleases,omitempty"`
	// forgottenUntil is set once endedReleases was full. Releases that ended until then may
	// be missing in it. An approval that was committed until then does not count for a
	// release that is first seen later.
	// +optional
	ForgottenUntil *metav1.Time `json:"forgottenUntil,omitempty"`
	// plans lists the governing plan of each Deployment, where spec.approvals.signers is
	// set. A change in Git replaces it once a signer has approved the change.
	// +listType=map
	// +listMapKey=deployment
	// +optional
	Plans []GoverningPlan `json:"plans,omitempty"`
	// usedPlanApprovals lists the approvals with which plans took effect, newest first.
	// None of them counts again.
	// +kubebuilder:validation:MaxItems=256
	// +listType=atomic
	// +optional
	UsedPlanApprovals []UsedPlanApproval `json:"usedPlanApprovals,omitempty"`
	// planApprovalsForgottenUntil is set once usedPlanApprovals was full. Used approvals
	// that were committed until then may be missing in it, and none of that age counts.
	// +optional
	PlanApprovalsForgottenUntil *metav1.Time `json:"planApprovalsForgottenUntil,omitempty"`
	// seen lists tips of the branch and when the controller first saw them, newest first.
	// It is kept where spec.verify or spec.approvals.signers is set. A signature counts
	// only if its key was valid when the commit was first seen. It
	// keeps one an hour of tips older than a day.
	// +kubebuilder:validation:MaxItems=2048
	// +listType=atomic
	// +optional
	Seen []SeenCommit `json:"seen,omitempty"`
	// conditions are Ready, Reconciling, Stalled and InSync.
	// +listType=map
	// +listMapKey=type
	// +optional
	Conditions []metav1.Condition `json:"conditions,omitempty"`
}

// SeenCommit is a tip of the branch, and when the controller first saw it.
type SeenCommit struct {
	// commit is the tip.
	Commit string `json:"commit"`
	// time is when the controller first saw the tip, and the new part of its history.
	Time metav1.Time `json:"time"`
}

// GoverningPlan is the plan in force for one Deployment.
type GoverningPlan struct {
	// deployment is the namespace and name of the Deployment, as namespace/name.
	Deployment string `json:"deployment"`
	// name is the name of the BatchRelease that governs it.
	Name string `json:"name"`
	// terms are the plan's strategy and the Deployment's strategy and minReadySeconds, as
	// canonical JSON. Their SHA-256 is the digest in spec.plan of a BatchApproval.
	// +kubebuilder:validation:MaxLength=65536
	Terms string `json:"terms"`
	// since is the tip of the branch with which the terms took effect. An approval of
	// other terms counts only if its commit is not in the history of since.
	// +kubebuilder:validation:MaxLength=64
	// +optional
	Since string `json:"since,omitempty"`
	// tip is the tip of the branch at that time, where spec.ref pins another commit. It
	// then replaces since in that rule.
	// +kubebuilder:validation:MaxLength=64
	// +optional
	Tip string `json:"tip,omitempty"`
}

// UsedPlanApproval names an approval of a plan.
type UsedPlanApproval struct {
	// plan is the approved digest.
	Plan string `json:"plan"`
	// commit is the commit with the approval.
	Commit string `json:"commit"`
	// payload is the object name that the commit would have without its signature.
	Payload string `json:"payload"`
	// time is the committer's date of the commit.
	// +optional
	Time *metav1.Time `json:"time,omitempty"`
}

// EndedRelease names a release that has ended.
type EndedRelease struct {
	// deployment is the namespace and name of the Deployment, as namespace/name.
	Deployment string `json:"deployment"`
	// commit is the commit of the release.
	Commit string `json:"commit"`
	// approved is true if an approval has opened a gate of the release. Such a release is
	// the last to be removed from a full list.
	// +optional
	Approved bool `json:"approved,omitempty"`
}

// HasEnded reports whether the status has the release of a Deployment, written as
// namespace/name, from a commit among those that have ended.
func (s *GitSourceStatus) HasEnded(deployment, commit string) bool {
	return slices.ContainsFunc(s.EndedReleases, func(r EndedRelease) bool { return r.Deployment == deployment && r.Commit == commit })
}

// Inventory is the list of the objects that a GitSource applied.
type Inventory struct {
	// entries are sorted by id.
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

// KeptObject is an object that left the branch and is still in use, or kept by finalizers.
type KeptObject struct {
	// id is the id in the inventory.
	ID string `json:"id"`
	// usedBy is the user of the object, such as ReplicaSet shop/web-5c66667f6, or the
	// finalizers that keep it.
	UsedBy string `json:"usedBy"`
}
