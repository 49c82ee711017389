package manifest

import (
	"errors"
	"fmt"
	"path"
	"regexp"
	"slices"
	"strings"
	"sync"

	"sigs.k8s.io/kustomize/api/konfig"
	"sigs.k8s.io/kustomize/api/krusty"
	"sigs.k8s.io/kustomize/api/provenance"
	"sigs.k8s.io/kustomize/api/resmap"
	"sigs.k8s.io/kustomize/api/types"
	"sigs.k8s.io/kustomize/kyaml/filesys"
	"sigs.k8s.io/kustomize/kyaml/kio"
	"sigs.k8s.io/kustomize/kyaml/openapi"
	"sigs.k8s.io/kustomize/kyaml/yaml"

	"github.com/tranche-dev/tranche/plan"
)

// openAPI guards kustomize's OpenAPI schema, a global variable. Builds that only read it
// run side by side, once it has been parsed. A build that brings its own runs alone, and
// the built-in one is put back after it (G17).
var openAPI struct {
	sync.RWMutex
	warm sync.Once
}

// withSchema runs a build under the lock that it needs.
func withSchema(own bool, build func()) {
	openAPI.warm.Do(func() { openapi.Schema() })
	if !own {
		openAPI.RLock()
		defer openAPI.RUnlock()
		build()
		return
	}
	openAPI.Lock()
	defer openAPI.Unlock()
	defer func() {
		openapi.ResetOpenAPI()
		openapi.Schema()
	}()
	build()
}

// renderKustomization renders the kustomization in dir. Remote bases are refused where
// fetched is nil. A panic of kustomize's libraries is a problem of the kustomization.
func renderKustomization(fsys filesys.FileSystem, dir string, fetched bases) (objects []plan.Object, err error) {
	read := &reads{fsys, map[string]bool{}}
	fsys = read
	refs := &references{}
	defer func() {
		if p := recover(); p != nil {
			objects, err = nil, read.said(refs, fmt.Errorf("kustomize panicked: %v", p), dir, relative(dir))
		}
	}()
	refs = gather(fsys, dir, fetched)
	if err := fetched.name(append(slices.Clone(refs.refused), refs.remote()...)).Err(); err != nil {
		return nil, err
	}
	if len(refs.missing) > 0 {
		return nil, &MissingBasesError{refs.missing}
	}
	if len(fetched) > 0 {
		fsys = &basesFS{fsys, fetched}
	}
	root := relative(dir)
	if files := kustomizationFiles(fsys, dir); len(files) == 1 {
		root = relative(files[0])
	}
	withSchema(refs.openAPI, func() { objects, err = build(fsys, dir, root, refs) })
	if err != nil {
		if ps := refs.explain(); len(ps) > 0 {
			return nil, fetched.name(ps).Sorted()
		}
		return nil, fetched.name(plan.Problems{read.said(refs, err, dir, root)})[0]
	}
	var ps plan.Problems
	for _, o := range objects {
		ps = append(ps, o.CheckIdentity()...)
	}
	if err := ps.Err(); err != nil {
		return nil, err
	}
	return objects, nil
}

// build runs kustomize. If the files of the objects do not follow from what the kustomizations
// name, build runs it again with its tracking of origins on.
func build(fsys filesys.FileSystem, dir, root string, refs *references) ([]plan.Object, error) {
	m, err := run(fsys, dir)
	if err != nil {
		return nil, err
	}
	files, ok := refs.filesOf(m, root, refs.fetched)
	if !ok {
		files = trackedFiles(fsys, m, dir, root, refs.fetched)
	}
	return toObjects(m, files)
}

// trackedFiles returns the files of the objects as kustomize tracks them. It is the root for
// all if the build with tracking has other objects.
func trackedFiles(fsys filesys.FileSystem, m resmap.ResMap, dir, root string, fetched bases) []string {
	with := m
	if edited, ok := track(fsys, rooted(root)); ok {
		tracked, err := run(edited, dir)
		if err != nil || tracked.Size() != m.Size() {
			return slices.Repeat([]string{root}, m.Size())
		}
		with = tracked
	}
	return origins(fsys, with, dir, root, fetched)
}

