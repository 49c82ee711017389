package desired

import (
	"strings"
	"testing"

	"github.com/tranche-dev/tranche/gitsync/gittest"
)

// rule is a kustomization entry that gives web at a tag another image. Kustomize takes the
// name as a regular expression, so that the entry has no effect on other tags.
func rule(tag string) string {
	return "- {name: \"registry.example.org/web:" + tag + "\", newName: evil.example.org/web, newTag: " + tag + "}\n"
}

// kustomized is a kustomization of web with a patch file, and with more of it.
func kustomized(more ...string) map[string]string {
	return map[string]string{"deploy/kustomization.yaml": "resources: [web.yaml]\npatches: [{path: r.yaml}]\n" + strings.Join(more, "")}
}

// reviewed is the patch file at a value.
func reviewed(value string, more ...map[string]string) map[string]string {
	files := map[string]string{"deploy/r.yaml": "apiVersion: apps/v1\nkind: Deployment\nmetadata: {name: web}\nspec: {template: {metadata: {annotations: {r: \"" + value + "\"}}}}\n"}
	for _, m := range more {
		for name, text := range m {
			files[name] = text
		}
	}
	return files
}

// mode is a patch of the Deployments that a selector finds. It gives web the variable MODE.
func mode(op, selector, value string) string {
	target, at := "{kind: Deployment, labelSelector: \""+selector+"\"}", "env"
	text := "[{name: MODE, value: " + value + "}]"
	if op == "replace" {
		at, text = "env/0/value", value
	}
	return "- target: " + target + "\n  patch: |-\n    - {op: " + op + ", path: /spec/template/spec/containers/0/" + at + ", value: " + text + "}\n"
}

// withLabel is web at a tag, with a label of the Deployment.
func withLabel(tag, label string) map[string]string {
	return map[string]string{"deploy/web.yaml": strings.Replace(gittest.Web(tag)["deploy/web.yaml"], "metadata: {name: web", "metadata: {labels: {"+label+"}, name: web", 1)}
}

// patched is a kustomization of web with patches.
func patched(patches ...string) map[string]string {
	return map[string]string{"deploy/kustomization.yaml": "resources: [web.yaml]\n" + strings.Join(patches, "")}
}

// component is a folder with a component of a rule.
func component(folder, tag string) map[string]string {
	return map[string]string{"deploy/" + folder + "/kustomization.yaml": "apiVersion: kustomize.config.k8s.io/v1alpha1\nkind: Component\nimages:\n" + rule(tag)}
}

