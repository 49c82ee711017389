package rollout_test

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/rest"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/tranche-dev/tranche/plan/v1alpha1"
	"github.com/tranche-dev/tranche/rollout/clustertest"
	"github.com/tranche-dev/tranche/rollout/engine"
)

// errKilled is what a controller gets for its writes that has been killed.
var errKilled = errors.New("killed")

// reaper lets the writes of a controller through up to the k-th, and then
// either kills the controller or loses that one answer.
type reaper struct {
	mu     sync.Mutex
	left   int
	lose   bool // the answer, and nothing else
	killed chan struct{}
	count  int
}

func (r *reaper) pass(write func() error) error {
	r.mu.Lock()
	defer r.mu.Unlock()
	select {
	case <-r.killed:
		return errKilled
	default:
	}
	err := write()
	r.count++
	if r.left--; r.left != 0 {
		return err
	}
	if r.lose {
		return fmt.Errorf("the answer is lost: %w", context.DeadlineExceeded)
	}
	close(r.killed)
	return errKilled
}

// mortal is a client under a reaper.
type mortal struct {
	client.Client
	r *reaper
}

func (m mortal) Create(ctx context.Context, o client.Object, opts ...client.CreateOption) error {
	return m.r.pass(func() error { return m.Client.Create(ctx, o, opts...) })
}

func (m mortal) Delete(ctx context.Context, o client.Object, opts ...client.DeleteOption) error {
	return m.r.pass(func() error { return m.Client.Delete(ctx, o, opts...) })
}

func (m mortal) Patch(ctx context.Context, o client.Object, p client.Patch, opts ...client.PatchOption) error {
	var options client.PatchOptions
	options.ApplyOptions(opts)
	if len(options.DryRun) > 0 {
		return m.Client.Patch(ctx, o, p, opts...)
	}
	return m.r.pass(func() error { return m.Client.Patch(ctx, o, p, opts...) })
}

func (m mortal) Status() client.SubResourceWriter { return mortalStatus{m.Client.Status(), m.r} }

type mortalStatus struct {
	client.SubResourceWriter
	r *reaper
}

func (m mortalStatus) Update(ctx context.Context, o client.Object, opts ...client.SubResourceUpdateOption) error {
	return m.r.pass(func() error { return m.SubResourceWriter.Update(ctx, o, opts...) })
}

func (m mortalStatus) Patch(ctx context.Context, o client.Object, p client.Patch, opts ...client.SubResourcePatchOption) error {
	return m.r.pass(func() error { return m.SubResourceWriter.Patch(ctx, o, p, opts...) })
}

// mortalClient makes a manager's client one under a reaper.
func mortalClient(r *reaper) client.NewClientFunc {
	return func(config *rest.Config, options client.Options) (client.Client, error) {
		c, err := client.New(config, options)
		return mortal{c, r}, err
	}
}

// I6: killed after any single write, or with the answer of any single write
// lost, and started again: the same end, nothing twice.
func TestKilledAfterAnyWrite(t *testing.T) {
	for _, story := range []struct {
		name string
		tell func(s *shop)
		end  string // the tag that runs in the end
		want string // the history
	}{
		{"release", func(*shop) {}, "v2", "Completed"},
		{"rollback on the way", func(s *shop) { s.once("v2"); s.bring("v1") }, "v1", "RolledBack"},
		{"supersession", func(s *shop) { s.once("v2"); s.bring("v3") }, "v3", "Completed Superseded"},
	} {
		for _, lose := range []bool{false, true} {
			if lose && story.want != "Completed" {
				continue // the other stories make no other kind of write, and take minutes
			}
			t.Run(fmt.Sprintf("%s, lost %t", story.name, lose), func(t *testing.T) {
				t.Parallel()
				for k, more := 1, true; more; k++ {
					more = killedAfter(t, k, lose, story.tell, story.end, story.want)
				}
			})
		}
	}
}

// killedAfter plays a story with a controller that dies after k writes. It
// reports whether the story was that long.
func killedAfter(t *testing.T, k int, lose bool, tell func(*shop), end, want string) bool {
	reached := false
	t.Run(fmt.Sprintf("write %d", k), func(t *testing.T) {
		s := newShop(t)
		s.install(2)
		s.plan("1", "100%")
		gate := metav1.Duration{}
		if want != "Completed" {
			gate.Duration = time.Hour // the story's second part comes at the gate
		}
		s.edit(func(spec *v1alpha1.BatchReleaseSpec) {
			spec.Strategy.Steps[0].Pause = &v1alpha1.Pause{Duration: gate}
		})
		r := &reaper{left: k, lose: lose, killed: make(chan struct{})}
		stop := startControllerIn(t, s.c, s.ns, r)
		s.settled(r, "v1")
		s.bring("v2")
		again := make(chan struct{})
		go func() { // a new controller, once the first is dead
			defer close(again)
			select {
			case <-r.killed:
				stop()
				startControllerIn(t, s.c, s.ns, &reaper{killed: make(chan struct{})})
			case <-t.Context().Done():
			}
		}()
		tell(s)
		s.edit(func(spec *v1alpha1.BatchReleaseSpec) { spec.Strategy.Steps[0].Pause = &v1alpha1.Pause{} })
		s.waitFor(engine.ReasonReleaseCompleted, 1, map[string]int32{end: 2})
		s.untouched()
		got := ""
		for i, h := range s.release().Status.History {
			if i > 0 {
				got += " "
			}
			got += string(h.Outcome)
		}
		if got != want {
			t.Errorf("history %q, want %q\n%s", got, want, s.w.Timeline())
		}
		r.mu.Lock()
		reached = r.count >= k
		r.mu.Unlock()
		if reached && !lose {
			<-again
		}
	})
	return reached && !t.Failed()
}

// settled waits until the plan has been seen, or the controller is dead.
func (s *shop) settled(r *reaper, tag string) {
	s.Helper()
	clustertest.Wait(s, "the plan to be seen", func() error {
		select {
		case <-r.killed:
			return nil
		default:
		}
		if reason := s.release().Status.Reason; reason != engine.ReasonReleaseCompleted {
			return fmt.Errorf("%s, %v", reason, s.sizes()[tag])
		}
		return nil
	})
}

// once waits until a tag has its first pod.
func (s *shop) once(tag string) {
	s.Helper()
	clustertest.Wait(s, "the first pod of "+tag, func() error {
		if sizes := s.sizes(); sizes[tag] == 0 {
			return fmt.Errorf("sizes %v", sizes)
		}
		return nil
	})
}
