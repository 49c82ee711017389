// Package changeset says what a commit changes in the cluster.
//
// [Prepare] reads the cluster's side of a rendered commit. The result has a target for each
// object and each BatchRelease, and the inventory that is then right. It also has the other
// sources that have an object now. Nothing is written.
//
//	changeset.go          the targets of a commit, and its inventory
//	releases.go           its BatchReleases
//	leftalone.go          plans of Deployments that are left alone
//	conflictingplans.go   plans that do not govern, since another one does
package changeset
