package manifest

import (
	"errors"
	"fmt"
	"path"
	"slices"
	"strings"

	"sigs.k8s.io/kustomize/api/types"
	"sigs.k8s.io/kustomize/kyaml/filesys"
	"sigs.k8s.io/kustomize/kyaml/kio"
	"sigs.k8s.io/kustomize/kyaml/yaml"

	"github.com/tranche-dev/tranche/plan"
)

// references is what a kustomization names, itself and through the kustomizations it
// names. They are gathered before kustomize runs. kustomize fetches whatever it takes for
// a URL, by HTTP or by running git, and has no option against that.
type references struct {
	fsys    filesys.FileSystem
	visited map[string]bool // folders with a kustomization, and files of objects
	// fetched are the remote bases that are there; nil: none may be named.
	fetched bases
	// missing are remote bases that are named and not there.
	missing []RemoteBase

	kustomizations []named
	list           []reference
	// openAPI: some kustomization brings a schema, which is a global
	// variable in kustomize.
	openAPI bool
	// refused: what Tranche does not do, whatever the options.
	refused plan.Problems
	// invalid: kustomizations that do not decode, which kustomize says of
	// the one that names them.
	invalid plan.Problems

	// uses are the kustomizations that name a folder, once for each time.
	uses map[string][]string
	// declared are the objects that are generated. opaque: the objects do not follow from the
	// files, see [references.filesOf].
	declared []declared
	opaque   bool
	naming
}

// reference is one path in one kustomization.
type reference struct {
	file  string // the kustomization, relative to the root
	field string // resources[2]
	path  string // as it stands there
	at    string // resolved, absolute; empty where remote
	// manifests: a file or folder of objects, which kustomize reads or
	// renders; else a file for other ends.
	manifests bool
	// folder: a folder, whose kustomization was gathered.
	folder bool
	// problem is what is wrong with a path that leaves the repository.
	problem error
}

func gather(fsys filesys.FileSystem, dir string, fetched bases) *references {
	r := &references{fsys: fsys, visited: map[string]bool{}, fetched: fetched, uses: map[string][]string{}}
	r.replaced = map[string]bool{}
	r.kustomization(dir, "")
	return r
}

// remote returns a problem for each reference that leaves the repository and
// may not.
func (r *references) remote() plan.Problems {
	var ps plan.Problems
	for _, ref := range r.list {
		if ref.problem == nil {
			continue
		}
		ps = append(ps, &plan.Problem{
			Reason: plan.ReasonRenderFailed, Where: plan.Where(ref.file, ref.field),
			Err:  fmt.Errorf("%s %w", ref.shown(), ref.problem),
			Hint: "commit a copy of it",
		})
	}
	return ps
}

// shown is the path for messages, unless it may be a value. That is a literal among the files of a
// Secret, or a manifest in place of its file.
func (r *reference) shown() string {
	if strings.Contains(r.field, "secretGenerator") || strings.ContainsAny(r.path, "\n{") || strings.Contains(r.path, ": ") {
		return "the path"
	}
	return withoutUserinfo(r.path)
}

// withoutUserinfo keeps a password in a URL out of conditions and logs (G13).
func withoutUserinfo(p string) string {
	scheme, rest, ok := strings.Cut(p, "://")
	if !ok {
		return p
	}
	authority, tail, slash := strings.Cut(rest, "/")
	if _, host, ok := strings.Cut(authority, "@"); ok {
		authority = host
	}
	if slash {
		authority += "/"
	}
	return scheme + "://" + authority + tail
}

// kustomization reads that of a folder, which the one in the folder by names.
func (r *references) kustomization(dir, by string) {
	real, file, err := r.fsys.CleanedAbs(dir)
	if err != nil || file != "" {
		return
	}
	r.uses[string(real)] = append(r.uses[string(real)], by)
	if r.visited[string(real)] {
		return
	}
	r.visited[string(real)] = true
	ahead(r.fsys, kustomizationNames(string(real)))
	for _, f := range kustomizationFiles(r.fsys, string(real)) {
		content, err := r.fsys.ReadFile(f)
		if err != nil {
			continue // kustomize meets the same error
		}
		var k types.Kustomization
		if err := k.Unmarshal(content); err != nil {
			r.invalid = append(r.invalid, undecoded(relative(f), dir, content, err))
			continue
		}
		if err := checkKustomization(content); err != nil {
			r.refused = append(r.refused, &plan.Problem{Reason: plan.ReasonRenderFailed, Where: relative(f), Err: err})
		}
		ahead(r.fsys, filesNamed(string(real), &k))
		r.fields(f, &k)
	}
}

