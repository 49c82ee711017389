package engine_test

import (
	"errors"
	"flag"
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/intstr"

	"github.com/tranche-dev/tranche/plan"
	"github.com/tranche-dev/tranche/plan/v1alpha1"
	"github.com/tranche-dev/tranche/rollout/engine"
	"github.com/tranche-dev/tranche/rollout/engine/foresee"
)

var (
	foretold   = flag.Int("foretold", 1000, "the number of random histories in which Foresee is compared with what happens")
	foretoldAt = flag.Uint64("foretold-seed", 1, "the seed of the first of these histories")
)

// chronicle is a world with commits of its own, a clock and the rollback annotation.
type chronicle struct {
	*world
	commit   int
	rollback bool
	now      time.Time
	told     []string
}

func newChronicle(n, surge, unavailable int32, steps ...string) *chronicle {
	return &chronicle{world: newWorld(n, surge, unavailable, steps...), now: epoch}
}

func (c *chronicle) clone() *chronicle {
	d := *c
	d.world = c.world.clone()
	return &d
}

func (c *chronicle) observe() engine.Observed {
	o := c.world.observe()
	o.Release.Spec.Commit = fmt.Sprintf("%040d", c.commit)
	if o.Release.Spec.Approval != nil {
		o.Release.Spec.Approval.Commit = o.Release.Spec.Commit
	}
	if c.rollback {
		o.Release.Annotations = map[string]string{v1alpha1.AnnotationRollback: "true"}
	}
	return o
}

// turn is a turn of all controllers; all pods that can come up do so.
func (c *chronicle) turn() {
	d := engine.Decide(c.observe(), c.now)
	for _, a := range d.Actions {
		if _, ok := a.(engine.ClearRollback); ok {
			c.rollback = false
		}
		c.do(a)
	}
	d.Status.LastUpdateTime, d.Status.History = nil, nil
	c.status = d.Status
	c.turnDeployment()
	for i := range c.sets {
		if c.sets[i].exists {
			c.turnReplicaSet(i)
			c.sets[i].ready += c.sets[i].pending
			c.sets[i].pending = 0
			c.turnReplicaSet(i)
		}
	}
	c.turnDeployment()
}

// state tells apart what a turn can change.
func (c *chronicle) state() string {
	s := c.status
	var step string
	if s.CurrentStepReplicas != nil {
		step = s.CurrentStepReplicas.String()
	}
	return fmt.Sprint(c.key(), c.rollback, s.UpdateCommit, s.FailedCommit, s.Reason, s.Message, step)
}

// settle takes turns until nothing moves.
func (c *chronicle) settle(t *testing.T) {
	t.Helper()
	for range 500 {
		last := c.state()
		c.turn()
		if c.state() == last {
			return
		}
	}
	t.Fatalf("it never comes to rest\nhistory %s\n%s", strings.Join(c.told, ", "), c)
}

func (c *chronicle) bring(version int) {
	c.brought, c.approved = version, -1
	c.commit++
}

func (c *chronicle) edit(steps ...string) {
	c.spec.Strategy.Steps = nil // a copy: clones share the array
	for _, s := range steps {
		c.spec.Strategy.Steps = append(c.spec.Strategy.Steps, v1alpha1.Step{Replicas: intstr.Parse(s)})
	}
}

// ends returns a clone in which no further gate is opened and all pods have come up.
func (c *chronicle) ends(t *testing.T) *chronicle {
	t.Helper()
	end := c.clone()
	end.approved = -1
	for i := range end.sets {
		rs := &end.sets[i]
		rs.stuckPods, rs.pending, rs.stuck = false, rs.pending+rs.stuck, 0
	}
	end.settle(t)
	return end
}

// foresee asks with no approval given.
func (c *chronicle) foresee() foresee.Outlook {
	asked := c.clone()
	asked.approved = -1
	return foresee.Foresee(asked.observe(), asked.now)
}

// versionNamed is the version of a revision's name; -1 for none.
func versionNamed(revision string) int { return slices.Index(hashes[:], revision) }

// runsOnly reports whether a version has all pods, natively.
func (c *chronicle) runsOnly(version int) bool {
	for i, rs := range c.sets {
		if i != version && rs.size > 0 {
			return false
		}
	}
	return version >= 0 && c.sets[version].size == c.n && !c.held && !c.paused && !c.recreate && c.template == version
}

