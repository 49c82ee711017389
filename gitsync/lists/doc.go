// Package lists has what many sources read of a namespace at the same time.
//
// One list of the API server answers all that accept its age. There are lists of the plans of a
// namespace, of its failed releases, and of what its autoscalers resize. There are lists of the
// versions of the objects of a kind. A list that was read by one account answers no other.
package lists
