package desired

import (
	"maps"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/tranche-dev/tranche/gitsync/gittest"
)

// rename moves a file with a key, and commits it with other files.
func (m *signed) rename(k *gittest.Key, from, to string, files map[string]string) string {
	m.t.Helper()
	if err := os.MkdirAll(filepath.Join(m.Work, filepath.Dir(to)), 0o755); err != nil {
		m.t.Fatal(err)
	}
	m.Git("mv", from, to)
	return m.by(k, files)
}

// at is files, of which one has another path.
func at(to, from string, files map[string]string) map[string]string {
	files = maps.Clone(files)
	files[to] = files[from]
	delete(files, from)
	return files
}

// listed is a kustomization of resources, one on a line.
func listed(names ...string) map[string]string {
	return map[string]string{"deploy/kustomization.yaml": "resources:\n- " + strings.Join(names, "\n- ") + "\n"}
}

// block is web at a tag as another person writes it.
func block(tag string) map[string]string {
	text := strings.Replace(gittest.Web(tag)["deploy/web.yaml"], "metadata: {name: web}", "metadata:\n  name: web", 1)
	text = strings.Replace(text, "selector: {matchLabels: {app: web}}", "selector:\n    matchLabels:\n      app: web", 1)
	return map[string]string{"deploy/web.yaml": text}
}

// An approver may have renamed the files of a Deployment. A line stays that of the person who
// wrote it, and so does a later change.
func TestDistinctAuthor_Renamed(t *testing.T) {
	t.Parallel()
	const web, a = "deploy/web.yaml", "deploy/a.yaml"
	v := func(tag string) map[string]string { return at(a, web, gittest.Web(tag)) }
	approvesAfter(t, map[string]func(m *signed){
		"since the last release": func(m *signed) {
			m.rename(&m.grace, web, a, nil)
			m.by(&m.ada, v("v2"))
		},
		"before the last release": func(m *signed) {
			m.rename(&m.grace, web, a, nil)
			m.completed("v2", m.by(&m.ada, v("v2")))
			m.by(&m.ada, v("v3"))
		},
		"into another folder": func(m *signed) {
			m.rename(&m.grace, web, "deploy/x/web.yaml", nil)
			m.by(&m.ada, at("deploy/x/web.yaml", web, gittest.Web("v2")))
		},
		"and written in another way": func(m *signed) {
			m.rename(&m.grace, web, a, nil)
			m.by(&m.grace, at(a, web, block("v1")))
			m.by(&m.ada, at(a, web, block("v2")))
		},
		"and written in another way at once": func(m *signed) {
			m.rename(&m.grace, web, a, at(a, web, block("v1")))
			m.by(&m.ada, at(a, web, block("v2")))
		},
		"twice": func(m *signed) {
			m.rename(&m.grace, web, "deploy/b.yaml", nil)
			m.rename(&m.grace, "deploy/b.yaml", a, nil)
			m.by(&m.ada, v("v2"))
		},
		"and again by another": func(m *signed) {
			m.rename(&m.grace, web, "deploy/b.yaml", nil)
			m.rename(&m.ada, "deploy/b.yaml", a, nil)
			m.by(&m.ada, v("v2"))
		},
	})
}

