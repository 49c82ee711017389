package desired

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/tranche-dev/tranche/gitsync/gittest"
	"github.com/tranche-dev/tranche/gitsync/repository"
	"github.com/tranche-dev/tranche/gitsync/signature"
	"github.com/tranche-dev/tranche/gitsync/signers"
	"github.com/tranche-dev/tranche/plan/v1alpha1"
)

const approvalFile = "deploy/approvals/web.yaml"

func approvalOf(commit string) map[string]string {
	return map[string]string{approvalFile: "apiVersion: tranche.dev/v1alpha1\nkind: BatchApproval\nmetadata: {name: web, namespace: shop}\nspec: {revision: abc, commit: \"" + commit + "\", step: 0}\n"}
}

// signed is a repository of signed commits, and whose keys those have. It is its own server, so
// nothing has to be pushed: a push is six processes.
type signed struct {
	*gittest.Repo
	t                      *testing.T
	ada, grace, forge, eve gittest.Key
	keys                   *signature.Keys // ada's, twice, and grace's
	verify                 *signature.Keys // the forge's, too
	// live is what the cluster has when the approval is judged; nil: v1.
	live *v1alpha1.BatchRelease
	// mirrors have what was pushed before; nil: nothing.
	mirrors *repository.Cache
	// path is that of the source now; empty: deploy.
	path string
}

func newSigned(t *testing.T) *signed {
	t.Helper()
	key := func() gittest.Key { return gittest.NewPersonsKey(t) }
	m := &signed{t: t, Repo: gittest.NewRepo(t), ada: key(), grace: key(), forge: key(), eve: key()}
	m.Bare = filepath.Join(m.Work, ".git")
	parse := func(lines ...string) *signature.Keys {
		keys, err := signature.ParseKeys(map[string][]byte{"allowed_signers": []byte(strings.Join(lines, "\n"))})
		if err != nil {
			t.Fatal(err)
		}
		return keys
	}
	m.keys = parse("ada@example.org "+m.ada.Public, "grace@example.org "+m.grace.Public)
	m.verify = parse("forge@example.org " + m.forge.Public)
	return m
}

// by commits with a key, or none.
func (m *signed) by(k *gittest.Key, files map[string]string) string {
	m.Sign(k)
	return m.Commit(files)
}

// merge merges a branch into main with a key, or none.
func (m *signed) merge(k *gittest.Key, branch string, args ...string) {
	m.checkout("main")
	m.Sign(k)
	m.Git(append([]string{"merge", "-q", "--no-ff", "-m", "Merge " + branch}, append(args, branch)...)...)
}

// checkout checks a branch out, if it is not already.
func (m *signed) checkout(branch string) {
	if head, err := os.ReadFile(filepath.Join(m.Bare, "HEAD")); err != nil || string(head) != "ref: refs/heads/"+branch+"\n" {
		m.Git("checkout", "-q", branch)
	}
}

func (m *signed) on(branch string) { m.Git("checkout", "-q", "-B", branch) }

// approve says what becomes of the approval at the tip of main.
func (m *signed) approve(t *testing.T, synced string, distinct bool) (*v1alpha1.Approval, string) {
	t.Helper()
	m.checkout("main")
	r := rendererAt(t, m.Repo, synced)
	if m.mirrors != nil {
		r.Snapshot = snapshotOf(t, m.mirrors, m.URL())
	}
	r.Signatures = signers.Policy{Verify: m.verify, Signers: m.keys, DistinctAuthor: distinct, Now: time.Now()}
	r.Source.Spec.Path = cmp.Or(m.path, r.Source.Spec.Path)
	d, _, err := r.Read(nil)
	if err != nil {
		t.Fatal(err)
	}
	live := liveAt("v1", synced)
	if m.live != nil {
		live, r.Source.Status.AppliedCommit = m.live, m.live.Spec.Commit
	}
	list, ignored, err := r.Releases(context.Background(), d, d.Set.Releases, map[string]*v1alpha1.BatchRelease{"shop/web": live})
	if err != nil {
		t.Fatal(err)
	}
	if !list[0].Spec.RequireSignedApprovals {
		t.Error("approvals in the cluster count")
	}
	text := ""
	for _, p := range ignored {
		text += p.Error() + "\n"
	}
	return list[0].Spec.Approval, text
}

// story is one of an approval.
type story struct {
	reason string
	// tell begins after v1 is synced, and returns who is recorded, or what is
	// said.
	tell func(m *signed) (by, says string)
}

