package desired

import (
	"strings"
	"testing"
	"unicode/utf16"

	"github.com/tranche-dev/tranche/gitsync/gittest"
)

// inUTF16 is a text in UTF-16 with a byte order mark.
func inUTF16(text string) string {
	b := []byte{0xff, 0xfe}
	for _, u := range utf16.Encode([]rune(text)) {
		b = append(b, byte(u), byte(u>>8))
	}
	return string(b)
}

// Git can convert the file of another user when an approver adds files. This is not the
// approver's approval.
func TestSignedApprovals_Converted(t *testing.T) {
	t.Parallel()
	const encoding = "*.yaml working-tree-encoding=UTF-16\n"
	attributes := func(text string) map[string]string { return map[string]string{".gitattributes": text} }
	for name, tt := range map[string]story{
		"from UTF-16": {"the planter wrote it", func(m *signed) (string, string) {
			files := approvalOf(m.by(&m.ada, gittest.Web("v2")))
			m.by(&m.forge, map[string]string{approvalFile: inUTF16(files[approvalFile])})
			m.by(&m.ada, map[string]string{"deploy/approvals/.gitattributes": encoding})
			m.Git("add", "--renormalize", ".")
			m.by(&m.grace, nil)
			if text := m.Git("show", "HEAD:"+approvalFile); !strings.HasPrefix(text, "apiVersion") {
				m.t.Errorf("not converted: %q", text)
			}
			return "", "it changes only line ends, white space at line ends, the encoding"
		}},
		"while an attribute is set": {"git may have written it", func(m *signed) (string, string) {
			v2 := m.by(&m.ada, gittest.Web("v2"))
			m.by(&m.forge, attributes("*.yaml working-tree-encoding=ISO-8859-1\n"))
			m.by(&m.grace, approvalOf(v2))
			return "", "git converts the file when it is added, by the attribute working-tree-encoding=ISO-8859-1; take the attribute back"
		}},
		"by the commit that takes the attribute back": {"the file before may have been converted", func(m *signed) (string, string) {
			v2 := m.by(&m.ada, gittest.Web("v2"))
			m.by(&m.forge, attributes("*.yaml working-tree-encoding=ISO-8859-1\n"))
			m.by(&m.grace, map[string]string{".gitattributes": "", approvalFile: approvalOf(v2)[approvalFile]})
			return "", "git converts the file when it is added"
		}},
		"after the attribute was taken back": {"git converts nothing", func(m *signed) (string, string) {
			v2 := m.by(&m.ada, gittest.Web("v2"))
			m.by(&m.forge, attributes("*.yaml working-tree-encoding=ISO-8859-1\n"))
			m.by(&m.forge, attributes(""))
			m.by(&m.grace, approvalOf(v2))
			return "grace@example.org", ""
		}},
		"attributes of other files": {"they convert no approval", func(m *signed) (string, string) {
			v2 := m.by(&m.ada, gittest.Web("v2"))
			m.by(&m.forge, attributes("*.png filter=lfs diff=lfs merge=lfs -text\n*.ps1 working-tree-encoding=UTF-16LE\n* text=auto\n"))
			m.by(&m.grace, approvalOf(v2))
			return "grace@example.org", ""
		}},
		"from an encoding that is not known": {"an attribute of before may say which it is", func(m *signed) (string, string) {
			v2 := m.by(&m.ada, gittest.Web("v2"))
			m.by(&m.forge, map[string]string{approvalFile: "慰楖敳獲潩\n"})
			m.by(&m.grace, approvalOf(v2))
			return "", "deploy/approvals/web.yaml, which commit "
		}},
		"from the approver's own": {"all of it is the approver's", func(m *signed) (string, string) {
			v2 := m.by(&m.ada, gittest.Web("v2"))
			m.by(&m.grace, map[string]string{approvalFile: "later\n"})
			m.by(&m.grace, approvalOf(v2))
			return "grace@example.org", ""
		}},
		"removed, and then approved": {"git has no file to convert", func(m *signed) (string, string) {
			v2 := m.by(&m.ada, gittest.Web("v2"))
			m.by(&m.forge, map[string]string{approvalFile: "慰楖敳獲潩\n"})
			m.by(&m.grace, map[string]string{approvalFile: ""})
			m.by(&m.grace, approvalOf(v2))
			return "grace@example.org", ""
		}},
		"of a file that is renamed": {"git converts it, too", func(m *signed) (string, string) {
			v2 := m.by(&m.ada, gittest.Web("v2"))
			m.by(&m.forge, map[string]string{"notes/n.bin": "\x00GITCRYPT\x00"})
			m.by(&m.grace, map[string]string{"notes/n.bin": "", approvalFile: approvalOf(v2)[approvalFile]})
			return "", "notes/n.bin, which commit "
		}},
		"beside text that is removed": {"it has other lines", func(m *signed) (string, string) {
			m.by(&m.forge, map[string]string{"notes/a": "a\n", "notes/b": "b\n"})
			v2 := m.by(&m.ada, gittest.Web("v2"))
			m.by(&m.grace, map[string]string{"notes/a": "", "notes/b": "", approvalFile: approvalOf(v2)[approvalFile]})
			return "grace@example.org", ""
		}},
		"line ends, of a long file that is renamed": {"the planter wrote it", func(m *signed) (string, string) {
			text := approvalOf(m.by(&m.ada, gittest.Web("v2")))[approvalFile]
			m.by(&m.forge, map[string]string{"deploy/notes/web.yaml": strings.ReplaceAll(text, "\n", "\r\n") + strings.Repeat("\r\n", 40_000)})
			m.by(&m.forge, attributes("*.yaml text\n"))
			m.Git("mv", "deploy/notes", "deploy/approvals")
			m.Git("add", "--renormalize", ".")
			m.by(&m.grace, nil)
			return "", "the repository had it at deploy/notes/web.yaml before"
		}},
		"line ends, of a file with another extension": {"the planter wrote it", func(m *signed) (string, string) {
			text := approvalOf(m.by(&m.ada, gittest.Web("v2")))[approvalFile]
			m.by(&m.forge, map[string]string{"notes/web.txt": strings.ReplaceAll(text, "\n", "\r\n")})
			m.by(&m.grace, map[string]string{"notes/web.txt": "", approvalFile: text})
			return "", "the repository had it at notes/web.txt before"
		}},
		"a file that is too large": {"no approval is", func(m *signed) (string, string) {
			text := approvalOf(m.by(&m.ada, gittest.Web("v2")))[approvalFile]
			m.by(&m.grace, map[string]string{approvalFile: text + strings.Repeat("# mine\n", 10_000)})
			return "", "bytes, and an approval has at most 65536"
		}},
		"names that are not plain": {"no version of it is found", func(m *signed) (string, string) {
			v2 := m.by(&m.ada, gittest.Web("v2"))
			m.by(&m.grace, map[string]string{approvalFile: strings.Replace(approvalOf(v2)[approvalFile], v2, v2[:39]+`\x`+hexOf(v2[39]), 1)})
			return "", "does not have the names of what it approves in plain text"
		}},
	} {
		t.Run(name, func(t *testing.T) { tt.test(t, false) })
	}
}

