package v1alpha1

import (
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/intstr"
)

// BatchRelease is the plan for one Deployment, and the state of its release.
//
// +kubebuilder:object:root=true
// +kubebuilder:subresource:status
// +kubebuilder:resource:shortName=br,categories=tranche
// +kubebuilder:selectablefield:JSONPath=`.spec.workloadRef.name`
// +kubebuilder:printcolumn:name="Phase",type=string,JSONPath=`.status.phase`
// +kubebuilder:printcolumn:name="Step",type=integer,JSONPath=`.status.currentStepIndex`
// +kubebuilder:printcolumn:name="State",type=string,JSONPath=`.status.currentStepState`
// +kubebuilder:printcolumn:name="Updated",type=integer,JSONPath=`.status.updatedReplicas`
// +kubebuilder:printcolumn:name="Reason",type=string,JSONPath=`.status.reason`
// +kubebuilder:printcolumn:name="Age",type=date,JSONPath=`.metadata.creationTimestamp`
// +kubebuilder:printcolumn:name="Message",type=string,priority=1,JSONPath=`.status.message`
type BatchRelease struct {
	metav1.TypeMeta   `json:",inline"`
	metav1.ObjectMeta `json:"metadata,omitempty"`

	// spec is the plan, and what is to be released by it.
	// +required
	Spec BatchReleaseSpec `json:"spec"`
	// status is where the release stands.
	// +optional
	Status BatchReleaseStatus `json:"status,omitempty"`
}

// BatchReleaseList is a list of BatchReleases.
//
// +kubebuilder:object:root=true
type BatchReleaseList struct {
	metav1.TypeMeta `json:",inline"`
	metav1.ListMeta `json:"metadata,omitempty"`
	Items           []BatchRelease `json:"items"`
}

// BatchReleaseSpec is the plan for one Deployment, and what is to be released.
type BatchReleaseSpec struct {
	// workloadRef names the Deployment, in the same namespace. It never changes:
	// another Deployment has another BatchRelease.
	// +kubebuilder:validation:XValidation:rule="self == oldSelf",message="is immutable; a plan for another Deployment is another BatchRelease"
	// +required
	WorkloadRef WorkloadReference `json:"workloadRef"`

	// paused freezes the release where it stands: no step begins, no gate
	// opens, no deadline runs. The sizes still follow spec.replicas of the
	// Deployment.
	// +optional
	Paused bool `json:"paused,omitempty"`

	// strategy is the plan: steps, deadline, and what to do on failure.
	// +required
	Strategy BatchStrategy `json:"strategy"`

	// template is the pod template to release. Set from Git; by hand where
	// no GitSource is used. In the plan file in Git it must be absent.
	// +kubebuilder:pruning:PreserveUnknownFields
	// +kubebuilder:validation:Schemaless
	// +kubebuilder:validation:Type=object
	// +structType=atomic
	// +optional
	Template *corev1.PodTemplateSpec `json:"template,omitempty"`

	// deploymentStrategy is the strategy of the Deployment's own manifest:
	// its maxSurge and maxUnavailable bound every step, and hand-back puts it
	// back. Set from Git; where it is absent, the one found when the hold
	// began is used.
	// +structType=atomic
	// +optional
	DeploymentStrategy *appsv1.DeploymentStrategy `json:"deploymentStrategy,omitempty"`

	// commit is the commit that the template comes from: the one that began
	// to render it. Set from Git.
	// +kubebuilder:validation:MaxLength=64
	// +optional
	Commit string `json:"commit,omitempty"`

	// approvalsSince is the branch before the release was first seen. An approval in
	// Git counts only if its commit came after that. Set from Git.
	// +optional
	ApprovalsSince *ApprovalsSince `json:"approvalsSince,omitempty"`

	// approval is the approval that counts. Set from Git's BatchApproval.
	// +optional
	Approval *Approval `json:"approval,omitempty"`

	// reviewApprovals lets an approval that is given in the cluster open no gate:
	// it is only noted, in status.requestedApproval, and counts once it has been
	// reviewed and is in Git. Set from the GitSource.
	// +optional
	ReviewApprovals bool `json:"reviewApprovals,omitempty"`

	// requireSignedApprovals makes an approval that is given in the cluster
	// count for nothing, since it would go round the signatures that the
	// GitSource demands in spec.approvals.signers. Filled from the GitSource.
	// +optional
	RequireSignedApprovals bool `json:"requireSignedApprovals,omitempty"`

	// serviceAccountName is the account, in the same namespace, as which the
	// Deployment and its ReplicaSets are written; empty: the controller's
	// own. Filled from the GitSource.
	// +kubebuilder:validation:MaxLength=253
	// +optional
	ServiceAccountName string `json:"serviceAccountName,omitempty"`
}

