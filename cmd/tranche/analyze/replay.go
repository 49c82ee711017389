package analyze

import (
	"cmp"
	"context"
	"fmt"
	"math"
	"slices"
	"strconv"
	"strings"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/tranche-dev/tranche/cmd/tranche/cli"
	"github.com/tranche-dev/tranche/plan/measure"
	"github.com/tranche-dev/tranche/plan/v1alpha1"
	"github.com/tranche-dev/tranche/rollout/engine/native"
	"github.com/tranche-dev/tranche/rollout/engine/verdict"
)

// asker asks a provider. An error ends the command: without the answer it would say something
// of a release that was not measured.
type asker func(ctx context.Context, m verdict.Measurement) (verdict.Measured, error)

// Replay is what a plan says of past releases. docs/output.md has its fields.
type Replay struct {
	cli.Head  `json:",inline"`
	Namespace string     `json:"namespace"`
	Name      string     `json:"name"`
	Plan      string     `json:"plan"`
	Left      []Left     `json:"left,omitempty"`
	Items     []Replayed `json:"items"`
	// Unnoticed are clauses by metric and step.
	Unnoticed []Unnoticed `json:"unnoticed,omitempty"`
}

// Replayed is one release.
type Replayed struct {
	Revision  string                  `json:"revision"`
	Stable    string                  `json:"stable,omitempty"`
	Commit    string                  `json:"commit,omitempty"`
	Outcome   v1alpha1.ReleaseOutcome `json:"outcome"`
	StartTime metav1.Time             `json:"startTime"`
	EndTime   metav1.Time             `json:"endTime"`
	Verdict   v1alpha1.Verdict        `json:"verdict"`
	// Consequence is what the controller would have done of a Fail.
	Consequence string         `json:"consequence,omitempty"`
	Steps       []ReplayedStep `json:"steps"`
}

// ReplayedStep is the analysis of one step.
type ReplayedStep struct {
	Step int `json:"step"`
	// Background: it is that of the background metrics, over all steps.
	Background bool `json:"background,omitempty"`

	From    metav1.Time      `json:"from"`
	Verdict v1alpha1.Verdict `json:"verdict"`
	Reason  string           `json:"reason"`
	Message string           `json:"message"`
	Metrics []ReplayedMetric `json:"metrics"`
}

// ReplayedMetric is a metric of a step.
type ReplayedMetric struct {
	Name    string           `json:"name"`
	Verdict v1alpha1.Verdict `json:"verdict"`
	Reason  string           `json:"reason"`
	Message string           `json:"message"`
	Update  string           `json:"update,omitempty"`
	Stable  string           `json:"stable,omitempty"`
	P       string           `json:"p,omitempty"`
}

// Unnoticed says which harm a metric does not notice.
type Unnoticed struct {
	Metric  string `json:"metric"`
	Step    int    `json:"step"`
	Message string `json:"message"`
}

// replayAll replays the releases of the history that went forward.
func replayAll(ctx context.Context, p *tried, br *v1alpha1.BatchRelease, ask asker) (*Replay, error) {
	r := &Replay{
		Head: cli.NewHead("AnalysisReplay"), Namespace: br.Namespace, Name: br.Name, Plan: p.file, Left: p.left, Items: []Replayed{},
	}
	for i := range br.Status.History {
		record := &br.Status.History[i]
		if record.Rollback || record.StartTime.IsZero() {
			continue
		}
		one, tracks, err := p.replay(ctx, br, record, stableBefore(br.Status.History[i+1:]), ask)
		if err != nil {
			return nil, err
		}
		if r.Unnoticed == nil {
			r.Unnoticed = unnoticed(tracks)
		}
		r.Items = append(r.Items, *one)
	}
	return r, nil
}

// stableBefore returns the revision that ran before a release: the newest of the older ones
// that was completed. It is empty if the history does not have it.
func stableBefore(older []v1alpha1.ReleaseRecord) string {
	for _, r := range older {
		if r.Outcome == v1alpha1.OutcomeCompleted {
			return r.Revision
		}
	}
	return ""
}