// A commit that renders what its parent does can have an effect once another person
// changes something else. Its author has a part in that change then, whether the commit is
// older than the last release or newer.
func TestDistinctAuthor_Dormant(t *testing.T) {
	t.Parallel()
	for name, tell := range map[string]func(m *signed, author *gittest.Key){
		"before the last release, and a merge": func(m *signed, author *gittest.Key) {
			m.by(&m.ada, reviewed("1", kustomized()))
			m.Git("branch", "feat")
			m.by(author, kustomized("images:\n"+rule("v2")))
			m.completed("v1", m.by(&m.ada, reviewed("2")))
			m.Git("checkout", "-q", "feat")
			m.by(&m.ada, gittest.Web("v2"))
			m.merge(&m.ada, "feat")
		},
		"before the last release, and a commit": func(m *signed, author *gittest.Key) {
			m.by(&m.ada, reviewed("1", kustomized()))
			m.by(author, kustomized("images:\n"+rule("v2")))
			m.completed("v1", m.by(&m.ada, reviewed("2")))
			m.by(&m.ada, gittest.Web("v2"))
		},
		"after the last release": func(m *signed, author *gittest.Key) {
			m.completed("v1", m.by(&m.ada, reviewed("1", kustomized())))
			m.by(author, kustomized("images:\n"+rule("v2")))
			m.by(&m.ada, gittest.Web("v2"))
		},
		"a file that nothing uses yet": func(m *signed, author *gittest.Key) {
			m.by(&m.ada, reviewed("1", kustomized()))
			m.by(author, component("c", "v1"))
			m.completed("v1", m.by(&m.ada, reviewed("2")))
			m.by(&m.ada, kustomized("components: [c]\n"))
		},
		"twice the same rule": func(m *signed, author *gittest.Key) {
			m.by(&m.ada, reviewed("1", kustomized()))
			m.by(author, kustomized("images:\n"+rule("v2")))
			m.by(author, reviewed("1", component("c", "v2"), kustomized("components: [c]\nimages:\n"+rule("v2"))))
			m.completed("v1", m.by(&m.ada, reviewed("2")))
			m.by(&m.ada, gittest.Web("v2"))
		},
		"its own lines again": func(m *signed, author *gittest.Key) {
			m.by(&m.ada, reviewed("1", kustomized()))
			m.by(author, kustomized("images:\n"+rule("v2")))
			m.by(author, kustomized("images: # of web\n"+strings.Replace(rule("v2"), "\n", " # v2\n", 1)))
			m.completed("v1", m.by(&m.ada, reviewed("2")))
			m.by(&m.ada, gittest.Web("v2"))
		},
		"with what was released": func(m *signed, author *gittest.Key) {
			m.by(&m.ada, reviewed("1", kustomized()))
			m.completed("v1", m.by(author, reviewed("2", kustomized("images:\n"+rule("v2")))))
			m.by(&m.ada, gittest.Web("v2"))
		},
		"with an image that was released": func(m *signed, author *gittest.Key) {
			m.by(&m.ada, reviewed("1", kustomized()))
			m.completed("v2", m.by(author, reviewed("1", gittest.Web("v2"), kustomized("images:\n"+rule("v3")))))
			m.by(&m.ada, gittest.Web("v3"))
		},
		"with an image that another hides": func(m *signed, author *gittest.Key) {
			m.by(&m.ada, reviewed("1", kustomized()))
			m.completed("v2", m.by(author, reviewed("1", gittest.Web("v2"), kustomized("images:\n"+rule("v3")))))
			tagged := strings.Replace(rule("v3"), "-", "- {name: registry.example.org/web, newTag: v3}\n-", 1)
			m.by(&m.ada, kustomized("images:\n"+tagged))
		},
		"in a block whose tag another raises": func(m *signed, author *gittest.Key) {
			block := func(tag string) string {
				return "images:\n- name: registry.example.org/web\n  newTag: " + tag + "\n" + rule("v3")
			}
			m.by(&m.ada, reviewed("1", kustomized()))
			m.completed("v2", m.by(author, kustomized(block("v2"))))
			m.by(&m.ada, kustomized(block("v3")))
		},
		"in a place with a present effect": func(m *signed, author *gittest.Key) {
			m.by(&m.ada, patched())
			m.completed("v1", m.by(author, patched("patches:\n", mode("add", "", "safe"), mode("replace", "rel=2", "evil"))))
			m.by(&m.ada, withLabel("v2", "rel: \"2\""))
		},
		"in a place with a present effect, twice": func(m *signed, author *gittest.Key) {
			m.by(&m.ada, patched())
			m.completed("v1", m.by(author, patched("patches:\n", mode("add", "", "safe"), mode("replace", "rel=2", "evil"), mode("replace", "rel in (2)", "evil"))))
			m.by(&m.ada, withLabel("v2", "rel: \"2\""))
		},
		"in a line with a present effect": func(m *signed, author *gittest.Key) {
			m.by(&m.ada, patched())
			flow := func(of, ops string) string { return "{target: {kind: Deployment" + of + "}, patch: '[" + ops + "]'}" }
			m.completed("v1", m.by(author, patched("patches: ["+flow("", `{"op": "add", "path": "/spec/template/spec/containers/0/env", "value": [{"name": "MODE", "value": "safe"}]}`)+
				", "+flow(", labelSelector: rel=2", `{"op": "replace", "path": "/spec/template/spec/containers/0/env/0/value", "value": "evil"}`)+"]\n")))
			m.by(&m.ada, withLabel("v2", "rel: \"2\""))
		},
		"in a place that another edits": func(m *signed, author *gittest.Key) {
			m.by(&m.ada, patched())
			m.by(author, patched("patches:\n", mode("add", "", "draft"), mode("replace", "rel=2", "evil")))
			m.completed("v1", m.by(&m.ada, patched("patches:\n", mode("add", "", "safe"), mode("replace", "rel=2", "evil"))))
			m.by(&m.ada, withLabel("v2", "rel: \"2\""))
		},
		"hidden by another rule until then": func(m *signed, author *gittest.Key) {
			m.by(&m.ada, patched())
			m.by(author, patched("patches:\n", mode("add", "", "evil"), mode("replace", "rel!=2", "safe")))
			m.completed("v1", m.by(&m.ada, reviewed("2", patched("patches:\n", mode("add", "", "evil"), mode("replace", "rel!=2", "safe")))))
			m.by(&m.ada, withLabel("v2", "rel: \"2\""))
		},
		"a merge with a change of its own": func(m *signed, author *gittest.Key) {
			m.by(&m.ada, reviewed("1", kustomized()))
			m.on("side")
			m.by(&m.ada, map[string]string{"README.md": "x"})
			m.Git("checkout", "-q", "main")
			m.by(&m.ada, map[string]string{"NOTES.md": "x"})
			m.Sign(author)
			m.Git("merge", "-q", "--no-ff", "--no-commit", "side")
			m.by(author, kustomized("images:\n"+rule("v2")))
			m.completed("v1", m.by(&m.ada, reviewed("2")))
			m.by(&m.ada, gittest.Web("v2"))
		},
		"beside lines that another rewrote": func(m *signed, author *gittest.Key) {
			m.by(&m.ada, reviewed("1", kustomized("# one\n# two\n")))
			m.by(author, kustomized("# 1\n# two\nimages:\n"+rule("v2")))
			m.completed("v1", m.by(&m.ada, reviewed("2", kustomized("# I\n# two\nimages:\n"+rule("v2")))))
			m.by(&m.ada, gittest.Web("v2"))
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			approvesOnlyOthers(t, tell)
		})
	}
}

