package authors

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"

	"github.com/go-git/go-git/v5/plumbing"
	"github.com/go-git/go-git/v5/plumbing/filemode"
	"github.com/go-git/go-git/v5/plumbing/object"
	"github.com/go-git/go-git/v5/plumbing/storer"

	"github.com/tranche-dev/tranche/gitsync/gitobject"
	"github.com/tranche-dev/tranche/gitsync/gittree"
	"github.com/tranche-dev/tranche/gitsync/signature"
	"github.com/tranche-dev/tranche/plan"
)

// A commit can render what its parent renders, and have an effect on what another person
// changes later. An example is a kustomization's rule for an image tag that no commit uses
// yet. It may be older than the last release. Such commits of an approver are found by
// taking them back in the tree of the change:
//
//   - Commits are taken back newest first. Those without an effect on the change stay taken
//     back, so that two commits with the same effect do not hide each other.
//   - The effect is compared by fields. A commit counts if it has an effect on a field there,
//     and none on the same field of what was released last. So an approver may have written
//     what was released. A commit that keeps a field as it was is found in kept.go.
//   - Lines that a later commit rewrote are not taken back. Its signer wrote them as they
//     are now. The other lines of the same place are taken back one by one.
//   - The entries of a place are taken back one by one, too. See dormantentries.go.
//   - A commit that no listed key signed counts like one of the approver, who may have
//     made it.

const (
	// maxDormant is how many commits are looked at, those nearest to the change.
	maxDormant = MaxWalk
	// maxTrials bounds the renderings for single lines, and those for the unsigned commits
	// before the last release.
	maxTrials = 100
)

const effortOfSigner = 200

// errEnoughTrials ends a search with a bound.
var errEnoughTrials = errors.New("too many renderings")

// suspect is a commit that may have an effect on a change.
type suspect struct {
	commit  *object.Commit
	changes map[string]gitobject.Change
	moves   []move // see renamed.go
	atBoth  bool   // of the files of moves, when it is taken back
	at      int32  // in the lineage
	proven  bool   // signed by a listed key
}

// fields are the values of what is compared of a rendering; nil: it does not render.
type fields map[string]string

// fields returns the values of what is compared.
func (c Compared) fields(set *plan.Set) fields {
	f := fields{}
	if c.Template != nil {
		f.add("template", c.Template(set))
	}
	f.add("plan", json.RawMessage(set.Terms(c.Deployment.Namespace, c.Deployment.Name)))
	return f
}

// add adds all values of what encodes to JSON.
func (f fields) add(name string, v any) {
	raw, err := json.Marshal(v)
	var tree any
	if err == nil {
		err = json.Unmarshal(raw, &tree)
	}
	if err != nil {
		f[name] = string(raw)
		return
	}
	f.addTree(name, tree)
}

func (f fields) addTree(name string, v any) {
	switch v := v.(type) {
	case map[string]any:
		for k, below := range v {
			f.addTree(name+"\x00"+k, below)
		}
	case []any:
		for i, key := range elementNames(v) {
			f.addTree(name+"\x00"+key, v[i])
		}
	default:
		f[name] = fmt.Sprint(v)
	}
}

// elementNames are what the elements of a list are known by: their names, and their places
// where two have the same name.
func elementNames(list []any) []string {
	keys, seen := make([]string, len(list)), map[string]bool{}
	for i, v := range list {
		keys[i] = "#" + strconv.Itoa(i) // no name
		if m, ok := v.(map[string]any); ok {
			if name, ok := m["name"].(string); ok && !seen[name] {
				keys[i], seen[name] = name, true
			}
		}
	}
	return keys
}

// differ returns the names of the values that differ.
func (f fields) differ(g fields) map[string]bool {
	names := map[string]bool{}
	for _, side := range [][2]fields{{f, g}, {g, f}} {
		for name, v := range side[0] {
			if other, ok := side[1][name]; !ok || other != v {
				names[name] = true
			}
		}
	}
	return names
}

