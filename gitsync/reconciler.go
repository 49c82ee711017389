package gitsync

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"path/filepath"
	"time"

	"github.com/go-logr/logr"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/util/workqueue"
	"k8s.io/utils/ptr"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/builder"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/controller"
	"sigs.k8s.io/controller-runtime/pkg/controller/controllerutil"
	"sigs.k8s.io/controller-runtime/pkg/manager"
	"sigs.k8s.io/controller-runtime/pkg/predicate"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"
	ctrlsource "sigs.k8s.io/controller-runtime/pkg/source"

	"github.com/tranche-dev/tranche/gitsync/apiproblem"
	"github.com/tranche-dev/tranche/gitsync/clients"
	"github.com/tranche-dev/tranche/gitsync/credentials"
	"github.com/tranche-dev/tranche/gitsync/dependencies"
	"github.com/tranche-dev/tranche/gitsync/desired"
	"github.com/tranche-dev/tranche/gitsync/freshness"
	"github.com/tranche-dev/tranche/gitsync/gitserver"
	"github.com/tranche-dev/tranche/gitsync/gittree"
	"github.com/tranche-dev/tranche/gitsync/lists"
	"github.com/tranche-dev/tranche/gitsync/metrics"
	"github.com/tranche-dev/tranche/gitsync/namedsecrets"
	"github.com/tranche-dev/tranche/gitsync/outcome"
	"github.com/tranche-dev/tranche/gitsync/refwatch"
	"github.com/tranche-dev/tranche/gitsync/report"
	"github.com/tranche-dev/tranche/gitsync/repository"
	"github.com/tranche-dev/tranche/gitsync/requests"
	"github.com/tranche-dev/tranche/gitsync/turns"
	"github.com/tranche-dev/tranche/gitsync/webhook"
	"github.com/tranche-dev/tranche/plan"
	"github.com/tranche-dev/tranche/plan/v1alpha1"
)

// Options of the GitSource reconciler.
type Options struct {
	// StorageDir is the folder of the mirrors. It may be lost at any time.
	StorageDir string
	// Concurrent is how many sources of a namespace are worked on at the same time. Twice as
	// many are of all together. Those that wait for a Git server are not among them.
	Concurrent int
	// DefaultServiceAccount is impersonated where a GitSource names none, in
	// the GitSource's namespace; empty: the controller writes as itself.
	DefaultServiceAccount string
	// FileRoots are the folders below which a repository of a file URL may be; none: no
	// file URL is followed. A user who may write a GitSource reads what is there with the
	// controller's rights.
	FileRoots []string
	// FileWriteRoots are those below which commits and notes are pushed to such a
	// repository; none: a GitSource with a file URL and write-back is refused. Any user
	// who may write a GitSource pushes there with the controller's rights.
	FileWriteRoots []string
	// NoCrossNamespaceRefs refuses references to GitSources of other namespaces.
	NoCrossNamespaceRefs bool
	// NoRemoteBases refuses kustomizations with bases in other repositories.
	NoRemoteBases bool
	// Renderer renders folders, for one tenant at a time: a namespace. nil:
	// [manifest.Render] in this process, where one tenant's folder takes what it asks for.
	Renderer Renderer
	// WebhookAddress is where to listen for webhooks, such as :9292; empty or
	// "0": nowhere.
	WebhookAddress string
	// ProviderOf tells the providers of metrics that plans may name; nil: they are not
	// checked.
	ProviderOf plan.ProviderOf
	// Selector picks the GitSources to work on by their labels; nil: all.
	Selector labels.Selector
	// UsedFor is how long a deleted GitSource that prunes waits for the pods that use its
	// ConfigMaps and Secrets to go. After that it leaves those in the cluster; 0: a
	// minute.
	UsedFor time.Duration
	// HandBackWithin is how long a source waits for the hand-back of a Deployment
	// before it says Stalled; 0: a minute.
	HandBackWithin time.Duration
	// Limits bound what one repository may cost.
	Limits gittree.Limits
	// Tell is called when a branch can no longer be followed, and when it can again; nil:
	// there is no receiver.
	Tell func(SourceNews)
	// Freshness is about sources that are no longer synced.
	Freshness freshness.Options
	// MayPush returns why nothing may be pushed now: another controller may lead. nil:
	// there is no other.
	MayPush func() error
}

// SourceNews is that a branch can no longer be followed, or that it can again.
type SourceNews = report.SourceNews

// Renderer is [manifest.Render] somewhere else, as package sandbox does it.
type Renderer = desired.FolderRenderer

// finalizer is on a GitSource, so that its plans go at its end, and what it
// prunes.
const finalizer = v1alpha1.Group + "/prune"

