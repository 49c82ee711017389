package cli

import (
	"cmp"
	"errors"
	"fmt"
	"regexp"
	"strings"
	"text/tabwriter"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/duration"

	"github.com/tranche-dev/tranche/cmd/tranche/terminal"
	"github.com/tranche-dev/tranche/plan/v1alpha1"
)

// Table aligns columns, with two spaces in between. A text in it stays in its cell.
func Table(rows [][]string) string {
	var b strings.Builder
	t := tabwriter.NewWriter(&b, 0, 0, 2, ' ', 0)
	var err error
	for _, row := range rows {
		cells := make([]string, len(row))
		for i, cell := range row {
			cells[i] = terminal.Printable(strings.Map(spaces, cell))
		}
		_, wrong := fmt.Fprintln(t, strings.Join(cells, "\t"))
		err = errors.Join(err, wrong)
	}
	if err := errors.Join(err, t.Flush()); err != nil {
		panic(err) // a strings.Builder takes everything
	}
	return b.String()
}

// spaces takes the ends of lines and cells for spaces.
func spaces(r rune) rune {
	if r == '\n' || r == '\t' || r == '\r' || r == '\v' || r == '\f' { // those of a tabwriter
		return ' '
	}
	return r
}

func OrNone(s string) string { return cmp.Or(s, "-") }

// Short is a commit as long as people write it.
func Short(commit string) string { return commit[:min(len(commit), 7)] }

// CommitOf returns the commit that the status of a release is about. The steps and
// revisions there are not those of a newer commit in spec. Without a commit in the status
// it is that of spec.
func CommitOf(br *v1alpha1.BatchRelease) string {
	return cmp.Or(br.Status.UpdateCommit, br.Spec.Commit)
}

// Age is how long ago something was, as kubectl says it.
func Age(t metav1.Time, now time.Time) string {
	if t.IsZero() {
		return "-"
	}
	return duration.HumanDuration(now.Sub(t.Time))
}

// Absolute is a time as tables and logs have it: in UTC, to the second.
func Absolute(t *metav1.Time) string {
	if t.IsZero() {
		return "-"
	}
	return t.UTC().Format(time.RFC3339)
}

// StepOf is the step, counted from 0, and how many there are.
func StepOf(br *v1alpha1.BatchRelease) string {
	if br.Status.RollingBack {
		return "back"
	}
	all := len(br.Spec.Strategy.Steps)
	if br.Status.Phase == v1alpha1.PhaseCompleted {
		return fmt.Sprintf("%d/%d", all, all)
	}
	return fmt.Sprintf("%d (of %d)", br.Status.CurrentStepIndex, all)
}

func Containers(t *corev1.PodTemplateSpec) []corev1.Container {
	return append(append([]corev1.Container{}, t.Spec.InitContainers...), t.Spec.Containers...)
}

// GateOf says what a step that has not begun will wait for.
func GateOf(step v1alpha1.Step, last bool) string {
	switch {
	case step.Analysis != nil && step.Analysis.Approval:
		return ", then its metrics and an approval"
	case step.Analysis != nil:
		return ", then its metrics"
	case last:
		return ""
	case step.Pause != nil:
		return ", then a pause of " + duration.HumanDuration(step.Pause.Duration.Duration)
	}
	return ", then an approval"
}

var commitPart = regexp.MustCompile(`^[0-9a-f]{7,64}$`)

// CheckCommit refuses a value of --commit that neither is the hash of a commit nor begins
// one. The cluster knows no names such as HEAD.
func CheckCommit(text string) error {
	if commitPart.MatchString(text) {
		return nil
	}
	return fmt.Errorf("--commit %s: must be at least seven characters of a commit's hash, such as $(git rev-parse HEAD) prints", text)
}
