// Package takeover says what a plan takes over from a BatchRelease that is in the cluster.
//
// A user may have made a BatchRelease under the name that Git gives to a plan later. The plan
// keeps nothing of it that only Git or the controller says ([Disinherited], [Unclaimed]). A
// plan that gets another name in Git goes on with the release of the one that it replaces. A
// [Successor] hands over the status and the records of revisions.
//
// [FailedReleases] finds what a BatchRelease that is gone has tried, and that failed.
//
// The package decides and writes for these cases alone. Package apply says when.
package takeover
