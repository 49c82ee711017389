package manifest

import (
	"errors"
	"fmt"
	"io/fs"
	"path"
	"slices"
	"strings"

	"sigs.k8s.io/kustomize/kyaml/filesys"

	"github.com/tranche-dev/tranche/plan"
)

// ReadApprovals reads the approvals in a folder and below; a folder that is
// not there has none. A file that is none is a problem and keeps no other from
// counting. Approvals without a namespace are in defaultNamespace.
func ReadApprovals(fsys filesys.FileSystem, dir, defaultNamespace string) ([]plan.Approval, plan.Problems) {
	var approvals []plan.Approval
	var ps plan.Problems
	unread := func(at string, err error) {
		p := &plan.Problem{
			Reason: plan.ReasonApprovalIgnored, Where: relative(at), Err: fmt.Errorf("%w; approvals there are not read", err),
			Hint: "make it a folder of the repository",
		}
		if errors.Is(err, errOtherLetters) {
			p.Err, p.Hint = err, "rename it to "+inLowerCase(at)
		}
		ps = append(ps, p)
	}
	if err := notAFolder(fsys, dir); err != nil {
		unread(rooted(dir), err)
	}
	for _, file := range approvalFiles(fsys, rooted(dir), 0, unread) {
		objects, more := readManifests(fsys, file)
		for _, p := range more {
			p.Reason = plan.ReasonApprovalIgnored
		}
		ps = append(ps, more...)
		alone, linked := len(objects) == 1 && len(more) == 0, isLinked(fsys, file)
		for _, o := range objects {
			names := o.GetNamespace() != ""
			if !names {
				o.SetNamespace(defaultNamespace)
			}
			a, more := plan.DecodeApproval(o)
			ps = append(ps, more...)
			if len(more) == 0 {
				a.Alone, a.Linked, a.NamesNamespace = alone, linked, names
				approvals = append(approvals, a)
			}
		}
	}
	if p := storageProblem(fsys, plan.ReasonApprovalIgnored, dir); p != nil {
		return nil, plan.Problems{p}
	}
	return approvals, ps.Sorted()
}

// notAFolder says why what is at a path is not read as a folder; nil where it is one, or
// nothing is there. Other file systems than the tree of a commit do not tell the two apart.
func notAFolder(fsys filesys.FileSystem, dir string) error {
	if _, isTree := fsys.(interface{ Err() error }); !isTree {
		return nil
	}
	switch _, name, err := fsys.CleanedAbs(rooted(dir)); {
	case err == nil && name != "":
		return errors.New("it is not a folder")
	case err != nil && !errors.Is(err, fs.ErrNotExist):
		return err
	}
	return nil
}

// isLinked reports whether a symbolic link is on the way to a file.
func isLinked(fsys filesys.FileSystem, file string) bool {
	dir, name, err := fsys.CleanedAbs(file)
	return err == nil && dir.Join(name) != rooted(file)
}

// maxApprovalDepth bounds how deep folders of approvals may be nested, links
// to a parent included.
const maxApprovalDepth = 8

func approvalFiles(fsys filesys.FileSystem, dir string, depth int, unread func(at string, err error)) []string {
	if depth > maxApprovalDepth || !fsys.IsDir(dir) {
		return nil
	}
	names, err := fsys.ReadDir(dir)
	if err != nil {
		return nil // gone meanwhile; a storage error is asked for at the end
	}
	slices.Sort(names)
	var files []string
	for _, name := range names {
		at := path.Join(dir, name)
		switch {
		case strings.HasPrefix(name, "."):
		case fsys.IsDir(at):
			files = append(files, approvalFiles(fsys, at, depth+1, unread)...)
		case isManifest(name):
			files = append(files, at)
		default: // another file, or a link that leads nowhere
			if _, _, err := fsys.CleanedAbs(at); err != nil {
				unread(at, err)
			} else if inOtherLetters(at) {
				unread(at, errOtherLetters)
			}
		}
	}
	return files
}
