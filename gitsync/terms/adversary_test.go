package terms

import (
	"cmp"
	"context"
	"flag"
	"fmt"
	"maps"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/go-git/go-billy/v5/memfs"
	"github.com/go-git/go-git/v5/plumbing"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/tranche-dev/tranche/gitsync/apply"
	"github.com/tranche-dev/tranche/gitsync/authors"
	"github.com/tranche-dev/tranche/gitsync/desired"
	"github.com/tranche-dev/tranche/gitsync/gitobject"
	"github.com/tranche-dev/tranche/gitsync/gittest"
	"github.com/tranche-dev/tranche/gitsync/replay"
	"github.com/tranche-dev/tranche/gitsync/repository"
	"github.com/tranche-dev/tranche/gitsync/signature"
	"github.com/tranche-dev/tranche/gitsync/signers"
	"github.com/tranche-dev/tranche/plan"
	"github.com/tranche-dev/tranche/plan/v1alpha1"
)

// graphs is how many graphs the adversary makes; 0: a few.
var (
	graphs = flag.Uint64("graphs", 0, "how many Git graphs TestPlanAdversary makes")
	first  = flag.Uint64("first", 0, "the seed of the first of them")
)

// empty is a cluster with nothing in it.
type empty struct{ client.Client }

func (empty) Get(_ context.Context, key client.ObjectKey, _ client.Object, _ ...client.GetOption) error {
	return apierrors.NewNotFound(schema.GroupResource{}, key.Name)
}

func (empty) List(context.Context, client.ObjectList, ...client.ListOption) error { return nil }

// variants are what a commit may say of Deployment web. The last two have no plan, and
// no Deployment.
var variants = []string{"1, 50%, 100%", "1, 60%, 100%", "50%, 100%", "100%", "no plan", "no Deployment"}

// planless is the first of the variants that do not govern.
const planless = 4

// document is a file with an approval.
type document struct {
	name      string // of the BatchRelease
	namespace string // empty: none
	plan      string // a digest; or
	commit    string // of a release
	at        int    // which action has written it
	// others: the file has another document beside it, and which action added that.
	others int
	// linked: there is a link to the file elsewhere, which has it.
	linked bool
}

func (d document) text() string {
	metadata := "{name: " + d.name + "}"
	if d.namespace != "" {
		metadata = "{name: " + d.name + ", namespace: " + d.namespace + "}"
	}
	spec := "{plan: " + d.plan + "}"
	if d.commit != "" {
		spec = "{revision: abc, commit: '" + d.commit + "', step: 0}"
	}
	text := fmt.Sprintf("# %d\napiVersion: tranche.dev/v1alpha1\nkind: BatchApproval\nmetadata: %s\nspec: %s\n", d.at, metadata, spec)
	if d.others > 0 {
		text += fmt.Sprintf("---\n# %d\napiVersion: tranche.dev/v1alpha1\nkind: BatchApproval\nmetadata: {name: other, namespace: shop}\nspec: {plan: %s}\n", d.others, strings.Repeat("0", 64))
	}
	return text
}

// The files for documents: so many are read, and the last one is elsewhere.
const (
	inApprovals = 3
	apart       = inApprovals
)

// state is all that a commit has.
type state struct {
	// used is which of two folders the kustomization uses. Each has a variant.
	used     int
	variants [2]int
	// swapped: the plans of web and api have each other's names.
	swapped bool
	images  [2]int // of web and api
	// rule is an image that a rule of the kustomization replaces; 0: there is none.
	rule   int
	ruleBy int // the person who wrote it
	files  [inApprovals + 1]document
}

func (s state) variant() int { return s.variants[s.used] }

// planName returns the name of the plan of a Deployment, which it may lack.
func (s state) planName(deployment string) string {
	if s.swapped == (deployment == "web") {
		return "api"
	}
	return "web"
}

// governs returns the Deployment that the plan of a name governs; empty: there is none.
func (s state) governs(name string) string {
	switch {
	case name == s.planName("api"):
		return "api"
	case name == s.planName("web") && s.variant() < planless:
		return "web"
	}
	return ""
}

// template is what is rendered of Deployment web, or api.
func (s state) template(deployment int) string {
	if deployment == 0 && variants[s.variant()] == "no Deployment" {
		return ""
	}
	if s.isReplaced(deployment) {
		return fmt.Sprintf("image %d%d by rule", s.ruleBy, s.rule)
	}
	return fmt.Sprint("image ", s.images[deployment])
}

