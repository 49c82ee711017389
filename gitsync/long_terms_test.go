package gitsync_test

import (
	"fmt"
	"strings"
	"testing"
)

// measured is a second Deployment, with a plan of as many metrics as a plan may have.
func measured(s *signed, query int) map[string]string {
	var metrics strings.Builder
	for i := range 12 {
		q := fmt.Sprintf(`sum(errors{pod=~"$(pods)",job="%s"})`, strings.Repeat("x", query))
		fmt.Fprintf(&metrics, "\n    - {name: m%d, max: \"1\", prometheus: {provider: p, query: '%s', total: '%s'}}", i, q, q)
	}
	rename := strings.NewReplacer("name: web", "name: api", "app: web", "app: api", "{name: web}", "{name: api}")
	return map[string]string{
		"deploy/api.yaml": rename.Replace(sizedWeb(0, "v1")),
		"deploy/api-release.yaml": "apiVersion: tranche.dev/v1alpha1\nkind: BatchRelease\nmetadata: {name: api}\n" +
			"spec:\n  workloadRef: {name: api}\n  strategy:\n    steps: [{replicas: 100%}]\n    analysis:\n      metrics:" +
			strings.ReplaceAll(metrics.String(), "\n", "\n  ") + "\n",
	}
}

// A plan with long queries does not keep the others of its source from being approved. One that the
// status has no room for is refused.
func TestLongTerms(t *testing.T) {
	t.Parallel()
	s := newSigned(t)
	message := s.refused(s.by(s.k1, measured(s, 3000)), "InvalidPlan")
	if !strings.Contains(message, "BatchRelease "+s.ns+"/api: ") {
		t.Errorf("it says %s", message)
	}
	s.applied(s.by(s.k1, measured(s, 600)))
	s.applied(s.brings("v2"))
	s.isAt("web", "WaitingForApproval", 0)
	s.applied(s.brings("v1"))
	s.isAt("web", "ReleaseCompleted", 2)
}
