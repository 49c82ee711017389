package desired

import (
	"strings"
	"testing"

	"github.com/tranche-dev/tranche/gitsync/gittest"
)

// evil is an element of a flow list, whose value for a tag goes over two lines.
func evil(tag string) string {
	return "{name: \"registry.example.org/web:" + tag + "\", newName:\n  evil.example.org/web, newTag: " + tag + "}"
}

// lowered is an element by which a tag is rendered as v1.
func lowered(tag string) string {
	return "{name: \"registry.example.org/web:" + tag + "\", newTag: v1}"
}

// operations is a patch in quotes, of the Deployments that a selector finds.
func operations(selector string, list ...string) string {
	return "{target: {kind: Deployment" + selector + "}, patch: '[" + strings.Join(list, ", ") + "]'}"
}

// env is an operation that adds a variable.
func env(name, value string) string {
	return `{"op": "add", "path": "/spec/template/spec/containers/0/env", "value": [{"name": "` + name + `", "value": "` + value + `"}]}`
}

// inBraces is a kustomization in flow style, with such an element.
func inBraces(tag string) map[string]string {
	return map[string]string{"deploy/kustomization.yaml": "{resources:\n [web.yaml], images: [" + evil(tag) + "]}\n"}
}

// An entry is its author's, wherever it begins and ends in the text. It may be in a line or a
// list with another one without which nothing renders, or which another person has written.
func TestDistinctAuthor_DormantShared(t *testing.T) {
	t.Parallel()
	for name, tell := range map[string]func(m *signed, author *gittest.Key){
		"a list over several lines": func(m *signed, author *gittest.Key) {
			m.by(&m.ada, gittest.Web("v0"))
			m.by(&m.ada, patched())
			m.completed("v1", m.by(author, patched("images: [\n  "+lowered("v0")+",\n  "+evil("v3")+"\n]\n")))
			m.by(&m.ada, gittest.Web("v3"))
		},
		"a line with what the manifests need": func(m *signed, author *gittest.Key) {
			m.by(&m.ada, map[string]string{"deploy/kustomization.yaml": "{resources: [web.yaml]}\n"})
			m.completed("v1", m.by(author, inBraces("v3")))
			m.by(&m.ada, gittest.Web("v3"))
		},
		"a list that another adds to": func(m *signed, author *gittest.Key) {
			m.by(&m.ada, patched())
			one := strings.ReplaceAll(evil("v3"), "\n", "")
			m.by(author, patched("images: ["+one+"]\n"))
			m.completed("v1", m.by(&m.ada, patched("images: ["+one+", "+lowered("v0")+"]\n")))
			m.by(&m.ada, gittest.Web("v3"))
		},
		"a patch in quotes over several lines": func(m *signed, author *gittest.Key) {
			m.by(&m.ada, patched())
			m.completed("v1", m.by(author, patched("patches: [\n "+operations("", env("MODE", "safe"))+",\n "+
				operations(", labelSelector: rel=2", `{"op": "test", "path": "/kind",
  "value": "Deployment"}`, `{"op": "replace", "path":
  "/spec/template/spec/containers/0/env/0/value", "value": "evil"}`)+"\n]\n")))
			m.by(&m.ada, withLabel("v2", "rel: \"2\""))
		},
		"a patch in a string of two lines, with one that was released": func(m *signed, author *gittest.Key) {
			const value = "/spec/template/spec/containers/0/env/0/value"
			m.by(&m.ada, patched())
			m.by(&m.ada, withLabel("v1", "rel: safe"))
			m.completed("v1", m.by(author, patched("patches:\n- target: {kind: Deployment}\n  patch: |-\n    ["+env("MODE", "safe"),
				", {\"op\": \"copy\",\n     \"from\": \"/metadata/labels/rel\", \"path\": \""+value+"\"}]\n")))
			m.by(&m.ada, withLabel("v2", "rel: evil"))
		},
		"a kustomization too large to be taken apart": func(m *signed, author *gittest.Key) {
			padded := strings.Repeat("# "+strings.Repeat("x", 1000)+"\n", 1100)
			m.by(&m.ada, patched(padded))
			m.completed("v1", m.by(author, patched(padded+"images: [\n  "+lowered("v1")+",\n  "+evil("v3")+"\n]\n")))
			m.by(&m.ada, gittest.Web("v3"))
		},
		"an element that another one names": func(m *signed, author *gittest.Key) {
			m.by(&m.ada, patched())
			m.completed("v1", m.by(author, patched("configMapGenerator: [{name: c, literals: &a [x=1]}, {name: d,\n literals: *a}]\n",
				"images: ["+lowered("v0")+",\n  "+evil("v3")+"]\n")))
			m.by(&m.ada, gittest.Web("v3"))
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			approvesOnlyOthers(t, tell)
		})
	}
}

// An approver may have written the other entries of a line or a list.
func TestDistinctAuthor_NotDormantShared(t *testing.T) {
	t.Parallel()
	for name, tell := range map[string]func(m *signed){
		"a list over several lines": func(m *signed) {
			m.by(&m.ada, gittest.Web("v0"))
			m.by(&m.ada, patched())
			m.completed("v1", m.by(&m.grace, patched("images: [\n  "+lowered("v0")+",\n  "+evil("v9")+"\n]\n")))
			m.by(&m.ada, gittest.Web("v3"))
		},
		"a line with what the manifests need": func(m *signed) {
			m.by(&m.ada, map[string]string{"deploy/kustomization.yaml": "{resources: [web.yaml]}\n"})
			m.completed("v1", m.by(&m.grace, inBraces("v9")))
			m.by(&m.ada, gittest.Web("v3"))
		},
		"a patch whose value another changes": func(m *signed) {
			m.by(&m.ada, patched())
			more := ",\n " + operations("", `{"op": "test", "path": "/kind", "value": "Deployment"}`) + "\n]\n"
			m.completed("v1", m.by(&m.grace, patched("patches: [\n "+operations("", env("MODE", "safe"))+more)))
			m.by(&m.ada, patched("patches: [\n "+operations("", env("MODE", "calm"))+more))
		},
		"a ConfigMap of many lines": func(m *signed) {
			m.by(&m.ada, patched())
			m.completed("v1", m.by(&m.grace, map[string]string{
				"deploy/c.yaml": "apiVersion: v1\nkind: ConfigMap\nmetadata: {name: c}\n" +
					"data:\n  a: |\n" + strings.Repeat("    [x, {y: z}]\n", 50),
				"deploy/kustomization.yaml": "resources: [web.yaml, c.yaml]\n",
			}))
			m.by(&m.ada, gittest.Web("v3"))
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			approvedByGrace(t, tell)
		})
	}
}

// approvedByGrace lets grace approve what a story has brought.
func approvedByGrace(t *testing.T, tell func(m *signed)) {
	t.Helper()
	m := newSigned(t)
	v1 := m.by(nil, gittest.Web("v1"))
	tell(m)
	m.by(&m.grace, approvalOf(m.Head()))
	if got, ignored := m.approve(t, v1, true); got == nil || got.ApprovedBy != "grace@example.org" {
		t.Errorf("approved: %+v; ignored:\n%s\n%s", got, ignored, m.Git("log", "--graph", "--format=%h %GP %s"))
	}
}
