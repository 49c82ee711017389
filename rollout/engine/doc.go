// Package engine decides what a release does next. It is pure: what was
// observed and the time go in, the writes to make and the status to keep come
// out, and the same input always gives the same output.
//
// # One round
//
// [Decide] is called whenever something changed. It answers with a [Decision]:
// at most a few writes, in order, each to one object and each conditional on
// the version of the object that it was decided on, and the status that is
// true once they are made. A round either moves (actions, and a status that
// only counts) or remembers (a status that begins a step or opens a gate, and
// no action). So nothing ever moves that is not recorded, and a crash between
// two rounds forgets nothing.
//
// # Memory
//
// What can be seen again is observed: sizes, hold, revisions. What was stable
// is kept as a ControllerRevision ([Record]) that the Deployment owns, since
// the native controller may delete any ReplicaSet at 0 (H12). Only what can
// not be seen is read back from status: which release is under way, which
// gates have opened, when the step began. A status that is lost begins the
// release anew at the step that its pods have reached.
//
// # The safe region
//
// Under a hold (paused and Recreate) the native controller leaves sizes alone
// as long as two or more ReplicaSets are active (H3), or the one active has
// the size of the Deployment. Every size that [Decide] asks for stays there:
// the first move is the update revision's (H1), the last pod of the others
// goes only when the update revision has all (H2), and while there is nothing
// to split the Deployment is not held at all ("parked": H4).
//
// H1, H2, … and I1, I2, … are the hazards and invariants of the design; see
// docs/design.md.
package engine
