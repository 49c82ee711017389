// Package cli has what the commands of the program share. These are the cluster that
// flags name, formats of output, questions at a terminal, completion and exit codes.
package cli
