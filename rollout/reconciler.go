package rollout

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/go-logr/logr"
	appsv1 "k8s.io/api/apps/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/discovery"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/controller"
	"sigs.k8s.io/controller-runtime/pkg/handler"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	"github.com/tranche-dev/tranche/plan"
	"github.com/tranche-dev/tranche/plan/v1alpha1"
	"github.com/tranche-dev/tranche/rollout/account"
	"github.com/tranche-dev/tranche/rollout/analysis"
	"github.com/tranche-dev/tranche/rollout/clock"
	"github.com/tranche-dev/tranche/rollout/engine"
	"github.com/tranche-dev/tranche/rollout/failures"
	"github.com/tranche-dev/tranche/rollout/fence"
	"github.com/tranche-dev/tranche/rollout/fromgit"
	"github.com/tranche-dev/tranche/rollout/impersonate"
	"github.com/tranche-dev/tranche/rollout/kubeversion"
	"github.com/tranche-dev/tranche/rollout/managedfields"
	"github.com/tranche-dev/tranche/rollout/metrics"
	"github.com/tranche-dev/tranche/rollout/notify"
	"github.com/tranche-dev/tranche/rollout/podcauses"
	"github.com/tranche-dev/tranche/rollout/share"
	"github.com/tranche-dev/tranche/rollout/startup"
	"github.com/tranche-dev/tranche/rollout/tell"
	"github.com/tranche-dev/tranche/rollout/templates"
	"github.com/tranche-dev/tranche/rollout/transition"
	"github.com/tranche-dev/tranche/rollout/trials"
)

// Options of the BatchRelease reconciler.
type Options struct {
	// Concurrent is how many releases of a namespace are looked at at the same time. Twice as
	// many are in all, and of a further namespace at most as many as it leaves free.
	Concurrent int
	// DefaultServiceAccount is impersonated where a BatchRelease names none;
	// empty: the controller's own account is used.
	DefaultServiceAccount string
	// Selector names, by their labels, the BatchReleases to look at; nil: all.
	Selector labels.Selector
	// FromGit is that of [CacheOptions]; nil: the API server is asked who has written a BatchRelease.
	FromGit *fromgit.Releases
	// Notifier sends the transitions of releases to receivers; nil: to none.
	Notifier *notify.Notifier
	// Analysis are the providers of metrics. Add sets its client and its clocks.
	Analysis analysis.Options
	// Now is the clock; nil: time.Now.
	Now func() time.Time
	// Uptime is a time that no one can set, from any moment on. A pause lasts by it. nil:
	// the monotonic clock of the process.
	Uptime func() time.Duration
	// Since tells the age of a time that the cluster has written, as [clock.Server.Since]; nil: by Now.
	Since func(t time.Time) time.Duration
}

// Add adds the BatchRelease reconciler to a manager, whose cache must be as
// [CacheOptions] says.
func Add(mgr ctrl.Manager, o Options) error {
	if o.Now == nil {
		o.Now = time.Now
	}
	if o.Uptime == nil {
		began := time.Now()
		o.Uptime = func() time.Duration { return time.Since(began) }
	}
	if o.Since == nil {
		o.Since = func(t time.Time) time.Duration { return o.Now().Sub(t) }
	}
	if o.FromGit == nil {
		o.FromGit = &fromgit.Releases{}
	}
	r, err := newReconciler(mgr, o)
	if err != nil {
		return err
	}
	if err := addIndexes(mgr); err != nil {
		return err
	}
	concurrent := 2 * max(1, o.Concurrent)
	shared := share.New(r, concurrent)
	err = ctrl.NewControllerManagedBy(mgr).
		Named("batchrelease").
		For(&v1alpha1.BatchRelease{}).
		Watches(&v1alpha1.BatchRelease{}, handler.EnqueueRequestsFromMapFunc(r.plans.rivals)).
		Watches(&appsv1.Deployment{}, handler.EnqueueRequestsFromMapFunc(r.plans.ofDeployment)).
		Watches(&appsv1.ReplicaSet{}, r.plans.gathered()).
		Watches(&appsv1.ControllerRevision{}, handler.EnqueueRequestsFromMapFunc(r.plans.ofOwned)).
		WatchesRawSource(r.measuring.Source()).
		WatchesRawSource(shared.Source()).
		WithOptions(controller.Options{MaxConcurrentReconciles: concurrent, RateLimiter: failures.RateLimiter()}).
		Complete(shared)
	if err != nil {
		return fmt.Errorf("adding the BatchRelease reconciler: %w", err)
	}
	return nil
}

