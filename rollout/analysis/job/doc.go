// Package job measures by a Job, which it makes from a suspended CronJob as `kubectl create job
// --from` does, and as the account of the release.
//
// The name of the Job is that of the measurement. A Job that exists was made before a crash and
// is adopted, so each measurement runs once. The exit code is the result: 0 is a pass, 1 to 125
// is a failure. A shell and a container runtime use 126 and above for a command that they could
// not run, or that a signal has ended. Those, an eviction and a deadline say nothing of the
// release.
//
// The Job controller itself tells the two apart, by a podFailurePolicy that this package sets.
// So the result stands in the Job's status, also after its pods are gone.
//
// The Job is read by its name, every few seconds while it runs. A watch of all Jobs would keep
// each Job of the cluster in memory. The account of a release may list those of its own
// namespace only.
package job
