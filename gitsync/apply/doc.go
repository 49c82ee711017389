// Package apply brings the objects of a commit into the cluster, or says why not.
//
// An [Observer] reads the cluster's side: what is there, which source applies it, which plan
// governs a Deployment, and what an autoscaler sizes. So it makes a [Target] of each object,
// whose [Mode] says how the object is applied. An [Applier] tries the target with the API
// server ([Applier.DryRun]), and writes it ([Applier.Apply]). The result is a [Change].
//
// Package stage does so for all targets of a commit, in the order of application. A [Takeover]
// lets a plan take the place of a BatchRelease that a user has made; package takeover has what a
// plan may take over. [Target.Drift] names what other managers had changed.
//
// Each step takes a GitSource and clients, and returns a result. It writes no status, and
// hands its events to the caller. The reconciler, a preview and a probe of another source's
// objects use the steps in the order that they need.
//
// # Libraries
//
// The package does without ssa.ApplyAll of fluxcd/pkg, which deletes objects in its dry-run
// phase.
package apply