// newReconciler makes the reconciler with what it remembers.
func newReconciler(mgr ctrl.Manager, o Options) (*reconciler, error) {
	version, err := clusterVersion(mgr)
	if err != nil {
		return nil, err
	}
	c, err := impersonate.NewClient(mgr)
	if err != nil {
		return nil, err
	}
	o.Analysis.Now, o.Analysis.Uptime = o.Now, o.Uptime
	measuring, err := analysis.Add(mgr, o.Analysis, o.DefaultServiceAccount)
	if err != nil {
		return nil, err
	}
	plans, teller := planIndex{c}, tell.New(mgr.GetEventRecorder("tranche"), o.Now)
	sources := startup.New(o.Uptime)
	return &reconciler{
		version:   version,
		reader:    mgr.GetAPIReader(),
		Client:    c,
		Teller:    teller,
		plans:     plans,
		templates: templates.New(),
		account:   account.New(mgr.GetAPIReader(), c, o.Now),
		byDefault: o.DefaultServiceAccount,
		failures:  failures.New(),
		trials:    trials.New[*replicaSetChanged](),
		growths:   &growths{inVain: trials.New[*failures.GrowthRefused]()},
		pods:      podcauses.New(mgr.GetAPIReader(), o.Now, o.Since),
		fence:     fence.New(mgr.GetAPIReader()),
		startup:   sources,
		abandonment: &abandonment{
			Client: c, Teller: teller, reader: mgr.GetAPIReader(), plans: plans, startup: sources,
			handBacks: &handBacks{of: map[types.NamespacedName]sentEvent{}}, now: o.Now, selector: o.Selector,
		},
		fromGit:   o.FromGit,
		notifier:  o.Notifier,
		selector:  o.Selector,
		now:       o.Now,
		clock:     clock.New(o.Now, o.Uptime),
		measuring: measuring,
	}, nil
}

// addIndexes adds to the manager's cache the indexes by which the reconciler reads it.
func addIndexes(mgr ctrl.Manager) error {
	for _, index := range []struct {
		of    client.Object
		field string
		by    client.IndexerFunc
	}{
		{&v1alpha1.BatchRelease{}, v1alpha1.FieldWorkload, indexByWorkload},
		{&appsv1.ReplicaSet{}, indexOwner, indexByOwner},
		{&appsv1.ControllerRevision{}, indexOwner, indexByOwners},
	} {
		if err := mgr.GetFieldIndexer().IndexField(context.Background(), index.of, index.field, index.by); err != nil {
			return fmt.Errorf("indexing %T by %s: %w", index.of, index.field, err)
		}
	}
	return nil
}

// clusterVersion reads the version of the cluster, and lets the manager read it again.
func clusterVersion(mgr ctrl.Manager) (*kubeversion.Version, error) {
	d, err := discovery.NewDiscoveryClientForConfig(mgr.GetConfig())
	if err != nil {
		return nil, fmt.Errorf("making a discovery client: %w", err)
	}
	v, err := kubeversion.Read(d)
	if err != nil {
		return nil, err
	}
	if err := mgr.Add(v); err != nil {
		return nil, fmt.Errorf("adding the version of the cluster: %w", err)
	}
	return v, nil
}

type reconciler struct {
	client.Client
	reader client.Reader // past the cache, which has no managedFields and no pods
	*tell.Teller
	plans       planIndex
	templates   *templates.Cache
	account     *account.Account
	byDefault   string // the account to write as where a release names none
	failures    *failures.Count
	trials      *trials.Trials[*replicaSetChanged]
	growths     *growths
	pods        *podcauses.Finder
	startup     *startup.Plans
	abandonment *abandonment
	notifier    *notify.Notifier
	selector    labels.Selector
	version     *kubeversion.Version
	now         func() time.Time
	clock       *clock.Clock
	contests    contests
	fromGit     *fromgit.Releases
	fence       *fence.Fence
	measuring   *analysis.Measuring
}

