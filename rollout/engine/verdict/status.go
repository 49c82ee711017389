package verdict

import (
	"slices"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/tranche-dev/tranche/plan/v1alpha1"
)

// EndStep forgets what was measured for the step: its windows begin again if it begins again.
// Background metrics go on.
func EndStep(s *v1alpha1.AnalysisStatus) {
	if s == nil {
		return
	}
	s.StartTime, s.Verdict, s.Reason, s.Message = nil, "", "", ""
	s.Metrics = slices.DeleteFunc(s.Metrics, func(m v1alpha1.MetricStatus) bool { return !m.Background })
	if len(s.Metrics) == 0 {
		s.Metrics = nil
	}
}

// Park forgets what is measured while the step has no pods. The records of earlier steps stay. So
// does a Fail: no scaling to zero and back lets a release try again.
func Park(s *v1alpha1.AnalysisStatus) {
	if s == nil || s.Verdict == v1alpha1.VerdictFail {
		return
	}
	EndStep(s)
	s.Metrics, s.BackgroundStartTime = nil, nil
}

// RecordAll puts the verdicts of the step in place of those of earlier steps.
func RecordAll(s *v1alpha1.AnalysisStatus, plan *v1alpha1.Analysis) {
	if s == nil {
		return
	}
	for i := range s.Metrics {
		st := &s.Metrics[i]
		var metric *v1alpha1.Metric
		if plan != nil {
			metric = (&Track{Plan: plan}).Metric(st.Name)
		}
		at := slices.IndexFunc(s.Records, func(r v1alpha1.MetricRecord) bool { return r.Name == st.Name && r.Background == st.Background })
		if at < 0 {
			s.Records = append(s.Records, NewRecord(metric, st, s.Step, nil))
			continue
		}
		s.Records[at] = NewRecord(metric, st, s.Step, &s.Records[at])
	}
}

// History returns the last verdicts of the release's metrics.
func History(s *v1alpha1.AnalysisStatus, plan *v1alpha1.Analysis) []v1alpha1.MetricRecord {
	if s == nil {
		return nil
	}
	RecordAll(s, plan)
	records := slices.Clone(s.Records)
	for i := range records {
		records[i].StableTotal, records[i].StableValues = "", nil
	}
	return records
}

// Restart has background metrics start again that did not count at a step: their values there
// say nothing of the next one.
func Restart(s *v1alpha1.AnalysisStatus, o *v1alpha1.Override) {
	if s == nil || o == nil {
		return
	}
	for i := range s.Metrics {
		if m := &s.Metrics[i]; m.Background && slices.Contains(o.Metrics, m.Name) {
			*m = v1alpha1.MetricStatus{Name: m.Name, Background: true, SpecHash: m.SpecHash, Next: max(1, m.Next)}
		}
	}
}

// Clocks returns the times from which verdicts are counted: all of them, or those of
// unknownDeadlineSeconds alone. The windows keep their places while no controller runs.
func Clocks(s *v1alpha1.AnalysisStatus, all bool) []**metav1.Time {
	if s == nil {
		return nil
	}
	var clocks []**metav1.Time
	if all {
		clocks = append(clocks, &s.StartTime, &s.BackgroundStartTime)
	}
	for i := range s.Metrics {
		clocks = append(clocks, &s.Metrics[i].UnknownTime)
	}
	return clocks
}

// TimesUnknown reports whether a clock of unknownDeadlineSeconds runs.
func TimesUnknown(s *v1alpha1.AnalysisStatus) bool {
	return s != nil && slices.ContainsFunc(s.Metrics, func(m v1alpha1.MetricStatus) bool { return m.UnknownTime != nil })
}

// Missing lists the measurements whose answers are missing.
func (t *Track) Missing(of Release) []Measurement {
	var list []Measurement
	for i := range t.Status.Metrics {
		if m := t.Next(&t.Status.Metrics[i], of); m != nil {
			list = append(list, *m)
		}
	}
	return list
}
