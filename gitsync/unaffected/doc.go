// Package unaffected says whether commits leave a GitSource as it is.
//
// A source has read files and folders of a commit to render it, and to find its approvals. A
// [Checker] compares what was read with the commits of a push. [Checker.Advance] takes a commit
// for applied that leaves the source as it is.
package unaffected