// Reconcile is one round: observe, decide, act, and write the status that is
// then true.
func (r *reconciler) Reconcile(ctx context.Context, req reconcile.Request) (reconcile.Result, error) {
	var br v1alpha1.BatchRelease
	if err := r.Get(ctx, req.NamespacedName, &br); err != nil {
		if apierrors.IsNotFound(err) {
			r.forget(req.NamespacedName)
			return r.abandoned(ctx, req.NamespacedName)
		}
		return reconcile.Result{}, fmt.Errorf("getting BatchRelease %s: %w", req, err)
	}
	if r.selector != nil && !r.selector.Matches(labels.Set(br.Labels)) {
		r.forget(req.NamespacedName) // another controller's, by now
		return reconcile.Result{}, nil
	}
	if isGone(&br) {
		r.forget(req.NamespacedName)
		if result, err := r.abandoned(ctx, req.NamespacedName); err != nil || !result.IsZero() {
			return result, err
		}
		return r.result(ctx, req.NamespacedName, 0, r.abandonment.recordHandBack(ctx, &br))
	}
	deployment := types.NamespacedName{Namespace: br.Namespace, Name: br.Spec.WorkloadRef.Name}
	r.startup.Saw(deployment)
	ctx = impersonate.ForDeployment(ctx, deployment)
	o, wait, err := r.round(ctx, &br)
	var changed *replicaSetChanged
	if errors.As(err, &changed) {
		r.trials.Note(&br, changed, r.now())
	}
	if failures.Refused(err) || changed != nil {
		return r.tellRefused(ctx, &br, o, err)
	}
	switch r.failures.Note(req.NamespacedName, err, r.now()) {
	case failures.Persists:
		return r.tellRefused(ctx, &br, o, err)
	case failures.Begins:
		r.tellFailing(ctx, &br, err)
	case failures.Recovered:
		logr.FromContextOrDiscard(ctx).Info("Requests pass again", "revision", br.Status.UpdateRevision, "step", br.Status.CurrentStepIndex)
	case failures.None, failures.GoesOn:
	}
	return r.result(ctx, req.NamespacedName, wait, err)
}

// round observes, decides and writes. It returns what it has observed, also where it
// fails, and when to do so again.
func (r *reconciler) round(ctx context.Context, br *v1alpha1.BatchRelease) (o engine.Observed, wait time.Duration, err error) {
	if o, err = r.observe(ctx, br); err != nil {
		return o, 0, err
	}
	var kept keptFailure
	if o.Deployment != nil {
		if kept, err = r.failureOf(ctx, br, o.Deployment); err != nil {
			return o, 0, err
		}
		o.Release = kept.recall(br)
	}
	if changed, waits := r.trials.Last(br, r.now()); waits && o.Refused == nil {
		o.Refused, o.RefusedReason, o.CreationRefused = changed, v1alpha1.ReasonWriteRefused, !changed.resized
	}
	o.Contested, o.ContestedBy = r.contests.due(client.ObjectKeyFromObject(br), r.now())
	o.Measured = r.measuring.Answers(br)
	o, d, err := r.decide(ctx, o)
	if err != nil {
		return o, 0, err
	}
	a := &actor{Client: r.Client, as: r.asAccount(ctx, o.Release), br: o.Release, d: o.Deployment}
	if err := r.growths.try(a, d, r.now()); err != nil {
		return o, 0, cmp.Or(r.resizeRest(ctx, o, err), err)
	}
	then, next, follows := r.lookAhead(ctx, o, d)
	follows = follows && r.growths.try(a, next, r.now()) == nil
	written, err := r.write(ctx, o, d, false)
	if err == nil && follows {
		*br = *written
		then.Release.ObjectMeta = written.ObjectMeta // its times are not rounded to seconds, as those of the next status
		o, d = then, next
		_, err = r.write(ctx, o, d, true)
	}
	if err != nil {
		if growth, ok := errors.AsType[*failures.GrowthRefused](err); ok {
			r.growths.note(br, growth, r.now())
		}
		return o, 0, cmp.Or(r.resizeRest(ctx, o, err), err)
	}
	r.measuring.Ask(br, d.Measure) // no sooner: the answers that are in the status now are forgotten
	return o, untilNext(d), r.keepFailure(ctx, o, &d.Status, kept)
}

