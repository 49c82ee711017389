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

	"github.com/tranche-dev/tranche/cmd/tranche/analyze"
	"github.com/tranche-dev/tranche/cmd/tranche/bootstrap"
	"github.com/tranche-dev/tranche/cmd/tranche/cli"
	"github.com/tranche-dev/tranche/cmd/tranche/commit"
	"github.com/tranche-dev/tranche/cmd/tranche/controller"
	"github.com/tranche-dev/tranche/cmd/tranche/dashboard"
	"github.com/tranche-dev/tranche/cmd/tranche/diff"
	"github.com/tranche-dev/tranche/cmd/tranche/doctor"
	"github.com/tranche-dev/tranche/cmd/tranche/status"
	"github.com/tranche-dev/tranche/cmd/tranche/terminal"
)

// version is set at link time; a build without it has the module's.
var version = ""

func main() {
	if err := newRoot().ExecuteContext(ctrl.SetupSignalHandler()); err != nil {
		fmt.Fprintln(os.Stderr, "tranche:", terminal.Printable(err.Error()))
		os.Exit(cli.ExitCode(err))
	}
}

func newRoot() *cobra.Command {
	cli.Version = version
	root := &cobra.Command{
		Use:   "tranche",
		Short: "Release Deployments in batches, with Git as the only interface",
		Long: `Release Deployments in batches, with Git as the only interface.

Exit codes:
  0  success. For status --watch: the release is complete
  1  an error: wrong arguments, no right, no connection, a problem in a file
  2  the release has failed, or was rolled back (status --watch); a commit is refused (sync);
     a problem is found (doctor); a completed release would have failed (analyze --exit-code)
  3  the time given by --timeout is over (status --watch, sync, uninstall)
  4  the commit would change the cluster (diff --exit-code)

Colours are only for a terminal; NO_COLOR=1 turns them off.`,
		SilenceUsage:  true,
		SilenceErrors: true,
		Version:       cli.VersionString(),
		Annotations:   map[string]string{},
	}
	if name := filepath.Base(os.Args[0]); strings.HasPrefix(name, "kubectl-tranche") {
		root.Annotations[cobra.CommandDisplayNameAnnotation] = "kubectl tranche"
	}
	root.AddCommand(status.NewGet(), status.NewStatus(), status.NewHistory(), status.NewEvents(), dashboard.New(), newSync(),
		commit.NewApprove(), commit.NewRollback(), commit.NewReject(), commit.NewPause(), commit.NewResume(),
		bootstrap.New(), diff.New(), analyze.New(), doctor.New(), newLint(), newSimulate(), newVersion(), newInstall(), newUninstall(),
		controller.New(), controller.NewRenderWorker(), newReference())
	return root
}
