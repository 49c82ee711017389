package commit

import (
	"context"
	"errors"
	"fmt"
	"path"
	"slices"
	"strings"

	"go.yaml.in/yaml/v3"
	"sigs.k8s.io/kustomize/api/konfig"

	"github.com/tranche-dev/tranche/cmd/tranche/clone"
	"github.com/tranche-dev/tranche/cmd/tranche/yamlnode"
	"github.com/tranche-dev/tranche/plan"
)

// kustomizations are those of a commit, by folder, with the files and folders that
// each of them names.
type kustomizations map[string]kustomization

type kustomization struct {
	file string
	refs []string
}

// readKustomizations reads the kustomizations of a worktree.
func readKustomizations(ctx context.Context, ch *clone.Change) (kustomizations, error) {
	list, err := ch.Git(ctx, "ls-files", "-z")
	if err != nil {
		return nil, err
	}
	found := kustomizations{}
	for file := range strings.SplitSeq(list, "\x00") {
		if !slices.Contains(konfig.RecognizedKustomizationFileNames(), path.Base(file)) {
			continue
		}
		text, err := ch.Read(ctx, file)
		if err != nil {
			continue // such as a link: the controller names the problem where it matters
		}
		var k struct{ Resources, Bases, Components []string }
		if yaml.Unmarshal([]byte(text), &k) != nil {
			continue
		}
		dir := path.Dir(file)
		one := kustomization{file: file}
		for _, ref := range slices.Concat(k.Resources, k.Bases, k.Components) {
			one.refs = append(one.refs, path.Join(dir, ref))
		}
		found[dir] = one
	}
	return found, nil
}

// reaches reports whether a kustomization takes a file, by itself or by another one.
func (k kustomizations) reaches(dir, file string, seen map[string]bool) bool {
	if seen[dir] {
		return false
	}
	seen[dir] = true
	return slices.ContainsFunc(k[dir].refs, func(ref string) bool { return ref == file || k.reaches(ref, file, seen) })
}

// takers are the kustomizations that take a file and that no other one takes, and those
// of some folders.
func (k kustomizations) takers(file string, also []string) []string {
	below := map[string]bool{}
	for _, one := range k {
		for _, ref := range one.refs {
			below[ref] = true
		}
	}
	var dirs []string
	for dir := range k {
		if (!below[dir] || slices.Contains(also, dir)) && k.reaches(dir, file, map[string]bool{}) {
			dirs = append(dirs, dir)
		}
	}
	slices.Sort(dirs)
	return dirs
}

// alsoGoverned returns what else the file of a plan governs. These are GitSources of the
// same branch that this account may read, and kustomizations that no such GitSource has.
func (st *commitCommand) alsoGoverned(ctx context.Context, k kustomizations, file string) []string {
	own := path.Clean(st.source.Spec.Path)
	sources := map[string][]string{} // by path
	for _, gs := range st.otherSources(ctx) {
		at := path.Clean(gs.Spec.Path)
		sources[at] = append(sources[at], gs.Namespace+"/"+gs.Name)
	}
	var paths, also []string
	for p := range sources {
		paths = append(paths, p)
	}
	takers := k.takers(file, paths)
	for p := range sources { // the own path, and folders of plain YAML, too
		_, built := k[p]
		if inside := p == "." || strings.HasPrefix(file, p+"/"); !slices.Contains(takers, p) && (p == own || inside && !built) {
			takers = append(takers, p)
		}
	}
	for _, dir := range takers {
		for _, name := range sources[dir] {
			also = append(also, "GitSource "+name+" ("+dir+")")
		}
		if dir != own && sources[dir] == nil {
			also = append(also, dir)
		}
	}
	slices.Sort(also)
	return also
}

// tried renders the worktree as it is now.
func (st *commitCommand) tried(ctx context.Context, ch *clone.Change) (*plan.Set, error) {
	tree, err := ch.Git(ctx, "write-tree")
	if err != nil {
		return nil, err
	}
	commit, err := ch.Git(ctx, "commit-tree", "-m", "tried", tree)
	if err != nil {
		return nil, err
	}
	set, _, err := st.set(commit)
	return set, err
}

// alsoPaused are the other releases of the source whose spec.paused a change sets, too.
func (st *commitCommand) alsoPaused(before, after *plan.Set) []string {
	was := map[string]bool{}
	for i := range before.Releases {
		was[planName(&before.Releases[i])] = before.Releases[i].Plan.Spec.Paused
	}
	var also []string
	for i := range after.Releases {
		r := &after.Releases[i]
		if name := planName(r); name != st.release.Namespace+"/"+st.release.Name && was[name] != r.Plan.Spec.Paused {
			also = append(also, "BatchRelease "+name)
		}
	}
	return also
}

