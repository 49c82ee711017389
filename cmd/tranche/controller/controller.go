package controller

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"time"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"
	"go.uber.org/zap/zapcore"
	"k8s.io/apimachinery/pkg/api/resource"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	clientgoscheme "k8s.io/client-go/kubernetes/scheme"
	"k8s.io/client-go/rest"
	"k8s.io/utils/ptr"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/config"
	"sigs.k8s.io/controller-runtime/pkg/healthz"
	"sigs.k8s.io/controller-runtime/pkg/log/zap"
	"sigs.k8s.io/controller-runtime/pkg/metrics/filters"
	"sigs.k8s.io/controller-runtime/pkg/metrics/server"

	"github.com/tranche-dev/tranche/cmd/tranche/cli"
	"github.com/tranche-dev/tranche/gitsync"
	"github.com/tranche-dev/tranche/gitsync/freshness"
	"github.com/tranche-dev/tranche/gitsync/gittree"
	"github.com/tranche-dev/tranche/gitsync/sandbox"
	"github.com/tranche-dev/tranche/plan/v1alpha1"
	"github.com/tranche-dev/tranche/rollout"
	"github.com/tranche-dev/tranche/rollout/clock"
	"github.com/tranche-dev/tranche/rollout/fromgit"
	"github.com/tranche-dev/tranche/rollout/notify"
)

type controllerOptions struct {
	metricsAddress          string
	metricsSecure           bool
	probeAddress            string
	pprofAddress            string
	webhookAddress          string
	leaderElect             bool
	leaderElectionNamespace string
	storagePath             string
	fileRoots               []string
	fileWriteRoots          []string
	concurrent              int
	as                      string
	defaultServiceAccount   string
	noCrossNamespaceRefs    bool
	noRemoteBases           bool
	watchLabelSelector      string
	notifications           string
	analysis                analysisOptions
	limits                  gittree.Limits
	renderers               int
	renderMemory            size
	renderTime              time.Duration
	qps                     float32
	burst                   int
	logLevel                string
	logEncoding             string
	skipNameValidation      bool // several managers in one process, in tests
}

func New() *cobra.Command {
	var o controllerOptions
	c := &cobra.Command{
		Use:   "controller",
		Short: "Run the controller",
		Long: `Run the controller against the cluster that KUBECONFIG names, or the one that
it runs in.`,
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error { return runController(cmd.Context(), o) },
	}
	f := c.Flags()
	f.StringVar(&o.metricsAddress, "metrics-bind-address", "0", "address of the metrics endpoint, such as :8443; 0 for none")
	f.BoolVar(&o.metricsSecure, "metrics-secure", true,
		"serve metrics by HTTPS to users who may get /metrics; false: by HTTP, to everyone who reaches the address")
	f.StringVar(&o.probeAddress, "health-probe-bind-address", "0", "address of /healthz and /readyz, such as :8081; 0 for none")
	f.StringVar(&o.pprofAddress, "pprof-bind-address", "0", "address of /debug/pprof, for profiles, such as localhost:6060; 0 for none")
	f.StringVar(&o.webhookAddress, "webhook-address", "0", "address of /webhook, where forges announce pushes, such as :9292; 0 for none")
	f.BoolVar(&o.leaderElect, "leader-elect", false, "let only one of several controllers work")
	f.StringVar(&o.leaderElectionNamespace, "leader-election-namespace", "", "namespace of the lease; default: the one the controller runs in")
	f.StringVar(&o.storagePath, "storage-path", defaultStoragePath(), "folder of the repositories' mirrors; may be lost at any time")
	f.Lookup("storage-path").DefValue = "tranche, in the user's cache folder" // in help: not of one machine
	f.StringSliceVar(&o.fileRoots, "file-roots", nil, "folders below which repositories of file:// URLs may be; default: none is followed")
	f.StringSliceVar(&o.fileWriteRoots, "file-write-roots", nil,
		"folders of --file-roots below which write-back pushes to repositories of file:// URLs; default: none is written")
	f.IntVar(&o.concurrent, "concurrent", 10, "how many sources, and how many releases, of a namespace are worked on at the same time")
	f.StringVar(&o.as, "as", "", "user to act as, for a controller outside the cluster: "+
		"system:serviceaccount:tranche-system:tranche-controller is the one that config/policy lets write held Deployments")
	f.StringVar(&o.defaultServiceAccount, "default-service-account", "",
		"service account to impersonate where a GitSource or BatchRelease names none; default: the controller's own")
	f.BoolVar(&o.noCrossNamespaceRefs, "no-cross-namespace-refs", true, "refuse GitSources that depend on sources of other namespaces")
	f.BoolVar(&o.noRemoteBases, "no-remote-bases", true, "refuse kustomizations with bases in other repositories")
	f.StringVar(&o.watchLabelSelector, "watch-label-selector", "",
		"work only on GitSources and BatchReleases with these labels; a GitSource hands the labels that it is selected by to its BatchReleases")
	f.StringVar(&o.notifications, "notification-config", "",
		"file with the receivers of notifications, from a mounted Secret; read again when it changes")
	o.analysis.flags(f)
	limitFlags(f, &o.limits)
	o.renderMemory = 256 << 20
	f.Var(&o.renderMemory, "max-render-memory", "bytes of memory that a process may take which renders")
	f.IntVar(&o.renderers, "concurrent-renders", 3,
		"number of folders that are rendered at the same time, in separate processes; one namespace has at most all but one")
	f.DurationVar(&o.renderTime, "max-render-time", 30*time.Second,
		"how much CPU time the rendering of one folder may take; four times that by the clock")
	f.Float32Var(&o.qps, "kube-api-qps", -1, "requests per second to the API server; negative: as many as it lets through")
	f.IntVar(&o.burst, "kube-api-burst", 0, "requests to the API server in a burst")
	f.StringVar(&o.logLevel, "log-level", "info", "debug, info or error")
	f.StringVar(&o.logEncoding, "log-encoding", "json", "json or console")
	f.BoolVar(&o.skipNameValidation, "skip-name-validation", false, "let several controllers run in one process, for tests")
	if err := f.MarkHidden("skip-name-validation"); err != nil {
		panic(err) // the flag is defined one line above
	}
	return c
}

