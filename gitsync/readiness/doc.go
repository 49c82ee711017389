// Package readiness says what of an object is not ready, by the rules of kstatus.
package readiness
