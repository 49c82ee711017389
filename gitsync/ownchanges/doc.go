// Package ownchanges finds what a commit has changed itself.
//
// For a commit with one parent, that is all that differs from the parent. A merge has changed
// nothing if git makes the same of its parents by itself. Else the files are its own that git
// would have merged in another way.
//
//	ownchanges.go   the changes of a commit, and those that are its own
//	contested.go    files of a merge that git may have merged in another way
package ownchanges
