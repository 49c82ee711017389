// Package verdict judges what was measured of a release. It is pure. A [Measurement] is a
// question about a window that the schedule names. A [Measured] is its answer as the provider
// gave it, on both sides. The values are kept in status, and [Judge] is a function of these and
// the plan. The same values and plan give the same verdict (I12).
//
// There are three verdicts. Unknown is neither Pass nor Fail. It opens no gate and moves no pod
// unless the plan says so (I13).
package verdict
