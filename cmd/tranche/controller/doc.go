// Package controller has the command that runs the controller, with leader election and
// its metrics.
package controller
