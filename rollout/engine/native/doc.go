// Package native has the ReplicaSets as the native Deployment controller makes them: their names,
// labels and annotations. The engine asks for such ones, so that the native controller, which reads
// them under the hold too, finds nothing to write.
package native