// replay measures and judges one release.
func (t *tried) replay(
	ctx context.Context, br *v1alpha1.BatchRelease, record *v1alpha1.ReleaseRecord, stable string, ask asker,
) (*Replayed, []*verdict.Track, error) {
	one := &Replayed{
		Revision: record.Revision, Stable: stable, Commit: record.Commit, Outcome: record.Outcome,
		StartTime: *record.StartTime, EndTime: record.EndTime, Steps: []ReplayedStep{},
	}
	deployment := br.Spec.WorkloadRef.Name
	of := verdict.Release{
		Key: verdict.Key{
			Namespace: br.Namespace, Plan: br.Name, Revision: record.Revision, Commit: record.Commit, Began: record.StartTime.Unix(),
		},
		Deployment: deployment, Update: native.NameWithHash(deployment, record.Revision), StableRevision: stable,
	}
	if stable != "" {
		of.Stable = native.NameWithHash(deployment, stable)
	}
	var tracks []*verdict.Track
	var records []v1alpha1.MetricRecord
	for _, w := range windows(&t.strategy, record) {
		track := t.newTrack(w.step, w.start, records)
		if len(track.Status.Metrics) == 0 {
			continue
		}
		if err := follow(ctx, track, of, w.limit, ask); err != nil {
			return nil, nil, err
		}
		one.Steps = append(one.Steps, stepOf(track))
		records = recordsOf(track, records)
		tracks = append(tracks, track)
		if track.Status.Verdict == v1alpha1.VerdictFail {
			one.Consequence = consequence(&t.strategy)
			break
		}
	}
	end := record.EndTime.Time
	if n := len(tracks); one.Consequence != "" {
		end = tracks[n-1].Now
	}
	background, err := t.background(ctx, of, record.StartTime.Time, end, ask)
	if err != nil {
		return nil, nil, err
	}
	if background != nil {
		one.Steps = append(one.Steps, *background)
		if background.Verdict == v1alpha1.VerdictFail {
			one.Consequence = consequence(&t.strategy)
		}
	}
	one.Verdict = sumUp(one.Steps)
	return one, tracks, nil
}

// mostBackground is the number of windows of a background metric in one release that are asked for.
const mostBackground = 500

// background measures the background metrics of a release from its begin. They fail by any five
// windows in a row, and pass if any window had a value. It is nil without such metrics.
func (t *tried) background(ctx context.Context, of verdict.Release, began, end time.Time, ask asker) (*ReplayedStep, error) {
	if len(t.strategy.Analysis.Background) == 0 {
		return nil, nil //nolint:nilnil // there is nothing to say
	}
	track := &verdict.Track{
		Plan: t.strategy.Analysis, Status: &v1alpha1.AnalysisStatus{BackgroundStartTime: &metav1.Time{Time: began}}, Now: began,
	}
	track.Arrange()
	for i := range track.Status.Metrics {
		track.Now = began
		for range mostBackground {
			next := track.Next(&track.Status.Metrics[i], of)
			if next == nil || next.To.After(end) {
				break
			}
			got, err := ask(ctx, *next)
			if err != nil {
				return nil, err
			}
			track.Now = next.At
			track.Follow([]verdict.Measured{got}, of)
		}
	}
	s := stepOf(track)
	s.Verdict, s.Reason, s.Message = sumUpBackground(track.Status.Metrics)
	return &s, nil
}

// sumUpBackground returns the verdict of background metrics, and the metric that it is due to.
func sumUpBackground(metrics []v1alpha1.MetricStatus) (v v1alpha1.Verdict, reason, message string) {
	v, reason = v1alpha1.VerdictPass, verdict.Passed
	var messages []string
	for i := range metrics {
		switch m := &metrics[i]; {
		case m.Verdict == v1alpha1.VerdictFail:
			return m.Verdict, verdict.MetricsFail, m.Message
		case m.Count == 0:
			v, reason, messages = v1alpha1.VerdictUnknown, m.Reason, []string{m.Message}
		case v == v1alpha1.VerdictPass:
			messages = append(messages, m.Message)
		}
	}
	return v, reason, strings.Join(messages, "; ")
}

// window is when the analysis of a step would have begun, and until when both revisions ran.
type window struct {
	step         int
	start, limit time.Time
}

