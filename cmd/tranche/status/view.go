package status

import (
	"cmp"
	"fmt"
	"path"
	"strings"

	appsv1 "k8s.io/api/apps/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/duration"

	"github.com/tranche-dev/tranche/cmd/tranche/cli"
	"github.com/tranche-dev/tranche/cmd/tranche/terminal"
	"github.com/tranche-dev/tranche/plan"
	"github.com/tranche-dev/tranche/plan/v1alpha1"
)

// barWidth is how many characters a progress bar has.
const barWidth = 20

// text is what status prints: what it is, the tree, and what moves it on.
func (s *releaseView) text(style terminal.Style) string {
	at := &s.release.Status
	var b strings.Builder
	fmt.Fprintf(&b, "%s  %s  %s\n",
		style.Bold(s.release.Namespace+"/"+s.release.Name), cli.OrNone(string(at.Phase)), s.colour(style, cli.OrNone(at.Reason)))
	if at.Message != "" {
		fmt.Fprintf(&b, "%s\n", at.Message)
	}
	b.WriteString("\n" + terminal.Tree(s.tree(style)))
	if next := s.next(); next != "" {
		b.WriteString("\n" + next)
	}
	return b.String()
}

// colour gives a reason the colour of what it means.
func (s *releaseView) colour(style terminal.Style, text string) string {
	switch s.release.Status.Reason {
	case v1alpha1.ReasonReleaseCompleted:
		return style.Good(text)
	case v1alpha1.ReasonWaitingForApproval, v1alpha1.ReasonWaitingForPause, v1alpha1.ReasonReleasePaused, v1alpha1.ReasonScaledToZero:
		return style.Waits(text)
	case v1alpha1.ReasonUpgrading, v1alpha1.ReasonTakingHold, v1alpha1.ReasonHandingBack:
		return style.Busy(text)
	}
	return style.Bad(text)
}

// tree is source → release → steps → ReplicaSets.
func (s *releaseView) tree(style terminal.Style) terminal.Node {
	release := terminal.Node{Text: s.releaseLine(style)}
	release.Below = append(release.Below, s.images(style)...)
	release.Below = append(release.Below, s.steps(style)...)
	release.Below = append(release.Below, s.workload(style))
	if s.source == nil {
		return release
	}
	source := terminal.Node{Text: s.sourceLine(style)}
	if c := meta.FindStatusCondition(s.source.Status.Conditions, "InSync"); c != nil && c.Reason == plan.ReasonPlanNotApproved {
		source.Below = append(source.Below, terminal.Node{Text: style.Bad(c.Reason + ": " + c.Message)})
	}
	source.Below = append(source.Below, release)
	return source
}

func (s *releaseView) sourceLine(style terminal.Style) string {
	gs := s.source
	line := fmt.Sprintf("GitSource %s  %s of %s", style.Bold(gs.Name), cli.PinOf(gs.Spec.Ref), gs.Spec.URL)
	if p := path.Clean(gs.Spec.Path); p != "." {
		line += ", path " + p
	}
	line += "  applied " + cli.OrNone(cli.Short(gs.Status.AppliedCommit))
	if at := cli.WrittenAt(gs); !at.IsZero() {
		line += style.Faint(", as of " + cli.Age(at, s.now) + " ago")
	}
	if ready := meta.FindStatusCondition(gs.Status.Conditions, "Ready"); ready != nil && ready.Status == metav1.ConditionFalse {
		line += "  " + style.Bad(ready.Reason+": "+ready.Message)
	}
	return line
}

func (s *releaseView) releaseLine(style terminal.Style) string {
	br, at := s.release, &s.release.Status
	line := "BatchRelease " + style.Bold(br.Name)
	switch {
	case s.rolledBack():
		line += fmt.Sprintf("  revision %s, rolled back to %s", at.FailedRevision, at.UpdateRevision)
	case at.StableRevision != "" && at.UpdateRevision != "" && at.StableRevision != at.UpdateRevision:
		line += fmt.Sprintf("  revision %s → %s", at.StableRevision, at.UpdateRevision)
	case at.UpdateRevision != "":
		line += "  revision " + at.UpdateRevision
	}
	if commit := cli.CommitOf(br); commit != "" {
		line += "  commit " + cli.Short(commit)
		if commit != br.Spec.Commit {
			line += ", and not yet " + cli.Short(br.Spec.Commit)
		}
	}
	if at.StartTime != nil && at.Phase != v1alpha1.PhaseCompleted {
		line += style.Faint("  began " + cli.Age(*at.StartTime, s.now) + " ago")
	}
	if deletion := cli.DeletionOf(br); deletion != "" {
		line += "  " + style.Bad(deletion)
	}
	return line
}

// rolledBack reports whether the release that spec brings has ended by a rollback.
func (s *releaseView) rolledBack() bool {
	at := &s.release.Status
	return at.Phase == v1alpha1.PhaseCompleted && at.Reason == v1alpha1.ReasonRolledBack && at.FailedRevision != ""
}

