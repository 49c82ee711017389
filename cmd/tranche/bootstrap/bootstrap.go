package bootstrap

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"
	appsv1 "k8s.io/api/apps/v1"
	authorizationv1 "k8s.io/api/authorization/v1"
	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/util/wait"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/yaml"

	"github.com/tranche-dev/tranche/cmd/tranche/cli"
	"github.com/tranche-dev/tranche/cmd/tranche/terminal"
	"github.com/tranche-dev/tranche/gitsync/gitserver"
	"github.com/tranche-dev/tranche/gitsync/preview"
	"github.com/tranche-dev/tranche/plan"
	"github.com/tranche-dev/tranche/plan/v1alpha1"
)

type bootstrapOptions struct {
	url, branch, path  string
	interval           time.Duration
	prune              bool
	targetNamespace    string
	serviceAccountName string
	role               string
	secret             string
	fromFile           []string
	fromLiteral        []string
	yes, export        bool
	dryRun             bool
	timeout            time.Duration
}

func New() *cobra.Command {
	var o bootstrapOptions
	c := &cobra.Command{
		Use:   "bootstrap NAME --url URL",
		Short: "Create a GitSource and its Secret, once all that they need is there",
		Long: `Create a GitSource, the Secret with its credentials and the account that applies, and wait
until the branch is applied. The command checks these before it writes anything, in this
order, and ends at the first that fails:

  the cluster has the kinds of Tranche and a controller
  you may write these objects
  the repository can be read with these credentials, from this machine
  the path renders
  the account may apply the objects

The keys of the Secret are those of docs/gitsource.md. If known_hosts does not have the key
of an SSH host, the command shows its fingerprint and asks.

A new GitSource is applied as the account deployer of its namespace, unless --service-account
names another one. If deployer is missing, the command creates it, and a RoleBinding gives
it the ClusterRole of --role in the namespace. That is admin, if you have these rights
yourself. With --role the command also creates the account of --service-account. --service-account '' is for an
installation with cluster-admin.

A second run changes only what differs.`,
		Example: `  tranche bootstrap shop -n shop --url https://git.example.org/shop.git --path deploy
  tranche bootstrap shop -n shop --url https://git.example.org/shop.git --from-literal username=ada --from-file password=- < token
  tranche bootstrap shop -n shop --url ssh://git@git.example.org/shop.git --from-file identity=deploy-key
  tranche bootstrap shop -n shop --url https://git.example.org/shop.git --export > source.yaml`,
		Args: cobra.ExactArgs(1),
	}
	k := cli.AddCluster(c)
	f := c.Flags()
	f.StringVar(&o.url, "url", "", "of the repository: https, ssh or file")
	f.StringVar(&o.branch, "branch", "main", "branch to follow")
	f.StringVar(&o.path, "path", ".", "path in the repository")
	f.DurationVar(&o.interval, "interval", time.Minute, "time between two syncs")
	f.BoolVar(&o.prune, "prune", false, "delete what was applied and has left the branch")
	f.StringVar(&o.targetNamespace, "target-namespace", "", "namespace of every object, whatever its manifest says")
	f.StringVar(&o.serviceAccountName, "service-account", sourceAccount, "account that every write is made as")
	f.StringVar(&o.role, "role", "admin", "ClusterRole that the account gets in the namespace, where the account is missing; '' makes none")
	f.StringVar(&o.secret, "secret", "",
		"name of the Secret (default: NAME-git where there are credentials, else none); one that is there is used where no credentials are given")
	f.StringArrayVar(&o.fromFile, "from-file", nil, "KEY=FILE: an entry of the Secret, from a file; - is the input")
	f.StringArrayVar(&o.fromLiteral, "from-literal", nil,
		"KEY=VALUE: an entry of the Secret; other users of this machine may see it in the list of processes")
	f.BoolVarP(&o.yes, "yes", "y", false, "do not ask; needed where the input is no terminal")
	f.BoolVar(&o.export, "export", false, "print what would be written, but the Secret, and write nothing; nothing is checked")
	f.BoolVar(&o.dryRun, "dry-run", false, "check, and write nothing")
	f.DurationVar(&o.timeout, "wait", time.Minute, "how long to wait until the branch is applied; 0: not at all")
	c.MarkFlagsMutuallyExclusive("dry-run", "export")
	if err := c.MarkFlagRequired("url"); err != nil {
		panic(err) // the flag is defined above
	}
	c.RunE = func(cmd *cobra.Command, args []string) error {
		at, err := k.Connect()
		if err != nil {
			return err
		}
		b := &bootstrap{bootstrapOptions: o, cmd: cmd, at: at, name: args[0]}
		return b.run(cmd.Context())
	}
	return c
}

