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
	"github.com/tranche-dev/tranche/cmd/tranche/view"
	"github.com/tranche-dev/tranche/plan"
	"github.com/tranche-dev/tranche/plan/v1alpha1"
)

// barWidth is how many characters a progress bar has.
const barWidth = 20

// text is what status prints: what it is, the tree, and what moves it on.
func (s *releaseView) text(style terminal.Style) string {
	at := &s.Release.Status
	var b strings.Builder
	fmt.Fprintf(&b, "%s  %s  %s\n",
		style.Bold(s.Release.Namespace+"/"+s.Release.Name), cli.OrNone(string(at.Phase)), s.colour(style, cli.OrNone(at.Reason)))
	if at.Message != "" {
		fmt.Fprintf(&b, "%s\n", at.Message)
	}
	b.WriteString("\n" + terminal.Tree(s.tree(style)))
	if next := s.Next().Text(); next != "" {
		b.WriteString("\n" + next)
	}
	return terminal.Safe(b.String()) // it has texts of objects, commits and providers
}

// colour gives a reason the colour of what it means.
func (s *releaseView) colour(style terminal.Style, text string) string {
	return tone(style, s.Tone(), text)
}

func tone(style terminal.Style, t view.Tone, text string) string {
	switch t {
	case view.ToneGood:
		return style.Good(text)
	case view.ToneWaits:
		return style.Waits(text)
	case view.ToneBusy:
		return style.Busy(text)
	case view.ToneBad:
	}
	return style.Bad(text)
}

// tree is source → release → steps → ReplicaSets.
func (s *releaseView) tree(style terminal.Style) terminal.Node {
	release := terminal.Node{Text: s.releaseLine(style)}
	release.Below = append(release.Below, s.images(style)...)
	release.Below = append(release.Below, s.steps(style)...)
	release.Below = append(release.Below, s.workload(style))
	if s.Source == nil {
		return release
	}
	source := terminal.Node{Text: s.sourceLine(style)}
	if c := meta.FindStatusCondition(s.Source.Status.Conditions, "InSync"); c != nil && c.Reason == plan.ReasonPlanNotApproved {
		source.Below = append(source.Below, terminal.Node{Text: style.Bad(c.Reason + ": " + c.Message)})
	}
	source.Below = append(source.Below, release)
	return source
}

func (s *releaseView) sourceLine(style terminal.Style) string {
	gs := s.Source
	line := fmt.Sprintf("GitSource %s  %s of %s", style.Bold(gs.Name), cli.PinOf(gs.Spec.Ref), gs.Spec.URL)
	if p := path.Clean(gs.Spec.Path); p != "." {
		line += ", path " + p
	}
	line += "  applied " + cli.OrNone(cli.Short(gs.Status.AppliedCommit))
	if at := cli.WrittenAt(gs); !at.IsZero() {
		line += style.Faint(", as of " + cli.Age(at, s.Now) + " ago")
	}
	if ready := meta.FindStatusCondition(gs.Status.Conditions, "Ready"); ready != nil && ready.Status == metav1.ConditionFalse {
		line += "  " + style.Bad(ready.Reason+": "+ready.Message)
	}
	return line
}

func (s *releaseView) releaseLine(style terminal.Style) string {
	br, at := s.Release, &s.Release.Status
	line := "BatchRelease " + style.Bold(br.Name)
	switch {
	case s.RolledBack():
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
		line += style.Faint("  began " + cli.Age(*at.StartTime, s.Now) + " ago")
	}
	if deletion := cli.DeletionOf(br); deletion != "" {
		line += "  " + style.Bad(deletion)
	}
	return line
}

// images are what each container changes from and to.
func (s *releaseView) images(style terminal.Style) []terminal.Node {
	var nodes []terminal.Node
	for _, c := range s.Images() {
		line := "image " + c.Container + "  "
		if c.From != "" {
			line += c.From + " → "
		}
		nodes = append(nodes, terminal.Node{Text: line + style.Bold(c.To)})
	}
	return nodes
}