// images are what each container changes from and to.
func (s *releaseView) images(style terminal.Style) []terminal.Node {
	if s.release.Spec.Template == nil {
		return nil
	}
	template := s.release.Spec.Template
	if rs := s.set(s.release.Status.UpdateRevision); rs != nil && cli.CommitOf(s.release) != s.release.Spec.Commit {
		template = &rs.Spec.Template // spec brings another one, which has not begun
	}
	before := map[string]string{}
	if rs := s.set(s.release.Status.StableRevision); rs != nil {
		for _, c := range cli.Containers(&rs.Spec.Template) {
			before[c.Name] = c.Image
		}
	}
	var nodes []terminal.Node
	for _, c := range cli.Containers(template) {
		line := "image " + c.Name + "  "
		if old := before[c.Name]; old != "" && old != c.Image {
			line += old + " → "
		}
		nodes = append(nodes, terminal.Node{Text: line + style.Bold(c.Image)})
	}
	return nodes
}

// steps are the plan's, or while the way leads back, that of the rollback.
func (s *releaseView) steps(style terminal.Style) []terminal.Node {
	at := &s.release.Status
	steps := s.release.Spec.Strategy.Steps
	if at.RollingBack {
		steps = plan.RollbackSteps(&s.release.Spec.Strategy)
	}
	var nodes []terminal.Node
	for i, step := range steps {
		gateless := at.RollingBack || i == len(steps)-1
		nodes = append(nodes, terminal.Node{Text: s.step(style, int32(i), step, gateless)})
	}
	if at.RollingBack {
		return []terminal.Node{{Text: style.Bad("◀ rolling back to " + cli.OrNone(at.UpdateRevision)), Below: nodes}}
	}
	return nodes
}

func (s *releaseView) step(style terminal.Style, i int32, step v1alpha1.Step, gateless bool) string {
	at := &s.release.Status
	target := plan.Limit(step.Replicas, at.Replicas)
	what := fmt.Sprintf("step %d  %4s  %d pods", i, step.Replicas.String(), target)
	done := at.Phase == v1alpha1.PhaseCompleted || i < at.CurrentStepIndex
	switch {
	case s.rolledBack(): // which step it had reached is not known any more
		return style.Faint("○ " + what)
	case done:
		return style.Good("✔") + " " + what + s.opened(style, i)
	case i > at.CurrentStepIndex || at.Phase == "":
		return style.Faint("○ " + what + cli.GateOf(step, gateless))
	}
	mark := style.Busy("▶")
	if at.CurrentStepState == v1alpha1.StepBlocking {
		mark = style.Waits("◼")
	}
	return fmt.Sprintf("%s %s  %s %d/%d%s", mark, what, terminal.Bar(at.UpdatedAvailableReplicas, at.UpdatedReplicas, target, barWidth),
		at.UpdatedAvailableReplicas, target, s.waits(style, step))
}

// opened says who opened the gate of a step that is done.
func (s *releaseView) opened(style terminal.Style, i int32) string {
	approvals := s.release.Status.Approvals
	if s.release.Status.Phase == v1alpha1.PhaseCompleted && len(s.release.Status.History) > 0 && len(approvals) == 0 {
		if h := s.release.Status.History[0]; h.Revision == s.release.Status.UpdateRevision && h.Outcome == v1alpha1.OutcomeCompleted {
			approvals = h.Approvals
		}
	}
	for _, a := range approvals {
		if a.Step == i {
			return style.Faint("  approved by ") + approver(a) + style.Faint(", "+cli.Age(a.Time, s.now)+" ago")
		}
	}
	return ""
}

// waits says what the step under way waits for.
func (s *releaseView) waits(style terminal.Style, step v1alpha1.Step) string {
	at := &s.release.Status
	switch {
	case s.release.DeletionTimestamp != nil:
		return ""
	case s.release.Spec.Paused:
		return style.Waits("  paused")
	case at.CurrentStepState != v1alpha1.StepBlocking:
		return ""
	case at.Reason == v1alpha1.ReasonUpgrading: // the Deployment has grown at the gate
		return style.Waits("  waits for its pods")
	case step.Pause != nil && at.StepStateTime != nil:
		left := at.StepStateTime.Add(step.Pause.Duration.Duration).Sub(s.now)
		return style.Waits("  goes on by itself in " + duration.HumanDuration(max(0, left)))
	}
	return style.Waits("  waits for an approval")
}

// workload is the Deployment and its ReplicaSets.
func (s *releaseView) workload(style terminal.Style) terminal.Node {
	if s.deployment == nil {
		return terminal.Node{Text: style.Bad("Deployment " + s.release.Spec.WorkloadRef.Name + " is not there")}
	}
	n := int32(1)
	if r := s.deployment.Spec.Replicas; r != nil {
		n = *r
	}
	line := fmt.Sprintf("Deployment %s  %d replicas", style.Bold(s.deployment.Name), n)
	if v1alpha1.HasHeld(s.deployment.Labels) {
		line += ", held"
	}
	node := terminal.Node{Text: line}
	for _, rs := range s.sets {
		node.Below = append(node.Below, terminal.Node{Text: s.setLine(style, rs, n)})
	}
	return node
}

func (s *releaseView) setLine(style terminal.Style, rs *appsv1.ReplicaSet, n int32) string {
	want := int32(0)
	if r := rs.Spec.Replicas; r != nil {
		want = *r
	}
	role := s.role(rs)
	line := fmt.Sprintf("ReplicaSet %s  %-6s  %s %d/%d available", rs.Name, cmp.Or(role, "other"),
		terminal.Bar(rs.Status.AvailableReplicas, rs.Status.Replicas, n, barWidth), rs.Status.AvailableReplicas, want)
	switch {
	case want == 0 && rs.Status.Replicas == 0:
		return style.Faint(line)
	case role == "update":
		return style.Good(line)
	}
	return line
}