// dormancy is a search for the commits that have an effect on a change.
type dormancy struct {
	origins *origins
	of      Compared
	store   *gitobject.Store
	commit  plumbing.Hash
	// tree is that of the commit, with the commits taken back that have no effect on it.
	tree plumbing.Hash
	now  fields
	// base is what was released last; zero: not known.
	base  plumbing.Hash // a tree
	reads gittree.Reads // of it
	was   fields
	// changed are the fields that differ between both; nil: not known.
	changed map[string]bool
	// released is base with the first folded of gone taken back. Those are what is taken back
	// in tree.
	released plumbing.Hash
	gone     []suspect
	folded   int
	rendered map[plumbing.Hash]fields // by tree
	// ends are the other paths of files that suspects renamed.
	ends map[string][]string
	// contents are those that are read for the change, and arriving is the effort for files that
	// came from elsewhere, see moved.go.
	contents map[plumbing.Hash]bool
	arriving int
	most     int // trials; 0: any number
	trials   int
}

// dormant returns a commit of the approver, or of an unknown person, that has an effect
// on the change. It returns none if there is no such commit.
func (c *Change) dormant(ctx context.Context, approver signature.Signature) Found {
	keys := c.Branch.keys()
	return c.Branch.Known.search(strings.Join([]string{c.Key, "dormant", approver.Key, keys.ID()}, " "), func() Found {
		d, r, err := c.newDormancy()
		if err != nil || d == nil {
			return Found{err: err}
		}
		list, older, err := d.suspects(ctx, r, approver, keys)
		if err != nil {
			return Found{err: err, unknown: d.origins.unknown}
		}
		found, err := d.search(ctx, list, d.counts)
		if err == nil && len(found) == 0 {
			found, err = d.searchEntries(ctx, list)
		}
		for _, more := range []func() ([]plumbing.Hash, error){
			func() ([]plumbing.Hash, error) { return d.searchLines(ctx, list) },
			func() ([]plumbing.Hash, error) { return d.search(ctx, older, d.counts) },
		} {
			if err != nil || len(found) > 0 {
				break
			}
			d.most, d.trials = maxTrials, 0
			if found, err = more(); errors.Is(err, errEnoughTrials) || IsUncounted(err) {
				found, err = nil, nil
			}
		}
		return Found{commits: found, err: err, unknown: d.origins.unknown}
	})
}

// newDormancy begins a search. It is nil where the commit does not render.
func (c *Change) newDormancy() (*dormancy, *rendering, error) {
	o, err := c.origins()
	if err != nil {
		return nil, nil, err
	}
	r, err := o.render(c.Commit, nil)
	if err != nil {
		return nil, nil, err
	}
	now, err := c.Branch.Renderer.RenderCommit(c.Commit, r.tree)
	if err != nil || now.Set == nil {
		return nil, nil, err
	}
	d := &dormancy{
		origins: o, of: c.Of, store: gitobject.NewStore(c.Branch.Store),
		commit: c.Commit, tree: r.commit.TreeHash, now: c.Of.fields(now.Set),
		rendered: map[plumbing.Hash]fields{}, ends: map[string][]string{},
	}
	d.rendered[d.tree] = d.now
	if !c.Branch.has(c.Base) {
		return d, r, nil
	}
	b, err := o.render(c.Base, nil)
	if err != nil {
		return nil, nil, err
	}
	last, err := c.Branch.Renderer.RenderCommit(c.Base, b.tree)
	if err != nil || last.Set == nil {
		return d, r, err
	}
	d.base, d.reads, d.was = b.commit.TreeHash, last.Reads, c.Of.fields(last.Set)
	d.changed, d.released = d.now.differ(d.was), d.base
	d.rendered[d.base] = d.was
	return d, r, nil
}

