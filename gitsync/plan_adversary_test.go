package gitsync

import (
	"context"
	"flag"
	"fmt"
	"maps"
	"slices"
	"strings"
	"testing"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/tranche-dev/tranche/gitsync/apply"
	"github.com/tranche-dev/tranche/gitsync/gittest"
	"github.com/tranche-dev/tranche/gitsync/repository"
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
	*gittest.Graph
	t       *testing.T
	mirrors *repository.Cache
	by      signatures
	gs      *v1alpha1.GitSource

	states map[string]state     // by commit
	files  map[string][2]string // the two approval files, by commit: digest and what makes it unique
	// makings are by variant the persons of each way in which it was made: of a commit
	// that renders it, and of a merge that combines two sides into it.
	makings   map[int][][]int
	given     []agreement
	at, since int // actions: now, and when the present terms took effect
	rewritten bool
	story     []string
	governing int // a variant; as the test knows it from what was agreed
}

// state is what a commit has: two folders, each with a variant, and which one of them
// the kustomization uses.
type state struct {
	used     int
	variants [2]int
}

func (s state) variant() int { return s.variants[s.used] }

// usedFiles let the kustomization use a folder.
func usedFiles(folder int) map[string]string {
	return map[string]string{"deploy/kustomization.yaml": fmt.Sprintf("resources: [a.yaml, ../%d]\n", folder), "deploy/a.yaml": "apiVersion: v1\nkind: ConfigMap\nmetadata: {name: a}\n"}
}

// variantFiles are a folder with a variant.
func variantFiles(folder, v int) map[string]string {
	dir := fmt.Sprintf("%d/", folder)
	files := map[string]string{dir + "b.yaml": "apiVersion: v1\nkind: ConfigMap\nmetadata: {name: b}\n"}
	web := strings.SplitN(webAt("v1")["deploy/web.yaml"], "---\n", 2)
	resources := "resources: [b.yaml"
	switch variants[v] {
	case "no Deployment":
	case "no plan":
		files[dir+"web.yaml"] = web[0]
		resources += ", web.yaml"
	default:
		files[dir+"web.yaml"] = web[0]
		resources += ", web.yaml, plan.yaml"
		text := "apiVersion: tranche.dev/v1alpha1\nkind: BatchRelease\nmetadata: {name: web}\nspec:\n  workloadRef: {name: web}\n  strategy:\n    steps:\n"
		for s := range strings.SplitSeq(variants[v], ", ") {
			text += "    - replicas: " + s + "\n"
		}
		files[dir+"plan.yaml"] = text
	}
	files[dir+"kustomization.yaml"] = resources + "]\n"
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
	a := &adversary{Graph: gittest.NewGraph(t, seed, 3), t: t, mirrors: repository.NewCache(t.TempDir()), states: map[string]state{}, files: map[string][2]string{}, makings: map[int][][]int{}, governing: -1}
	lines := make([]string, 3)
	for i := range lines {
		lines[i] = fmt.Sprintf("k%d@example.org %s", i, a.Keys[i].Public)
	}
	parse := func(lines ...string) *signature.Keys {
		keys, err := signature.ParseKeys(map[string][]byte{"allowed_signers": []byte(strings.Join(lines, "\n"))})
		if err != nil {
			t.Fatal(err)
		}
		return keys
	}
	a.by = signatures{verify: parse(lines...), signers: parse(lines[1:]...), distinctAuthor: seed%2 == 0, now: time.Now().Add(time.Minute), changes: map[string]foundCommits{}}
	a.gs = &v1alpha1.GitSource{ObjectMeta: metav1.ObjectMeta{Name: "shop", Namespace: "shop"}, Spec: v1alpha1.GitSourceSpec{URL: a.URL(), Path: "deploy"}}
	return a
}

func (a *adversary) tell(format string, args ...any) {
	a.story = append(a.story, fmt.Sprintf("%d: ", a.at)+fmt.Sprintf(format, args...))
}

// made takes note of a commit, and of the persons who have made what it renders.
func (a *adversary) made(s state, persons ...int) string {
	c := a.Note()
	a.states[c] = s
	if len(persons) > 0 {
		a.makings[s.variant()] = append(a.makings[s.variant()], persons)
	}
	return c
}

func (a *adversary) now() int { return a.states[a.Head()].variant() }

// isOwn reports whether a person has a part in each way in which a variant was made.
func (a *adversary) isOwn(v, person int) bool {
	return !slices.ContainsFunc(a.makings[v], func(persons []int) bool { return !slices.Contains(persons, person) })
}

// edit commits a variant.
func (a *adversary) edit(v, person int) {
	a.As(person)
	parent := ""
	if len(a.Commits) > 0 {
		parent = a.Head()
	}
	s, files := a.states[parent], map[string]string{}
	if parent == "" {
		files = usedFiles(s.used)
		maps.Copy(files, variantFiles(1-s.used, 0))
	}
	s.variants[s.used] = v
	maps.Copy(files, variantFiles(s.used, v))
	a.Commit(files)
	a.tell("k%d says %q in %.7s", person, variants[v], a.made(s, person))
	a.files[a.Head()] = a.files[parent]
}

