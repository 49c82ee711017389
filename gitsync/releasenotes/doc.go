// Package releasenotes writes what became of releases as Git notes.
//
// Package notes has the text of a note. [Run] compares the notes of the repository with the
// status of the BatchReleases, and pushes those that are missing.
package releasenotes
