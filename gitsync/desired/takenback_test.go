package desired

import (
	"strings"
	"testing"

	"github.com/tranche-dev/tranche/gitsync/gittest"
)

// planned is web at an image, with a first step of its plan.
func planned(image, step string) map[string]string {
	return map[string]string{"deploy/web.yaml": strings.Replace(gittest.Web(image)["deploy/web.yaml"], "{replicas: 1}", "{replicas: "+step+"}", 1)}
}

// takeBack reverts commits in one commit, with a key or none, as the controller does.
func (m *signed) takeBack(k *gittest.Key, commits ...string) string {
	m.Git(append([]string{"revert", "--no-commit"}, commits...)...)
	return m.sayTakenBack(k, nil, commits...)
}

// sayTakenBack commits files, with a message that names commits as taken back.
func (m *signed) sayTakenBack(k *gittest.Key, files map[string]string, commits ...string) string {
	m.Sign(k)
	message := ""
	for _, c := range commits {
		message += "This reverts commit " + c + ".\n"
	}
	return m.Commit(files, "Revert web", message)
}

// A commit that takes others back has not written the content that it brings: that has the
// authors that it had. The controller signs its commits with a key that is not listed, or
// with none. Each story is written for any author of the part in question.
func TestDistinctAuthor_TakenBack(t *testing.T) {
	t.Parallel()
	for name, tell := range map[string]func(m *signed, author *gittest.Key){
		"a plan that came before": func(m *signed, author *gittest.Key) {
			m.completed("v1", m.by(&m.ada, planned("v1", "1")))
			m.by(author, planned("v1", "20%"))
			m.takeBack(nil, m.by(&m.ada, planned("v2", "20%")))
			m.by(&m.ada, planned("v3", "20%"))
		},
		"by a key that is not listed": func(m *signed, author *gittest.Key) {
			m.completed("v1", m.by(&m.ada, planned("v1", "1")))
			m.by(author, planned("v1", "20%"))
			m.takeBack(&m.eve, m.by(&m.ada, planned("v2", "20%")))
			m.by(&m.ada, planned("v3", "20%"))
		},
		"a plan that came in between": func(m *signed, author *gittest.Key) {
			m.completed("v1", m.by(&m.ada, planned("v1", "1")))
			v2 := m.by(&m.ada, planned("v2", "1"))
			m.by(author, planned("v2", "20%"))
			m.takeBack(nil, v2)
			m.by(&m.ada, planned("v3", "20%"))
		},
		"a plan that the commit taken back had changed again": func(m *signed, author *gittest.Key) {
			m.completed("v1", m.by(&m.ada, planned("v1", "1")))
			m.by(author, planned("v1", "20%"))
			m.takeBack(nil, m.by(&m.ada, planned("v2", "30%")))
			m.by(&m.ada, planned("v3", "20%"))
		},
		"two commits, and a file that is not read": func(m *signed, author *gittest.Key) {
			m.completed("v1", m.by(&m.ada, planned("v1", "1")))
			m.by(author, planned("v1", "20%"))
			v2 := m.by(&m.ada, planned("v2", "20%"))
			v3 := m.by(&m.ada, planned("v3", "20%"))
			m.by(&m.ada, map[string]string{"README.md": "x"})
			m.takeBack(nil, v3, v2)
			m.by(&m.ada, planned("v4", "20%"))
		},
		"files that have no part in the Deployment stay": func(m *signed, author *gittest.Key) {
			m.completed("v1", m.by(&m.ada, planned("v1", "1")))
			m.by(author, planned("v1", "20%"))
			v2 := planned("v2", "20%")
			v2["deploy/worker.yaml"] = strings.ReplaceAll(gittest.Web("v2")["deploy/web.yaml"], "web", "worker")
			m.sayTakenBack(nil, planned("v1", "20%"), m.by(&m.ada, v2))
			m.by(&m.ada, planned("v3", "20%"))
		},
		"a change that another had taken back": func(m *signed, author *gittest.Key) {
			m.completed("v1", m.Head())
			v2 := m.by(author, gittest.Web("v2"))
			m.takeBack(nil, m.takeBack(&m.ada, v2))
			m.by(&m.ada, labelled("v2"))
		},
		"a change that another had taken back, by the key of a third": func(m *signed, author *gittest.Key) {
			m.completed("v1", m.Head())
			v2 := m.by(author, gittest.Web("v2"))
			m.takeBack(&m.ada, m.takeBack(&m.ada, v2))
			m.by(&m.ada, labelled("v2"))
		},
		"a change that another had taken back, in lines that a third has rewritten since": func(m *signed, author *gittest.Key) {
			m.completed("v1", m.Head())
			v2 := m.by(author, gittest.Web("v2"))
			m.takeBack(nil, m.takeBack(&m.ada, v2))
			m.by(&m.ada, map[string]string{"deploy/web.yaml": strings.ReplaceAll(labelled("v2")["deploy/web.yaml"], `"`, "'")})
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			approvesOnlyOthers(t, tell)
		})
	}
}

