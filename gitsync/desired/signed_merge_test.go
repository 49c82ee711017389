package desired

import (
	"os/exec"
	"strings"
	"testing"

	"github.com/tranche-dev/tranche/gitsync/gittest"
)

// commented is an approval below six comment lines. Lines of the comment and the approval
// are far enough apart for git to merge changes of both.
func commented(commit, first, step string) map[string]string {
	text := strings.Replace(approvalOf(commit)[approvalFile], "step: 0", "step: "+step, 1)
	return map[string]string{approvalFile: "# " + first + "\n# 2\n# 3\n# 4\n# 5\n# 6\n" + text}
}

// A merge can make an approval that no person wrote. Its signer has approved nothing by it.
func TestSignedApprovals_Merges(t *testing.T) {
	t.Parallel()
	const merged = "it is a merge, and none of its parents has the file like this"
	conflict := func(m *signed, file, resolved string) {
		m.Git("checkout", "-q", "main")
		m.Sign(&m.grace)
		merge := exec.CommandContext(m.t.Context(), "git", "merge", "-q", "--no-ff", "-m", "Merge", "feat")
		if merge.Dir = m.Work; merge.Run() == nil {
			m.t.Fatal("the merge has no conflict")
		}
		m.by(&m.grace, map[string]string{file: resolved})
	}
	for name, tt := range map[string]story{
		"combined by git": {"others wrote both sides", func(m *signed) (string, string) {
			v2 := m.by(&m.ada, gittest.Web("v2"))
			m.by(&m.forge, commented(v2, "1", "0"))
			m.Git("branch", "feat")
			m.by(&m.forge, commented(v2, "first", "0"))
			m.Git("checkout", "-q", "feat")
			m.by(&m.forge, commented(v2, "1", "1"))
			m.merge(&m.grace, "feat")
			return "", merged
		}},
		"combined by git, with the approver's own": {"an outsider wrote the step", func(m *signed) (string, string) {
			v2 := m.by(&m.ada, gittest.Web("v2"))
			m.by(&m.grace, commented(v2, "1", "0"))
			m.Git("branch", "feat")
			m.by(&m.grace, commented(v2, "first", "0"))
			m.Git("checkout", "-q", "feat")
			m.by(nil, commented(v2, "1", "1"))
			m.merge(&m.grace, "feat")
			return "", merged
		}},
		"combined of three branches": {"others wrote all", func(m *signed) (string, string) {
			v2 := m.by(&m.ada, gittest.Web("v2"))
			m.by(&m.forge, commented(v2, "1", "0"))
			m.Git("branch", "feat")
			m.Git("branch", "more")
			m.by(&m.forge, commented(v2, "first", "0"))
			m.Git("checkout", "-q", "feat")
			m.by(&m.forge, commented(v2, "1", "1"))
			m.Git("checkout", "-q", "more")
			m.by(&m.forge, map[string]string{"README.md": "x"})
			m.merge(&m.grace, "feat", "more")
			return "", merged
		}},
		"added by a merge": {"a merge makes no approval, also by the approver's hand", func(m *signed) (string, string) {
			v2 := m.by(&m.ada, gittest.Web("v2"))
			m.on("feat")
			m.by(&m.ada, map[string]string{"README.md": "x"})
			m.Git("checkout", "-q", "main")
			m.by(&m.ada, map[string]string{"NOTES.md": "x"})
			m.Sign(&m.grace)
			m.Git("merge", "-q", "--no-ff", "--no-commit", "feat")
			m.by(&m.grace, approvalOf(v2))
			return "", merged
		}},
		"a conflict in the approval": {"lines of it may be others'", func(m *signed) (string, string) {
			v2 := m.by(&m.ada, gittest.Web("v2"))
			m.by(&m.forge, commented(v2, "1", "0"))
			m.Git("branch", "feat")
			m.by(&m.forge, commented(v2, "first", "0"))
			m.Git("checkout", "-q", "feat")
			m.by(&m.forge, commented(v2, "one", "1"))
			conflict(m, approvalFile, commented(v2, "I", "1")[approvalFile])
			return "", merged
		}},
		"combined, and copied by the approver": {"a copy is what the merge made", func(m *signed) (string, string) {
			v2 := m.by(&m.ada, gittest.Web("v2"))
			m.by(&m.forge, commented(v2, "1", "0"))
			m.Git("branch", "feat")
			m.by(&m.forge, commented(v2, "first", "0"))
			m.Git("checkout", "-q", "feat")
			m.by(&m.forge, commented(v2, "1", "1"))
			m.merge(&m.grace, "feat")
			m.by(&m.grace, map[string]string{approvalFile: "", "deploy/approvals/more/web.yaml": commented(v2, "first", "1")[approvalFile]})
			return "", "the repository had it at deploy/approvals/web.yaml before, by merge "
		}},
		"combined, and changed by the approver": {"a signed change of the file is an approval", func(m *signed) (string, string) {
			v2 := m.by(&m.ada, gittest.Web("v2"))
			m.by(&m.forge, commented(v2, "1", "0"))
			m.Git("branch", "feat")
			m.by(&m.forge, commented(v2, "first", "0"))
			m.Git("checkout", "-q", "feat")
			m.by(&m.forge, commented(v2, "1", "1"))
			m.merge(&m.grace, "feat")
			m.by(&m.grace, commented(v2, "mine", "1"))
			return "grace@example.org", ""
		}},
		"the approver's own on a branch": {"the commit on the branch brought it", func(m *signed) (string, string) {
			v2 := m.by(&m.ada, gittest.Web("v2"))
			m.on("feat")
			m.by(&m.grace, approvalOf(v2))
			m.Git("checkout", "-q", "main")
			m.by(&m.ada, map[string]string{"README.md": "x"})
			m.merge(&m.grace, "feat")
			return "grace@example.org", ""
		}},
		"the approver's own on one of two branches": {"the commit on the branch brought it", func(m *signed) (string, string) {
			v2 := m.by(&m.ada, gittest.Web("v2"))
			m.on("more")
			m.by(&m.ada, map[string]string{"README.md": "x"})
			m.Git("checkout", "-q", "main")
			m.on("feat")
			m.by(&m.grace, approvalOf(v2))
			m.Git("checkout", "-q", "main")
			m.by(&m.ada, map[string]string{"NOTES.md": "x"})
			m.merge(&m.forge, "feat", "more")
			return "grace@example.org", ""
		}},
		"a conflict elsewhere": {"the merge has the approval of the branch", func(m *signed) (string, string) {
			v2 := m.by(&m.ada, gittest.Web("v2"))
			m.on("feat")
			m.by(&m.grace, map[string]string{"README.md": "one", approvalFile: approvalOf(v2)[approvalFile]})
			m.Git("checkout", "-q", "main")
			m.by(&m.ada, map[string]string{"README.md": "two"})
			conflict(m, "README.md", "both")
			return "grace@example.org", ""
		}},
	} {
		t.Run(name, func(t *testing.T) { tt.test(t, false) })
	}
}

