// Package tell sends events: of a BatchRelease what is decided, and of its Deployment what is
// done to it. Each event is a request to the API server, so no fact has two.
package tell
