package manifest

import (
	"bytes"
	"errors"
	"io"
	"path"
	"regexp"
	"slices"
	"strings"

	"sigs.k8s.io/kustomize/api/resmap"
	"sigs.k8s.io/kustomize/api/types"
	"sigs.k8s.io/kustomize/kyaml/yaml"
)

// declared is an object that the kustomization in the folder by reads from a file, or
// generates. Rendering may put text before and after its name.
type declared struct{ kind, name, file, by string }

// naming is what rendering may do to names. renames: they get a prefix or a suffix. replaced
// are those in whose place a patch may put others.
type naming struct {
	renames  bool
	replaced map[string]bool
}

// note finds what else than names tells the objects of a kustomization apart. The objects of
// a plugin are not known, and neither is a name that was replaced.
func (r *references) note(file string, k *types.Kustomization) {
	r.renames = r.renames || k.NamePrefix != "" || k.NameSuffix != ""
	r.opaque = r.opaque || len(k.Generators)+len(k.Transformers)+len(k.Replacements)+len(k.Configurations)+len(k.OpenAPI) > 0
	for i := range k.ConfigMapGenerator {
		r.generates(file, "ConfigMap", &k.ConfigMapGenerator[i].GeneratorArgs)
	}
	for i := range k.SecretGenerator {
		r.generates(file, "Secret", &k.SecretGenerator[i].GeneratorArgs)
	}
}

// plain is a name that is no pattern.
var plain = regexp.MustCompile(`^[a-z0-9-]+$`)

// noteOptions finds what a patch may do to kinds and names. It selects objects by the names in
// their files, and by those that they have by then.
func (r *references) noteOptions(p *types.Patch) {
	switch {
	case p.Options == nil:
	case p.Options.AllowKindChange:
		r.opaque = true
	case p.Options.AllowNameChange && (p.Target == nil || !plain.MatchString(p.Target.Name)):
		r.opaque = true
	case p.Options.AllowNameChange:
		r.replaced[p.Target.Name] = true
	}
}

func (r *references) generates(file, kind string, g *types.GeneratorArgs) {
	switch types.NewGenerationBehavior(g.Behavior) {
	case types.BehaviorUnspecified, types.BehaviorCreate:
		r.declared = append(r.declared, declared{kind, g.Name, relative(file), path.Dir(file)})
	default:
		r.opaque = true // it adds to an object of another file
	}
}

// filesOf returns the file of each object that was rendered, as [origins] does, without
// kustomize's tracking, which takes a third of a rendering. It is false if a file is not certain.
func (r *references) filesOf(m resmap.ResMap, root string, fetched bases) ([]string, bool) {
	if r.opaque || len(r.invalid) > 0 || r.renames && len(r.replaced) > 0 {
		return nil, false
	}
	all, ok := r.readDeclared()
	if ok {
		all = r.repeat(all, m.Size())
	}
	if !ok || len(all) != m.Size() {
		return nil, false
	}
	rendered := make([]declared, 0, m.Size())
	for _, o := range m.Resources() {
		rendered = append(rendered, declared{kind: o.GetKind(), name: o.GetName()})
	}
	if !r.match(rendered, all) {
		return nil, false
	}
	files := make([]string, 0, len(rendered))
	for _, o := range rendered {
		if _, _, remote := fetched.of(o.file); remote {
			o.file = root
		}
		files = append(files, o.file)
	}
	return files, true
}

// readDeclared adds the objects of the files to those that are generated.
func (r *references) readDeclared() ([]declared, bool) {
	all := r.declared
	for _, ref := range r.list {
		if !ref.manifests || ref.folder {
			continue
		}
		content, err := r.fsys.ReadFile(ref.at)
		if err != nil {
			return nil, false
		}
		decoder := yaml.NewDecoder(bytes.NewReader(content))
		for {
			var o yaml.ResourceMeta
			err := decoder.Decode(&o)
			if errors.Is(err, io.EOF) {
				break
			}
			if err != nil || o.Kind == "" && o.Name != "" || strings.HasSuffix(o.Kind, "List") {
				return nil, false
			}
			if o.Kind != "" {
				all = append(all, declared{o.Kind, o.Name, relative(ref.at), rooted(path.Dir(ref.file))})
			}
		}
	}
	return all, true
}