// applyTimeout bounds one sync as a whole.
const applyTimeout = 10 * time.Minute

// Add adds the GitSource reconciler to a manager.
func Add(mgr ctrl.Manager, o Options) error {
	pending := &requests.Pending{}
	pushes := requests.NewPushes(pending)
	watcher, err := refwatch.New(pushes)
	if err != nil {
		return err
	}
	if err := mgr.Add(watcher); err != nil {
		return fmt.Errorf("adding the watcher of local repositories: %w", err)
	}
	r := newReconciler(mgr, o)
	r.watcher, r.pushes, r.pending = watcher, pushes, pending
	if r.judge, err = freshness.Add(mgr, o.Freshness, o.Selector); err != nil {
		return err
	}
	indexer := mgr.GetFieldIndexer()
	if err := indexer.IndexField(context.Background(), &v1alpha1.GitSource{}, namedsecrets.Index, requests.SecretsOf); err != nil {
		return fmt.Errorf("indexing GitSources by Secret: %w", err)
	}
	if err := indexer.IndexField(context.Background(), &v1alpha1.GitSource{}, dependencies.Index, dependencies.Indexed); err != nil {
		return fmt.Errorf("indexing GitSources by what they depend on: %w", err)
	}
	w := &requests.Watches{Client: r.status, Pending: pending, Selects: r.options.selects, Applied: r.cache.applied,
		Installing: r.cache.isInstalling, Cut: r.turns.Cut}
	selected := predicate.NewPredicateFuncs(r.options.selects)
	changed := builder.WithPredicates(predicate.And(selected, requests.SpecChanged))
	pushedElsewhere := builder.WithPredicates(predicate.And(selected, requests.PushedElsewhere))
	err = ctrl.NewControllerManagedBy(mgr).
		Named("gitsource").
		Watches(&v1alpha1.GitSource{}, w.Changes(), changed).
		Watches(&v1alpha1.GitSource{}, w.Request(false, requests.Itself), pushedElsewhere).
		Watches(&v1alpha1.GitSource{}, w.Request(false, w.Dependents), builder.WithPredicates(dependencies.ComesReady)).
		Watches(&appsv1.Deployment{}, w.Request(true, w.Drifted), builder.WithPredicates(requests.DeploymentChanged)).
		WatchesMetadata(&corev1.Secret{}, w.Request(true, w.SourcesWith), builder.WithPredicates(predicate.ResourceVersionChangedPredicate{})).
		Watches(&v1alpha1.BatchRelease{}, w.Request(true, w.SourceOf), builder.WithPredicates(w.NewDecision())).
		WatchesRawSource(pushes.Source()).
		WatchesRawSource(ctrlsource.Func(func(_ context.Context, queue workqueue.TypedRateLimitingInterface[reconcile.Request]) error {
			r.queue = queue
			return nil
		})).
		WithOptions(controller.Options{MaxConcurrentReconciles: r.turns.Limit}).
		Complete(r)
	if err != nil {
		return fmt.Errorf("adding the GitSource reconciler: %w", err)
	}
	if o.WebhookAddress != "" && o.WebhookAddress != "0" {
		if err := mgr.Add(webhook.New(mgr, o.WebhookAddress, hookRequester{r, mgr.Elected()})); err != nil {
			return fmt.Errorf("adding the webhook receiver: %w", err)
		}
	}
	if err := mgr.Add(sweeper(r.mirrors, r.own, o.Selector)); err != nil {
		return fmt.Errorf("adding the sweeper of mirrors: %w", err)
	}
	return nil
}

func newReconciler(mgr ctrl.Manager, o Options) *reconciler {
	access := credentials.Access{
		Apps: gitserver.NewGitHubApps(), FileRoots: o.FileRoots, FileWriteRoots: o.FileWriteRoots, MayPush: o.MayPush,
	}
	r := &reconciler{
		resources: resources{
			options: o, own: mgr.GetAPIReader(), status: mgr.GetClient(), mapper: mgr.GetRESTMapper(),
			clients: clients.New(mgr, o.DefaultServiceAccount), mirrors: repository.NewCache(o.StorageDir), access: access,
			events: mgr.GetEventRecorder("tranche-gitsync"), lists: lists.New(mgr.GetAPIReader()),
		},
		turns: turns.New(o.Concurrent),
	}
	r.mirrors.Limits = o.Limits.WithDefaults()
	if !o.NoRemoteBases {
		r.remoteBases = repository.NewBases(filepath.Join(o.StorageDir, "bases"), o.Limits)
	}
	return r
}

// selects reports whether a source is this controller's to sync.
func (o *Options) selects(gs client.Object) bool {
	return o.Selector == nil || o.Selector.Matches(labels.Set(gs.GetLabels()))
}