// suspects returns the commits that the approver signed, or no listed key, children before
// their parents. Those that no listed key signed are apart where they are older than the
// last release.
func (d *dormancy) suspects(ctx context.Context, r *rendering, approver signature.Signature, keys *signature.Keys) (
	list, older []suspect, err error,
) {
	l, err := d.origins.readLineage(ctx)
	if err != nil {
		return nil, nil, err
	}
	if _, err := l.Add(ctx, d.commit); err != nil {
		return nil, nil, err
	}
	queue, seen := []plumbing.Hash{d.commit}, map[plumbing.Hash]bool{d.commit: true}
	for n := 0; len(queue) > 0 && n < maxDormant; n++ {
		c, err := object.GetCommit(d.origins.branch.Store, queue[0])
		if err != nil {
			return nil, nil, gittree.Missing("commit", queue[0], err)
		}
		queue = queue[1:]
		for _, p := range c.ParentHashes {
			if !seen[p] {
				seen[p] = true
				queue = append(queue, p)
			}
		}
		at, _ := l.At(c.Hash)
		s, err := d.suspect(ctx, c, r, approver, keys, at)
		if err != nil {
			return nil, nil, err
		}
		if s == nil {
			continue
		}
		if s.proven || s.at >= d.origins.past {
			list = append(list, *s)
		} else {
			older = append(older, *s)
		}
	}
	for _, of := range [][]suspect{list, older} {
		slices.SortFunc(of, func(a, b suspect) int { return cmp.Compare(b.at, a.at) })
	}
	return list, older, nil
}

// suspect returns a commit with what it has changed that may matter; nil: nothing, or
// another person signed it.
func (d *dormancy) suspect(
	ctx context.Context, c *object.Commit, r *rendering, approver signature.Signature, keys *signature.Keys, at int32,
) (*suspect, error) {
	if same, err := isEmpty(d.origins.branch.Store, c); err != nil || same {
		return nil, err
	}
	if err := d.origins.spend(ctx, effortOfSigner); err != nil {
		return nil, err
	}
	by, why, err := d.origins.branch.Signatures.SignerOf(ctx, d.origins.branch.Store, c.Hash, keys)
	if err != nil || why == "" && !keys.Same(by, approver) {
		return nil, err
	}
	if why != "" {
		if back, err := d.origins.isTakenBack(ctx, c, r); err != nil || back {
			return nil, err
		}
	}
	all, err := d.origins.own.Own(ctx, d.store, c)
	if err != nil {
		return nil, err
	}
	s := &suspect{commit: c, changes: map[string]gitobject.Change{}, proven: why == "", at: at}
	now, err := d.movedTo(ctx, c, all, r)
	if err != nil {
		return nil, err
	}
	rest, err := d.withoutMoves(ctx, s, all, r)
	if err != nil {
		return nil, err
	}
	if err := s.addChanges(ctx, d, rest, now, r); err != nil {
		return nil, err
	}
	if len(s.changes)+len(s.moves) == 0 {
		return nil, nil
	}
	return s, d.origins.spend(ctx, len(all)*(1+(len(r.reads)+len(d.reads))/32))
}

// isEmpty reports whether a commit with one parent has the tree of that.
func isEmpty(store storer.EncodedObjectStorer, c *object.Commit) (bool, error) {
	if len(c.ParentHashes) != 1 {
		return false, nil
	}
	parent, err := gitobject.TreeHash(store, c.ParentHashes[0])
	return err == nil && parent == c.TreeHash, err
}

// addChanges adds to a commit those changes that may matter, also where their files are now.
func (s *suspect) addChanges(
	ctx context.Context, d *dormancy, all map[string]gitobject.Change, now map[string][]string, r *rendering,
) error {
	for file, change := range all {
		paths := append([]string{file}, now[file]...)
		if !slices.ContainsFunc(paths, func(p string) bool { return d.origins.matters(p, r) }) {
			continue
		}
		change, err := d.sinceEarlier(ctx, s.commit, file, change, s.at)
		if err != nil {
			return err
		}
		// A file that was read before cannot be away: what was released needs it.
		if added := change.From.Mode == filemode.Empty; added && d.reads.Includes(file) {
			continue
		}
		for _, p := range paths {
			s.changes[p] = change
		}
	}
	return nil
}

