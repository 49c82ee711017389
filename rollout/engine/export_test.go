package engine

// Tests name these, and no caller does.
const (
	Answers         = answers
	CountInterval   = countInterval
	KeptBehind      = keptBehind
	RefusedInterval = refusedInterval
)

var (
	SizeAnnotations = sizeAnnotations
	With            = with
)
