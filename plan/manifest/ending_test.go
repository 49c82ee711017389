package manifest_test

import (
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/tranche-dev/tranche/plan"
	"github.com/tranche-dev/tranche/plan/manifest"
	"github.com/tranche-dev/tranche/plan/plantest"
)

// A plan in release.YAML is not passed by without a word: its Deployment would have no gates.
func TestRender_EndingInOtherLetters(t *testing.T) {
	const configMap = "apiVersion: v1\nkind: ConfigMap\nmetadata: {name: a}\n"
	const because = ": is not read, since its ending is not in lower case, or has a space or a hidden character; rename it to "
	for name, want := range map[string][]string{
		"release.YAML":   {"RenderFailed web/release.YAML" + because + "release.yaml"},
		"sub/Web.Yml":    {"RenderFailed web/sub/Web.Yml" + because + "Web.yml"},
		"a.JSON":         {"RenderFailed web/a.JSON" + because + "a.json"},
		"README.YAML.md": nil,
		".hidden.YAML":   nil,
		"YAML":           nil,
		"Web.yaml":       nil,
		"A.YAML/b.yaml":  nil,
	} {
		tree := plantest.Tree(t, map[string]string{"web/cm.yaml": configMap, "web/" + name: configMap})
		_, err := manifest.Render(tree, "web", manifest.RenderOptions{})
		if diff := cmp.Diff(want, listed(plan.ProblemsOf(err))); diff != "" || (err == nil) != (want == nil) {
			t.Errorf("%s: %v (-want +got):\n%s", name, err, diff)
		}
	}
	_, ps := manifest.ReadApprovals(plantest.Tree(t, map[string]string{
		"approvals/web.YAML": plantest.Approval("web", "x", commit, "0"), "approvals/notes.TXT": "",
	}), "approvals", "shop")
	want := []string{"ApprovalIgnored approvals/web.YAML" + because + "web.yaml"}
	if diff := cmp.Diff(want, listed(ps)); diff != "" {
		t.Errorf("approvals (-want +got):\n%s", diff)
	}
}

func listed(ps plan.Problems) []string {
	if len(ps) == 0 {
		return nil
	}
	return plantest.List(ps)
}
