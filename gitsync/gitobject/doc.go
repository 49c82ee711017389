// Package gitobject makes blobs, trees and commits in memory, on top of those that a
// repository has.
//
// A [Store] adds objects to a store that it never writes. A commit that turns out wrong is
// dropped with its Store; one that is right leaves as a pack, [Store.Pack]. [Merge3] merges
// texts by lines, [Undo] takes the changes of a commit back, and [Trailers] reads what our
// own commits say of themselves.
//
// The package knows no server, no cluster and no reconciler.
package gitobject