// limitFlags are about what one repository may cost; docs/limits.md has them.
func limitFlags(f *pflag.FlagSet, l *gittree.Limits) {
	*l = gittree.DefaultLimits()
	f.Var((*size)(&l.RepositorySize), "max-repository-size",
		"bytes that the mirror of one repository may take on disk; twice that while it is cloned again")
	f.Var((*size)(&l.FileSize), "max-file-size", "bytes that a file to be read may have; sixteen times that are read for one commit")
	f.IntVar(&l.Files, "max-files", l.Files, "files read and folders listed for one commit, those read again included")
	f.IntVar(&l.Objects, "max-objects", l.Objects, "objects that one GitSource may have")
}

// size is a number of bytes, as Kubernetes writes them: 8Mi.
type size int64

func (s *size) String() string { return resource.NewQuantity(int64(*s), resource.BinarySI).String() }
func (s *size) Type() string   { return "bytes" }

func (s *size) Set(text string) error {
	q, err := resource.ParseQuantity(text)
	if err != nil || q.Value() <= 0 {
		return errors.New("must be a number of bytes above 0, such as 8Mi")
	}
	*s = size(q.Value())
	return nil
}

// defaultStoragePath is a folder that survives a restart on the same machine.
func defaultStoragePath() string {
	if dir, err := os.UserCacheDir(); err == nil {
		return filepath.Join(dir, "tranche")
	}
	return filepath.Join(os.TempDir(), "tranche")
}

func runController(ctx context.Context, o controllerOptions) error {
	if err := setLogger(o); err != nil {
		return err
	}
	selector, err := labels.Parse(o.watchLabelSelector)
	if err != nil {
		return fmt.Errorf("--watch-label-selector: %w", err)
	}
	providers, err := o.analysis.read()
	if err != nil {
		return err
	}
	rc, err := ctrl.GetConfig()
	if err != nil {
		return fmt.Errorf("finding a cluster; set KUBECONFIG: %w", err)
	}
	serverClock := clock.NewServer(time.Now, uptime)
	rc.Wrap(serverClock.Wrap)
	fromGit := &fromgit.Releases{}
	mgr, fences, err := newManager(rc, o, fromGit)
	if err != nil {
		return err
	}
	notifier, err := newNotifier(mgr, o.notifications)
	if err != nil {
		return err
	}
	if err := rollout.Add(mgr, rollout.Options{
		Concurrent: o.concurrent, DefaultServiceAccount: o.defaultServiceAccount, Selector: selector, Notifier: notifier, Uptime: uptime,
		Since: serverClock.Since, Analysis: providers, FromGit: fromGit,
	}); err != nil {
		return err
	}
	renderers, err := newRenderers(mgr, o)
	if err != nil {
		return err
	}
	err = gitsync.Add(mgr, gitsync.Options{
		Renderer: renderers, ProviderOf: providers.Configuration.TypeOf,
		StorageDir: o.storagePath, Concurrent: o.concurrent, DefaultServiceAccount: o.defaultServiceAccount,
		FileRoots: o.fileRoots, FileWriteRoots: o.fileWriteRoots,
		NoCrossNamespaceRefs: o.noCrossNamespaceRefs, NoRemoteBases: o.noRemoteBases, WebhookAddress: o.webhookAddress,
		Selector: selector, Limits: o.limits, MayPush: fences.mayWrite, Tell: notifySource(notifier),
		Freshness: freshness.Options{Ledger: ledgerName(o), Election: fences.lease.seen},
	})
	if err != nil {
		return err
	}
	if err := addStartChecks(mgr); err != nil {
		return err
	}
	if os.Getenv("GOGC") == "" {
		if err := mgr.Add(collector{}); err != nil {
			return fmt.Errorf("adding the collector's percentage: %w", err)
		}
	}
	ctrl.Log.Info("Starting", "version", cli.VersionString())
	if err := fences.schemas.await(ctx, tellOutdated(fences.schemas.reader, mgr.GetEventRecorder("tranche"), selector)); err != nil {
		return nil //nolint:nilerr // a signal ends it
	}
	if err := fences.run(ctx, mgr.Start); err != nil {
		return fmt.Errorf("running the controller: %w", err)
	}
	return nil
}

