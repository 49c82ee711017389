package terms

import (
	"cmp"
	"maps"
	"strings"
	"testing"

	"github.com/go-git/go-git/v5/plumbing"

	"github.com/tranche-dev/tranche/gitsync/apply"
	"github.com/tranche-dev/tranche/gitsync/desired"
	"github.com/tranche-dev/tranche/gitsync/gittest"
	"github.com/tranche-dev/tranche/gitsync/repository"
)

// unapproved returns what waits for an approval at the head, and why.
func unapproved(a *adversary) string {
	a.t.Helper()
	tip := plumbing.NewHash(a.head)
	s := &repository.Snapshot{EncodedObjectStorer: a.Storage, Commit: tip, Tip: tip}
	r := &desired.Reader{
		Snapshot: s, Source: a.gs, Mapper: gittest.RESTMapper(), Brought: a.brought, Approved: a.approved,
		Order: a.by.Order, Changes: a.changes, Signatures: a.by,
	}
	d, _, err := r.Read(a.last)
	if err != nil {
		a.t.Fatal(err)
	}
	g, err := Govern(a.t.Context(), r, d, apply.NewObserver(a.gs, empty{}, empty{}))
	if err != nil {
		a.t.Fatal(err)
	}
	return g.Unapproved.Error()
}

// An approval of a plan that does not count says why and what to do, as one of a release
// does. One that names the commit before it counts in spite of attributes.
func TestPlanApproval_Reasons(t *testing.T) {
	t.Parallel()
	const committer, approver, wanted, file = 0, 1, 3, "deploy/approvals/plans/web.yaml"
	text := document{name: "web", namespace: "shop", plan: termsOfVariant(wanted).Digest(), at: 1}.text()
	attribute := map[string]string{".gitattributes": "*.yaml working-tree-encoding=UTF-7\n"}
	unreadable := map[string]string{file: "慰楖敳獲潩\n"}
	for name, tt := range map[string]struct {
		before map[string]string
		text   string
		signer int
		says   string // empty: it counts
	}{
		"no signer":           {nil, text, committer, "a key that is not listed"},
		"no signer's hint":    {nil, text, committer, "; have it committed by a key that spec.approvals.signers of the GitSource lists"},
		"an attribute":        {attribute, text, approver, "; take the attribute back, and then commit a change of the file; or"},
		"in spite of it":      {attribute, "", approver, ""},
		"not readable before": {unreadable, text, approver, "; remove the file by one commit, and give the approval by the next one"},
		"in spite of that":    {unreadable, "", approver, ""},
		"in another encoding": {map[string]string{file: "# é\n" + text}, "# +AOk-\n" + text, approver, "; commit a change of the file"},
		"too large":           {nil, text + strings.Repeat("# mine\n", 10_000), approver, "; write it as tranche approve does"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			a := newAdversary(t, 1) // any author
			files := state{}.tree()
			commit := func(person int, changed map[string]string) {
				maps.Copy(files, changed)
				a.head = a.Commit(a.keys[person], files, parentsOf(a.head)...)
			}
			commit(committer, nil)
			a.sync()
			maps.Copy(files, state{variants: [2]int{wanted, wanted}}.tree())
			commit(committer, tt.before)
			given := cmp.Or(tt.text, "# Made on "+a.head+".\n"+text)
			commit(tt.signer, map[string]string{file: given})
			if tt.says == "" {
				if terms, _ := a.sync(); terms != termsOfVariant(wanted) {
					t.Errorf("%s governs, want %q", terms, variants[wanted])
				}
				return
			}
			if got := unapproved(a); !strings.Contains(got, file+" does not count: commit ") || !strings.Contains(got, tt.says) {
				t.Errorf("%s, want %q", got, tt.says)
			}
		})
	}
}