// decide decides on what was observed. It adds why pods are not ready, and has the API server
// try what the decision leads to. If that is refused, it decides again. A hand-back that is
// decided on then is tried, too.
func (r *reconciler) decide(ctx context.Context, o engine.Observed) (engine.Observed, engine.Decision, error) {
	d, err := r.explain(ctx, o, r.clock.Decide(o))
	if err != nil {
		return o, d, err
	}
	if d.NeedsPods {
		if o.Pods, err = r.pods.Find(ctx, &o); err != nil {
			return o, d, err
		}
		d = r.clock.Decide(o)
	}
	if d.NeedsReady {
		if o.Ready, err = r.pods.Ready(ctx, &o); err != nil {
			return o, d, err
		}
		d = r.clock.Decide(o)
	}
	again := false
	for i, t := range []struct {
		try    func(context.Context, engine.Observed, engine.Decision) (refused, err error)
		reason string
	}{
		{r.tryHandBack, v1alpha1.ReasonHandBackRefused},
		{r.tryHold, v1alpha1.ReasonWriteRefused},
		{r.tryHandBack, v1alpha1.ReasonHandBackRefused},
	} {
		if i == 2 && !again {
			break // it has been tried
		}
		refused, err := t.try(ctx, o, d)
		if err != nil {
			return o, d, err
		}
		if refused != nil {
			o.Refused, o.RefusedReason, o.CreationRefused = refused, t.reason, resizesPass(refused)
			d, again = r.clock.Decide(o), true
		}
	}
	return o, d, nil
}

// lookAhead returns what follows at once on a decision that only writes the status, by the
// same observation. The write of the status is then its fence: it fails unless the
// BatchRelease is the one that was observed. Dry runs come before, so that no request is
// between the two. If one is refused, the next round finds that out by itself. A hand-back
// waits for the next round: the native controller is about to count the last pods.
func (r *reconciler) lookAhead(ctx context.Context, o engine.Observed, d engine.Decision) (engine.Observed, engine.Decision, bool) {
	measures := o.Release.Spec.Strategy.Analysis != nil // what is asked for waits until the answers are in the status
	if len(d.Actions) > 0 || o.Refused != nil || measures || !transition.GoesOn(&o.Release.Status, &d.Status) {
		return o, d, false
	}
	br := o.Release.DeepCopy()
	br.Status = d.Status
	o.Release, o.Pods = br, nil
	o, next, err := r.decide(ctx, o)
	return o, next, err == nil && o.Refused == nil && len(next.Actions) > 0
}

func (r *reconciler) forget(release types.NamespacedName) {
	r.templates.Forget(release)
	r.failures.Forget(release)
	r.trials.Forget(release)
	r.growths.forget(release)
	r.pods.Forget(release)
	r.clock.Forget(release)
	r.contests.forget(release)
	r.fromGit.Forget(release)
	r.fence.Forget(release)
	r.measuring.Forget(release)
	r.Forget(release)
	metrics.Forget(release)
}

// tellFailing says at the first request that fails, for a reason that may pass, what
// failed. The status says so after a minute: it is written by the same API server.
func (r *reconciler) tellFailing(ctx context.Context, br *v1alpha1.BatchRelease, err error) {
	logr.FromContextOrDiscard(ctx).Error(err, "Request failed", "revision", br.Status.UpdateRevision, "step", br.Status.CurrentStepIndex)
	r.Tell(br, engine.Event{Warning: true, Reason: v1alpha1.ReasonRequestFailed,
		Message: err.Error() + "; it is tried again, less and less often"})
}

