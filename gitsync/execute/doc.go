// Package execute brings the cluster to what a commit says.
//
// [Commit] has the API server check all of a commit, and records the inventory in the status of
// the GitSource. Only then it applies the commit. At last it prunes what left the branch, and
// records that. [Refused] does what counts of a commit that is refused, and [Restore] brings
// again what was deleted of a commit that was applied. [Prune] deletes what left the branch.
package execute
