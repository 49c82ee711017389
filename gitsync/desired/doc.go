// Package desired says what a commit has for one GitSource.
//
// A [Reader] renders a commit of a snapshot to its objects and releases, the [State]. A
// [History] answers what the branch says of a release: the commit that names it, and the
// approval that counts. It also finds the commits that made the change. A [Governor] keeps what decides about
// releases as it is until a signer has approved the change.
//
// The package writes nothing, and holds no reconciler. The reconciler, the write-back, a
// preview and a probe use it alike. The maps of the Reader keep between syncs what it finds
// out, and losing them costs a rendering.
//
//	render.go         a commit's objects, releases and approvals
//	commits.go        which commit began a release, which brought an approval
//	verify.go         which approvals are signed, and by whom
//	origins.go        the commits that made a release what it is
//	dormant.go        changes that had no effect until another one
//	lineage.go        the merge bases of commits
//	combined.go       the effect of commits in combination
//	planted.go        files that were there before as other files
//	replay.go         which approvals are older than the release that they name
//	ended.go          the releases that have ended, of which an approval opens no gate
//	terms.go          what decides about releases, and who has approved it
//	overlimits.go     the commits that take too much to render
//	seen.go           when a commit was first seen, for keys that expire
//	describe.go       what notifications say of a commit
//	bases.go          remote bases of kustomizations
package desired