// repeat returns each object as often as its file is used, and not many more than so many.
func (r *references) repeat(all []declared, most int) []declared {
	times := map[string]int{}
	var list []declared
	for _, d := range all {
		for range r.timesUsed(d.by, times, most) {
			list = append(list, d)
		}
		if len(list) > most {
			break
		}
	}
	return list
}

// timesUsed returns how often the kustomization in a folder is used, or more than most.
func (r *references) timesUsed(dir string, known map[string]int, most int) int {
	if n, ok := known[dir]; ok {
		return n
	}
	known[dir] = 0 // a cycle ends here, which kustomize does not render
	n := 0
	for _, by := range r.uses[dir] {
		if by == "" {
			n++
		} else {
			n += r.timesUsed(by, known, most)
		}
		n = min(n, most+1)
	}
	known[dir] = n
	return n
}

// matched is how many objects of a kind may have other names than those of their files.
const matched = 64

// match sets the files of the rendered objects. Each gets an object of its kind whose name is
// in its own name. It is false unless there is exactly one way to do so, as far as files go.
func (n *naming) match(rendered, all []declared) bool {
	byKind := map[string][]declared{}
	for _, d := range all {
		byKind[d.kind] = append(byKind[d.kind], d)
	}
	open := map[string][]*declared{}
	for i := range rendered {
		open[rendered[i].kind] = append(open[rendered[i].kind], &rendered[i])
	}
	for kind, objects := range open {
		from := byKind[kind]
		if len(objects) != len(from) {
			return false
		}
		if !n.renames {
			objects, from = n.matchNames(objects, from)
		}
		isReplaced := slices.ContainsFunc(from, func(d declared) bool { return n.replaced[d.name] })
		switch {
		case matchFile(objects, from):
		case isReplaced || len(objects) > matched || !matchParts(objects, from):
			return false
		}
	}
	return true
}

// matchFile gives the objects the one file that all have.
func matchFile(objects []*declared, from []declared) bool {
	if slices.ContainsFunc(from, func(d declared) bool { return d.file != from[0].file }) {
		return false
	}
	for _, o := range objects {
		o.file = from[0].file
	}
	return true
}

// matchNames gives the objects with the name of exactly one file that file, and returns the
// rest. An object whose name a patch may have replaced is of the rest.
func (n *naming) matchNames(objects []*declared, from []declared) ([]*declared, []declared) {
	rendered, count, file := map[string]int{}, map[string]int{}, map[string]string{}
	for _, o := range objects {
		rendered[o.name]++
	}
	for _, d := range from {
		count[d.name]++
		if !n.replaced[d.name] {
			file[d.name] = d.file
		}
	}
	var open []*declared
	var left []declared
	isOne := func(name string) bool { return rendered[name] == 1 && count[name] == 1 && file[name] != "" }
	for _, o := range objects {
		if isOne(o.name) {
			o.file = file[o.name]
		} else {
			open = append(open, o)
		}
	}
	for _, d := range from {
		if !isOne(d.name) {
			left = append(left, d)
		}
	}
	return open, left
}

// matchParts gives objects their files, one after the other. The next one has just one name
// in its own, or a name that is in that of no other object. If just one assignment exists,
// such an object is always left. Objects of a base that is used twice have one name and file.
func matchParts(objects []*declared, from []declared) bool {
	for len(objects) > 0 {
		o, d, ok := onlyPair(objects, from)
		if !ok {
			return false
		}
		objects[o].file = from[d].file
		objects[o], objects = objects[len(objects)-1], objects[:len(objects)-1]
		from[d], from = from[len(from)-1], from[:len(from)-1]
	}
	return true
}

// onlyPair returns an object and a name of which at least one fits nothing else.
func onlyPair(objects []*declared, from []declared) (object, name int, ok bool) {
	of, last := make([]int, len(from)), make([]int, len(from))
	for i, o := range objects {
		n, fits := 0, 0
		for j, d := range from {
			if !strings.Contains(o.name, d.name) {
				continue
			}
			of[j], last[j] = of[j]+1, i
			if n == 0 || d.name != from[fits].name || d.file != from[fits].file {
				n, fits = n+1, j
			}
		}
		if n == 1 {
			return i, fits, true
		}
	}
	for j, n := range of {
		if n == 1 {
			return last[j], j, true
		}
	}
	return 0, 0, false
}