// windows returns where in a past release the analyses of a plan would have been. A step began
// when the gate before it opened. If its own gate was open later than after the duration, the
// last part of that time counts: by then its pods were available.
func windows(s *v1alpha1.BatchStrategy, record *v1alpha1.ReleaseRecord) (list []window) {
	began, end := record.StartTime.Time, record.EndTime.Time
	for i := range s.Steps {
		step := &s.Steps[i]
		opened, known := gateTime(record, i)
		if last := i == len(s.Steps)-1; last {
			opened, known = end, true
		}
		if !known {
			opened = earlier(opened, began.Add(durationOf(step)))
		}
		if a := step.Analysis; a != nil {
			w := window{i, began, end}
			if known {
				w.start = later(began, opened.Add(-a.Duration.Duration))
			}
			w.limit = earlier(end, w.start.Add(a.Duration.Duration+verdict.UnknownDeadline(s.Analysis)))
			list = append(list, w)
		}
		began = later(began, opened)
	}
	return list
}

// gateTime returns when the gate of a step opened. If that is not known it returns when the
// next known gate did, or the end.
func gateTime(record *v1alpha1.ReleaseRecord, step int) (at time.Time, known bool) {
	at = record.EndTime.Time
	for _, a := range record.Approvals {
		switch {
		case int(a.Step) == step:
			return a.Time.Time, true
		case int(a.Step) > step:
			at = earlier(at, a.Time.Time)
		}
	}
	return at, false
}

// durationOf is how long a step takes without an approval.
func durationOf(s *v1alpha1.Step) time.Duration {
	switch {
	case s.Analysis != nil:
		return s.Analysis.Duration.Duration
	case s.Pause != nil:
		return s.Pause.Duration.Duration
	}
	return 0
}

func earlier(a, b time.Time) time.Time {
	if a.Before(b) {
		return a
	}
	return b
}

func later(a, b time.Time) time.Time {
	if a.After(b) {
		return a
	}
	return b
}

// newTrack follows the metrics of a step from a time on.
func (t *tried) newTrack(step int, start time.Time, records []v1alpha1.MetricRecord) *verdict.Track {
	analysis := *t.strategy.Steps[step].Analysis
	analysis.Metrics = t.names(&analysis)
	plan := *t.strategy.Analysis
	plan.Background = nil
	track := &verdict.Track{
		Plan: &plan, Step: &analysis, Now: start,
		Status: &v1alpha1.AnalysisStatus{Step: int32(step), StartTime: &metav1.Time{Time: start}, Records: records},
	}
	if len(analysis.Metrics) > 0 { // none is all of them
		track.Arrange()
	}
	return track
}

// follow asks for one window after the other, as the controller does. It ends when each metric
// has a verdict, or the next window ends after the limit.
func follow(ctx context.Context, t *verdict.Track, of verdict.Release, limit time.Time, ask asker) error {
	for i := range t.Status.Metrics {
		for {
			next := t.Next(&t.Status.Metrics[i], of)
			if next == nil || next.To.After(limit) {
				break
			}
			got, err := ask(ctx, *next)
			if err != nil {
				return err
			}
			t.Now = later(t.Now, next.At)
			t.Follow([]verdict.Measured{got}, of)
		}
	}
	t.Now = later(t.Now, t.Status.StartTime.Add(t.Step.Duration.Duration))
	t.Follow(nil, of)
	return nil
}

func stepOf(t *verdict.Track) ReplayedStep {
	from := cmp.Or(t.Status.StartTime, t.Status.BackgroundStartTime)
	s := ReplayedStep{
		Step: int(t.Status.Step), Background: t.Step == nil, From: *from,
		Verdict: t.Status.Verdict, Reason: t.Status.Reason, Message: t.Status.Message,
	}
	for i := range t.Status.Metrics {
		m := &t.Status.Metrics[i]
		r := verdict.NewRecord(t.Metric(m.Name), m, t.Status.Step, nil)
		s.Metrics = append(s.Metrics, ReplayedMetric{m.Name, r.Verdict, m.Reason, m.Message, r.Update, r.Stable, m.P})
	}
	return s
}

