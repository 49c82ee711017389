// Package facts sorts out what was observed, once for a round. [Observed] is the input as it
// is read from the cluster. [Facts] add what follows from it alone: sizes and bounds, the
// records by what they are of, the strategy to hand back. A [Revision] ties a pod template to
// its name, its record and its ReplicaSet. Nothing here knows the status of a release, and
// nothing of it changes in a round.
package facts
