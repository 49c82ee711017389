// Package dependencies says what a source waits for by its spec.dependsOn.
//
// [Waiter.Lacks] names each source that is not as the next commit needs it, and why. Sources that
// wait for each other are refused.
package dependencies