// steps are the plan's. During a rollback they are those of the rollback.
func (s *releaseView) steps(style terminal.Style) []terminal.Node {
	var nodes []terminal.Node
	for _, step := range s.Steps() {
		node := terminal.Node{Text: s.step(style, step)}
		if step.State == view.StepMoving || step.State == view.StepWaiting {
			node.Below = s.metrics(style)
		}
		nodes = append(nodes, node)
	}
	if at := &s.Release.Status; at.RollingBack {
		return []terminal.Node{{Text: style.Bad("◀ rolling back to " + cli.OrNone(at.UpdateRevision)), Below: nodes}}
	}
	return nodes
}

func (s *releaseView) step(style terminal.Style, step view.Step) string {
	what := fmt.Sprintf("step %d  %4s  %d pods", step.Index, step.Replicas, step.Target)
	switch step.State {
	case view.StepUnknown:
		return style.Faint("○ " + what)
	case view.StepDone:
		return style.Good("✔") + " " + what + s.opened(style, step.Approval)
	case view.StepAhead:
		return style.Faint("○ " + what + cli.GateOf(step.Plan, step.Gate == view.GateNone))
	case view.StepMoving, view.StepWaiting:
	}
	mark := style.Busy("▶")
	if step.State == view.StepWaiting {
		mark = style.Waits("◼")
	}
	return fmt.Sprintf("%s %s  %s %d/%d%s", mark, what, terminal.Bar(step.Available, step.Updated, step.Target, barWidth),
		step.Available, step.Target, s.waits(style, step))
}

// metrics are what is measured at the step under way, with the values of both revisions.
func (s *releaseView) metrics(style terminal.Style) []terminal.Node {
	a := s.Analysis()
	if a == nil {
		return nil
	}
	var nodes []terminal.Node
	for i := range a.Metrics {
		m := &a.Metrics[i]
		name := m.Name
		if m.Background {
			name += ", in the background"
		}
		nodes = append(nodes, terminal.Node{Text: style.Bold(name) + "  " + tone(style, m.Tone, terminal.Printable(m.Line()))})
	}
	return nodes
}

// opened says who opened the gate of a step that is done.
func (s *releaseView) opened(style terminal.Style, a *v1alpha1.StepApproval) string {
	if a == nil {
		return ""
	}
	return style.Faint("  approved by ") + terminal.Printable(view.Approver(*a)) + style.Faint(", "+cli.Age(a.Time, s.Now)+" ago")
}

// waits says what the step under way waits for.
func (s *releaseView) waits(style terminal.Style, step view.Step) string {
	switch step.WaitsFor {
	case view.WaitsForNothing:
		return ""
	case view.WaitsForResume:
		return style.Waits("  paused")
	case view.WaitsForPods:
		return style.Waits("  waits for its pods")
	case view.WaitsForPause:
		return style.Waits("  goes on by itself in " + duration.HumanDuration(max(0, step.Until.Sub(s.Now))))
	case view.WaitsForAnalysis:
		return style.Waits("  waits for its metrics")
	case view.WaitsForRemedy:
		return style.Bad("  its metrics have failed")
	case view.WaitsForApproval:
	}
	return style.Waits("  waits for an approval")
}

// workload is the Deployment and its ReplicaSets.
func (s *releaseView) workload(style terminal.Style) terminal.Node {
	if s.Deployment == nil {
		return terminal.Node{Text: style.Bad("Deployment " + s.Release.Spec.WorkloadRef.Name + " is not there")}
	}
	n := int32(1)
	if r := s.Deployment.Spec.Replicas; r != nil {
		n = *r
	}
	line := fmt.Sprintf("Deployment %s  %d replicas", style.Bold(s.Deployment.Name), n)
	if v1alpha1.HasHeld(s.Deployment.Labels) {
		line += ", held"
	}
	node := terminal.Node{Text: line}
	for _, rs := range s.Sets {
		node.Below = append(node.Below, terminal.Node{Text: s.setLine(style, rs, n)})
	}
	return node
}

func (s *releaseView) setLine(style terminal.Style, rs *appsv1.ReplicaSet, n int32) string {
	want := int32(0)
	if r := rs.Spec.Replicas; r != nil {
		want = *r
	}
	role := s.Role(rs)
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
