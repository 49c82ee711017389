package records_test

import (
	"testing"

	appsv1 "k8s.io/api/apps/v1"
	"k8s.io/apimachinery/pkg/labels"

	"github.com/tranche-dev/tranche/plan/records"
)

// Controllers share all releases, and each record is of the one whose selector matches its release.
func TestMark(t *testing.T) {
	parse := func(text string) labels.Selector {
		t.Helper()
		s, err := labels.Parse(text)
		if err != nil {
			t.Fatal(err)
		}
		return s
	}
	for _, shares := range [][]string{
		{"shard=a", "shard=b", "shard notin (a,b)"},
		{"shard", "!shard,tier=web", "!shard,tier!=web"},
		{"shard=a,tier=web", "shard=a,tier!=web", "shard!=a"},
		{"shard="}, {"shard=", "shard,shard!=", "!shard"},
		{""},
	} {
		for _, release := range []labels.Set{
			nil, {"shard": "a"}, {"shard": "b"}, {"shard": ""}, {"tier": "web"}, {"shard": "a", "tier": "web"}, {"shard": "a", "tier": "db"},
		} {
			for _, own := range shares {
				if !parse(own).Matches(release) {
					continue
				}
				c := &appsv1.ControllerRevision{}
				records.Mark(c, parse("shard=before"), labels.Set{"shard": "before"}) // by another controller
				if own == "" {
					c.Annotations = nil
				}
				if changed := records.Mark(c, parse(own), release); changed == (own == "") {
					t.Errorf("%q marks %v: %t", own, release, changed)
				}
				if records.Mark(c, parse(own), release) {
					t.Errorf("%q marks %v twice", own, release)
				}
				for _, s := range shares {
					if got := records.IsOfAnother(c, parse(s)); got != (s != own) {
						t.Errorf("a record of %v is of %q; of another than %q: %t", release, own, s, got)
					}
				}
			}
		}
	}
	if records.IsOfAnother(&appsv1.ControllerRevision{}, parse("shard=a")) {
		t.Error("a record without a mark is of no controller")
	}
}