// filesNamed are the files of the repository that a kustomization reads in most cases.
func filesNamed(dir string, k *types.Kustomization) []string {
	names := slices.Concat(k.Resources, k.Components)
	for _, p := range k.Patches {
		names = append(names, p.Path)
	}
	for _, g := range k.ConfigMapGenerator {
		for _, f := range g.FileSources {
			names = append(names, filePart(f))
		}
	}
	var files []string
	for _, name := range names {
		if name != "" && isPath(name) && !isRemote(name) && !path.IsAbs(name) {
			files = append(files, path.Join(dir, name))
		}
	}
	return files
}

// fields goes through every field of a kustomization that names a path.
func (r *references) fields(file string, k *types.Kustomization) {
	r.kustomizations = append(r.kustomizations, named{relative(file), *k})
	r.openAPI = r.openAPI || len(k.OpenAPI) > 0
	r.note(file, k)
	r.manifests(file, "resources", k.Resources)
	r.manifests(file, "bases", k.Bases)
	r.manifests(file, "components", k.Components)
	r.plugins(file, "generators", k.Generators)
	r.plugins(file, "transformers", k.Transformers)
	r.plugins(file, "validators", k.Validators)
	r.files(file, "configurations", k.Configurations)
	r.files(file, "crds", k.Crds)
	if p, ok := k.OpenAPI["path"]; ok {
		r.add(file, "openapi.path", p, false)
	}
	for i, p := range k.PatchesStrategicMerge {
		if isPath(string(p)) {
			r.add(file, fmt.Sprintf("patchesStrategicMerge[%d]", i), string(p), false)
		}
	}
	r.patches(file, "patches", k.Patches)
	r.patches(file, "patchesJson6902", k.PatchesJson6902)
	for i, p := range k.Replacements {
		r.optional(file, fmt.Sprintf("replacements[%d].path", i), p.Path)
	}
	for i, g := range k.ConfigMapGenerator {
		r.sources(file, fmt.Sprintf("configMapGenerator[%d]", i), g.KvPairSources)
	}
	for i, g := range k.SecretGenerator {
		r.sources(file, fmt.Sprintf("secretGenerator[%d]", i), g.KvPairSources)
	}
	if len(k.HelmCharts) > 0 || len(k.HelmChartInflationGenerator) > 0 || k.HelmGlobals != nil {
		r.refuse(file, "helmCharts", "charts are not rendered, since that needs helm and the network",
			"render the chart in CI and commit the result")
	}
}

func (r *references) refuse(file, field, fact, hint string) {
	r.refused = append(r.refused, &plan.Problem{
		Reason: plan.ReasonRenderFailed, Where: plan.Where(relative(file), field), Err: errors.New(fact), Hint: hint,
	})
}

// isPath tells a path from an inline patch.
func isPath(s string) bool { return !strings.ContainsAny(s, "\n{") }

func (r *references) patches(file, field string, patches []types.Patch) {
	for i, p := range patches {
		r.noteOptions(&p)
		r.optional(file, fmt.Sprintf("%s[%d].path", field, i), p.Path)
	}
}

func (r *references) sources(file, field string, s types.KvPairSources) {
	for i, f := range s.FileSources {
		r.add(file, fmt.Sprintf("%s.files[%d]", field, i), filePart(f), false)
	}
	for i, f := range s.EnvSources {
		r.add(file, fmt.Sprintf("%s.envs[%d]", field, i), f, false)
	}
	r.optional(file, field+".env", s.EnvSource)
}

// filePart is the path in name=path.
func filePart(s string) string {
	if _, p, ok := strings.Cut(s, "="); ok {
		return p
	}
	return s
}

func (r *references) optional(file, field, p string) {
	if p != "" {
		r.add(file, field, p, false)
	}
}

func (r *references) files(file, field string, paths []string) {
	for i, p := range paths {
		r.add(file, fmt.Sprintf("%s[%d]", field, i), p, false)
	}
}

func (r *references) manifests(file, field string, paths []string) {
	for i, p := range paths {
		ref, at := r.add(file, fmt.Sprintf("%s[%d]", field, i), p, true), len(r.list)-1
		switch {
		case ref.at == "":
		case r.fsys.IsDir(ref.at):
			r.list[at].folder = true
			r.kustomization(ref.at, path.Dir(file))
		case !r.visited[ref.at]:
			r.visited[ref.at] = true
			r.documents(ref.at)
		}
	}
}

// documents refuses a file of which kustomize would leave a document out.
func (r *references) documents(file string) {
	content, err := r.fsys.ReadFile(file)
	if err != nil {
		return // kustomize meets the same error
	}
	if err := checkFile(content); err != nil {
		r.refused = append(r.refused, &plan.Problem{Reason: plan.ReasonInvalidManifest, Where: relative(file), Err: err})
	}
}

