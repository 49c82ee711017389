// Package terms keeps what decides about releases as it is until a signer has approved the
// change.
//
// The terms of a Deployment are its steps, gates and limits, and whether it has any
// ([plan.Terms]). [Govern] compares the terms that a commit has with those that govern, which
// the status of a GitSource records. A [Change] counts once a signer has approved its digest.
// Until then the [Governed] set has the governing terms, with the template of the commit.
//
// The package reads commits through package desired, and the cluster through an observer of
// package apply. It writes nothing.
package terms
