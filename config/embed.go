// Package config holds the manifests that install Tranche.
package config

import "embed"

// Files are the manifests, as config/default puts them together.
//
//go:embed crd default manager policy rbac
var Files embed.FS