// isReplaced reports whether the rule has an effect on a Deployment.
func (s state) isReplaced(deployment int) bool { return s.rule > 0 && s.rule == s.images[deployment] }

var deployments = []string{"web", "api"}

// tree is what git would have of a state.
func (s state) tree() map[string]string {
	image := fmt.Sprintf("registry.example.org/web:v%d", s.images[0])
	files := map[string]string{
		"deploy/kustomization.yaml": fmt.Sprintf("resources: [a.yaml, api.yaml, ../%d, ../%d/plan]\npatches:\n", s.used, s.used) +
			patch("Deployment, name: web", "/spec/template/spec/containers/0/image", image) +
			patch("BatchRelease, name: unnamed", "/metadata/name", s.planName("web")),
		"deploy/a.yaml": "apiVersion: v1\nkind: ConfigMap\nmetadata: {name: a}\n",
	}
	if s.rule > 0 {
		files["deploy/kustomization.yaml"] += fmt.Sprintf("images:\n- {name: 'registry.example.org/web:v%d', newTag: 'v%d%d-by-rule'}\n", s.rule, s.ruleBy, s.rule)
	}
	web, release, _ := strings.Cut(gittest.Web("v1")["deploy/web.yaml"], "---\n")
	// The template is that of web, so that the two can be taken for each other.
	api := strings.Replace(web, "metadata: {name: web}", "metadata: {name: api}", 1)
	api = strings.Replace(api, "web:v1", fmt.Sprintf("web:v%d", s.images[1]), 1)
	release = strings.Replace(release, "metadata: {name: web}", "metadata: {name: "+s.planName("api")+"}", 1)
	files["deploy/api.yaml"] = api + "---\n" + strings.Replace(release, "workloadRef: {name: web}", "workloadRef: {name: api}", 1)
	for folder, v := range s.variants {
		maps.Copy(files, variantFiles(folder, v, web))
	}
	for i, d := range s.files {
		path := fmt.Sprintf("deploy/approvals/%d.yaml", i)
		if i == apart {
			path = "elsewhere/approvals/0.yaml"
		}
		switch {
		case d.linked:
			files[path] = gittest.Link + "../../elsewhere/approvals/0.yaml"
		case d.at > 0:
			files[path] = d.text()
		}
	}
	return files
}

func patch(target, path, value string) string {
	return "- target: {kind: " + target + "}\n  options: {allowNameChange: true}\n  patch: |-\n    - {op: replace, path: " + path + ", value: '" + value + "'}\n"
}

