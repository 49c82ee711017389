package doctor

import (
	"context"
	"fmt"
	"io"
	"strings"
	"time"

	"github.com/spf13/cobra"
	"k8s.io/apimachinery/pkg/version"

	"github.com/tranche-dev/tranche/cmd/tranche/cli"
	"github.com/tranche-dev/tranche/cmd/tranche/terminal"
	"github.com/tranche-dev/tranche/plan"
)

// Result is how a check ended. The results are in the order of their weight.
type Result string

// The results of checks.
const (
	OK      Result = "OK"
	Warning Result = "Warning" // it works, and a user should know
	Unknown Result = "Unknown" // this account may not see it, or the cluster did not answer
	Problem Result = "Problem"
)

// Finding is what a check has found of one thing.
type Finding struct {
	Result Result `json:"result"`
	// Check is the name of the check.
	Check string `json:"check"`
	// Object is the name of what was examined.
	Object  string `json:"object,omitempty"`
	Message string `json:"message"`
	// Todo is what a user should do.
	Todo string `json:"todo,omitempty"`
}

// Diagnosis is the document that the command prints.
type Diagnosis struct {
	cli.Head `json:",inline"`
	// Result is the gravest of the items.
	Result Result    `json:"result"`
	Items  []Finding `json:"items"`
}

// exam is one run of the command.
type exam struct {
	*cli.Connection
	// namespace limits the checks of sources, releases and Deployments; empty: all.
	namespace string
	// account is the controller's user name, as a flag names it; empty: that of its
	// Deployment.
	account string

	now           func() time.Time
	serverVersion func() (*version.Info, error)
	// call asks a Service through the API server, and returns the HTTP status.
	call func(ctx context.Context, namespace, service, port, path string) (int, error)
	// leaseWithin is how long a lease may stay as it is while a controller renews it.
	leaseWithin time.Duration

	instances []instance // of the controller, as checkControllers finds them
	leads     Result     // of the check of the leader
}

// checks are in the order in which they print. Each relies on those before it.
var checks = []func(*exam, context.Context) []Finding{
	(*exam).checkServer, (*exam).checkCRDs, (*exam).checkPolicies, (*exam).checkControllers, (*exam).checkAccounts, (*exam).checkRights,
	(*exam).checkLeaders, (*exam).checkSources, (*exam).checkReleases, (*exam).checkHeld, (*exam).checkWebhook,
}

// New returns the command.
func New() *cobra.Command {
	var output, account string
	c := &cobra.Command{
		Use:   "doctor",
		Short: "Examine the installation: is all of it there, and does it work?",
		Long: `Examine the installation, and print a line for each check, with what to do. The command
writes nothing.

  server      Kubernetes has a version that Tranche supports
  crd         the CustomResourceDefinitions are there and equal to those of this program
  policy      the admission policies are there, current, bound with Deny, and name the
              controller's account
  controller  the Deployment is available; its version and that of this program; no two
              controllers work for the same objects
  account     the controller's ServiceAccount is there
  rights      the account has the rights of its roles (SubjectAccessReviews)
  leader      a controller renews the lease
  source      GitSources that are not applied, not synced, or wait to be deleted
  release     BatchReleases that are Stalled, or whose GitSource is gone
  held        Deployments that are held, and have no BatchRelease
  webhook     the receiver of webhooks answers, through the API server

The result of a check is OK, Warning, Problem, or Unknown if your account may not see what
the check needs. Exit code 2 means that there is a problem, and 1 that something is Unknown.

A controller outside the cluster has no Deployment: name its account with
--controller-account.`,
		Example: `  tranche doctor
  tranche doctor -n shop
  tranche doctor -o json | jq -r '.items[] | select(.result == "Problem") | .message'`,
		Args: cobra.NoArgs,
	}
	k := cli.AddCluster(c)
	c.Flags().Lookup("namespace").Usage = "Examine the sources, releases and Deployments of this namespace only"
	c.Flags().StringVar(&account, "controller-account", "", "user name of a controller that runs outside the cluster")
	cli.AddOutput(c, &output, cli.OutputTable, cli.OutputJSON, cli.OutputYAML)
	c.RunE = func(cmd *cobra.Command, _ []string) error {
		if err := cli.CheckOutput(output, cli.OutputTable, cli.OutputJSON, cli.OutputYAML); err != nil {
			return err
		}
		at, err := k.Connect()
		if err != nil {
			return err
		}
		e := newExam(at)
		e.account = account
		if cmd.Flags().Changed("namespace") {
			e.namespace = at.Namespace
		}
		if _, err := e.serverVersion(); err != nil {
			return fmt.Errorf("asking the API server for its version: %w", err)
		}
		d := e.diagnose(cmd.Context())
		if err := d.print(cmd.OutOrStdout(), output); err != nil {
			return err
		}
		return d.verdict()
	}
	return c
}

