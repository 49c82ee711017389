package gitsync

import (
	"context"
	"flag"
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/tranche-dev/tranche/gitsync/gittest"
	"github.com/tranche-dev/tranche/gitsync/signature"
	"github.com/tranche-dev/tranche/plan"
	"github.com/tranche-dev/tranche/plan/v1alpha1"
)

// graphs is how many graphs the adversary makes; 0: a few.
var graphs = flag.Uint64("graphs", 0, "how many Git graphs TestPlanAdversary makes")

// empty is a cluster with nothing in it.
type empty struct{ client.Client }

func (empty) Get(_ context.Context, key client.ObjectKey, _ client.Object, _ ...client.GetOption) error {
	return apierrors.NewNotFound(schema.GroupResource{}, key.Name)
}

func (empty) List(context.Context, client.ObjectList, ...client.ListOption) error { return nil }

// variants are what a commit may say of Deployment web. The last two have no plan, and
// no Deployment.
var variants = []string{"1, 50%, 100%", "1, 60%, 100%", "50%, 100%", "100%", "no plan", "no Deployment"}

// agreement is an approval that was committed.
type agreement struct {
	commit, digest string
	signer         int
	at             int // which action it was
	used           bool
}

// adversary pushes at random, as three persons: 0 may commit and not approve.
type adversary struct {
	t       *testing.T
	rand    *rand.Rand
	repo    *gittest.Repo
	mirrors *mirrors
	keys    []gittest.Key
	by      signatures
	gs      *v1alpha1.GitSource

	commits   []string
	variant   map[string]int       // by commit
	files     map[string][2]string // the two approval files, by commit: digest and what makes it unique
	authors   map[int]map[int]bool // who has made a commit of a variant
	given     []agreement
	at, since int // actions: now, and when the present terms took effect
	rewritten bool
	story     []string
	governing int // a variant; as the test knows it from what was agreed
}

func variantFiles(v int) map[string]string {
	files := map[string]string{"deploy/a.yaml": "apiVersion: v1\nkind: ConfigMap\nmetadata: {name: a}\n"}
	web := strings.SplitN(webAt("v1")["deploy/web.yaml"], "---\n", 2)
	switch variants[v] {
	case "no Deployment":
	case "no plan":
		files["deploy/web.yaml"] = web[0]
	default:
		files["deploy/web.yaml"] = web[0]
		text := "apiVersion: tranche.dev/v1alpha1\nkind: BatchRelease\nmetadata: {name: web}\nspec:\n  workloadRef: {name: web}\n  strategy:\n    steps:\n"
		for s := range strings.SplitSeq(variants[v], ", ") {
			text += "    - replicas: " + s + "\n"
		}
		files["deploy/plan.yaml"] = text
	}
	return files
}

// termsOfVariant are written out: the oracle shares nothing with what it tests.
func termsOfVariant(v int) plan.Terms {
	switch variants[v] {
	case "no plan":
		return `{"deployment":"shop/web","governed":false}`
	case "no Deployment":
		return `{"deployment":"shop/web","governed":false,"removed":true}`
	}
	var steps []string
	for s := range strings.SplitSeq(variants[v], ", ") {
		switch {
		case s == "100%":
			steps = append(steps, `{"replicas":"100%"}`)
		case strings.HasSuffix(s, "%"):
			steps = append(steps, `{"gate":"approval","replicas":"`+s+`"}`)
		default:
			steps = append(steps, `{"gate":"approval","replicas":`+s+`}`)
		}
	}
	return plan.Terms(`{"deployment":"shop/web","minReadySeconds":0,"onFailure":"Hold","progressDeadlineSeconds":600,"rollback":[1,"100%"],"steps":[` + strings.Join(steps, ",") + `],"strategy":{"maxSurge":"25%","maxUnavailable":"25%"}}`)
}

func newAdversary(t *testing.T, seed uint64) *adversary {
	t.Helper()
	a := &adversary{t: t, rand: rand.New(rand.NewPCG(seed, 0)), repo: gittest.NewRepo(t), mirrors: newMirrors(t.TempDir()), variant: map[string]int{}, files: map[string][2]string{}, authors: map[int]map[int]bool{}, governing: -1} //nolint:gosec // a test's choices
	lines := make([]string, 3)
	for i := range lines {
		a.keys = append(a.keys, gittest.NewSSHKey(t, "ed25519", ""))
		lines[i] = fmt.Sprintf("k%d@example.org %s", i, a.keys[i].Public)
	}
	parse := func(lines ...string) *signature.Keys {
		keys, err := signature.ParseKeys(map[string][]byte{"allowed_signers": []byte(strings.Join(lines, "\n"))})
		if err != nil {
			t.Fatal(err)
		}
		return keys
	}
	a.by = signatures{verify: parse(lines...), signers: parse(lines[1:]...), distinctAuthor: seed%2 == 0, now: time.Now().Add(time.Minute), changes: map[string]foundCommits{}}
	a.gs = &v1alpha1.GitSource{ObjectMeta: metav1.ObjectMeta{Name: "shop", Namespace: "shop"}, Spec: v1alpha1.GitSourceSpec{URL: a.repo.URL(), Path: "deploy"}}
	return a
}

