package engine_test

import (
	"fmt"
	"maps"
	"math/rand/v2"
	"slices"
	"strconv"
	"strings"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	"k8s.io/apimachinery/pkg/util/intstr"
	"k8s.io/apimachinery/pkg/util/validation/field"

	"github.com/tranche-dev/tranche/plan"
	"github.com/tranche-dev/tranche/plan/v1alpha1"
	"github.com/tranche-dev/tranche/rollout/engine"
)

// exec makes one move, by its name: a walk is a list of names, and so can be
// repeated, shortened and kept as a test. It reports whether the move was
// possible.
func (c *cluster) exec(move string) bool {
	verb, rest, _ := strings.Cut(move, " ")
	args := strings.Fields(rest)
	number := func(i int) int {
		n, err := strconv.Atoi(args[i])
		if err != nil {
			panic(err)
		}
		return n
	}
	defer c.compact()
	switch verb {
	// the controller
	case "round":
		c.round(-1)
	case "crash": // after k writes
		c.round(number(0))
		c.restart()
	case "fail": // at write k, which the API server does not answer
		c.round(number(0))
		c.woken = true
	case "half": // it has made a ReplicaSet, and ends before it gives it a size
		c.halfway = true
		c.round(-1)
		c.restart()
	case "restart":
		c.restart()
	// the native controllers, pods, time
	case "native":
		before := c.clone()
		takeTurn(c, rest == behind)
		c.oracle.fought(c, before)
	case "sets":
		for _, i := range c.live() {
			if versionIn(&c.sets[i].rs.Spec.Template) == number(0)-1 {
				c.turnSet(i)
			}
		}
	case "ready", "break", "evict", "mend":
		return c.changePod(verb, number(0)-1)
	case "fate":
		c.fates[number(0)-1] = fate(args[1])
	case "quota":
		c.quota = number(0)
	case "time":
		d, err := time.ParseDuration(args[0])
		if err != nil {
			panic(err)
		}
		passTo(c, c.now.Add(d))
	case "down": // the controller, for that long
		c.exec("time " + args[0])
		c.restart()
	case "run": // everybody has turns for that long, and no pod changes
		d, err := time.ParseDuration(args[0])
		if err != nil {
			panic(err)
		}
		c.run(c.now.Add(d))
	case "quiet":
		if failure := c.quiet(); failure != "" {
			c.violate("I14", "%s", failure)
		}
	case "turns": // all controllers but ours, and pods, with no time
		for range 4 {
			before := c.clone()
			c.native()
			c.oracle.fought(c, before)
			c.turnSets()
			c.readyAll()
		}
		c.turnSets()
	// caches
	case "lag":
		return c.lag(args[0])
	case "deliver":
		c.deliver()
	default:
		return changeWider(c, verb, args, number)
	}
	return true
}

// change is a move of a person, or of gitsync.
func (c *cluster) change(verb string, args []string, number func(int) int) bool {
	switch verb {
	case "scale":
		n := int32(number(0))
		if c.d == nil || n == c.replicas() {
			return false
		}
		c.scale(n)
		c.oracle.resized, c.oracle.zeroed = true, c.oracle.zeroed || n == 0
		return true
	case "deploy": // the Deployment is made again at its stable revision
		if c.d != nil {
			return false
		}
		r := plan.StableRecord(c.records)
		if r == nil {
			return false
		}
		c.makeDeployment(r.Template)
		return true
	case "undeploy":
		if c.d == nil || plan.StableRecord(c.records) == nil {
			return false
		}
		c.d = nil
		for i := range c.sets {
			c.deleteSet(i)
		}
		c.rv++
		return true
	case "image": // a native rollout where there is no plan
		if c.d == nil || c.br != nil || c.d.Spec.Paused {
			return false
		}
		before := c.rv
		c.writeDeployment(func(d *appsv1.Deployment) { d.Spec.Template = *templates[number(0)-1].DeepCopy() })
		return c.rv != before
	case "replan", "unplan", "rename", "admit", "unadmit", "alter":
		return c.changePlan(verb)
	case "label", "running", "strategy", "template", "resize", "delete", "edit", "foreground", "hostage", "gone", "restore":
		return c.meddle(verb, args, number)
	}
	if c.br == nil {
		return false
	}
	return c.changeSpec(verb, args, number)
}

