// Package analyze tries the analysis of a plan on what has been measured. It replays past
// releases, or compares pods of the same revision.
//
// The questions, and the verdict of the answers, are those of package rollout/engine/verdict.
// The controller's client of Prometheus asks. Nothing is written.
package analyze
