package commit

import (
	"cmp"
	"context"
	"maps"
	"path"
	"slices"
	"strings"

	"github.com/go-git/go-git/v5/plumbing"

	"github.com/tranche-dev/tranche/cmd/tranche/commit/kustomizations"
	"github.com/tranche-dev/tranche/cmd/tranche/commit/render"
	"github.com/tranche-dev/tranche/gitsync/gittree"
	"github.com/tranche-dev/tranche/gitsync/giturl"
	"github.com/tranche-dev/tranche/plan"
	"github.com/tranche-dev/tranche/plan/v1alpha1"
)

// otherSources returns the other GitSources of the branch that this account may read. It
// says of which ones it cannot know whether they take the same files.
func (st *commitCommand) otherSources(ctx context.Context) []v1alpha1.GitSource {
	if st.at == nil {
		return nil
	}
	list, err := st.at.Sources(ctx, "")
	if err != nil {
		of := "other namespaces"
		cause := err
		if list, err = st.at.Sources(ctx, st.source.Namespace); err != nil {
			of = "the cluster"
		}
		st.say("Not checked: whether GitSources of %s take the same files: %s\n", of, plan.OneLine(cause.Error()))
	}
	return slices.DeleteFunc(list, func(gs v1alpha1.GitSource) bool {
		return gs.UID == st.source.UID || gs.Spec.Ref.Branch != st.source.Spec.Ref.Branch || !giturl.SameForUser(gs.Spec.URL, st.source.Spec.URL)
	})
}

// sharer is another GitSource of the branch, with what it renders at HEAD.
type sharer struct {
	*v1alpha1.GitSource
	templates map[string]render.Template
	reads     gittree.Reads
	err       error // it does not render
}

func (s *sharer) name() string { return s.Namespace + "/" + s.Name }

// findSharers renders HEAD for the other GitSources of the branch, which this command's
// change may move, too. One that a tag or commit pins is not moved.
func (n *narrowed) findSharers(ctx context.Context, head string) error {
	list := n.otherSources(ctx)
	for i := range list {
		if list[i].Spec.Ref.IsPinned() || list[i].DeletionTimestamp != nil {
			continue
		}
		s := &sharer{GitSource: &list[i]}
		set, tree, err := render.Commit(n.clone, s.GitSource, head)
		if tree == nil {
			return err
		}
		if s.reads, s.err = tree.Reads(), err; err == nil {
			s.templates = render.Templates(set)
		}
		n.sharers = append(n.sharers, s)
	}
	return nil
}

// has reports whether a source of the branch has a release or Deployment of a name.
func (n *narrowed) has(name string) bool {
	if hasName(n.head, name) {
		return true
	}
	return slices.ContainsFunc(n.sharers, func(s *sharer) bool {
		return hasName(s.templates, name) || s.err != nil && s.name() == name
	})
}

func hasName(templates map[string]render.Template, name string) bool {
	for _, t := range templates {
		if t.Name == name {
			return true
		}
	}
	return false
}

// elsewhere returns what a commit moves of other GitSources, and sources of which that is
// not known.
func (n *narrowed) elsewhere(ctx context.Context, commit string) (others []moved) {
	for _, s := range n.sharers {
		same, err := n.leaves(ctx, s, commit)
		switch {
		case err != nil:
			others = append(others, n.unknown(s, err)...)
		case !same:
			others = append(others, n.movedOf(s, commit)...)
		}
	}
	return others
}

// unknown is a source of which it is not known what a commit moves.
func (n *narrowed) unknown(s *sharer, err error) []moved {
	if n.with[s.name()] {
		return nil
	}
	return []moved{{name: s.name(), of: "what GitSource " + s.name() + " renders", how: "not known: " + plan.OneLine(err.Error())}}
}

// leaves reports whether a commit changes nothing that a source read. A rendering that
// failed may have ended before it read all files, so its kustomizations are asked as well.
func (n *narrowed) leaves(ctx context.Context, s *sharer, commit string) (bool, error) {
	objects, err := n.clone.Objects()
	if err != nil {
		return false, err
	}
	tree, err := gittree.Open(objects, plumbing.NewHash(commit))
	if err != nil {
		return false, err
	}
	same, err := s.reads.Unchanged(tree)
	if err != nil || !same || s.err == nil {
		return same, err
	}
	k, err := kustomizations.Read(ctx, n.ch)
	if err != nil {
		return false, err
	}
	changed, err := n.ch.Git(ctx, "diff", "--name-only", "--no-renames", "-z", "HEAD", commit)
	if err != nil {
		return false, err
	}
	dir := path.Clean(s.Spec.Path)
	return !slices.ContainsFunc(strings.Split(strings.TrimRight(changed, "\x00"), "\x00"), func(file string) bool {
		return dir == "." || strings.HasPrefix(file, dir+"/") || k.Reaches(dir, file, map[string]bool{})
	}), nil
}

// movedOf returns what a commit moves of a source that reads files which it changes.
func (n *narrowed) movedOf(s *sharer, commit string) []moved {
	err := s.err
	var set *plan.Set
	if err == nil {
		set, _, err = render.Commit(n.clone, s.GitSource, commit)
	}
	if err != nil {
		return n.unknown(s, err)
	}
	return n.between(s.templates, render.Templates(set), " of GitSource "+s.name())
}

// between returns what moves from some templates to others.
func (n *narrowed) between(was, is map[string]render.Template, of string) (others []moved) {
	own := n.release.Namespace + "/" + n.release.Spec.WorkloadRef.Name
	for _, key := range slices.Sorted(maps.Keys(merged(was, is))) {
		from, to := was[key], is[key]
		name := cmp.Or(from.Name, to.Name)
		m := moved{name: name}
		if kind := cmp.Or(from.Kind, to.Kind); of != "" || kind == "Deployment" {
			m.of = kind + " " + name + of
		}
		switch {
		case n.with[name], of == "" && key == own:
			continue
		case from.Kind == "BatchRelease" && to.Kind == "Deployment":
			m.how = "its plan would go"
		case from.PodTemplateSpec == nil:
			m.how = "it would be created"
		case to.PodTemplateSpec == nil:
			m.how = "it would go"
		case plan.EqualTemplate(from.PodTemplateSpec, to.PodTemplateSpec):
			continue
		default:
			m.how = movedHow(from.PodTemplateSpec, to.PodTemplateSpec)
		}
		others = append(others, m)
	}
	return others
}

func merged(a, b map[string]render.Template) map[string]render.Template {
	all := maps.Clone(a)
	maps.Copy(all, b)
	return all
}