// bootstrap is one run of the command.
type bootstrap struct {
	bootstrapOptions
	cmd  *cobra.Command
	at   *cli.Connection
	name string

	source      *v1alpha1.GitSource
	credentials map[string][]byte // given by flags, over those that are there
	changed     bool              // credentials were given
	set         *plan.Set         // what the path renders

	// account is the controller's own; empty: not known. defaultAccount is the name of
	// the one that it applies as if a source names none; empty: none, or not known.
	account, defaultAccount string

	makes bool // the account of the source is missing, and made
}

func (b *bootstrap) run(ctx context.Context) error {
	var err error
	if b.credentials, err = b.given(b.cmd.InOrStdin()); err != nil {
		return err
	}
	b.changed = len(b.credentials) > 0
	if b.export {
		return b.print()
	}
	for _, check := range []func(context.Context) error{
		b.checkCluster, b.find, b.findAccount, b.checkRights, b.checkRole, b.checkRepository, b.checkApplier,
	} {
		if err := check(ctx); err != nil {
			return fmt.Errorf("%w; nothing was written", err)
		}
	}
	if b.dryRun {
		b.done("nothing is missing, and nothing was written: --dry-run")
		return nil
	}
	if err := cli.Agree(b.cmd, b.yes, fmt.Sprintf("Create or change %s?", b.objects())); err != nil {
		return err
	}
	if err := b.write(ctx); err != nil {
		return err
	}
	return b.await(ctx)
}

// print prints the GitSource, after the account that it needs.
func (b *bootstrap) print() error {
	b.source = b.wanted(nil)
	objects := []map[string]any{withoutEmpty(b.source)}
	if b.mayMake() {
		objects = append(b.accountObjects(), objects...)
	}
	for i, o := range objects {
		text, err := yaml.Marshal(o)
		if err != nil {
			return fmt.Errorf("encoding the GitSource: %w", err)
		}
		if i > 0 {
			text = append([]byte("---\n"), text...)
		}
		if _, err := b.cmd.OutOrStdout().Write(text); err != nil {
			return err
		}
	}
	return nil
}

func (b *bootstrap) done(format string, args ...any) {
	out := b.cmd.OutOrStdout()
	_, _ = fmt.Fprintln(out, terminal.StyleOf(out).Good("✔"), terminal.Printable(fmt.Sprintf(format, args...)))
}

// given reads the credentials that flags name.
func (o *bootstrapOptions) given(stdin io.Reader) (map[string][]byte, error) {
	entries := map[string][]byte{}
	for _, entry := range o.fromLiteral {
		key, value, ok := strings.Cut(entry, "=")
		if !ok || key == "" {
			return nil, errors.New("--from-literal: must be KEY=VALUE")
		}
		entries[key] = []byte(value)
	}
	for _, entry := range o.fromFile {
		key, file, ok := strings.Cut(entry, "=")
		if !ok || key == "" || file == "" {
			return nil, fmt.Errorf("--from-file %s: must be KEY=FILE", entry)
		}
		text, err := read(file, stdin)
		if err != nil {
			return nil, fmt.Errorf("--from-file %s: %w", key, err)
		}
		switch key { // one line each, which a shell ends with a newline
		case "username", "password", "bearerToken":
			text = []byte(strings.TrimRight(string(text), "\r\n"))
		}
		entries[key] = text
	}
	return entries, nil
}

// read reads a file; "-" is the standard input.
func read(file string, stdin io.Reader) ([]byte, error) {
	if file == "-" {
		return io.ReadAll(stdin)
	}
	return os.ReadFile(file)
}

