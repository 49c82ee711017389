// Package engine decides what a release does next. It is pure: its input is what was
// observed and the time, and its output the writes to make and the status to keep. The
// same input always gives the same output.
//
// # One round
//
// [Decide] is called whenever something changed. It answers with a [Decision]: at most a
// few writes, in order, and the status that is true once they are made. Each write is to
// one object, and conditional on the version of the object that it was decided on. A
// round either moves or remembers. If it moves, it has actions and a status that only
// counts. If it remembers, it has no action, and a status that begins a step or opens a
// gate. So nothing ever moves that is not recorded, and a crash between two rounds
// forgets nothing.
//
// A round has three inputs, which nothing in it changes, and one output. Package facts sorts
// out what was observed. Package position has the course, which is where the way leads, and the
// position on it: the step, and what its gates have opened. Package gates answers whether a gate
// is open, and package rolling how far sizes may move now. Package native has the ReplicaSets as
// the native controller makes them. The draft is the decision while it is made: status, writes
// and events. Only functions of this package write it.
//
// # Memory
//
// All that can be seen again is observed: sizes, hold, revisions. The stable revision and
// the one being released are kept as ControllerRevisions ([Record]), since the native
// controller may delete any ReplicaSet at 0 (H12). Deployment and BatchRelease both own
// them, so that they outlive either. Only what can not be seen is read back from status:
// which release is under way, which gates have opened, when the step began. A release
// whose status is lost begins again at its first step, and goes through its gates.
//
// # Gates
//
// status.openedReplicas is what the last gate of this release allowed, as the
// plan said it then. The update revision never grows above it (I3), whatever
// the sizes or an edited plan suggest. An approval opens a gate only for the
// steps that it was given for, and none of a release that has ended (I5).
//
// # Identity
//
// A revision is what was sent: the digest of spec.template, which its record keeps beside
// the template as the API server returned it. Defaults and admission may make something
// else of it at any time. A name may change with a collision or the version of the
// cluster. Neither begins a release.
//
// # The safe region
//
// Under a hold (paused and Recreate) the native controller leaves sizes alone as long as
// two or more ReplicaSets are active (H3). It also does so if the one active has the size
// of the Deployment. Every size that [Decide] asks for stays in that region. The first
// move is the update revision's (H1), and the last pod of the others goes only when the
// update revision has all (H2). While there is nothing to split the Deployment is not
// held at all ("parked": H4).
//
// H1, H2, … and I1, I2, … are the hazards and invariants of the design; see
// docs/design.md.
package engine