// differs compares an Outlook with what has happened, by the ReplicaSets. It is
// empty where they agree.
func differs(o foresee.Outlook, before, end *chronicle) string {
	to := versionNamed(o.To)
	switch o.Kind {
	case foresee.OutlookNothing:
		if !end.runsOnly(to) {
			return "something moved"
		}
	case foresee.OutlookRollBack:
		if !end.runsOnly(to) {
			return "it did not go back without an approval"
		}
	case foresee.OutlookRelease, foresee.OutlookSupersedes:
		if to != before.brought {
			return "it is not what was brought"
		}
		return differsAtGate(o, before, end)
	case foresee.OutlookContinues, foresee.OutlookPlanChanged:
		if o.RollingBack {
			if !end.runsOnly(to) {
				return "the rollback did not end without an approval"
			}
			return ""
		}
		return differsAtGate(o, before, end)
	case foresee.OutlookBlocked:
		for i, rs := range end.sets {
			if rs.size > before.sets[i].size && hashes[i] != before.status.StableRevision {
				return fmt.Sprintf("v%d grew", i+1)
			}
		}
	case foresee.OutlookFirstInstall:
		return "the Deployment exists"
	}
	return ""
}

// differsAtGate is about a release. It begins at a step. It comes to the target of the
// first step from there whose gate does not open by itself, and no further. Pods that
// were more before may stay.
func differsAtGate(o foresee.Outlook, before, end *chronicle) string {
	to, k := versionNamed(o.To), o.Step
	if o.Steps[k].Gated {
		if end.sets[to].size > max(before.sets[to].size, o.Steps[k].Allowed) {
			return "it grew, and a gate was to come before that"
		}
		return ""
	}
	for !o.Steps[k].Gate.Last && !o.Steps[k].Gate.Approval && o.Steps[k].Gate.Pause == 0 {
		k++
	}
	got := end.sets[to].size
	switch {
	case end.n == 0 && got == 0:
		return ""
	case o.Steps[k].Gate.Last:
		if !end.runsOnly(to) {
			return "it did not complete, and no gate was to come"
		}
	case end.runsOnly(to):
		return "it completed, and a gate was to come"
	case got != o.Steps[k].Target && (got < o.Steps[k].Target || got > before.sets[to].size):
		return fmt.Sprintf("%d pods run it, and step %d comes to %d", got, k, o.Steps[k].Target)
	}
	return ""
}

// TestForesee_RandomHistories compares what Foresee says with what then happens
// when no gate is opened and all pods come up.
func TestForesee_RandomHistories(t *testing.T) {
	kinds := map[foresee.OutlookKind]int{}
	for i := range uint64(*foretold) {
		seed := *foretoldAt + i
		r := rand.New(rand.NewPCG(seed, 0))
		c := randomChronicle(t, r)
		for range 2 + r.IntN(6) {
			name, asks := c.happens(t, r)
			c.told = append(c.told, name)
			if asks {
				out, end := c.foresee(), c.ends(t)
				kinds[out.Kind]++
				if wrong := differs(out, c, end); wrong != "" {
					t.Fatalf("seed %d: Foresee says %q, and %s\nhistory %s\noutlook %+v\nbefore  %s\nafter   %s",
						seed, out, wrong, strings.Join(c.told, ", "), out, c.world, end.world)
				}
			}
			for range r.IntN(4) { // the next change may come in the middle
				c.turn()
			}
			if r.IntN(2) == 0 {
				c.settle(t)
			}
		}
	}
	t.Logf("asked from seed %d: %v", *foretoldAt, kinds)
	for _, k := range []foresee.OutlookKind{foresee.OutlookNothing, foresee.OutlookRelease, foresee.OutlookSupersedes, foresee.OutlookRollBack, foresee.OutlookContinues, foresee.OutlookPlanChanged, foresee.OutlookBlocked} {
		if kinds[k] == 0 && *foretold >= 1000 {
			t.Errorf("no history came to %s", k)
		}
	}
}

func randomChronicle(t *testing.T, r *rand.Rand) *chronicle {
	t.Helper()
	n := 1 + r.Int32N(8)
	surge, unavailable := r.Int32N(3), r.Int32N(3)
	if surge == 0 {
		unavailable = max(1, unavailable)
	}
	c := newChronicle(n, surge, unavailable, randomSteps(r)...)
	c.randomPauses(r)
	if r.IntN(3) == 0 {
		c.spec.Strategy.OnFailure = v1alpha1.FailureRollback
	}
	c.settle(t) // the plan is new
	return c
}

