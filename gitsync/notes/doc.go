// Package notes has what Git notes say of releases: when each began, which steps were
// approved, and how it ended. It pushes nothing.
package notes
