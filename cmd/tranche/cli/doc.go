// Package cli has what the commands of the program share: the cluster that flags name,
// formats of output, questions at a terminal, completion and exit codes.
package cli
