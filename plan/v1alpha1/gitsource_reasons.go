package v1alpha1

// Reasons of a GitSource's conditions and events, in addition to those of package plan.
const (
	// Reading the repository.
	ReasonRepositoryNotFound      = "RepositoryNotFound"
	ReasonAuthenticationFailed    = "AuthenticationFailed"
	ReasonHostKeyMismatch         = "HostKeyMismatch"
	ReasonTLSFailed               = "TLSFailed"
	ReasonTimeout                 = "Timeout"
	ReasonHostUnreachable         = "HostUnreachable"
	ReasonBranchNotFound          = "BranchNotFound"
	ReasonEmptyRepository         = "EmptyRepository"
	ReasonUnsupportedObjectFormat = "UnsupportedObjectFormat"
	ReasonNotGit                  = "NotGit"
	ReasonRateLimited             = "RateLimited"
	ReasonFetchFailed             = "FetchFailed"
	ReasonSecretNotFound          = "SecretNotFound"
	ReasonInvalidSecret           = "InvalidSecret"
	ReasonInvalidURL              = "InvalidURL"
	ReasonStorageFailed           = "StorageFailed"
	ReasonLimitExceeded           = "LimitExceeded"
	ReasonRendererFailed          = "RendererFailed" // as package sandbox has it

	// Signatures.
	ReasonCommitNotFound    = "CommitNotFound"
	ReasonInvalidSemVer     = "InvalidSemVer"
	ReasonTagNotFound       = "TagNotFound"
	ReasonTagNotVerified    = "TagNotVerified"
	ReasonCommitNotVerified = "CommitNotVerified"

	// Applying.
	ReasonNotSupported            = "NotSupported"
	ReasonNothingToApply          = "NothingToApply"
	ReasonUnknownKind             = "UnknownKind"
	ReasonOwnedByOther            = "OwnedByOther"
	ReasonSecretNotAllowed        = "SecretNotAllowed"
	ReasonMetricNotSigned         = "MetricNotSigned"
	ReasonDryRunFailed            = "DryRunFailed"
	ReasonStableRevisionUnusable  = "StableRevisionUnusable"
	ReasonApplyFailed             = "ApplyFailed"
	ReasonPruneFailed             = "PruneFailed"
	ReasonPruneRefused            = "PruneRefused"
	ReasonNotSynced               = "NotSynced"
	ReasonOutdatedCRD             = "OutdatedCRD"
	ReasonForbidden               = "Forbidden"
	ReasonDependencyCycle         = "DependencyCycle"
	ReasonCrossNamespaceReference = "CrossNamespaceReference"

	// How a sync went.
	ReasonApplied             = "Applied"
	ReasonApplying            = "Applying"
	ReasonWaitingForHandBack  = "WaitingForHandBack"
	ReasonHandBackOverdue     = "HandBackOverdue"
	ReasonWaitingForReadiness = "WaitingForReadiness"
	ReasonHealthCheckFailed   = "HealthCheckFailed"
	ReasonDependencyNotReady  = "DependencyNotReady"
	ReasonInSync              = "InSync"
	ReasonLeftAlone           = "LeftAlone"
	ReasonAnotherPlan         = "AnotherPlan"
	ReasonSuspended           = "Suspended"
	ReasonIdle                = "Idle"
	ReasonProgressing         = "Progressing"
	ReasonPruning             = "Pruning"

	// Writing back: on InSync, and as events.
	ReasonApprovedInCluster   = "ApprovedInCluster"
	ReasonRolledBackInCluster = "RolledBackInCluster"
	ReasonWaitingForReview    = "WaitingForReview"
	ReasonWriteBackConflict   = "WriteBackConflict"
	ReasonPushRejected        = "PushRejected"
	ReasonWriteBackFailed     = "WriteBackFailed"

	// Events only.
	ReasonWrittenBack   = "WrittenBack"
	ReasonForcePushed   = "ForcePushed"
	ReasonPruned        = "Pruned"
	ReasonOrphaned      = "Orphaned"
	ReasonHandedOver    = "HandedOver"
	ReasonRecreated     = "Recreated"
	ReasonDriftUndone   = "DriftUndone"
	ReasonFieldConflict = "FieldConflict"
)