// search returns the first of the commits that has an effect on the change and counts. Many
// commits have none, so they are taken back together first.
func (d *dormancy) search(
	ctx context.Context, list []suspect, counts func(context.Context, suspect, fields) (bool, error),
) ([]plumbing.Hash, error) {
	if len(list) == 0 {
		return nil, nil
	}
	without, err := d.undo(ctx, d.tree, list...)
	if err != nil || without == d.tree {
		return nil, err
	}
	then, err := d.fieldsOf(ctx, without)
	if err != nil {
		return nil, err
	}
	none, err := d.hasNone(ctx, then, list...)
	if err != nil {
		return nil, err
	}
	if none {
		d.tree, d.gone = without, append(d.gone, list...)
		return nil, nil
	}
	if len(list) == 1 {
		if is, err := counts(ctx, list[0], then); err != nil || !is {
			return nil, err
		}
		return []plumbing.Hash{list[0].commit.Hash}, nil
	}
	found, err := d.search(ctx, list[:len(list)/2], counts)
	if err != nil || len(found) > 0 {
		return found, err
	}
	return d.search(ctx, list[len(list)/2:], counts)
}

// effect returns the fields of the change that have other values in another rendering.
func (d *dormancy) effect(then fields) map[string]bool {
	names := d.now.differ(then)
	for name := range names {
		if d.changed != nil && !d.changed[name] {
			delete(names, name)
		}
	}
	return names
}

// undo takes commits back in a tree.
func (d *dormancy) undo(ctx context.Context, tree plumbing.Hash, list ...suspect) (plumbing.Hash, error) {
	for _, s := range list {
		if err := d.origins.spend(ctx, effortOfUndo*(len(s.changes)+len(s.moves))); err != nil {
			return tree, err
		}
		changes, err := d.follow(tree, s.changes)
		if err != nil {
			return tree, err
		}
		if tree, err = gitobject.UndoWhatStands(d.store, tree, changes); err != nil {
			return tree, err
		}
		if tree, err = s.moveBack(d, tree); err != nil {
			return tree, err
		}
	}
	return tree, nil
}

// fieldsOf returns what a tree renders.
func (d *dormancy) fieldsOf(ctx context.Context, tree plumbing.Hash) (fields, error) {
	if f, ok := d.rendered[tree]; ok {
		return f, nil
	}
	if d.trials++; d.most > 0 && d.trials > d.most {
		return nil, errEnoughTrials
	}
	t, err := gittree.OpenTree(d.store, tree)
	if err != nil {
		return nil, err
	}
	set, err := d.origins.renderTree(ctx, t, d.commit)
	if err != nil {
		return nil, err
	}
	var f fields
	if set != nil {
		f = d.of.fields(set)
	}
	d.rendered[tree] = f
	return f, nil
}

// counts reports whether a commit has an effect on the change that it did not have on what
// was released last. then is what is rendered without the commit.
func (d *dormancy) counts(ctx context.Context, s suspect, then fields) (bool, error) {
	if then == nil && len(s.moves) > 0 {
		var none bool
		var err error
		if s, then, none, err = d.countedAtBoth(ctx, s); err != nil || none {
			return false, err
		}
	}
	before, err := d.effectBefore(ctx, s)
	if err != nil {
		return false, err
	}
	if then == nil && len(before) == 0 || then != nil && d.adds(then, before) {
		return true, nil
	}
	if keeps, err := d.keeps(ctx, then, s); err != nil || keeps {
		return keeps, err
	}
	parts, err := gitobject.Parts(d.store, s.changes)
	if errors.Is(err, gitobject.ErrManyParts) {
		return true, nil // another approver is asked
	}
	if err != nil || len(parts) < 2 {
		return false, err
	}
	found, err := d.searchParts(ctx, s.each(parts))
	return len(found) > 0, err
}