func (r *references) add(file, field, p string, manifests bool) reference {
	ref := reference{file: relative(file), field: field, path: p, manifests: manifests}
	switch {
	case isRemote(p):
		r.outside(&ref)
	case path.IsAbs(p):
		ref.at = path.Clean(p)
	default:
		ref.at = path.Join(path.Dir(file), p)
	}
	if _, root, ok := r.fetched.of(file); ok && ref.at != "" && !isRemote(p) && !strings.HasPrefix(ref.at+"/", root+"/") {
		ref.at, ref.problem = "", errors.New("leaves its repository")
	}
	r.list = append(r.list, ref)
	return ref
}

// outside finds a remote base, and says what is wrong with what is none.
func (r *references) outside(ref *reference) {
	if r.fetched == nil {
		ref.problem = errors.New("is outside the repository, and remote bases are off")
		return
	}
	if !ref.manifests {
		ref.problem = errors.New("is outside the repository")
		return
	}
	base, _, err := parseRemoteBase(ref.path)
	if err != nil {
		ref.problem = err
		return
	}
	at, ok := r.fetched.at(ref.path)
	switch {
	case ok:
		ref.at = at
	case !slices.Contains(r.missing, base):
		r.missing = append(r.missing, base)
	}
}

// plugins goes through configurations of plugins, which stand in the
// kustomization itself, in a file, or come out of another kustomization.
func (r *references) plugins(file, field string, entries []string) {
	for i, e := range entries {
		field := fmt.Sprintf("%s[%d]", field, i)
		if !isPath(e) {
			r.pluginConfig(file, field, []byte(e))
			continue
		}
		ref := r.add(file, field, e, true)
		switch {
		case ref.at == "":
		case r.fsys.IsDir(ref.at):
			r.pluginFolder(ref.at)
		default:
			if content, err := r.fsys.ReadFile(ref.at); err == nil {
				r.pluginConfig(ref.at, "", content)
			}
		}
	}
}

// pluginFolder reads every file that a kustomization of plugin configurations
// names as one.
func (r *references) pluginFolder(dir string) {
	from := len(r.list)
	r.kustomization(dir, "")
	for _, ref := range r.list[from:] {
		if !ref.manifests || ref.at == "" || r.fsys.IsDir(ref.at) {
			continue
		}
		if content, err := r.fsys.ReadFile(ref.at); err == nil {
			r.pluginConfig(ref.at, "", content)
		}
	}
}

func (r *references) pluginConfig(file, field string, content []byte) {
	nodes, err := kio.FromBytes(content)
	if err != nil {
		return // kustomize meets the same error
	}
	for _, n := range nodes {
		switch {
		case n.YNode().Kind != yaml.MappingNode:
			r.refuse(file, field, "the configuration of a plugin is no object",
				"write it as apiVersion, kind and metadata.name with the plugin's fields")
		case n.GetApiVersion() != "builtin":
			r.refuse(file, field, "plugin "+n.GetKind()+": only kustomize's own plugins run", "render what it makes in CI and commit the result")
		case n.GetKind() == "HelmChartInflationGenerator":
			r.refuse(file, field, "charts are not rendered, since that needs helm and the network", "render the chart in CI and commit the result")
		case n.GetKind() == "SecretGenerator":
			r.pluginNode(file, plan.Where(field, "secretGenerator"), n.YNode(), "", false, 0)
		default:
			r.pluginNode(file, field, n.YNode(), "", false, 0)
		}
	}
}

// pluginPaths are the fields of kustomize's own plugins whose value is a path.
var pluginPaths = []string{"path", "paths", "files", "envs", "env", "targetFilePath"}

// maxDepth bounds recursion through aliases.
const maxDepth = 64

// pluginNode looks only for what is remote: whether a local path is there,
// kustomize says itself.
func (r *references) pluginNode(file, field string, n *yaml.Node, name string, isPathField bool, depth int) {
	if n == nil || depth > maxDepth {
		return
	}
	switch n.Kind {
	case yaml.ScalarNode:
		if p := filePart(n.Value); isPathField && isPath(n.Value) && (isRemote(p) || isRemote(n.Value)) {
			r.add(file, plan.Where(field, name), p, false)
		}
	case yaml.AliasNode:
		r.pluginNode(file, field, n.Alias, name, isPathField, depth+1)
	case yaml.MappingNode:
		for i := 0; i+1 < len(n.Content); i += 2 {
			k := n.Content[i].Value
			r.pluginNode(file, field, n.Content[i+1], k, isOneOf(k, pluginPaths), depth+1)
		}
	default:
		for _, c := range n.Content {
			r.pluginNode(file, field, c, name, isPathField, depth+1)
		}
	}
}

// isOneOf ignores case, as kustomize's decoder does.
func isOneOf(s string, list []string) bool {
	for _, l := range list {
		if strings.EqualFold(s, l) {
			return true
		}
	}
	return false
}
