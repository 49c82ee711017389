// Package refwatch notices pushes to local repositories.
//
// A [Watcher] watches the folders of a repository in which a push shows, and waits until
// the repository is quiet. It then asks a [Requester] for a sync of the sources that
// follow it. It reads no object of Git. A push that it misses is found at the interval of
// the source.
package refwatch