// WorkloadReference names the workload that a BatchRelease governs.
type WorkloadReference struct {
	// apiVersion of the workload.
	// +kubebuilder:validation:Enum=apps/v1
	// +kubebuilder:default=apps/v1
	// +optional
	APIVersion string `json:"apiVersion,omitempty"`
	// kind of the workload.
	// +kubebuilder:validation:Enum=Deployment
	// +kubebuilder:default=Deployment
	// +optional
	Kind string `json:"kind,omitempty"`
	// name of the workload.
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=253
	// +required
	Name string `json:"name"`
}

// FailurePolicy says what happens when a step misses its deadline.
//
// +kubebuilder:validation:Enum=Hold;Rollback
type FailurePolicy string

const (
	// FailureHold stops where the release stands, and says so.
	FailureHold FailurePolicy = "Hold"
	// FailureRollback returns to the stable revision.
	FailureRollback FailurePolicy = "Rollback"
)

// DefaultProgressDeadlineSeconds is the deadline of a step whose plan names none.
const DefaultProgressDeadlineSeconds int32 = 600

// BatchStrategy is how a Deployment is released.
type BatchStrategy struct {
	// steps in the order in which they are taken. They may stay or go up;
	// the last one is 100%.
	// +kubebuilder:validation:MinItems=1
	// +kubebuilder:validation:MaxItems=30
	// +kubebuilder:validation:XValidation:rule="self[self.size()-1].replicas == '100%'",message="the last step must be 100%"
	// +kubebuilder:validation:XValidation:rule="!has(self[self.size()-1].pause)",message="the last step has no gate: pause is not allowed there"
	// +listType=atomic
	// +required
	Steps []Step `json:"steps"`

	// progressDeadlineSeconds is how long a step may go without a new best
	// number of available pods before it has failed.
	// +kubebuilder:validation:Minimum=1
	// +kubebuilder:default=600
	// +optional
	ProgressDeadlineSeconds *int32 `json:"progressDeadlineSeconds,omitempty"`

	// onFailure says what happens when a step misses its deadline.
	// +kubebuilder:default=Hold
	// +optional
	OnFailure FailurePolicy `json:"onFailure,omitempty"`

	// rollback is how the Deployment goes back to its stable revision.
	// +optional
	Rollback *RollbackStrategy `json:"rollback,omitempty"`
}

// Step is one entry of the plan: how many pods of the update revision, then a gate.
type Step struct {
	// replicas is how many pods run the update revision when the step is
	// done: a number, or a percentage of spec.replicas, rounded up.
	// +kubebuilder:validation:XIntOrString
	// +kubebuilder:validation:Pattern=`^([1-9][0-9]?|100)%$`
	// +kubebuilder:validation:XValidation:rule="type(self) == string || self > 0",message="must be a number from 1, or a percentage from 1% to 100%"
	// +required
	Replicas intstr.IntOrString `json:"replicas"`

	// pause makes the gate open by itself after a time. Without it the step
	// waits for an approval.
	// +optional
	Pause *Pause `json:"pause,omitempty"`
}

// Pause is a gate that opens by itself.
type Pause struct {
	// duration from the moment the step's pods are available.
	// +kubebuilder:validation:XValidation:rule="duration(self) >= duration('0s')",message="must not be negative"
	// +required
	Duration metav1.Duration `json:"duration"`
}

// RollbackStrategy is how a Deployment goes back to its stable revision. Its
// gates open as soon as the step's pods are available.
type RollbackStrategy struct {
	// steps in the order in which they are taken.
	// +kubebuilder:validation:MinItems=1
	// +kubebuilder:validation:MaxItems=30
	// +kubebuilder:validation:XValidation:rule="self[self.size()-1].replicas == '100%'",message="the last step must be 100%"
	// +listType=atomic
	// +required
	Steps []RollbackStep `json:"steps"`
}

