// Package templates says what the API server makes of a pod template: with its defaults, and as
// admission changes it.
package templates