func (a *adversary) tell(format string, args ...any) {
	a.story = append(a.story, fmt.Sprintf("%d: ", a.at)+fmt.Sprintf(format, args...))
}

// made takes note of a commit of a person.
func (a *adversary) made(v, person int) string {
	c := a.repo.Head()
	a.commits, a.variant[c] = append(a.commits, c), v
	if a.authors[v] == nil {
		a.authors[v] = map[int]bool{}
	}
	a.authors[v][person] = true
	return c
}

func (a *adversary) now() int { return a.variant[a.repo.Head()] }

// edit commits a variant.
func (a *adversary) edit(v, person int) {
	a.repo.Sign(&a.keys[person])
	parent := ""
	if len(a.commits) > 0 {
		parent = a.repo.Head()
	}
	a.repo.Git("rm", "-q", "-r", "--ignore-unmatch", "deploy/web.yaml", "deploy/plan.yaml")
	a.repo.Commit(variantFiles(v))
	a.tell("k%d says %q in %.7s", person, variants[v], a.made(v, person))
	a.files[a.repo.Head()] = a.files[parent]
}

// approve commits an approval of a variant.
func (a *adversary) approve(v, person int) {
	a.repo.Sign(&a.keys[person])
	digest, n := termsOfVariant(v).Digest(), a.rand.IntN(2)
	file := fmt.Sprintf("deploy/approvals/%d.yaml", n)
	text := fmt.Sprintf("# %d\napiVersion: tranche.dev/v1alpha1\nkind: BatchApproval\nmetadata: {name: web, namespace: shop}\nspec: {plan: %s}\n", a.at, digest)
	c := a.repo.Commit(map[string]string{file: text})
	parent := a.repo.Git("rev-parse", "HEAD^")
	files := a.files[parent]
	files[n] = fmt.Sprintf("%s %d", digest, a.at)
	a.variant[c], a.files[c] = a.variant[parent], files
	a.commits = append(a.commits, c)
	a.given = append(a.given, agreement{commit: c, digest: digest, signer: person, at: a.at})
	a.tell("k%d approves %q in %.7s", person, variants[v], c)
}

// rewrite sets the branch to a commit of any time.
func (a *adversary) rewrite() {
	c := a.commits[a.rand.IntN(len(a.commits))]
	a.repo.Git("reset", "-q", "--hard", c)
	a.rewritten = true
	a.tell("the branch is %.7s", c)
}

// merge commits the tree of any commit, with any parents besides the tip.
func (a *adversary) merge(person int) {
	of, other := a.commits[a.rand.IntN(len(a.commits))], a.commits[a.rand.IntN(len(a.commits))]
	if other == a.repo.Head() {
		return
	}
	parents := []string{a.repo.Head(), other}
	if a.rand.IntN(2) == 0 {
		slices.Reverse(parents)
	}
	a.repo.Sign(&a.keys[person])
	c := a.repo.Git("commit-tree", "-S", "-m", fmt.Sprintf("Merge %d", a.at), "-p", parents[0], "-p", parents[1], of+"^{tree}")
	a.repo.Git("reset", "-q", "--hard", c)
	a.files[c] = a.files[of]
	for i, f := range a.files[of] { // who signs a merge has signed what neither side had
		if digest, _, ok := strings.Cut(f, " "); ok && a.files[parents[0]][i] != f && a.files[parents[1]][i] != f {
			a.given = append(a.given, agreement{commit: c, digest: digest, signer: person, at: a.at})
		}
	}
	a.tell("k%d merges %.7s and %.7s with the tree of %.7s in %.7s", person, parents[0], parents[1], of, a.made(a.variant[of], person))
}

