// Package desired says what a commit has for one GitSource: its objects, its releases and the
// approvals that count.
//
// A [Reader] renders a commit of a snapshot to its objects and releases, the [State]. A
// [History] answers what the branch says of a release: the commit that names it, and the
// approval that counts.
//
// The package writes nothing, and holds no reconciler. The reconciler, the write-back, a
// preview and a probe use it alike. The maps of the Reader keep between syncs what it finds
// out, and losing them costs a rendering.
//
//	render.go            a commit's objects and releases
//	bases.go             remote bases of kustomizations
//	exceeded.go          the commits that take too much to render
//	commits.go           the commit that began a release; what older commits render
//	approvals.go         which approval counts for a release
//	approved.go          what the BatchRelease has of it
//	signed.go            whether it is signed as the GitSource demands
//	sharedapprovals.go   approvals that are for another GitSource of the branch
//	describe.go          what notifications say of a commit
//
// The package asks three others: signers (who signed a file), replay (is an approval too old)
// and authors (who made the change). Package terms is on top of it: what governs until a
// signer approves the change.
package desired
