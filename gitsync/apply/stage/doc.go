// Package stage applies all objects of one commit, in their order.
//
// A [Stage] takes the targets that package apply has made of the objects. It tries all of them
// with the API server before the first write. Its [Input] has all that it works on, and its
// [Result] says what is left to be done. [Stage.MoveOn] writes what counts of a commit that is
// refused. [Stage.Restore] brings again what was deleted of a commit that was applied.
//
// A [DryRunCache] has the dry runs that need not be repeated. [Contests] count how often drift
// came back.
package stage
