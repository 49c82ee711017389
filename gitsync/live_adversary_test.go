package gitsync_test

import (
	"context"
	"flag"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"

	appsv1 "k8s.io/api/apps/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/tranche-dev/tranche/gitsync/gittest"
	"github.com/tranche-dev/tranche/plan/v1alpha1"
	"github.com/tranche-dev/tranche/rollout/clustertest"
)

// liveGraphs is how many graphs the live adversary plays; 0: a few.
var liveGraphs = flag.Uint64("live", 0, "how many Git graphs TestLiveAdversary plays")

// The persons of a live graph. The last signer writes nothing but the last approval.
const (
	committer   = 0 // signs, and may not approve
	livePersons = 4 // 1, 2 and 3 are signers
	unsigned    = livePersons
	referee     = livePersons - 1
)

// liveReplicas is the size of Deployment web.
const liveReplicas = 4

// livePlans are the steps that a commit may write. The last entry is no plan.
var livePlans = [][]string{{"1", "50%", "100%"}, {"1", "75%", "100%"}, {"50%", "100%"}, {"100%"}, nil}

const noPlan = 4

// liveTarget is how many pods a step allows.
func liveTarget(variant, step int) int32 {
	steps := livePlans[variant]
	text := steps[min(step, len(steps)-1)]
	percent, isPercent := strings.CutSuffix(text, "%")
	n, err := strconv.ParseInt(percent, 10, 32)
	if err != nil {
		panic(err)
	}
	if isPercent {
		return int32((n*liveReplicas + 99) / 100) //nolint:gosec // at most 4
	}
	return int32(n)
}

// document is an approval, as a commit has it.
type document struct {
	plan   string // a digest; or
	commit string // of a release
	step   int
}

// liveTree is what a commit says, as git prints it.
type liveTree struct {
	image     string
	variant   int
	documents map[string]document // of regular files that hold one alone, by blob and name
}

// consent is a document that a signer's commit brought.
type consent struct {
	document
	signer, at int
	by         liveTree // what the commit says that brought it
	used       bool
}

// stop is what the API server says when nothing moves.
type stop struct {
	variant       int
	image, commit string // of the BatchRelease's spec; empty: there is none
	stable, last  string // images that ran on all pods
	sizes         map[string]int32
	version       uint64
	consents      int             // that were given before
	ended         map[string]bool // commits whose release has ended
}

// live is a graph that is played on the cluster. Its judgement reads ReplicaSets and the
// spec of BatchReleases from the API server, and documents from the repository.
type live struct {
	*env
	g        *gittest.Graph
	distinct bool
	trees    map[string]liveTree // by commit
	blobs    map[string]string
	// makers are by image and by variant who signed each commit that made it so.
	makers      map[string][]int
	consents    []consent
	stops       []stop
	at          int
	story       []string
	images      int
	changes     int  // of the plan that governs
	opened      int  // times that pods came which an approval let come
	hasUnsigned bool // an unsigned commit was made

	mu   sync.Mutex
	seen []liveSize
}

// liveSize is a version of a ReplicaSet.
type liveSize struct {
	version uint64
	uid     types.UID
	image   string
	size    int32
}

func newLive(t *testing.T, seed uint64) *live {
	t.Helper()
	s := newIdleEnv(t)
	l := &live{env: s, g: gittest.NewGraph(t, seed, livePersons), distinct: seed%2 == 0, trees: map[string]liveTree{}, blobs: map[string]string{}, makers: map[string][]int{}}
	s.repo = l.g.Repo
	t.Cleanup(s.startController(andRollout))
	l.record()
	return l
}

func (l *live) tell(format string, args ...any) {
	l.story = append(l.story, fmt.Sprintf("%d: ", l.at)+fmt.Sprintf(format, args...))
}

func (l *live) breach(format string, args ...any) {
	l.Helper()
	l.Fatalf("%s\n%s", fmt.Sprintf(format, args...), strings.Join(l.story, "\n"))
}