// diagnose runs all checks.
func (e *exam) diagnose(ctx context.Context) *Diagnosis {
	d := &Diagnosis{Head: cli.NewHead("Diagnosis"), Result: OK}
	_, _ = e.findInstances(ctx) // checkControllers shows the error
	for _, check := range checks {
		d.Items = append(d.Items, check(e, ctx)...)
	}
	d.Result = gravest(d.Items)
	return d
}

// gravest returns the gravest result of findings.
func gravest(list []Finding) Result {
	for _, r := range []Result{Problem, Unknown, Warning} {
		if count(list, r) > 0 {
			return r
		}
	}
	return OK
}

func count(list []Finding, r Result) int {
	n := 0
	for i := range list {
		if list[i].Result == r {
			n++
		}
	}
	return n
}

// print writes the diagnosis in one of the formats.
func (d *Diagnosis) print(w io.Writer, output string) error {
	if output != cli.OutputTable {
		return cli.PrintValue(w, output, d)
	}
	_, err := io.WriteString(w, d.text(terminal.StyleOf(w)))
	return err
}

// text is a line for each finding.
func (d *Diagnosis) text(style terminal.Style) string {
	colours := map[Result]func(string) string{OK: style.Good, Warning: style.Waits, Unknown: style.Waits, Problem: style.Bad}
	var b strings.Builder
	for _, f := range d.Items {
		what := f.Message
		if f.Object != "" {
			what = f.Object + ": " + what
		}
		if f.Todo != "" {
			what += "; " + f.Todo
		}
		result := fmt.Sprintf("%-8s", strings.ToLower(string(f.Result)))
		fmt.Fprintf(&b, "%s %-10s  %s\n", colours[f.Result](result), f.Check, terminal.Printable(strings.Join(strings.Fields(what), " ")))
	}
	return b.String()
}

// verdict is the error that the command ends with.
func (d *Diagnosis) verdict() error {
	problems, unknown := count(d.Items, Problem), count(d.Items, Unknown)
	switch {
	case problems > 0:
		return cli.WithCode(cli.ExitFailed, fmt.Errorf("%s found", number(problems, "problem")))
	case unknown > 0:
		return fmt.Errorf("%s could not be made", number(unknown, "check"))
	}
	return nil
}

func number(n int, what string) string {
	if n == 1 {
		return "1 " + what
	}
	return fmt.Sprintf("%d %ss", n, what)
}

// unknown is the finding of a check that could not read something.
func unknown(check, object string, err error) Finding {
	f := Finding{Result: Unknown, Check: check, Object: object, Message: plan.OneLine(err.Error())}
	if isForbidden(err) {
		f.Todo = "ask a user with that right to run tranche doctor"
	}
	return f
}

// most is how many findings of one kind are printed.
const most = 20

// limited leaves out findings beyond the first ones, and says how many.
func limited(list []Finding, all string) []Finding {
	if len(list) <= most {
		return list
	}
	rest := list[most:]
	return append(list[:most:most], Finding{
		Result: gravest(rest), Check: rest[0].Check, Message: fmt.Sprintf("%d more", len(rest)), Todo: "see " + all,
	})
}
