// Package action has the writes of a round as values. Each is one write to one object, and
// carries why it is made, for logs and events.
package action
