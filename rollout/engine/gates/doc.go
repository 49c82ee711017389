// Package gates answers whether the gate of a step is open. [Check] asks in a fixed order: is the
// plan paused, does the release go back, was the step approved in the cluster or in Git, does a
// pause run. The first check that has an answer counts. It opens the gate, or says what is waited
// for. Nothing is changed by an answer: the engine passes the gate.
package gates