func hexOf(c byte) string {
	const digits = "0123456789abcdef"
	return string([]byte{digits[c>>4], digits[c&15]})
}

// A revert combines lines of three versions into a content that no commit had before. It
// is the approver's approval only if the approver wrote a line of it.
func TestSignedApprovals_Reverts(t *testing.T) {
	t.Parallel()
	const known = "each line of it is in a version that the repository had before"
	with := func(files map[string]string, readme string) map[string]string {
		files["README.md"] = readme
		return files
	}
	// combined ends with a revert that opens the gate of step 0 again.
	combined := func(m *signed, by *signed) string {
		v2 := m.by(&m.ada, gittest.Web("v2"))
		m.by(&m.forge, with(commented(v2, "1", "0"), "ok"))
		m.by(&m.forge, with(map[string]string{approvalFile: strings.Replace(commented(v2, "1", "0")[approvalFile], "step: 0", "step: 00", 1)}, "broken"))
		m.by(&m.forge, map[string]string{approvalFile: strings.Replace(m.Git("show", "HEAD:"+approvalFile)+"\n", "# 1\n", "# first\n", 1)})
		m.Sign(&by.grace)
		m.Revert("HEAD~1")
		if text := m.Git("show", "HEAD:"+approvalFile); !strings.Contains(text, "# first") || strings.Contains(text, "step: 00") {
			m.t.Errorf("not combined: %s", text)
		}
		return v2
	}
	for name, tt := range map[string]story{
		"of another's commit": {"others wrote each line", func(m *signed) (string, string) {
			combined(m, m)
			return "", known
		}},
		"of another's commit, changed by the approver": {"a signed change of the file is an approval", func(m *signed) (string, string) {
			m.by(&m.grace, commented(combined(m, m), "mine", "0"))
			return "grace@example.org", ""
		}},
		"of lines of the approver and of another": {"another wrote the step", func(m *signed) (string, string) {
			v2 := m.by(&m.ada, gittest.Web("v2"))
			m.by(&m.grace, with(commented(v2, "mine", "1"), "ok"))
			m.by(&m.forge, with(commented(v2, "mine", "0"), "ok"))
			m.by(&m.forge, with(commented(v2, "mine", "1"), "broken"))
			m.by(&m.forge, commented(v2, "1", "1"))
			m.Sign(&m.grace)
			m.Revert("HEAD~1")
			return "", known
		}},
		"of versions that do not name the release": {"they were at the path", func(m *signed) (string, string) {
			v2 := m.by(&m.ada, gittest.Web("v2"))
			of := func(commit, step string) map[string]string {
				text, _, _ := strings.Cut(approvalOf(v2)[approvalFile], "spec:")
				return map[string]string{approvalFile: text + "spec:\n  revision: abc\n" + commit + "  # 1\n  # 2\n  # 3\n  step: " + step + "\n"}
			}
			names := "  commit: " + v2 + "\n"
			m.by(&m.grace, with(of(names, "1"), "ok"))
			m.by(&m.forge, with(of("", "1"), "broken"))
			m.by(&m.forge, of("", "0"))
			m.Sign(&m.grace)
			m.Revert("HEAD~1")
			if text := m.Git("show", "HEAD:"+approvalFile) + "\n"; text != of(names, "0")[approvalFile] {
				m.t.Errorf("not combined: %s", text)
			}
			return "", known
		}},
		"of the approver's own commit": {"all of it is the approver's", func(m *signed) (string, string) {
			v2 := m.by(&m.ada, gittest.Web("v2"))
			m.by(&m.grace, with(commented(v2, "1", "0"), "ok"))
			m.by(&m.grace, with(commented(v2, "1", "1"), "broken"))
			m.by(&m.grace, commented(v2, "first", "1"))
			m.Sign(&m.grace)
			m.Revert("HEAD~1")
			return "grace@example.org", ""
		}},
		"a step by hand, after the approver's own": {"all of it is the approver's", func(m *signed) (string, string) {
			v2 := m.by(&m.ada, gittest.Web("v2"))
			m.by(&m.grace, commented(v2, "1", "0"))
			m.by(&m.grace, commented(v2, "1", "1"))
			m.by(&m.grace, commented(v2, "1", "0"))
			return "grace@example.org", ""
		}},
		"a step by hand, after another approver's": {"the step is the approver's", func(m *signed) (string, string) {
			v2 := m.by(&m.ada, gittest.Web("v2"))
			m.by(&m.ada, commented(v2, "1", "0"))
			m.by(&m.grace, commented(v2, "1", "1"))
			return "grace@example.org", ""
		}},
		"a step by hand, after others' releases": {"the commit that it names is new", func(m *signed) (string, string) {
			m.by(&m.ada, commented(m.by(&m.ada, gittest.Web("v3")), "1", "1"))
			v2 := m.by(&m.ada, gittest.Web("v2"))
			m.by(&m.grace, commented(v2, "1", "0"))
			m.by(&m.grace, commented(v2, "1", "1"))
			return "grace@example.org", ""
		}},
		"a cherry-pick of the approver's own": {"the approver wrote it", func(m *signed) (string, string) {
			v2 := m.by(&m.ada, gittest.Web("v2"))
			m.on("feat")
			m.by(&m.grace, commented(v2, "1", "1"))
			m.Git("checkout", "-q", "main")
			m.by(&m.ada, map[string]string{"README.md": "x"})
			m.Sign(&m.grace)
			m.Git("cherry-pick", "-S", "feat")
			return "grace@example.org", ""
		}},
	} {
		t.Run(name, func(t *testing.T) { tt.test(t, false) })
	}
}
