// Package siblings knows the other GitSources of a branch.
//
// Two sources may follow one branch, each with a path of its own. [Access.HeirsOf] finds the
// one to whose path a commit has moved an object. [Refusal] says why one does not let a
// commit be applied.
package siblings
