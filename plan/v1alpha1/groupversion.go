// Package v1alpha1 holds the API types of group tranche.dev. GitSource and BatchRelease
// live in the cluster. BatchApproval is a file in Git and never an object in the cluster.
//
// +kubebuilder:object:generate=true
// +groupName=tranche.dev
package v1alpha1

import (
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
)

// Group is the API group of all kinds in this package.
const Group = "tranche.dev"

// GroupVersion is the group and version of all kinds in this package.
var GroupVersion = schema.GroupVersion{Group: Group, Version: "v1alpha1"}

// AddToScheme makes the kinds that live in the cluster known to a scheme.
func AddToScheme(s *runtime.Scheme) error {
	s.AddKnownTypes(GroupVersion, &GitSource{}, &GitSourceList{}, &BatchRelease{}, &BatchReleaseList{})
	metav1.AddToGroupVersion(s, GroupVersion)
	return nil
}

// FieldWorkload is the field of BatchReleases with the name of their Deployment. The API
// server selects by it, and the cache has an index: kubectl get br --field-selector
// spec.workloadRef.name=web.
const FieldWorkload = "spec.workloadRef.name"

// Labels and annotations. Nothing of ours stays on a Deployment or ReplicaSet
// after hand-back.
const (
	// LabelHeld is on a Deployment for the length of a hold. A label, since the native
	// controller copies annotations to ReplicaSets and never takes them away again (H13).
	// Under the hold it is on its ReplicaSets with pods, too: a policy knows them by it. It leaves
	// them before it leaves the Deployment.
	LabelHeld = Group + "/held"
	// LabelDrift on a namespace says what becomes of changes that other users make to
	// template, strategy and paused of a held Deployment. With [DriftCorrect] the API
	// server accepts them, and the controller undoes them. Without it config/policy
	// refuses them.
	LabelDrift   = Group + "/drift"
	DriftCorrect = "correct"
	// ExtraController is the user extra by which config/policy knows the
	// controller where it writes as a tenant's account.
	ExtraController = Group + "/controller"

	// LabelSource and LabelSourceNamespace are the name and namespace of the GitSource,
	// on every object that it applies except Deployments.
	LabelSource          = Group + "/source"
	LabelSourceNamespace = Group + "/source-namespace"

	// AnnotationReconcile, on a GitSource, asks for a sync now when its value changes.
	// On an applied object, with the value "disabled", the controller leaves the object
	// as it is.
	AnnotationReconcile = Group + "/reconcile"

	// AnnotationPush is set by a replica of the controller that received the webhook of a
	// push. It is not the replica that syncs the GitSource.
	AnnotationPush = Group + "/push"

	// AnnotationReconcileDisabled is the value of AnnotationReconcile that
	// makes gitsync leave an object as it is.
	AnnotationReconcileDisabled = "disabled"

	// AnnotationConfirmPrune, on a GitSource, lets one commit prune most of
	// what was applied: its value is that commit, or at least seven
	// characters of it. For an edit of the spec, a dot and the generation of
	// the GitSource follow.
	AnnotationConfirmPrune = Group + "/confirm-prune"
	// AnnotationPrune with the value "disabled" on an applied object keeps
	// it in the cluster when it leaves the branch.
	AnnotationPrune = Group + "/prune"

	// AnnotationForce with the value "true" on an applied object lets the controller
	// delete and create it again if a field that changed is immutable.
	AnnotationForce = Group + "/force"

	// AnnotationCommitAuthor, on a BatchRelease, is the author of spec.commit, and
	// AnnotationCommitURL the page of the forge that shows it. Set from Git, for
	// notifications.
	AnnotationCommitAuthor = Group + "/commit-author"
	AnnotationCommitURL    = Group + "/commit-url"
	// AnnotationRejected, on a BatchRelease, is the reason of tranche reject, where
	// spec.commit is its commit. Set from Git.
	AnnotationRejected = Group + "/rejected"
	// AnnotationReturns, on a BatchRelease that is being deleted, is the commit by which the
	// branch has it again. Its Deployment stays held until gitsync creates it again. Set
	// and removed by gitsync.
	AnnotationReturns = Group + "/returns"
	// AnnotationRollback with the value "true" on a BatchRelease asks for a
	// rollback of the release under way.
	AnnotationRollback = Group + "/rollback"
)

// HasHeld reports whether labels have LabelHeld, with any value. The admission policies test
// the key, too.
func HasHeld(labels map[string]string) bool {
	_, held := labels[LabelHeld]
	return held
}

// Field managers, one per concern: each field of a governed Deployment has one
// of the two as its writer.
const (
	// ManagerGitSync writes what a commit says.
	ManagerGitSync = "tranche-gitsync"
	// ManagerRollout writes template, strategy and paused of a governed
	// Deployment, and the sizes of its ReplicaSets.
	ManagerRollout = "tranche-rollout"
)
