// Package preview finds out what a commit or a new GitSource would do.
//
// It serves the command line: [Previewer.Preview] compares a commit with the cluster, for a
// user who wants to merge it. [Probe] fetches and renders as the controller will, for a user
// who wants to make a GitSource. Both only read; what the API server tries is a dry run.
//
//	preview.go  what becomes of each object and release
//	next.go     the BatchRelease that the controller would write
//	merged.go   an apply worked out here, for an account that may only read
//	probe.go    the repository of a GitSource that is not there yet
package preview
