package manifest

import (
	"errors"
	"fmt"
	"io/fs"
	"path"
	"slices"
	"strings"
	"unicode"

	"sigs.k8s.io/kustomize/api/konfig"
	"sigs.k8s.io/kustomize/kyaml/filesys"

	"github.com/tranche-dev/tranche/plan"
)

// RenderOptions say what to render, and what not.
type RenderOptions struct {
	// Skip is a folder that is left out, from the repository's root: the
	// one with the approvals. Empty: none.
	Skip string
	// Bases are the remote bases that kustomizations may name, and the folder of the file
	// system that each is in. If one is missing, the error is a [*MissingBasesError]; a
	// base may name others. nil: remote bases are refused. Nothing is fetched.
	Bases map[RemoteBase]string
	// Ignored is called for each part of the folder that is left out and is no error. It
	// may be nil.
	Ignored func(*plan.Problem)
}

// ErrSubmodule is what a file system says of a path that is a submodule or
// lies in one. Render leaves submodules out of plain YAML, and says so.
var ErrSubmodule = errors.New("submodules are not followed")

// Render returns the objects of a folder, from the root of fsys. They are those of its
// kustomization, or of the plain YAML below it. In plain YAML, a sub-folder with a
// kustomization of its own is rendered as one, and names that begin with a dot are left
// out. A folder that links lead to twice is read once.
//
// The error is [plan.Problems], a [*plan.Problem] or a [*MissingBasesError].
func Render(fsys filesys.FileSystem, dir string, opts RenderOptions) ([]plan.Object, error) {
	r := renderer{fsys: fsys, bases: opts.Bases, seen: map[string]bool{}, ignored: opts.Ignored}
	if opts.Skip != "" {
		r.skip = rooted(opts.Skip)
	}
	r.folder(rooted(dir))
	if p := storageProblem(fsys, plan.ReasonRenderFailed, dir); p != nil {
		return nil, p
	}
	if err := r.problems.Err(); err != nil {
		return nil, err
	}
	if len(r.missing) > 0 {
		return nil, &MissingBasesError{r.missing}
	}
	return r.objects, nil
}

// storageProblem returns what went wrong below a file system whose answers are only yes
// and no: "not there" may have been "cannot be read" (G1). Errors that are in the file
// system's own words stay as they are.
func storageProblem(fsys filesys.FileSystem, reason, dir string) *plan.Problem {
	f, ok := fsys.(interface{ Err() error })
	if !ok || f.Err() == nil {
		return nil
	}
	if p, ok := errors.AsType[*plan.Problem](f.Err()); ok {
		return p
	}
	return &plan.Problem{Reason: reason, Where: relative(rooted(dir)), Err: f.Err(), Retry: true}
}

type renderer struct {
	fsys    filesys.FileSystem
	skip    string
	bases   bases
	seen    map[string]bool // folders, by their real path
	ignored func(*plan.Problem)

	objects  []plan.Object
	problems plan.Problems
	missing  []RemoteBase
}

func (r *renderer) folder(dir string) {
	real, file, err := r.fsys.CleanedAbs(dir)
	if err != nil || file != "" {
		r.problems = append(r.problems, &plan.Problem{
			Reason: plan.ReasonRenderFailed, Where: relative(dir), Err: errors.New("no such folder in the repository"),
			Hint: "set spec.path to one that is there; if all of it has moved to another GitSource, keep one object here until that one " +
				"has the rest",
		})
		return
	}
	if r.seen[string(real)] {
		return // two links to one folder, or a link to a parent
	}
	r.seen[string(real)] = true
	ahead(r.fsys, kustomizationNames(string(real)))
	if isKustomization(r.fsys, string(real)) {
		objects, err := renderKustomization(r.fsys, string(real), r.bases)
		if e, ok := errors.AsType[*MissingBasesError](err); ok {
			r.missing = append(r.missing, e.Bases...)
			return
		}
		r.objects = append(r.objects, objects...)
		r.problems = append(r.problems, asProblems(err)...)
		return
	}
	r.plain(dir)
}

func (r *renderer) plain(dir string) {
	names, err := r.fsys.ReadDir(dir)
	if err != nil {
		r.problems = append(r.problems, &plan.Problem{Reason: plan.ReasonRenderFailed, Where: relative(dir), Err: err})
		return
	}
	slices.Sort(names)
	ahead(r.fsys, manifestsOf(dir, names))
	for _, name := range names {
		at := path.Join(dir, name)
		switch {
		case strings.HasPrefix(name, ".") || at == r.skip:
		case r.fsys.IsDir(at):
			r.folder(at)
		case isManifest(name):
			objects, ps := readManifests(r.fsys, at)
			r.objects = append(r.objects, objects...)
			r.problems = append(r.problems, ps...)
		default:
			r.passBy(at)
		}
	}
}

