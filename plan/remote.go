package plan

import (
	"net/url"
	"path"
	"regexp"
	"strings"

	"sigs.k8s.io/kustomize/kyaml/filesys"
)

var userAtHost = regexp.MustCompile(`^[A-Za-z][A-Za-z0-9-]*@.*[/:]`)

// isRemote reports whether kustomize could take a path for something to fetch:
// an http file (api/internal/loader.IsRemoteFile) or a repository to clone
// (api/internal/git.NewRepoSpecFromURL). Where those two look closer, this
// says yes: a file that is called git@host/x is not worth a clone.
func isRemote(p string) bool {
	if u, err := url.Parse(p); err == nil && (u.Scheme == "http" || u.Scheme == "https") {
		return true
	}
	p = withoutForce(p)
	for _, scheme := range []string{"ssh://", "https://", "http://", "file://"} {
		if strings.HasPrefix(p, scheme) {
			return true
		}
	}
	return strings.HasPrefix(p, "github.com/") || strings.HasPrefix(p, "github.com:") ||
		userAtHost.MatchString(p)
}

// withoutForce takes off what forces git, as kustomize does.
func withoutForce(p string) string { return strings.TrimPrefix(strings.ToLower(p), "git::") }

// isLocalURL is a repository on the disk of whoever renders, which is nobody
// else's business.
func isLocalURL(p string) bool { return strings.HasPrefix(withoutForce(p), "file:") }

// remoteFS is a tree with, beside it, the folders into which kustomize clones
// remote bases. kustomize makes those on disk, whatever the file system.
type remoteFS struct {
	filesys.FileSystem
	disk   filesys.FileSystem
	clones string // what the paths of clones begin with
}

func newRemoteFS(tree filesys.FileSystem) (*remoteFS, error) {
	dir, err := filesys.NewTmpConfirmedDir()
	if err != nil {
		return nil, err
	}
	disk := filesys.MakeFsOnDisk()
	return &remoteFS{tree, disk, path.Dir(dir.String()) + "/kustomize-"}, disk.RemoveAll(dir.String())
}

func (r *remoteFS) at(p string) filesys.FileSystem {
	if strings.HasPrefix(path.Clean(p), r.clones) {
		return r.disk
	}
	return r.FileSystem
}

func (r *remoteFS) ReadFile(p string) ([]byte, error)  { return r.at(p).ReadFile(p) }
func (r *remoteFS) ReadDir(p string) ([]string, error) { return r.at(p).ReadDir(p) }
func (r *remoteFS) Exists(p string) bool               { return r.at(p).Exists(p) }
func (r *remoteFS) IsDir(p string) bool                { return r.at(p).IsDir(p) }
func (r *remoteFS) RemoveAll(p string) error           { return r.at(p).RemoveAll(p) }
func (r *remoteFS) CleanedAbs(p string) (filesys.ConfirmedDir, string, error) {
	return r.at(p).CleanedAbs(p)
}
