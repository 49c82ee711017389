package analyze

import (
	"cmp"
	"context"
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/tranche-dev/tranche/cmd/tranche/cli"
	"github.com/tranche-dev/tranche/plan"
	"github.com/tranche-dev/tranche/plan/measure"
	"github.com/tranche-dev/tranche/plan/v1alpha1"
	"github.com/tranche-dev/tranche/rollout/engine/native"
	"github.com/tranche-dev/tranche/rollout/engine/verdict"
)

// Same is how often a plan fails pods of one revision. docs/output.md has its fields.
type Same struct {
	cli.Head  `json:",inline"`
	Namespace string `json:"namespace"`
	Name      string `json:"name"`
	Plan      string `json:"plan"`
	Left      []Left `json:"left,omitempty"`
	Revision  string `json:"revision"`
	Pods      int    `json:"pods"`
	Seed      uint64 `json:"seed"`
	// From is the begin of the earliest window.
	From  metav1.Time  `json:"from"`
	Items []SameMetric `json:"items"`
}

// SameMetric are the windows of a metric at a step.
type SameMetric struct {
	Step    int    `json:"step"`
	Metric  string `json:"metric"`
	Update  int    `json:"updatePods"`
	Windows int    `json:"windows"`
	Failed  int    `json:"failed"`
	Unknown int    `json:"unknown"`
	// Allowed is the part of windows that may fail: 1 - confidence.
	Allowed float64 `json:"allowed"`
	// Example is the message of a failure, or else of an Unknown.
	Example string `json:"example,omitempty"`
}

// The names of the two parts. No ReplicaSet has one of them: an upper-case letter is in it.
const updatePart, stablePart = "Tranche-update", "Tranche-stable"

// trySame compares random parts of the stable revision's pods.
func (o *options) trySame(ctx context.Context, k *cli.Connection, p *tried, br *v1alpha1.BatchRelease, ask asker) (*Same, error) {
	revision := cmp.Or(br.Status.StableRevision, br.Status.UpdateRevision)
	pods, since, err := podsOf(ctx, k, br, revision)
	if err != nil {
		return nil, err
	}
	s := &Same{
		Head: cli.NewHead("AnalysisOfSame"), Namespace: br.Namespace, Name: br.Name, Plan: p.file, Left: p.left,
		Revision: revision, Pods: len(pods), Seed: o.seed,
	}
	if len(pods) < 2 {
		return nil, fmt.Errorf("revision %s has %d pods; two parts need 2", revision, len(pods))
	}
	r := rand.New(rand.NewPCG(o.seed, 0))
	of := verdict.Release{
		Key:        verdict.Key{Namespace: br.Namespace, Plan: br.Name, Revision: revision, Commit: br.Status.UpdateCommit},
		Deployment: br.Spec.WorkloadRef.Name, Update: updatePart, Stable: stablePart, StableRevision: revision,
	}
	for _, step := range p.steps() {
		update := int(plan.Target(p.strategy.Steps, step, int32(len(pods))))
		update = max(1, min(update, len(pods)-1))
		counts := map[string]*SameMetric{}
		for n := 1; n <= o.windows; n++ {
			track := p.newTrack(step, time.Time{}, nil)
			if len(track.Status.Metrics) == 0 {
				break
			}
			start := time.Now().Add(-time.Duration(n) * track.Step.Duration.Duration).Add(-slack(track))
			if start.Before(since) {
				break
			}
			track.Status.StartTime = &metav1.Time{Time: start}
			limit := start.Add(track.Step.Duration.Duration + slack(track))
			r.Shuffle(len(pods), func(i, j int) { pods[i], pods[j] = pods[j], pods[i] })
			if err := follow(ctx, track, of, limit, parted(ask, pods[:update], pods[update:])); err != nil {
				return nil, err
			}
			s.count(counts, track, update)
		}
		for _, m := range p.strategy.Analysis.Metrics {
			if c := counts[m.Name]; c != nil {
				s.Items = append(s.Items, *c)
			}
		}
	}
	if len(s.Items) == 0 {
		return nil, fmt.Errorf("the newest pod of revision %s is younger than one window; try again later", revision)
	}
	return s, nil
}

// slack is the time by which the last window of a step may end after the duration, and until
// its values are there.
func slack(t *verdict.Track) (most time.Duration) {
	for _, name := range t.Step.Metrics {
		m := t.Metric(name)
		_, to, at := measure.Window(m, time.Time{}, measure.Planned(m, t.Step.Duration.Duration))
		most = max(most, to.Sub(time.Time{})-t.Step.Duration.Duration+at.Sub(to))
	}
	return most
}