// A commit that makes another change than it says has its author, whatever its message is.
func TestDistinctAuthor_NotTakenBack(t *testing.T) {
	t.Parallel()
	for name, tell := range map[string]func(m *signed){
		"another image": func(m *signed) {
			m.completed("v1", m.Head())
			m.sayTakenBack(nil, gittest.Web("v4"), m.by(&m.ada, gittest.Web("v2")))
			m.by(&m.ada, labelled("v4"))
		},
		"and more": func(m *signed) {
			m.completed("v1", m.by(&m.ada, planned("v1", "1")))
			m.by(&m.ada, planned("v1", "20%"))
			m.sayTakenBack(nil, planned("v1", "30%"), m.by(&m.ada, planned("v2", "20%")))
			m.by(&m.ada, planned("v3", "30%"))
		},
		"and another file": func(m *signed) {
			m.completed("v1", m.by(&m.ada, planned("v1", "1")))
			m.by(&m.ada, planned("v1", "20%"))
			files := planned("v1", "20%")
			files["deploy/kustomization.yaml"] = "resources: [web.yaml]\nnamePrefix: \"\"\nimages:\n" + rule("v3")
			m.sayTakenBack(nil, files, m.by(&m.ada, planned("v2", "20%")))
			m.by(&m.ada, planned("v3", "20%"))
		},
		"and a file that is read later": func(m *signed) {
			m.completed("v1", m.by(&m.ada, planned("v1", "1")))
			m.by(&m.ada, planned("v1", "20%"))
			files := planned("v1", "20%")
			files["later.yaml"] = reviewed("evil")["deploy/r.yaml"]
			m.sayTakenBack(nil, files, m.by(&m.ada, planned("v2", "20%")))
			m.by(&m.ada, map[string]string{"deploy/kustomization.yaml": "resources: [web.yaml]\npatches: [{path: ../later.yaml}]\n"})
		},
		"a part of it": func(m *signed) {
			m.completed("v1", m.by(&m.ada, reviewed("1", kustomized())))
			m.sayTakenBack(nil, reviewed("1"), m.by(&m.ada, reviewed("2", gittest.Web("v2"))))
			m.by(&m.ada, labelled("v2"))
		},
		"what was released": func(m *signed) {
			v2 := m.by(&m.ada, gittest.Web("v2"))
			m.completed("v2", v2)
			m.takeBack(nil, v2)
			m.by(&m.ada, labelled("v1"))
		},
		"a commit that came to the branch later": func(m *signed) {
			v1 := m.Head()
			m.completed("v1", v1)
			m.on("side")
			m.by(&m.ada, gittest.Web("v2"))
			back := m.by(&m.ada, gittest.Web("v1"))
			m.Git("checkout", "-q", "main")
			m.by(&m.ada, map[string]string{"README.md": "x"})
			v2 := m.sayTakenBack(nil, gittest.Web("v2"), back)
			m.mergeOf(&m.ada, v2, v2, back)
			m.by(&m.ada, labelled("v2"))
		},
		"a commit whose content no listed key has signed": func(m *signed) {
			m.completed("v1", m.Head())
			m.by(&m.eve, gittest.Web("v2"))
			m.takeBack(nil, m.by(&m.ada, gittest.Web("v1")))
			m.by(&m.ada, labelled("v2"))
		},
		"the same, merged": func(m *signed) {
			m.completed("v1", m.Head())
			m.on("side")
			m.by(&m.eve, gittest.Web("v2"))
			back := m.by(&m.ada, gittest.Web("v1"))
			m.Git("checkout", "-q", "main")
			m.by(&m.ada, map[string]string{"README.md": "x"})
			m.merge(&m.forge, "side")
			m.takeBack(nil, back)
			m.by(&m.ada, labelled("v2"))
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			m := newSigned(t)
			v1 := m.by(nil, gittest.Web("v1"))
			tell(m)
			m.by(&m.grace, approvalOf(m.Head()))
			if got, ignored := m.approve(t, v1, true); got != nil || !strings.Contains(ignored, "cannot be shown: commit ") {
				t.Errorf("%+v; ignored: %s", got, ignored)
			}
		})
	}
}

// A person who signs the commit that takes another back has made that choice.
func TestDistinctAuthor_TakenBackByTheApprover(t *testing.T) {
	t.Parallel()
	m := newSigned(t)
	v1 := m.by(&m.ada, planned("v1", "1"))
	m.completed("v1", v1)
	m.by(&m.ada, planned("v1", "20%"))
	m.takeBack(&m.grace, m.by(&m.ada, planned("v2", "20%")))
	m.by(&m.ada, planned("v3", "20%"))
	m.by(&m.grace, approvalOf(m.Head()))
	if got, ignored := m.approve(t, v1, true); got != nil || !strings.Contains(ignored, "is signed by grace@example.org") {
		t.Errorf("%+v; ignored: %s", got, ignored)
	}
}
