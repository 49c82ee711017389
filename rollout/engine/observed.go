package engine

import (
	"github.com/tranche-dev/tranche/rollout/engine/facts"
	"github.com/tranche-dev/tranche/rollout/engine/native"
	"github.com/tranche-dev/tranche/rollout/engine/verdict"
)

// The input of a round, under the names that callers use: they import this package alone.
type (
	// Observed is what a round is decided on.
	Observed = facts.Observed
	// Record is a revision that the Deployment runs or ran, kept in the cluster.
	Record = facts.Record
	// Pods counts the pods of the update revision that are not available.
	Pods = facts.Pods
	// Measurement is a question for a provider of metrics.
	Measurement = verdict.Measurement
	// Measured is its answer.
	Measured = verdict.Measured
)

// The annotations of the native Deployment controller.
const (
	AnnotationRevision        = native.AnnotationRevision
	AnnotationRevisionHistory = native.AnnotationRevisionHistory
	AnnotationDesiredReplicas = native.AnnotationDesiredReplicas
	AnnotationMaxReplicas     = native.AnnotationMaxReplicas
)