// each returns the commit with each of its changes alone.
func (s suspect) each(parts []map[string]gitobject.Change) []suspect {
	list := make([]suspect, len(parts))
	for i, p := range parts {
		list[i] = suspect{commit: s.commit, changes: p}
	}
	return list
}

// searchLines looks for lines with an effect on the change among those that stand where
// later commits rewrote others beside them.
func (d *dormancy) searchLines(ctx context.Context, list []suspect) ([]plumbing.Hash, error) {
	var lines []suspect
	for _, s := range list {
		changes, err := d.follow(d.tree, s.changes)
		if err != nil {
			return nil, err
		}
		parts, err := gitobject.SplitLines(d.store, d.tree, changes)
		if errors.Is(err, gitobject.ErrManyParts) {
			return nil, errEnoughTrials
		}
		if err != nil {
			return nil, err
		}
		lines = append(lines, s.each(parts)...)
		if err := d.origins.spend(ctx, effortOfUndo*(len(s.changes)+len(parts))); err != nil {
			return nil, err
		}
	}
	return d.searchParts(ctx, lines)
}

// adds reports whether another rendering shows an effect that is not among those before.
func (d *dormancy) adds(then fields, before map[string]bool) bool {
	for name := range d.effect(then) {
		if !before[name] {
			return true
		}
	}
	return false
}

// searchParts returns the commit of a part that counts, among commits that do not count as
// a whole. Such a commit may have made what was released in one place, and have a later
// effect in another. Parts without which nothing renders do not count by themselves.
func (d *dormancy) searchParts(ctx context.Context, parts []suspect) ([]plumbing.Hash, error) {
	if len(parts) == 0 {
		return nil, nil
	}
	without, err := d.undo(ctx, d.tree, parts...)
	if err != nil || without == d.tree {
		return nil, err
	}
	then, err := d.fieldsOf(ctx, without)
	if err != nil {
		return nil, err
	}
	if none, err := d.hasNone(ctx, then, parts...); err != nil || none {
		return nil, err
	}
	if len(parts) > 1 {
		half := len(parts) / 2
		found, err := d.searchParts(ctx, parts[:half])
		if err != nil || len(found) > 0 {
			return found, err
		}
		return d.searchParts(ctx, parts[half:])
	}
	if then == nil {
		return nil, nil
	}
	before, err := d.effectBefore(ctx, parts[0])
	if err != nil {
		return nil, err
	}
	is := d.adds(then, before)
	if !is {
		is, err = d.keeps(ctx, then, parts[0])
	}
	if err != nil || !is {
		return nil, err
	}
	return []plumbing.Hash{parts[0].commit.Hash}, nil
}

// effectBefore returns the fields of what was released last that a commit has an effect
// on. If that is not known, they are those that the commit has changed itself.
func (d *dormancy) effectBefore(ctx context.Context, s suspect) (map[string]bool, error) {
	from, was, to := d.base, d.was, plumbing.ZeroHash
	var err error
	if !from.IsZero() {
		to, err = d.undo(ctx, from, s)
	} else if from = s.commit.TreeHash; len(s.commit.ParentHashes) > 0 {
		to, err = gitobject.TreeHash(d.origins.branch.Store, s.commit.ParentHashes[0])
	}
	if err == nil && was == nil {
		was, err = d.fieldsOf(ctx, from)
	}
	if err != nil || from == to {
		return nil, err
	}
	var without fields
	if !to.IsZero() {
		if without, err = d.fieldsOf(ctx, to); err != nil {
			return nil, err
		}
	}
	return was.differ(without), nil
}
