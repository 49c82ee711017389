package engine_test

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"strings"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	"k8s.io/apimachinery/pkg/util/intstr"

	"github.com/tranche-dev/tranche/plan"
	"github.com/tranche-dev/tranche/plan/v1alpha1"
	"github.com/tranche-dev/tranche/rollout/engine"
)

// This file is moves that a fourth of the walks have besides, and what the model needs for
// them. A generator of their own makes them, so that the other walks stay as they were.

// errRefused is the API server's validation of a Deployment.
var errRefused = errors.New("maxSurge and maxUnavailable may not both be 0")

func extraMoves(seed uint64) *rand.Rand {
	if seed%4 != 0 {
		return nil
	}
	return rand.New(rand.NewPCG(seed, 11))
}

func nextMove(m mood, r *rand.Rand, c *cluster) string {
	if m.extra != nil && m.extra.IntN(25) == 0 {
		return extraMove(m.extra, c)
	}
	return m.next(r, c)
}

func extraMove(r *rand.Rand, c *cluster) string {
	switch r.IntN(7) {
	case 0, 1:
		return fmt.Sprintf("flap %d %s", c.version+1, pick(r, []string{"20s", "2m"}))
	case 2:
		return fmt.Sprintf("outgrow %d", c.version+1)
	case 3:
		return pick(r, []string{"bounds bad", "bounds good", "bounds good"})
	case 4:
		return pick(r, []string{"halt", "halt", "resume"})
	case 5:
		return pick(r, []string{fmt.Sprintf("cap %d", c.version+1), fmt.Sprintf("cap %d", c.version+1), "cap 0"})
	default:
		return pick(r, []string{"alone", "alone", "together"})
	}
}

// changeWider makes one of these moves, or another change.
func changeWider(c *cluster, verb string, args []string, number func(int) int) bool {
	switch verb {
	case "ends":
		c.ends()
		return true
	case "flap":
		return flap(c, number(0)-1, args[1])
	case "outgrow": // what N has more of pods fails by itself
		if c.d == nil {
			return false
		}
		c.exec("fate " + args[0] + " never")
		c.exec(fmt.Sprintf("scale %d", c.replicas()+6))
		c.exec("run 25m")
		return true
	}
	c.oracle.away = absence{}
	if verb != "scale" {
		c.oracle.gate = waitedAt{}
	}
	switch verb {
	case "norecords", "records":
		c.noRecords = verb == "norecords"
		return true
	case "cap":
		return changeCap(c, number(0))
	case "bounds":
		return changeBounds(c, args[0] == "bad")
	case "halt", "resume", "alone", "together":
		return changeNative(c, verb)
	}
	return c.change(verb, args, number)
}

// flap takes all pods of a version away for a time, lets them come again, and does so
// several times.
func flap(c *cluster, version int, away string) bool {
	sets, some := fmt.Sprintf("sets %d", version+1), false
	for range 8 {
		for c.changePod("break", version) {
			some = true
		}
		c.exec(sets)
		c.exec("run " + away)
		for c.changePod("mend", version) {
		}
		for c.changePod("ready", version) {
		}
		c.exec(sets)
		c.exec(fmt.Sprintf("run %ds", c.minReady+5))
	}
	return some
}

// changeBounds has Git bring bounds that the API server refuses, or others again.
func changeBounds(c *cluster, bad bool) bool {
	if c.br == nil || c.ownStrategy || bad == c.badBounds {
		return false
	}
	c.badBounds = bad
	c.writeRelease(func(br *v1alpha1.BatchRelease) { br.Spec.DeploymentStrategy = brought(c) })
	return true
}

// changeNative pauses a native Deployment, or leaves it alone, or ends that.
func changeNative(c *cluster, verb string) bool {
	begins := verb == "halt" || verb == "alone"
	if c.d == nil || begins && (c.d.Spec.Paused || !c.rests()) || verb == "resume" && !c.halted {
		return false
	}
	before := c.rv
	c.writeDeployment(func(d *appsv1.Deployment) {
		switch verb {
		case "halt", "resume":
			d.Spec.Paused = verb == "halt"
		case "alone":
			d.Annotations = map[string]string{v1alpha1.AnnotationReconcile: v1alpha1.AnnotationReconcileDisabled}
		default:
			d.Annotations = nil
		}
	})
	if verb == "halt" || verb == "resume" {
		c.halted = verb == "halt"
	}
	return c.rv != before
}

