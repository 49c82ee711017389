// Package gitserver exchanges commits with a Git server.
//
// A [Remote] is a repository and how to come to it. [Connect] opens a [Session], which
// lists the branches and fetches packs within limits; [Remote.Push] moves a branch as a
// compare-and-swap. Credentials come from the data of Secrets, see [NewAccess].
//
// Whatever a server or a network does wrong becomes a [plan.Problem] here, with a reason
// and a hint. No value of a Secret is ever part of one.
package gitserver