// combine merges two sides into what neither renders: on one side a person changes the
// folder that is not used, on the other side a person lets it be used.
func (a *adversary) combine() {
	head := a.Head()
	s, v := a.states[head], a.Rand.IntN(len(variants))
	p, q, r := a.Rand.IntN(3), a.Rand.IntN(3), a.Rand.IntN(3)
	if a.Rand.IntN(2) == 0 {
		p, q = r, r // an attempt of one person
	}
	other := 1 - s.used
	if v == s.variant() || v == s.variants[other] {
		return
	}
	side := fmt.Sprintf("side%d", a.at)
	a.Git("checkout", "-q", "-b", side)
	a.As(p)
	a.Commit(variantFiles(other, v))
	changed := s
	changed.variants[other] = v
	a.made(changed)
	a.files[a.Head()] = a.files[head]
	a.Git("checkout", "-q", "main")
	a.As(q)
	a.Commit(usedFiles(other))
	switched := s
	if switched.used = other; switched.variant() == s.variant() {
		a.made(switched)
	} else {
		a.made(switched, q)
	}
	a.files[a.Head()] = a.files[head]
	a.As(r)
	a.Git("merge", "-q", "--no-ff", "-m", "Merge "+side, side)
	changed.used = other
	c := a.made(changed, p, q, r)
	a.files[c] = a.files[head]
	a.tell("k%d merges into %q in %.7s what k%d and k%d have done", r, variants[v], c, p, q)
}

// approve commits an approval of a variant.
func (a *adversary) approve(v, person int) {
	a.As(person)
	digest, n := termsOfVariant(v).Digest(), a.Rand.IntN(2)
	file := fmt.Sprintf("deploy/approvals/%d.yaml", n)
	text := fmt.Sprintf("# %d\napiVersion: tranche.dev/v1alpha1\nkind: BatchApproval\nmetadata: {name: web, namespace: shop}\nspec: {plan: %s}\n", a.at, digest)
	c := a.Commit(map[string]string{file: text})
	parent := a.Git("rev-parse", "HEAD^")
	files := a.files[parent]
	files[n] = fmt.Sprintf("%s %d", digest, a.at)
	a.states[c], a.files[c] = a.states[parent], files
	a.Note()
	a.given = append(a.given, agreement{commit: c, digest: digest, signer: person, at: a.at})
	a.tell("k%d approves %q in %.7s", person, variants[v], c)
}

// rewrite sets the branch to a commit of any time.
func (a *adversary) rewrite() {
	a.rewritten = true
	a.tell("the branch is %.7s", a.Rewrite())
}

// merge commits the tree of any commit, with any parents besides the tip.
func (a *adversary) merge(person int) {
	m, ok := a.Merge(person)
	if !ok {
		return
	}
	a.brings(m.Commit, m.Of, person, m.Parents...)
	a.tell("k%d merges %.7s and %.7s with the tree of %.7s in %.7s", person, m.Parents[0], m.Parents[1], m.Of, m.Commit)
}

// brings takes note of a commit with the tree of another. Its signer has signed what none
// of its parents had.
func (a *adversary) brings(c, of string, person int, parents ...string) {
	a.files[c], a.states[c] = a.files[of], a.states[of]
	v := a.states[c].variant()
	a.makings[v] = append(a.makings[v], []int{person})
	for i, f := range a.files[c] {
		had := func(parent string) bool { return a.files[parent][i] == f }
		if digest, _, ok := strings.Cut(f, " "); ok && !slices.ContainsFunc(parents, had) {
			a.given = append(a.given, agreement{commit: c, digest: digest, signer: person, at: a.at})
		}
	}
}

// takeBack reverts the tip.
func (a *adversary) takeBack(person int) {
	tip := a.Head()
	parent, isMerge, _ := strings.Cut(a.Git("log", "-1", "--format=%P"), " ")
	if parent == "" || isMerge != "" || !a.TakeBack(person, tip) {
		return
	}
	a.brings(a.Head(), parent, person, tip)
	a.tell("k%d reverts the tip in %.7s", person, a.Head())
}

// nothing makes a commit without a change.
func (a *adversary) nothing(person int) {
	tip := a.Head()
	a.As(person)
	a.Commit(nil)
	c := a.Note()
	a.states[c], a.files[c] = a.states[tip], a.files[tip]
	a.tell("k%d commits nothing in %.7s", person, c)
}

// sync does what a sync does with the terms, and returns those that govern.
func (a *adversary) sync() plan.Terms {
	a.t.Helper()
	a.Push("--force")
	s := snapshotOf(a.t, a.mirrors, a.URL())
	defer s.Close()
	r := &renderer{snapshot: s, gs: a.gs, mapper: testMapper(), brought: map[string]brought{}, signatures: a.by}
	d, _, err := r.desired(nil)
	if err != nil {
		a.t.Fatal(err)
	}
	l := &look{gs: a.gs}
	g, err := l.govern(context.Background(), r, d, apply.NewObserver(a.gs, empty{}, empty{}))
	if err != nil {
		a.t.Fatalf("%v\n%s", err, strings.Join(a.story, "\n"))
	}
	a.gs.Status.Plans, a.gs.Status.AppliedCommit = g.plans, s.Commit.String()
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
		own := a.by.distinctAuthor && a.isOwn(is, g.signer)
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
				person, agreed := a.Rand.IntN(3), -1
				switch a.Rand.IntN(14) {
				case 0, 1, 2:
					a.edit(a.Rand.IntN(len(variants)), person)
				case 3, 4, 5:
					v := a.now()
					if a.approve(v, person); person > 0 {
						agreed = v
					}
				case 6:
					a.approve(a.Rand.IntN(len(variants)), person)
				case 7:
					if seed%3 > 0 {
						a.rewrite()
					}
				case 8, 9:
					a.merge(person)
				case 10:
					a.takeBack(person)
				case 11:
					a.nothing(person)
				default:
					a.combine()
				}
				if agreed < 0 && a.Rand.IntN(3) == 0 {
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
