package v1alpha1

// Reasons of a BatchRelease's conditions and events, in addition to AnotherPlan and
// WaitingForReview, which a GitSource has, too. Each is explained in docs/reasons.md.
const (
	ReasonReleaseCompleted         = "ReleaseCompleted"
	ReasonReleaseStarted           = "ReleaseStarted"
	ReasonReleaseSuperseded        = "ReleaseSuperseded"
	ReasonReleasePaused            = "ReleasePaused"
	ReasonTakingHold               = "TakingHold"
	ReasonHeld                     = "Held"
	ReasonHandedBack               = "HandedBack"
	ReasonRecordsLost              = "RecordsLost"
	ReasonWaitingForSource         = "WaitingForSource"
	ReasonWriteRefused             = "WriteRefused"
	ReasonRequestFailed            = "RequestFailed"
	ReasonTemplateRefused          = "TemplateRefused"
	ReasonNotHeld                  = "NotHeld"
	ReasonUpgrading                = "Upgrading"
	ReasonWaitingForApproval       = "WaitingForApproval"
	ReasonWaitingForPause          = "WaitingForPause"
	ReasonStepApproved             = "StepApproved"
	ReasonPauseElapsed             = "PauseElapsed"
	ReasonWaitingForAnalysis       = "WaitingForAnalysis"
	ReasonAnalysisPassed           = "AnalysisPassed"
	ReasonAnalysisFailed           = "AnalysisFailed"
	ReasonAnalysisUnknown          = "AnalysisUnknown"
	ReasonAnalysisOverridden       = "AnalysisOverridden"
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

// Types of the conditions of both kinds. A GitSource always has all of them but Held. A
// BatchRelease has no InSync. Positive: Ready and InSync. The others say what is unusual.
const (
	// ConditionReady of a GitSource is True while the last commit seen is applied whole.
	ConditionReady = "Ready"
	// ConditionReconciling is True only while there is progress to wait for (kstatus).
	ConditionReconciling = "Reconciling"
	// ConditionHeld is True while the controller keeps the Deployment from rolling out.
	ConditionHeld = "Held"
	// ConditionStalled is True only while a person must change something (kstatus).
	ConditionStalled = "Stalled"
	// ConditionInSync is False, with the reason, while the cluster and the branch differ.
	ConditionInSync = "InSync"
)