// reconciler says which source is synced when.
type reconciler struct {
	resources
	judge   *freshness.Judge
	pushes  *requests.Pushes
	pending *requests.Pending
	queue   workqueue.TypedRateLimitingInterface[reconcile.Request]
	turns   *turns.Turns
}

// forget removes what is kept of a source that is gone, or is another controller's.
func (r *reconciler) forget(name types.NamespacedName) {
	r.watcher.Forget(name)
	metrics.Forget(name)
	r.mirrors.Release(name)
	r.cache.drop(name)
}

// Reconcile is one sync of a GitSource. The next one is as urgent as that of any other
// source, whatever this one was. Otherwise a queue that is never empty would keep
// sources waiting for ever that were synced late once.
func (r *reconciler) Reconcile(controller context.Context, req reconcile.Request) (reconcile.Result, error) {
	ctx, cancel := context.WithCancel(controller)
	defer cancel()
	if !r.turns.Begin(req.NamespacedName, cancel) {
		return reconcile.Result{}, nil // the end of another sync queues it again
	}
	defer func() {
		for _, next := range r.turns.End(req.NamespacedName) {
			r.queue.Add(reconcile.Request{NamespacedName: next})
		}
	}()
	working, done, err := r.turns.Working(ctx, req.Namespace)
	if err == nil {
		defer done()
		result, failure := r.reconcile(working, req)
		if ctx.Err() == nil {
			result.Priority = ptr.To(0)
			return result, failure
		}
	}
	if controller.Err() != nil {
		return reconcile.Result{}, nil
	}
	// The source is deleted. The event of that may have begun this very sync, and then
	// queued nothing after it was cut short.
	return reconcile.Result{RequeueAfter: outcome.AtOnce, Priority: ptr.To(0)}, nil
}

func (r *reconciler) reconcile(ctx context.Context, req reconcile.Request) (reconcile.Result, error) {
	ctx, cancel := context.WithTimeout(ctx, applyTimeout)
	defer cancel()
	keep := r.cache.load(req.NamespacedName)
	w := nextRequest(r.pending, req.NamespacedName, keep)
	if !w.Whole || w.Elapsed {
		if result, ok := r.skipUnaffected(ctx, req.NamespacedName, keep, w); ok {
			return result, nil
		}
	}
	switch {
	case w.Asked:
		keep.maintained.due = time.Time{}
	case keep.last != nil:
		keep.maintained.due = keep.last.until
	}
	if keep.busy != nil {
		defer keep.busy.Leave() // this sync renders what that one could not
	}
	keep.last, keep.awaiting, keep.busy = nil, 0, nil // also where this sync fails before its end: its request is still to be served
	r.cache.store(req.NamespacedName, keep)
	gs, err := r.read(ctx, req.NamespacedName)
	if err != nil {
		if apierrors.IsNotFound(err) {
			r.forget(req.NamespacedName)
			return reconcile.Result{}, nil
		}
		if errors.Is(ctx.Err(), context.Canceled) {
			return reconcile.Result{}, nil // it is deleted, or the controller ends
		}
		return reconcile.Result{}, fmt.Errorf("getting GitSource %s: %w", req, err)
	}
	if !r.options.selects(gs) {
		r.forget(req.NamespacedName)
		return reconcile.Result{}, nil
	}
	src, res := newSource(ctx, &r.resources, gs, keep, w.Since), &result{}
	if gs.DeletionTimestamp != nil {
		r.turns.Spare(req.NamespacedName)
		return nextSync(src, res, r.finalize(ctx, src, res))
	}
	if err := setFinalizer(ctx, src); err != nil {
		return nextSync(src, res, err)
	}
	err = syncSource(ctx, src, res)
	if errors.Is(ctx.Err(), context.Canceled) {
		return reconcile.Result{}, nil // it is deleted, or the controller ends: the next one takes up what it began
	}
	// A sync that took too long says so, too.
	ctx, cancel = context.WithTimeout(context.WithoutCancel(ctx), v1alpha1.DefaultTimeout)
	defer cancel()
	keepShards(ctx, src)
	return nextSync(src, res, r.conclude(ctx, src, res, err))
}

