package desired

import (
	"encoding/binary"
	"strings"
	"testing"
	"unicode/utf16"

	"github.com/tranche-dev/tranche/gitsync/gittest"
)

// utf16Of is a text in UTF-16 with a byte order mark.
func utf16Of(text string) string {
	b := []byte{0xff, 0xfe}
	for _, c := range utf16.Encode([]rune(text)) {
		b = binary.LittleEndian.AppendUint16(b, c)
	}
	return string(b)
}

// crlf is the files with the line ends of another system.
func crlf(files map[string]string) map[string]string {
	for name, text := range files {
		files[name] = strings.ReplaceAll(text, "\n", "\r\n")
	}
	return files
}

// mounted is a patch that mounts the volume cfg elsewhere, for the Deployments of a label.
func mounted(selector, at string) string {
	return "- target: {kind: Deployment, labelSelector: \"" + selector + "\"}\n  patch: |-\n" +
		"    - {op: add, path: /spec/template/spec/containers/0/volumeMounts/0, value: {name: cfg, mountPath: " + at + "}}\n"
}

// A rule with a later effect is its author's, though the file was away meanwhile, has moved,
// or was converted as a whole.
func TestDistinctAuthor_DormantElsewhere(t *testing.T) {
	t.Parallel()
	const file = "deploy/kustomization.yaml"
	withRule := func() map[string]string { return kustomized("images:\n" + rule("v2")) }
	used := func(folder string) map[string]string { return kustomized("components: [" + folder + "]\n") }
	for name, tell := range map[string]func(m *signed, author *gittest.Key){
		"a file that was renamed for a commit": func(m *signed, author *gittest.Key) {
			m.completed("v1", m.by(&m.ada, reviewed("1", kustomized())))
			m.Sign(author)
			m.Git("mv", file, "deploy/kustomization.yml")
			m.by(author, nil)
			m.Git("mv", "deploy/kustomization.yml", file)
			m.by(author, withRule())
			m.by(&m.ada, gittest.Web("v2"))
		},
		"a file of a history of its own": func(m *signed, author *gittest.Key) {
			m.completed("v1", m.by(&m.ada, reviewed("1", kustomized())))
			m.Git("checkout", "-q", "--orphan", "side")
			m.by(author, withRule())
			m.Git("checkout", "-q", "-f", "main")
			m.Sign(author)
			m.Git("merge", "-q", "-s", "ours", "--no-commit", "--allow-unrelated-histories", "side")
			m.Git("checkout", "-q", "side", "--", file)
			m.by(author, nil)
			m.by(&m.ada, gittest.Web("v2"))
		},
		"a file that was a link": func(m *signed, author *gittest.Key) {
			m.completed("v1", m.by(&m.ada, reviewed("1", kustomized())))
			m.Git("mv", file, "deploy/k.yaml")
			m.link("k.yaml", file)
			m.by(author, nil)
			m.Git("rm", "-q", file)
			m.by(author, withRule())
			m.by(&m.ada, reviewed("2", gittest.Web("v2"), kustomized("images: # of web\n"+rule("v2"))))
		},
		"a folder that another moves": func(m *signed, author *gittest.Key) {
			m.completed("v1", m.by(&m.ada, reviewed("1", used("c"), component("c", "v9"))))
			m.by(author, map[string]string{"deploy/c/kustomization.yaml": component("c", "v9")["deploy/c/kustomization.yaml"] + rule("v2")})
			m.Sign(&m.ada)
			m.Git("mv", "deploy/c", "deploy/parts")
			m.by(&m.ada, used("parts"))
			m.by(&m.ada, gittest.Web("v2"))
		},
		"line ends that another converts": func(m *signed, author *gittest.Key) {
			m.completed("v1", m.by(&m.ada, reviewed("1", crlf(kustomized()))))
			m.by(author, crlf(withRule()))
			m.by(&m.ada, withRule())
			m.by(&m.ada, gittest.Web("v2"))
		},
		"an encoding that another edits in and converts": func(m *signed, author *gittest.Key) {
			m.completed("v1", m.by(&m.ada, reviewed("1", kustomized())))
			m.by(author, map[string]string{file: utf16Of(withRule()[file])})
			m.by(&m.ada, map[string]string{file: utf16Of("# web\n" + withRule()[file])})
			m.by(&m.ada, reviewed("1", gittest.Web("v2"), map[string]string{file: "# web\n" + withRule()[file]}))
		},
		"a component beside the approvals": func(m *signed, author *gittest.Key) {
			m.completed("v1", m.by(&m.ada, reviewed("1", used("approvals/c"), component("approvals/c", "v9"))))
			m.by(author, map[string]string{"deploy/approvals/c/kustomization.yaml": component("approvals/c", "v9")["deploy/approvals/c/kustomization.yaml"] + rule("v2")})
			m.by(&m.ada, gittest.Web("v2"))
		},
		"a mount with the name of another": func(m *signed, author *gittest.Key) {
			web := func(tag, labels string) map[string]string {
				text := strings.Replace(gittest.Web(tag)["deploy/web.yaml"], "image: ", "volumeMounts: [{name: cfg, mountPath: /etc/cfg}], image: ", 1)
				return map[string]string{"deploy/web.yaml": strings.Replace(text, "metadata: {name: web", "metadata: {"+labels+"name: web", 1)}
			}
			m.completed("v1", m.by(&m.ada, reviewed("1", web("v1", ""), patched())))
			m.by(author, patched("patches:\n", mounted("rel=2", "/usr/bin")))
			m.by(&m.ada, web("v2", `labels: {rel: "2"}, `))
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			approvesOnlyOthers(t, tell)
		})
	}
}

