package authors

import (
	"cmp"
	"context"
	"errors"
	"path"
	"slices"
	"strings"

	"github.com/go-git/go-git/v5/plumbing"
	"github.com/go-git/go-git/v5/plumbing/object"
	corev1 "k8s.io/api/core/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/tranche-dev/tranche/gitsync/gittree"
	"github.com/tranche-dev/tranche/gitsync/lineage"
	"github.com/tranche-dev/tranche/gitsync/ownchanges"
	"github.com/tranche-dev/tranche/plan"
)

// With spec.approvals.distinctAuthor an approver has written nothing of what is
// approved. That is the difference between what counted last and what a commit renders
// for the Deployment. The commits of that difference are found by what they render,
// since messages, authors and the shape of the history can be forged:
//
//   - The walk begins at the commit. It ends at commits that render what counted last,
//     and at those in the history of the commit which that came from. If a force-push
//     has left that commit behind, the history is walked to its beginning.
//   - A commit counts if it renders something else for the Deployment than its first
//     parent. It also counts if it renders nothing and changes a file which the
//     rendering reads.
//   - A merge counts where git would have merged its parents in another way, whatever
//     its first parent is. The parents of every merge are walked, too.
//   - A merge can render what neither side renders, of commits that each render what
//     their parents do. An example: one side uses a folder, the other side changes it.
//     Such a merge counts, with the commits that it takes for that (combined.go).
//   - A commit can make the change that git makes by itself to take others back. Then the
//     authors of what it brings back count, too, and it needs no author (takenback.go).

// origins looks for the commits that made a difference.
type origins struct {
	branch *Branch
	// of is what is compared of a rendering.
	of func(*plan.Set) string
	// was is what counted last; empty: not known.
	was string
	// base is the commit that it came from; zero: not known, or not in the history.
	base plumbing.Hash
	// lineage are the commits that were met, and all that are in their histories. It is
	// nil until a commit is met that is neither base nor renders what counted last. The
	// first commits of it, past in number, are the history of base.
	lineage *lineage.Lineage
	past    int32
	// own finds what a commit has changed itself.
	own *ownchanges.Finder
	// takenBack are the commits found that take others back, see takenback.go.
	takenBack map[plumbing.Hash]bool
	// unknown is why it is not known what a commit renders; nil: it is known of all. Such
	// a commit has a state of its own, and any file may be read for it: more commits count.
	unknown error
	// spent is the effort so far, see [origins.spend].
	spent int
}

// MaxWalk is how many commits a search visits.
const MaxWalk = 10_000

// maxLineage is how many commits may have come after a release. They are kept in memory.
const maxLineage = 500_000

// maxEffort bounds the effort of one search, about in microseconds. Histories can be
// built that would take hours, and a sync that reaches its timeout is repeated.
const maxEffort = 100_000_000

// The effort of what takes longest.
const (
	effortOfUndo   = 1_000
	effortOfRender = 250_000
)

// errTooMuchHistory is returned for a history of which the authors cannot be found with
// the effort that one search may take.
var errTooMuchHistory = errors.New("too many commits and merges since the last release to find who has a part in the change")

// IsUncounted reports whether the authors of a change cannot be found, now and later.
func IsUncounted(err error) bool {
	return errors.Is(err, errTooManyCommits) || errors.Is(err, errTooMuchHistory)
}

// spend counts an effort. It returns an error where that was too much.
func (o *origins) spend(ctx context.Context, effort int) error {
	if o.spent += effort; o.spent > maxEffort {
		return errTooMuchHistory
	}
	return ctx.Err()
}

// rendering is what a commit renders for a Deployment.
type rendering struct {
	commit *object.Commit
	tree   *gittree.Tree
	state  string // of a commit that renders nothing one of its own
	// reads is what is read to find that out. For a commit that renders nothing, it
	// includes what is read in the next one that renders.
	reads gittree.Reads
	// unknown: the commit may render something, and reads may lack files.
	unknown bool
}

// Compared is what is compared of renderings.
type Compared struct {
	Deployment client.ObjectKey
	// Template returns the pod template that a set has for the Deployment, which counts with
	// the plan; nil: the plan alone.
	Template func(*plan.Set) *corev1.PodTemplateSpec
}

