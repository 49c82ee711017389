// Package status has the commands that show releases, sources, their history and events.
// Status also follows a release to its end.
package status
