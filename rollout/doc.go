// Package rollout turns a BatchRelease into ReplicaSet sizes: it observes,
// lets rollout/engine decide, and acts. The reconciler here is a shell without
// opinions: every decision is the engine's.
package rollout