// read returns a source as it is now: a stale status would lose inventory. The version of the one in
// the cache is compared with that of the API server. A source without the finalizer or an inventory has
// applied nothing. The one and the other are written on the version that was read, before it applies.
func (r *reconciler) read(ctx context.Context, name types.NamespacedName) (*v1alpha1.GitSource, error) {
	var gs v1alpha1.GitSource
	if err := r.status.Get(ctx, name, &gs); err == nil {
		if gs.DeletionTimestamp == nil && (gs.Status.Inventory == nil || !controllerutil.ContainsFinalizer(&gs, finalizer)) {
			return &gs, nil
		}
		now := &metav1.PartialObjectMetadata{}
		now.SetGroupVersionKind(v1alpha1.GroupVersion.WithKind("GitSource"))
		if err := r.own.Get(ctx, name, now); err == nil && now.UID == gs.UID && now.ResourceVersion == gs.ResourceVersion {
			return &gs, nil
		}
	}
	gs = v1alpha1.GitSource{}
	return &gs, r.own.Get(ctx, name, &gs)
}

// conclude maps the end of a sync to status, events and log.
func (r *reconciler) conclude(ctx context.Context, src *source, res *result, err error) error {
	src.report.TimeHandBack(&res.outcome, err == nil && src.rendering.Busy() == nil)
	src.cached.reported = src.report.Known
	src.store()
	if busy := src.rendering.Busy(); busy != nil {
		r.requeueOnceFree(src, busy)
		return nil
	}
	if isConflict(err) {
		res.again = true
		src.log.V(1).Info("Syncing again", "because", err.Error())
		return nil
	}
	res.outcome.Problems = apiproblem.OfSource(src.gs, err)
	account := types.NamespacedName{
		Namespace: src.gs.Namespace, Name: cmp.Or(src.gs.Spec.ServiceAccountName, src.options.DefaultServiceAccount),
	}
	clients.NameMissingAccount(ctx, src.own, account, res.outcome.Problems)
	// Before the status is written: a judge that reads the new status has to know it.
	r.judge.Synced(src.name, res.outcome.LimitedFor(src.gs))
	err = src.report.Conclude(ctx, &res.outcome)
	if err == nil {
		src.cached.passed = passed{} // the status has it
	}
	src.cached.reported = src.report.Known
	src.store()
	return err
}

// requeueOnceFree queues the source when there may be a place to render. The server need not
// be asked again for that sync.
func (r *reconciler) requeueOnceFree(src *source, busy desired.Busy) {
	src.cached.awaiting, src.cached.busy = sharedFor(src.gs.Spec.IntervalOrDefault()), busy
	src.store()
	r.judge.Waits(src.name)
	src.log.V(1).Info("Syncing again", "because", busy.Error())
	request := reconcile.Request{NamespacedName: src.name}
	go func() {
		if _, free := <-busy.Free(); free {
			r.queue.Add(request)
		}
	}()
}

// sweeper sweeps once, at the start.
func sweeper(ms *repository.Cache, c client.Reader, s labels.Selector) manager.Runnable {
	return manager.RunnableFunc(func(ctx context.Context) error {
		log := logr.FromContextOrDiscard(ctx)
		var list v1alpha1.GitSourceList
		options := &client.ListOptions{LabelSelector: s}
		if err := c.List(ctx, &list, options); err != nil {
			log.Error(err, "Mirrors of former GitSources stay until the next start")
			return nil
		}
		wanted := map[string]bool{}
		for i := range list.Items {
			gs := &list.Items[i]
			if u, err := gitserver.ParseURL(gs.Spec.URL); err == nil {
				wanted[repository.MirrorName(gitserver.Remote{URL: u, Secret: credentials.SecretName(gs), Proxy: credentials.ProxyName(gs)})] = true
			}
		}
		if removed := ms.Sweep(wanted); len(removed) > 0 {
			log.Info("Mirrors removed", "count", len(removed), "because", "no GitSource uses them")
		}
		return nil
	})
}

// isConflict tells a write that was decided on an older version.
func isConflict(err error) bool { return apierrors.IsConflict(err) }

// setFinalizer makes sure of the finalizer.
func setFinalizer(ctx context.Context, src *source) error {
	if controllerutil.ContainsFinalizer(src.gs, finalizer) {
		return nil
	}
	meta := &metav1.PartialObjectMetadata{ObjectMeta: *src.gs.ObjectMeta.DeepCopy()}
	meta.SetGroupVersionKind(v1alpha1.GroupVersion.WithKind("GitSource"))
	patch := client.MergeFromWithOptions(meta.DeepCopy(), client.MergeFromWithOptimisticLock{})
	controllerutil.AddFinalizer(meta, finalizer)
	err := src.status.Patch(ctx, meta, patch, client.FieldOwner(v1alpha1.ManagerGitSync), client.DisableReadYourWritesConsistency)
	if err != nil {
		return fmt.Errorf("setting the finalizer of GitSource %s: %w", src.name, err)
	}
	src.gs.ObjectMeta = meta.ObjectMeta
	return nil
}
