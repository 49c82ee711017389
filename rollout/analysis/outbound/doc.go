// Package outbound sends the HTTP requests of analyses.
//
// A tenant chooses addresses, and the controller's network reaches more than a tenant's pods
// do. So an address that a release names itself is checked when it is dialled, after its name
// was resolved. A name that leads elsewhere the second time is checked again. Such a request
// uses no proxy, because a proxy would dial for it. No request follows a redirect, which would
// send credentials to another server.
//
// Answers are bounded in size and time, and are checked for what all providers share: the
// status and the clock. The text of an answer is never part of an error.
package outbound
