package gitsync

// Reasons of conditions and events, in addition to those of package plan.
const (
	// Reading the repository.
	reasonRepositoryNotFound      = "RepositoryNotFound"
	reasonAuthenticationFailed    = "AuthenticationFailed"
	reasonHostKeyMismatch         = "HostKeyMismatch"
	reasonTLSFailed               = "TLSFailed"
	reasonTimeout                 = "Timeout"
	reasonHostUnreachable         = "HostUnreachable"
	reasonBranchNotFound          = "BranchNotFound"
	reasonEmptyRepository         = "EmptyRepository"
	reasonUnsupportedObjectFormat = "UnsupportedObjectFormat"
	reasonNotGit                  = "NotGit"
	reasonRateLimited             = "RateLimited"
	reasonFetchFailed             = "FetchFailed"
	reasonSecretNotFound          = "SecretNotFound"
	reasonInvalidSecret           = "InvalidSecret"
	reasonInvalidURL              = "InvalidURL"
	reasonStorageFailed           = "StorageFailed"
	reasonRendererFailed          = "RendererFailed" // as package sandbox has it

	// Signatures.
	reasonCommitNotFound    = "CommitNotFound"
	reasonInvalidSemVer     = "InvalidSemVer"
	reasonTagNotFound       = "TagNotFound"
	reasonTagNotVerified    = "TagNotVerified"
	reasonCommitNotVerified = "CommitNotVerified"

	// Applying.
	reasonNotSupported            = "NotSupported"
	reasonNothingToApply          = "NothingToApply"
	reasonUnknownKind             = "UnknownKind"
	reasonOwnedByOther            = "OwnedByOther"
	reasonSecretNotAllowed        = "SecretNotAllowed"
	reasonDryRunFailed            = "DryRunFailed"
	reasonStableRevisionUnusable  = "StableRevisionUnusable"
	reasonApplyFailed             = "ApplyFailed"
	reasonPruneFailed             = "PruneFailed"
	reasonPruneRefused            = "PruneRefused"
	reasonNotSynced               = "NotSynced"
	reasonOutdatedCRD             = "OutdatedCRD"
	reasonForbidden               = "Forbidden"
	reasonDependencyCycle         = "DependencyCycle"
	reasonCrossNamespaceReference = "CrossNamespaceReference"

	// How a look went.
	reasonApplied             = "Applied"
	reasonApplying            = "Applying"
	reasonWaitingForHandBack  = "WaitingForHandBack"
	reasonWaitingForReadiness = "WaitingForReadiness"
	reasonHealthCheckFailed   = "HealthCheckFailed"
	reasonDependencyNotReady  = "DependencyNotReady"
	reasonInSync              = "InSync"
	reasonLeftAlone           = "LeftAlone"
	reasonSuspended           = "Suspended"
	reasonIdle                = "Idle"
	reasonProgressing         = "Progressing"
	reasonPruning             = "Pruning"

	// Writing back: on InSync, and as events.
	reasonApprovedInCluster   = "ApprovedInCluster"
	reasonRolledBackInCluster = "RolledBackInCluster"
	reasonWaitingForReview    = "WaitingForReview"
	reasonWriteBackConflict   = "WriteBackConflict"
	reasonPushRejected        = "PushRejected"
	reasonWriteBackFailed     = "WriteBackFailed"

	// Events only.
	reasonWrittenBack   = "WrittenBack"
	reasonForcePushed   = "ForcePushed"
	reasonPruned        = "Pruned"
	reasonOrphaned      = "Orphaned"
	reasonHandedOver    = "HandedOver"
	reasonRecreated     = "Recreated"
	reasonDriftUndone   = "DriftUndone"
	reasonFieldConflict = "FieldConflict"
)