func (st story) test(t *testing.T, distinct bool) {
	t.Parallel()
	m := newSigned(t)
	v1 := m.by(nil, gittest.Web("v1"))
	by, says := st.tell(m)
	got, ignored := m.approve(t, v1, distinct)
	if (got == nil) != (by == "") || got != nil && got.ApprovedBy != by {
		t.Errorf("%s: got %+v, want %q; ignored:\n%s\n%s", st.reason, got, by, ignored, m.Git("log", "--graph", "--oneline"))
	}
	if !strings.Contains(ignored, says) || says == "" && ignored != "" || says != "" && !strings.HasPrefix(ignored, "deploy/approvals/") {
		t.Errorf("%s: ignored is %q, want %q", st.reason, ignored, says)
	}
}

func TestSignedApprovals(t *testing.T) {
	t.Parallel()
	readme := func(s string) map[string]string { return map[string]string{"README.md": s} }
	for name, tt := range map[string]story{
		"signed": {"by a listed key; commits on top need none", func(m *signed) (string, string) {
			m.by(&m.grace, approvalOf(m.by(nil, gittest.Web("v2"))))
			m.by(nil, readme("x"))
			return "grace@example.org", ""
		}},
		"unsigned": {"anybody could have written it", func(m *signed) (string, string) {
			m.by(nil, approvalOf(m.by(&m.ada, gittest.Web("v2"))))
			return "", "it is not signed"
		}},
		"an unknown key": {"eve's key is not listed", func(m *signed) (string, string) {
			m.by(&m.eve, approvalOf(m.by(nil, gittest.Web("v2"))))
			return "", "a key that is not listed: ssh-ed25519 SHA256:"
		}},
		"a key for commits only": {"the keys of spec.verify approve nothing", func(m *signed) (string, string) {
			m.by(&m.forge, approvalOf(m.by(nil, gittest.Web("v2"))))
			return "", "a key that is not listed"
		}},
		"rewritten after signing": {"the content that stands there is not what was signed", func(m *signed) (string, string) {
			v2 := m.by(nil, gittest.Web("v2"))
			m.by(&m.grace, approvalOf("0123456"))
			m.by(nil, approvalOf(v2))
			return "", "it is not signed"
		}},
		"the signed one came later": {"a signature counts for what the commit brought, not for what it found", func(m *signed) (string, string) {
			m.by(nil, approvalOf(m.by(nil, gittest.Web("v2"))))
			m.by(&m.grace, readme("x"))
			return "", "it is not signed"
		}},
		"merged by a forge": {"what counts is the commit on the branch", func(m *signed) (string, string) {
			v2 := m.by(nil, gittest.Web("v2"))
			m.on("approve")
			m.by(&m.grace, approvalOf(v2))
			m.merge(&m.forge, "approve")
			return "grace@example.org", ""
		}},
		"merged with a signature": {"who merges did not write it", func(m *signed) (string, string) {
			v2 := m.by(nil, gittest.Web("v2"))
			m.on("approve")
			m.by(nil, approvalOf(v2))
			m.merge(&m.grace, "approve")
			return "", "it is not signed"
		}},
		"squashed by a forge": {"the approver's signature is lost", func(m *signed) (string, string) {
			v2 := m.by(nil, gittest.Web("v2"))
			m.on("approve")
			m.by(&m.grace, approvalOf(v2))
			m.Git("checkout", "-q", "main")
			m.Git("merge", "-q", "--squash", "approve")
			m.by(&m.forge, nil)
			return "", "a key that is not listed"
		}},
		"a second file": {"an unsigned one keeps no signed one from counting", func(m *signed) (string, string) {
			v2 := m.by(nil, gittest.Web("v2"))
			m.by(&m.grace, approvalOf(v2))
			m.by(nil, map[string]string{"deploy/approvals/a.yaml": approvalOf(v2)[approvalFile] + "# mine\n"})
			return "grace@example.org", "deploy/approvals/a.yaml: BatchApproval"
		}},
		"a link": {"a file that was signed elsewhere approves nothing when somebody links it", func(m *signed) (string, string) {
			m.by(&m.grace, map[string]string{"notes.yaml": approvalOf(m.by(nil, gittest.Web("v2")))[approvalFile]})
			m.link("../../notes.yaml", approvalFile)
			m.by(nil, nil)
			return "", "a symbolic link is on the way to its file"
		}},
		"a link that was there before": {"who signs a file elsewhere does not see where it leads", func(m *signed) (string, string) {
			m.link("../staging", "deploy/approvals")
			m.by(nil, nil)
			m.by(&m.grace, map[string]string{"staging/web.yaml": approvalOf(m.by(nil, gittest.Web("v2")))[approvalFile]})
			return "", "a symbolic link is on the way to its file"
		}},
		"a part of the commit": {"others that begin like it are made in minutes", func(m *signed) (string, string) {
			m.by(&m.grace, approvalOf(m.by(nil, gittest.Web("v2"))[:12]))
			return "", "is a part of a commit"
		}},
		"without a namespace": {"a file says by itself what it approves", func(m *signed) (string, string) {
			files := approvalOf(m.by(nil, gittest.Web("v2")))
			files[approvalFile] = strings.Replace(files[approvalFile], ", namespace: shop", "", 1)
			m.by(&m.grace, files)
			return "", "metadata.namespace: is not set"
		}},
		"with another document": {"who signs one signs both", func(m *signed) (string, string) {
			v2 := m.by(nil, gittest.Web("v2"))
			other := strings.Replace(approvalOf(v2)[approvalFile], "name: web", "name: api", 1)
			m.by(nil, map[string]string{approvalFile: approvalOf(v2)[approvalFile] + "---\n" + other})
			m.by(&m.grace, map[string]string{approvalFile: approvalOf(v2)[approvalFile] + "---\n" + other + "# mine\n"})
			return "", "its file has other documents"
		}},
	} {
		t.Run(name, func(t *testing.T) { tt.test(t, false) })
	}
}

