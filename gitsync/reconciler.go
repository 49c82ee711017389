package gitsync

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"path/filepath"
	"sync"
	"time"

	"github.com/go-git/go-git/v5/plumbing"
	"github.com/go-git/go-git/v5/plumbing/object"
	"github.com/go-git/go-git/v5/plumbing/storer"
	"github.com/go-logr/logr"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/tools/events"
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
	"sigs.k8s.io/controller-runtime/pkg/source"

	"github.com/tranche-dev/tranche/gitsync/apiproblem"
	"github.com/tranche-dev/tranche/gitsync/authors"
	"github.com/tranche-dev/tranche/gitsync/clients"
	"github.com/tranche-dev/tranche/gitsync/commitrange"
	"github.com/tranche-dev/tranche/gitsync/credentials"
	"github.com/tranche-dev/tranche/gitsync/dependencies"
	"github.com/tranche-dev/tranche/gitsync/desired"
	"github.com/tranche-dev/tranche/gitsync/execute"
	"github.com/tranche-dev/tranche/gitsync/footprint"
	"github.com/tranche-dev/tranche/gitsync/freshness"
	"github.com/tranche-dev/tranche/gitsync/gitobject"
	"github.com/tranche-dev/tranche/gitsync/gitserver"
	"github.com/tranche-dev/tranche/gitsync/gittree"
	"github.com/tranche-dev/tranche/gitsync/lists"
	"github.com/tranche-dev/tranche/gitsync/metrics"
	"github.com/tranche-dev/tranche/gitsync/namedsecrets"
	"github.com/tranche-dev/tranche/gitsync/outcome"
	"github.com/tranche-dev/tranche/gitsync/refwatch"
	"github.com/tranche-dev/tranche/gitsync/rendering"
	"github.com/tranche-dev/tranche/gitsync/report"
	"github.com/tranche-dev/tranche/gitsync/repository"
	"github.com/tranche-dev/tranche/gitsync/requests"
	"github.com/tranche-dev/tranche/gitsync/siblings"
	"github.com/tranche-dev/tranche/gitsync/signers"
	"github.com/tranche-dev/tranche/gitsync/turns"
	"github.com/tranche-dev/tranche/gitsync/unaffected"
	"github.com/tranche-dev/tranche/gitsync/webhook"
	"github.com/tranche-dev/tranche/plan"
	"github.com/tranche-dev/tranche/plan/v1alpha1"
)

