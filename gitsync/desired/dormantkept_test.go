package desired

import (
	"strings"
	"testing"

	"github.com/tranche-dev/tranche/gitsync/gittest"
)

// guarded is web at a tag, with a label and a field of the pods.
func guarded(tag, label, field string) map[string]string {
	text := withLabel(tag, label)["deploy/web.yaml"]
	return map[string]string{"deploy/web.yaml": strings.Replace(text, "spec: {containers:", "spec: {"+field+"containers:", 1)}
}

// guard is a field of the pods that a change adds.
const guard = "securityContext: {runAsNonRoot: true}, "

// operation is a patch of the Deployments with a label.
func operation(selector, op string) string {
	return "- target: {kind: Deployment, labelSelector: \"" + selector + "\"}\n  patch: |-\n    - {" + op + "}\n"
}

const unguard = "op: remove, path: /spec/template/spec/securityContext"

// A rule that keeps a field as it was released, against the change of another person, has an
// effect on that change.
func TestDistinctAuthor_DormantKept(t *testing.T) {
	t.Parallel()
	one := `rel: "1"`
	two := `rel: "2"`
	const empty = "op: add, path: /spec/template/spec/securityContext, value: {}"
	const image = `op: replace, path: /spec/template/spec/containers/0/image, value: "registry.example.org/web:v1"`
	for name, tell := range map[string]func(m *signed, author *gittest.Key){
		"a field that another adds": func(m *signed, author *gittest.Key) {
			m.completed("v1", m.by(&m.ada, patched()))
			m.by(author, patched("patches:\n", operation("rel=2", unguard)))
			m.by(&m.ada, guarded("v2", two, guard))
		},
		"before the last release": func(m *signed, author *gittest.Key) {
			m.by(&m.ada, patched())
			m.by(author, patched("patches:\n", operation("rel=2", unguard)))
			m.completed("v1", m.by(&m.ada, guarded("v1", one, "")))
			m.by(&m.ada, guarded("v2", two, guard))
		},
		"twice": func(m *signed, author *gittest.Key) {
			m.by(&m.ada, patched())
			m.by(author, patched("patches:\n", operation("rel=2", empty)))
			m.by(author, patched("patches:\n", operation("rel=2", empty), operation("rel in (2)", unguard)))
			m.completed("v1", m.by(&m.ada, guarded("v1", one, "")))
			m.by(&m.ada, guarded("v2", two, guard))
		},
		"with what was released": func(m *signed, author *gittest.Key) {
			m.by(&m.ada, patched())
			m.completed("v1", m.by(author, patched("patches:\n", mode("add", "", "safe"), operation("rel=2", unguard))))
			m.by(&m.ada, guarded("v2", two, guard))
		},
		"the old image, taken back by another label": func(m *signed, author *gittest.Key) {
			m.by(&m.ada, patched())
			m.by(author, patched("patches:\n", operation("rel=2", image)))
			m.completed("v1", m.by(&m.ada, guarded("v1", one, "")))
			m.by(&m.ada, guarded("v2", two, guard))
		},
		"a value of which another removes the duplicate": func(m *signed, author *gittest.Key) {
			const rule = "op: add, path: /spec/template/spec/hostname, value: web"
			m.by(&m.ada, patched())
			m.by(&m.ada, guarded("v1", two, "hostname: web, "))
			m.completed("v1", m.by(author, patched("patches:\n", operation("", rule))))
			m.by(&m.ada, guarded("v2", two, ""))
		},
		"a variable as it was": func(m *signed, author *gittest.Key) {
			m.by(&m.ada, patched("patches:\n", mode("add", "", "safe")))
			kept := mode("replace", "rel=2", "safe")
			m.by(author, patched("patches:\n", mode("add", "", "safe"), kept))
			m.completed("v1", m.by(&m.ada, guarded("v1", one, "")))
			m.by(&m.ada, reviewed("1", guarded("v2", two, ""), patched("patches:\n", mode("add", "", "safer"), kept)))
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			approvesOnlyOthers(t, tell)
		})
	}
}

// An approver may have written what keeps a field, if that had the same effect on what was
// released.
func TestDistinctAuthor_NotDormantKept(t *testing.T) {
	t.Parallel()
	for name, tell := range map[string]func(m *signed){
		"a rule that was released": func(m *signed) {
			m.by(&m.ada, patched())
			m.by(&m.ada, guarded("v1", `rel: "2"`, guard))
			m.completed("v1", m.by(&m.grace, patched("patches:\n", operation("rel=2", unguard))))
			m.by(&m.ada, guarded("v2", `rel: "2"`, guard))
		},
		"a rule that was released, for a value that another changes": func(m *signed) {
			m.by(&m.ada, patched())
			m.completed("v1", m.by(&m.grace, patched("patches:\n", operation("", `op: add, path: /spec/template/spec/hostname, value: web`))))
			m.by(&m.ada, guarded("v2", `rel: "2"`, "hostname: other, "))
		},
		"a rule for another label": func(m *signed) {
			m.completed("v1", m.by(&m.ada, patched()))
			m.by(&m.grace, patched("patches:\n", operation("rel=9", unguard)))
			m.by(&m.ada, guarded("v2", `rel: "2"`, guard))
		},
		"all of what was released": func(m *signed) {
			m.by(&m.grace, patched("patches:\n", mode("add", "", "safe")))
			m.by(&m.grace, reviewed("1", guarded("v1", `rel: "1"`, guard), kustomized("patchesJson6902: []\n")))
			m.completed("v1", m.by(&m.grace, reviewed("2")))
			m.by(&m.ada, guarded("v2", `rel: "1"`, guard))
		},
		"a field that another adds, and that stays": func(m *signed) {
			m.by(&m.ada, patched())
			m.completed("v1", m.by(&m.grace, patched("patches:\n", mode("add", "", "safe"))))
			m.by(&m.ada, guarded("v2", `rel: "2"`, guard))
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			approvedByGrace(t, tell)
		})
	}
}
