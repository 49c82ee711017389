// Package simulation carries a plan out without a cluster: [engine.Decide] decides on pods that come
// up, or fail, as the circumstances of a [Simulation] say. Its tests are beside those of the
// engine, which have the random plans.
package simulation
