// Command kubectl is the command line of Kubernetes without the components of devcluster.
// Their packages take longer to initialize than most commands of kubectl take to run.
package main

import "github.com/tranche-dev/tranche/cmd/devcluster/kubectl"

func main() { kubectl.Run() }
