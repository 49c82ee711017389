package terms

import (
	"strings"
	"testing"

	"github.com/tranche-dev/tranche/plan"
)

// A rule for plans can have its effect once another person changes the plan. Its author does
// not approve the terms that come of it.
func TestPlanApproval_Dormant(t *testing.T) {
	t.Parallel()
	const author, other = 1, 2
	steps := func(selector, value string) string {
		return "- target: {kind: BatchRelease, labelSelector: \"" + selector + "\"}\n  patch: |-\n    - {op: replace, path: /spec/strategy/steps, value: [" + value + "]}\n"
	}
	later := steps("tier=x", "{replicas: 55%}, {replicas: 60%}, {replicas: 100%}")
	loosened := plan.Terms(strings.Replace(string(termsOfVariant(1)), `"replicas":1}`, `"replicas":"55%"}`, 1))
	for name, rules := range map[string]string{"alone": later, "beside one with a present effect": steps("", "{replicas: 50%}, {replicas: 60%}, {replicas: 100%}") + later} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			for approver, approved := range map[int]bool{author: false, other: true} {
				a := newAdversary(t, 0)
				files := state{}.tree()
				commit := func(person int) {
					var parents []string
					if a.head != "" {
						parents = append(parents, a.head)
					}
					a.head = a.Commit(a.keys[person], files, parents...)
				}
				commit(0)
				files["deploy/kustomization.yaml"] += rules
				commit(author)
				want, _ := a.sync()
				files["0/plan/plan.yaml"] = strings.Replace(files["0/plan/plan.yaml"], "name: unnamed", "name: unnamed, labels: {tier: x}", 1)
				commit(0)
				files["deploy/approvals/0.yaml"] = document{name: "web", namespace: "shop", plan: loosened.Digest(), at: 1}.text()
				commit(approver)
				if approved {
					want = loosened
				}
				if terms, _ := a.sync(); terms != want {
					t.Errorf("k%d approves: %s governs, want %q", approver, terms, want)
				}
			}
		})
	}
}

// The digest of a plan that git merges into an approval is none that the approver signed.
func TestPlanApproval_MadeByAMerge(t *testing.T) {
	t.Parallel()
	const planted, approver, wanted = 0, 1, 3
	for name, tt := range map[string]struct{ again, want int }{"merged": {-1, 0}, "changed by the approver": {approver, wanted}} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			a := newAdversary(t, 1) // any author
			files := state{}.tree()
			commit := func(person int, parents ...string) string {
				a.head = a.Commit(a.keys[person], files, parents...)
				return a.head
			}
			approve := func(comment, digest string) {
				files["deploy/approvals/0.yaml"] = "# " + comment + "\n# 2\n# 3\n# 4\n" + document{name: "web", namespace: "shop", plan: digest, at: 1}.text()
			}
			first := commit(0)
			a.sync()
			files = state{variants: [2]int{wanted, wanted}}.tree()
			approve("1", "")
			base := commit(planted, first)
			approve("first", "")
			main := commit(planted, base)
			approve("1", termsOfVariant(wanted).Digest())
			feat := commit(planted, base)
			approve("first", termsOfVariant(wanted).Digest())
			commit(approver, main, feat)
			if tt.again > 0 {
				approve("mine", termsOfVariant(wanted).Digest())
				commit(approver, a.head)
			}
			if terms, _ := a.sync(); terms != termsOfVariant(tt.want) {
				t.Errorf("%s governs, want %q", terms, variants[tt.want])
			}
		})
	}
}

// A digest that a revert brings back into an approval is none that the approver signed.
func TestPlanApproval_MadeByARevert(t *testing.T) {
	t.Parallel()
	const planted, approver, wanted = 0, 1, 3
	for name, tt := range map[string]struct {
		comment string
		want    int
	}{"reverted": {"first", 0}, "changed by the approver": {"mine", wanted}} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			a := newAdversary(t, 1) // any author
			files := state{}.tree()
			commit := func(person int) { a.head = a.Commit(a.keys[person], files, parentsOf(a.head)...) }
			approve := func(person int, comment, digest string) {
				files["deploy/approvals/0.yaml"] = "# " + comment + "\n# 2\n# 3\n# 4\n" + document{name: "web", namespace: "shop", plan: digest, at: 1}.text()
				commit(person)
			}
			commit(0)
			a.sync()
			files = state{variants: [2]int{wanted, wanted}}.tree()
			approve(planted, "1", termsOfVariant(wanted).Digest())
			approve(planted, "1", "")
			approve(planted, "first", "")
			approve(approver, tt.comment, termsOfVariant(wanted).Digest())
			if terms, _ := a.sync(); terms != termsOfVariant(tt.want) {
				t.Errorf("%s governs, want %q", terms, variants[tt.want])
			}
		})
	}
}

func parentsOf(head string) []string {
	if head == "" {
		return nil
	}
	return []string{head}
}