// Options of the GitSource reconciler.
type Options struct {
	// StorageDir is the folder of the mirrors. It may be lost at any time.
	StorageDir string
	// Concurrent is how many sources are worked on at the same time. Those that wait for
	// a Git server are not among them.
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
	r := &reconciler{
		options: o, own: mgr.GetAPIReader(), status: mgr.GetClient(), mapper: mgr.GetRESTMapper(),
		clients: clients.New(mgr, o.DefaultServiceAccount), mirrors: repository.NewCache(o.StorageDir),
		access: credentials.Access{Apps: gitserver.NewGitHubApps(), FileRoots: o.FileRoots, FileWriteRoots: o.FileWriteRoots, MayPush: o.MayPush},
		events: mgr.GetEventRecorder("tranche-gitsync"), watcher: watcher, pushes: pushes, pending: pending,
		last: map[types.NamespacedName]memory{}, turns: turns.New(o.Concurrent),
		shared: lists.New(mgr.GetAPIReader()),
	}
	r.mirrors.Limits = o.Limits.WithDefaults()
	if !o.NoRemoteBases {
		r.remoteBases = repository.NewBases(filepath.Join(o.StorageDir, "bases"), o.Limits)
	}
	if r.synced, err = freshness.Add(mgr, o.Freshness, o.Selector); err != nil {
		return err
	}
	indexer := mgr.GetFieldIndexer()
	if err := indexer.IndexField(context.Background(), &v1alpha1.GitSource{}, namedsecrets.Index, requests.SecretsOf); err != nil {
		return fmt.Errorf("indexing GitSources by Secret: %w", err)
	}
	if err := indexer.IndexField(context.Background(), &v1alpha1.GitSource{}, dependencies.Index, dependencies.Indexed); err != nil {
		return fmt.Errorf("indexing GitSources by what they depend on: %w", err)
	}
	w := &requests.Watches{Client: r.status, Pending: pending, Selects: r.isSelected, Applied: r.applied, Cut: r.turns.Cut}
	selected := predicate.NewPredicateFuncs(r.isSelected)
	changed := builder.WithPredicates(predicate.And(selected, requests.SpecChanged))
	pushedElsewhere := builder.WithPredicates(predicate.And(selected, requests.PushedElsewhere))
	err = ctrl.NewControllerManagedBy(mgr).
		Named("gitsource").
		Watches(&v1alpha1.GitSource{}, w.Request(true, w.Changed), changed).
		Watches(&v1alpha1.GitSource{}, w.Request(false, requests.Itself), pushedElsewhere).
		Watches(&v1alpha1.GitSource{}, w.Request(false, w.Dependents), builder.WithPredicates(dependencies.ComesReady)).
		Watches(&appsv1.Deployment{}, w.Request(true, w.Drifted), builder.WithPredicates(requests.DeploymentChanged)).
		WatchesMetadata(&corev1.Secret{}, w.Request(true, w.SourcesWith), builder.WithPredicates(predicate.ResourceVersionChangedPredicate{})).
		Watches(&v1alpha1.BatchRelease{}, w.Request(true, w.SourceOf), builder.WithPredicates(requests.NewDecision)).
		WatchesRawSource(pushes.Source()).
		WatchesRawSource(source.Func(func(_ context.Context, queue workqueue.TypedRateLimitingInterface[reconcile.Request]) error {
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

// isSelected reports whether a source is this controller's to sync.
func (r *reconciler) isSelected(gs client.Object) bool {
	return r.options.Selector == nil || r.options.Selector.Matches(labels.Set(gs.GetLabels()))
}

type reconciler struct {
	options Options
	synced  func(types.NamespacedName, time.Duration) // see [freshness.Add]
	own     client.Reader                             // past the cache: a stale status would lose inventory
	status  client.Client
	mapper  meta.RESTMapper
	clients *clients.Clients
	mirrors *repository.Cache
	// remoteBases are nil where none may be named.
	remoteBases *repository.Bases
	access      credentials.Access
	events      events.EventRecorder
	watcher     *refwatch.Watcher
	pushes      *requests.Pushes
	pending     *requests.Pending
	queue       workqueue.TypedRateLimitingInterface[reconcile.Request]
	turns       *turns.Turns

	unaffected unaffected.Checker
	shared     *lists.Shared

	mu   sync.Mutex
	last map[types.NamespacedName]memory
}

// memory is what is kept between syncs. Losing it costs a rendering.
type memory struct {
	desired *desired.State
	// kept is the same for the commit that is applied, while another one is refused.
	kept *desired.State
	// applied is what of desired counts.
	applied *plan.Set
	brought map[string]signers.FileOrigin // by file
	// exceeded are the commits that take more to render than they may.
	exceeded *desired.ExceededCommits
	// approved are the steps that plans had when they were approved.
	approved desired.ApprovedSteps
	order    gitobject.Precedence       // of the commits that brought approvals
	changes  authors.Known              // see signatures
	places   map[string][]signers.Place // see signatures
	reported report.Known
	notes    string  // that are there, as far as we know
	rest     *atRest // nil while something is left to do
	passed   passed
	executed execute.Cache
	// awaiting is how old an answer of the server may be for the next sync, while other
	// sources are waited for. A thousand may wait for one.
	awaiting time.Duration
	interim  interim
}

func (r *reconciler) recall(name types.NamespacedName) memory {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.last[name]
}

// applied is what of a commit a source has applied, and what of it had an autoscaler; nil
// before the first sync.
func (r *reconciler) applied(source types.NamespacedName) (*plan.Set, map[string]bool) {
	keep := r.recall(source)
	return keep.applied, keep.executed.Autoscaled
}

func (r *reconciler) remember(name types.NamespacedName, m memory) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.last[name] = m
}

func (r *reconciler) forget(name types.NamespacedName) {
	r.watcher.Forget(name)
	metrics.Forget(name)
	r.mirrors.Release(name)
	r.mu.Lock()
	defer r.mu.Unlock()
	delete(r.last, name)
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
	keep := r.recall(req.NamespacedName)
	w := nextRequest(r.pending, req.NamespacedName, keep)
	if !w.Whole || w.Elapsed {
		if result, ok := r.glance(ctx, req.NamespacedName, keep, w); ok {
			return result, nil
		}
	}
	switch {
	case w.Asked:
		keep.interim.due = time.Time{}
	case keep.rest != nil:
		keep.interim.due = keep.rest.until
	}
	keep.rest, keep.awaiting = nil, 0 // also where this sync fails before its end: its request is still to be served
	r.remember(req.NamespacedName, keep)
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
	if !r.isSelected(gs) {
		r.forget(req.NamespacedName)
		return reconcile.Result{}, nil
	}
	l := r.newLook(ctx, gs, keep, w.Since)
	if gs.DeletionTimestamp != nil {
		r.turns.Spare(req.NamespacedName)
		return l.result(l.end(ctx))
	}
	if err := l.setFinalizer(ctx); err != nil {
		return l.result(err)
	}
	err = l.run(ctx)
	if errors.Is(ctx.Err(), context.Canceled) {
		return reconcile.Result{}, nil // it is deleted, or the controller ends: the next one takes up what it began
	}
	// A sync that took too long says so, too.
	ctx, cancel = context.WithTimeout(context.WithoutCancel(ctx), v1alpha1.DefaultTimeout)
	defer cancel()
	return l.result(l.conclude(ctx, err))
}

// read returns a source past the cache: a stale status would lose inventory. A source without
// the finalizer has applied nothing. The finalizer is set on the version that was read, and the
// answer to that is the source as it is.
func (r *reconciler) read(ctx context.Context, name types.NamespacedName) (*v1alpha1.GitSource, error) {
	var gs v1alpha1.GitSource
	if err := r.status.Get(ctx, name, &gs); err == nil && gs.DeletionTimestamp == nil && !controllerutil.ContainsFinalizer(&gs, finalizer) {
		return &gs, nil
	}
	gs = v1alpha1.GitSource{}
	return &gs, r.own.Get(ctx, name, &gs)
}

func (r *reconciler) newLook(ctx context.Context, gs *v1alpha1.GitSource, keep memory, since time.Time) *look {
	name := client.ObjectKeyFromObject(gs)
	log := logr.FromContextOrDiscard(ctx).WithValues("source", name.String(), "branch", gs.Spec.Ref.Branch)
	return &look{
		reconciler: r, gs: gs, name: name, log: log, keep: keep, since: since,
		rendering: rendering.New(gs, r.options.Renderer, r.remoteBases),
		report: report.New(report.Input{
			Source: gs, Client: r.status, Events: r.events, Log: log, Known: keep.reported,
			HandBackWithin: r.options.HandBackWithin, Notify: r.options.Tell,
		}),
	}
}

// look is one sync of a GitSource, from the repository to the cluster.
type look struct {
	*reconciler
	gs     *v1alpha1.GitSource
	name   types.NamespacedName
	report *report.Writer
	log    logr.Logger
	as     client.Client // reads and writes what is applied
	since  time.Time     // what the server said before is too old

	outcome outcome.Outcome
	keep    memory
	// remoteNow and approvals are what was read in this sync.
	remoteNow gitserver.Remote
	approvals gittree.Reads
	rendering *rendering.Rendering
	// again: sync again at once.
	again bool
	// unclear: objects are kept until another source renders.
	unclear bool
	// kept: what is applied was looked at though a newer commit waits.
	kept bool
	// footprint is what the cluster has of the commit; nil: it is to be read again.
	footprint *footprint.Footprint
}

// setFinalizer makes sure of the finalizer.
func (l *look) setFinalizer(ctx context.Context) error {
	if controllerutil.ContainsFinalizer(l.gs, finalizer) {
		return nil
	}
	old := l.gs.DeepCopy()
	controllerutil.AddFinalizer(l.gs, finalizer)
	patch := client.MergeFromWithOptions(old, client.MergeFromWithOptimisticLock{})
	if err := l.status.Patch(ctx, l.gs, patch, client.FieldOwner(v1alpha1.ManagerGitSync)); err != nil {
		return fmt.Errorf("setting the finalizer of GitSource %s: %w", l.name, err)
	}
	return nil
}

// run does the work of a sync. Its error, and the outcome, say how it went.
func (l *look) run(ctx context.Context) error {
	gs := l.gs
	l.catchUp()
	l.outcome = outcome.Outcome{Branch: gs.Spec.Ref.String(), Commit: gs.Status.ObservedCommit}
	if gs.Spec.Suspend {
		l.outcome.Suspended = true
		return nil
	}
	if p := unsupported(&gs.Spec); p != nil {
		return p
	}
	if err := l.options.mayDependOn(gs); err != nil {
		return err
	}
	remote, err := turns.Exchange(ctx, func() (gitserver.Remote, error) { return l.secrets().Remote(ctx, l.access) })
	if err != nil {
		return err
	}
	l.remoteNow = remote
	l.watcher.Watch(l.name, remote.URL)
	if l.as, err = l.clients.As(gs.Namespace, gs.Spec.ServiceAccountName); err != nil {
		return err
	}
	for healed, moved, late := false, 0, (*overtaken)(nil); ; {
		snapshot, err := l.fetch(ctx, remote)
		if err != nil {
			return err
		}
		next, err := l.followAndClose(ctx, remote, snapshot, late)
		late = next.overtaken
		switch {
		case next.moved:
			if moved++; moved > gitserver.MaxMoved || !gitserver.PauseMoved(ctx, moved) {
				l.again = true
				return ctx.Err()
			}
			l.since = time.Now()
		case err == nil, l.rendering.Busy() != nil:
			return err
		case healed || !repository.IsDamaged(err):
			l.noteEndedAnyway(ctx)
			return err
		default:
			healed = true
			l.log.Info("cloning again", "because", err.Error())
			repair := func() (any, error) { return nil, l.mirrors.Of(remote).Repair(ctx, snapshot) }
			if _, err := turns.Exchange(ctx, repair); err != nil {
				return err
			}
		}
	}
}

// followAndClose follows a snapshot, after a write-back that its push has overtaken. It ends
// the use of the snapshot also where that panics: the folder of a clone that has a reader
// is never removed.
func (l *look) followAndClose(ctx context.Context, r gitserver.Remote, s *repository.Snapshot, late *overtaken) (next step, err error) {
	defer s.Close()
	l.outcome.Author = authorIn(s, s.Commit)
	if late != nil {
		next, err = l.writeBackAgain(ctx, r, s, late)
	}
	if err == nil && !next.moved {
		next, err = l.follow(ctx, r, s)
	}
	if err != nil {
		l.outcome.Behind = commitrange.Behind(s, s.Commit, plumbing.NewHash(l.gs.Status.AppliedCommit))
	}
	return next, err
}

// unsupported refuses what this version would otherwise ignore: who asks for
// signatures must not be served without.
func unsupported(spec *v1alpha1.GitSourceSpec) *plan.Problem {
	w, v, a := spec.WriteBack, spec.Verify, spec.Approvals
	noTag := spec.Ref.Commit != "" || spec.Ref.Tag == "" && spec.Ref.SemVer == ""
	fields := []struct {
		name, fact string
		set        bool
	}{
		{
			"spec.writeBack.enabled", "what is written back goes to the branch, and spec.ref pins something else",
			w != nil && w.Enabled && spec.Ref.IsPinned(),
		},
		{
			"spec.verify.mode", "spec.ref names no tag that could be signed",
			v != nil && v.Mode != "" && v.Mode != v1alpha1.VerifyHEAD && noTag,
		},
		{
			"spec.approvals.distinctAuthor", "where spec.approvals.signers is not set, it is not known who approves",
			a != nil && a.DistinctAuthor && a.Signers == nil,
		},
	}
	for _, f := range fields {
		if f.set {
			return &plan.Problem{
				Reason: v1alpha1.ReasonNotSupported, Where: f.name, Err: errors.New(f.fact + ", and nothing is applied without"),
				Hint: "remove the field if you can do without",
			}
		}
	}
	return nil
}

// secrets reads the Secrets that the source names.
func (l *look) secrets() credentials.Reader {
	return credentials.Reader{Client: l.own, Source: l.gs}
}

// siblings is how the sync comes to the other sources of its branch.
func (l *look) siblings(ctx context.Context) siblings.Access {
	return siblings.Access{
		Own: l.own, As: l.clients.As, Mapper: l.mapper, Bases: l.rendering.Bases(ctx, l.since), Folders: l.options.Renderer,
		Rendered: func(name types.NamespacedName) *desired.State { return l.recall(name).desired },
	}
}

// signatures reads the keys that count, for what was found out of signatures before.
func (l *look) signatures(ctx context.Context) (signers.Policy, error) {
	if l.keep.changes == nil || len(l.keep.changes) > authors.KeptChanges {
		l.keep.changes = authors.Known{}
	}
	if l.keep.places == nil || len(l.keep.places) > signers.KeptPlaces {
		l.keep.places = map[string][]signers.Place{}
	}
	if l.keep.order == nil {
		l.keep.order = gitobject.Precedence{}
	}
	s := signers.Policy{Now: time.Now(), Places: l.keep.places, Order: l.keep.order, Seen: l.gs.Status.Seen}
	return s, l.secrets().Keys(ctx, &s)
}

// ask returns the branch as the server had it at or after the time of the sync
// request.
func (l *look) ask(ctx context.Context, r gitserver.Remote) (*repository.Snapshot, error) {
	ctx, cancel := context.WithTimeout(ctx, l.gs.Spec.TimeoutOrDefault())
	defer cancel()
	begun := time.Now()
	s, err := turns.Exchange(ctx, func() (*repository.Snapshot, error) {
		return l.mirrors.Use(l.name, r).FetchReference(ctx, r, l.gs.Spec.Ref, l.since)
	})
	if err != nil || s.Asked {
		metrics.Exchanged(l.name, "fetch", begun, err)
	}
	return s, err
}

func (l *look) fetch(ctx context.Context, r gitserver.Remote) (*repository.Snapshot, error) {
	s, err := l.ask(ctx, r)
	if err != nil {
		return nil, err
	}
	l.outcome.Branch, l.outcome.Commit = credentials.RefName(l.gs, s), s.Commit.String()
	l.noteSeen(s)
	l.log.V(1).Info("looked", "commit", s.Commit.String(), "fetched", s.Fetched)
	if l.report.Written().ObservedGeneration != l.gs.Generation || l.gs.Spec.Ref.IsPinned() {
		return s, nil // that commit may be of another branch, tag or repository
	}
	last := l.gs.Status.ObservedCommit
	if pushed, err := s.ForcePushed(plumbing.NewHash(last)); err == nil && pushed {
		tip := desired.CommitName(l.gs.Spec.Ref.Branch, l.outcome.Commit)
		message := fmt.Sprintf("%s no longer has %s in its history", tip, plan.ShortCommit(last))
		l.recordEvent(corev1.EventTypeWarning, v1alpha1.ReasonForcePushed, message)
	}
	return s, nil
}

// recordEvent records an event about the source.
func (l *look) recordEvent(kind, reason, message string) { l.recordEventOf(nil, kind, reason, message) }

// recordEventOf records an event about an object that was applied.
func (l *look) recordEventOf(object runtime.Object, kind, reason, message string) {
	l.report.RecordEvent(report.Event{Of: object, Type: kind, Reason: reason, Message: message, Commit: l.outcome.Commit})
}

// conclude maps the end of a sync to status, events and log.
func (l *look) conclude(ctx context.Context, err error) error {
	l.report.TimeHandBack(&l.outcome, err == nil && l.rendering.Busy() == nil)
	l.keep.reported = l.report.Known
	l.remember(l.name, l.keep)
	if busy := l.rendering.Busy(); busy != nil {
		l.requeueOnceFree(busy)
		return nil
	}
	if isConflict(err) {
		l.again = true
		l.log.V(1).Info("looking again", "because", err.Error())
		return nil
	}
	l.outcome.Problems = apiproblem.OfSource(l.gs, err)
	account := types.NamespacedName{Namespace: l.gs.Namespace, Name: cmp.Or(l.gs.Spec.ServiceAccountName, l.options.DefaultServiceAccount)}
	clients.NameMissingAccount(ctx, l.own, account, l.outcome.Problems)
	// Before the status is written: a judge that reads the new status has to know it.
	l.synced(l.name, l.outcome.LimitedFor(l.gs))
	err = l.report.Conclude(ctx, &l.outcome)
	if err == nil {
		l.keep.passed = passed{} // the status has it
	}
	l.keep.reported = l.report.Known
	l.remember(l.name, l.keep)
	return err
}

// requeueOnceFree queues the source when there may be a place to render. The server need not
// be asked again for that sync.
func (l *look) requeueOnceFree(busy desired.Busy) {
	l.keep.awaiting = sharedFor(l.gs.Spec.IntervalOrDefault())
	l.remember(l.name, l.keep)
	l.log.V(1).Info("looking again", "because", busy.Error())
	free, request := busy.Free(), reconcile.Request{NamespacedName: l.name}
	go func() {
		<-free
		l.queue.Add(request)
	}()
}

// result maps the end of a sync to the time of the next one.
func (l *look) result(err error) (reconcile.Result, error) {
	switch {
	case isConflict(err):
		return reconcile.Result{RequeueAfter: outcome.AtOnce}, nil
	case err != nil:
		return reconcile.Result{}, err
	case l.rendering.Busy() != nil:
		return reconcile.Result{RequeueAfter: l.gs.Spec.IntervalOrDefault()}, nil // or once there is a place
	case l.again:
		return reconcile.Result{RequeueAfter: outcome.AtOnce}, nil
	case len(l.outcome.Problems) == 0 && len(l.outcome.Awaited) > 0:
		return reconcile.Result{RequeueAfter: min(l.awaiting(), outcome.Patience(l.gs, v1alpha1.ConditionReady, outcome.RetryWithin))}, nil
	case len(l.outcome.Waiting) > 0:
		return reconcile.Result{RequeueAfter: outcome.Patience(l.gs, v1alpha1.ConditionReady, outcome.RetryWithin)}, nil
	case l.gs.DeletionTimestamp != nil && len(l.outcome.Problems) > 0:
		return reconcile.Result{RequeueAfter: outcome.RetryWithin}, nil
	case l.gs.DeletionTimestamp != nil, l.outcome.Suspended:
		return reconcile.Result{}, nil
	}
	next := l.outcome.Next(l.gs)
	if !l.settled() {
		return reconcile.Result{RequeueAfter: next}, nil
	}
	until := time.Now().Add(next)
	l.keep.rest = &atRest{
		uid: l.gs.UID, generation: l.gs.Generation, asked: requests.Asked(l.gs), applied: l.gs.Status.AppliedCommit,
		remote: l.remoteNow, since: l.since, approvals: l.approvals,
		unready: entriesOf(l.outcome.Unready), interval: l.gs.Spec.IntervalOrDefault(), until: until,
		version: l.gs.ResourceVersion, footprint: l.footprint, whole: time.Now(),
	}
	l.remember(l.name, l.keep)
	return l.restUntil(until), nil
}

// settled reports whether nothing is left to do except to sync again.
func (l *look) settled() bool {
	o := &l.outcome
	return !l.gs.Spec.Ref.IsPinned() && len(o.Problems) == 0 && len(o.Intents) == 0 && len(o.Ignored) == 0 && !l.unclear &&
		l.keep.desired != nil && !l.keep.desired.HasBases &&
		l.keep.desired.Commit == l.gs.Status.AppliedCommit && l.gs.Status.ObservedGeneration == l.gs.Generation
}

// restUntil is when to sync an up-to-date source next.
func (l *look) restUntil(until time.Time) reconcile.Result {
	next := max(time.Until(until), time.Millisecond)
	if len(l.outcome.Unready) > 0 {
		next = min(next, outcome.Patience(l.gs, v1alpha1.ConditionReady, outcome.RetryWithin))
	}
	return reconcile.Result{RequeueAfter: next}
}

// sweeper sweeps once, at the start.
func sweeper(ms *repository.Cache, c client.Reader, s labels.Selector) manager.Runnable {
	return manager.RunnableFunc(func(ctx context.Context) error {
		log := logr.FromContextOrDiscard(ctx)
		var list v1alpha1.GitSourceList
		options := &client.ListOptions{LabelSelector: s}
		if err := c.List(ctx, &list, options); err != nil {
			log.Error(err, "mirrors of former GitSources stay until the next start")
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
			log.Info("removed mirrors", "count", len(removed), "because", "no GitSource uses them")
		}
		return nil
	})
}

// isConflict tells a write that was decided on an older version.
func isConflict(err error) bool { return apierrors.IsConflict(err) }

// authorIn is the author of a commit; empty where it is not to be read.
func authorIn(s storer.EncodedObjectStorer, commit plumbing.Hash) string {
	c, err := object.GetCommit(s, commit)
	if err != nil {
		return ""
	}
	return gitobject.AuthorOf(c)
}