// record watches the sizes of all ReplicaSets.
func (l *live) record() {
	l.Helper()
	ctx, cancel := context.WithCancel(context.Background())
	events, err := l.c.Client.Watch(ctx, &appsv1.ReplicaSetList{}, client.InNamespace(l.ns))
	l.must(err)
	var running sync.WaitGroup
	running.Go(func() {
		for e := range events.ResultChan() {
			if rs, ok := e.Object.(*appsv1.ReplicaSet); ok {
				size := *rs.Spec.Replicas
				if e.Type == "DELETED" {
					size = 0
				}
				l.mu.Lock()
				l.seen = append(l.seen, liveSize{versionOf(rs.ResourceVersion), rs.UID, imageOf(rs.Spec.Template.Spec.Containers[0].Image), size})
				l.mu.Unlock()
			}
		}
	})
	l.Cleanup(func() {
		events.Stop()
		cancel()
		running.Wait()
	})
}

func imageOf(ref string) string { return ref[strings.LastIndex(ref, ":")+1:] }

var (
	imageLine    = regexp.MustCompile(`image: \S+:(\S+)`)
	stepLine     = regexp.MustCompile(`- replicas: (\S+)`)
	approvalLine = regexp.MustCompile(`(?m)^spec: \{revision: \S+, commit: '([0-9a-f]{40})', step: (\d)\}$`)
	planLine     = regexp.MustCompile(`(?m)^spec: \{plan: ([0-9a-f]{64})\}$`)
)

// read reads a commit with git.
func (l *live) read(commit string) liveTree {
	l.Helper()
	if t, ok := l.trees[commit]; ok {
		return t
	}
	t := liveTree{variant: noPlan, documents: map[string]document{}}
	for line := range strings.Lines(l.g.Git("ls-tree", "-r", commit)) {
		head, name, _ := strings.Cut(strings.TrimSuffix(line, "\n"), "\t")
		f := strings.Fields(head) // mode, type, blob
		if _, ok := l.blobs[f[2]]; !ok {
			l.blobs[f[2]] = l.g.Git("cat-file", "blob", f[2])
		}
		text := l.blobs[f[2]]
		switch {
		case name == "deploy/web.yaml":
			t.image = imageLine.FindStringSubmatch(text)[1]
		case name == "deploy/release.yaml":
			var steps []string
			for _, m := range stepLine.FindAllStringSubmatch(text, -1) {
				steps = append(steps, m[1])
			}
			t.variant = slices.IndexFunc(livePlans, func(p []string) bool { return slices.Equal(p, steps) })
		case strings.HasPrefix(name, "deploy/approvals/") && f[0] != "120000" && strings.Count(text, "kind:") == 1:
			if m := planLine.FindStringSubmatch(text); m != nil {
				t.documents[f[2]+" "+name] = document{plan: m[1]}
			} else if m := approvalLine.FindStringSubmatch(text); m != nil {
				t.documents[f[2]+" "+name] = document{commit: m[1], step: int(m[2][0] - '0')}
			}
		}
	}
	l.trees[commit] = t
	return t
}

// note takes note of the commit that is checked out: who made it, and to which documents
// its signer agrees. Those are the documents that no parent has.
func (l *live) note(person int, what string) {
	l.Helper()
	c := l.g.Head()
	now := l.read(c)
	l.hasUnsigned = l.hasUnsigned || person == unsigned
	parents := strings.Fields(l.g.Git("log", "-1", "--format=%P"))
	var before liveTree
	if len(parents) > 0 {
		before = l.read(parents[0])
	}
	if len(parents) == 0 || now.image != before.image {
		l.makers[now.image] = append(l.makers[now.image], person)
	}
	if key := fmt.Sprint("plan ", now.variant); len(parents) == 0 || now.variant != before.variant {
		l.makers[key] = append(l.makers[key], person)
	}
	signs := person > committer && person < unsigned
	for _, key := range slices.Sorted(maps.Keys(now.documents)) {
		had := func(parent string) bool { _, ok := l.read(parent).documents[key]; return ok }
		if signs && !slices.ContainsFunc(parents, had) {
			l.consents = append(l.consents, consent{document: now.documents[key], signer: person, at: l.at, by: now})
		}
	}
	l.tell("k%d: %s: %.7s, image %s, plan %v", person, what, c, now.image, livePlans[now.variant])
}