// An approver may have renamed them back, or with what names them.
func TestDistinctAuthor_RenamedBack(t *testing.T) {
	t.Parallel()
	const web, a = "deploy/web.yaml", "deploy/a.yaml"
	v := func(tag string) map[string]string { return at(a, web, gittest.Web(tag)) }
	approvesAfter(t, map[string]func(m *signed){
		"and back": func(m *signed) {
			m.rename(&m.grace, web, a, nil)
			m.rename(&m.grace, a, web, nil)
			m.by(&m.ada, gittest.Web("v2"))
		},
		"and back by another": func(m *signed) {
			m.rename(&m.grace, web, a, nil)
			m.rename(&m.ada, a, web, nil)
			m.by(&m.ada, gittest.Web("v2"))
		},
		"back after another has renamed them": func(m *signed) {
			m.rename(&m.ada, web, a, nil)
			m.rename(&m.grace, a, web, nil)
			m.by(&m.ada, gittest.Web("v2"))
		},
		"the plan alone": func(m *signed) {
			deployment, plan, _ := strings.Cut(gittest.Web("v1")[web], "---\n")
			m.completed("v1", m.by(&m.ada, map[string]string{web: deployment, "deploy/plan.yaml": plan}))
			m.rename(&m.grace, "deploy/plan.yaml", "deploy/release.yaml", nil)
			m.by(&m.ada, map[string]string{web: strings.Replace(deployment, ":v1", ":v2", 1)})
		},
		"with their kustomization": func(m *signed) {
			m.completed("v1", m.by(&m.ada, listed("web.yaml")))
			m.rename(&m.grace, web, a, listed("a.yaml"))
			m.by(&m.ada, v("v2"))
		},
		"with a kustomization that another edits": func(m *signed) {
			m.completed("v1", m.by(&m.ada, listed("web.yaml")))
			m.rename(&m.grace, web, a, listed("a.yaml"))
			files := listed("a.yaml # of web")
			maps.Copy(files, v("v2"))
			m.by(&m.ada, files)
		},
		"before the last release, with a kustomization that another edits": func(m *signed) {
			m.by(&m.ada, listed("web.yaml"))
			m.rename(&m.grace, web, a, listed("a.yaml"))
			m.completed("v2", m.by(&m.ada, v("v2")))
			files := listed("a.yaml # of web")
			maps.Copy(files, v("v3"))
			m.by(&m.ada, files)
		},
		"a folder": func(m *signed) {
			m.completed("v1", m.by(&m.ada, reviewed("1", used("c"), component("c", "v1"))))
			m.rename(&m.grace, "deploy/c", "deploy/parts", used("parts"))
			m.by(&m.ada, reviewed("2"))
		},
	})
}

// An approver may have edited other lines of a file that another person changes.
func TestDistinctAuthor_SharedFile(t *testing.T) {
	t.Parallel()
	generated := "configMapGenerator:\n- name: c\n  files: [a]\n"
	text := strings.Replace(gittest.Web("v1")["deploy/web.yaml"], "image: ", "envFrom: [{configMapRef: {name: c}}], image: ", 1)
	lines := func(first, second string) map[string]string {
		return map[string]string{"deploy/a": first + "\n#\n#\n" + second + "\n"}
	}
	approvesAfter(t, map[string]func(m *signed){
		"of a generator": func(m *signed) {
			files := reviewed("1", patched(generated), lines("1", "1"))
			files["deploy/web.yaml"] = text
			m.by(&m.ada, files)
			m.completed("v1", m.by(&m.grace, lines("2", "1")))
			m.by(&m.ada, lines("2", "2"))
		},
		"of a branch that a forge squashes": func(m *signed) {
			m.completed("v1", m.by(&m.ada, reviewed("1", kustomized())))
			m.on("feat")
			m.by(&m.ada, gittest.Web("v2"))
			m.Git("checkout", "-q", "main")
			m.Sign(&m.forge)
			m.Git("merge", "-q", "--squash", "feat")
			m.by(&m.forge, nil)
		},
	})
}

// approvesAfter has grace approve histories in which she has no part in the change.
func approvesAfter(t *testing.T, stories map[string]func(m *signed)) {
	t.Helper()
	for name, tell := range stories {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			m := newSigned(t)
			v1 := m.by(&m.ada, gittest.Web("v1"))
			m.completed("v1", v1)
			tell(m)
			m.by(&m.grace, approvalOf(m.Head()))
			if got, ignored := m.approve(t, v1, true); got == nil || got.ApprovedBy != "grace@example.org" {
				t.Errorf("approved: %+v; ignored:\n%s\n%s", got, ignored, m.Git("log", "--graph", "--format=%h %GP %s"))
			}
		})
	}
}

// used is a kustomization of web with components.
func used(folders string) map[string]string { return kustomized("components: [" + folders + "]\n") }

// withRule is a component of a rule for a tag, and of one more.
func withRule(folder, old, tag string) map[string]string {
	file := "deploy/" + folder + "/kustomization.yaml"
	return map[string]string{file: component(folder, old)[file] + rule(tag)}
}

