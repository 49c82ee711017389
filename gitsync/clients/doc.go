// Package clients has the clients by the account that a source reads and writes as.
package clients