// commit writes files as a person.
func (l *live) commit(person int, what string, files map[string]string) {
	l.Helper()
	l.g.As(person)
	for name, text := range files {
		if _, err := os.Lstat(filepath.Join(l.g.Work, name)); err != nil && text == "" {
			delete(files, name)
		} else {
			_ = os.RemoveAll(filepath.Join(l.g.Work, name)) // a link, too
			if text == "" {
				delete(files, name)
			}
		}
	}
	l.g.Commit(files, fmt.Sprintf("Change %d", len(l.g.Commits)))
	l.g.Note()
	l.note(person, what)
}

func (l *live) web(image string) string { return sizedWeb(liveReplicas, image) }

// digest is that of a variant's terms, as docs/signatures.md specifies them.
func (l *live) digest(variant int) string {
	if variant == noPlan {
		return digestOf((&signed{env: l.env}).ungoverned())
	}
	return digestOf((&signed{env: l.env}).terms(livePlans[variant]...))
}

func (l *live) newImage() string {
	l.images++
	return fmt.Sprintf("v%d", l.images)
}

// agreesTo is a document about a plan.
func (l *live) agreesTo(variant int) string {
	return fmt.Sprintf("# %d\napiVersion: tranche.dev/v1alpha1\nkind: BatchApproval\nmetadata: {name: web, namespace: %s}\nspec: {plan: %s}\n", len(l.g.Commits), l.ns, l.digest(variant))
}

// plan returns the BatchRelease, whatever its name; nil: there is none.
func (l *live) plan() *v1alpha1.BatchRelease {
	l.Helper()
	var list v1alpha1.BatchReleaseList
	l.must(l.c.Client.List(l.Context(), &list, client.InNamespace(l.ns)))
	switch len(list.Items) {
	case 0:
		return nil
	case 1:
		return &list.Items[0]
	}
	l.breach("there are %d BatchReleases at rest", len(list.Items))
	return nil
}

// allows is a document about the release that is there; empty: there is none.
func (l *live) allows() string {
	l.Helper()
	br := l.plan()
	if br == nil {
		return ""
	}
	text := approvalOf(br.Name, br.Status.UpdateRevision, br.Spec.Commit, strconv.Itoa(l.g.Rand.IntN(2)))
	return fmt.Sprintf("# %d\n", len(l.g.Commits)) + strings.Replace(text, "metadata: {name: "+br.Name+"}", "metadata: {name: "+br.Name+", namespace: "+l.ns+"}", 1)
}

// act makes one commit, or moves the branch.
func (l *live) act(seed uint64) {
	l.Helper()
	person := l.g.Rand.IntN(referee)
	if l.g.Rand.IntN(12) == 0 {
		person = unsigned
	}
	file := func(dir string) string { return fmt.Sprintf("deploy/approvals/%s%d.yaml", dir, l.g.Rand.IntN(2)) }
	switch l.g.Rand.IntN(16) {
	case 0, 1:
		l.commit(person, "an image", map[string]string{"deploy/web.yaml": l.web(l.newImage())})
	case 2, 3:
		v := l.g.Rand.IntN(len(livePlans))
		files := map[string]string{"deploy/release.yaml": ""}
		if v != noPlan {
			files["deploy/release.yaml"] = planOf([]string{"web", "next"}[l.g.Rand.IntN(2)], livePlans[v]...)
		}
		if l.g.Rand.IntN(2) == 0 {
			files["deploy/web.yaml"] = l.web(l.newImage())
		}
		l.commit(person, "a plan", files)
	case 4, 5, 6:
		text, tip, now := l.allows(), l.read(l.g.Head()), l.stops[len(l.stops)-1]
		switch {
		case tip.variant != now.variant && l.g.Rand.IntN(2) == 0:
			l.agree(person, file("plans/"))
		case text == "":
		case now.image == now.stable && l.g.Rand.IntN(4) > 0:
			l.commit(person, "an image", map[string]string{"deploy/web.yaml": l.web(l.newImage())})
		default:
			l.commit(person, "approves the release", map[string]string{file(""): text})
		}
	case 7, 8:
		l.agree(person, file("plans/"))
	case 9:
		l.plant(file(""))
	case 10:
		c := l.g.Commits[l.g.Rand.IntN(len(l.g.Commits))]
		if l.g.TakeBack(person, c) {
			l.note(person, fmt.Sprintf("reverts %.7s", c))
		}
	case 11:
		l.commit(person, "nothing", nil)
	case 12:
		if seed%3 > 0 {
			l.tell("the branch is %.7s", l.g.Rewrite())
		}
	case 13:
		text := configMap("a", fmt.Sprintf("at-%d", l.at))
		if l.g.Rand.IntN(3) == 0 {
			text += "  broken: [\n"
		}
		l.commit(person, "another object", map[string]string{"deploy/a.yaml": text})
	default:
		if m, ok := l.g.Merge(person); ok {
			l.note(person, fmt.Sprintf("merges %.7s and %.7s with the tree of %.7s", m.Parents[0], m.Parents[1], m.Of))
		}
	}
}

