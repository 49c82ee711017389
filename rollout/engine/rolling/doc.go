// Package rolling is the arithmetic of a round: how far the sizes of ReplicaSets may move now.
// It keeps the number of pods within surge and unavailability, and the sizes in the safe
// region of a hold. Its input and output are numbers; it knows no revision and no plan.
package rolling