// find decides what is to be there, from what is there and the flags.
func (b *bootstrap) find(ctx context.Context) error {
	var gs v1alpha1.GitSource
	err := b.at.Get(ctx, client.ObjectKey{Namespace: b.at.Namespace, Name: b.name}, &gs)
	switch {
	case err == nil:
		b.source = b.wanted(&gs.Spec)
	case apierrors.IsNotFound(err), apierrors.IsForbidden(err): // the next check prints what is lacking
		b.source = b.wanted(nil)
	default:
		return fmt.Errorf("reading GitSource %s/%s: %w", b.at.Namespace, b.name, err)
	}
	return nil
}

// wanted returns the GitSource to be: the spec that it has, changed by the flags.
func (b *bootstrap) wanted(is *v1alpha1.GitSourceSpec) *v1alpha1.GitSource {
	gs := &v1alpha1.GitSource{ObjectMeta: metav1.ObjectMeta{Name: b.name, Namespace: b.at.Namespace}}
	gs.SetGroupVersionKind(v1alpha1.GroupVersion.WithKind("GitSource"))
	if is != nil {
		gs.Spec = v1alpha1.GitSourceSpec{Ref: is.Ref, Path: is.Path, Interval: is.Interval, Prune: is.Prune,
			TargetNamespace: is.TargetNamespace, ServiceAccountName: is.ServiceAccountName, SecretRef: is.SecretRef}
	}
	spec := &gs.Spec
	spec.URL = b.url
	for flag, set := range map[string]func(){
		"branch":           func() { spec.Ref.Branch = b.branch },
		"path":             func() { spec.Path = b.path },
		"interval":         func() { spec.Interval.Duration = b.interval },
		"prune":            func() { spec.Prune = b.prune },
		"target-namespace": func() { spec.TargetNamespace = b.targetNamespace },
		"service-account":  func() { spec.ServiceAccountName = b.serviceAccountName },
	} {
		if is == nil || b.cmd.Flags().Changed(flag) {
			set()
		}
	}
	switch {
	case b.secret != "":
		spec.SecretRef = &v1alpha1.LocalObjectReference{Name: b.secret}
	case spec.SecretRef != nil:
		b.secret = spec.SecretRef.Name
	case b.changed:
		b.secret = b.name + "-git"
		spec.SecretRef = &v1alpha1.LocalObjectReference{Name: b.secret}
	}
	return gs
}

// withoutEmpty is an object without what it does not say.
func withoutEmpty(gs *v1alpha1.GitSource) map[string]any {
	m, err := runtime.DefaultUnstructuredConverter.ToUnstructured(gs)
	if err != nil {
		panic(err) // API types all convert
	}
	unstructured.RemoveNestedField(m, "status")
	unstructured.RemoveNestedField(m, "metadata", "creationTimestamp")
	return m
}

// checkCluster looks for the kinds and for a controller.
func (b *bootstrap) checkCluster(ctx context.Context) error {
	_, err := b.at.RESTMapper().RESTMapping(v1alpha1.GroupVersion.WithKind("GitSource").GroupKind())
	if meta.IsNoMatchError(err) {
		return errors.New("the cluster does not have the kinds of Tranche; tranche install | kubectl apply --server-side -f -")
	}
	if err != nil {
		return fmt.Errorf("asking the cluster for its kinds: %w", err)
	}
	b.done("the cluster has the kinds of Tranche")
	var ns corev1.Namespace
	if err := b.at.Get(ctx, client.ObjectKey{Name: b.at.Namespace}, &ns); apierrors.IsNotFound(err) {
		return fmt.Errorf("there is no namespace %s; kubectl create namespace %s", b.at.Namespace, b.at.Namespace)
	}
	controllers, err := b.at.Controllers(ctx)
	switch {
	case err != nil || len(controllers) == 0:
		_, err = fmt.Fprintln(b.cmd.OutOrStdout(), "? no controller was found, or this account may not look; it may run outside the cluster")
		return err
	case !slices.ContainsFunc(controllers, func(d appsv1.Deployment) bool { return d.Status.AvailableReplicas > 0 }):
		d := controllers[0]
		return fmt.Errorf("the controller does not run: Deployment %s/%s has no available pod; kubectl -n %s describe deployment %s",
			d.Namespace, d.Name, d.Namespace, d.Name)
	}
	d := controllers[0]
	b.account = cli.AccountName(d.Namespace, cmp.Or(d.Spec.Template.Spec.ServiceAccountName, "default"))
	for _, c := range d.Spec.Template.Spec.Containers {
		account, _ := cli.ArgumentOf(slices.Concat(c.Command, c.Args), "--default-service-account")
		b.defaultAccount = cmp.Or(b.defaultAccount, account)
	}
	b.done("the controller runs")
	return nil
}

