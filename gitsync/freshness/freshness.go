// Package freshness says which sources are no longer synced.
//
// It runs in the leader and in standbys. The reconciler tells it of each sync.
package freshness

import (
	"bufio"
	"cmp"
	"context"
	"fmt"
	"maps"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/go-logr/logr"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/types"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/tranche-dev/tranche/gitsync/metrics"
	"github.com/tranche-dev/tranche/plan"
	"github.com/tranche-dev/tranche/plan/v1alpha1"
)

// Options are about the sources that are no longer synced. The zero value keeps
// the times of syncs in this process alone.
type Options struct {
	// Ledger is the ConfigMap in which the leader writes the times of the last syncs, one
	// for each shard; empty: none.
	Ledger types.NamespacedName
	// Election reports whether this process leads, and whether any process does; nil: this
	// one is the only one.
	Election func() (leads, held bool)
	// Every is how often the sources are judged; 0: every ten seconds.
	Every time.Duration
	// Now is the clock; nil: time.Now.
	Now func() time.Time
}

const (
	// judgeEvery is how often sources are judged.
	judgeEvery = 10 * time.Second
	// ledgerEvery is how often the ledger is written at most.
	ledgerEvery = 30 * time.Second
	// staleAfter is how many intervals a source may be without a sync.
	staleAfter = 3
	// ledgerKey is the key of the ConfigMap: a line for each source, with its time.
	ledgerKey = "syncs"
)

// Judge knows when each source was last synced, and says so of those that have not
// been for three intervals. The leader judges by what it remembers. A standby judges by
// the ledger, once no process renews the lease: Ready=True is not said any more of what
// no controller looks at.
type Judge struct {
	Options
	selector labels.Selector
	own      client.Client // has no cache: that of ConfigMaps would need the right to list all of them
	status   client.Client
	log      logr.Logger

	mu      sync.Mutex
	synced  map[types.NamespacedName]time.Time
	excused map[types.NamespacedName]time.Time // until when a server is not to be asked
	waiting map[types.NamespacedName]time.Time // since when the last sync has waited for a place to render

	// of the loop alone
	leads   bool      // it led when it judged last
	began   time.Time // since when it leads
	written time.Time // when it wrote the ledger last
}

// Add adds the judge of sources to a manager, in which it also runs while another process
// leads. It judges those that the selector selects; nil: all.
func Add(mgr ctrl.Manager, o Options, selector labels.Selector) (*Judge, error) {
	own, err := client.New(mgr.GetConfig(), client.Options{Scheme: mgr.GetScheme(), Mapper: mgr.GetRESTMapper()})
	if err != nil {
		return nil, fmt.Errorf("making a client for the times of syncs: %w", err)
	}
	f := &Judge{
		Options: o, selector: selector, own: own, status: mgr.GetClient(), log: mgr.GetLogger().WithName("freshness"),
		synced: map[types.NamespacedName]time.Time{}, excused: map[types.NamespacedName]time.Time{},
		waiting: map[types.NamespacedName]time.Time{},
	}
	if f.Now == nil {
		f.Now = time.Now
	}
	if f.Election == nil {
		f.Election = func() (bool, bool) { return true, true }
	}
	if err := mgr.Add(f); err != nil {
		return nil, fmt.Errorf("adding the judge of sources: %w", err)
	}
	return f, nil
}

// NeedLeaderElection is false: a standby judges, too.
func (f *Judge) NeedLeaderElection() bool { return false }

// Start judges until the manager ends.
func (f *Judge) Start(ctx context.Context) error {
	tick := time.NewTicker(cmp.Or(f.Every, judgeEvery))
	defer tick.Stop()
	for { // the first time after a while, in which the election may end
		select {
		case <-ctx.Done():
			return nil
		case <-tick.C:
		}
		if err := f.round(ctx); err != nil && ctx.Err() == nil {
			f.log.Info("Source not judged", "because", err.Error())
		}
	}
}

// Synced notes that a source was synced now, and for how long its server is not to be asked.
func (f *Judge) Synced(source types.NamespacedName, excused time.Duration) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.synced[source], f.excused[source] = f.Now(), f.Now().Add(excused)
	delete(f.waiting, source)
}

