// Package gitsync keeps a branch and a path of a Git repository in the cluster.
//
// A GitSource names the branch. At each sync, gitsync asks the repository for the
// branch's tip and brings it into a mirror on disk. It renders the tip's tree without
// a worktree, and has the API server check all of it (server-side dry run). Only then
// it applies it: all of a commit or nothing of it, except for approvals and rollbacks.
// If the GitSource says so, gitsync prunes what left the branch.
//
// # The files, in the order in which a sync goes through them
//
//	reconciler.go   what starts a sync, when the next one is, what is written of it
//	turns           which source is synced when there are many
//	credentials     what the Secrets of a GitSource hold
//	repository      one bare repository on disk per URL; snapshots for readers
//	gitserver       one exchange with a Git server; its errors put in words
//	skipunaffected.go the short sync of a source that is up to date
//	pipeline.go     the steps of a sync of a commit, one after the other
//	source.go       the inputs of the steps
//	fetch.go        the branch as the server has it
//	commitrange     the commits between two, and what they leave as it is
//	dependencies    the sources that a commit waits for
//	maintain.go     what is done for what is applied while a commit waits
//	refusal.go      what is done all the same where a commit is refused
//	gittree         the tree of a commit as a file system
//	desired         what a commit says: objects, releases, approvals that count
//	rendering       where a sync renders, and how it fetches remote bases
//	terms           what of a commit counts before a signer approves other plans
//	changeset       what a commit changes in the cluster
//	apply           what the cluster has of a commit; the stage that tries and applies it
//	execute         all of a commit is checked, recorded, applied and pruned
//	fieldmanager    who writes which field of a governed Deployment
//	clients         the clients by the account that they write as
//	apiproblem      the API server's answers put into words
//	inventory       which object belongs to which GitSource
//	siblings        the other GitSources of the branch, and what moves to them
//	lists           what many sources read of a namespace at the same time
//	footprint       what was applied, compared by versions when an interval is over
//	unmoved.go      the end of an interval in which nothing has happened
//	departed        what becomes of objects that left the branch
//	prune           what may be deleted
//	writeback.go    the end of a sync: a write-back, also after another push
//	releasenotes    what became of releases, as Git notes
//	writeback       what the cluster decided and the branch does not say, as commits
//	revert          what commits brought is taken back
//	gitobject       blobs, trees and commits in memory; merges; trailers
//	outcome         how a sync went: conditions, and when the next one is
//	result.go       the results of the steps, and when the next sync is
//	cache.go        what is kept between syncs
//	deletion.go     the end of a GitSource
//	report          the status of a sync, and the events after it
//	requests        why a source is synced: changes, drift, pushes, decisions of releases
//	freshness       which sources are no longer synced
//	refwatch        local repositories: a push is noticed at once
//
// # Two managers, one Deployment
//
// For a Deployment that a BatchRelease governs, rollout writes spec.template,
// spec.strategy and spec.paused, and gitsync writes all other fields. The template
// travels in the BatchRelease. The two packages meet there and never import each
// other.
package gitsync