// tellRefused says so where people look: in the status and in an event. o is what the
// round has observed.
func (r *reconciler) tellRefused(ctx context.Context, br *v1alpha1.BatchRelease, o engine.Observed, err error) (reconcile.Result, error) {
	o.Release = br
	err = r.account.Explain(ctx, err)
	status, wait := r.clock.Refused(o, err)
	if br.Status.Reason != status.Reason {
		r.Tell(br, engine.Event{Warning: true, Reason: status.Reason, Message: status.Message})
		logr.FromContextOrDiscard(ctx).Error(err, "Write refused")
	}
	if equality.Semantic.DeepEqual(br.Status, status) {
		metrics.Record(br, status, r.now()) // a leader that has just begun has no metrics of it yet
		return reconcile.Result{RequeueAfter: wait}, nil
	}
	now := br.DeepCopy()
	now.Status = status
	if err := r.Status().Update(ctx, now, client.FieldOwner(v1alpha1.ManagerRollout)); err != nil {
		if failures.Refused(err) { // the status cannot say it: the metrics and the log do
			metrics.Record(br, status, r.now())
			logr.FromContextOrDiscard(ctx).Error(err, "Status not written", "reason", status.Reason, "because", status.Message)
		}
		return r.result(ctx, client.ObjectKeyFromObject(br), wait, err)
	}
	r.took(br, status)
	return reconcile.Result{RequeueAfter: wait}, nil
}

// took tells metrics and people of a status that has been written.
func (r *reconciler) took(br *v1alpha1.BatchRelease, status v1alpha1.BatchReleaseStatus) {
	metrics.Record(br, status, r.now())
	for _, t := range transition.Of(br, status, r.now()) {
		r.notifier.Tell(t)
	}
}

// result returns when to reconcile again, by how a round ended. If an object is not as it
// was observed, that is after a while that doubles each time.
func (r *reconciler) result(ctx context.Context, release types.NamespacedName, wait time.Duration, err error) (reconcile.Result, error) {
	if apierrors.IsConflict(err) || errors.Is(err, failures.ErrChanged) {
		logr.FromContextOrDiscard(ctx).V(1).Info("Reconciling again", "because", err.Error())
		return reconcile.Result{RequeueAfter: r.failures.Backoff(release)}, nil
	}
	return reconcile.Result{RequeueAfter: wait}, err
}

// write makes the actions in their order, then the status. The first write that fails ends
// the round. fenced: the BatchRelease was written just before, as it was observed. write
// returns it as it is then.
func (r *reconciler) write(ctx context.Context, o engine.Observed, d engine.Decision, fenced bool) (*v1alpha1.BatchRelease, error) {
	log := logr.FromContextOrDiscard(ctx).WithValues("revision", d.Status.UpdateRevision, "step", d.Status.CurrentStepIndex)
	if err := r.fence.Writes(ctx, o, d.Actions, fenced); err != nil {
		return nil, err
	}
	culprit := r.culprit(ctx, o, d)
	if err := r.act(ctx, o, d.Actions, log); err != nil {
		return nil, err
	}
	br := o.Release
	if !equality.Semantic.DeepEqual(br.Status, d.Status) {
		br = br.DeepCopy()
		br.Status = d.Status
		// An API server whose CustomResourceDefinition is older would drop a field
		// silently, and with it what the next round has to know. [reconciler.tellRefused]
		// writes what it knows.
		strictly := client.FieldValidation(metav1.FieldValidationStrict)
		if err := r.Status().Update(ctx, br, client.FieldOwner(v1alpha1.ManagerRollout), strictly); err != nil {
			return nil, fmt.Errorf("writing the status of BatchRelease %s/%s: %w", br.Namespace, br.Name, plan.ExplainUnknownField(err))
		}
		if transition.Moved(&o.Release.Status, &d.Status) {
			log.Info("Decided", "phase", d.Status.Phase, "state", d.Status.CurrentStepState, "reason", d.Status.Reason, "because", d.Status.Message)
		}
	}
	r.took(o.Release, d.Status)
	if o.Deployment != nil {
		r.Sizes(client.ObjectKeyFromObject(br), o.Deployment, d.Status.CurrentStepState != v1alpha1.StepUpgrade)
	}
	if drifted := r.Decided(br, o.Deployment, d.Events, culprit); drifted && !engine.Held(o.Deployment) {
		r.contests.reverted(client.ObjectKeyFromObject(br), r.now(), culprit)
	}
	return br, nil
}