// An approver may have written what was released, wherever it is now.
func TestDistinctAuthor_NotDormantElsewhere(t *testing.T) {
	t.Parallel()
	for name, tell := range map[string]func(m *signed){
		"a component that another moves": func(m *signed) {
			used := func(folder string) map[string]string { return kustomized("components: [" + folder + "]\n") }
			m.by(&m.ada, reviewed("1", kustomized()))
			m.by(&m.grace, component("c", "v1"))
			m.completed("v1", m.by(&m.ada, used("c")))
			m.Sign(&m.ada)
			m.Git("mv", "deploy/c", "deploy/parts")
			m.by(&m.ada, used("parts"))
			m.by(&m.ada, gittest.Web("v2"))
		},
		"line ends that another converts": func(m *signed) {
			m.by(&m.ada, reviewed("1", crlf(kustomized())))
			m.by(&m.grace, crlf(kustomized("images:\n"+rule("v1"))))
			m.completed("v1", m.by(&m.ada, reviewed("2")))
			m.by(&m.ada, kustomized("images:\n"+rule("v1")))
			m.by(&m.ada, gittest.Web("v2"))
		},
		"a file that was away": func(m *signed) {
			m.by(&m.ada, reviewed("1", kustomized()))
			m.by(&m.grace, component("c", "v1"))
			m.by(&m.grace, map[string]string{"deploy/c/kustomization.yaml": ""})
			m.by(&m.grace, component("c", "v1"))
			m.completed("v1", m.by(&m.ada, kustomized("components: [c]\n")))
			m.by(&m.ada, gittest.Web("v2"))
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			m := newSigned(t)
			v1 := m.by(nil, gittest.Web("v1"))
			tell(m)
			m.by(&m.grace, approvalOf(m.Head()))
			if got, ignored := m.approve(t, v1, true); got == nil || got.ApprovedBy != "grace@example.org" {
				t.Errorf("approved: %+v; ignored:\n%s\n%s", got, ignored, m.Git("log", "--graph", "--format=%h %GP %s"))
			}
		})
	}
}

// Texts of many lines that all differ do not keep a search for hours.
func TestDistinctAuthor_LargeTexts(t *testing.T) {
	t.Parallel()
	lines := func(prefix string) string {
		var b strings.Builder
		for i := range 60_000 {
			b.WriteString(prefix + strings.Repeat("x", i%3) + string(rune('a'+i%26)) + "\n")
		}
		return b.String()
	}
	m := newSigned(t)
	v1 := m.by(nil, gittest.Web("v1"))
	m.completed("v1", m.by(&m.ada, reviewed("1", kustomized())))
	m.by(&m.grace, map[string]string{"deploy/notes.txt": lines("# one ")})
	m.by(&m.ada, map[string]string{"deploy/notes.txt": lines("# two ")})
	m.by(&m.ada, gittest.Web("v2"))
	m.by(&m.grace, approvalOf(m.Head()))
	if got, ignored := m.approve(t, v1, true); got == nil {
		t.Errorf("not approved: %s", ignored)
	}
}
