// Command tranche releases native Deployments in batches, with Git as its
// interface. Called kubectl-tranche, it is a plugin of kubectl.
package main

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"

	"github.com/spf13/cobra"
	ctrl "sigs.k8s.io/controller-runtime"
)

// version is set at link time; a build without it has the module's.
var version = ""

func main() {
	if err := newRoot().ExecuteContext(ctrl.SetupSignalHandler()); err != nil {
		fmt.Fprintln(os.Stderr, "tranche:", err)
		os.Exit(ExitCode(err))
	}
}

func newRoot() *cobra.Command {
	Version = version
	root := &cobra.Command{
		Use:   "tranche",
		Short: "Release Deployments in batches, with Git as the only interface",
		Long: `Release Deployments in batches, with Git as the only interface.

Exit codes:
  0  success. For status --watch: the release is complete
  1  an error: wrong arguments, no right, no connection, a problem in a file
  2  the release has failed, or was rolled back (status --watch); a commit is refused (sync)
  3  the time given by --timeout is over (status --watch, sync)
  4  the commit would change the cluster (diff --exit-code)

Colours are only for a terminal; NO_COLOR=1 turns them off.`,
		SilenceUsage:  true,
		SilenceErrors: true,
		Version:       VersionString(),
		Annotations:   map[string]string{},
	}
	if name := filepath.Base(os.Args[0]); strings.HasPrefix(name, "kubectl-tranche") {
		root.Annotations[cobra.CommandDisplayNameAnnotation] = "kubectl tranche"
	}
	root.AddCommand(NewGet(), NewStatus(), NewHistory(), NewEvents(), newSync(), NewApprove(), NewRollback(), NewReject(), NewPause(), NewResume(), NewBootstrap(), NewDiff(), newLint(), newSimulate(), newVersion(), newInstall(), NewController(), NewRenderWorker(), newReference())
	return root
}