// resizeRest lets the other ReplicaSets that are there follow the size of the Deployment.
// The API server has refused to make one, or to let the update revision's grow.
func (r *reconciler) resizeRest(ctx context.Context, o engine.Observed, refused error) error {
	var creation *failures.CreationRefused
	var growth *failures.GrowthRefused
	switch {
	case errors.As(refused, &creation):
		o.Refused, o.RefusedReason, o.CreationRefused = refused, v1alpha1.ReasonWriteRefused, true
	case errors.As(refused, &growth):
		o.GrowthRefused = true
		r.growths.refused.Store(client.ObjectKeyFromObject(o.Release), nil)
	default:
		return nil
	}
	d := r.clock.Decide(o)
	for _, action := range d.Actions { // the hold stays: what is refused is tried again each minute
		resize, ok := action.(engine.Resize)
		_, creates := action.(engine.CreateReplicaSet)
		if !ok && (!creates || growth == nil) || ok && growth.Covers(resize.ReplicaSet, resize.To) {
			return nil
		}
	}
	if err := r.fence.Writes(ctx, o, d.Actions, false); err != nil {
		return err
	}
	return r.act(ctx, o, d.Actions, logr.FromContextOrDiscard(ctx))
}

// act makes the actions. The first that fails ends the round.
func (r *reconciler) act(ctx context.Context, o engine.Observed, actions []engine.Action, log logr.Logger) error {
	a := &actor{
		Client: r.Client, reader: r.reader, as: r.asAccount(ctx, o.Release), br: o.Release, d: o.Deployment,
		minor: o.Minor, selector: r.selector,
	}
	release := client.ObjectKeyFromObject(o.Release)
	for _, action := range actions {
		wrote, err := a.act(ctx, action)
		if err != nil {
			return fmt.Errorf("Deployment %s/%s: %s: %w", o.Deployment.Namespace, o.Deployment.Name, action, err)
		}
		warnOfChange(r.Teller, a, action, o.Release, o.Deployment)
		if !wrote {
			continue
		}
		log.Info("Action written", "action", action.String(), "because", action.Because())
		r.Written(release, o.Deployment, action)
		switch action := action.(type) {
		case engine.CreateReplicaSet:
			r.trials.Forget(release) // it passes again
		case engine.Resize:
			r.growths.passed(o.Release, action, r.now())
		}
	}
	return nil
}

// culprit returns the other field managers of a Deployment that has drifted, and their
// fields, before the controller takes the fields from them.
func (r *reconciler) culprit(ctx context.Context, o engine.Observed, d engine.Decision) string {
	if !slices.ContainsFunc(d.Events, func(e engine.Event) bool { return e.Reason == v1alpha1.ReasonDriftCorrected }) {
		return ""
	}
	var live appsv1.Deployment
	if err := r.reader.Get(ctx, client.ObjectKeyFromObject(o.Deployment), &live); err != nil {
		return "" // the event is worth telling without it
	}
	var said strings.Builder
	for _, e := range live.ManagedFields {
		if e.Manager == v1alpha1.ManagerRollout || e.Manager == v1alpha1.ManagerGitSync || e.Subresource != "" {
			continue
		}
		if fields := managedfields.OfRelease(e); len(fields) > 0 {
			said.WriteString("; " + strings.Join(fields, ", ") + " was changed by " + e.Manager)
		}
	}
	return said.String()
}

// abandoned is the round of a plan that is gone.
func (r *reconciler) abandoned(ctx context.Context, release types.NamespacedName) (reconcile.Result, error) {
	wait, err := r.abandonment.abandon(ctx, release)
	return r.result(ctx, release, wait, err)
}

// asAccount returns the context in which the Deployment and the ReplicaSets of a
// release are written.
func (r *reconciler) asAccount(ctx context.Context, br *v1alpha1.BatchRelease) context.Context {
	return impersonate.As(ctx, br.Namespace, cmp.Or(br.Spec.ServiceAccountName, r.byDefault))
}

// pauseInterval is the time after which a release whose pause or analysis runs is reconciled again.
// Its status then follows a jump, before the process ends and the jump is forgotten.
const pauseInterval = time.Minute

// untilNext returns when to look again after a round.
func untilNext(d engine.Decision) time.Duration {
	if d.Wait > 0 && (d.Status.Reason == v1alpha1.ReasonWaitingForPause || d.Status.Reason == v1alpha1.ReasonWaitingForAnalysis) {
		return min(d.Wait, pauseInterval)
	}
	return d.Wait
}
