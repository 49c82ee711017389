package gitsync

import (
	"context"
	"errors"
	"time"

	"github.com/go-git/go-git/v5/plumbing"
	"k8s.io/apimachinery/pkg/api/equality"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/controller/controllerutil"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	"github.com/tranche-dev/tranche/gitsync/credentials"
	"github.com/tranche-dev/tranche/gitsync/desired"
	"github.com/tranche-dev/tranche/gitsync/footprint"
	"github.com/tranche-dev/tranche/gitsync/gitserver"
	"github.com/tranche-dev/tranche/gitsync/gittree"
	"github.com/tranche-dev/tranche/gitsync/inventory"
	"github.com/tranche-dev/tranche/gitsync/metrics"
	"github.com/tranche-dev/tranche/gitsync/outcome"
	"github.com/tranche-dev/tranche/gitsync/repository"
	"github.com/tranche-dev/tranche/gitsync/requests"
	"github.com/tranche-dev/tranche/gitsync/signers"
	"github.com/tranche-dev/tranche/plan/v1alpha1"
)

// lastSync is what a whole sync has left of a source that it has brought to what
// the branch says, until the next whole sync.
type lastSync struct {
	uid        types.UID
	generation int64
	asked      string // see [requests.Asked]
	applied    string // status.appliedCommit
	remote     gitserver.Remote
	// since is when that sync was requested.
	since time.Time
	// approvals is what was read for the approvals.
	approvals gittree.Reads
	// unready are the objects that are not ready yet, where spec.wait asks.
	unready []inventory.Entry
	// interval of the source, and the end of the present one.
	interval time.Duration
	until    time.Time
	// version is that of the GitSource after the last write of its status.
	version string
	// footprint is what the cluster had of the source then; nil: it is to be read again.
	footprint *footprint.Footprint
}

// isOf reports whether a source is as it was.
func (r *lastSync) isOf(gs *v1alpha1.GitSource) bool {
	return gs.UID == r.uid && gs.Generation == r.generation && requests.Asked(gs) == r.asked && gs.Status.AppliedCommit == r.applied &&
		gs.DeletionTimestamp == nil && controllerutil.ContainsFinalizer(gs, finalizer)
}

// skipUnaffected is the short sync of a source that is up to date. It asks for
// the branch, and for what is not ready yet. If the interval is over, it compares the versions
// of what was applied, see [unmoved]. It returns true if nothing that was
// pushed touches the source, and nothing in the cluster has changed. Then it costs one
// comparison of what was read. Whatever else it meets is for a whole sync.
func (r *reconciler) skipUnaffected(
	ctx context.Context, name types.NamespacedName, keep cacheEntry, w requests.Request,
) (reconcile.Result, bool) {
	var gs v1alpha1.GitSource
	if err := r.status.Get(ctx, name, &gs); err != nil || !keep.last.isOf(&gs) || !r.options.selects(&gs) {
		return reconcile.Result{}, false
	}
	src, res := newSource(ctx, &r.resources, &gs, keep, w.Since), &result{}
	if err := r.skip(ctx, src, res, w.Elapsed); err != nil {
		src.log.V(1).Info("Syncing the whole source", "because", err.Error())
		return reconcile.Result{}, false
	}
	if res.again {
		return reconcile.Result{}, false
	}
	return nextAt(src, res, src.cached.last.until), true
}

// skip does the short sync. The error says why a whole one is needed.
func (r *reconciler) skip(ctx context.Context, src *source, res *result, elapsed bool) error {
	src.cached.passed.catchUp(src.gs)
	if elapsed {
		last, err := unmoved(ctx, src)
		if err != nil {
			return err
		}
		src.cached.last = last
	}
	s, err := fetchUnaffected(ctx, src)
	if err != nil {
		return err
	}
	defer s.Close()
	return r.advance(ctx, src, res, s, elapsed)
}

// errTouched says that a push may touch a source.
var errTouched = errors.New("the push may touch it")

// fetchUnaffected returns the branch as it is, if it leaves the source as it is.
func fetchUnaffected(ctx context.Context, src *source) (*repository.Snapshot, error) {
	last := src.cached.last
	src.remote = last.remote
	s, err := ask(ctx, src)
	if err != nil {
		return nil, err
	}
	applied := plumbing.NewHash(src.gs.Status.AppliedCommit)
	untouched, err := src.unaffected.IsUntouched(s, src.gs, src.cached.desired, last.approvals, applied)
	if err == nil && !untouched {
		err = errTouched
	}
	if err != nil {
		s.Close()
		return nil, err
	}
	return s, nil
}

