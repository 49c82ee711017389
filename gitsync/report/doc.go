// Package report writes how a sync of a GitSource went.
//
// A [Writer] is the only one that writes the status of a GitSource. [Writer.Save] writes it
// before objects are applied or deleted, so that a crash loses none of them. [Writer.Conclude]
// writes it at the end of a sync. The events about the end follow the status that justifies
// them. An event about an object is recorded at once: the next sync finds the object as it has
// to be.
//
//	report.go       the status
//	events.go       the events about the end of a sync
//	handback.go     hand-backs that take too long
//	sourcenews.go   a branch that can no longer be followed, for people
package report
