package manifest

import (
	"encoding/json"
	"errors"
	"fmt"
	"net/url"
	"path"
	"path/filepath"
	"regexp"
	"slices"
	"strings"

	"sigs.k8s.io/kustomize/api/konfig"
	"sigs.k8s.io/kustomize/api/types"
	"sigs.k8s.io/kustomize/kyaml/filesys"

	"github.com/tranche-dev/tranche/plan"
)

// RemoteBase is a commit of another repository that a kustomization names.
type RemoteBase struct {
	// URL of the repository: https or http, without credentials.
	URL string
	// Ref is a branch, a tag or a commit; empty: what HEAD names.
	Ref string
}

// String is the base as kustomize writes it.
func (b RemoteBase) String() string {
	if b.Ref == "" {
		return b.URL
	}
	return b.URL + "?ref=" + b.Ref
}

// MissingBasesError is of a folder that needs remote bases which
// [RenderOptions].Bases does not have.
type MissingBasesError struct {
	Bases []RemoteBase
}

func (e *MissingBasesError) Error() string {
	return fmt.Sprintf("%d remote bases are missing, among them %s", len(e.Bases), e.Bases[0])
}

var userAtHost = regexp.MustCompile(`^[A-Za-z][A-Za-z0-9-]*@.*[/:]`)

// isRemote reports whether kustomize could take a path for something to fetch. That is an
// http file (api/internal/loader.IsRemoteFile) or a repository to clone
// (api/internal/git.NewRepoSpecFromURL). It says yes in more cases than those two: a file
// that is called git@host/x is not worth a clone.
func isRemote(p string) bool {
	if u, err := url.Parse(p); err == nil && (u.Scheme == "http" || u.Scheme == "https") {
		return true
	}
	p = strings.ToLower(withoutForce(p))
	for _, scheme := range []string{"ssh://", "https://", "http://", "file://"} {
		if strings.HasPrefix(p, scheme) {
			return true
		}
	}
	return isGitHub(p) || userAtHost.MatchString(p)
}

// isGitHub reports whether a path without scheme is one that kustomize takes for a
// repository of GitHub.
func isGitHub(p string) bool {
	p = strings.ToLower(p)
	return strings.HasPrefix(p, "github.com/") || strings.HasPrefix(p, "github.com:")
}

// withoutForce takes off what forces git, as kustomize does.
func withoutForce(p string) string {
	const force = "git::"
	if len(p) >= len(force) && strings.EqualFold(p[:len(force)], force) {
		return p[len(force):]
	}
	return p
}

// refOfBase is what may be asked of a server: no option of a program, no pattern.
var refOfBase = regexp.MustCompile(`^[A-Za-z0-9_][A-Za-z0-9_./+#@=-]*$`)

// parseRemoteBase takes a path apart as kustomize does (api/internal/git): the
// repository, and the folder in it. Its error is a fact about the path.
func parseRemoteBase(p string) (RemoteBase, string, error) {
	p, query, _ := strings.Cut(withoutForce(p), "?")
	if isGitHub(p) {
		p = "https://github.com/" + p[len("github.com/"):]
	}
	u, err := url.Parse(p)
	switch {
	case err != nil:
		return RemoteBase{}, "", errors.New("is not a URL")
	case u.Scheme != "https" && u.Scheme != "http":
		return RemoteBase{}, "", errors.New("is not fetched: only https and http are")
	case u.User != nil:
		return RemoteBase{}, "", errors.New("is not fetched: it has credentials in it")
	case u.Host == "":
		return RemoteBase{}, "", errors.New("names no host")
	}
	values, err := url.ParseQuery(query)
	if err != nil {
		values = nil // as kustomize
	}
	base := RemoteBase{Ref: values.Get("version")}
	if ref := values.Get("ref"); ref != "" {
		base.Ref = ref
	}
	if base.Ref != "" && (!refOfBase.MatchString(base.Ref) || strings.Contains(base.Ref, "..")) {
		return RemoteBase{}, "", fmt.Errorf("has a ref that is not valid: %q", base.Ref)
	}
	repository, dir, err := splitRepository(strings.TrimPrefix(u.Path, "/"))
	if err != nil {
		return RemoteBase{}, "", err
	}
	base.URL = (&url.URL{Scheme: u.Scheme, Host: u.Host, Path: "/" + repository}).String()
	return base, dir, nil
}

// segmentsOfRepository is how many parts of a path name the repository where nothing
// marks its end, as at GitHub.
const segmentsOfRepository = 2