// Waits notes that a sync found no place to render, and that the source waits for one.
func (f *Judge) Waits(source types.NamespacedName) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if _, ok := f.waiting[source]; !ok {
		f.waiting[source] = f.Now()
	}
}

// excusedUntil is until when the server of a source is not to be asked.
func (f *Judge) excusedUntil(source types.NamespacedName) time.Time {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.excused[source]
}

// round is one judgement.
func (f *Judge) round(ctx context.Context) error {
	leads, held := f.Election()
	if !leads && held {
		f.leads = false
		metrics.ForgetAges()
		return nil
	}
	ledger, err := f.read(ctx)
	if err != nil {
		return err
	}
	if leads && !f.leads {
		f.leads, f.began = true, f.Now()
		f.recall(ledger)
	}
	f.leads = leads
	var sources v1alpha1.GitSourceList
	if err := f.status.List(ctx, &sources, client.DisableReadYourWritesConsistency); err != nil {
		return fmt.Errorf("listing the GitSources: %w", err)
	}
	known, since := ledger.syncs, ledger.written
	if leads {
		known, since = f.known(&sources), f.began
		if err := f.write(ctx, ledger, known); err != nil {
			return err
		}
	}
	for i := range sources.Items {
		if err := f.judge(ctx, &sources.Items[i], known, since, leads); err != nil {
			return err
		}
	}
	return nil
}

// recall takes the times of an earlier leader for sources that this one has not synced.
func (f *Judge) recall(l *ledger) {
	f.mu.Lock()
	defer f.mu.Unlock()
	for name, at := range l.syncs {
		if _, ok := f.synced[name]; !ok {
			f.synced[name] = at
		}
	}
}

// known returns the times of the sources that are there, and forgets the others.
func (f *Judge) known(sources *v1alpha1.GitSourceList) map[types.NamespacedName]time.Time {
	f.mu.Lock()
	defer f.mu.Unlock()
	there := map[types.NamespacedName]bool{}
	for i := range sources.Items {
		there[client.ObjectKeyFromObject(&sources.Items[i])] = true
	}
	for _, times := range []map[types.NamespacedName]time.Time{f.synced, f.excused, f.waiting} {
		maps.DeleteFunc(times, func(name types.NamespacedName, _ time.Time) bool { return !there[name] })
	}
	return maps.Clone(f.synced)
}

// judge says of a source that it is not synced any more, where that is so. A leader gives
// each source the time that it needs for the first sync after its start. A standby gives
// each the time by which the ledger may be old.
func (f *Judge) judge(
	ctx context.Context, gs *v1alpha1.GitSource, known map[types.NamespacedName]time.Time, since time.Time, leads bool,
) error {
	name := client.ObjectKeyFromObject(gs)
	if gs.Spec.Suspend || gs.DeletionTimestamp != nil || f.selector != nil && !f.selector.Matches(labels.Set(gs.Labels)) {
		metrics.ForgetAge(name)
		return nil
	}
	last, ok := known[name]
	if !ok {
		last = gs.CreationTimestamp.Time
	}
	allowed, from := allowedAge(&gs.Spec), last
	if !leads {
		allowed += ledgerEvery
	}
	if (leads || !ok) && since.After(from) {
		from = since
	}
	if until := f.excusedUntil(name); until.After(from) {
		from = until
	}
	stale := f.Now().Sub(from) > allowed
	metrics.Age(name, f.Now().Sub(last), stale)
	if !stale {
		return nil
	}
	return f.say(ctx, gs, last, ok)
}

// allowedAge is how old the last sync of a source may be. It is three intervals, and at
// least the time that one exchange with the server may take, plus the age of the
// ledger.
func allowedAge(spec *v1alpha1.GitSourceSpec) time.Duration {
	return max(staleAfter*spec.IntervalOrDefault(), spec.TimeoutOrDefault()+ledgerEvery)
}