// RollbackStep is one entry of the way back.
type RollbackStep struct {
	// replicas is how many pods run the stable revision when the step is
	// done: a number, or a percentage of spec.replicas, rounded up.
	// +kubebuilder:validation:XIntOrString
	// +kubebuilder:validation:Pattern=`^([1-9][0-9]?|100)%$`
	// +kubebuilder:validation:XValidation:rule="type(self) == string || self > 0",message="must be a number from 1, or a percentage from 1% to 100%"
	// +required
	Replicas intstr.IntOrString `json:"replicas"`
}

// ApprovalsSince is the branch before a release was first seen.
type ApprovalsSince struct {
	// appliedCommit is the tip that was applied before the release was first seen.
	// An approval does not count if its commit is in the history of this one. Empty
	// where nothing was applied before.
	// +kubebuilder:validation:MaxLength=64
	// +optional
	AppliedCommit string `json:"appliedCommit,omitempty"`
	// observedCommit is the tip of the branch when the release was first seen. It
	// takes the place of appliedCommit where that is empty or has left the
	// repository.
	// +kubebuilder:validation:MaxLength=64
	// +required
	ObservedCommit string `json:"observedCommit"`
	// releasedCommit is the commit of the release that had completed last when this
	// one was first seen. With spec.approvals.distinctAuthor of the GitSource, an
	// approver has written nothing of the difference to it. Empty where it is not known.
	// +kubebuilder:validation:MaxLength=64
	// +optional
	ReleasedCommit string `json:"releasedCommit,omitempty"`
}

// Approval lets the steps up to and including one go on, for one release.
type Approval struct {
	// revision that is approved.
	// +kubebuilder:validation:MaxLength=63
	// +required
	Revision string `json:"revision"`
	// commit is the release's spec.commit; empty where the release has none.
	// +kubebuilder:validation:MaxLength=64
	// +optional
	Commit string `json:"commit,omitempty"`
	// step up to and including which the release may go on.
	// +kubebuilder:validation:Minimum=0
	// +required
	Step int32 `json:"step"`
	// approvedBy is the author of the commit that brought the approval.
	// +kubebuilder:validation:MaxLength=512
	// +optional
	ApprovedBy string `json:"approvedBy,omitempty"`
	// approvedIn is the commit that brought the approval.
	// +kubebuilder:validation:MaxLength=64
	// +optional
	ApprovedIn string `json:"approvedIn,omitempty"`
	// steps are the replicas of the plan's steps as the commit that brought the
	// approval renders them. The approval opens a gate only while the plan's
	// steps, up to the one that the gate leads to, are these. Set from Git;
	// where it is absent, the steps count that the plan had when the controller
	// first saw the approval.
	// +kubebuilder:validation:MaxItems=30
	// +listType=atomic
	// +optional
	Steps []intstr.IntOrString `json:"steps,omitempty"`
}

// ReleasePhase is the printed summary of a release. It is derived; nothing
// but the engine and the printer reads it.
//
// +kubebuilder:validation:Enum=Initial;RollingUpdate;Finalizing;Completed
type ReleasePhase string

// The phases, in their order.
const (
	PhaseInitial       ReleasePhase = "Initial"
	PhaseRollingUpdate ReleasePhase = "RollingUpdate"
	PhaseFinalizing    ReleasePhase = "Finalizing"
	PhaseCompleted     ReleasePhase = "Completed"
)

// StepState is where the current step stands.
//
// +kubebuilder:validation:Enum=Initial;Upgrade;Blocking;Completed
type StepState string

// The states, in their order.
const (
	// StepInitial: the release is about to take the hold.
	StepInitial StepState = "Initial"
	// StepUpgrade: the step's pods are on their way.
	StepUpgrade StepState = "Upgrade"
	// StepBlocking: the step's pods are available; its gate is closed.
	StepBlocking StepState = "Blocking"
	// StepCompleted: the step's gate has opened. Written to the status by a
	// person, it is an approval of the step.
	StepCompleted StepState = "Completed"
)