// brought is the strategy that Git brings.
func brought(c *cluster) *appsv1.DeploymentStrategy {
	s := c.manifestStrategy()
	if c.badBounds {
		none := intstr.FromInt32(0)
		s.RollingUpdate = &appsv1.RollingUpdateDeployment{MaxSurge: &none, MaxUnavailable: &none}
	}
	return &s
}

// widen returns the bounds that hold. While the API server would refuse those of the plan,
// they are those of the API server's default strategy, or those before.
func widen(c *cluster, surge, unavailable int32) (int32, int32) {
	if !c.badBounds {
		return surge, unavailable
	}
	quarter := intstr.FromString("25%")
	s := appsv1.DeploymentStrategy{Type: appsv1.RollingUpdateDeploymentStrategyType}
	s.RollingUpdate = &appsv1.RollingUpdateDeployment{MaxSurge: &quarter, MaxUnavailable: &quarter}
	more, fewer, _ := plan.Bounds(&s, c.replicas())
	return max(surge, more), max(unavailable, fewer)
}

// refusesBounds is the API server's validation of the only bounds here that it refuses.
func refusesBounds(s *appsv1.DeploymentStrategy) bool {
	if s == nil || s.RollingUpdate == nil || s.RollingUpdate.MaxSurge == nil || s.RollingUpdate.MaxUnavailable == nil {
		return false
	}
	nothing := func(v *intstr.IntOrString) bool { return v.String() == "0" || v.String() == "0%" }
	return nothing(s.RollingUpdate.MaxSurge) && nothing(s.RollingUpdate.MaxUnavailable)
}

func refusesWrite(c *cluster, change func(*appsv1.Deployment)) bool {
	d := c.d.DeepCopy()
	change(d)
	return refusesBounds(&d.Spec.Strategy)
}

// isLeftAlone reports whether a round may begin nothing with the Deployment. A release
// under way goes on.
func isLeftAlone(ob *engine.Observed) bool {
	d := ob.Deployment
	closed := d.Spec.Paused && d.Spec.Strategy.Type == appsv1.RecreateDeploymentStrategyType
	held := d.Labels[v1alpha1.LabelHeld] != "" || len(ob.Records) > 0 && closed
	return d.Annotations[v1alpha1.AnnotationReconcile] == v1alpha1.AnnotationReconcileDisabled && !held
}

func isAlone(c *cluster) bool {
	return c.d.Annotations[v1alpha1.AnnotationReconcile] == v1alpha1.AnnotationReconcileDisabled
}

// standsStill reports whether the plan is paused or its Deployment left alone, and the
// status says so.
func standsStill(c *cluster) bool {
	return c.br.Status.Reason == v1alpha1.ReasonReleasePaused && (c.br.Spec.Paused || isAlone(c))
}

// named is the commit that the plan and approvals name.
func named(c *cluster) string {
	if c.noCommit {
		return ""
	}
	return c.commit
}

// commitIn is the ledger's commit of a release. Without commits it is counted by the model:
// each version that is brought is another release.
func commitIn(c *cluster, spec *v1alpha1.BatchReleaseSpec) string {
	if c.noCommit {
		return c.commit
	}
	return spec.Commit
}

// noteApproval notes the approval that a user has given for what is brought.
func noteApproval(c *cluster) {
	o := &c.oracle
	o.approvedSteps, o.approvalSeen, o.approvedFor = [][]intstr.IntOrString{valuesOf(c.br.Spec.Strategy.Steps)}, false, c.commit
}

// namedBy reports whether an approval names a release. One without a commit is for the
// release that it came for.
func namedBy(o *oracle, r *release, a *v1alpha1.Approval) bool {
	if a.Commit == "" {
		return o.approvedFor == r.commit
	}
	return len(a.Commit) >= 7 && strings.HasPrefix(r.commit, a.Commit)
}

// passTo lets time pass.
func passTo(c *cluster, to time.Time) {
	c.oracle.since(c, c.now)
	countAbsence(c, to)
	c.now = to
}
