package manifest_test

import (
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/tranche-dev/tranche/plan/manifest"
	"github.com/tranche-dev/tranche/plan/plantest"
)

const commit = "3f2c1e0a9b8c7d6e5f4a3b2c1d0e9f8a7b6c5d4e"

// readApprovalsRows are the rows of TestReadApprovals.
var readApprovalsRows = []struct {
	reason string
	files  map[string]string
	want   []string // the approvals
	ps     []string
}{
	{"no folder, no approvals", map[string]string{"other/a.yaml": ""}, nil, nil},
	{"one each, in any folder below", map[string]string{
		"approvals/web.yaml":    plantest.Approval("web", "5c66667f6", "3F2C1E0", "1"),
		"approvals/a/b/api.yml": plantest.Approval("api", "6d99c799f9", commit, "0"),
		"approvals/README.md":   "how to approve", "approvals/.x.yaml": "a: [", "approvals/.d/x.yaml": "a: [", "approvals/empty.yaml": "",
	}, []string{"approvals/a/b/api.yml shop/api 6d99c799f9 " + commit + " 0", "approvals/web.yaml shop/web 5c66667f6 3f2c1e0 1"}, nil},
	{"a bad one keeps no other from counting", map[string]string{
		"approvals/a.yaml": "a: [\n", "approvals/b.yaml": "kind: ConfigMap\napiVersion: v1\nmetadata: {name: x}\n",
		"approvals/c.yaml": plantest.Approval("web", "5c66667f6", "3f2c1e0", "1"),
		"approvals/d.yaml": strings.Replace(plantest.Approval("web", "5c66667f6", "3f2c1e0", "1"), "revision:", "revisoin:", 1),
		"approvals/e.yaml": strings.Replace(plantest.Approval("web", "5c66667f6", "3f2c1e0", "1"), "v1alpha1", "v1", 1),
	}, []string{"approvals/c.yaml shop/web 5c66667f6 3f2c1e0 1"}, []string{
		"ApprovalIgnored approvals/a.yaml: line 1: did not find expected node content",
		"ApprovalIgnored approvals/b.yaml: ConfigMap shop/x: is a ConfigMap of v1 in the folder for approvals; only a BatchApproval of " +
			"tranche.dev/v1alpha1 counts there",
		"ApprovalIgnored approvals/d.yaml: BatchApproval shop/web: spec.revisoin: no such field",
		"ApprovalIgnored approvals/e.yaml: BatchApproval shop/web: is a BatchApproval of tranche.dev/v1 in the folder for approvals; only a " +
			"BatchApproval of tranche.dev/v1alpha1 counts there",
	}},
	{"nothing is taken for granted: an absent step is not step 0", map[string]string{
		"approvals/a.yaml": "apiVersion: tranche.dev/v1alpha1\nkind: BatchApproval\nmetadata: {name: a}\nspec: {}\n",
		"approvals/b.yaml": "apiVersion: tranche.dev/v1alpha1\nkind: BatchApproval\nmetadata: {name: b}\n",
		"approvals/c.yaml": plantest.Approval("c", "x", "3f2c1e", "-1"),
		"approvals/d.yaml": plantest.Approval("d", "x", "HEAD~1", "'1'"),
	}, nil, []string{
		"ApprovalIgnored approvals/a.yaml: BatchApproval shop/a: spec.commit: must be set",
		"ApprovalIgnored approvals/a.yaml: BatchApproval shop/a: spec.revision: must be set",
		"ApprovalIgnored approvals/a.yaml: BatchApproval shop/a: spec.step: must be set",
		"ApprovalIgnored approvals/b.yaml: BatchApproval shop/b: spec.commit: must be set",
		"ApprovalIgnored approvals/b.yaml: BatchApproval shop/b: spec.revision: must be set",
		"ApprovalIgnored approvals/b.yaml: BatchApproval shop/b: spec.step: must be set",
		`ApprovalIgnored approvals/c.yaml: BatchApproval shop/c: spec.commit: "3f2c1e" is not a commit; write spec.commit of the BatchRelease, or at least seven characters of it`,
		"ApprovalIgnored approvals/c.yaml: BatchApproval shop/c: spec.step: -1: must not be negative",
		`ApprovalIgnored approvals/d.yaml: BatchApproval shop/d: spec.step: must be a whole number of 32 bits, not "1"`,
	}},
	{"a commit of digits only must be in quotes, or YAML reads a number", map[string]string{
		"approvals/a.yaml": strings.Replace(plantest.Approval("a", "x", "1234567", "0"), `"1234567"`, "1234567", 1),
	}, nil, []string{"ApprovalIgnored approvals/a.yaml: BatchApproval shop/a: spec.commit: must be a string, not 1234567"}},
}

func TestReadApprovals(t *testing.T) {
	for _, tc := range readApprovalsRows {
		t.Run(tc.reason, func(t *testing.T) {
			approvals, ps := manifest.ReadApprovals(plantest.Tree(t, tc.files), "approvals", "shop")
			var got []string
			for _, a := range approvals {
				got = append(got, plantest.Summary(&a))
			}
			if diff := cmp.Diff(tc.want, got); diff != "" {
				t.Errorf("approvals (-want +got):\n%s", diff)
			}
			var problems []string
			if len(ps) > 0 {
				problems = plantest.List(ps)
			}
			if diff := cmp.Diff(tc.ps, problems); diff != "" {
				t.Errorf("problems (-want +got):\n%s", diff)
			}
		})
	}
	approvals, _ := manifest.ReadApprovals(plantest.Tree(t, map[string]string{
		"a/web.yaml": strings.Replace(plantest.Approval("web", "x", commit, "0"), "{name: web}", "{name: web, namespace: own}", 1),
	}), "a", "shop")
	if got := plantest.Summary(&approvals[0]); got != "a/web.yaml own/web x "+commit+" 0" {
		t.Errorf("an approval is for the namespace that it names: %s", got)
	}
}