// recordsOf adds the verdicts of a step to those of the steps before.
func recordsOf(t *verdict.Track, records []v1alpha1.MetricRecord) []v1alpha1.MetricRecord {
	records = slices.Clone(records)
	for i := range t.Status.Metrics {
		m := &t.Status.Metrics[i]
		r := verdict.NewRecord(t.Metric(m.Name), m, t.Status.Step, verdict.Earlier(t.Status, m.Name))
		records = slices.DeleteFunc(records, func(old v1alpha1.MetricRecord) bool { return old.Name == m.Name })
		records = append(records, r)
	}
	return records
}

// consequence is what the controller would have done.
func consequence(s *v1alpha1.BatchStrategy) string {
	switch {
	case s.Analysis.Mode == v1alpha1.AnalysisObserve:
		return "reported a failure"
	case cmp.Or(s.Analysis.OnFailure, s.OnFailure) == v1alpha1.FailureRollback:
		return "rolled back"
	}
	return "stopped"
}

// sumUp is the verdict of a release: the worst of its steps.
func sumUp(steps []ReplayedStep) v1alpha1.Verdict {
	v := v1alpha1.VerdictPass
	for _, s := range steps {
		if s.Verdict == v1alpha1.VerdictFail {
			return s.Verdict
		}
		if s.Verdict == v1alpha1.VerdictUnknown {
			v = s.Verdict
		}
	}
	if len(steps) == 0 {
		return v1alpha1.VerdictUnknown
	}
	return v
}

// unnoticed says which harm the comparisons of a release do not notice.
func unnoticed(tracks []*verdict.Track) (list []Unnoticed) {
	for _, t := range tracks {
		for i := range t.Status.Metrics {
			st := &t.Status.Metrics[i]
			m := t.Metric(st.Name)
			if m.Compare == nil || st.Count == 0 {
				continue
			}
			if text := clause(m, st, int(measure.Planned(m, t.Step.Duration.Duration))); text != "" {
				list = append(list, Unnoticed{m.Name, int(t.Status.Step), text})
			}
		}
	}
	return list
}

func clause(m *v1alpha1.Metric, st *v1alpha1.MetricStatus, planned int) string {
	rule := verdict.RuleOf(m)
	if measure.HasTotal(m) {
		_, update := proportion(st.Update)
		count, stable := proportion(st.Stable)
		if update < 1 || stable < 1 {
			return ""
		}
		return fmt.Sprintf("%.0f of update, %.0f of stable, %.3g %% as stable's rate: %s", update, stable, count/stable*100,
			rule.UnnoticedRate(count/stable, update, stable, planned))
	}
	median, deviation := spread(st.StableValues)
	if len(st.StableValues) < 2 {
		return ""
	}
	update, stable := len(st.UpdateValues), len(st.StableValues)
	return fmt.Sprintf("%d values of update, %d of stable, %.3g as their deviation: %s", update, stable, deviation,
		rule.UnnoticedShift(median, deviation, update, stable, planned))
}

// proportion reads a sum of the status: 41/1022.
func proportion(text string) (count, total float64) {
	a, b, _ := strings.Cut(text, "/")
	count, _ = strconv.ParseFloat(a, 64)
	total, _ = strconv.ParseFloat(b, 64)
	return count, total
}

// spread returns the median and the standard deviation of values of the status.
func spread(texts []string) (median, deviation float64) {
	values := make([]float64, len(texts))
	mean := 0.0
	for i, text := range texts {
		values[i], _ = strconv.ParseFloat(text, 64)
		mean += values[i] / float64(len(texts))
	}
	for _, v := range values {
		deviation += (v - mean) * (v - mean)
	}
	slices.Sort(values)
	n := len(values)
	if n == 0 {
		return 0, 0
	}
	return (values[(n-1)/2] + values[n/2]) / 2, math.Sqrt(deviation / max(1, float64(n-1)))
}

// failsCompleted reports whether a release that was completed would have failed.
func (r *Replay) failsCompleted() bool {
	return slices.ContainsFunc(r.Items, func(o Replayed) bool {
		return o.Verdict == v1alpha1.VerdictFail && o.Outcome == v1alpha1.OutcomeCompleted
	})
}
