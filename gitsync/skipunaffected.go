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

// atRest is what a whole sync has left of a source that it has brought to what
// the branch says, until the next whole sync.
type atRest struct {
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
	// footprint is what the cluster had of the source then; nil: it is to be read again. whole
	// is the time of the last whole sync.
	footprint *footprint.Footprint
	whole     time.Time
}

// isOf reports whether a source is as it was.
func (r *atRest) isOf(gs *v1alpha1.GitSource) bool {
	return gs.UID == r.uid && gs.Generation == r.generation && requests.Asked(gs) == r.asked && gs.Status.AppliedCommit == r.applied &&
		gs.DeletionTimestamp == nil && controllerutil.ContainsFinalizer(gs, finalizer)
}

// The method `glance` is the short sync of a source that is up to date. It asks for
// the branch, and for what is not ready yet. If the interval is over, it compares the versions
// of what was applied, see [look.unmoved]. It returns true if nothing that was
// pushed touches the source, and nothing in the cluster has changed. Then it costs one
// comparison of what was read. Whatever else it meets is for a whole sync.
func (r *reconciler) glance(ctx context.Context, name types.NamespacedName, keep memory, w requests.Request) (reconcile.Result, bool) {
	var gs v1alpha1.GitSource
	if err := r.status.Get(ctx, name, &gs); err != nil || !keep.rest.isOf(&gs) || !r.isSelected(&gs) {
		return reconcile.Result{}, false
	}
	l := r.newLook(ctx, &gs, keep, w.Since)
	l.catchUp()
	if w.Elapsed {
		if err := l.unmoved(ctx); err != nil {
			l.log.V(1).Info("looking at all of it", "because", err.Error())
			return reconcile.Result{}, false
		}
	}
	s, err := l.untouched(ctx)
	if err != nil {
		l.log.V(1).Info("looking at all of it", "because", err.Error())
		return reconcile.Result{}, false
	}
	defer s.Close()
	if err := l.glance(ctx, s, w.Elapsed); err != nil {
		l.log.V(1).Info("looking at all of it", "because", err.Error())
		return reconcile.Result{}, false
	}
	if l.again {
		return reconcile.Result{}, false
	}
	return l.restUntil(l.keep.rest.until), true
}

// errTouched says that a push may touch a source.
var errTouched = errors.New("the push may touch it")

// untouched returns the branch as it is, if it leaves the source as it is.
func (l *look) untouched(ctx context.Context) (*repository.Snapshot, error) {
	s, err := l.ask(ctx, l.keep.rest.remote)
	if err != nil {
		return nil, err
	}
	untouched, err := l.unaffected.IsUntouched(s, l.gs, l.keep.desired, l.keep.rest.approvals, plumbing.NewHash(l.gs.Status.AppliedCommit))
	if err == nil && !untouched {
		err = errTouched
	}
	if err != nil {
		s.Close()
		return nil, err
	}
	return s, nil
}

// The method `glance` takes a commit that leaves the source as it is for applied. The
// status is written only where it says something else of the source than before. At the end of
// an interval it is also written if there were such commits.
func (l *look) glance(ctx context.Context, s *repository.Snapshot, elapsed bool) error {
	written := l.report.Written().AppliedCommit
	l.outcome = outcome.Outcome{Branch: l.gs.Spec.Ref.Branch, Commit: written}
	l.noteSeen(s)
	by, err := l.signatures(ctx)
	if err == nil {
		err = credentials.Verify(ctx, l.gs, s, by)
	}
	if err != nil {
		return err
	}
	tip := s.Commit.String()
	metrics.Rendered(l.name, false)
	l.keep.desired = &desired.State{Key: l.keep.desired.Key, Commit: tip, Set: l.keep.desired.Set, Reads: l.keep.desired.Reads}
	l.as, err = l.clients.As(l.gs.Namespace, l.gs.Spec.ServiceAccountName)
	if err != nil {
		return err
	}
	if err := l.unreadyStill(ctx); err != nil {
		return err
	}
	l.keep.passed = passed{uid: l.gs.UID, applied: written, tip: tip, seen: l.gs.Status.Seen}
	conditions := l.outcome.Conditions(l.gs.Generation, l.gs.Status.Conditions)
	noteSeen := mustNoteSeen(by, l.keep.rest.until, l.report.Written().Seen, l.gs.Status.Seen)
	if !equality.Semantic.DeepEqual(conditions, l.gs.Status.Conditions) || noteSeen || elapsed && tip != written {
		rest := *l.keep.rest
		rest.applied = tip
		l.keep.rest = &rest
		l.outcome.Commit, l.gs.Status.AppliedCommit = tip, tip
		if err := l.conclude(ctx, nil); err != nil {
			return err
		}
		written := rest
		written.version = l.gs.ResourceVersion
		l.keep.rest = &written
		l.remember(l.name, l.keep)
		return nil
	}
	l.remember(l.name, l.keep)
	metrics.Synced(l.name, l.gs.Status.Conditions, l.outcome.Behind)
	l.synced(l.name, 0)
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
func (l *look) catchUp() {
	if p := &l.keep.passed; p.isOf(l.gs) {
		l.gs.Status.AppliedCommit, l.gs.Status.ObservedCommit = p.tip, p.tip
		l.gs.Status.Seen = signers.UnionSeen(p.seen, l.gs.Status.Seen)
	}
}

// noteSeen adds what a snapshot is at to the status, where signatures are asked for.
func (l *look) noteSeen(s *repository.Snapshot) {
	if a := l.gs.Spec.Approvals; l.gs.Spec.Verify == nil && (a == nil || a.Signers == nil) {
		return
	}
	now := []string{s.Tip.String()}
	if s.Commit != s.Tip {
		now = append(now, s.Commit.String())
	}
	if s.Tag.IsAnnotated() {
		now = append(now, s.Tag.Object.String())
	}
	l.gs.Status.Seen = signers.WithSeen(l.gs.Status.Seen, time.Now(), now...)
}
