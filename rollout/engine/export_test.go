package engine

import "github.com/tranche-dev/tranche/rollout/engine/native"

// Tests name these, and no caller does.
const (
	Answers         = answers
	CountInterval   = countInterval
	KeptBehind      = keptBehind
	RefusedInterval = refusedInterval
)

var (
	SizeAnnotations = native.SizeAnnotations
	With            = native.WithHash
)
