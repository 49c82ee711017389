// Package writeback commits what the cluster decided and the branch does not say.
//
// That is an approval that was given in the cluster, or a rollback. [Run] compares the
// releases of a commit with those of the cluster, and makes one attempt. It takes an
// [Input], returns a [Result], and writes neither status nor events. The caller fetches the
// branch again where another push was faster.
//
//	writeback.go  what is to be committed, and whether a commit says it already
//	intents.go    the decisions, and the messages of their commits
//	approve.go    approvals as files
//	rollback.go   reverts: which commits, and whether the result is right
//	sharers.go    what a revert would move of other sources
//	review.go     another branch to push to
package writeback
