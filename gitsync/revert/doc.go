// Package revert takes back what commits brought, as far as a GitSource renders it.
//
// A [Commit] is one whose change is taken back, and [Keeps] says whether a result has all
// else as it was. The write-back uses both for a rollback. [TakeBack] does the same for a
// clone, where git revert has a conflict.
package revert