// State returns what decides who has written a release or a plan: the template and the
// plan of a Deployment, or the plan alone.
func (c Compared) State(set *plan.Set) string {
	terms := string(set.Terms(c.Deployment.Namespace, c.Deployment.Name))
	if c.Template == nil {
		return terms
	}
	return plan.TemplateDigest(c.Template(set)) + " " + terms
}

// find returns the commits of the difference between what counted last and what a
// commit renders.
func (o *origins) find(ctx context.Context, commit plumbing.Hash) ([]plumbing.Hash, error) {
	first, err := o.render(commit, nil)
	if err != nil {
		return nil, err
	}
	if err := o.dropBase(ctx, commit); err != nil {
		return nil, err
	}
	var list []plumbing.Hash
	var merges []combination
	seen := map[plumbing.Hash]bool{commit: true}
	for queue := []*rendering{first}; len(queue) > 0; {
		r := queue[0]
		queue = queue[1:]
		if before, err := o.countedBefore(ctx, r); err != nil {
			return nil, err
		} else if before {
			continue
		}
		parents, err := o.renderParents(r)
		if err != nil {
			return nil, err
		}
		for i, p := range r.commit.ParentHashes {
			if !seen[p] {
				seen[p] = true
				queue = append(queue, parents[i])
			}
		}
		own, combines, err := o.judge(ctx, r, parents)
		if err != nil {
			return nil, err
		}
		if own {
			list = append(list, r.commit.Hash)
			if queue, err = o.goBack(ctx, r, seen, queue); err != nil {
				return nil, err
			}
		}
		if combines {
			merges = append(merges, combination{r, parents})
		}
		if len(list) > maxChange || len(seen) > MaxWalk {
			return nil, errTooManyCommits
		}
	}
	return o.withCombined(ctx, list, merges)
}

// dropBase forgets base if it is not in the history of a commit.
func (o *origins) dropBase(ctx context.Context, commit plumbing.Hash) error {
	if o.base.IsZero() {
		return nil
	}
	there, err := o.branch.Order.Precedes(ctx, o.branch.Store, o.base, commit)
	if err == nil && !there {
		o.base = plumbing.ZeroHash
	}
	return err
}

// renderParents returns what the parents of a commit render.
func (o *origins) renderParents(r *rendering) (parents []*rendering, err error) {
	parents = make([]*rendering, len(r.commit.ParentHashes))
	for i, p := range r.commit.ParentHashes {
		if parents[i], err = o.render(p, r); err != nil {
			return nil, err
		}
	}
	return parents, nil
}

// countedBefore reports whether a commit has nothing of the difference.
func (o *origins) countedBefore(ctx context.Context, r *rendering) (bool, error) {
	if r.commit.Hash == o.base || o.was != "" && r.state == o.was {
		return true, ctx.Err()
	}
	if o.base.IsZero() {
		return false, ctx.Err()
	}
	return o.isPast(ctx, r.commit.Hash)
}

// isPast reports whether a commit is in the history of base. It is not where base is not
// known.
func (o *origins) isPast(ctx context.Context, commit plumbing.Hash) (bool, error) {
	l, err := o.readLineage(ctx)
	if err != nil {
		return false, err
	}
	i, ok := l.At(commit)
	return ok && i < o.past, nil
}

// readLineage returns the lineage, with the history of base.
func (o *origins) readLineage(ctx context.Context) (*lineage.Lineage, error) {
	if o.lineage != nil {
		return o.lineage, nil
	}
	l := lineage.New(o.branch.Store)
	if !o.base.IsZero() {
		if _, err := l.Add(ctx, o.base); err != nil {
			return nil, err
		}
	}
	o.lineage, o.past = l, l.Len()
	l.Limit(lineage.Bound{Most: maxLineage, Err: errTooMuchHistory})
	return l, nil
}

