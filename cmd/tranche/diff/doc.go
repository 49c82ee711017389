// Package diff has the command that shows what a commit would change in the cluster.
// It asks the release engine of the controller, and writes nothing.
package diff