func TestDistinctAuthor(t *testing.T) {
	t.Parallel()
	readme := func(s string) map[string]string { return map[string]string{"README.md": s} }
	for name, tt := range map[string]story{
		"by another": {"ada's change, grace's approval", func(m *signed) (string, string) {
			m.by(&m.grace, approvalOf(m.by(&m.ada, gittest.Web("v2"))))
			return "grace@example.org", ""
		}},
		"by the author": {"one person is not two", func(m *signed) (string, string) {
			m.by(&m.ada, approvalOf(m.by(&m.ada, gittest.Web("v2"))))
			return "", "is signed by ada@example.org (SHA256:"
		}},
		"an author's name": {"anybody can write any name", func(m *signed) (string, string) {
			m.Author = "Mallory <mallory@example.org>"
			v2 := m.by(&m.ada, gittest.Web("v2"))
			m.by(&m.ada, approvalOf(v2))
			return "", "is signed by ada@example.org"
		}},
		"an unsigned change": {"grace may have written it", func(m *signed) (string, string) {
			m.by(&m.grace, approvalOf(m.by(nil, gittest.Web("v2"))))
			return "", "cannot be shown: commit "
		}},
		"a change by an unknown key": {"it may be a second key of grace's", func(m *signed) (string, string) {
			m.by(&m.grace, approvalOf(m.by(&m.eve, gittest.Web("v2"))))
			return "", "cannot be shown: commit "
		}},
		"a change that a forge merged": {"the merge is nobody's change; those on the branch count", func(m *signed) (string, string) {
			m.on("v2")
			m.by(&m.ada, readme("v2"))
			m.by(&m.ada, gittest.Web("v2"))
			m.merge(nil, "v2")
			m.by(&m.grace, approvalOf(m.Head()))
			return "grace@example.org", ""
		}},
		"one of two authors": {"grace has a part in the change", func(m *signed) (string, string) {
			m.on("v2")
			m.by(&m.grace, gittest.Web("v2"))
			m.by(&m.ada, gittest.Web("v3"))
			m.merge(&m.forge, "v2")
			m.by(&m.grace, approvalOf(m.Head()))
			return "", "is signed by grace@example.org"
		}},
		"who wrote of something else": {"grace has no part in what is released", func(m *signed) (string, string) {
			m.on("v2")
			m.by(&m.grace, readme("v2"))
			m.by(&m.grace, map[string]string{"deploy/a.yaml": "apiVersion: v1\nkind: ConfigMap\nmetadata: {name: a}\n"})
			m.by(&m.ada, gittest.Web("v2"))
			m.merge(&m.forge, "v2")
			m.by(&m.grace, approvalOf(m.Head()))
			return "grace@example.org", ""
		}},
		"a merge with a change of its own": {"nobody else has signed what the merge brings", func(m *signed) (string, string) {
			m.on("v2")
			m.by(&m.ada, readme("v2"))
			m.merge(nil, "v2", "--no-commit")
			m.Write(gittest.Web("v2"))
			m.Git("add", "-A")
			m.Git("commit", "-q", "-m", "Merge and more")
			m.by(&m.grace, approvalOf(m.Head()))
			return "", "cannot be shown: commit "
		}},
	} {
		t.Run(name, func(t *testing.T) { tt.test(t, true) })
	}
}