// A commit without a listed signature may be the approver's.
func TestDistinctAuthor_DormantUnsigned(t *testing.T) {
	t.Parallel()
	for name, author := range map[string]func(m *signed) *gittest.Key{
		"unsigned":       func(*signed) *gittest.Key { return nil },
		"an unknown key": func(m *signed) *gittest.Key { return &m.eve },
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			m := newSigned(t)
			v1 := m.by(nil, gittest.Web("v1"))
			m.by(&m.ada, reviewed("1", kustomized()))
			m.by(author(m), kustomized("images:\n"+rule("v2")))
			m.completed("v1", m.by(&m.ada, reviewed("2")))
			m.by(&m.ada, gittest.Web("v2"))
			m.by(&m.grace, approvalOf(m.Head()))
			if got, ignored := m.approve(t, v1, true); got != nil || !strings.Contains(ignored, "cannot be shown: commit ") {
				t.Errorf("%+v; ignored: %s", got, ignored)
			}
		})
	}
}

// An approver may have written what was released before, and what has no effect on the
// change.
func TestDistinctAuthor_NotDormant(t *testing.T) {
	t.Parallel()
	for name, tell := range map[string]func(m *signed){
		"the last release": func(m *signed) {
			m.by(&m.ada, reviewed("1", kustomized()))
			m.completed("v1", m.by(&m.grace, reviewed("2")))
			m.by(&m.ada, gittest.Web("v2"))
		},
		"a rule for another tag": func(m *signed) {
			m.by(&m.ada, reviewed("1", kustomized()))
			m.by(&m.grace, kustomized("images:\n"+rule("v9")))
			m.completed("v1", m.by(&m.ada, reviewed("2")))
			m.by(&m.ada, gittest.Web("v2"))
		},
		"a rule that was released since": func(m *signed) {
			m.by(&m.ada, reviewed("1", kustomized()))
			m.by(&m.grace, kustomized("images:\n"+rule("v2")))
			m.completed("v2", m.by(&m.ada, gittest.Web("v2")))
			m.by(&m.ada, reviewed("2"))
		},
		"a tag that another raises": func(m *signed) {
			tag := func(tag string) string { return "images:\n- name: registry.example.org/web\n  newTag: " + tag + "\n" }
			m.by(&m.ada, reviewed("1", kustomized()))
			m.completed("v2", m.by(&m.grace, kustomized(tag("v2"))))
			m.by(&m.ada, kustomized(tag("v3")))
		},
		"a merge of an older branch": func(m *signed) {
			m.by(&m.ada, reviewed("1", kustomized()))
			m.Git("branch", "feat")
			m.completed("v1", m.by(&m.ada, reviewed("2")))
			m.Git("checkout", "-q", "feat")
			m.by(&m.ada, gittest.Web("v2"))
			m.merge(&m.grace, "feat")
		},
		"other Deployments": func(m *signed) {
			api := func(tag string) map[string]string {
				text, _, _ := strings.Cut(gittest.Web(tag)["deploy/web.yaml"], "---\n")
				return map[string]string{"deploy/api.yaml": strings.ReplaceAll(text, "web", "api")}
			}
			all := map[string]string{"deploy/kustomization.yaml": strings.Replace(kustomized()["deploy/kustomization.yaml"], "web.yaml", "web.yaml, api.yaml", 1)}
			m.by(&m.ada, reviewed("1", kustomized()))
			m.by(&m.grace, api("v1"))
			m.by(&m.grace, all)
			m.completed("v1", m.by(&m.ada, reviewed("2")))
			m.by(&m.grace, api("v2"))
			m.by(&m.ada, gittest.Web("v2"))
		},
		"the tag of another image, which another raises": func(m *signed) {
			block := func(tag string) string {
				return "images:\n- name: registry.example.org/api\n  newTag: " + tag + "\n"
			}
			m.by(&m.ada, reviewed("1", kustomized()))
			m.by(&m.grace, kustomized(block("v1")))
			m.completed("v1", m.by(&m.ada, reviewed("2")))
			m.by(&m.ada, gittest.Web("v2"))
			m.by(&m.ada, reviewed("3", kustomized(block("v2"))))
		},
		"one key of a generated ConfigMap": func(m *signed) {
			config := func(a, b string) map[string]string {
				return map[string]string{"deploy/a": a, "deploy/b": b}
			}
			web := strings.Replace(gittest.Web("v1")["deploy/web.yaml"], "image: ", "envFrom: [{configMapRef: {name: c}}], image: ", 1)
			m.by(&m.ada, reviewed("1", map[string]string{"deploy/web.yaml": web}, config("1", "1"), kustomized("configMapGenerator: [{name: c, files: [a, b]}]\n")))
			m.completed("v1", m.by(&m.grace, config("2", "1")))
			m.by(&m.ada, config("2", "2"))
		},
		"a patch that was released": func(m *signed) {
			m.by(&m.ada, patched())
			m.completed("v1", m.by(&m.grace, patched("patches:\n", mode("add", "", "one"), mode("replace", "rel=9", "two"))))
			m.by(&m.ada, withLabel("v2", "rel: \"2\""))
		},
		"a patch whose value another changes": func(m *signed) {
			m.by(&m.ada, patched())
			m.completed("v1", m.by(&m.grace, patched("patches:\n", mode("add", "", "one"), mode("replace", "rel=9", "two"))))
			m.by(&m.ada, patched("patches:\n", mode("add", "", "three"), mode("replace", "rel=9", "two")))
		},
		"the use of a file that another changes": func(m *signed) {
			m.by(&m.ada, reviewed("1", patched()))
			m.completed("v1", m.by(&m.grace, patched("patches:\n- path: r.yaml\n")))
			m.by(&m.ada, reviewed("2"))
		},
		"a generator whose file another changes": func(m *signed) {
			web := strings.Replace(gittest.Web("v1")["deploy/web.yaml"], "image: ", "envFrom: [{configMapRef: {name: c}}], image: ", 1)
			m.by(&m.ada, map[string]string{"deploy/web.yaml": web, "deploy/a": "1", "deploy/kustomization.yaml": "resources: [web.yaml]\n"})
			m.completed("v1", m.by(&m.grace, patched("configMapGenerator:\n- name: c\n  files: [a]\n  literals: [x=1, y=2]\n")))
			m.by(&m.ada, map[string]string{"deploy/a": "2"})
		},
		"a component that was used": func(m *signed) {
			m.by(&m.ada, reviewed("1", kustomized()))
			m.by(nil, component("c", "v1"))
			m.by(&m.grace, component("d", "v9"))
			m.completed("v1", m.by(&m.ada, kustomized("components: [c, d]\n")))
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