// pausePatch is the patch of a kustomization that sets spec.paused of a plan.
func pausePatch(indent, name string, paused bool) string {
	lines := []string{
		"- target: {kind: BatchRelease, name: " + name + "}",
		"  patch: |-",
		"    - op: add",
		"      path: /spec/paused",
		fmt.Sprintf("      value: %t", paused),
	}
	return indent + strings.Join(lines, "\n"+indent) + "\n"
}

// addPausePatch adds the patch to the text of a kustomization, and changes nothing else.
func addPausePatch(text, name string, paused bool) (string, error) {
	root, err := rootOf(text)
	if err != nil {
		return "", err
	}
	patches := yamlnode.ValueOf(root, "patches").Node
	if patches == nil {
		if text != "" && !strings.HasSuffix(text, "\n") {
			text += "\n"
		}
		return text + "patches:\n" + pausePatch("", name, paused), nil
	}
	if patches.Kind != yaml.SequenceNode || patches.Style&yaml.FlowStyle != 0 || len(patches.Content) == 0 {
		return "", errors.New("patches is not a list with one entry below the other; add the patch of spec.paused by hand")
	}
	lines := strings.SplitAfter(text, "\n")
	at := patches.Content[0].Line - 1
	indent := lines[at][:strings.Index(lines[at], "-")]
	return strings.Join(slices.Insert(lines, at, pausePatch(indent, name, paused)), ""), nil
}

// dropPausePatch takes the patch out of the text of a kustomization. It reports whether
// there was one.
func dropPausePatch(text, name string) (string, bool) {
	root, err := rootOf(text)
	if err != nil {
		return text, false
	}
	patches := yamlnode.ValueOf(root, "patches").Node
	if patches == nil || patches.Kind != yaml.SequenceNode || patches.Style&yaml.FlowStyle != 0 {
		return text, false
	}
	lines := strings.SplitAfter(text, "\n")
	for i, item := range patches.Content {
		target, patch := yamlnode.ValueOf(yamlnode.Of(item), "target"), yamlnode.ValueOf(yamlnode.Of(item), "patch").Text()
		if yamlnode.ValueOf(target, "kind").Text() != "BatchRelease" || yamlnode.ValueOf(target, "name").Text() != name || !isPausePatch(patch) {
			continue
		}
		from := item.Line - 1
		dash := strings.Index(lines[from], "-")
		to := from + 1
		for to < len(lines) && (strings.TrimSpace(lines[to]) == "" || indentOf(lines[to]) > dash) {
			to++
		}
		if len(patches.Content) == 1 {
			from = keyLine(root, "patches") - 1
		}
		for i+1 == len(patches.Content) && to > from+1 && strings.TrimSpace(lines[to-1]) == "" {
			to-- // what separates it from what follows stays
		}
		return strings.Join(slices.Delete(lines, from, to), ""), true
	}
	return text, false
}

// isPausePatch reports whether a patch sets spec.paused, and nothing else.
func isPausePatch(patch string) bool {
	var ops []struct{ Op, Path string }
	return yaml.Unmarshal([]byte(patch), &ops) == nil && len(ops) == 1 && ops[0].Path == "/spec/paused"
}

func indentOf(line string) int { return len(line) - len(strings.TrimLeft(line, " ")) }

// rootOf is the mapping of a file with one document.
func rootOf(text string) (yamlnode.Node, error) {
	var doc yaml.Node
	if err := yaml.Unmarshal([]byte(text), &doc); err != nil {
		return yamlnode.Node{}, fmt.Errorf("reading it as YAML: %w", err)
	}
	if len(doc.Content) != 1 || doc.Content[0].Kind != yaml.MappingNode || doc.Content[0].Style&yaml.FlowStyle != 0 {
		return yamlnode.Node{}, errors.New("is not a mapping with one key below the other; edit it by hand")
	}
	return yamlnode.Of(doc.Content[0]), nil
}

// keyLine is the line of a key of a mapping, from 1.
func keyLine(n yamlnode.Node, key string) int {
	for i := 0; i+1 < len(n.Content); i += 2 {
		if n.Content[i].Value == key {
			return n.Content[i].Line
		}
	}
	return 0
}