// labelled is web at an image, with a label on its pods.
func labelled(image string) map[string]string {
	files := gittest.Web(image)
	files["deploy/web.yaml"] = strings.Replace(files["deploy/web.yaml"], "labels: {app: web}", "labels: {app: web, tier: front}", 1)
	return files
}

// broken does not render.
func broken(image string) map[string]string {
	files := gittest.Web(image)
	files["deploy/web.yaml"] = strings.Replace(files["deploy/web.yaml"], "spec:", "spec: [", 1)
	return files
}

// released makes the cluster's side one where a commit was released last and another
// one, of an image, is under way.
func (m *signed) underWay(released, image, commit string) {
	m.live = liveAt(image, commit)
	m.live.Spec.ApprovalsSince = &v1alpha1.ApprovalsSince{AppliedCommit: released, ObservedCommit: commit, ReleasedCommit: released}
	m.live.Status.Phase, m.live.Status.UpdateCommit = v1alpha1.PhaseRollingUpdate, commit
}

// completed makes it one where a commit was released last, and nothing since.
func (m *signed) completed(image, commit string) {
	m.live = liveAt(image, commit)
	m.live.Status.Phase, m.live.Status.UpdateCommit = v1alpha1.PhaseCompleted, commit
}

// mergeOf puts a merge on main with the tree of a commit and these parents.
func (m *signed) mergeOf(k *gittest.Key, of string, parents ...string) {
	m.Git("checkout", "-q", "main")
	m.Sign(k)
	args := []string{"commit-tree", "-m", "Merge"}
	if k != nil {
		args = append(args, "-S")
	}
	for _, p := range parents {
		args = append(args, "-p", p)
	}
	m.Git("reset", "-q", "--hard", m.Git(append(args, of+"^{tree}")...))
}