// BatchReleaseStatus is where a release stands.
type BatchReleaseStatus struct {
	// observedGeneration is the generation of the spec that this status is about.
	// +optional
	ObservedGeneration int64 `json:"observedGeneration,omitempty"`
	// phase is the summary: Initial, RollingUpdate, Finalizing, Completed.
	// +optional
	Phase ReleasePhase `json:"phase,omitempty"`
	// currentStepIndex is the step that the release is at, from 0.
	// +optional
	CurrentStepIndex int32 `json:"currentStepIndex"`
	// currentStepState is where that step stands: Initial, Upgrade, Blocking, Completed.
	// +optional
	CurrentStepState StepState `json:"currentStepState,omitempty"`
	// currentStepReplicas is the replicas field of that step as it was when
	// its predecessor's gate opened; a plan edited since is told by it.
	// +optional
	CurrentStepReplicas *intstr.IntOrString `json:"currentStepReplicas,omitempty"`
	// openedReplicas bounds the update revision: the replicas of the step that
	// the last gate of this release opened the way to, as they were then; those
	// of the first step before any gate has opened. Where a plan mixes numbers and
	// percentages these are the largest of either kind up to that step. An edit
	// of the plan does not change it.
	// +kubebuilder:validation:MaxItems=2
	// +listType=atomic
	// +optional
	OpenedReplicas []intstr.IntOrString `json:"openedReplicas,omitempty"`
	// beganFull is true while all pods have run the update revision since the
	// release began. Such a release opens no gate. Once other pods are there, it
	// goes through its gates from the first step.
	// +optional
	BeganFull bool `json:"beganFull,omitempty"`
	// steps are the replicas of the plan's steps that this status is about. An
	// approval that is written to the status is for these.
	// +kubebuilder:validation:MaxItems=30
	// +listType=atomic
	// +optional
	Steps []intstr.IntOrString `json:"steps,omitempty"`
	// currentStepTarget is how many pods of the update revision the current step
	// wanted when they were last all available; 0 until then. The step goes back
	// to Upgrade when too few of them are left.
	// +optional
	CurrentStepTarget int32 `json:"currentStepTarget,omitempty"`
	// currentStepLostSeconds is how long the step has lacked pods in all that it
	// had before, each time until they came back.
	// +optional
	CurrentStepLostSeconds int32 `json:"currentStepLostSeconds,omitempty"`
	// rollingBack is true while the way leads back to the stable revision.
	// +optional
	RollingBack bool `json:"rollingBack,omitempty"`
	// stableRevision is what ran before the release.
	// +optional
	StableRevision string `json:"stableRevision,omitempty"`
	// updateRevision is what the release brings.
	// +optional
	UpdateRevision string `json:"updateRevision,omitempty"`
	// updateCommit is the commit that the release comes from.
	// +optional
	UpdateCommit string `json:"updateCommit,omitempty"`
	// failedRevision is the revision that was rolled back; it is not tried
	// again until spec.template or spec.commit changes.
	// +optional
	FailedRevision string `json:"failedRevision,omitempty"`
	// failedCommit is the commit that failedRevision came from.
	// +optional
	FailedCommit string `json:"failedCommit,omitempty"`
	// updateTemplateDigest is the SHA-256 of spec.template as it was when the
	// release began. A revision's name may change, with a hash collision or with
	// the version of the cluster; this does not.
	// +kubebuilder:validation:MaxLength=64
	// +optional
	UpdateTemplateDigest string `json:"updateTemplateDigest,omitempty"`
	// failedTemplateDigest is the same of what was rolled back.
	// +kubebuilder:validation:MaxLength=64
	// +optional
	FailedTemplateDigest string `json:"failedTemplateDigest,omitempty"`
	// failedMessage says why it was rolled back.
	// +optional
	FailedMessage string `json:"failedMessage,omitempty"`
	// replicas is spec.replicas of the Deployment.
	// +optional
	Replicas int32 `json:"replicas"`
	// updatedReplicas is the size of the update revision.
	// +optional
	UpdatedReplicas int32 `json:"updatedReplicas"`
	// updatedReadyReplicas is how many of those are ready.
	// +optional
	UpdatedReadyReplicas int32 `json:"updatedReadyReplicas"`
	// updatedAvailableReplicas is how many of those are available.
	// +optional
	UpdatedAvailableReplicas int32 `json:"updatedAvailableReplicas"`
	// reason is one word for what the release waits for or does.
	// +optional
	Reason string `json:"reason,omitempty"`
	// message says the same in a sentence.
	// +optional
	Message string `json:"message,omitempty"`
	// reasonTime is when reason last changed.
	// +optional
	ReasonTime *metav1.Time `json:"reasonTime,omitempty"`
	// startTime is when the release began.
	// +optional
	StartTime *metav1.Time `json:"startTime,omitempty"`
	// stepStateTime is when currentStepState last changed. It is empty while the step
	// waits at a gate before it, because an edit has raised it.
	// +optional
	StepStateTime *metav1.Time `json:"stepStateTime,omitempty"`
	// progressTime is when the step began, or last had a new best number of
	// available pods: the deadline runs from it.
	// +optional
	ProgressTime *metav1.Time `json:"progressTime,omitempty"`
	// bestAvailableReplicas is the best number of available update pods that the step has had.
	// +optional
	BestAvailableReplicas int32 `json:"bestAvailableReplicas,omitempty"`
	// lastUpdateTime is when this status was last written.
	// +optional
	LastUpdateTime *metav1.Time `json:"lastUpdateTime,omitempty"`
	// approvals of the release under way.
	// +kubebuilder:validation:MaxItems=30
	// +listType=atomic
	// +optional
	Approvals []StepApproval `json:"approvals,omitempty"`
	// approval is spec.approval as the controller first saw it.
	// +optional
	Approval *ObservedApproval `json:"approval,omitempty"`
	// requestedApproval is the approval of the current step that was given in the
	// cluster and does not count yet: it is to be reviewed, or the step's pods
	// are not available.
	// +optional
	RequestedApproval *RequestedApproval `json:"requestedApproval,omitempty"`
	// endedReleases are the releases that have ended, newest first: no approval
	// opens a gate of one of them again.
	// +kubebuilder:validation:MaxItems=256
	// +listType=atomic
	// +optional
	EndedReleases []ReleaseName `json:"endedReleases,omitempty"`
	// history of the last ten releases, newest first.
	// +kubebuilder:validation:MaxItems=10
	// +listType=atomic
	// +optional
	History []ReleaseRecord `json:"history,omitempty"`
	// conditions: Ready, Reconciling, Held, Stalled.
	// +listType=map
	// +listMapKey=type
	// +optional
	Conditions []metav1.Condition `json:"conditions,omitempty"`
}

