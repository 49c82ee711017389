// Package departed says what becomes of objects that left the branch of a GitSource.
//
// Another source may have an object now, or nothing may be pruned. [Run] tells the cases apart,
// deletes the rest, and records why. Before a BatchRelease is deleted, its releases are added to
// the status of the GitSource: their approvals count for no later release.
//
//	departed.go   what is pruned, handed over, or kept
//	endings.go    the releases that end
package departed