// count adds the verdicts of a window.
func (s *Same) count(counts map[string]*SameMetric, t *verdict.Track, update int) {
	if s.From.IsZero() || t.Status.StartTime.Before(&s.From) {
		s.From = *t.Status.StartTime
	}
	for i := range t.Status.Metrics {
		st := &t.Status.Metrics[i]
		c := counts[st.Name]
		if c == nil {
			c = &SameMetric{Step: int(t.Status.Step), Metric: st.Name, Update: update}
			c.Allowed = verdict.RuleOf(t.Metric(st.Name)).Level(1, 1)
			counts[st.Name] = c
		}
		c.Windows++
		switch st.Verdict {
		case v1alpha1.VerdictFail:
			if c.Failed == 0 {
				c.Example = st.Message
			}
			c.Failed++
		case v1alpha1.VerdictUnknown:
			c.Unknown++
			c.Example = cmp.Or(c.Example, st.Message)
		case v1alpha1.VerdictPass:
		}
	}
}

// podsOf returns the names of the running pods of a revision, and since when all of them run.
func podsOf(
	ctx context.Context, k *cli.Connection, br *v1alpha1.BatchRelease, revision string,
) (names []string, since time.Time, err error) {
	var list corev1.PodList
	labels := client.MatchingLabels{"pod-template-hash": revision}
	if err := k.List(ctx, &list, client.InNamespace(br.Namespace), labels); err != nil {
		return nil, since, fmt.Errorf("listing the pods of revision %s: %w", revision, err)
	}
	owner := native.NameWithHash(br.Spec.WorkloadRef.Name, revision)
	for i := range list.Items {
		pod := &list.Items[i]
		if of := metav1.GetControllerOf(pod); of == nil || of.Name != owner {
			continue
		}
		if pod.DeletionTimestamp != nil || pod.Status.Phase != corev1.PodRunning || pod.Status.StartTime == nil {
			continue
		}
		names, since = append(names, pod.Name), later(since, pod.Status.StartTime.Time)
	}
	slices.Sort(names) // the seed decides alone
	return names, since, nil
}

// parted asks about pods by their names.
func parted(ask asker, update, stable []string) asker {
	names := func(pods []string) string {
		return "(" + strings.ReplaceAll(strings.Join(pods, "|"), ".", "[.]") + ")"
	}
	replace := strings.NewReplacer(measure.Pods(updatePart), names(update), measure.Pods(stablePart), names(stable))
	replaced := func(q *verdict.Question) *verdict.Question {
		if q == nil || q.Prometheus == nil {
			return q
		}
		p := q.Prometheus.DeepCopy()
		p.Query, p.Total = replace.Replace(p.Query), replace.Replace(p.Total)
		return &verdict.Question{Prometheus: p}
	}
	return func(ctx context.Context, m verdict.Measurement) (verdict.Measured, error) {
		m.Update, m.Stable = replaced(m.Update), replaced(m.Stable)
		return ask(ctx, m)
	}
}

// text is for people.
func (s *Same) text() string {
	var b strings.Builder
	fmt.Fprintf(&b, "Pods of revision %s: %d, split at random by seed %d, since %s\n\n", s.Revision, s.Pods, s.Seed, cli.Absolute(&s.From))
	rows := [][]string{{"STEP", "METRIC", "UPDATE", "WINDOWS", "FAILED", "ALLOWED", "UNKNOWN", "EXAMPLE"}}
	for _, c := range s.Items {
		rows = append(rows, []string{
			fmt.Sprint(c.Step), c.Metric, fmt.Sprintf("%d of %d", c.Update, s.Pods), fmt.Sprint(c.Windows),
			fmt.Sprintf("%d (%.0f %%)", c.Failed, float64(c.Failed)/float64(c.Windows)*100), fmt.Sprintf("%.3g %%", c.Allowed*100),
			fmt.Sprint(c.Unknown), cli.OrNone(c.Example),
		})
	}
	b.WriteString(cli.Table(rows))
	failed, windows := 0, 0
	for _, c := range s.Items {
		failed, windows = failed+c.Failed, windows+c.Windows
	}
	fmt.Fprintf(&b, "\nFalse alarms: %d of %d comparisons, %.1f %%\n", failed, windows, float64(failed)/float64(windows)*100)
	b.WriteString(leftText(s.Left))
	return b.String()
}
