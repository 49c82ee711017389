package v1alpha1

import (
	"slices"

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

	// spec is the plan, and the template to release.
	// +required
	Spec BatchReleaseSpec `json:"spec"`
	// status is the observed state of the release.
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

// BatchReleaseSpec is the plan for one Deployment, and the template to release.
type BatchReleaseSpec struct {
	// workloadRef names the Deployment, in the same namespace. It never changes:
	// another Deployment has another BatchRelease.
	// +kubebuilder:validation:XValidation:rule="self == oldSelf",message="is immutable; a plan for another Deployment is another BatchRelease"
	// +required
	WorkloadRef WorkloadReference `json:"workloadRef"`

	// paused freezes the release: no step begins, no gate opens, no deadline runs. The
	// sizes still follow spec.replicas of the Deployment.
	// +optional
	Paused bool `json:"paused,omitempty"`

	// strategy is the plan: steps, deadline, and what to do on failure.
	// +required
	Strategy BatchStrategy `json:"strategy"`

	// template is the pod template to release. The GitSource sets it. Without a GitSource
	// the user sets it. The plan file in Git must not have it.
	// +kubebuilder:pruning:PreserveUnknownFields
	// +kubebuilder:validation:Schemaless
	// +kubebuilder:validation:Type=object
	// +structType=atomic
	// +optional
	Template *corev1.PodTemplateSpec `json:"template,omitempty"`

	// deploymentStrategy is the strategy of the Deployment's manifest. Its maxSurge and
	// maxUnavailable bound every step, and hand-back restores it. The GitSource sets it.
	// Default: the strategy of the Deployment when the hold began.
	// +structType=atomic
	// +optional
	DeploymentStrategy *appsv1.DeploymentStrategy `json:"deploymentStrategy,omitempty"`

	// commit is the commit of the template: the first one that renders it. The GitSource
	// sets it. It is empty, or at least seven hexadecimal digits of a commit.
	// +kubebuilder:validation:MaxLength=64
	// +kubebuilder:validation:Pattern=`^([0-9a-f]{7,64})?$`
	// +optional
	Commit string `json:"commit,omitempty"`

	// approvalsSince is the state of the branch before the release was first seen. An
	// approval in Git counts only if its commit is newer. The GitSource sets it.
	// +optional
	ApprovalsSince *ApprovalsSince `json:"approvalsSince,omitempty"`

	// approval is the approval that counts. The GitSource sets it from a BatchApproval.
	// +optional
	Approval *Approval `json:"approval,omitempty"`

	// reviewApprovals requires a review of approvals that are given in the cluster. Such
	// an approval opens no gate and is recorded in status.requestedApproval. It counts
	// once it is in Git. The GitSource sets the field.
	// +optional
	ReviewApprovals bool `json:"reviewApprovals,omitempty"`

	// requireSignedApprovals refuses approvals that are given in the cluster. They would
	// bypass the signatures that spec.approvals.signers of the GitSource requires. The
	// GitSource sets the field.
	// +optional
	RequireSignedApprovals bool `json:"requireSignedApprovals,omitempty"`

	// serviceAccountName is the ServiceAccount, in the same namespace, that writes the
	// Deployment and its ReplicaSets. Default: the account of --default-service-account,
	// and without that flag the controller's own. The GitSource sets the field.
	// +kubebuilder:validation:MaxLength=253
	// +optional
	ServiceAccountName string `json:"serviceAccountName,omitempty"`
}

// WorkloadReference names the workload that a BatchRelease governs.
type WorkloadReference struct {
	// apiVersion is the API version of the workload.
	// +kubebuilder:validation:Enum=apps/v1
	// +kubebuilder:default=apps/v1
	// +optional
	APIVersion string `json:"apiVersion,omitempty"`
	// kind is the kind of the workload.
	// +kubebuilder:validation:Enum=Deployment
	// +kubebuilder:default=Deployment
	// +optional
	Kind string `json:"kind,omitempty"`
	// name is the name of the workload.
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=253
	// +required
	Name string `json:"name"`
}

// FailurePolicy is the reaction to a step that misses its deadline.
//
// +kubebuilder:validation:Enum=Hold;Rollback
type FailurePolicy string

const (
	// FailureHold stops the release.
	FailureHold FailurePolicy = "Hold"
	// FailureRollback returns to the stable revision.
	FailureRollback FailurePolicy = "Rollback"
)

// DefaultProgressDeadlineSeconds is the deadline of a step whose plan names none.
const DefaultProgressDeadlineSeconds int32 = 600

// BatchStrategy is how a Deployment is released.
type BatchStrategy struct {
	// steps are taken in this order. They may stay or go up, and the last one is 100%.
	// +kubebuilder:validation:MinItems=1
	// +kubebuilder:validation:MaxItems=30
	// +kubebuilder:validation:XValidation:rule="self[self.size()-1].replicas == '100%'",message="the last step must be 100%"
	// +kubebuilder:validation:XValidation:rule="!has(self[self.size()-1].pause)",message="the last step has no gate: pause is not allowed there"
	// +listType=atomic
	// +required
	Steps []Step `json:"steps"`

	// progressDeadlineSeconds is the time a step may take without an increase in
	// available pods. After that time the step has failed.
	// +kubebuilder:validation:Minimum=1
	// +kubebuilder:default=600
	// +optional
	ProgressDeadlineSeconds *int32 `json:"progressDeadlineSeconds,omitempty"`

	// onFailure is the reaction to a step that misses its deadline. Hold stops the
	// release. Rollback returns to the stable revision.
	// +kubebuilder:default=Hold
	// +optional
	OnFailure FailurePolicy `json:"onFailure,omitempty"`

	// rollback has the steps of a rollback to the stable revision.
	// +optional
	Rollback *RollbackStrategy `json:"rollback,omitempty"`

	// analysis has the metrics that gates depend on.
	// +optional
	Analysis *Analysis `json:"analysis,omitempty"`
}

// Step is one entry of the plan: a number of pods of the update revision, then a gate.
//
// +kubebuilder:validation:XValidation:rule="!(has(self.pause) && has(self.analysis))",message="pause and analysis exclude each other; an analysis has a duration"
type Step struct {
	// replicas is the number of pods of the update revision when the step is done. It is
	// a number, or a percentage of spec.replicas, rounded up.
	// +kubebuilder:validation:XIntOrString
	// +kubebuilder:validation:Pattern=`^([1-9][0-9]?|100)%$`
	// +kubebuilder:validation:XValidation:rule="type(self) == string || self > 0",message="must be a number from 1, or a percentage from 1% to 100%"
	// +required
	Replicas intstr.IntOrString `json:"replicas"`

	// pause opens the gate after a time. Without it the step waits for an approval.
	// +optional
	Pause *Pause `json:"pause,omitempty"`

	// analysis opens the gate when the metrics pass. At the last step it comes before the
	// Deployment is handed back.
	// +optional
	Analysis *StepAnalysis `json:"analysis,omitempty"`
}

// Pause is a gate that opens after a time.
type Pause struct {
	// duration is counted from when the step's pods are available.
	// +kubebuilder:validation:XValidation:rule="duration(self) >= duration('0s')",message="must not be negative"
	// +required
	Duration metav1.Duration `json:"duration"`
}

// RollbackStrategy has the steps of a rollback. Their gates open as soon as the step's
// pods are available.
//
// +structType=atomic
type RollbackStrategy struct {
	// steps are taken in this order.
	// +kubebuilder:validation:MinItems=1
	// +kubebuilder:validation:MaxItems=30
	// +kubebuilder:validation:XValidation:rule="self[self.size()-1].replicas == '100%'",message="the last step must be 100%"
	// +listType=atomic
	// +required
	Steps []RollbackStep `json:"steps"`
}

// RollbackStep is one entry of a rollback.
type RollbackStep struct {
	// replicas is the number of pods of the stable revision when the step is done. It is
	// a number, or a percentage of spec.replicas, rounded up.
	// +kubebuilder:validation:XIntOrString
	// +kubebuilder:validation:Pattern=`^([1-9][0-9]?|100)%$`
	// +kubebuilder:validation:XValidation:rule="type(self) == string || self > 0",message="must be a number from 1, or a percentage from 1% to 100%"
	// +required
	Replicas intstr.IntOrString `json:"replicas"`
}

// ApprovalsSince is the state of the branch before a release was first seen.
//
// +structType=atomic
type ApprovalsSince struct {
	// appliedCommit is the tip that was applied before the release was first seen.
	// An approval does not count if its commit is in the history of this one. Empty
	// where nothing was applied before.
	// +kubebuilder:validation:MaxLength=64
	// +optional
	AppliedCommit string `json:"appliedCommit,omitempty"`
	// observedCommit is the tip of the branch when the release was first seen. It
	// replaces appliedCommit where that is empty or has left the repository.
	// +kubebuilder:validation:MaxLength=64
	// +required
	ObservedCommit string `json:"observedCommit"`
	// releasedCommit is the commit of the release that had completed last when this one
	// was first seen. It is empty where that is not known. With
	// spec.approvals.distinctAuthor of the GitSource, the approver must have written
	// nothing of the difference to it.
	// +kubebuilder:validation:MaxLength=64
	// +optional
	ReleasedCommit string `json:"releasedCommit,omitempty"`
	// forgottenUntil is status.forgottenUntil of the GitSource when the release was first
	// seen. An approval that was committed until then does not count. It may be of a release
	// that has ended and is not known any more.
	// +optional
	ForgottenUntil *metav1.Time `json:"forgottenUntil,omitempty"`
}

// Approval lets the steps up to and including one go on, for one release.
//
// +structType=atomic
type Approval struct {
	// revision is the approved revision.
	// +kubebuilder:validation:MaxLength=63
	// +required
	Revision string `json:"revision"`
	// commit is spec.commit of the release. It is empty where the release has none.
	// +kubebuilder:validation:MaxLength=64
	// +optional
	Commit string `json:"commit,omitempty"`
	// step is the last step whose gate may open, counted from 0.
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
	// firstSeen is when the controller first saw that commit on the branch. The GitSource
	// sets the field if approvals are signed. The signer's key was valid at that time.
	// +optional
	FirstSeen *metav1.Time `json:"firstSeen,omitempty"`
	// steps are the replicas of the plan's steps in the commit of the approval. The
	// approval opens a gate only while the plan has these steps, up to the one after the
	// gate. The GitSource sets the field. Default: the steps of the plan when the
	// controller first saw the approval.
	// +kubebuilder:validation:MaxItems=30
	// +listType=atomic
	// +optional
	Steps []intstr.IntOrString `json:"steps,omitempty"`
	// override lets the gate of this step open, and of no other one, although metrics do
	// not pass.
	// +optional
	Override *Override `json:"override,omitempty"`
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
	// StepBlocking: the step has had its pods available, and its gate is closed. If the
	// Deployment grows then, the state stays, and the reason is Upgrading until the step has
	// the pods of the new size.
	StepBlocking StepState = "Blocking"
	// StepCompleted: the step's gate has opened. Written to the status by a
	// person, it is an approval of the step.
	StepCompleted StepState = "Completed"
)

// BatchReleaseStatus is the observed state of a release.
type BatchReleaseStatus struct {
	// observedGeneration is the generation of the spec that this status is about.
	// +optional
	ObservedGeneration int64 `json:"observedGeneration,omitempty"`
	// phase is the summary: Initial, RollingUpdate, Finalizing, Completed.
	// +optional
	Phase ReleasePhase `json:"phase,omitempty"`
	// currentStepIndex is the index of the current step, from 0.
	// +optional
	CurrentStepIndex int32 `json:"currentStepIndex"`
	// currentStepState is the state of that step: Initial, Upgrade, Blocking, Completed.
	// +optional
	CurrentStepState StepState `json:"currentStepState,omitempty"`
	// currentStepReplicas is the replicas field of that step when the gate before it
	// opened. It shows whether the plan was edited since.
	// +optional
	CurrentStepReplicas *intstr.IntOrString `json:"currentStepReplicas,omitempty"`
	// openedReplicas bounds the update revision. It has the replicas of the step after
	// the last open gate, as they were when the gate opened. Before any gate has opened,
	// it has those of the first step. If a plan mixes numbers and percentages, it has
	// the largest of either kind up to that step. An edit of the plan does not change it.
	// +kubebuilder:validation:MaxItems=2
	// +listType=atomic
	// +optional
	OpenedReplicas []intstr.IntOrString `json:"openedReplicas,omitempty"`
	// beganFull is true while all pods have run the update revision since the
	// release began. Such a release opens no gate. Once other pods are there, it
	// goes through its gates from the first step.
	// +optional
	BeganFull bool `json:"beganFull,omitempty"`
	// steps are the replicas of the plan's steps for this status. An approval that is
	// written to the status is for these steps.
	// +kubebuilder:validation:MaxItems=30
	// +listType=atomic
	// +optional
	Steps []intstr.IntOrString `json:"steps,omitempty"`
	// currentStepTarget is the target of the current step when all of its pods were last
	// available, and 0 until then. The step returns to Upgrade when too few of them are
	// left.
	// +optional
	CurrentStepTarget int32 `json:"currentStepTarget,omitempty"`
	// currentStepLostSeconds is the total time in which the step has lacked pods that it
	// had before.
	// +optional
	CurrentStepLostSeconds int32 `json:"currentStepLostSeconds,omitempty"`
	// rollingBack is true during a rollback to the stable revision.
	// +optional
	RollingBack bool `json:"rollingBack,omitempty"`
	// stableRevision is the revision that ran before the release.
	// +optional
	StableRevision string `json:"stableRevision,omitempty"`
	// updateRevision is the revision that the release brings.
	// +optional
	UpdateRevision string `json:"updateRevision,omitempty"`
	// updateCommit is the commit of the release.
	// +optional
	UpdateCommit string `json:"updateCommit,omitempty"`
	// failedRevision is the revision that was rolled back. It is not tried again until
	// spec.template or spec.commit changes.
	// +optional
	FailedRevision string `json:"failedRevision,omitempty"`
	// failedCommit is the commit of failedRevision.
	// +optional
	FailedCommit string `json:"failedCommit,omitempty"`
	// updateTemplateDigest is the SHA-256 of spec.template when the release began. The
	// name of a revision may change with a hash collision or the version of the cluster.
	// The digest does not.
	// +kubebuilder:validation:MaxLength=64
	// +optional
	UpdateTemplateDigest string `json:"updateTemplateDigest,omitempty"`
	// failedTemplateDigest is the same digest of the revision that was rolled back.
	// +kubebuilder:validation:MaxLength=64
	// +optional
	FailedTemplateDigest string `json:"failedTemplateDigest,omitempty"`
	// failedMessage is the cause of the rollback.
	// +optional
	FailedMessage string `json:"failedMessage,omitempty"`
	// replicas is spec.replicas of the Deployment.
	// +optional
	Replicas int32 `json:"replicas"`
	// updatedReplicas is the number of pods of the update revision.
	// +optional
	UpdatedReplicas int32 `json:"updatedReplicas"`
	// updatedReadyReplicas is the number of those that are ready.
	// +optional
	UpdatedReadyReplicas int32 `json:"updatedReadyReplicas"`
	// updatedAvailableReplicas is the number of those that are available.
	// +optional
	UpdatedAvailableReplicas int32 `json:"updatedAvailableReplicas"`
	// reason is one word for the state of the release. It is the reason of the condition
	// Ready.
	// +optional
	Reason string `json:"reason,omitempty"`
	// message explains the reason in a sentence.
	// +optional
	Message string `json:"message,omitempty"`
	// reasonTime is when reason last changed.
	// +optional
	ReasonTime *metav1.Time `json:"reasonTime,omitempty"`
	// startTime is when the release began.
	// +optional
	StartTime *metav1.Time `json:"startTime,omitempty"`
	// stepStateTime is when currentStepState last changed. It is empty while a step that
	// an edit has raised waits at a gate before it.
	// +optional
	StepStateTime *metav1.Time `json:"stepStateTime,omitempty"`
	// progressTime is when the step began, or when its available pods last increased. The
	// deadline runs from it.
	// +optional
	ProgressTime *metav1.Time `json:"progressTime,omitempty"`
	// bestAvailableReplicas is the highest number of available update pods in this step.
	// +optional
	BestAvailableReplicas int32 `json:"bestAvailableReplicas,omitempty"`
	// lastUpdateTime is when this status was last written.
	// +optional
	LastUpdateTime *metav1.Time `json:"lastUpdateTime,omitempty"`
	// approvals are the open gates of the release under way.
	// +kubebuilder:validation:MaxItems=30
	// +listType=atomic
	// +optional
	Approvals []StepApproval `json:"approvals,omitempty"`
	// stepTimes has the times of the steps that are done, in the release under way.
	// +kubebuilder:validation:MaxItems=30
	// +listType=atomic
	// +optional
	StepTimes []StepTimes `json:"stepTimes,omitempty"`
	// approval is spec.approval as the controller first saw it.
	// +optional
	Approval *ObservedApproval `json:"approval,omitempty"`
	// requestedApproval is an approval of the current step in the cluster that does not
	// count yet. It needs a review, or the step's pods are not available.
	// +optional
	RequestedApproval *RequestedApproval `json:"requestedApproval,omitempty"`
	// analysis is what was measured.
	// +optional
	Analysis *AnalysisStatus `json:"analysis,omitempty"`
	// endedReleases lists releases that have ended, newest first. No approval opens a
	// gate of one of them again.
	// +kubebuilder:validation:MaxItems=256
	// +listType=atomic
	// +optional
	EndedReleases []ReleaseName `json:"endedReleases,omitempty"`
	// history has the last ten releases, newest first.
	// +kubebuilder:validation:MaxItems=10
	// +listType=atomic
	// +optional
	History []ReleaseRecord `json:"history,omitempty"`
	// conditions are Ready, Reconciling, Held and Stalled.
	// +listType=map
	// +listMapKey=type
	// +optional
	Conditions []metav1.Condition `json:"conditions,omitempty"`
}

// ApprovedByCluster is who opened a gate whose step was completed in the
// status.
const ApprovedByCluster = "cluster"

// StepApproval records who opened the gate of a step.
type StepApproval struct {
	// step is the step whose gate opened.
	Step int32 `json:"step"`
	// replicas is what the step had then. An edit of the plan may have given the number to
	// another step since. Earlier versions did not write it.
	// +kubebuilder:validation:XIntOrString
	// +optional
	Replicas *intstr.IntOrString `json:"replicas,omitempty"`
	// commit is the commit with the approval. It is empty where the approval was given in
	// the cluster.
	// +optional
	Commit string `json:"commit,omitempty"`
	// by is the author of that commit, or [ApprovedByCluster].
	// +optional
	By string `json:"by,omitempty"`
	// steps are the replicas of the plan's steps then, up to the one that the gate led to. The
	// approval is written back only to a plan with these steps. The field is empty if the
	// approval is in Git.
	// +kubebuilder:validation:MaxItems=30
	// +listType=atomic
	// +optional
	Steps []intstr.IntOrString `json:"steps,omitempty"`
	// time is when the gate opened.
	Time metav1.Time `json:"time"`
	// override names the metrics that did not count.
	// +kubebuilder:validation:MaxItems=12
	// +listType=atomic
	// +optional
	Override []string `json:"override,omitempty"`
	// reason is that of the override.
	// +optional
	Reason string `json:"reason,omitempty"`
}

// StepTimes has the times of a step.
type StepTimes struct {
	// step is the step.
	Step int32 `json:"step"`
	// availableTime is when its pods were available.
	AvailableTime metav1.Time `json:"availableTime"`
	// openTime is when its gate opened, or when an edit of the plan took the release from it.
	// It is empty where the release ended at the gate.
	// +optional
	OpenTime *metav1.Time `json:"openTime,omitempty"`
}

// ObservedApproval is an approval, and the steps that it is for.
type ObservedApproval struct {
	// +optional
	Approval `json:",inline"`
	// spent is true once the release that it is for has ended.
	// +optional
	Spent bool `json:"spent,omitempty"`
}

// ReleaseName names one release. A revision can come back by another commit.
type ReleaseName struct {
	// revision is the update revision of the release.
	Revision string `json:"revision"`
	// commit is the commit of the release.
	Commit string `json:"commit"`
}

// RequestedApproval is an approval that does not count yet.
type RequestedApproval struct {
	// step is the approved step.
	Step int32 `json:"step"`
	// time is when the controller saw the approval.
	Time metav1.Time `json:"time"`
}

// ReleaseOutcome is the way in which a release ended.
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
	// revision is the update revision of the release.
	Revision string `json:"revision"`
	// commit is the commit of the release.
	// +optional
	Commit string `json:"commit,omitempty"`
	// outcome is Completed, RolledBack or Superseded.
	Outcome ReleaseOutcome `json:"outcome"`
	// rollback is true for a release that brought back the revision that was stable
	// before, by the rollback steps and without gates.
	// +optional
	Rollback bool `json:"rollback,omitempty"`
	// startTime is when the release began.
	// +optional
	StartTime *metav1.Time `json:"startTime,omitempty"`
	// endTime is when the release ended.
	EndTime metav1.Time `json:"endTime"`
	// approvals are the gates that opened, with user and commit.
	// +listType=atomic
	// +optional
	Approvals []StepApproval `json:"approvals,omitempty"`
	// stepTimes has the times of the steps that had their pods.
	// +kubebuilder:validation:MaxItems=30
	// +listType=atomic
	// +optional
	StepTimes []StepTimes `json:"stepTimes,omitempty"`
	// analysis has the last verdict of each metric.
	// +kubebuilder:validation:MaxItems=24
	// +listType=atomic
	// +optional
	Analysis []MetricRecord `json:"analysis,omitempty"`
}

// HasEndedBefore reports whether the release under way has ended once already, so that no
// approval in Git opens its gates. A commit has one template; a revision's name may change.
func (s *BatchReleaseStatus) HasEndedBefore() bool {
	return slices.ContainsFunc(s.EndedReleases, func(ended ReleaseName) bool { return ended.Commit == s.UpdateCommit })
}

// FailedCause returns the cause of the rollback as the end of a sentence, if it is known.
func (s *BatchReleaseStatus) FailedCause() string {
	if s.FailedMessage == "" {
		return ""
	}
	return ": " + s.FailedMessage
}