// agree approves the plan of the tip.
func (l *live) agree(person int, file string) {
	l.Helper()
	v := l.read(l.g.Head()).variant
	l.commit(person, fmt.Sprintf("approves plan %v", livePlans[v]), map[string]string{file: l.agreesTo(v)})
}

// plant lets the committer write a document, or a link to one, where a signer commits
// something else afterwards.
func (l *live) plant(file string) {
	l.Helper()
	text := l.allows()
	if text == "" {
		return
	}
	signer := 1 + l.g.Rand.IntN(2)
	switch l.g.Rand.IntN(3) {
	case 0:
		l.commit(committer, "plants an approval", map[string]string{file: text})
		other := strings.NewReplacer("name: web", "name: other", "name: next", "name: other").Replace(text)
		l.commit(signer, "adds another to that file", map[string]string{file: text + "---\n" + other})
	case 1:
		l.commit(committer, "plants an approval", map[string]string{file: text})
		l.commit(signer, "another object", map[string]string{"deploy/a.yaml": configMap("a", fmt.Sprintf("planted-%d", l.at))})
	default:
		l.commit(signer, "drafts an approval", map[string]string{"drafts/web.yaml": text})
		l.g.As(committer)
		at := filepath.Join(l.g.Work, file)
		l.must(os.MkdirAll(filepath.Dir(at), 0o750))
		_ = os.RemoveAll(at)
		l.must(os.Symlink("../../drafts/web.yaml", at))
		l.commit(committer, "links to it", nil)
	}
}

// rests pushes, waits until nothing moves, and takes note of what is there.
func (l *live) rests() stop {
	l.Helper()
	l.g.Push("--force")
	l.lookNow()
	s := stop{consents: len(l.consents)}
	clustertest.Wait(l.env, "the rest of\n"+strings.Join(l.story, "\n"), func() error {
		gs := l.gs()
		if c := l.inSync(); c.Reason == "Applying" || c.Reason == "WaitingForHandBack" {
			return fmt.Errorf("%s", said(gs))
		}
		var list v1alpha1.BatchReleaseList
		l.must(l.c.Client.List(l.Context(), &list, client.InNamespace(l.ns)))
		for _, br := range list.Items {
			if st := br.Status; br.DeletionTimestamp != nil || st.ObservedGeneration != br.Generation || st.Phase != v1alpha1.PhaseCompleted && st.Reason != "WaitingForApproval" {
				return fmt.Errorf("BatchRelease %s: %s: %s\n%s", br.Name, st.Reason, st.Message, said(gs))
			}
		}
		var d appsv1.Deployment
		if err := l.c.Client.Get(l.Context(), client.ObjectKey{Namespace: l.ns, Name: "web"}, &d); err != nil {
			return err
		}
		if d.Status.ObservedGeneration != d.Generation || d.Status.Replicas != liveReplicas || d.Status.AvailableReplicas != liveReplicas || !d.Spec.Paused && d.Status.UpdatedReplicas != liveReplicas {
			return fmt.Errorf("%d of %d pods are available, %d updated\n%s", d.Status.AvailableReplicas, d.Status.Replicas, d.Status.UpdatedReplicas, said(gs))
		}
		return nil
	})
	s.variant = noPlan
	if br := l.plan(); br != nil {
		var steps []string
		for i := range br.Spec.Strategy.Steps {
			steps = append(steps, br.Spec.Strategy.Steps[i].Replicas.String())
		}
		s.variant = slices.IndexFunc(livePlans, func(p []string) bool { return slices.Equal(p, steps) })
		s.image, s.commit = imageOf(br.Spec.Template.Spec.Containers[0].Image), br.Spec.Commit
	}
	var list appsv1.ReplicaSetList
	l.must(l.c.Client.List(l.Context(), &list, client.InNamespace(l.ns)))
	s.sizes, s.version = map[string]int32{}, versionOf(list.ResourceVersion)
	for _, rs := range list.Items {
		if n := *rs.Spec.Replicas; n > 0 {
			s.sizes[imageOf(rs.Spec.Template.Spec.Containers[0].Image)] += n
		}
	}
	l.remember(&s)
	l.tell("at rest: %v by plan %v, brings %s by %.7s; stable %s, before %s", s.sizes, livePlans[s.variant], s.image, s.commit, s.stable, s.last)
	return s
}