// A move hides no rule with a later effect.
func TestDistinctAuthor_DormantRenamed(t *testing.T) {
	t.Parallel()
	approvesOnlyOthersAfter(t, map[string]func(m *signed, author *gittest.Key){
		"with a rule, since the last release": func(m *signed, author *gittest.Key) {
			m.completed("v1", m.by(&m.ada, reviewed("1", used("c"), component("c", "v9"))))
			m.rename(author, "deploy/c", "deploy/parts", reviewed("1", used("parts"), withRule("parts", "v9", "v2")))
			m.by(&m.ada, gittest.Web("v2"))
		},
		"with a rule, before the last release": func(m *signed, author *gittest.Key) {
			m.by(&m.ada, reviewed("1", used("c"), component("c", "v9")))
			m.rename(author, "deploy/c", "deploy/parts", reviewed("1", used("parts"), withRule("parts", "v9", "v2")))
			m.completed("v1", m.by(&m.ada, reviewed("2")))
			m.by(&m.ada, gittest.Web("v2"))
		},
		"after a rule of the same person": func(m *signed, author *gittest.Key) {
			m.completed("v1", m.by(&m.ada, reviewed("1", used("c"), component("c", "v9"))))
			m.by(author, withRule("c", "v9", "v2"))
			m.rename(&m.grace, "deploy/c", "deploy/parts", used("parts"))
			m.by(&m.ada, gittest.Web("v2"))
		},
		"before a rule of the same person": func(m *signed, author *gittest.Key) {
			m.completed("v1", m.by(&m.ada, reviewed("1", used("c"), component("c", "v9"))))
			m.rename(&m.grace, "deploy/c", "deploy/parts", used("parts"))
			m.by(author, withRule("parts", "v9", "v2"))
			m.by(&m.ada, gittest.Web("v2"))
		},
		"of another's rule to a place that is used later": func(m *signed, author *gittest.Key) {
			m.by(&m.ada, reviewed("1", kustomized(), component("attic", "v2")))
			m.completed("v1", m.by(&m.ada, reviewed("2")))
			m.rename(author, "deploy/attic", "deploy/c", nil)
			m.by(&m.ada, reviewed("3", used("c"), gittest.Web("v2")))
		},
		"of another's rule to a place that had a file": func(m *signed, author *gittest.Key) {
			m.completed("v1", m.by(&m.ada, reviewed("1", used("c"), component("c", "v9"), withRule("attic", "v9", "v2"))))
			m.by(author, map[string]string{"deploy/c/kustomization.yaml": ""})
			m.rename(author, "deploy/attic/kustomization.yaml", "deploy/c/kustomization.yaml", nil)
			m.by(&m.ada, gittest.Web("v2"))
		},
	})
}

// Nor do two moves that cross, a move that changes an order, or one with a present effect.
func TestDistinctAuthor_DormantRenamedCrosswise(t *testing.T) {
	t.Parallel()
	const web, a = "deploy/web.yaml", "deploy/a.yaml"
	approvesOnlyOthersAfter(t, map[string]func(m *signed, author *gittest.Key){
		"of two files that cross": func(m *signed, author *gittest.Key) {
			parts := func(files map[string]string, first, second string) map[string]string {
				return reviewed("1", used("c, d"), component("c", first), component("d", second), files)
			}
			m.completed("v1", m.by(&m.ada, parts(nil, "v8", "v9")))
			m.rename(author, "deploy/c", "deploy/e", used("e, d"))
			m.rename(author, "deploy/d", "deploy/c", used("e, c"))
			m.rename(author, "deploy/e", "deploy/d", reviewed("1", used("c, d"), component("c", "v9"), withRule("d", "v8", "v2")))
			m.by(&m.ada, gittest.Web("v2"))
		},
		"with another order of patches": func(m *signed, author *gittest.Key) {
			patch := func(value string) string {
				return strings.Replace(reviewed(value)["deploy/r.yaml"], "{r: ", "{p: ", 1)
			}
			entry := func(file, selector string) string {
				return "- {path: " + file + ", target: {kind: Deployment, labelSelector: " + selector + "}}\n"
			}
			files := patched("patches:\n", entry("p.yaml", "rel=2"), entry("q.yaml", "rel!=9"))
			files["deploy/p.yaml"], files["deploy/q.yaml"] = patch("evil"), patch("safe")
			m.completed("v1", m.by(&m.ada, files))
			m.rename(author, "deploy/p.yaml", "deploy/z.yaml", patched("patches:\n", entry("q.yaml", "rel!=9"), entry("z.yaml", "rel=2")))
			m.by(&m.ada, withLabel("v2", "rel: \"2\""))
		},
		"of the manifest, with another image": func(m *signed, author *gittest.Key) {
			m.rename(author, web, a, at(a, web, gittest.Web("v2")))
			m.by(&m.ada, at(a, web, labelled("v2")))
		},
	})
}