func (c *cluster) changePlan(verb string) bool {
	switch verb {
	case "replan":
		if c.br != nil {
			return false
		}
		c.plan()
		c.oracle.forget(c)
		for i := range c.sets {
			c.sets[i].foreign = c.sets[i].foreign || len(c.records) == 0
		}
	case "unplan":
		if c.br == nil {
			return false
		}
		c.br, c.brLag, c.woken = nil, false, true
		c.rv++
	case "rename": // another plan takes over status
		if c.br == nil {
			return false
		}
		br := c.br.DeepCopy()
		br.UID, br.ResourceVersion, br.Generation = c.uid(), c.nextVersion(), 1
		c.br, c.brLag, c.woken = br, false, true
	case "admit":
		if c.mutates {
			return false
		}
		c.mutates = true
	case "unadmit":
		if !c.mutates {
			return false
		}
		c.mutates = false
	case "alter":
		if c.alters {
			return false
		}
		c.alters = true
	}
	return true
}

// forget is a lost status. The engine does not know any more what has ended and what
// gates have opened, and takes a native Deployment for stable as it is.
func (o *oracle) forget(c *cluster) {
	o.adoptable, o.approvalSeen = true, false // an approval that names no steps is seen for the first time
	for i := range o.releases {
		r := &o.releases[i]
		*r = release{version: r.version, commit: r.commit, entered: c.now, completed: -1, fault: r.fault}
	}
}

// lose is a lost status of a plan that is still there. It is forgotten what has ended,
// and no gate is taken back or opened by it: what the gates had allowed stays the most.
func (o *oracle) lose(c *cluster) {
	before := slices.Clone(o.releases)
	o.forget(c)
	for i, was := range before {
		r := &o.releases[i]
		r.opened, r.grown, r.first, r.steps, r.edited = was.opened, was.grown, was.first, was.steps, was.edited
		r.position, r.reach, r.waits = was.position, was.reach, was.waits
		r.lost = was.looked || was.lost
		r.full = was.full // until a round looks
	}
}

// changeSpec changes the BatchRelease.
func (c *cluster) changeSpec(verb string, args []string, number func(int) int) bool {
	before := c.br
	switch verb {
	case "bring", "recommit", "forcepush": // a version by a new commit; the same one; an old commit again
		switch verb {
		case "bring":
			c.version, c.commit = number(0)-1, c.newCommit(number(0)-1)
		case "recommit":
			c.commit = c.newCommit(c.version)
		default:
			commits := slices.Sorted(maps.Keys(c.commits))
			c.commit = commits[number(0)%len(commits)]
			c.version = c.commits[c.commit]
		}
		c.writeRelease(func(br *v1alpha1.BatchRelease) {
			br.Spec.Template, br.Spec.Commit = templates[c.version], named(c)
		})
	case "approve", "misapprove":
		revision := c.br.Status.UpdateRevision
		if verb == "misapprove" {
			revision = bogus
		}
		if revision == "" {
			return false
		}
		c.writeRelease(func(br *v1alpha1.BatchRelease) {
			br.Spec.Approval = &v1alpha1.Approval{Revision: revision, Commit: named(c), Step: int32(number(0))}
			br.Spec.Approval.ApprovedIn = strconv.Itoa(int(c.rv)) // it distinguishes an approval that is given again
			if !c.byHand {
				br.Spec.Approval.Steps = valuesOf(br.Spec.Strategy.Steps)
			}
		})
		noteApproval(c)
	case "unapprove":
		c.writeRelease(func(br *v1alpha1.BatchRelease) { br.Spec.Approval = nil })
	case "complete": // an approval in the cluster
		s := c.br.Status
		if s.CurrentStepState != v1alpha1.StepBlocking && s.CurrentStepState != v1alpha1.StepUpgrade || s.RollingBack || s.UpdateCommit != c.commit {
			return false
		}
		r := c.oracle.of(c, c.version, c.commit)
		r.completed, r.completedSteps, r.statusSteps = int(s.CurrentStepIndex), valuesOf(c.br.Spec.Strategy.Steps), r.steps
		if len(plan.ValidateStrategy(&c.br.Spec.Strategy, field.NewPath("spec"))) > 0 {
			r.completedSteps = r.steps // the status is about the steps before those that cannot be used
		}
		c.writeRelease(func(br *v1alpha1.BatchRelease) { br.Status.CurrentStepState = v1alpha1.StepCompleted })
	case "steps":
		c.steps = strings.Join(args, " ")
		c.writeRelease(func(br *v1alpha1.BatchRelease) { br.Spec.Strategy.Steps = parseSteps(c.steps) })
	case "badplan":
		c.writeRelease(func(br *v1alpha1.BatchRelease) { br.Spec.Strategy.Steps = parseSteps("2 1 100%") })
	case "deadline":
		c.deadline = int32(number(0))
		c.writeRelease(func(br *v1alpha1.BatchRelease) { br.Spec.Strategy.ProgressDeadlineSeconds = &c.deadline })
	case "onfailure":
		c.writeRelease(func(br *v1alpha1.BatchRelease) { br.Spec.Strategy.OnFailure = v1alpha1.FailurePolicy(args[0]) })
	case "pause", "unpause":
		c.writeRelease(func(br *v1alpha1.BatchRelease) { br.Spec.Paused = verb == "pause" })
	case "rollback":
		c.writeRelease(func(br *v1alpha1.BatchRelease) {
			br.Annotations = map[string]string{v1alpha1.AnnotationRollback: "true"}
		})
	case "losestatus":
		c.writeRelease(func(br *v1alpha1.BatchRelease) { br.Status = v1alpha1.BatchReleaseStatus{} })
		c.brLag = false
		c.oracle.lose(c)
	default:
		panic("no such move: " + verb)
	}
	return c.br != before
}