// remember adds what is known from the stop before.
func (l *live) remember(s *stop) {
	s.ended = map[string]bool{}
	if len(l.stops) > 0 {
		before := l.stops[len(l.stops)-1]
		s.stable, s.last = before.stable, before.last
		maps.Copy(s.ended, before.ended)
		if before.commit != s.commit {
			s.ended[before.commit] = true
		}
	}
	for image := range s.sizes {
		switch {
		case len(s.sizes) > 1 || image == s.stable:
		case image == s.last: // the way back, and there is no other
			s.stable, s.last = image, ""
		default:
			s.stable, s.last = image, s.stable
		}
	}
}

// isOwn reports whether a person has made it so each time.
func (l *live) isOwn(what string, person int) bool {
	return l.distinct && !slices.ContainsFunc(l.makers[what], func(p int) bool { return p != person })
}

// judgePlan fails the test where a plan took the place of another and no signer agreed. An
// agreement counts once.
func (l *live) judgePlan(before, now stop) {
	l.Helper()
	if now.variant == before.variant || before.variant == noPlan {
		return
	}
	digest := l.digest(now.variant)
	i := slices.IndexFunc(l.consents[:now.consents], func(c consent) bool {
		return c.plan == digest && !c.used && !l.isOwn(fmt.Sprint("plan ", now.variant), c.signer)
	})
	if i < 0 {
		l.breach("plan %v took the place of %v, and no signer agreed", livePlans[now.variant], livePlans[before.variant])
	}
	l.consents[i].used = true
	l.changes++
}

