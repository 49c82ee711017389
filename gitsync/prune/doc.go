// Package prune deletes objects that left the branch.
//
// [CheckLimit] refuses a commit that would delete more than half of what its GitSource
// applied. [Decide] says what happens to an object, from values. [Run] reads the objects,
// decides, and deletes each one at the version that was read. It returns what it deleted, and
// what stays in the cluster or in the inventory. The caller writes status and events.
//
// An object whose deletion takes data or other objects with it needs an annotation. So does a
// commit that is more likely a slip in a path than meant.
package prune
