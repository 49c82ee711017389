// Package requests has the reasons for which a source is to be synced.
//
// A [Request] says whether the cluster is to be read, or whether only a push is possible.
// [Pending] joins the requests of a source until its sync takes them. [Watches] maps
// events of objects to sources, and the predicates pass those that may need a sync.
//
//	requests.go     the requests that wait, and how events add to them
//	changes.go      which changes of a GitSource are worth a sync
//	decisions.go    which decisions of a release are, and whose release it is
//	drift.go        which changes of a Deployment are
//	references.go   sources that refer to a Secret, or to another source
//	pushes.go       pushes that webhooks and local repositories report
package requests
