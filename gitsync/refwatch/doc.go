// Package refwatch notices pushes to local repositories.
//
// A [Watcher] watches the folders of a repository in which a push shows, waits until the
// repository is quiet, and asks a [Requester] for a sync of the sources that follow it. It
// reads no object of Git. What it misses is found at the interval of the source.
package refwatch