// advance takes a commit that leaves the source as it is for applied. The
// status is written only where it says something else of the source than before. At the end of
// an interval it is also written if there were such commits.
func (r *reconciler) advance(ctx context.Context, src *source, res *result, s *repository.Snapshot, elapsed bool) error {
	gs, written, last := src.gs, src.report.Written(), *src.cached.last
	from, tip := written.AppliedCommit, s.Commit.String()
	res.outcome = outcome.Outcome{Branch: gs.Spec.Ref.Branch, Commit: from}
	noteSeen(gs, s)
	policy, err := src.policy(ctx)
	if err == nil {
		err = credentials.Verify(ctx, gs, s, policy)
	}
	if err != nil {
		return err
	}
	metrics.Rendered(src.name, false)
	state := src.cached.desired
	src.cached.desired = &desired.State{Key: state.Key, Commit: tip, Set: state.Set, Reads: state.Reads}
	if src.as, err = src.clients.As(gs.Namespace, gs.Spec.ServiceAccountName); err != nil {
		return err
	}
	if res.outcome.Unready, err = stillUnready(ctx, src.as, last.unready); err != nil {
		return err
	}
	last.unready = entriesOf(res.outcome.Unready)
	src.cached.passed = passed{uid: gs.UID, applied: from, tip: tip, seen: gs.Status.Seen}
	conditions := res.outcome.Conditions(gs.Generation, gs.Status.Conditions)
	changed := !equality.Semantic.DeepEqual(conditions, gs.Status.Conditions)
	if changed || elapsed && tip != from || mustNoteSeen(policy, last.until, written.Seen, gs.Status.Seen) {
		last.applied = tip
		src.cached.last = &last
		res.outcome.Commit, gs.Status.AppliedCommit = tip, tip
		if err := r.conclude(ctx, src, res, nil); err != nil {
			return err
		}
		concluded := last
		concluded.version = gs.ResourceVersion
		src.cached.last = &concluded
		src.store()
		return nil
	}
	src.cached.last = &last
	src.store()
	metrics.Synced(src.name, gs.Status.Conditions, res.outcome.Behind)
	r.judge.Synced(src.name, 0)
	return nil
}

// notedBefore is how long before a key ends the status has each tip at once. The process may
// end, and after that end signatures from before it would count for nothing.
const notedBefore = 7 * 24 * time.Hour

// mustNoteSeen reports whether the tips that were seen since the status was written have to
// be in it soon. The next status may be written only at the given time.
func mustNoteSeen(by signers.Policy, next time.Time, before, now []v1alpha1.SeenCommit) bool {
	until := by.Now.Add(notedBefore)
	if next.After(until) {
		until = next
	}
	isNew := len(now) > 0 && (len(before) == 0 || now[0].Commit != before[0].Commit)
	return isNew && (by.Verify.EndBetween(by.Now, until) || by.Signers.EndBetween(by.Now, until))
}

// passed is how far the branch has gone on since the commits in the status of a source,
// without touching it. It is lost with the process. Then the next sync begins with the
// commits of the status, see [unaffected.Checker.Advance].
type passed struct {
	uid types.UID
	// applied is what the status has as the applied commit.
	applied string
	// tip is the last commit that leaves the source as it is; empty: none does.
	tip string
	// seen are the tips of the status and those since.
	seen []v1alpha1.SeenCommit
}

// isOf reports whether the status of a source is the one that this began with.
func (p *passed) isOf(gs *v1alpha1.GitSource) bool {
	return p.tip != "" && p.uid == gs.UID && p.applied == gs.Status.AppliedCommit
}

// catchUp takes the commits that a source was found to be at for those of its status. The
// next write of the status has them.
func (p *passed) catchUp(gs *v1alpha1.GitSource) {
	if p.isOf(gs) {
		gs.Status.AppliedCommit, gs.Status.ObservedCommit = p.tip, p.tip
		gs.Status.Seen = signers.UnionSeen(p.seen, gs.Status.Seen)
	}
}