// say writes the conditions of a source that is not synced any more. The next sync writes
// its own.
func (f *Judge) say(ctx context.Context, gs *v1alpha1.GitSource, last time.Time, ever bool) error {
	message := "no controller has synced it since it was created"
	if ever {
		message = "no controller has synced it since " + last.UTC().Format(time.RFC3339)
	}
	message += fmt.Sprintf("; spec.interval is %s. %s", gs.Spec.IntervalOrDefault(), f.advice(client.ObjectKeyFromObject(gs)))
	gs = gs.DeepCopy()
	changed := false
	for _, c := range []string{v1alpha1.ConditionReady, v1alpha1.ConditionInSync} {
		changed = meta.SetStatusCondition(&gs.Status.Conditions, metav1.Condition{
			Type: c, Status: metav1.ConditionUnknown, Reason: v1alpha1.ReasonNotSynced, Message: message,
			ObservedGeneration: gs.Status.ObservedGeneration,
		}) || changed
	}
	if !changed {
		return nil
	}
	err := f.status.Status().Update(ctx, gs, client.FieldOwner(v1alpha1.ManagerGitSync))
	if apierrors.IsConflict(err) || apierrors.IsNotFound(err) {
		return nil // it has changed since: the next judgement sees how
	}
	if err != nil {
		return fmt.Errorf("writing the status of GitSource %s/%s: %w", gs.Namespace, gs.Name, err)
	}
	f.log.Info("Status of the source written", "source", gs.Namespace+"/"+gs.Name, "reason", v1alpha1.ReasonNotSynced, "because", message)
	return nil
}

// advice says what to look at for a source that is not synced. A standby knows of no waiting.
func (f *Judge) advice(source types.NamespacedName) string {
	f.mu.Lock()
	defer f.mu.Unlock()
	if since, ok := f.waiting[source]; ok && f.leads {
		return "It has waited for a place to render since " + since.UTC().Format(time.RFC3339) +
			". See which other sources render for long, and --concurrent-renders of the controller"
	}
	return "See whether a controller runs that selects it, and its log"
}

// ledger is the ConfigMap with the times of syncs.
type ledger struct {
	object  *corev1.ConfigMap // nil: it is not there
	syncs   map[types.NamespacedName]time.Time
	written time.Time // the latest of them
}

func (f *Judge) read(ctx context.Context) (*ledger, error) {
	l := &ledger{syncs: map[types.NamespacedName]time.Time{}}
	if f.Ledger.Name == "" {
		return l, nil
	}
	var cm corev1.ConfigMap
	err := f.own.Get(ctx, f.Ledger, &cm)
	if apierrors.IsNotFound(err) {
		return l, nil
	}
	if err != nil {
		return nil, fmt.Errorf("reading ConfigMap %s: %w", f.Ledger, err)
	}
	l.object = &cm
	for s := bufio.NewScanner(strings.NewReader(cm.Data[ledgerKey])); s.Scan(); {
		source, text, _ := strings.Cut(s.Text(), " ")
		namespace, name, ok := strings.Cut(source, "/")
		at, err := time.Parse(time.RFC3339, text)
		if !ok || err != nil {
			continue // a user's edit is written over
		}
		l.syncs[types.NamespacedName{Namespace: namespace, Name: name}] = at
		if at.After(l.written) {
			l.written = at
		}
	}
	return l, nil
}

// write writes the ledger, where it says something else and that is not too soon.
func (f *Judge) write(ctx context.Context, l *ledger, known map[types.NamespacedName]time.Time) error {
	if f.Ledger.Name == "" || !f.written.IsZero() && f.Now().Sub(f.written) < ledgerEvery {
		return nil
	}
	var lines []string
	for name, at := range known {
		lines = append(lines, name.String()+" "+at.UTC().Format(time.RFC3339)+"\n")
	}
	slices.Sort(lines)
	text := strings.Join(lines, "")
	if l.object != nil && l.object.Data[ledgerKey] == text {
		return nil
	}
	f.written = f.Now()
	cm := &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Namespace: f.Ledger.Namespace, Name: f.Ledger.Name,
		Labels: map[string]string{plan.LabelManagedBy: plan.ManagedBy}}}
	var err error // the leader judges without the ledger
	if l.object == nil {
		cm.Data = map[string]string{ledgerKey: text}
		err = f.own.Create(ctx, cm, client.FieldOwner(v1alpha1.ManagerGitSync))
	} else {
		cm = l.object
		cm.Data = map[string]string{ledgerKey: text}
		err = f.own.Update(ctx, cm, client.FieldOwner(v1alpha1.ManagerGitSync))
	}
	if err != nil {
		f.log.Info("Times of syncs not written", "configMap", f.Ledger.String(), "because", err.Error())
	}
	return nil
}