// meddle is a move of a second writer.
func (c *cluster) meddle(verb string, args []string, number func(int) int) bool {
	if c.d == nil {
		return false
	}
	before := c.rv
	switch verb {
	case "gone": // of all that finalizers keep
		for _, i := range c.live() {
			if c.doomed(i) {
				c.deleteSet(i)
			}
		}
	case "restore": // of the held Deployment alone
		if !c.held() {
			return false
		}
		c.records, c.known = nil, nil
		for _, i := range c.live() {
			c.deleteSet(i)
		}
		c.rv++
	case "label", "running", "strategy", "template": // of a held Deployment
		if !c.held() {
			return false
		}
		c.writeDeployment(func(d *appsv1.Deployment) {
			switch verb {
			case "label":
				delete(d.Labels, v1alpha1.LabelHeld)
			case "running":
				d.Spec.Paused = false
			case "strategy":
				d.Spec.Strategy = c.manifestStrategy()
			case "template":
				d.Spec.Template = *templates[number(0)-1].DeepCopy()
			}
		})
	default:
		i := slices.IndexFunc(c.sets, func(s podSet) bool { return s.rs != nil && versionIn(&s.rs.Spec.Template) == number(0)-1 })
		if i < 0 {
			return false
		}
		switch verb {
		case "resize":
			// An approval bounds what the controller adds. These pods it has not added, and no
			// record says what they run.
			c.sets[i].foreign = c.sets[i].foreign || c.size(i) == 0 && !c.recorded(i)
			c.writeSet(i, func(rs *appsv1.ReplicaSet) { n := int32(number(1)); rs.Spec.Replicas = &n })
		case "delete":
			c.deleteSet(i)
		case "foreground", "hostage": // a finalizer keeps it: its pods end at once, or stay
			if c.doomed(i) {
				return false
			}
			c.doom(i, verb == "hostage")
		case "edit":
			c.writeSet(i, func(rs *appsv1.ReplicaSet) {
				rs.Spec.Template.Annotations = maps.Clone(rs.Spec.Template.Annotations)
				if rs.Spec.Template.Annotations == nil {
					rs.Spec.Template.Annotations = map[string]string{}
				}
				rs.Spec.Template.Annotations[annotationEdit] = strconv.FormatInt(c.rv, 10)
			})
		}
	}
	if c.rv != before {
		c.oracle.meddled = "a second writer: " + strings.Join(append([]string{verb}, args...), " ")
	}
	return c.rv != before
}

