// Package repository has repositories on disk, as their servers have them.
//
// A [Cache] has a [Mirror] per URL and credentials. A Mirror fetches a branch, or what a
// reference pins, and gives a [Snapshot]. That is a commit with all that it needs, which
// stays as it is for its reader while others fetch. A mirror that is damaged or full is
// cloned again; one that no source uses leaves the disk. [Bases] are the remote bases
// that kustomizations name, each a single commit.
//
// The package reads no object of the cluster. Only its metrics are those of the controller.
package repository