// ApprovedByCluster is who opened a gate whose step was completed in the
// status, by whoever may write that.
const ApprovedByCluster = "cluster"

// StepApproval says who opened the gate of a step.
type StepApproval struct {
	// step whose gate opened.
	Step int32 `json:"step"`
	// commit that brought the approval; empty where it was given in the cluster.
	// +optional
	Commit string `json:"commit,omitempty"`
	// by whom: the author of that commit, or [ApprovedByCluster].
	// +optional
	By string `json:"by,omitempty"`
	// time when the gate opened.
	Time metav1.Time `json:"time"`
}

// ObservedApproval is an approval, and the steps that it is for.
type ObservedApproval struct {
	// +optional
	Approval `json:",inline"`
	// spent is true once the release that it is for has ended.
	// +optional
	Spent bool `json:"spent,omitempty"`
}

// ReleaseName names one release: a revision can come back, by another commit.
type ReleaseName struct {
	// revision that the release brought.
	Revision string `json:"revision"`
	// commit that it came from.
	Commit string `json:"commit"`
}

// RequestedApproval is an approval that does not count yet.
type RequestedApproval struct {
	// step that was approved.
	Step int32 `json:"step"`
	// time when it was seen.
	Time metav1.Time `json:"time"`
}

// ReleaseOutcome is how a release ended.
//
// +kubebuilder:validation:Enum=Completed;RolledBack;Superseded
type ReleaseOutcome string

// The ways in which a release ends.
const (
	OutcomeCompleted  ReleaseOutcome = "Completed"
	OutcomeRolledBack ReleaseOutcome = "RolledBack"
	OutcomeSuperseded ReleaseOutcome = "Superseded"
)

// ReleaseRecord is one release that has ended.
type ReleaseRecord struct {
	// revision that the release brought.
	Revision string `json:"revision"`
	// commit that it came from.
	// +optional
	Commit string `json:"commit,omitempty"`
	// outcome: Completed, RolledBack or Superseded.
	Outcome ReleaseOutcome `json:"outcome"`
	// rollback is true of a release that brought back what was stable before, by the
	// steps of the rollback and with no gates.
	// +optional
	Rollback bool `json:"rollback,omitempty"`
	// startTime of the release.
	// +optional
	StartTime *metav1.Time `json:"startTime,omitempty"`
	// endTime of the release.
	EndTime metav1.Time `json:"endTime"`
	// approvals: who opened which gate, in which commit.
	// +listType=atomic
	// +optional
	Approvals []StepApproval `json:"approvals,omitempty"`
}
