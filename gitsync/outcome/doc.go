// Package outcome says how a sync of a GitSource went, as one value.
//
// The conditions of the GitSource, and the time of its next sync, are computed from an
// [Outcome] and from the conditions that were there before.
//
//	conditions.go   the outcome as conditions
//	schedule.go     when to sync next
package outcome