func randomSteps(r *rand.Rand) []string {
	plans := [][]string{{"100%"}, {"1", "100%"}, {"50%", "100%"}, {"1", "50%", "100%"}, {"2", "4", "100%"}, {"20%", "40%", "80%", "100%"}}
	return plans[r.IntN(len(plans))]
}

func (c *chronicle) randomPauses(r *rand.Rand) {
	for i := range len(c.spec.Strategy.Steps) - 1 {
		switch r.IntN(8) {
		case 0:
			c.spec.Strategy.Steps[i].Pause = &v1alpha1.Pause{}
		case 1:
			c.spec.Strategy.Steps[i].Pause = &v1alpha1.Pause{Duration: metav1.Duration{Duration: 24 * time.Hour}}
		}
	}
}

// happens makes a random change, and reports whether Foresee can be asked about it.
func (c *chronicle) happens(t *testing.T, r *rand.Rand) (name string, asks bool) {
	switch r.IntN(12) {
	case 0, 1, 2, 3:
		version := r.IntN(versions)
		c.bring(version)
		return fmt.Sprintf("bring v%d by commit %d", version+1, c.commit), true
	case 4:
		c.edit(randomSteps(r)...)
		c.randomPauses(r)
		return fmt.Sprintf("edit the plan to %v", c.spec.Strategy.Steps), true
	case 5:
		n := r.Int32N(9)
		c.write(func() { c.scale(n) })
		return fmt.Sprintf("scale to %d", n), false
	case 6:
		c.rollback = true
		return "annotate for a rollback", true
	case 7:
		c.approved = r.Int32N(3)
		return fmt.Sprintf("approve step %d", c.approved), false
	case 8, 9:
		c.approved, c.spec.Paused, c.badPlan = 100, false, false
		c.settle(t)
		return "approve all and complete", true
	case 10:
		if r.IntN(2) == 0 {
			c.badPlan = !c.badPlan
			return fmt.Sprintf("steps that go down: %t", c.badPlan), true
		}
		c.spec.Paused = !c.spec.Paused
		return fmt.Sprintf("paused: %t", c.spec.Paused), true
	default:
		c.sets[c.brought].stuckPods = true
		c.settle(t)
		c.now = c.now.Add(time.Hour)
		c.turn()
		for i := range c.sets {
			rs := &c.sets[i]
			rs.stuckPods, rs.pending, rs.stuck = false, rs.pending+rs.stuck, 0
		}
		return fmt.Sprintf("v%d misses its deadline", c.brought+1), true
	}
}

// TestForesee has the cases that `tranche diff` had wrong, and one of each kind.
func TestForesee(t *testing.T) {
	for _, tc := range []struct {
		reason  string
		happens func(c *chronicle)
		kind    foresee.OutlookKind
		from    int
		to      int
		step    int
		says    string
	}{
		{"the same commit", func(*chronicle) {}, foresee.OutlookNothing, 0, 0, 2, "Nothing is released"},
		{"another version", func(c *chronicle) { c.bring(1) }, foresee.OutlookRelease, 0, 1, 0, "Step 0 comes to 1 of 4 pods; after it comes an approval."},
		{"a rolled back version by another commit has its gates again", func(c *chronicle) {
			c.bring(1)
			c.settle(t)
			c.rollback = true
			c.settle(t)
			c.bring(1)
		}, foresee.OutlookRelease, 0, 1, 0, "begins"},
		{"a rolled back version by the same commit", func(c *chronicle) {
			c.bring(1)
			c.settle(t)
			c.rollback = true
			c.settle(t)
		}, foresee.OutlookBlocked, 0, 0, 2, "RolledBack"},
		{"the last stable version comes back at once", func(c *chronicle) {
			c.bring(1)
			c.complete(t)
			c.bring(0)
		}, foresee.OutlookRollBack, 1, 0, 0, "goes back"},
		{"the version before the last stable one is a release", func(c *chronicle) {
			c.bring(1)
			c.complete(t)
			c.bring(2)
			c.complete(t)
			c.bring(0)
		}, foresee.OutlookRelease, 2, 0, 0, "begins"},
		{"a version that was left by a rollback is a release", func(c *chronicle) {
			c.bring(1)
			c.complete(t)
			c.bring(0)
			c.settle(t)
			c.bring(1)
		}, foresee.OutlookRelease, 0, 1, 0, "begins"},
		{"a release in the middle is superseded", func(c *chronicle) {
			c.bring(1)
			c.settle(t)
			c.bring(2)
		}, foresee.OutlookSupersedes, 1, 2, 0, "ends the release of " + hashes[1]},
		{"a release in the middle is taken back", func(c *chronicle) {
			c.bring(1)
			c.settle(t)
			c.bring(0)
		}, foresee.OutlookRollBack, 1, 0, 1, "without approvals"},
		{"a release in the middle goes on", func(c *chronicle) {
			c.bring(1)
			c.settle(t)
		}, foresee.OutlookContinues, 0, 1, 0, "goes on at step 0"},
		{"the plan is edited in the middle", func(c *chronicle) {
			c.bring(1)
			c.settle(t)
			c.edit("2", "100%")
		}, foresee.OutlookPlanChanged, 0, 1, 0, "Step 0 comes to 2 of 4 pods"},
		{"the plan is paused", func(c *chronicle) {
			c.spec.Paused = true
			c.bring(1)
		}, foresee.OutlookBlocked, 0, 1, 0, "ReleasePaused"},
		{"the plan is not valid", func(c *chronicle) {
			c.badPlan = true
			c.bring(1)
		}, foresee.OutlookBlocked, 0, 1, 0, "InvalidPlan"},
		{"no pods", func(c *chronicle) {
			c.write(func() { c.scale(0) })
			c.settle(t)
			c.bring(1)
		}, foresee.OutlookRelease, 0, 1, 0, "0 replicas"},
	} {
		t.Run(tc.reason, func(t *testing.T) {
			c := newChronicle(4, 1, 1, "1", "50%", "100%")
			c.settle(t)
			tc.happens(c)
			got := c.foresee()
			if got.Kind != tc.kind || got.From != hashes[tc.from] || got.To != hashes[tc.to] || got.Step != tc.step || !strings.Contains(got.String(), tc.says) {
				t.Errorf("%s\n%+v", got, got)
			}
		})
	}
}