// run is one build. A panic inside kustomize is an error of this build: a
// schema that does not parse is one, and must not end the process.
func run(fsys filesys.FileSystem, dir string) (m resmap.ResMap, err error) {
	defer func() {
		if p := recover(); p != nil {
			err = fmt.Errorf("kustomize panicked: %v", p)
		}
	}()
	o := krusty.MakeDefaultOptions()
	o.Reorder = krusty.ReorderOptionUnspecified // the kustomization's own order, else kubectl's
	o.LoadRestrictions = types.LoadRestrictionsNone
	if m, err = krusty.MakeKustomizer(o).Run(fsys, dir); err != nil {
		return nil, err
	}
	return m, nameKustomize(m)
}

// kustomizeVersion is that of the kustomize in kubectl. The corpus of gitsync
// holds the two equal.
const kustomizeVersion = "v5.8.1"

// nameKustomize puts right the label that buildMetadata: [managedByLabel] asks for. As a
// library, kustomize takes the version of the program that it is in for its own. That of
// a program built outside Git is "(devel)", no label value.
func nameKustomize(m resmap.ResMap) error {
	said := "kustomize-" + provenance.GetProvenance().Semver()
	for _, r := range m.Resources() {
		labels := r.GetLabels()
		if labels[konfig.ManagedbyLabelKey] != said {
			continue
		}
		labels[konfig.ManagedbyLabelKey] = "kustomize-" + kustomizeVersion
		if err := r.SetLabels(labels); err != nil {
			return fmt.Errorf("setting the label %s of %s: %w", konfig.ManagedbyLabelKey, r.OrgId(), err)
		}
	}
	return nil
}

func toObjects(m resmap.ResMap, files []string) ([]plan.Object, error) {
	objects := make([]plan.Object, 0, m.Size())
	for i, r := range m.Resources() {
		data, err := r.MarshalJSON()
		if err != nil {
			return nil, err
		}
		o, err := ObjectOf(data, files[i])
		if err != nil {
			return nil, err
		}
		objects = append(objects, o)
	}
	return objects, nil
}

// origins returns the file of each object: its own, or the kustomization that generated
// it. It is the root if kustomize does not say, or if the file is one of a remote base.
// It is the root as well if what kustomize says is no file: it takes ".." of a folder
// that is a link for the link's parent.
func origins(fsys filesys.FileSystem, m resmap.ResMap, dir, root string, fetched bases) []string {
	files := make([]string, 0, m.Size())
	for _, r := range m.Resources() {
		file := root
		if o, err := r.GetOrigin(); err == nil && o != nil && o.Repo == "" {
			switch {
			case o.Path != "":
				file = relative(path.Join(dir, o.Path))
			case o.ConfiguredIn != "":
				file = relative(path.Join(dir, o.ConfiguredIn))
			}
		}
		if _, _, remote := fetched.of(file); remote || !fsys.Exists(rooted(file)) {
			file = root
		}
		files = append(files, file)
	}
	return files
}

// trackingFS is a file system in which one kustomization asks for the tracking
// of origins.
type trackingFS struct {
	filesys.FileSystem
	file    string
	content []byte
}

func (t *trackingFS) ReadFile(name string) ([]byte, error) {
	if name == t.file {
		return t.content, nil
	}
	return t.FileSystem.ReadFile(name)
}

// track returns a file system that has the kustomization with the option. It is false if the
// new text would not mean the same to kustomize apart from the option, or has it already.
func track(fsys filesys.FileSystem, file string) (*trackingFS, bool) {
	content, err := fsys.ReadFile(file)
	if err != nil {
		return nil, false
	}
	var k types.Kustomization
	if err := k.Unmarshal(content); err != nil || slices.Contains(k.BuildMetadata, types.OriginAnnotations) {
		return nil, false
	}
	k.BuildMetadata = append(k.BuildMetadata, types.OriginAnnotations)
	edited, ok := asJSON(&k)
	if !ok {
		return nil, false // JSON that is read as YAML and means something else there
	}
	return &trackingFS{fsys, file, edited}, true
}