// ownNamespace is where the namespace of a pod is.
const ownNamespace = "/var/run/secrets/kubernetes.io/serviceaccount/namespace"

// ledgerName names the ConfigMap with the times of syncs, of which there is one for each
// selector, beside the lease. A controller outside the cluster has none unless it is given
// the lease's namespace.
func ledgerName(o controllerOptions) types.NamespacedName {
	namespace := o.leaderElectionNamespace
	if text, err := os.ReadFile(ownNamespace); namespace == "" && err == nil {
		namespace = strings.TrimSpace(string(text))
	}
	if namespace == "" {
		return types.NamespacedName{}
	}
	return types.NamespacedName{Namespace: namespace, Name: cli.LeaseName(o.watchLabelSelector) + "-syncs"}
}

// newRenderers returns where folders are rendered: processes of this program.
func newRenderers(mgr ctrl.Manager, o controllerOptions) (*sandbox.Pool, error) {
	command, err := sandbox.Command(RenderWorker)
	if err != nil {
		return nil, err
	}
	p := sandbox.NewPool(sandbox.Options{
		Command: command, Workers: max(2, o.renderers), Memory: int64(o.renderMemory), Timeout: o.renderTime, Log: ctrl.Log.WithName("render"),
	})
	if err := mgr.Add(p); err != nil {
		return nil, fmt.Errorf("adding the renderers: %w", err)
	}
	return p, nil
}

// RenderWorker is the command that a renderer runs.
const RenderWorker = "render-worker"

func NewRenderWorker() *cobra.Command {
	return &cobra.Command{
		Use:                RenderWorker,
		Short:              "Render what the controller asks for on standard input",
		Hidden:             true,
		DisableFlagParsing: true,
		RunE:               func(_ *cobra.Command, args []string) error { return sandbox.Main(args) },
	}
}

// newNotifier returns none where no file is named.
func newNotifier(mgr ctrl.Manager, path string) (*notify.Notifier, error) {
	if path == "" {
		return nil, nil
	}
	n, err := notify.New(path, ctrl.Log.WithName("notify"))
	if err != nil {
		return nil, fmt.Errorf("--notification-config: %w", err)
	}
	if err := mgr.Add(n); err != nil {
		return nil, fmt.Errorf("adding the notifier: %w", err)
	}
	return n, nil
}

// notifySource returns a function that sends what becomes of sources to the notifier.
func notifySource(n *notify.Notifier) func(gitsync.SourceNews) {
	return func(s gitsync.SourceNews) {
		t := notify.Transition{
			Namespace: s.Namespace, Source: s.Name, Reason: notify.SourceRecovered, Message: s.Message, State: notify.Succeeded,
			Commit: s.Commit, Author: s.Author, Link: s.Link, Time: time.Now(),
		}
		if s.Failed {
			t.Reason, t.State = notify.SourceFailed, notify.Failed
			t.Next = "tranche sync " + s.Name + " -n " + s.Namespace
		}
		n.Tell(t)
	}
}

// fences are what the clients of a manager are guarded by.
type fences struct {
	lease   *lease
	rewind  *rewind
	schemas *schemas
	sight   *sight
}

