// Package gittree reads the tree of a commit as a file system that records what was read.
//
// It exists to answer one question without a worktree: does another commit render the
// same? [Open] reads objects from a store as they are asked for, within [Limits]. [Reads]
// records the questions, and [Reads.Unchanged] asks another tree the same.
//
// A missing object is an error, never a missing file: manifests that only seem to be gone
// would be pruned. The package knows no server, no cluster and no reconciler.
package gittree
