// Package inventory says which object belongs to which GitSource.
//
// An [Entry] names an object. The [Set] of what a GitSource applied is its status.inventory.
// It alone says which source applies a Deployment, since that bears no labels of a source.
// Labels and the field manager say of a live object whether a source applies it, see
// [IsOwned]. [Owner] finds another source that has the object in its inventory. Secrets that
// a source names are its own, and no commit may bring them. [Used] names the ConfigMaps and
// Secrets that pod templates refer to.
//
// The package decides nothing and writes nothing, except that it deletes an object on
// request, if that is the one that the caller has read.
package inventory