// An approver has written nothing of what is released, however the history is built:
// what counts is the difference to what was released last. Each case is written for any
// author of the part in question. grace may not approve what she wrote herself, and may
// approve the same by another.
func TestDistinctAuthor_Origins(t *testing.T) {
	t.Parallel()
	for name, tell := range map[string]func(m *signed, author *gittest.Key){
		"a merge brings back what was taken back": func(m *signed, author *gittest.Key) {
			v1 := m.Head()
			v2 := m.by(author, gittest.Web("v2"))
			reverted := m.by(&m.ada, gittest.Web("v1"))
			m.completed("v1", v1)
			m.mergeOf(&m.ada, v2, reverted, v2)
		},
		"such a merge, after the way back has ended": func(m *signed, author *gittest.Key) {
			v1 := m.Head()
			v2 := m.by(author, gittest.Web("v2"))
			reverted := m.by(&m.ada, gittest.Web("v1"))
			m.underWay(v1, "v1", reverted)
			m.live.Status.Phase = v1alpha1.PhaseCompleted
			m.live.Status.History = []v1alpha1.ReleaseRecord{{Commit: v2, Outcome: v1alpha1.OutcomeRolledBack}}
			m.mergeOf(&m.ada, v2, reverted, v2)
		},
		"such a merge, with a change on top": func(m *signed, author *gittest.Key) {
			v1 := m.Head()
			v2 := m.by(author, gittest.Web("v2"))
			reverted := m.by(&m.ada, gittest.Web("v1"))
			m.completed("v1", v1)
			m.mergeOf(&m.forge, v2, reverted, v2)
			m.by(&m.ada, labelled("v2"))
		},
		"a merge to an older state": func(m *signed, author *gittest.Key) {
			m.on("side")
			side := m.by(&m.ada, map[string]string{"README.md": "x"})
			m.Git("checkout", "-q", "main")
			v2 := m.by(&m.ada, gittest.Web("v2"))
			m.completed("v2", v2)
			m.mergeOf(author, side, v2, side)
		},
		"the same with the parents in the other order": func(m *signed, author *gittest.Key) {
			m.on("side")
			side := m.by(&m.ada, map[string]string{"README.md": "x"})
			m.Git("checkout", "-q", "main")
			v2 := m.by(&m.ada, gittest.Web("v2"))
			m.completed("v2", v2)
			m.mergeOf(author, side, side, v2)
			m.by(&m.ada, labelled("v1"))
		},
		"a label on a change that waits": func(m *signed, author *gittest.Key) {
			v1 := m.Head()
			v2 := m.by(author, gittest.Web("v2"))
			m.underWay(v1, "v2", v2)
			m.by(&m.ada, labelled("v2"))
		},
		"YAML that another repaired": func(m *signed, author *gittest.Key) {
			m.completed("v1", m.Head())
			m.by(author, broken("v2"))
			m.by(&m.ada, gittest.Web("v2"))
		},
		"an image while YAML was broken": func(m *signed, author *gittest.Key) {
			m.completed("v1", m.Head())
			m.by(&m.ada, map[string]string{"deploy/kustomization.yaml": "resources: [\n"})
			m.by(author, gittest.Web("v2"))
			m.by(&m.ada, map[string]string{"deploy/kustomization.yaml": "resources: [web.yaml]\n"})
		},
		"an image while YAML was broken, in lines that another has rewritten since": func(m *signed, author *gittest.Key) {
			m.completed("v1", m.Head())
			m.by(&m.ada, map[string]string{"deploy/kustomization.yaml": "resources: [\n"})
			m.by(author, gittest.Web("v2"))
			m.by(&m.ada, map[string]string{"deploy/kustomization.yaml": "resources: [web.yaml]\n", "deploy/web.yaml": strings.ReplaceAll(gittest.Web("v2")["deploy/web.yaml"], `"`, "'")})
		},
		"a file that was away while YAML was broken": func(m *signed, author *gittest.Key) {
			m.completed("v1", m.Head())
			m.by(&m.ada, map[string]string{"deploy/kustomization.yaml": "resources: [\n"})
			m.by(author, gittest.Web("v2"))
			m.by(&m.ada, map[string]string{"deploy/web.yaml": ""})
			m.by(&m.ada, map[string]string{"deploy/kustomization.yaml": "resources: [web.yaml]\n", "deploy/web.yaml": gittest.Web("v2")["deploy/web.yaml"]})
		},
		"a branch of two, merged by a forge": func(m *signed, author *gittest.Key) {
			m.completed("v1", m.Head())
			m.on("v2")
			m.by(author, gittest.Web("v2"))
			m.by(&m.ada, labelled("v2"))
			m.Git("checkout", "-q", "main")
			m.by(&m.grace, map[string]string{"README.md": "x"})
			m.merge(&m.forge, "v2")
		},
		"a merge of three with a change of its own, in lines that another has rewritten since": func(m *signed, author *gittest.Key) {
			v1 := m.Head()
			m.completed("v1", v1)
			m.on("side")
			side := m.by(&m.ada, map[string]string{"README.md": "x"})
			third := m.by(&m.ada, map[string]string{"README.md": "y"})
			m.Git("checkout", "-q", "main")
			m.mergeOf(author, m.by(&m.ada, gittest.Web("v2")), v1, side, third)
			m.by(&m.ada, map[string]string{"deploy/web.yaml": strings.ReplaceAll(labelled("v2")["deploy/web.yaml"], `"`, "'")})
		},
		"two sides of a merge": func(m *signed, author *gittest.Key) {
			m.completed("v1", m.Head())
			m.on("v2")
			m.by(author, map[string]string{"deploy/web.yaml": strings.Replace(gittest.Web("v1")["deploy/web.yaml"], "labels: {app: web}", "labels: {app: web, tier: front}", 1)})
			m.Git("checkout", "-q", "main")
			m.by(&m.ada, gittest.Web("v2"))
			m.Git("merge", "-q", "--no-ff", "--no-commit", "-s", "ours", "v2")
			m.Sign(&m.ada)
			m.by(&m.ada, labelled("v2"))
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			approvesOnlyOthers(t, tell)
		})
	}
}

// componentised is web at an image that a component sets, in a kustomization that uses
// the component of a folder.
func componentised(uses string, image map[string]string) map[string]string {
	files := gittest.Web("v1")
	files["deploy/kustomization.yaml"] = "resources: [web.yaml]\ncomponents: [" + uses + "]\n"
	for folder, tag := range image {
		files["deploy/"+folder+"/kustomization.yaml"] = "apiVersion: kustomize.config.k8s.io/v1alpha1\nkind: Component\nimages:\n- {name: registry.example.org/web, newTag: " + tag + "}\n"
	}
	return files
}

