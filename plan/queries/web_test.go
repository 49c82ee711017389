package queries

import (
	"strings"
	"testing"

	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/util/validation/field"

	"github.com/tranche-dev/tranche/plan/v1alpha1"
)

func TestCheck_Web(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct{ url, body, condition, want string }{
		"valid":                 {"https://probes/$(revision)", `{"of":"$(replicaset)"}`, "status == 200", ""},
		"a placeholder of url":  {"https://probes/$(revison)", "", "status == 200", `metrics[0].web.url: Invalid value: "": $(revison) is`},
		"a placeholder of body": {"https://probes", `{"of":"$(pod)"}`, "status == 200", `metrics[0].web.body: Invalid value: "": $(pod) is not`},
		"a condition":           {"https://probes", "", "status = 200", `metrics[0].condition: Invalid value: "": 1:8: `},
	} {
		m := &v1alpha1.Metric{Web: &v1alpha1.WebMetric{URL: c.url}, Condition: c.condition}
		if c.body != "" {
			m.Web.Body = &runtime.RawExtension{Raw: []byte(c.body)}
		}
		err := Check(m, field.NewPath("metrics").Index(0)).ToAggregate()
		if (err == nil) != (c.want == "") || err != nil && !strings.HasPrefix(err.Error(), c.want) {
			t.Errorf("%s: %v, want %q", name, err, c.want)
		}
	}
}
