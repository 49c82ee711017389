// Package feed keeps the rows of releases and sources, and counts their changes. All streams
// read the same feed, and so there is one informer for each kind.
package feed