// approvesOnlyOthers has grace approve a history twice, and the approval counts only where
// she has no part in it. Once she is its author, and once another person is.
func approvesOnlyOthers(t *testing.T, tell func(m *signed, author *gittest.Key)) {
	t.Helper()
	for _, own := range []bool{true, false} {
		m := newSigned(t)
		v1 := m.by(nil, gittest.Web("v1"))
		author, want := &m.forge, "grace@example.org"
		if own {
			author, want = &m.grace, ""
		}
		tell(m, author)
		m.by(&m.grace, approvalOf(m.Head()))
		got, ignored := m.approve(t, v1, true)
		by := ""
		if got != nil {
			by = got.ApprovedBy
		}
		if by != want || own && !strings.Contains(ignored, "is signed by grace@example.org") {
			t.Errorf("grace wrote it %t: approved by %q; ignored:\n%s\n%s", own, by, ignored, m.Git("log", "--graph", "--format=%h %GP %s"))
		}
	}
}

// A merge that git makes by itself can render what neither side renders, of commits
// that each render what their parent does. They are its authors then, and so is the
// merge. Each story is written for any author of those, as the stories above are.
func TestDistinctAuthor_CombinedByAMerge(t *testing.T) {
	t.Parallel()
	// The component of two folders is the same. One side uses the other folder, and the
	// other side changes that folder.
	sides := func(m *signed, author *gittest.Key) {
		m.by(author, componentised("x", map[string]string{"x": "v1", "yy": "v1"}))
		m.on("side")
		m.by(author, componentised("x", map[string]string{"yy": "v666"}))
		m.Git("checkout", "-q", "main")
		m.by(author, componentised("yy", nil))
	}
	withLabel := func(files map[string]string) map[string]string {
		files["deploy/web.yaml"] = labelled("v1")["deploy/web.yaml"]
		return files
	}
	for name, tell := range map[string]func(m *signed, author *gittest.Key){
		"beside the change of another": func(m *signed, author *gittest.Key) {
			m.completed("v1", m.by(&m.ada, componentised("x", map[string]string{"x": "v1"})))
			m.by(&m.ada, withLabel(componentised("x", nil)))
			m.by(author, withLabel(componentised("x", map[string]string{"yy": "v1"})))
			m.on("side")
			m.by(author, withLabel(componentised("x", map[string]string{"yy": "v666"})))
			m.Git("checkout", "-q", "main")
			m.by(author, withLabel(componentised("yy", nil)))
			m.merge(author, "side")
		},
		"the same, merged by another": func(m *signed, author *gittest.Key) {
			m.completed("v1", m.by(&m.ada, componentised("x", map[string]string{"x": "v1"})))
			sides(m, author)
			m.merge(&m.forge, "side")
			m.by(&m.ada, withLabel(componentised("yy", nil)))
		},
		"below the change of another": func(m *signed, author *gittest.Key) {
			m.completed("v1", m.by(&m.ada, componentised("x", map[string]string{"x": "v1"})))
			sides(m, author)
			m.merge(author, "side")
			m.by(&m.ada, withLabel(componentised("yy", nil)))
		},
		"with the tree of a merge of its own below": func(m *signed, author *gittest.Key) {
			m.completed("v1", m.by(&m.ada, componentised("x", map[string]string{"x": "v1", "yy": "v1"})))
			m.on("side")
			m.by(&m.ada, map[string]string{"README.md": "x"})
			m.on("inner")
			m.by(&m.ada, map[string]string{"other.md": "x"})
			m.Git("checkout", "-q", "side")
			m.by(&m.ada, map[string]string{"README.md": "y"})
			m.Sign(author)
			m.Git("merge", "-q", "--no-ff", "--no-commit", "inner")
			m.by(author, componentised("x", map[string]string{"yy": "v666"}))
			m.Git("checkout", "-q", "main")
			m.by(&m.ada, componentised("yy", nil))
			m.merge(&m.forge, "side")
			m.by(&m.ada, withLabel(componentised("yy", nil)))
		},
		"an older state, by a copy of it": func(m *signed, author *gittest.Key) {
			m.by(&m.ada, componentised("x", map[string]string{"x": "v0"}))
			m.on("side")
			m.by(author, componentised("yy", map[string]string{"yy": "v0"}))
			m.Git("checkout", "-q", "main")
			m.completed("v1", m.by(&m.ada, componentised("x", map[string]string{"x": "v1"})))
			m.merge(&m.forge, "side")
			m.by(&m.ada, withLabel(componentised("yy", nil)))
		},
		"in lines that another has rewritten since": func(m *signed, author *gittest.Key) {
			m.completed("v1", m.by(&m.ada, componentised("x", map[string]string{"x": "v1"})))
			sides(m, author)
			m.merge(&m.forge, "side")
			m.by(&m.ada, withLabel(map[string]string{
				"deploy/kustomization.yaml":    "{resources: [web.yaml], components: [yy]}\n",
				"deploy/yy/kustomization.yaml": "{apiVersion: kustomize.config.k8s.io/v1alpha1, kind: Component, images: [{name: registry.example.org/web, newTag: v666}]}\n",
			}))
		},
		"of three": func(m *signed, author *gittest.Key) {
			m.completed("v1", m.by(&m.ada, componentised("x", map[string]string{"x": "v1"})))
			sides(m, author)
			m.on("third")
			m.by(&m.ada, map[string]string{"README.md": "x"})
			m.Git("checkout", "-q", "main")
			m.Sign(&m.ada)
			m.Git("merge", "-q", "--no-ff", "-m", "Merge two", "side", "third")
			m.by(&m.ada, withLabel(componentised("yy", nil)))
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			approvesOnlyOthers(t, tell)
		})
	}
}