// recorded reports whether a record is of a ReplicaSet's template.
func (c *cluster) recorded(i int) bool {
	return slices.ContainsFunc(c.records, func(r engine.Record) bool { return plan.EqualTemplate(r.Template, &c.sets[i].rs.Spec.Template) })
}

// changePod changes one pod of a version.
func (c *cluster) changePod(verb string, version int) bool {
	for _, i := range c.live() {
		if versionIn(&c.sets[i].rs.Spec.Template) != version {
			continue
		}
		for j := range c.sets[i].pods {
			p := &c.sets[i].pods[j]
			switch {
			case verb == "ready" && !p.ready && p.fate == comes:
				p.ready, p.since = true, c.now
			case verb == "mend" && !p.ready && p.fate != comes:
				p.mend(c.now)
			case verb == "break" && p.ready:
				p.ready, p.fate = false, never
			case verb == "evict" && p.ready:
				p.ready, p.fate = false, unschedulable
			default:
				continue
			}
			return true
		}
	}
	return false
}

// mend lets a pod become ready. One that had no node gets one.
func (p *pod) mend(now time.Time) {
	if p.fate == unschedulable {
		p.placed = now
	}
	p.fate = comes
}

// lag stops what the cache hears of an object.
func (c *cluster) lag(of string) bool {
	switch of {
	case "deployment":
		if c.dLag {
			return false
		}
		c.dLag, c.dRead = true, c.d
	case "release":
		if c.brLag || c.br == nil {
			return false
		}
		c.brLag, c.brRead = true, c.br
	case "records":
		if c.recordsLag {
			return false
		}
		c.recordsLag, c.known = true, slices.Clone(c.records)
	default:
		version, _ := strconv.Atoi(of)
		i := slices.IndexFunc(c.sets, func(s podSet) bool { return s.rs != nil && !s.lag && versionIn(&s.rs.Spec.Template) == version-1 })
		if i < 0 {
			return false
		}
		c.sets[i].lag, c.sets[i].read = true, c.sets[i].rs
	}
	return true
}

// ---- random setups and moves

var plans = []string{"100%", "1 100%", "1 50% 100%", "50%/1m 100%", "1/30s 50% 100%", "1 2 75%/5m 100%", "20% 20% 60% 100%", "1 3 100%", "10%/0s 50% 100%", "50% 2 100%"}

func randomSetup(r *rand.Rand) setup {
	bounds := []intstr.IntOrString{intstr.FromInt32(0), intstr.FromInt32(1), intstr.FromInt32(2), intstr.FromString("25%"), intstr.FromString("50%")}
	s := setup{
		n: 1 + r.Int32N(6), surge: pick(r, bounds), unavailable: pick(r, bounds), steps: pick(r, plans), deadline: pick(r, []int32{60, 600, 600, 2147483647}),
		minReady: pick(r, []int32{0, 0, 10, 30}), onFailure: pick(r, []v1alpha1.FailurePolicy{v1alpha1.FailureHold, v1alpha1.FailureRollback}), history: pick(r, []int32{10, 10, 1, 0}),
		ownStrategy: r.IntN(3) == 0, signed: r.IntN(6) == 0, byHand: r.IntN(3) == 0,
	}
	if value(s.surge) == 0 && value(s.unavailable) == 0 { // the API server takes no such Deployment
		s.unavailable = intstr.FromInt32(1)
	}
	if r.IntN(3) == 0 {
		s.admission = pick(r, []admission{mutatesAlways, mutatesSince, mutatesNotDry})
	}
	if r.IntN(10) == 0 {
		s.n += 10
	}
	if r.IntN(8) == 0 {
		s.midway = 1 + r.IntN(3)
	}
	if r.IntN(4) == 0 {
		s.setAdmission = pick(r, []admission{mutatesAlways, mutatesSince, mutatesNotDry})
	}
	return s
}

func pick[T any](r *rand.Rand, of []T) T { return of[r.IntN(len(of))] }

// mood is what kinds of moves a walk has, by their weights of a thousand.
type mood struct {
	users, second, caches, pods, faults int
	// extra makes [extraMove]; nil: there is none.
	extra *rand.Rand
}