// mayWrite returns why nothing may be written now.
func (f fences) mayWrite() error {
	if err := cmp.Or(f.schemas.mayWrite(), f.rewind.mayWrite()); err != nil {
		return err
	}
	return f.lease.mayWrite()
}

// run runs a manager until it ends, or until a fence lets nothing be written any more.
func (f fences) run(ctx context.Context, start func(context.Context) error) error {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	ended := make(chan error, 1)
	go f.rewind.watch(ctx)
	go func() { ended <- f.lease.run(ctx, start) }()
	select { // it does not wait for the manager: the process is to end at once
	case err := <-ended:
		return err
	case <-f.schemas.lost:
		return f.schemas.because
	case <-f.rewind.lost:
		return f.rewind.because
	case <-f.sight.lost:
		return f.sight.because
	}
}

// newManager makes a manager, and what its clients are guarded by.
func newManager(rc *rest.Config, o controllerOptions, fromGit *fromgit.Releases) (ctrl.Manager, fences, error) {
	scheme := runtime.NewScheme()
	if err := errors.Join(clientgoscheme.AddToScheme(scheme), v1alpha1.AddToScheme(scheme)); err != nil {
		return nil, fences{}, fmt.Errorf("registering API types: %w", err)
	}
	rc.QPS, rc.Burst = o.qps, o.burst
	rc.Impersonate.UserName = o.as
	rc.UserAgent = "tranche/" + cli.VersionString()
	metrics := server.Options{BindAddress: o.metricsAddress, SecureServing: o.metricsSecure}
	if o.metricsSecure {
		metrics.FilterProvider = filters.WithAuthenticationAndAuthorization
	}
	see, caches := newSight(), rollout.CacheOptions(fromGit)
	caches.DefaultWatchErrorHandler = see.failed
	options := ctrl.Options{
		Scheme:                        scheme,
		Cache:                         caches,
		Client:                        client.Options{Cache: &client.CacheOptions{EnableReadYourWritesConsistency: ptr.To(true)}},
		Metrics:                       metrics,
		HealthProbeBindAddress:        o.probeAddress,
		PprofBindAddress:              o.pprofAddress,
		LeaderElection:                o.leaderElect,
		LeaderElectionID:              cli.LeaseName(o.watchLabelSelector),
		LeaderElectionNamespace:       o.leaderElectionNamespace,
		LeaderElectionReleaseOnCancel: true,
		LeaseDuration:                 ptr.To(leaseDuration),
		RenewDeadline:                 ptr.To(renewDeadline),
		RetryPeriod:                   ptr.To(retryPeriod),
		Controller:                    config.Controller{SkipNameValidation: &o.skipNameValidation},
		GracefulShutdownTimeout:       ptr.To(20 * time.Second),
	}
	back, err := newRewind(rc)
	if err != nil {
		return nil, fences{}, err
	}
	fields, err := newSchemas(rc)
	if err != nil {
		return nil, fences{}, err
	}
	var l *lease
	var events leaderEvents
	if o.leaderElect {
		if l, err = newLease(rc, &events, options); err != nil {
			return nil, fences{}, err
		}
		options.LeaderElectionResourceLockInterface = l
		rc.Wrap(l.guard)
	}
	rc.Wrap(back.guard)
	rc.Wrap(fields.guard)
	mgr, err := ctrl.NewManager(rc, options)
	if err != nil {
		return nil, fences{}, fmt.Errorf("setting up the controller: %w", err)
	}
	elections.add(options.LeaderElectionID, l)
	if l != nil {
		events.EventRecorder = mgr.GetEventRecorderFor(l.Identity()) //nolint:staticcheck // what the election takes
	}
	if err := errors.Join(mgr.AddHealthzCheck("ping", healthz.Ping), mgr.AddReadyzCheck("ping", healthz.Ping)); err != nil {
		return nil, fences{}, fmt.Errorf("adding probes: %w", err)
	}
	return mgr, fences{l, back, fields, see}, nil
}

func setLogger(o controllerOptions) error {
	var options zap.Options
	switch o.logEncoding {
	case "json":
	case "console":
		options.Development = true
	default:
		return fmt.Errorf("--log-encoding: %q: must be json or console", o.logEncoding)
	}
	level, ok := map[string]int8{"debug": -1, "info": 0, "error": 2}[o.logLevel]
	if !ok {
		return fmt.Errorf("--log-level: %q: must be debug, info or error", o.logLevel)
	}
	options.Level = zapcore.Level(level)
	ctrl.SetLogger(zap.New(zap.UseFlagOptions(&options)))
	return nil
}
