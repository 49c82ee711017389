package cluster

import _ "embed" // for stages

// stages is kwok's configuration: what nodes and pods do, and when.
//
//go:embed stages.yaml
var stages []byte