// sync does what a sync does with the terms, and returns those that govern.
func (a *adversary) sync() plan.Terms {
	a.t.Helper()
	a.repo.Push("--force")
	s := mustLook(a.t, a.mirrors, remoteFor(a.t, a.repo.URL(), nil), "main")
	defer s.close()
	r := &renderer{snapshot: s, gs: a.gs, mapper: testMapper(), brought: map[string]brought{}, signatures: a.by}
	d, _, err := r.desired(nil)
	if err != nil {
		a.t.Fatal(err)
	}
	l := &look{gs: a.gs}
	g, err := l.govern(context.Background(), r, d, newObserver(a.gs, empty{}, empty{}))
	if err != nil {
		a.t.Fatalf("%v\n%s", err, strings.Join(a.story, "\n"))
	}
	a.gs.Status.Plans, a.gs.Status.AppliedCommit = g.plans, s.commit.String()
	use(&a.gs.Status, slices.Concat(g.used, g.usedInTheEnd))
	// What is applied is what governs, whatever the branch says.
	applied := g.set.Terms("shop", "web")
	if len(g.plans) == 0 {
		return applied
	}
	governing := plan.Terms(g.plans[0].Terms)
	if a.now() != len(variants)-1 && applied != governing {
		a.t.Fatalf("%s is applied, and governs is %s\n%s", applied, governing, strings.Join(a.story, "\n"))
	}
	return governing
}

// check compares what governs after a sync with what was agreed.
func (a *adversary) check(after plan.Terms) {
	a.t.Helper()
	fail := func(why string) {
		a.t.Helper()
		a.t.Fatalf("%s\n%s", why, strings.Join(a.story, "\n"))
	}
	is := slices.IndexFunc(variants, func(string) bool { return false })
	for v := range variants {
		if termsOfVariant(v) == after {
			is = v
		}
	}
	if is < 0 {
		fail("what governs is none of what was committed: " + string(after))
	}
	governed := a.governing >= 0 && a.governing < 4
	if is == a.governing || !governed { // a first plan needs no approval
		if is != a.governing {
			a.governing, a.since = is, a.at
		}
		return
	}
	i := slices.IndexFunc(a.given, func(g agreement) bool {
		own := a.by.distinctAuthor && len(a.authors[is]) == 1 && a.authors[is][g.signer]
		return g.signer > 0 && !g.used && g.digest == after.Digest() && (a.rewritten || g.at > a.since) && !own
	})
	if i < 0 {
		fail(fmt.Sprintf("%q took the place of %q, and nobody agreed", variants[is], variants[a.governing]))
	}
	// Which of several was used, the test does not know: that which the source says.
	for i := range a.given {
		g := &a.given[i]
		g.used = g.used || slices.ContainsFunc(a.gs.Status.UsedPlanApprovals, func(u v1alpha1.UsedPlanApproval) bool { return u.Plan == g.digest && u.Commit == g.commit })
	}
	a.governing, a.since = is, a.at
	a.tell("%q governs", variants[is])
}

// Whatever is pushed, by whom and in what order, terms take the place of others only
// where a signer has agreed to them, once; and where a signer has just agreed to what
// the tip says, they do.
func TestPlanAdversary(t *testing.T) {
	t.Parallel()
	n := uint64(8)
	switch {
	case *graphs > 0:
		n = *graphs
	case testing.Short():
		n = 4
	}
	for seed := range n {
		t.Run(fmt.Sprint(seed), func(t *testing.T) {
			t.Parallel()
			a := newAdversary(t, seed)
			a.edit(0, 0)
			a.check(a.sync())
			changes := 0
			for a.at = 1; a.at <= 25; a.at++ {
				person, agreed := a.rand.IntN(3), -1
				switch a.rand.IntN(10) {
				case 0, 1, 2:
					a.edit(a.rand.IntN(len(variants)), person)
				case 3, 4, 5:
					v := a.now()
					if a.approve(v, person); person > 0 {
						agreed = v
					}
				case 6:
					a.approve(a.rand.IntN(len(variants)), person)
				case 7:
					if seed%3 > 0 {
						a.rewrite()
					}
				default:
					a.merge(person)
				}
				if agreed < 0 && a.rand.IntN(3) == 0 {
					continue // pushed with what comes next
				}
				before := a.governing
				after := a.sync()
				a.check(after)
				if a.governing != before {
					changes++
				}
				if agreed >= 0 && !a.by.distinctAuthor && after != termsOfVariant(agreed) {
					t.Fatalf("a signer agrees to %q, and %s governs\n%s", variants[agreed], after, strings.Join(a.story, "\n"))
				}
			}
			t.Logf("%d changes\n%s", changes, strings.Join(a.story, "\n"))
		})
	}
}
