// Package footprint compares what was applied of a source with what the cluster has now.
//
// A [Footprint] has the versions of the objects of a commit that is applied. When the interval
// of a source is over, lists that it shares with other sources tell whether something is
// changed. So an interval in which nothing happens reads no object by itself.
package footprint