// passBy makes sure that what is not read is only a file of another kind. A link out of
// the repository is an error: its objects would be missing. So is a manifest's ending in other
// letters. A submodule is reported to ignored.
func (r *renderer) passBy(at string) {
	_, _, err := r.fsys.CleanedAbs(at)
	switch {
	case err == nil && inOtherLetters(at):
		r.problems = append(r.problems, &plan.Problem{
			Reason: plan.ReasonRenderFailed, Where: relative(at), Err: errOtherLetters, Hint: "rename it to " + inLowerCase(at),
		})
	case err == nil || errors.Is(err, fs.ErrNotExist):
	case !errors.Is(err, ErrSubmodule):
		r.problems = append(r.problems, &plan.Problem{Reason: plan.ReasonRenderFailed, Where: relative(at), Err: err})
	case r.ignored != nil:
		r.ignored(&plan.Problem{
			Reason: plan.ReasonSubmoduleIgnored, Where: relative(at),
			Err:  errors.New("is a submodule, and what is in it is not applied"),
			Hint: "move its files into this repository, or follow the other one with a GitSource of its own",
		})
	}
}

func readManifests(fsys filesys.FileSystem, file string) ([]plan.Object, plan.Problems) {
	content, err := fsys.ReadFile(file)
	if err != nil {
		return nil, plan.Problems{{Reason: plan.ReasonInvalidManifest, Where: relative(file), Err: err}}
	}
	if err := CheckAliases(content); err != nil {
		return nil, plan.Problems{{Reason: plan.ReasonInvalidManifest, Where: relative(file), Err: err}}
	}
	return parseManifests(relative(file), content)
}

func isManifest(name string) bool {
	switch path.Ext(name) {
	case ".yaml", ".yml", ".json":
		return true
	}
	return false
}

// errOtherLetters is of a file that kubectl would pass by as well. Without a word, a plan in
// release.YAML would leave its Deployment without gates.
var errOtherLetters = errors.New("is not read, since its ending is not in lower case, or has a space or a hidden character")

func inOtherLetters(file string) bool { return !isManifest(file) && isManifest(inLowerCase(file)) }

// inLowerCase is the name of a file with its ending in lower case, without what is not seen in it.
func inLowerCase(file string) string {
	name, ending := path.Base(file), path.Ext(file)
	hidden := func(r rune) bool { return unicode.IsSpace(r) || !unicode.IsGraphic(r) }
	return strings.TrimSuffix(name, ending) + strings.ToLower(strings.Join(strings.FieldsFunc(ending, hidden), ""))
}

func isKustomization(fsys filesys.FileSystem, dir string) bool {
	return len(kustomizationFiles(fsys, dir)) > 0
}

func kustomizationFiles(fsys filesys.FileSystem, dir string) []string {
	return slices.DeleteFunc(kustomizationNames(dir), func(f string) bool { return !fsys.Exists(f) || fsys.IsDir(f) })
}

// kustomizationNames are the files of a folder that may be its kustomization.
func kustomizationNames(dir string) (files []string) {
	for _, name := range konfig.RecognizedKustomizationFileNames() {
		files = append(files, path.Join(dir, name))
	}
	return files
}

// ahead says which paths are most likely read next. A file system for which each question takes a
// while has a method Ahead, and asks for all of them together.
func ahead(fsys filesys.FileSystem, paths []string) {
	if f, ok := fsys.(interface{ Ahead([]string) }); ok && len(paths) > 0 {
		f.Ahead(paths)
	}
}

func manifestsOf(dir string, names []string) (files []string) {
	for _, name := range names {
		if isManifest(name) && !strings.HasPrefix(name, ".") {
			files = append(files, path.Join(dir, name))
		}
	}
	return files
}

// rooted makes an absolute path of one from the repository's root; ".." stops there.
func rooted(p string) string { return path.Join("/", p) }

// relative makes a path from the repository's root of an absolute one.
func relative(p string) string {
	if p = strings.TrimPrefix(path.Clean(p), "/"); p == "" {
		return "."
	}
	return p
}

func asProblems(err error) plan.Problems {
	if ps := plan.ProblemsOf(err); ps != nil || err == nil {
		return ps
	}
	return plan.Problems{{Reason: plan.ReasonRenderFailed, Err: fmt.Errorf("rendering: %w", err)}}
}
