package engine

// What the tests name, and no caller does.
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
