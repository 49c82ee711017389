package plan

// Reasons of the problems that this package finds, the same in condition and
// event.
const (
	// ReasonRenderFailed: the folder or kustomization does not render.
	ReasonRenderFailed = "RenderFailed"
	// ReasonInvalidManifest: a manifest is not an object, or not one that
	// can be released.
	ReasonInvalidManifest = "InvalidManifest"
	// ReasonInvalidPlan: a BatchRelease cannot be carried out.
	ReasonInvalidPlan = "InvalidPlan"
	// ReasonDuplicateObject: one object has two manifests.
	ReasonDuplicateObject = "DuplicateObject"
	// ReasonApprovalIgnored: an approval counts for nothing. It does no harm.
	ReasonApprovalIgnored = "ApprovalIgnored"
	// ReasonPlanNotApproved: what decides about a Deployment's releases has changed,
	// and no signer has approved it.
	ReasonPlanNotApproved = "PlanNotApproved"
	// ReasonSubmoduleIgnored: there is a submodule in the folder, and what is
	// in it is left out.
	ReasonSubmoduleIgnored = "SubmoduleIgnored"
)
