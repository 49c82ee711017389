package analysis

import (
	"encoding/json"
	"net/http"
	"net/http/httptest"
	"os"
	"regexp"
	"strings"
	"testing"

	"k8s.io/apimachinery/pkg/util/validation/field"
	"sigs.k8s.io/yaml"

	"github.com/tranche-dev/tranche/plan/condition"
	"github.com/tranche-dev/tranche/plan/measure"
	"github.com/tranche-dev/tranche/plan/queries"
	"github.com/tranche-dev/tranche/plan/v1alpha1"
	"github.com/tranche-dev/tranche/rollout/engine"
	"github.com/tranche-dev/tranche/rollout/engine/verdict"
)

const page = "../../docs/analysis-providers.md"

// The examples of the page are valid, the conditions hold on the answers that it shows, and not
// on an empty one, which is Unknown. The API server takes the objects in another test.
func TestPage(t *testing.T) {
	t.Parallel()
	text, err := os.ReadFile(page)
	if err != nil {
		t.Fatal(err)
	}
	found := map[string]int{}
	for _, section := range strings.Split(string(text), "\n## ") {
		title, _, _ := strings.Cut(section, "\n")
		answer := ""
		if m := regexp.MustCompile("(?s)```json\n(.*?)```").FindStringSubmatch(section); m != nil {
			answer = m[1]
		}
		for _, m := range regexp.MustCompile("(?s)```yaml\n(.*?)```").FindAllStringSubmatch(section, -1) {
			for _, document := range strings.Split(m[1], "\n---\n") {
				kind := checkExample(t, title, document, answer)
				found[kind]++
			}
		}
	}
	if found["plan"] != 3 || found["plan with a condition"] != 2 || found["configuration"] != 1 {
		t.Errorf("found %v", found)
	}
}

// checkExample checks an example, and returns what it is.
func checkExample(t *testing.T, title, example, answer string) string {
	t.Helper()
	if strings.HasPrefix(example, "# analysis.yaml\n") {
		if _, err := parse([]byte(example)); err != nil {
			t.Errorf("%s: %v", title, err)
		}
		return "configuration"
	}
	if !strings.Contains(example, "kind: BatchRelease") {
		return ""
	}
	var br v1alpha1.BatchRelease
	if err := yaml.UnmarshalStrict([]byte(example), &br); err != nil {
		t.Errorf("%s: %v", title, err)
		return ""
	}
	kind, metric := "plan", &br.Spec.Strategy.Analysis.Metrics[0]
	errs := append(measure.Validate(&br.Spec.Strategy, field.NewPath("strategy")), queries.Check(metric, field.NewPath("metric"))...)
	if len(errs) > 0 {
		t.Errorf("%s: %v", title, errs.ToAggregate())
	}
	if metric.Web != nil {
		kind += " with a condition"
		checkCondition(t, title, metric, answer)
	}
	return kind
}

func checkCondition(t *testing.T, title string, m *v1alpha1.Metric, answer string) {
	t.Helper()
	if _, err := condition.Compile(m.Condition); err != nil {
		t.Errorf("%s: %v", title, err)
	}
	for body, want := range map[string]string{answer: "1", "[]": verdict.ConditionFailed, "{}": verdict.ConditionFailed} {
		server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			var sent map[string]any
			if m.Web.Body != nil && json.NewDecoder(r.Body).Decode(&sent) != nil {
				w.WriteHeader(http.StatusBadRequest)
			}
			_, _ = w.Write([]byte(body))
		}))
		q := *m.Web
		q.URL, q.SecretRef = server.URL, nil
		asked := engine.Measurement{Update: &verdict.Question{Web: &q}, Condition: m.Condition}
		a := measureOnce(t, Options{MayReach: anyAddress}, asked).Update
		if got := a.Unknown + strings.Join(a.Values, ""); got != want {
			t.Errorf("%s: %s on %s, want %s (%s)", title, got, body, want, a.Message)
		}
		server.Close()
	}
}
