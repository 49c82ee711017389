// Package bootstrap has the command that creates a GitSource, its Secret and its account,
// and checks first that all of it will work.
package bootstrap
