package manifest_test

import (
	"testing"

	"sigs.k8s.io/yaml"

	"github.com/tranche-dev/tranche/plan"
	"github.com/tranche-dev/tranche/plan/manifest"
	"github.com/tranche-dev/tranche/plan/plantest"
)

// FuzzReadApprovals: whatever is in the folder, an approval that is read is
// whole, and each problem is one that does no harm.
func FuzzReadApprovals(f *testing.F) {
	f.Add(plantest.Approval("web", "5c66667f6", "3f2c1e0", "1"))
	f.Add(plantest.Approval("web", "5c66667f6", "3F2C1E0", "-1") + "---\n...\n--- {}\n")
	f.Add("apiVersion: v1\nkind: List\nitems: [{apiVersion: tranche.dev/v1alpha1, kind: BatchApproval, metadata: {name: x}, spec: {step: " +
		"null}}]\n")
	f.Add("a: &a [*a]\n")
	f.Add("a: &a [x, x]\nb: &b [*a, *a]\nc: {<<: *b}\n")
	f.Fuzz(func(t *testing.T, content string) {
		approvals, ps := manifest.ReadApprovals(plantest.Tree(t, map[string]string{"a/a.yaml": content}), "a", "shop")
		for _, a := range approvals {
			if a.Spec.Revision == "" || len(a.Spec.Commit) < 7 || a.Spec.Step < 0 || a.Metadata.Name == "" || a.Metadata.Namespace == "" {
				t.Errorf("a half approval counts: %+v", a)
			}
		}
		for _, p := range ps {
			if p.Reason != plan.ReasonApprovalIgnored || p.Error() == "" {
				t.Errorf("problem %+v", p)
			}
		}
	})
}

// FuzzAliases: what is let pass is no larger than it may be once it is read.
func FuzzAliases(f *testing.F) {
	f.Add("a: &a [x, x]\nb: &b [*a, *a]\nc: [*b, *b]\n")
	f.Add("a: &a [*a]\n")
	f.Add("&a : *a\n")
	f.Add("a: &a {b: 1}\nc: {<<: *a, d: *a}\n---\n*a\n")
	f.Fuzz(func(t *testing.T, content string) {
		if manifest.CheckAliases([]byte(content)) != nil {
			return
		}
		v, err := yaml.YAMLToJSON([]byte(content))
		if err == nil && len(v) > 8*manifest.MaxExpanded { // a byte can take six in JSON
			t.Errorf("%d bytes became %d", len(content), len(v))
		}
	})
}
