package analyze

import (
	"fmt"
	"strings"

	"github.com/tranche-dev/tranche/cmd/tranche/cli"
	"github.com/tranche-dev/tranche/plan/v1alpha1"
)

// text is a replay for people.
func (r *Replay) text() string {
	var b strings.Builder
	if len(r.Items) == 0 {
		fmt.Fprintf(&b, "BatchRelease %s/%s has no past release.\n", r.Namespace, r.Name)
		return b.String()
	}
	rows := [][]string{{"REVISION", "COMMIT", "STARTED", "OUTCOME", "VERDICT", "STEP", "WHY"}}
	for i := range r.Items {
		o := &r.Items[i]
		step, why := o.decisive()
		rows = append(rows, []string{
			o.Revision, cli.OrNone(cli.Short(o.Commit)), cli.Absolute(&o.StartTime), string(o.Outcome), string(o.Verdict), step, why,
		})
	}
	b.WriteString(cli.Table(rows))
	b.WriteString("\n" + r.summary() + "\n")
	for _, u := range r.Unnoticed {
		fmt.Fprintf(&b, "%s at step %d: %s\n", u.Metric, u.Step, u.Message)
	}
	b.WriteString(leftText(r.Left))
	return b.String()
}

// decisive returns the step to which the verdict of a release is due, and why.
func (o *Replayed) decisive() (step, why string) {
	for _, s := range o.Steps {
		if s.Verdict == o.Verdict && (step == "" || !s.Background) {
			step, why = fmt.Sprint(s.Step), s.Message
			if s.Background {
				step = "background"
			}
			if s.Verdict != v1alpha1.VerdictPass {
				break
			}
		}
	}
	if len(o.Steps) == 0 {
		return "-", "no step has a metric that can be measured"
	}
	if o.Stable == "" && o.Verdict == v1alpha1.VerdictUnknown {
		why += "; the history does not have the revision before it"
	}
	return step, why
}

// summary is the last line: 9 pass, 1 would have rolled back 7f3c1e0.
func (r *Replay) summary() string {
	passed, unknown := 0, 0
	failed, consequence := []string{}, ""
	for i := range r.Items {
		o := &r.Items[i]
		switch o.Verdict {
		case v1alpha1.VerdictFail:
			name := o.Revision
			if o.Commit != "" {
				name = cli.Short(o.Commit)
			}
			failed, consequence = append(failed, name), o.Consequence
		case v1alpha1.VerdictUnknown:
			unknown++
		default:
			passed++
		}
	}
	parts := []string{fmt.Sprintf("%d pass", passed)}
	if len(failed) > 0 {
		parts = append(parts, fmt.Sprintf("%d would have %s %s", len(failed), consequence, strings.Join(failed, ", ")))
	}
	if unknown > 0 {
		parts = append(parts, fmt.Sprintf("%d unknown", unknown))
	}
	return strings.Join(parts, ", ")
}

func leftText(left []Left) string {
	var b strings.Builder
	for _, l := range left {
		fmt.Fprintf(&b, "%s is left out: it %s\n", l.Metric, l.Reason)
	}
	return b.String()
}