// render returns what a commit renders, given its child in the walk. A commit in which
// nothing differs that was read for the child renders the same, and is not rendered.
func (o *origins) render(commit plumbing.Hash, child *rendering) (*rendering, error) {
	c, err := object.GetCommit(o.branch.Store, commit)
	if err != nil {
		return nil, gittree.Missing("commit", commit, err)
	}
	t, err := gittree.Open(o.branch.Store, commit)
	if err != nil {
		return nil, err
	}
	if child != nil && !o.branch.RemoteBases {
		differ, err := gittree.Differ(child.reads, child.tree, t)
		if err != nil {
			return nil, err
		}
		if !differ {
			return &rendering{commit: c, tree: t, state: child.state, reads: child.reads}, nil
		}
	}
	d, err := o.branch.Renderer.RenderCommit(commit, t)
	if err != nil {
		return nil, err
	}
	o.unknown = cmp.Or(o.unknown, d.Unknown)
	if d.Set != nil {
		return &rendering{commit: c, tree: t, state: o.of(d.Set), reads: d.Reads}, nil
	}
	reads := gittree.Reads{}
	if child != nil {
		for p, r := range child.reads {
			reads[p] = r
		}
	}
	for p, r := range d.Reads {
		if _, ok := reads[p]; !ok {
			reads[p] = r
		}
	}
	return &rendering{commit: c, tree: t, state: "nothing in " + commit.String(), reads: reads, unknown: d.Unknown != nil}, nil
}

// judge reports whether a commit has a part in the difference. combines is true for a
// merge that renders something else than what its sides have made of what they began
// with.
func (o *origins) judge(ctx context.Context, r *rendering, parents []*rendering) (own, combines bool, err error) {
	same := len(parents) > 0
	for _, p := range parents {
		same = same && p.state == r.state
	}
	switch {
	case same:
		return false, false, nil
	case len(parents) != 2:
		return true, len(parents) > 2, nil
	}
	a, b := parents[0], parents[1]
	bases, err := o.mergeBases(ctx, a.commit.Hash, b.commit.Hash)
	if err != nil || len(bases) != 1 {
		return true, true, err
	}
	base, err := o.render(bases[0], r)
	if err != nil {
		return false, false, err
	}
	switch base.state { // a merge of what is rendered
	case a.state:
		combines = r.state != b.state
	case b.state:
		combines = r.state != a.state
	default:
		combines = true
	}
	contested, err := o.own.Contested(ctx, bases[0], a.commit, b.commit, r.commit)
	if err != nil {
		return false, false, err
	}
	clean, err := o.own.IsClean(ctx, contested, func(file string) bool { return o.matters(file, r, a, b) })
	return !clean, combines, err
}

// mergeBases returns the best common ancestors of two commits.
func (o *origins) mergeBases(ctx context.Context, a, b plumbing.Hash) ([]plumbing.Hash, error) {
	bases, _, err := o.fork(ctx, a, b)
	return bases, err
}

// fork returns the best common ancestors of two commits, and the commits that only one of
// them has in its history.
func (o *origins) fork(ctx context.Context, a, b plumbing.Hash) (bases []plumbing.Hash, apart map[int32]bool, err error) {
	l, err := o.readLineage(ctx)
	if err != nil {
		return nil, nil, err
	}
	var sides [2]int32
	for i, hash := range []plumbing.Hash{a, b} {
		if sides[i], err = l.Add(ctx, hash); err != nil {
			return nil, nil, err
		}
	}
	list, apart, err := l.Fork(sides[0], sides[1], func() error { return o.spend(ctx, 1) })
	for _, i := range list {
		bases = append(bases, l.Hash(i))
	}
	return bases, apart, err
}

// matters reports whether a file may be read for the rendering. The approvals are only if
// a kustomization names them.
func (o *origins) matters(file string, sides ...*rendering) bool {
	in := func(dir string) bool {
		dir = path.Clean(dir)
		return dir == "." || file == dir || strings.HasPrefix(file, dir+"/")
	}
	if slices.ContainsFunc(sides, func(s *rendering) bool { return !s.unknown && s.reads.Includes(file) }) {
		return true
	}
	if in(o.branch.Approvals) {
		return false
	}
	return in(o.branch.Path) || slices.ContainsFunc(sides, func(s *rendering) bool { return s.unknown })
}
