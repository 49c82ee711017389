// Package lineage finds the merge bases of commits, and what is in their histories.
//
// Each commit is read once. The walks need no other order than that of parents before children,
// since the dates of commits are set by their authors. Nothing here recurses, since a history
// can be deep.
package lineage