// A change of line ends or white space at their ends changes no approval. Git can make it
// by itself when a user adds files.
func TestSignedApprovals_WhiteSpace(t *testing.T) {
	t.Parallel()
	const space = "it changes only line ends"
	crlf := func(files map[string]string) map[string]string {
		return map[string]string{approvalFile: strings.ReplaceAll(files[approvalFile], "\n", "\r\n")}
	}
	more := func(files map[string]string, old, new string) map[string]string {
		return map[string]string{approvalFile: strings.Replace(files[approvalFile], old, new, 1)}
	}
	for name, tt := range map[string]story{
		"git add --renormalize": {"git wrote the change", func(m *signed) (string, string) {
			m.Git("config", "core.autocrlf", "false")
			m.by(&m.forge, crlf(approvalOf(m.by(&m.ada, gittest.Web("v2")))))
			m.by(&m.ada, map[string]string{".gitattributes": "* text=auto\n"})
			m.Git("add", "--renormalize", ".")
			m.by(&m.grace, nil)
			if text := m.Git("show", "HEAD:"+approvalFile); strings.Contains(text, "\r") || m.Git("diff", "--stat", "HEAD~1", "HEAD", "--", approvalFile) == "" {
				m.t.Errorf("not renormalized: %q", text)
			}
			return "", space
		}},
		"the value of $Id$": {"git wrote the change", func(m *signed) (string, string) {
			files := approvalOf(m.by(&m.ada, gittest.Web("v2")))
			m.by(&m.forge, more(files, "spec", "# $Id: one$\nspec"))
			m.by(&m.ada, map[string]string{".gitattributes": "*.yaml ident\n"})
			m.Git("add", "--renormalize", ".")
			m.by(&m.grace, nil)
			if text := m.Git("show", "HEAD:"+approvalFile); !strings.Contains(text, "$Id$") {
				m.t.Errorf("not renormalized: %q", text)
			}
			return "", space
		}},
		"white space at the end of a line": {"as git apply --whitespace=fix does", func(m *signed) (string, string) {
			files := approvalOf(m.by(&m.ada, gittest.Web("v2")))
			m.by(&m.forge, more(files, "\nspec", " \t\nspec"))
			m.by(&m.grace, files)
			return "", space
		}},
		"a byte order mark": {"no reader sees it", func(m *signed) (string, string) {
			files := approvalOf(m.by(&m.ada, gittest.Web("v2")))
			m.by(&m.forge, more(files, "apiVersion", "\ufeffapiVersion"))
			m.by(&m.grace, files)
			return "", space
		}},
		"the line end of the file": {"editors add it", func(m *signed) (string, string) {
			files := approvalOf(m.by(&m.ada, gittest.Web("v2")))
			m.by(&m.forge, map[string]string{approvalFile: strings.TrimSuffix(files[approvalFile], "\n")})
			m.by(&m.grace, files)
			return "", space
		}},
		"copied with other line ends": {"a copy is what the committer wrote", func(m *signed) (string, string) {
			files := approvalOf(m.by(&m.ada, gittest.Web("v2")))
			m.by(&m.forge, map[string]string{"staging/web.yaml": crlf(files)[approvalFile]})
			m.by(&m.grace, files)
			return "", "the repository had it at staging/web.yaml before, by commit "
		}},
		"brought back with other line ends": {"it is what the committer wrote", func(m *signed) (string, string) {
			files := approvalOf(m.by(&m.ada, gittest.Web("v2")))
			m.by(&m.forge, crlf(files))
			m.by(&m.ada, map[string]string{approvalFile: ""})
			m.by(&m.grace, files)
			return "", "the repository had it at deploy/approvals/web.yaml before, by commit "
		}},
		"with a comment": {"a signed change of the file is an approval", func(m *signed) (string, string) {
			files := approvalOf(m.by(&m.ada, gittest.Web("v2")))
			m.by(&m.forge, crlf(files))
			m.by(&m.grace, more(files, "spec", "# mine\nspec"))
			return "grace@example.org", ""
		}},
		"the approver's own, copied with other line ends": {"it is the approver's", func(m *signed) (string, string) {
			files := approvalOf(m.by(&m.ada, gittest.Web("v2")))
			m.by(&m.grace, map[string]string{"staging/web.yaml": crlf(files)[approvalFile]})
			m.by(&m.grace, files)
			return "grace@example.org", ""
		}},
	} {
		t.Run(name, func(t *testing.T) { tt.test(t, false) })
	}
}
