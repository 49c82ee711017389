package desired

import (
	"strings"
	"testing"

	"github.com/tranche-dev/tranche/gitsync/gittest"
)

// madeOn is an approval that names a commit in a comment.
func madeOn(release, commit string) map[string]string {
	return map[string]string{approvalFile: "# Made on " + commit + ".\n" + approvalOf(release)[approvalFile]}
}

// An approval that names the commit before it was in no file of the history, however that
// is encoded. So it is the signer's, whatever git converts.
func TestSignedApprovals_MadeOn(t *testing.T) {
	t.Parallel()
	const attribute = "*.yaml working-tree-encoding=UTF-7\n"
	for name, tt := range map[string]story{
		"while an attribute is set": {"a committer cannot keep it from counting", func(m *signed) (string, string) {
			v2 := m.by(&m.ada, gittest.Web("v2"))
			m.by(&m.forge, map[string]string{".gitattributes": attribute})
			m.by(&m.grace, madeOn(v2, m.Head()))
			return "grace@example.org", ""
		}},
		"in the place of a file that is not readable": {"it was not converted from that one", func(m *signed) (string, string) {
			v2 := m.by(&m.ada, gittest.Web("v2"))
			m.by(&m.forge, map[string]string{approvalFile: "慰楖敳獲潩\n"})
			m.by(&m.grace, madeOn(v2, m.Head()))
			return "grace@example.org", ""
		}},
		"beside removed files that are no text": {"it was made of none of them", func(m *signed) (string, string) {
			v2 := m.by(&m.ada, gittest.Web("v2"))
			m.by(&m.forge, map[string]string{"notes/a": "\x00a", "notes/b": "\x00b"})
			m.by(&m.grace, map[string]string{"notes/a": "", "notes/b": "", approvalFile: madeOn(v2, m.Head())[approvalFile]})
			return "grace@example.org", ""
		}},
		"rebased": {"no file since has that name", func(m *signed) (string, string) {
			v2 := m.by(&m.ada, gittest.Web("v2"))
			m.by(&m.forge, map[string]string{approvalFile: "慰楖敳獲潩\n"})
			on := m.Head()
			m.by(&m.forge, map[string]string{"README.md": "x"})
			m.by(&m.grace, madeOn(v2, on))
			return "grace@example.org", ""
		}},
		"rebased, while an attribute is set": {"git may convert what came since", func(m *signed) (string, string) {
			v2 := m.by(&m.ada, gittest.Web("v2"))
			on := m.Head()
			m.by(&m.forge, map[string]string{".gitattributes": attribute})
			m.by(&m.grace, madeOn(v2, on))
			return "", "git converts the file when it is added"
		}},
		"another wrote the name": {"the planter knew that commit", func(m *signed) (string, string) {
			v2 := m.by(&m.ada, gittest.Web("v2"))
			on := m.Head()
			m.by(&m.forge, map[string]string{"notes/web.yaml": madeOn(v2, on)[approvalFile]})
			m.by(&m.grace, madeOn(v2, on))
			return "", "the repository had it at notes/web.yaml before"
		}},
		"another wrote the name, and git another encoding": {"git can have written it", func(m *signed) (string, string) {
			v2 := m.by(&m.ada, gittest.Web("v2"))
			text := madeOn(v2, v2)[approvalFile]
			m.by(&m.forge, map[string]string{approvalFile: "# é\n" + text})
			m.by(&m.grace, map[string]string{approvalFile: "# +AOk-\n" + text})
			return "", "the repository had it at " + approvalFile + " before"
		}},
		"another hid the name": {"it is in another encoding", func(m *signed) (string, string) {
			v2 := m.by(&m.ada, gittest.Web("v2"))
			on := m.Head()
			hidden := strings.NewReplacer(on, "ｘ"+on[1:], "step", "ｓtep").Replace(madeOn(v2, on)[approvalFile])
			m.by(&m.forge, map[string]string{approvalFile: hidden})
			m.by(&m.grace, madeOn(v2, on))
			return "", "the repository had it at " + approvalFile + " before"
		}},
	} {
		t.Run(name, func(t *testing.T) { tt.test(t, false) })
	}
}

