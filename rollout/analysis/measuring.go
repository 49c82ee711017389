package analysis

import (
	"context"
	"fmt"
	"sync/atomic"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/util/workqueue"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"
	"sigs.k8s.io/controller-runtime/pkg/source"

	"github.com/tranche-dev/tranche/plan/v1alpha1"
	"github.com/tranche-dev/tranche/rollout/analysis/pool"
	"github.com/tranche-dev/tranche/rollout/engine"
	"github.com/tranche-dev/tranche/rollout/engine/verdict"
	"github.com/tranche-dev/tranche/rollout/impersonate"
)

// Measuring asks the providers for what decisions name, while reconciliations go on. It is a
// manager's runnable, and works while its process leads.
type Measuring struct {
	providers *Providers
	pool      *pool.Pool[verdict.Key, engine.Measured]
	queue     atomic.Pointer[queue]
}

// queue is that of the controller.
type queue struct {
	workqueue.TypedRateLimitingInterface[reconcile.Request]
}

// NewMeasuring returns a Measuring that begins with Start.
func NewMeasuring(o Options) *Measuring {
	m := &Measuring{providers: NewProviders(o)}
	m.pool = pool.New[verdict.Key, engine.Measured](pool.Options{Now: o.Now, Answered: m.answered})
	return m
}

// Source reconciles a release when it has another answer. It is for one controller.
func (m *Measuring) Source() source.Source {
	return source.Func(func(_ context.Context, q workqueue.TypedRateLimitingInterface[reconcile.Request]) error {
		m.queue.Store(&queue{q})
		return nil
	})
}

// answered has the release reconciled. Before its controller runs each release is reconciled
// in any case.
func (m *Measuring) answered(release types.NamespacedName) {
	if q := m.queue.Load(); q != nil {
		q.Add(reconcile.Request{NamespacedName: release})
	}
}

// Start asks until ctx ends.
func (m *Measuring) Start(ctx context.Context) error {
	defer m.providers.Close()
	return m.pool.Start(ctx)
}

// Answers returns what has been answered of a release. An answer is there until [Measuring.Ask]
// does not name its measurement any more.
func (m *Measuring) Answers(br *v1alpha1.BatchRelease) []engine.Measured {
	return m.pool.Answers(client.ObjectKeyFromObject(br))
}

// Ask says what is measured from now on: what a decision names, after its status was written.
// Measurements that it does not name are cancelled, and their answers are forgotten.
func (m *Measuring) Ask(br *v1alpha1.BatchRelease, measurements []engine.Measurement) {
	owner := metav1.OwnerReference{
		APIVersion: v1alpha1.GroupVersion.String(), Kind: "BatchRelease", Name: br.Name, UID: br.UID,
	}
	questions := make([]pool.Question[verdict.Key, engine.Measured], 0, len(measurements))
	for _, q := range measurements {
		questions = append(questions, m.providers.Question(q, owner))
	}
	m.pool.Ask(client.ObjectKeyFromObject(br), questions)
}

// Forget forgets a release that is gone.
func (m *Measuring) Forget(release types.NamespacedName) { m.pool.Ask(release, nil) }

// Add adds a Measuring to a manager, and sets the client and the clock of its options. The
// account is that of releases that name none.
func Add(mgr ctrl.Manager, o Options, account string) (*Measuring, error) {
	c, err := impersonate.NewUncachedClient(mgr)
	if err != nil {
		return nil, err
	}
	o.Client, o.DefaultAccount, o.Log = c, account, mgr.GetLogger().WithName("analysis")
	m := NewMeasuring(o)
	if err := mgr.Add(m); err != nil {
		return nil, fmt.Errorf("adding the providers of metrics: %w", err)
	}
	return m, nil
}
