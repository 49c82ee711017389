// Package config holds the manifests that install Tranche.
package config

import "embed"

// Files are the manifests, as config/default puts them together, and what
// config/cluster-admin and config/tenants make of them.
//
//go:embed cluster-admin crd default manager policy rbac tenants
var Files embed.FS
