// Package doctor has the command that examines an installation: whether all parts are there,
// fit each other, and work.
//
// Each check reads the cluster and returns findings. A check that may not read what it
// needs says so, and never that it is fine.
package doctor
