// Package plan turns a tree of manifests into what is to be released, and says
// how many pods a step is: render, parse, validate, template hash, steps and
// limits, approvals.
//
// It is pure: values in, values out. It imports no client, no clock and no
// Git, and both gitsync and rollout, which never meet, import it.
package plan