// judgePods fails the test where pods of an image became more than the approvals allow.
func (l *live) judgePods(before, now stop) {
	l.Helper()
	if before.variant == noPlan || now.variant == noPlan {
		return // no plan governs, and that was agreed
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	of := map[types.UID]liveSize{}
	total := func(image string) (n int32) {
		for _, s := range of {
			if s.image == image {
				n += s.size
			}
		}
		return n
	}
	for _, s := range l.seen {
		was := total(s.image)
		of[s.uid] = s
		if is := total(s.image); s.version > before.version && s.version <= now.version && is > was {
			if limit := l.limit(s.image, before, now); is > limit {
				l.breach("%d pods are to run %s, and %d may", is, s.image, limit)
			}
			if s.image != before.stable && s.image != before.last && is > liveTarget(before.variant, 0) {
				l.opened++
			}
		}
	}
}

// limit is how many pods of an image may run.
func (l *live) limit(image string, before, now stop) (limit int32) {
	if image == before.stable || image == before.last {
		return liveReplicas
	}
	for _, s := range []stop{before, now} {
		if s.image != image {
			continue
		}
		limit = max(limit, liveTarget(s.variant, 0))
		for _, c := range l.consents[:now.consents] {
			asRendered := c.by.variant == s.variant || c.by.variant == now.variant || c.by.variant == before.variant
			if c.commit == s.commit && !before.ended[c.commit] && asRendered && !l.isOwn(image, c.signer) {
				limit = max(limit, liveTarget(s.variant, c.step+1))
			}
		}
	}
	return limit
}

// goesOn brings what the honest way brings: the committer an image and a plan, and a
// signer who wrote nothing the approvals of both.
func (l *live) goesOn() {
	l.Helper()
	image := l.newImage()
	l.at++
	l.g.As(committer)
	l.must(os.RemoveAll(filepath.Join(l.g.Work, "deploy", "approvals")))
	l.commit(committer, "the last image", map[string]string{"deploy/web.yaml": l.web(image), "deploy/release.yaml": planOf("web", livePlans[0]...), "deploy/a.yaml": configMap("a", "last")})
	l.step()
	l.at++
	l.commit(referee, "approves the plan", map[string]string{"deploy/approvals/plans/web.yaml": l.agreesTo(0)})
	l.step()
	br := l.plan()
	if br == nil {
		l.breach("no plan governs at the end")
	}
	l.at++
	l.commit(referee, "approves the release", map[string]string{"deploy/approvals/web.yaml": l.approvalOf(br.Status.UpdateRevision, br.Spec.Commit, "1")})
	s := l.step()
	// The author of an unsigned commit is not known: it may be the approver.
	if l.distinct && l.hasUnsigned && strings.Contains(l.inSync().Message, "it is not signed") {
		return
	}
	if s.sizes[image] != liveReplicas {
		l.breach("the honest way ends with %v: %s", s.sizes, said(l.gs()))
	}
}

// step pushes and judges.
func (l *live) step() stop {
	l.Helper()
	s := l.rests()
	l.stops = append(l.stops, s)
	return s
}

// judge judges all that was, once the watch has seen it.
func (l *live) judge() {
	l.Helper()
	var list appsv1.ReplicaSetList
	l.must(l.c.Client.List(l.Context(), &list, client.InNamespace(l.ns)))
	clustertest.Wait(l.env, "the watch", func() error {
		l.mu.Lock()
		defer l.mu.Unlock()
		for _, rs := range list.Items {
			if !slices.ContainsFunc(l.seen, func(s liveSize) bool { return s.uid == rs.UID && s.version >= versionOf(rs.ResourceVersion) }) {
				return fmt.Errorf("ReplicaSet %s is not seen as it is", rs.Name)
			}
		}
		return nil
	})
	for i := 1; i < len(l.stops); i++ {
		l.judgePlan(l.stops[i-1], l.stops[i])
		l.judgePods(l.stops[i-1], l.stops[i])
	}
}

// demands is the spec of the source.
func (l *live) demands(gs *v1alpha1.GitSource) {
	var lines []string
	for i, k := range l.g.Keys {
		lines = append(lines, fmt.Sprintf("k%d@example.org %s", i, k.Public))
	}
	gs.Spec.Verify = committers(l.lists("committers", lines...))
	gs.Spec.Approvals = &v1alpha1.ApprovalPolicy{Signers: l.lists("approvers", lines[1:]...), DistinctAuthor: l.distinct}
}

// Random graphs are pushed to a signed source on a real control plane. No pod of a
// governed Deployment runs a template beyond what the first step of the plan allows
// without an approval. A signer must have given it in a commit of their own, for the
// release that is there.
func TestLiveAdversary(t *testing.T) {
	t.Parallel()
	n, pushes := uint64(3), 8
	if *liveGraphs > 0 {
		n, pushes = *liveGraphs, 12
	}
	for seed := range n {
		t.Run(fmt.Sprint(seed), func(t *testing.T) {
			t.Parallel()
			l := newLive(t, seed)
			l.commit(committer, "the first image", map[string]string{"deploy/web.yaml": l.web(l.newImage()), "deploy/release.yaml": planOf("web", livePlans[0]...)})
			l.g.Push()
			l.source(l.demands)
			l.step()
			for l.at = 1; l.at <= pushes; l.at++ {
				for range 1 + l.g.Rand.IntN(2) {
					l.act(seed)
				}
				l.step()
			}
			l.goesOn()
			l.judge()
			t.Logf("%d changes of the plan, %d growths by an approval\n%s", l.changes, l.opened, strings.Join(l.story, "\n"))
		})
	}
}