// explain looks for what is commonly wrong, and says it with file and line.
// kustomize's own words wrap one fact in four others.
func (r *references) explain() plan.Problems {
	ps := slices.Clone(r.invalid)
	for i := range r.kustomizations {
		ps = append(ps, r.kustomizations[i].explainEntries(r.fsys)...)
	}
	for _, ref := range r.list {
		if ref.at == "" {
			continue
		}
		at := plan.Where(ref.file, ref.field)
		switch dir := r.fsys.IsDir(ref.at); {
		case dir && ref.manifests && !isKustomization(r.fsys, ref.at):
			ps = append(ps, &plan.Problem{
				Reason: plan.ReasonRenderFailed, Where: at, Err: fmt.Errorf("%s: no kustomization in this folder", ref.shown()),
				Hint: "name its files one by one, or add a kustomization.yaml there",
			})
		case dir && !ref.manifests:
			ps = append(ps, &plan.Problem{Reason: plan.ReasonRenderFailed, Where: at, Err: fmt.Errorf("%s: is a folder", ref.shown())})
		case dir:
		default:
			ps = append(ps, r.explainFile(ref)...)
		}
	}
	return ps
}

func (r *references) explainFile(ref reference) plan.Problems {
	content, err := r.fsys.ReadFile(ref.at)
	switch {
	case err != nil && !r.fsys.Exists(ref.at):
		return plan.Problems{
			{
				Reason: plan.ReasonRenderFailed, Where: plan.Where(ref.file, ref.field),
				Err: fmt.Errorf("%s: no such file in the repository", ref.shown()),
			},
		}
	case err != nil:
		return plan.Problems{{Reason: plan.ReasonRenderFailed, Where: plan.Where(ref.file, ref.field), Err: err}}
	case ref.manifests:
		_, ps := parseManifests(relative(ref.at), content)
		if len(ps) == 0 {
			ps = keysThatAreNoText(relative(ref.at), content)
		}
		return ps
	}
	return nil
}

// keysThatAreNoText finds the keys of which kustomize can make no JSON, though
// plain YAML takes them as text.
func keysThatAreNoText(file string, content []byte) plan.Problems {
	nodes, err := kio.FromBytes(content)
	if err != nil {
		return nil
	}
	var ps plan.Problems
	for _, n := range nodes {
		if k := keyThatIsNoText(n.YNode(), 0); k != nil {
			ps = append(ps, &plan.Problem{
				Reason: plan.ReasonInvalidManifest, Where: plan.Where(file, n.GetKind()),
				Err: fmt.Errorf("the key %s is no text", k.Value), Hint: "put it in quotes",
			})
		}
	}
	return ps
}

func keyThatIsNoText(n *yaml.Node, depth int) *yaml.Node {
	if depth > maxDepth {
		return nil
	}
	for i, c := range n.Content {
		isKey := n.Kind == yaml.MappingNode && i%2 == 0
		if isKey && c.Kind == yaml.ScalarNode && c.ShortTag() != yaml.NodeTagString && c.ShortTag() != "!!merge" {
			return c
		}
		if k := keyThatIsNoText(c, depth+1); k != nil {
			return k
		}
	}
	return nil
}

// wayThere is what kustomize says before the fact: how it got there.
var wayThere = regexp.MustCompile(`^(accumulation err='([^']|'[^']*')*?'|accumulating (resources|components)( from '[^']*')?|` +
	`recursed (accumulation of|merging from) path '[^']*'|invalid Kustomization): `)

// secondTry matches kustomize's error if a file did not go in as one. It is the fact, and
// after it that the file is no folder either.
var secondTry = regexp.MustCompile(`^(?:accumulating resources: )?` +
	`accumulation err='(?:(?:merging|accumulating) resources from '[^']*': )?(.*)': must build at directory: .* file is not directory$`)

// maxText is how much of kustomize's own words is passed on.
const maxText = 300

// shorten takes from kustomize's words what only says how it got there.
func shorten(err error, dir string) error {
	text := strings.Join(strings.Fields(err.Error()), " ")
	for wayThere.MatchString(text) {
		if m := secondTry.FindStringSubmatch(text); m != nil {
			text = m[1]
			continue
		}
		text = wayThere.ReplaceAllString(text, "")
	}
	text = strings.ReplaceAll(text, "'"+dir+"/", "'")
	if len(text) > maxText {
		text = text[:maxText] + "…"
	}
	return errors.New(text)
}