// splitRepository divides the path of a URL into that of the repository and that of the
// folder in it.
func splitRepository(p string) (repository, dir string, err error) {
	if before, after, ok := strings.Cut(p, "_git/"); ok {
		name, rest, _ := strings.Cut(after, "/")
		repository, dir = before+"_git/"+name, rest
	} else if before, after, ok := strings.Cut(p, "//"); ok {
		repository, dir = before, after
	} else if before, after, ok := strings.Cut(p, ".git"); ok {
		repository, dir = before+".git", after
	} else {
		parts := strings.SplitN(p, "/", segmentsOfRepository+1)
		if len(parts) < segmentsOfRepository {
			return "", "", errors.New("names no repository")
		}
		if repository = path.Join(parts[:segmentsOfRepository]...); len(parts) > segmentsOfRepository {
			dir = parts[segmentsOfRepository]
		}
		if isManifest(dir) {
			return "", "", errors.New("is one file, and only repositories are fetched")
		}
	}
	dir = strings.TrimPrefix(dir, "/")
	if repository == "" || slices.Contains(strings.Split(repository, "/"), "..") {
		return "", "", errors.New("names no repository")
	}
	if dir != "" && !filepath.IsLocal(dir) {
		return "", "", errors.New("leaves its repository")
	}
	return repository, dir, nil
}

// bases are the remote bases of a rendering, and where those are that were fetched.
type bases map[RemoteBase]string

// at returns the folder that a path names; ok is false where it is not there.
func (b bases) at(p string) (dir string, ok bool) {
	base, below, err := parseRemoteBase(p)
	if err != nil {
		return "", false
	}
	root, ok := b[base]
	return path.Join(rooted(root), below), ok
}

// of returns the base in whose folder a path is.
func (b bases) of(p string) (base RemoteBase, root string, ok bool) {
	for base, root := range b {
		if root = rooted(root); strings.HasPrefix(rooted(p)+"/", root+"/") {
			return base, root, true
		}
	}
	return RemoteBase{}, "", false
}

// name puts the repository in place of its folder in what problems are about.
func (b bases) name(ps plan.Problems) plan.Problems {
	for _, p := range ps {
		if base, root, ok := b.of(strings.Split(p.Where, ":")[0]); ok {
			p.Where = base.String() + " " + strings.TrimPrefix(strings.TrimPrefix(rooted(p.Where), root), "/")
		}
	}
	return ps
}

// basesFS is a file system in which kustomizations name the folders of the remote bases
// in place of their URLs. kustomize has no other way to be given what it would fetch.
type basesFS struct {
	filesys.FileSystem
	bases bases
}

func (f *basesFS) ReadFile(name string) ([]byte, error) {
	content, err := f.FileSystem.ReadFile(name)
	if err != nil || !slices.Contains(konfig.RecognizedKustomizationFileNames(), path.Base(name)) {
		return content, err
	}
	return f.bases.replaced(path.Dir(rooted(name)), content)
}

// replaced returns a kustomization with the folders in place of URLs.
func (b bases) replaced(dir string, content []byte) ([]byte, error) {
	var k types.Kustomization
	if err := k.Unmarshal(content); err != nil {
		return content, nil // kustomize meets the same error
	}
	changed := false
	former := k.Bases //nolint:staticcheck // kustomize reads it still
	for _, list := range [][]string{k.Resources, former, k.Components, k.Generators, k.Transformers, k.Validators} {
		for i, p := range list {
			if !isPath(p) || !isRemote(p) {
				continue
			}
			if at, ok := b.at(p); ok {
				local, err := filepath.Rel(dir, at)
				if err != nil {
					return nil, fmt.Errorf("finding the way to %s: %w", at, err)
				}
				list[i], changed = local, true
			}
		}
	}
	if !changed {
		return content, nil
	}
	edited, ok := asJSON(&k)
	if !ok {
		return nil, errors.New("remote bases cannot be put into this kustomization: some of its text is not the same in JSON")
	}
	return edited, nil
}

// asJSON writes a kustomization, and says whether the text means the same to kustomize.
func asJSON(k *types.Kustomization) ([]byte, bool) {
	edited, err := json.Marshal(k)
	if err != nil {
		return nil, false
	}
	var back types.Kustomization
	if err := back.Unmarshal(edited); err != nil {
		return nil, false
	}
	again, err := json.Marshal(back)
	return edited, err == nil && string(again) == string(edited)
}