// variantFiles are a folder with a variant, and below it one with the plan.
func variantFiles(folder, v int, web string) map[string]string {
	dir := fmt.Sprintf("%d/", folder)
	files := map[string]string{
		dir + "b.yaml":      "apiVersion: v1\nkind: ConfigMap\nmetadata: {name: b}\n",
		dir + "plan/c.yaml": "apiVersion: v1\nkind: ConfigMap\nmetadata: {name: c}\n",
	}
	deployment, release := "", ""
	if variants[v] != "no Deployment" {
		files[dir+"web.yaml"], deployment = web, ", web.yaml"
	}
	if v < planless {
		release = ", plan.yaml"
		text := "apiVersion: tranche.dev/v1alpha1\nkind: BatchRelease\nmetadata: {name: unnamed}\nspec:\n  workloadRef: {name: web}\n  strategy:\n    steps:\n"
		for s := range strings.SplitSeq(variants[v], ", ") {
			text += "    - replicas: " + s + "\n"
		}
		files[dir+"plan/plan.yaml"] = text
	}
	files[dir+"kustomization.yaml"] = "resources: [b.yaml" + deployment + "]\n"
	files[dir+"plan/kustomization.yaml"] = "resources: [c.yaml" + release + "]\n"
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

// agreement is a document that a commit brought which its signer wrote.
type agreement struct {
	document
	in         string // the commit
	signer     int
	deployment string // which the plan of its name governs in that commit
	used       bool
}

// bringing is a commit that has a document where none of its parents has it.
type bringing struct {
	commit string
	person int
}

// persons is how many there are. Person 0 may commit and not approve. merges stands for the
// signers of merges, who approve nothing by them. unknown stands for all who sign with no
// listed key. It may be any person, and approves nothing.
const (
	persons = 3
	merges  = persons
	unknown = -1
)

// adversary pushes at random, as several persons.
type adversary struct {
	*gittest.Memory
	t       *testing.T
	rand    *rand.Rand
	keys    []*gittest.MemorySigner
	foreign *gittest.MemorySigner // a key that is not listed
	head    string
	commits []string

	gs       *v1alpha1.GitSource
	by       signers.Policy
	changes  authors.Known
	last     *desired.State
	brought  map[string]signers.FileOrigin
	approved desired.ApprovedSteps
	live     map[string]*v1alpha1.BatchRelease // by Deployment

	states map[string]state // by commit
	// makings are by variant the persons of each way in which it was made. The ways are a
	// commit that renders it, and a merge that combines two sides into it. So are imagings
	// by Deployment and template.
	makings   map[int][][]int
	imagings  [2]map[string][][]int
	bringings map[document][]bringing
	given     []agreement
	at        int // which action it is
	// Commits: with which the present terms took effect, and that was applied last.
	since, applied string
	story          []string
	governing      int               // a variant; as the test knows it from what was agreed
	opened         int               // releases with an approval that counted
	begun          map[string]string // what was applied before a release was first seen
	ended          map[string]bool   // release of a Deployment
}

func newAdversary(t *testing.T, seed uint64) *adversary {
	t.Helper()
	a := &adversary{
		Memory: gittest.NewMemory(t, memfs.New()), t: t, rand: rand.New(rand.NewPCG(seed, 0)), //nolint:gosec // a test's choices
		brought: map[string]signers.FileOrigin{}, approved: desired.ApprovedSteps{}, live: map[string]*v1alpha1.BatchRelease{},
		states: map[string]state{}, makings: map[int][][]int{}, imagings: [2]map[string][][]int{{}, {}},
		bringings: map[document][]bringing{}, governing: -1, begun: map[string]string{}, ended: map[string]bool{},
	}
	var lines []string
	for i := range persons {
		a.keys = append(a.keys, gittest.NewMemorySigner(t, byte(i)))
		lines = append(lines, fmt.Sprintf("k%d@example.org %s", i, a.keys[i].Public))
	}
	a.foreign = gittest.NewMemorySigner(t, persons)
	parse := func(lines ...string) *signature.Keys {
		keys, err := signature.ParseKeys(map[string][]byte{"allowed_signers": []byte(strings.Join(lines, "\n"))})
		if err != nil {
			t.Fatal(err)
		}
		return keys
	}
	a.changes = authors.Known{}
	a.by = signers.Policy{
		Verify: parse(lines...), Signers: parse(lines[1:]...), DistinctAuthor: seed%2 == 0, Now: time.Now(),
		Order: gitobject.Precedence{}, Places: map[string][]signers.Place{},
	}
	a.gs = &v1alpha1.GitSource{ObjectMeta: metav1.ObjectMeta{Name: "shop", Namespace: "shop"}, Spec: v1alpha1.GitSourceSpec{URL: "file:///shop", Path: "deploy"}}
	if seed%5 == 0 {
		a.gs.Spec.TargetNamespace = "shop"
	}
	return a
}

func (a *adversary) tell(format string, args ...any) {
	a.story = append(a.story, fmt.Sprintf("%d: ", a.at)+fmt.Sprintf(format, args...))
}

func (a *adversary) breach(format string, args ...any) {
	a.t.Helper()
	a.t.Fatalf("%s\n%s", fmt.Sprintf(format, args...), strings.Join(a.story, "\n"))
}

func (a *adversary) now() state { return a.states[a.head] }

// anyone returns a person, who is unknown for one commit in six.
func anyone(a *adversary) int {
	if a.rand.IntN(6) == 0 {
		return unknown
	}
	return a.rand.IntN(persons)
}

// keyOf returns the key by which a person signs a commit. An unknown person has none, or one
// that is not listed.
func keyOf(a *adversary, person int) *gittest.MemorySigner {
	switch {
	case person >= 0:
		return a.keys[person]
	case a.rand.IntN(2) == 0:
		return a.foreign
	}
	return nil
}

// commit makes a commit, and takes note of who has made what it renders, and of the
// documents that its signer agrees to.
func (a *adversary) commit(person int, s state, parents ...string) string {
	c := a.Commit(keyOf(a, person), s.tree(), parents...)
	a.states[c], a.commits = s, append(a.commits, c)
	var before state
	if len(parents) > 0 {
		before = a.states[parents[0]]
	}
	for d := range deployments {
		of, by := s.template(d), []int{person}
		if len(parents) == 1 && s.isReplaced(d) {
			by = append(by, s.ruleBy)
		}
		if len(parents) != 1 || of != before.template(d) {
			a.imagings[d][of] = append(a.imagings[d][of], by)
		}
	}
	for i, d := range s.files {
		had := func(parent string) bool { return a.states[parent].files[i] == d }
		if d.at == 0 || d.linked || slices.ContainsFunc(parents, had) {
			continue
		}
		if len(parents) > 1 {
			person = merges // what a merge brings is of no person
		}
		a.bringings[d] = append(a.bringings[d], bringing{c, person})
		if person != merges && i != apart && d.others == 0 && d.namespace == "shop" && !a.isOfAnother(d, c, person) {
			a.given = append(a.given, agreement{document: d, in: c, signer: person, deployment: s.governs(d.name)})
		}
	}
	return c
}

// isOfAnother reports whether another person has brought a document in the history of a
// commit.
func (a *adversary) isOfAnother(d document, commit string, person int) bool {
	return slices.ContainsFunc(a.bringings[d], func(b bringing) bool { return b.person != person && a.Has(commit, b.commit) })
}

// made takes note of the persons who have made the variant of the head.
func (a *adversary) made(persons ...int) {
	v := a.now().variant()
	a.makings[v] = append(a.makings[v], persons)
}

// isOwn reports whether a person may have a part in each way in which something was made. An
// unknown person may be that person.
func isOwn(makings [][]int, person int) bool {
	return !slices.ContainsFunc(makings, func(persons []int) bool {
		return !slices.Contains(persons, person) && !slices.Contains(persons, unknown)
	})
}

// edit commits a change on top of the head.
func (a *adversary) edit(person int, change func(s *state)) {
	s := a.now()
	change(&s)
	a.head = a.commit(person, s, a.head)
}

// vary commits a variant.
func (a *adversary) vary(v, person int) {
	a.edit(person, func(s *state) { s.variants[s.used] = v })
	a.made(person)
	a.tell("k%d says %q in %.7s", person, variants[v], a.head)
}

// image commits an image, mostly a new one, for one Deployment. An old one may be that of
// the other Deployment.
func (a *adversary) image(person int) {
	d, image := a.rand.IntN(2), a.at
	if a.rand.IntN(3) == 0 {
		image = a.now().images[1-d]
	}
	both := a.rand.IntN(3) == 0
	a.edit(person, func(s *state) {
		s.images[d] = image
		if both {
			s.images[1-d] = image
		}
	})
	a.tell("k%d has image %d of %s (of both: %t) in %.7s", person, image, deployments[d], both, a.head)
}

// replace writes a rule for an image that no Deployment has yet, mostly, and sometimes
// another image with it. The image may come later, from another person.
func (a *adversary) replace(person int) {
	d, image := a.rand.IntN(2), a.at
	a.edit(person, func(s *state) {
		s.rule, s.ruleBy = a.at, person
		if a.rand.IntN(3) == 0 {
			s.images[d] = image + 50
		}
	})
	a.tell("k%d replaces image %d in %.7s", person, a.now().rule, a.head)
	if next := anyone(a); a.rand.IntN(2) == 0 {
		terms, _ := a.sync()
		a.check(terms)
		a.edit(next, func(s *state) { s.images[d] = s.rule })
		a.tell("k%d has image %d of %s in %.7s", next, a.now().rule, deployments[d], a.head)
	}
}

// swap lets the two plans exchange their names.
func (a *adversary) swap(person int) {
	a.edit(person, func(s *state) { s.swapped = !s.swapped })
	a.tell("k%d names the plan of web %q in %.7s", person, a.now().planName("web"), a.head)
}

// combine merges two sides into what neither renders. On one side a person changes the
// folder that is not used; on the other side a person lets it be used. It returns who
// merges.
func (a *adversary) combine() (by int, ok bool) {
	base := a.head
	s, v := a.now(), a.rand.IntN(len(variants))
	p, q, r := anyone(a), anyone(a), anyone(a)
	if a.rand.IntN(2) == 0 {
		p, q = r, r // an attempt of one person
	}
	other := 1 - s.used
	if v == s.variant() || v == s.variants[other] {
		return 0, false
	}
	changed, switched, merged := s, s, s
	changed.variants[other], merged.variants[other] = v, v
	switched.used, merged.used = other, other
	side := a.commit(p, changed, base)
	a.head = a.commit(q, switched, base)
	if switched.variant() != s.variant() {
		a.made(q)
	}
	a.head = a.commit(r, merged, a.head, side)
	a.made(p, q, r)
	a.tell("k%d merges into %q in %.7s what k%d and k%d have done", r, variants[v], a.head, p, q)
	return r, true
}

// newDocument has the name that the source says; mostly it is as it must be.
func (a *adversary) newDocument(name string) document {
	d := document{name: name, namespace: "shop", at: a.at}
	if a.rand.IntN(8) == 0 {
		d.namespace = []string{"", "staging"}[a.rand.IntN(2)]
	}
	return d
}

// write commits a document of a person, which is in the one place or the other.
func (a *adversary) write(person int, d document) (counts bool) {
	i := a.rand.IntN(inApprovals)
	if a.rand.IntN(10) == 0 {
		i = apart
	}
	a.edit(person, func(s *state) { s.files[i] = d })
	what := "plan " + d.plan[:min(len(d.plan), 7)]
	if d.commit != "" {
		what = "release " + d.commit[:7]
	}
	a.tell("k%d approves %s of %s/%s in file %d in %.7s", person, what, d.namespace, d.name, i, a.head)
	return person > 0 && i != apart && d.namespace == "shop"
}

// approve commits an approval of a variant.
func (a *adversary) approve(v, person int) (counts bool) {
	d := a.newDocument(cmp.Or(a.recorded(), a.now().planName("web")))
	d.plan = termsOfVariant(v).Digest()
	a.tell("of %q", variants[v])
	return a.write(person, d)
}

// release commits an approval of a release that is in the cluster.
func (a *adversary) release(person int) (d document, deployment string, counts bool) {
	deployment = deployments[a.rand.IntN(2)]
	br := a.live[deployment]
	if br == nil {
		return d, "", false
	}
	name := a.now().planName(deployment)
	if a.rand.IntN(5) == 0 {
		name = deployments[a.rand.IntN(2)]
	}
	d = a.newDocument(name)
	d.commit = br.Spec.Commit
	counts = a.write(person, d) && a.now().governs(name) == deployment
	return d, deployment, counts
}

// plant lets the committer write a document which an approver's commit moves, links to,
// adds another one to, or brings back.
func (a *adversary) plant() {
	d := document{name: a.now().planName("web"), namespace: "shop", plan: termsOfVariant(a.now().variant()).Digest(), at: a.at}
	deployment := deployments[a.rand.IntN(2)]
	if br := a.live[deployment]; br != nil && a.rand.IntN(2) == 0 {
		d = document{name: a.now().planName(deployment), namespace: "shop", commit: br.Spec.Commit, at: a.at}
	}
	i, signer, how := a.rand.IntN(inApprovals), 1+a.rand.IntN(persons-1), a.rand.IntN(4)
	first := i
	if how == 0 || how == 1 {
		first = apart
	}
	by := -a.rand.IntN(2) // the committer, or an unknown person
	a.edit(by, func(s *state) { s.files[first] = d })
	switch how {
	case 0:
		a.edit(signer, func(s *state) { s.files[i] = d })
	case 1:
		a.edit(signer, func(s *state) { s.files[i] = document{linked: true, at: a.at} })
	case 2:
		a.edit(signer, func(s *state) { s.files[i].others = a.at })
	default:
		a.edit(anyone(a), func(s *state) { s.files[i] = document{} })
		a.edit(signer, func(s *state) { s.files[i] = d })
	}
	a.tell("k%d plants %+v in file %d, and k%d has it in file %d (%d) in %.7s", by, d, first, signer, i, how, a.head)
}

// replay goes back to an approval that was given: by a force-push, or by a merge of which
// it is the first parent.
func (a *adversary) replay() {
	if len(a.given) == 0 {
		return
	}
	a.backTo(a.given[a.rand.IntN(len(a.given))].in)
}

func (a *adversary) backTo(to string) {
	if a.rand.IntN(2) == 0 || to == a.head {
		a.head = to
		a.tell("the branch is %.7s again", a.head)
		return
	}
	by := -a.rand.IntN(2)
	a.head = a.commit(by, a.states[to], to, a.head)
	a.made(by)
	a.tell("k%d merges back to %.7s in %.7s", by, to, a.head)
}

// unseen lets a signer approve a release that a person takes back before it is synced. Then
// it comes again.
func (a *adversary) unseen(person int) {
	a.t.Helper()
	before, d := a.now().images, a.rand.IntN(2)
	a.edit(person, func(s *state) { s.images[d] = a.at })
	a.tell("k%d has image %d of %s in %.7s", person, a.at, deployments[d], a.head)
	approval := a.newDocument(a.now().planName(deployments[d]))
	approval.commit = a.head
	a.write(1+a.rand.IntN(persons-1), approval)
	approved := a.head
	a.edit(anyone(a), func(s *state) { s.images = before })
	a.tell("that is taken back in %.7s", a.head)
	terms, _ := a.sync()
	a.check(terms)
	a.backTo(approved)
}

// rewrite sets the branch to a commit of any time.
func (a *adversary) rewrite() {
	a.head = a.any()
	a.tell("the branch is %.7s", a.head)
}

func (a *adversary) any() string { return a.commits[a.rand.IntN(len(a.commits))] }

// merge commits the tree of any commit, with the tip and any other commit as parents, in
// any order.
func (a *adversary) merge(person int) {
	of, parents := a.any(), []string{a.head, a.any()}
	if parents[0] == parents[1] {
		return
	}
	if a.rand.IntN(2) == 0 {
		slices.Reverse(parents)
	}
	a.head = a.commit(person, a.states[of], parents...)
	a.made(person)
	a.tell("k%d merges %.7s and %.7s with the tree of %.7s in %.7s", person, parents[0], parents[1], of, a.head)
}

// takeBack reverts the tip.
func (a *adversary) takeBack(person int) {
	parents := a.Parents(a.head)
	if len(parents) != 1 || a.states[parents[0]] == a.now() {
		return
	}
	a.head = a.commit(person, a.states[parents[0]], a.head)
	a.made(person)
	a.tell("k%d reverts the tip in %.7s", person, a.head)
}

// recorded is the name of the plan that governs Deployment web; empty: none does.
func (a *adversary) recorded() string {
	for _, p := range a.gs.Status.Plans {
		if p.Deployment == "shop/web" {
			return p.Name
		}
	}
	return ""
}

// sync does what a sync does with the terms and the releases. It returns the terms that
// govern Deployment web. They stay where a commit is refused: one that gives the name of
// the plan that governs web to that of api.
func (a *adversary) sync() (terms plan.Terms, ok bool) {
	a.t.Helper()
	tip := plumbing.NewHash(a.head)
	s := &repository.Snapshot{EncodedObjectStorer: a.Storage, Commit: tip, Tip: tip}
	r := &desired.Reader{Snapshot: s, Source: a.gs, Mapper: gittest.RESTMapper(), Brought: a.brought, Approved: a.approved, Order: a.by.Order, Changes: a.changes, Signatures: a.by}
	d, _, err := r.Read(a.last)
	if err != nil {
		a.breach("%v", err)
	}
	a.last = d
	g, err := Govern(context.Background(), r, d, apply.NewObserver(a.gs, empty{}, empty{}))
	if err != nil && a.recorded() == a.now().planName("api") && strings.Contains(err.Error(), "give the new plan another name") {
		a.tell("refused")
		return termsOfVariant(a.governing), false
	}
	if err != nil {
		a.breach("%v", err)
	}
	a.releases(r, d, g.Set.Releases)
	a.gs.Status.Plans, a.gs.Status.AppliedCommit = g.Plans, a.head
	replay.UsePlanApprovals(&a.gs.Status, time.Now(), slices.Concat(g.Used, g.UsedInTheEnd))
	a.applied = a.head
	// The applied terms are those that govern, whatever the branch says.
	applied := g.Set.Terms("shop", "web")
	i := slices.IndexFunc(g.Plans, func(p v1alpha1.GoverningPlan) bool { return p.Deployment == "shop/web" })
	if i < 0 {
		return applied, true
	}
	governing := plan.Terms(g.Plans[i].Terms)
	if variants[a.now().variant()] != "no Deployment" && applied != governing {
		a.breach("%s is applied, and governs is %s", applied, governing)
	}
	return governing, true
}

// releases does what a sync does with the releases, and compares the approvals that count
// with those that were given.
func (a *adversary) releases(r *desired.Reader, d *desired.State, releases []plan.Release) {
	a.t.Helper()
	live := map[string]*v1alpha1.BatchRelease{}
	for i := range releases {
		if now := a.live[releases[i].Deployment.GetName()]; now != nil {
			live[plan.ReleaseName(releases[i].Plan)] = now
		}
	}
	list, _, err := r.Releases(context.Background(), d, releases, live)
	if err != nil {
		a.breach("%v", err)
	}
	next := map[string]*v1alpha1.BatchRelease{}
	for _, br := range list {
		next[br.Spec.WorkloadRef.Name] = br
	}
	for i, deployment := range deployments {
		now, br := a.live[deployment], next[deployment]
		if br != nil && (now == nil || now.Spec.Commit != br.Spec.Commit) {
			a.begun[deployment] = a.applied // the one before
		}
		if br != nil && br.Spec.Approval != nil {
			a.checkApproval(i, br)
		}
		if now != nil && (br == nil || now.Spec.Commit != br.Spec.Commit) {
			a.ended[deployment+" "+now.Spec.Commit] = true
			// As if the BatchRelease had been lost with its status.
			a.gs.Status.EndedReleases = append(a.gs.Status.EndedReleases, v1alpha1.EndedRelease{Deployment: "shop/" + deployment, Commit: now.Spec.Commit})
		}
	}
	a.live = next
}

// checkApproval compares the approval of a release with what was agreed.
func (a *adversary) checkApproval(i int, br *v1alpha1.BatchRelease) {
	a.t.Helper()
	deployment := deployments[i]
	image := br.Spec.Template.Spec.Containers[0].Image
	image = "image " + strings.ReplaceAll(image[strings.LastIndex(image, ":v")+2:], "-by-rule", " by rule")
	agreed := slices.ContainsFunc(a.given, func(g agreement) bool {
		own := a.by.DistinctAuthor && isOwn(a.imagings[i][image], g.signer)
		return g.signer > 0 && g.commit == br.Spec.Commit && g.deployment == deployment && !a.Has(a.begun[deployment], g.in) && !own
	})
	switch {
	case a.ended[deployment+" "+br.Spec.Commit]:
		a.breach("release %.7s of %s has ended, and its approval counts", br.Spec.Commit, deployment)
	case !agreed:
		a.breach("release %.7s of %s at %s has an approval of %.7s, and no signer agreed", br.Spec.Commit, deployment, image, br.Spec.Approval.ApprovedIn)
	}
	if a.live[deployment] == nil || a.live[deployment].Spec.Approval == nil {
		a.opened++
		a.tell("release %.7s of %s is approved", br.Spec.Commit, deployment)
	}
}

// check compares what governs after a sync with what was agreed.
func (a *adversary) check(after plan.Terms) {
	a.t.Helper()
	is := slices.IndexFunc(variants, func(string) bool { return false })
	for v := range variants {
		if termsOfVariant(v) == after {
			is = v
		}
	}
	if is < 0 {
		a.breach("what governs is none of what was committed: %s", after)
	}
	governed := a.governing >= 0 && a.governing < planless
	if is == a.governing || !governed { // a first plan needs no approval
		if is != a.governing {
			a.governing, a.since = is, a.applied
		}
		return
	}
	i := slices.IndexFunc(a.given, func(g agreement) bool {
		own := a.by.DistinctAuthor && isOwn(a.makings[is], g.signer)
		return g.signer > 0 && !g.used && g.plan == after.Digest() && !a.Has(a.since, g.in) && !own
	})
	if i < 0 {
		a.breach("%q took the place of %q, and no signer agreed", variants[is], variants[a.governing])
	}
	// Which of several was used, the test does not know: that which the source says.
	for i := range a.given {
		g := &a.given[i]
		g.used = g.used || slices.ContainsFunc(a.gs.Status.UsedPlanApprovals, func(u v1alpha1.UsedPlanApproval) bool { return u.Plan == g.plan && u.Commit == g.in })
	}
	a.governing, a.since = is, a.applied
	a.tell("%q governs", variants[is])
}

// act does something at random. It returns the variant that a signer has just approved,
// and that the tip says; else -1.
func (a *adversary) act(seed uint64) (agreed int) {
	a.t.Helper()
	person := anyone(a)
	switch a.rand.IntN(26) {
	case 0, 1, 2:
		a.vary(a.rand.IntN(len(variants)), person)
	case 3, 4, 5:
		if v := a.now().variant(); a.approve(v, person) {
			return v
		}
	case 6:
		a.approve(a.rand.IntN(len(variants)), person)
	case 7:
		if seed%3 > 0 {
			a.rewrite()
		}
	case 8, 9:
		a.merge(person)
	case 10:
		a.takeBack(person)
	case 11:
		a.edit(person, func(*state) {})
		a.tell("k%d commits nothing in %.7s", person, a.head)
	case 12, 13:
		if a.image(person); a.rand.IntN(2) == 0 {
			a.honest(person) // to one's own image
		}
	case 14:
		if a.rand.IntN(2) == 0 {
			a.honest(person)
		}
		a.swap(person)
	case 15, 18:
		a.plant()
	case 19, 20:
		a.replay()
	case 16, 17:
		a.honest(person)
	case 21, 22:
		a.replace(person)
	case 23:
		a.unseen(person)
	default:
		if by, ok := a.combine(); ok && a.rand.IntN(2) == 0 {
			a.approve(a.now().variant(), by)
		}
	}
	return -1
}

// honest approves a release of what the branch says, and checks that this counts where
// nothing stands against it.
func (a *adversary) honest(person int) {
	a.t.Helper()
	terms, _ := a.sync()
	a.check(terms)
	before := a.live
	d, deployment, counts := a.release(person)
	terms, ok := a.sync()
	a.check(terms)
	now := a.live[deployment]
	files := a.now().files
	others := slices.ContainsFunc(files[:inApprovals], func(o document) bool { return o != d && (o.linked || o.commit == d.commit) })
	if !ok || !counts || a.by.DistinctAuthor || others || now == nil || now.Spec.Commit != before[deployment].Spec.Commit ||
		a.ended[deployment+" "+d.commit] || deployment == "web" && a.governing != a.now().variant() {
		return
	}
	if now.Spec.Approval == nil {
		a.breach("a signer approves release %.7s of %s, and that does not count", d.commit, deployment)
	}
}

// Whatever is pushed, by any person and in any order, terms take the place of others
// only if a signer has agreed to them, once. If a signer has just agreed to what the
// tip says, they do. Approvals of releases count as they were given, too.
func TestPlanAdversary(t *testing.T) {
	t.Parallel()
	n := uint64(100)
	switch {
	case *graphs > 0:
		n = *graphs
	case testing.Short():
		n = 20
	}
	for i := range n {
		seed := *first + i
		t.Run(fmt.Sprint(seed), func(t *testing.T) {
			t.Parallel()
			a := newAdversary(t, seed)
			a.head = a.commit(0, state{})
			a.made(0)
			first, _ := a.sync()
			a.check(first)
			changes := 0
			for a.at = 1; a.at <= 25; a.at++ {
				agreed, before := a.act(seed), a.governing
				if agreed < 0 && a.rand.IntN(3) == 0 {
					continue // pushed with what comes next
				}
				after, ok := a.sync()
				a.check(after)
				if a.governing != before {
					changes++
				}
				if ok && agreed >= 0 && !a.by.DistinctAuthor && after != termsOfVariant(agreed) {
					a.breach("a signer agrees to %q, and %s governs", variants[agreed], after)
				}
			}
			t.Logf("%d changes, %d approved releases", changes, a.opened)
		})
	}
}

// If the GitSource itself brings another plan, by another path, no commit since the present
// plan has made the difference. So no author is known, and an approval does not count.
func TestPlanApproval_OtherPath(t *testing.T) {
	t.Parallel()
	for seed, counts := range map[uint64]bool{2: false, 1: true} { // an even one: by another than the author
		a := newAdversary(t, seed)
		files := state{variants: [2]int{0, 1}}.tree()
		for name, text := range (state{used: 1, variants: [2]int{0, 1}}).tree() {
			if below, ok := strings.CutPrefix(name, "deploy/"); ok {
				files["next/"+below] = text
			}
		}
		a.head = a.Commit(a.keys[2], files)
		if terms, _ := a.sync(); terms != termsOfVariant(0) {
			t.Fatalf("%s governs", terms)
		}
		a.gs.Spec.Path = "next"
		files["next/approvals/0.yaml"] = document{name: "web", namespace: "shop", plan: termsOfVariant(1).Digest(), at: 1}.text()
		a.head = a.Commit(a.keys[2], files, a.head)
		if terms, _ := a.sync(); (terms == termsOfVariant(1)) != counts {
			t.Errorf("distinct author %t: %s governs", a.by.DistinctAuthor, terms)
		}
	}
}