// A file is its author's, though nothing rendered it before another person moved it.
func TestDistinctAuthor_MovedIn(t *testing.T) {
	t.Parallel()
	const draft = "drafts/kustomization.yaml"
	drafted := func(tags string) map[string]string {
		return map[string]string{draft: component("c", tags)["deploy/c/kustomization.yaml"]}
	}
	after := func(tell func(m *signed, author *gittest.Key)) func(m *signed, author *gittest.Key) {
		return func(m *signed, author *gittest.Key) {
			m.completed("v1", m.by(&m.ada, reviewed("1", used("c"), component("c", "v9"))))
			m.by(author, drafted("v2"))
			tell(m, author)
		}
	}
	approvesOnlyOthersAfter(t, map[string]func(m *signed, author *gittest.Key){
		"since the last release": after(func(m *signed, _ *gittest.Key) {
			m.rename(&m.ada, draft, "deploy/d/kustomization.yaml", used("c, d"))
			m.by(&m.ada, gittest.Web("v2"))
		}),
		"by several moves": after(func(m *signed, _ *gittest.Key) {
			m.rename(&m.ada, draft, "attic/kustomization.yaml", nil)
			m.rename(&m.ada, "attic/kustomization.yaml", "deploy/d/kustomization.yaml", used("c, d"))
			m.by(&m.ada, gittest.Web("v2"))
		}),
		"with an edit": after(func(m *signed, _ *gittest.Key) {
			file := "deploy/d/kustomization.yaml"
			m.rename(&m.ada, draft, file, reviewed("1", used("c, d"), map[string]string{file: "# of web\n" + drafted("v2")[draft]}))
			m.by(&m.ada, gittest.Web("v2"))
		}),
		"before the last release": after(func(m *signed, author *gittest.Key) {
			m.by(author, drafted("v8"))
			m.by(author, map[string]string{draft: drafted("v8")[draft] + rule("v2")})
			m.rename(&m.ada, draft, "deploy/d/kustomization.yaml", used("c, d"))
			m.completed("v1", m.by(&m.ada, reviewed("2")))
			m.by(&m.ada, gittest.Web("v2"))
		}),
	})
}

// An approver may have written what another person moved and what has no effect on the change.
func TestDistinctAuthor_NotMovedIn(t *testing.T) {
	t.Parallel()
	const web, draft = "deploy/web.yaml", "drafts/web.yaml"
	approvesAfter(t, map[string]func(m *signed){
		"what was released": func(m *signed) {
			m.by(&m.grace, at(draft, web, gittest.Web("v2")))
			m.Git("rm", "-q", web)
			m.rename(&m.ada, draft, "deploy/a.yaml", nil)
			m.completed("v2", m.Head())
			m.by(&m.ada, at("deploy/a.yaml", web, gittest.Web("v3")))
		},
		"a rule for another tag": func(m *signed) {
			m.completed("v1", m.by(&m.ada, reviewed("1", used("c"), component("c", "v9"))))
			file := "drafts/kustomization.yaml"
			m.by(&m.ada, map[string]string{file: component("c", "v9")["deploy/c/kustomization.yaml"]})
			m.by(&m.grace, map[string]string{file: component("c", "v9")["deploy/c/kustomization.yaml"] + rule("v8")})
			m.rename(&m.ada, file, "deploy/d/kustomization.yaml", used("c, d"))
			m.by(&m.ada, gittest.Web("v2"))
		},
	})
}

// approvesOnlyOthersAfter is approvesOnlyOthers for histories after a release of v1.
func approvesOnlyOthersAfter(t *testing.T, stories map[string]func(m *signed, author *gittest.Key)) {
	t.Helper()
	for name, tell := range stories {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			approvesOnlyOthers(t, func(m *signed, author *gittest.Key) {
				m.completed("v1", m.Head())
				tell(m, author)
			})
		})
	}
}

// A file that the approver has renamed hides no rule that no listed key signed.
func TestDistinctAuthor_RenamedBeforeAnUnsignedRule(t *testing.T) {
	t.Parallel()
	m := newSigned(t)
	v1 := m.by(&m.ada, gittest.Web("v1"))
	m.by(&m.ada, reviewed("1", kustomized("components: [c]\n"), component("c", "v9")))
	m.rename(&m.grace, "deploy/c", "deploy/parts", kustomized("components: [parts]\n"))
	file := "deploy/parts/kustomization.yaml"
	m.by(nil, map[string]string{file: component("parts", "v9")[file] + rule("v2")})
	m.completed("v1", m.by(&m.ada, reviewed("2")))
	m.by(&m.ada, gittest.Web("v2"))
	m.by(&m.grace, approvalOf(m.Head()))
	if got, ignored := m.approve(t, v1, true); got != nil || !strings.Contains(ignored, "cannot be shown: commit ") {
		t.Errorf("%+v; ignored: %s", got, ignored)
	}
}