// All pods run a release, and only its hand-back is missing: the next one leads away from it, and does not supersede it.
func TestForesee_NotHandedBack(t *testing.T) {
	c := newChronicle(4, 1, 1, "1", "50%", "100%")
	c.settle(t)
	c.bring(1)
	c.approved = 100
	for c.status.Phase != v1alpha1.PhaseFinalizing {
		c.turn()
	}
	c.bring(2)
	got := c.foresee()
	if got.Kind != foresee.OutlookRelease || got.From != hashes[1] || got.To != hashes[2] || got.Superseded != "" {
		t.Errorf("%s\n%+v", got, got)
	}
	c.settle(t)
	if c.sets[0].size > 0 || c.sets[1].size != 3 || c.sets[2].size != 1 {
		t.Errorf("it came to %s", c)
	}
}

func (c *chronicle) complete(t *testing.T) {
	t.Helper()
	c.approved = 100
	c.settle(t)
	c.approved = -1
}

func TestForesee_NewPlan(t *testing.T) {
	c := newChronicle(4, 1, 1, "1", "100%")
	c.bring(1) // before the controller has seen the Deployment
	if got := c.foresee(); got.Kind != foresee.OutlookRelease || got.From != hashes[0] || got.To != hashes[1] {
		t.Errorf("%s\n%+v", got, got)
	}
}

func TestForesee_NoDeployment(t *testing.T) {
	o := newChronicle(4, 1, 1, "100%").observe()
	o.Deployment = nil
	if got := foresee.Foresee(o, epoch); got.Kind != foresee.OutlookFirstInstall || got.To != hashes[0] {
		t.Errorf("%+v", got)
	}
}

func TestForesee_Refused(t *testing.T) {
	c := newChronicle(4, 1, 1, "100%")
	c.settle(t)
	c.bring(1)
	o := c.observe()
	o.Refused = errors.New("no")
	if got := foresee.Foresee(o, epoch); got.Kind != foresee.OutlookBlocked || got.Reason != v1alpha1.ReasonTemplateRefused {
		t.Errorf("%+v", got)
	}
	o.Refused, o.Rival = nil, "older"
	if got := foresee.Foresee(o, epoch); got.Kind != foresee.OutlookBlocked || got.Reason != v1alpha1.ReasonAnotherPlan {
		t.Errorf("%+v", got)
	}
}

func TestForesee_ChangesNothing(t *testing.T) {
	c := newChronicle(4, 1, 1, "1", "100%")
	c.settle(t)
	c.bring(1)
	o, same := c.observe(), c.observe()
	foresee.Foresee(o, epoch)
	if diff := cmp.Diff(same, o, cmp.Comparer(func(a, b plan.Record) bool { return a.Name == b.Name && a.Order == b.Order })); diff != "" {
		t.Errorf("Foresee changed what it was given:\n%s", diff)
	}
}
