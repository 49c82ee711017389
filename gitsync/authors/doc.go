// Package authors finds the commits that made a release or a plan what it is, and says whether
// an approver has a part in them.
//
// With spec.approvals.distinctAuthor an approver has written nothing of what is approved. A
// [Change] is the difference between what counted last and what a commit renders for one
// Deployment. [Change.PartOf] walks the history of a [Branch] for its commits. It
// compares what they render, since messages, authors and the shape of the history can be
// forged.
//
//	change.go           the question, and what a search reads
//	origins.go          the commits whose rendering differs from that of their parents
//	combined.go         the effect of commits in combination
//	dormant.go          changes that had no effect until another one
//	dormantentries.go   the same, entry by entry of a file
//	found.go            what is kept between syncs
//
// Package lineage has the merge bases of commits, and package ownchanges what a commit has
// changed itself. A [Renderer] renders the commits. The package knows no cluster and no
// reconciler. It bounds the effort of a search, since histories can be built that would take
// hours.
package authors
