package measure_test

import (
	"testing"

	"github.com/tranche-dev/tranche/plan/measure"
	"github.com/tranche-dev/tranche/plan/v1alpha1"
)

func TestEvidence(t *testing.T) {
	t.Parallel()
	records := []v1alpha1.MetricRecord{
		{Name: "errors", Step: 1, Verdict: v1alpha1.VerdictFail, Reason: "AboveMax", Update: "41/1022", Stable: "12/9210", P: "0.0003"},
		{Name: "smoke", Verdict: v1alpha1.VerdictPass},
	}
	for i, want := range []string{"errors Fail AboveMax update=41/1022 stable=12/9210 p=0.0003 step=1", "smoke Pass step=0"} {
		if got := measure.Evidence(&records[i]); got != want {
			t.Errorf("%q, want %q", got, want)
		}
	}
	const table = "" +
		"METRIC  STEP  VERDICT  REASON    UPDATE   STABLE   P\n" +
		"errors  1     Fail     AboveMax  41/1022  12/9210  0.0003\n" +
		"smoke   0     Pass     -         -        -        -\n"
	if got := measure.EvidenceTable(records); got != table {
		t.Errorf("table:\n%s", got)
	}
	if got := measure.EvidenceTable(nil); got != "" {
		t.Errorf("without records: %q", got)
	}
}
