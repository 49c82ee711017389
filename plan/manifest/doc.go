// Package manifest reads a tree of files: it renders kustomizations and plain YAML to
// objects, reads approvals, and edits the files that have them.
//
// It is pure, as package plan is: files come from the file system that is passed in, and
// nothing is fetched. kustomize is used here, and nowhere below package rollout.
package manifest