// checkRights asks for what is going to be written.
func (b *bootstrap) checkRights(ctx context.Context) error {
	wanted := []authorizationv1.ResourceAttributes{{Group: v1alpha1.GroupVersion.Group, Resource: "gitsources"}}
	if b.changed {
		wanted = append(wanted, authorizationv1.ResourceAttributes{Resource: "secrets"})
	}
	if b.makes {
		wanted = append(wanted, authorizationv1.ResourceAttributes{Resource: "serviceaccounts"}, authorizationv1.ResourceAttributes{
			Group: rbacv1.GroupName, Resource: "rolebindings",
		})
	}
	for _, attributes := range wanted {
		for _, verb := range []string{"create", "patch"} {
			attributes.Verb, attributes.Namespace = verb, b.at.Namespace
			review := &authorizationv1.SelfSubjectAccessReview{Spec: authorizationv1.SelfSubjectAccessReviewSpec{ResourceAttributes: &attributes}}
			if err := b.at.Create(ctx, review); err != nil {
				return fmt.Errorf("asking for your rights: %w", err)
			}
			if !review.Status.Allowed {
				return fmt.Errorf("you may not %s %s in namespace %s; ask for the right, or give the output of --export to who has it",
					verb, attributes.Resource, b.at.Namespace)
			}
		}
	}
	b.done("you may write %s", b.objects())
	return nil
}

// objects says what is written.
func (b *bootstrap) objects() string {
	var list []string
	if b.makes {
		list = append(list, b.accountName())
	}
	if b.changed {
		list = append(list, fmt.Sprintf("Secret %s/%s", b.at.Namespace, b.secret))
	}
	source := fmt.Sprintf("GitSource %s/%s", b.at.Namespace, b.name)
	if len(list) == 0 {
		return source
	}
	return strings.Join(list, ", ") + " and " + source
}

// checkRepository reads and renders the branch.
func (b *bootstrap) checkRepository(ctx context.Context) error {
	if err := b.addPresent(ctx); err != nil {
		return err
	}
	if strings.HasPrefix(b.url, "ssh://") && len(b.credentials["known_hosts"]) == 0 {
		if err := b.meet(ctx); err != nil {
			return err
		}
	}
	dir, err := os.MkdirTemp("", "tranche-")
	if err != nil {
		return fmt.Errorf("making a folder for the repository: %w", err)
	}
	defer os.RemoveAll(dir) //nolint:errcheck // a leftover does no harm
	tip, set, err := preview.Probe(ctx, b.source, b.credentials, dir, b.at.RESTMapper())
	if tip != "" {
		b.done("%s: %s is at %s", b.url, b.source.Spec.Ref.Branch, cli.Short(tip))
	}
	if err != nil {
		return err
	}
	b.set = set
	var releases []string
	for _, r := range set.Releases {
		releases = append(releases, r.Plan.Name)
	}
	said := "no plan among them: nothing is released in batches"
	if len(releases) > 0 {
		said = "plans: " + strings.Join(releases, ", ")
	}
	b.done("%s renders: %d objects; %s", b.source.Spec.Path, len(set.Objects)+len(set.Releases), said)
	return nil
}

// addPresent adds the entries of the Secret that is there, where flags say nothing else.
func (b *bootstrap) addPresent(ctx context.Context) error {
	if b.secret == "" {
		return nil
	}
	var secret corev1.Secret
	err := b.at.Get(ctx, client.ObjectKey{Namespace: b.at.Namespace, Name: b.secret}, &secret)
	if apierrors.IsNotFound(err) && b.changed {
		return nil
	}
	if err != nil {
		return fmt.Errorf("reading the credentials in Secret %s/%s: %w; give them with --from-file, or name another Secret with --secret",
			b.at.Namespace, b.secret, err)
	}
	for k, v := range secret.Data {
		if _, ok := b.credentials[k]; !ok {
			b.credentials[k] = v
		}
	}
	return nil
}

