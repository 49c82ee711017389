package gitsync

import (
	"context"
	"errors"
	"time"

	"github.com/go-git/go-git/v5/plumbing"
	"github.com/go-git/go-git/v5/plumbing/object"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/controller/controllerutil"
	"sigs.k8s.io/controller-runtime/pkg/handler"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	"github.com/tranche-dev/tranche/gitsync/gitserver"
	"github.com/tranche-dev/tranche/gitsync/gittree"
	"github.com/tranche-dev/tranche/gitsync/inventory"
	"github.com/tranche-dev/tranche/gitsync/repository"
	"github.com/tranche-dev/tranche/plan/v1alpha1"
)

// atRest is what a whole look has left of a source that it has brought to what
// the branch says, until the next whole look.
type atRest struct {
	uid        types.UID
	generation int64
	asked      string // see [asked]
	remote     gitserver.Remote
	// since is when that look was wished for.
	since time.Time
	// approvals is what was read for the approvals.
	approvals gittree.Reads
	// untouchedBy is the last commit that was found to leave the source as it is.
	untouchedBy plumbing.Hash
	// putOff is since when a status is to be written that has been put off; zero:
	// there is none.
	putOff time.Time
	// unready are the objects that are not ready yet, where spec.wait asks.
	unready []inventory.Entry
	// interval of the source, and the end of the present one.
	interval time.Duration
	until    time.Time
}

// isOf reports whether a source is as it was.
func (r *atRest) isOf(gs *v1alpha1.GitSource) bool {
	return gs.UID == r.uid && gs.Generation == r.generation && asked(gs) == r.asked && gs.DeletionTimestamp == nil && controllerutil.ContainsFinalizer(gs, finalizer)
}

// glance is a look at a source at rest: at the branch, and at what is not ready
// yet. It is over, and true, where nothing that was pushed touches the source:
// its cost is one comparison of what was read, and one write of the status.
// Whatever else it meets is for a whole look.
//
// The write comes later, after all that other sources have to do: of a thousand
// that are told of a push, the one that it touches is not to wait for the others.
// It is not put off for longer than putOffAtMost.
func (r *reconciler) glance(ctx context.Context, name types.NamespacedName, keep memory, w wish) (reconcile.Result, bool) {
	var gs v1alpha1.GitSource
	if err := r.status.Get(ctx, name, &gs); err != nil || !keep.rest.isOf(&gs) || !r.isSelected(&gs) {
		return reconcile.Result{}, false
	}
	l := r.newLook(ctx, &gs)
	l.keep, l.since = keep, w.since
	s, err := l.untouched(ctx)
	if err != nil {
		l.log.V(1).Info("looking at all of it", "because", err.Error())
		return reconcile.Result{}, false
	}
	defer s.Close()
	if w.told && gs.Status.AppliedCommit != s.Commit.String() && l.putOff() {
		return reconcile.Result{RequeueAfter: time.Millisecond, Priority: ptr.To(priorityOfStatus)}, true
	}
	if err := l.glance(ctx, s); err != nil {
		l.log.V(1).Info("looking at all of it", "because", err.Error())
		return reconcile.Result{}, false
	}
	if err := l.conclude(ctx, nil); err != nil || l.again {
		return reconcile.Result{}, false
	}
	return l.restUntil(keep.rest.until), true
}

// priorityOfStatus is lower than that of sources at the start of a controller.
const priorityOfStatus = handler.LowPriority - 1

// putOffAtMost is how long a status is put off while other sources never leave
// anybody idle: who is last in such a queue would wait for ever, and with the
// status the look for drift.
const putOffAtMost = 5 * time.Second

// putOff puts the write of a status off. It returns false where that has been done
// for long enough.
func (l *look) putOff() bool {
	since := l.keep.rest.putOff
	if since.IsZero() {
		at := *l.keep.rest
		at.putOff = time.Now()
		l.keep.rest = &at
		time.AfterFunc(putOffAtMost, func() { l.remind(l.name) })
	}
	l.remember(l.name, l.keep)
	return since.IsZero() || time.Since(since) < putOffAtMost
}

// remind makes a look as urgent as any other, where a status is still put off.
func (r *reconciler) remind(name types.NamespacedName) {
	if rest := r.recall(name).rest; rest != nil && !rest.putOff.IsZero() {
		r.queue.Add(reconcile.Request{NamespacedName: name})
	}
}

// errTouched says that a push may touch a source.
var errTouched = errors.New("the push may touch it")

// untouched returns the branch as it is, if it leaves the source as it is.
func (l *look) untouched(ctx context.Context) (*repository.Snapshot, error) {
	s, err := l.ask(ctx, l.keep.rest.remote)
	if err != nil {
		return nil, err
	}
	if s.Commit == l.keep.rest.untouchedBy {
		return s, nil
	}
	untouched, err := leaves(s, plumbing.NewHash(l.gs.Status.AppliedCommit), l.keep.desired.reads, l.keep.rest.approvals)
	if err == nil && !untouched {
		err = errTouched
	}
	if err != nil {
		s.Close()
		return nil, err
	}
	at := *l.keep.rest
	at.untouchedBy = s.Commit
	l.keep.rest = &at
	return s, nil
}

// glance takes a commit that leaves the source as it is for applied.
func (l *look) glance(ctx context.Context, s *repository.Snapshot) error {
	l.outcome = outcome{branch: l.gs.Spec.Ref.Branch, commit: s.Commit.String()}
	l.noteSeen(s)
	by, err := l.signatures(ctx)
	if err == nil {
		err = l.verified(ctx, s, by)
	}
	if err != nil {
		return err
	}
	l.rendered(false)
	written := *l.keep.rest
	written.putOff = time.Time{}
	l.keep.rest = &written
	l.keep.desired = &desired{key: l.keep.desired.key, commit: l.outcome.commit, set: l.keep.desired.set, reads: l.keep.desired.reads}
	l.gs.Status.AppliedCommit = l.outcome.commit
	l.as, err = l.writers.as(l.gs.Namespace, l.gs.Spec.ServiceAccountName)
	if err != nil {
		return err
	}
	return l.unreadyStill(ctx)
}

// maxGlance is how many commits a glance goes through.
const maxGlance = 100

// leaves reports whether the commits from an applied one to the tip leave what
// was read as it is, each of them, along first parents.
func leaves(s *repository.Snapshot, applied plumbing.Hash, reads ...gittree.Reads) (bool, error) {
	at := s.Commit
	for range maxGlance {
		if at == applied {
			return true, nil
		}
		c, err := object.GetCommit(s, at)
		if err != nil {
			return false, gittree.Missing("commit", at, err)
		}
		t, err := gittree.OpenTree(s, c.TreeHash)
		if err != nil {
			return false, err
		}
		for _, r := range reads {
			if same, err := r.Unchanged(t); err != nil || !same {
				return false, err
			}
		}
		if len(c.ParentHashes) == 0 {
			return false, nil
		}
		at = c.ParentHashes[0]
	}
	return false, nil
}