// An attribute that was set and taken back leaves a file as another encoding writes it. An
// approver who adds it has not written it.
func TestSignedApprovals_WrittenInAnotherEncoding(t *testing.T) {
	t.Parallel()
	for name, tt := range map[string]struct{ planted, added string }{
		"UTF-7":                          {"# é\n", "# +AOk-\n"},
		"UTF-7 of ASCII":                 {"# 1+1\n", "# 1+-1\n"},
		"UTF-7 of IMAP":                  {"# you & me, é\n", "# you &- me, &AOk-\n"},
		"HZ":                             {"# 世 ~\n", "# ~{JA~} ~~\n"},
		"Java":                           {"# é\n", "# \\u00e9\n"},
		"ISO 646":                        {"# ä\n", "# {\n"},
		"characters that a set does not": {"# ½ ﬁ\n", "#  1/2 fi\n"},
	} {
		for where, at := range map[string]string{"": approvalFile, ", of a file that is copied": "notes/web.yaml"} {
			t.Run(name+where, func(t *testing.T) {
				story{"the planter wrote it", func(m *signed) (string, string) {
					text := approvalOf(m.by(&m.ada, gittest.Web("v2")))[approvalFile]
					m.by(&m.forge, map[string]string{at: tt.planted + text})
					m.by(&m.grace, map[string]string{approvalFile: tt.added + text})
					return "", "the repository had it at " + at + " before"
				}}.test(t, false)
			})
		}
	}
	for name, tt := range map[string]story{
		"the names of wide characters": {"the planter wrote each of them", func(m *signed) (string, string) {
			v2 := m.by(&m.ada, gittest.Web("v2"))
			text := approvalOf(v2)[approvalFile]
			m.by(&m.forge, map[string]string{"notes/web.txt": strings.ReplaceAll(text, v2, "０"+v2[1:])})
			m.by(&m.grace, map[string]string{"notes/web.txt": "", approvalFile: text})
			return "", "the repository had it at notes/web.txt before"
		}},
		"a comment of the approver's in place of another's": {"the approver wrote that", func(m *signed) (string, string) {
			v2 := m.by(&m.ada, gittest.Web("v2"))
			m.by(&m.forge, map[string]string{approvalFile: "# für web + api\n" + approvalOf(v2)[approvalFile]})
			m.by(&m.grace, map[string]string{approvalFile: "# seen\n" + approvalOf(v2)[approvalFile]})
			return "grace@example.org", ""
		}},
		"beside text of other languages": {"no line of that is in it", func(m *signed) (string, string) {
			v2 := m.by(&m.ada, gittest.Web("v2"))
			m.by(&m.forge, map[string]string{"README.md": "你好\n世界，世界\n再见\n世界\n"})
			m.by(&m.forge, map[string]string{"a.json": "{\n\"ä\": \"b\"\n}\n", "a.png": "\x89PNG\r\n\x1a\n\x00\xff"})
			m.by(&m.grace, approvalOf(v2))
			return "grace@example.org", ""
		}},
	} {
		t.Run(name, func(t *testing.T) { tt.test(t, false) })
	}
}

// stepOn is an approval whose step is far from its commit.
func stepOn(commit, step string) string {
	return "# 1\n# 2\n# 3\n# 4\n# 5\nspec:\n  step: " + step + "\n  # 6\n  # 7\n  # 8\n  # 9\n" +
		"  revision: abc\n  commit: \"" + commit + "\"\n" +
		"apiVersion: tranche.dev/v1alpha1\nkind: BatchApproval\nmetadata: {name: web, namespace: shop}\n"
}

// revertARename has another file replaced and removed, and grace approve step 0. She then
// reverts what replaced that file. Git applies this to the approval.
func (m *signed) revertARename(author *gittest.Key) (release string) {
	m.by(author, map[string]string{"notes/n.txt": stepOn("none", "1")})
	change := m.by(&m.forge, map[string]string{"notes/n.txt": stepOn("none", "0")})
	m.by(&m.forge, map[string]string{"notes/n.txt": ""})
	v2 := m.by(&m.ada, gittest.Web("v2"))
	m.by(&m.grace, map[string]string{approvalFile: stepOn(v2, "0")})
	m.Sign(&m.grace)
	m.Revert(change)
	if text := m.Git("show", "HEAD:"+approvalFile) + "\n"; text != stepOn(v2, "1") {
		m.t.Errorf("git did not apply it to the approval: %s", text)
	}
	return v2
}

// Git takes a similar file for a renamed one, so a revert can change an approval where the
// commit changed another file.
func TestSignedApprovals_RevertOfARename(t *testing.T) {
	t.Parallel()
	const made = "git makes the same of the file before by a revert"
	for name, tt := range map[string]story{
		"of another's file": {"another wrote the line", func(m *signed) (string, string) {
			m.revertARename(&m.forge)
			return "", made
		}},
		"of the approver's file": {"the approver wrote the line", func(m *signed) (string, string) {
			m.revertARename(&m.grace)
			return "grace@example.org", ""
		}},
		"and changed by the approver": {"the approver saw the file", func(m *signed) (string, string) {
			v2 := m.revertARename(&m.forge)
			m.by(&m.grace, map[string]string{approvalFile: "# mine\n" + stepOn(v2, "1")})
			return "grace@example.org", ""
		}},
		"of two commits at once": {"another wrote the lines", func(m *signed) (string, string) {
			two := func(text string) string { return strings.Replace(text, "# 2", "# two", 1) }
			m.by(&m.forge, map[string]string{"notes/n.txt": stepOn("none", "1")})
			m.by(&m.forge, map[string]string{"notes/n.txt": stepOn("none", "0")})
			change := m.by(&m.forge, map[string]string{"notes/n.txt": two(stepOn("none", "0"))})
			m.by(&m.forge, map[string]string{"notes/n.txt": ""})
			v2 := m.by(&m.ada, gittest.Web("v2"))
			m.by(&m.grace, map[string]string{approvalFile: two(stepOn(v2, "0"))})
			m.Git("revert", "--no-commit", change)
			m.Git("revert", "--no-commit", change+"~1")
			m.by(&m.grace, nil)
			if text := m.Git("show", "HEAD:"+approvalFile) + "\n"; text != stepOn(v2, "1") {
				m.t.Errorf("git did not apply them to the approval: %s", text)
			}
			return "", made
		}},
	} {
		t.Run(name, func(t *testing.T) { tt.test(t, false) })
	}
}
