// Package plan turns manifests into what is to be released, and says how many pods a step
// is. It has sets of objects, releases and their terms, template hash, steps and limits,
// and approvals.
//
// It is pure: values in, values out. It imports no client, no clock, no Git and no
// kustomize, and both gitsync and rollout, which never meet, import it. Package manifest
// reads the files.
package plan