func randomMood(r *rand.Rand) mood {
	return mood{users: 30 + r.IntN(120), second: pick(r, []int{0, 0, 15}), caches: pick(r, []int{0, 0, 40}), pods: pick(r, []int{0, 30, 80}), faults: pick(r, []int{0, 30})}
}

// next picks a move.
func (m mood) next(r *rand.Rand, c *cluster) string {
	version := func() int { return 1 + r.IntN(versions) }
	if c.admission == mutatesSince && !c.mutates && r.IntN(40) == 0 {
		return "admit" // else most walks of this admission end without it
	}
	if c.setAdmission == mutatesSince && !c.alters && r.IntN(40) == 0 {
		return "alter"
	}
	if c.setAdmission != admitsAll && m.faults > 0 && r.IntN(30) == 0 {
		return "half"
	}
	k := r.IntN(1000)
	if k -= m.users; k < 0 {
		switch r.IntN(22) {
		case 0, 1, 2, 3:
			return fmt.Sprintf("bring %d", version())
		case 4:
			return "recommit"
		case 5:
			return fmt.Sprintf("forcepush %d", r.IntN(5))
		case 6, 7, 8, 9:
			return fmt.Sprintf("approve %d", r.IntN(3))
		case 10:
			return "complete"
		case 11, 12:
			return "steps " + pick(r, plans)
		case 13:
			return "rename"
		case 14, 15:
			return fmt.Sprintf("scale %d", pick(r, []int{0, 1, 2, 3, 4, 6, 9}))
		case 16:
			return pick(r, []string{"pause", "unpause", "unpause"})
		case 17:
			return pick(r, []string{"undeploy", "deploy", "deploy"})
		case 18:
			return pick(r, []string{"unplan", "replan", "replan"})
		case 19:
			return pick(r, []string{"losestatus", "badplan", "steps " + pick(r, plans), "misapprove 3", "unapprove"})
		case 20:
			return pick(r, []string{"rollback", "deadline 60", "deadline 600", "onfailure Rollback", "onfailure Hold"})
		default:
			return pick(r, []string{"admit", "deploy", "replan", "unpause", fmt.Sprintf("image %d", version())})
		}
	}
	if k -= m.second; k < 0 {
		return pick(r, []string{"label", "running", "strategy", fmt.Sprintf("template %d", version()), fmt.Sprintf("resize %d %d", version(), r.IntN(5)),
			fmt.Sprintf("delete %d", version()), fmt.Sprintf("foreground %d", version()),
			fmt.Sprintf("hostage %d", version()), "gone", fmt.Sprintf("edit %d", version()), fmt.Sprintf("resize %d 0", 1+c.oracle.stable)})
	}
	if k -= m.caches; k < 0 {
		return "lag " + pick(r, []string{"deployment", "release", "records", strconv.Itoa(version())})
	}
	if k -= m.pods; k < 0 {
		return pick(r, []string{fmt.Sprintf("break %d", version()), fmt.Sprintf("evict %d", version()), fmt.Sprintf("mend %d", version()), fmt.Sprintf("mend %d", version()),
			fmt.Sprintf("fate %d %s", version(), pick(r, []fate{comes, comes, never, unschedulable})), fmt.Sprintf("quota %d", pick(r, []int{0, 0, int(c.replicas())}))})
	}
	if k -= m.faults; k < 0 {
		return pick(r, []string{"restart", fmt.Sprintf("crash %d", r.IntN(3)), fmt.Sprintf("fail %d", r.IntN(3))})
	}
	switch r.IntN(20) {
	case 0, 1, 2, 3, 4, 5:
		return "round"
	case 6, 7:
		return "turns"
	case 8, 9, 10:
		return randomTurn(r, c)
	case 11, 12, 13:
		return fmt.Sprintf("sets %d", version())
	case 14, 15, 16:
		return fmt.Sprintf("ready %d", version())
	case 17:
		if !c.fresh() {
			return "deliver"
		}
		return "round"
	default:
		return pick(r, []string{"time 1s", "time 1s", "time 5s", "time 10s", "time 30s", "run 1m", "run 5m", "run 11m", "run 25m", "down 1m", "down 20m", "down 3h"})
	}
}
