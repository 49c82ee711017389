// Package position answers where a release stands, and how many pods each revision may have
// there. A [Course] is where the way leads by the facts: what spec.template brings, what is
// stable, and which of them is the goal. A [Position] adds the status as a round has it so
// far: the step, and what the gates have opened. [Position.Split] says what each ReplicaSet is
// to have. It is a [Set], with the number of pods in the end; package rolling says how far it
// goes now.
//
// All of this reads. A round that takes another course gets another value.
package position
