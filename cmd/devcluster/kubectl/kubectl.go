// Package kubectl is the command line of Kubernetes.
package kubectl

import (
	"fmt"
	"os"

	_ "k8s.io/client-go/plugin/pkg/client/auth" // exec and OIDC credentials, as in kubectl's own main
	"k8s.io/component-base/cli"
	"k8s.io/component-base/logs"
	"k8s.io/kubectl/pkg/cmd"
	"k8s.io/kubectl/pkg/cmd/util"
)

// Run is the main function of k8s.io/kubernetes/cmd/kubectl.
func Run() {
	// The flags are parsed later, but building the command already logs.
	if _, err := logs.GlogSetter(cmd.GetLogVerbosity(os.Args)); err != nil {
		fmt.Fprintln(os.Stderr, "setting the log verbosity:", err)
	}
	if err := cli.RunNoErrOutput(cmd.NewDefaultKubectlCommand()); err != nil {
		util.CheckErr(err)
	}
}
