// Package failures counts the rounds of releases that fail, and says when the next one is due.
//
// The first failure since a good round is for the log and an event ([Begins]). After a minute of
// failures the status says so, too ([Persists]). The package also knows the kinds of refusals.
package failures
