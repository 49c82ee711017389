package engine

// Reasons of conditions and events. Each is explained in docs/reasons.md.
const (
	ReasonReleaseCompleted         = "ReleaseCompleted"
	ReasonReleaseStarted           = "ReleaseStarted"
	ReasonReleaseSuperseded        = "ReleaseSuperseded"
	ReasonReleasePaused            = "ReleasePaused"
	ReasonTakingHold               = "TakingHold"
	ReasonHeld                     = "Held"
	ReasonHandedBack               = "HandedBack"
	ReasonRecordChanged            = "RecordChanged"
	ReasonRecordsLost              = "RecordsLost"
	ReasonWriteRefused             = "WriteRefused"
	ReasonRequestFailed            = "RequestFailed"
	ReasonAnotherPlan              = "AnotherPlan"
	ReasonTemplateRefused          = "TemplateRefused"
	ReasonNotHeld                  = "NotHeld"
	ReasonUpgrading                = "Upgrading"
	ReasonWaitingForApproval       = "WaitingForApproval"
	ReasonWaitingForPause          = "WaitingForPause"
	ReasonWaitingForReview         = "WaitingForReview"
	ReasonStepApproved             = "StepApproved"
	ReasonPauseElapsed             = "PauseElapsed"
	ReasonApprovalIgnored          = "ApprovalIgnored"
	ReasonApprovalRefused          = "ApprovalRefused"
	ReasonHandingBack              = "HandingBack"
	ReasonRollingBack              = "RollingBack"
	ReasonRolledBack               = "RolledBack"
	ReasonRollbackImpossible       = "RollbackImpossible"
	ReasonProgressDeadlineExceeded = "ProgressDeadlineExceeded"
	ReasonScaledToZero             = "ScaledToZero"
	ReasonDeploymentNotFound       = "DeploymentNotFound"
	ReasonHandBackRefused          = "HandBackRefused"
	ReasonNativeRollout            = "NativeRollout"
	ReasonPodsLost                 = "PodsLost"
	ReasonPodsUnavailable          = "PodsUnavailable"
	ReasonTemplateMissing          = "TemplateMissing"
	ReasonInvalidPlan              = "InvalidPlan"
	ReasonUnsupportedStrategy      = "UnsupportedStrategy"
	ReasonDriftCorrected           = "DriftCorrected"
	ReasonPlanChanged              = "PlanChanged"
	ReasonScalingReplicaSet        = "ScalingReplicaSet"
)

// Types of the conditions of a BatchRelease. Positive: Ready. The others say
// what is unusual: Reconciling, Held, Stalled.
const (
	ConditionReady       = "Ready"
	ConditionReconciling = "Reconciling"
	ConditionHeld        = "Held"
	ConditionStalled     = "Stalled"
)
