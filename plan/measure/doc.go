// Package measure has what follows from the metrics of a plan alone: which windows are measured
// and when, how much evidence there has to be, and what the placeholders of queries stand for.
package measure