// meet asks whether the key that a host shows is the right one.
func (b *bootstrap) meet(ctx context.Context) error {
	line, fingerprint, err := gitserver.HostKey(ctx, b.url)
	if err != nil {
		return err
	}
	if !terminal.Is(b.cmd.InOrStdin()) || !cli.Ask(b.cmd, "The host's key is "+fingerprint+". Is that what its owner publishes?") {
		return fmt.Errorf("known_hosts is missing; the host's key is %s: compare it with what its owner publishes, and give what ssh-keyscan "+
			"prints with --from-file known_hosts=FILE", fingerprint)
	}
	b.credentials["known_hosts"] = []byte(line + "\n")
	return nil
}

// write applies account, Secret and GitSource.
func (b *bootstrap) write(ctx context.Context) error {
	if err := b.writeAccount(ctx); err != nil {
		return err
	}
	if b.changed {
		secret := &corev1.Secret{ObjectMeta: metav1.ObjectMeta{Name: b.secret, Namespace: b.at.Namespace}, Data: b.credentials}
		secret.SetGroupVersionKind(corev1.SchemeGroupVersion.WithKind("Secret"))
		m, err := runtime.DefaultUnstructuredConverter.ToUnstructured(secret)
		if err != nil {
			return fmt.Errorf("encoding the Secret: %w", err)
		}
		if err := b.apply(ctx, m); err != nil {
			return fmt.Errorf("writing Secret %s/%s: %w", b.at.Namespace, b.secret, err)
		}
		b.done("Secret %s/%s is there", b.at.Namespace, b.secret)
	}
	if err := b.apply(ctx, withoutEmpty(b.source)); err != nil {
		return fmt.Errorf("writing GitSource %s/%s: %w", b.at.Namespace, b.name, err)
	}
	b.done("GitSource %s/%s is there", b.at.Namespace, b.name)
	return nil
}

// managerBootstrap is the field manager of what bootstrap writes.
const managerBootstrap = "tranche-bootstrap"

func (b *bootstrap) apply(ctx context.Context, m map[string]any, options ...client.ApplyOption) error {
	unstructured.RemoveNestedField(m, "metadata", "creationTimestamp")
	u := &unstructured.Unstructured{Object: m}
	options = append(options, client.FieldOwner(managerBootstrap), client.ForceOwnership)
	return b.at.Apply(ctx, client.ApplyConfigurationFromUnstructured(u), options...)
}

// await waits until the branch is applied, or the controller says why not.
func (b *bootstrap) await(ctx context.Context) error {
	if b.timeout <= 0 {
		return nil
	}
	var last string
	err := wait.PollUntilContextTimeout(ctx, 200*time.Millisecond, b.timeout, true, func(ctx context.Context) (bool, error) {
		var gs v1alpha1.GitSource
		if err := b.at.Get(ctx, client.ObjectKeyFromObject(b.source), &gs); err != nil {
			return false, fmt.Errorf("reading GitSource %s/%s: %w", b.at.Namespace, b.name, err)
		}
		ready := meta.FindStatusCondition(gs.Status.Conditions, "Ready")
		if gs.Status.ObservedGeneration != gs.Generation || ready == nil {
			last = "no controller has looked at it yet; kubectl -n tranche-system logs deploy/tranche-controller"
			return false, nil
		}
		last = ready.Reason + ": " + ready.Message
		if meta.IsStatusConditionTrue(gs.Status.Conditions, "Stalled") {
			return false, cli.WithCode(cli.ExitFailed, errors.New(last))
		}
		return ready.Status == metav1.ConditionTrue, nil
	})
	switch {
	case errors.Is(err, context.DeadlineExceeded):
		return cli.WithCode(cli.ExitTimeout, fmt.Errorf("not applied after %s: %s", b.timeout, last))
	case err != nil:
		return err
	}
	b.done("%s", last)
	return nil
}