// Both sides of a merge may have a change of their own. A person who merges them, or who
// changed something else on one of the sides, is no author.
func TestDistinctAuthor_MergeOfTwoChanges(t *testing.T) {
	t.Parallel()
	// The image of web is the component's, so that git merges it with a label.
	files := func(label, image, api string) map[string]string {
		files := componentised("x", map[string]string{"x": image})
		web := strings.Replace(gittest.Web("v1")["deploy/web.yaml"], "labels: {app: web}", "labels: {app: web, tier: "+label+"}", 1)
		other := strings.ReplaceAll(strings.SplitN(gittest.Web(api)["deploy/web.yaml"], "---\n", 2)[0], "web", "api")
		files["deploy/web.yaml"] = other + "---\n" + web
		return files
	}
	for name, tell := range map[string]func(m *signed){
		"grace merges": func(m *signed) {
			m.completed("v1", m.by(&m.ada, files("front", "v1", "v1")))
			m.on("side")
			m.by(&m.forge, files("back", "v1", "v1"))
			m.Git("checkout", "-q", "main")
			m.by(&m.ada, files("front", "v2", "v1"))
			m.merge(&m.grace, "side")
		},
		"grace changed another Deployment in the same file, twice": func(m *signed) {
			m.completed("v1", m.by(&m.ada, files("front", "v1", "v1")))
			m.on("side")
			m.by(&m.grace, files("front", "v1", "v2"))
			m.by(&m.ada, files("back", "v1", "v2"))
			m.by(&m.grace, files("back", "v1", "v3"))
			m.Git("checkout", "-q", "main")
			m.by(&m.forge, files("front", "v2", "v1"))
			m.merge(nil, "side")
		},
		"the fork waits, and main has moved": func(m *signed) {
			m.completed("v1", m.by(&m.ada, componentised("x", map[string]string{"x": "v1"})))
			m.on("side")
			m.by(&m.ada, componentised("x", map[string]string{"x": "v2"}))
			m.Git("checkout", "-q", "main")
			m.by(&m.grace, map[string]string{"deploy/kustomization.yaml": "# Components:\n" + componentised("x", nil)["deploy/kustomization.yaml"]})
			m.merge(&m.grace, "side")
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

// A force-push that leaves the last release behind hides no author. A person who has only
// written the same in other characters since is no author.
func TestDistinctAuthor_ForcePush(t *testing.T) {
	t.Parallel()
	quoted := gittest.Web("v1")
	quoted["deploy/web.yaml"] = strings.ReplaceAll(quoted["deploy/web.yaml"], `"`, "'")
	for name, since := range map[string]map[string]string{"as it was written": {"README.md": "x"}, "in other quotes": quoted} {
		for _, own := range []bool{true, false} {
			t.Run(fmt.Sprintf("%s, by grace %t", name, own), func(t *testing.T) {
				t.Parallel()
				m := newSigned(t)
				v0 := m.by(&m.ada, gittest.Web("v0"))
				author, want := &m.forge, "grace@example.org"
				if own {
					author, want = &m.grace, ""
				}
				m.by(author, gittest.Web("v1"))
				older := m.by(&m.ada, since)
				v2 := m.by(&m.ada, gittest.Web("v2"))
				m.completed("v2", v2)
				m.mirrors = repository.NewCache(t.TempDir())
				snapshotOf(t, m.mirrors, m.URL()).Close()
				m.Git("reset", "-q", "--hard", older)
				label := labelled("v1")["deploy/web.yaml"]
				if since["deploy/web.yaml"] != "" {
					label = strings.ReplaceAll(label, `"`, "'")
				}
				m.by(&m.ada, map[string]string{"deploy/web.yaml": label})
				m.by(&m.grace, approvalOf(m.Head()))
				got, ignored := m.approve(t, v0, true)
				by := ""
				if got != nil {
					by = got.ApprovedBy
				}
				if by != want {
					t.Errorf("approved by %q; ignored: %s", by, ignored)
				}
			})
		}
	}
}

// A release that was pushed with its approval and taken back before the cluster saw it has
// not ended. The approval does not count all the same if the release is brought again.
func TestApprovalOfAnUnseenRelease(t *testing.T) {
	t.Parallel()
	for name, brings := range map[string]func(m *signed, approved, reverted string){
		"by a merge whose first parents lead behind what was applied": func(m *signed, approved, reverted string) {
			m.mergeOf(&m.ada, approved, approved, reverted)
		},
		"by a push by force": func(m *signed, approved, _ string) {
			m.mirrors = repository.NewCache(m.t.TempDir())
			snapshotOf(m.t, m.mirrors, m.URL()).Close()
			m.Git("reset", "-q", "--hard", approved)
		},
		"by a merge, and then by a push by force to the release and to its approval": func(m *signed, approved, reverted string) {
			m.mergeOf(&m.ada, approved, approved, reverted)
			m.mirrors = repository.NewCache(m.t.TempDir())
			snapshotOf(m.t, m.mirrors, m.URL()).Close()
			v2 := m.Git("rev-parse", approved+"^")
			m.live = liveAt("v2", v2)
			m.live.Spec.ApprovalsSince = &v1alpha1.ApprovalsSince{AppliedCommit: reverted, ObservedCommit: m.Head()}
			m.Git("reset", "-q", "--hard", approved)
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			m := newSigned(t)
			v1 := m.by(nil, gittest.Web("v1"))
			v2 := m.by(&m.ada, gittest.Web("v2"))
			approved := m.by(&m.grace, approvalOf(v2))
			reverted := m.by(&m.ada, gittest.Web("v1"))
			m.live = liveAt("v1", reverted)
			brings(m, approved, reverted)
			if got, ignored := m.approve(t, v1, false); got != nil || !strings.Contains(ignored, "was on the branch before this release") {
				t.Errorf("%+v; ignored: %s", got, ignored)
			}
			again := approvalOf(v2)
			again[approvalFile] += "# again\n"
			m.by(&m.grace, again)
			if got, ignored := m.approve(t, v1, false); got == nil || got.Commit != v2 {
				t.Errorf("approved again: %+v; ignored: %s", got, ignored)
			}
		})
	}
}

// If no commit makes a difference, the approval does not count.
func TestDistinctAuthor_NoOrigins(t *testing.T) {
	t.Parallel()
	m := newSigned(t)
	v1 := m.by(nil, gittest.Web("v1"))
	v2 := m.by(&m.ada, gittest.Web("v2"))
	m.underWay(v2, "v1", m.by(&m.ada, gittest.Web("v1")))
	again := m.by(&m.ada, gittest.Web("v2"))
	m.by(&m.grace, approvalOf(again))
	if got, ignored := m.approve(t, v1, true); got != nil || !strings.Contains(ignored, "no commit since the last release makes it") {
		t.Errorf("%+v; ignored: %s", got, ignored)
	}
}

func (m *signed) link(target, name string) {
	m.t.Helper()
	at := filepath.Join(m.Work, name)
	if err := errors.Join(os.MkdirAll(filepath.Dir(at), 0o755), os.Symlink(target, at)); err != nil {
		m.t.Fatal(err)
	}
}

// If releases that have ended are not known any more, an approval of their time does
// not count, and a new commit of it does.
func TestApprovalOfForgottenTime(t *testing.T) {
	t.Parallel()
	m := newSigned(t)
	v1 := m.by(nil, gittest.Web("v1"))
	v2 := m.by(&m.ada, gittest.Web("v2"))
	m.underWay(v1, "v2", v2)
	m.by(&m.grace, approvalOf(v2))
	for until, want := range map[time.Duration]string{time.Hour: "it is not known any more which were used", -time.Hour: ""} {
		m.live.Spec.ApprovalsSince.ForgottenUntil = &metav1.Time{Time: time.Now().Add(until)}
		got, why := m.approve(t, v1, false)
		if (got != nil) != (want == "") || !strings.Contains(why, want) {
			t.Errorf("%v from now: %+v, %s", until, got, why)
		}
	}
}
