package writeback

import (
	"cmp"
	"errors"
	"fmt"
	"path"
	"slices"
	"strings"
	"time"

	"github.com/go-git/go-git/v5/plumbing"
	"github.com/go-git/go-git/v5/plumbing/filemode"

	"github.com/tranche-dev/tranche/gitsync/gitobject"
	"github.com/tranche-dev/tranche/gitsync/gittree"
	"github.com/tranche-dev/tranche/gitsync/revert"
	"github.com/tranche-dev/tranche/plan"
	"github.com/tranche-dev/tranche/plan/manifest"
	"github.com/tranche-dev/tranche/plan/v1alpha1"
)

// approvalFile is the file that an approval goes to if the release has none yet.
func (w *Input) approvalFile(in intent) string {
	return path.Join(w.Source.Spec.ApprovalsPath(), in.release.Plan.Name+".yaml")
}

// approve commits an approval: in place of the one that the release had, or in
// a file of its own.
func (w *attempt) approve(in intent) error {
	t, err := gittree.OpenTree(w.scratch, w.tree)
	if err != nil {
		return err
	}
	before, _ := w.approvals(t)
	file, err := w.placeFor(t, in, before)
	if err == nil {
		err = w.checkPlace(file)
	}
	if err != nil {
		return err
	}
	was, err := gitobject.EntryAt(w.scratch, w.tree, file)
	if err != nil {
		return err
	}
	var content []byte
	if was.Mode != filemode.Empty {
		if content, err = gitobject.ReadBlob(w.scratch, was.Hash); err != nil {
			return err
		}
	}
	a := v1alpha1.BatchApproval{Spec: v1alpha1.BatchApprovalSpec{Revision: in.revision, Commit: in.commit, Step: in.step}}
	a.Metadata.Namespace, a.Metadata.Name = in.release.Plan.Namespace, in.release.Plan.Name
	if content, err = manifest.PutApproval(file, content, a, "", w.Source.DefaultNamespace()); err != nil {
		return err
	}
	blob, err := w.scratch.WriteBlob(content)
	if err != nil {
		return err
	}
	there, err := w.hasBlob(file, blob)
	if there {
		// An approval that does not count says the same. The commit that brings the
		// content of a file is the one that counts, so the content has to change.
		again := "Given again on " + time.Now().UTC().Format(time.RFC3339) + "."
		if content, err = manifest.PutApproval(file, content, a, again, w.Source.DefaultNamespace()); err == nil {
			blob, err = w.scratch.WriteBlob(content)
		}
	}
	if err != nil {
		return err
	}
	tree, err := w.scratch.WriteTree(w.tree, gitobject.Files{file: {Mode: cmp.Or(was.Mode, filemode.Regular), Hash: blob}})
	if errors.Is(err, gitobject.ErrNotAFolder) {
		return &cannot{fact: "in " + file + " " + err.Error(), hint: "correct spec.approvals.path"}
	}
	if err != nil {
		return err
	}
	if err := w.checkApproval(in, tree, file, before); err != nil {
		return err
	}
	return w.add(tree, w.set, in.message(), in)
}

// checkPlace refuses a file out of the folders that the GitSource names. A committer may have made a link in there
// that leads elsewhere: to the approvals of another source.
func (w *Input) checkPlace(file string) error {
	if !gitobject.ValidPath(file) {
		return &cannot{fact: "Git does not let a file be named " + file, hint: "correct spec.approvals.path"}
	}
	for _, folder := range []string{w.Source.Spec.Path, w.Source.Spec.ApprovalsPath()} {
		if folder = strings.Trim(path.Clean("/"+folder), "/"); folder == "" || strings.HasPrefix(file, folder+"/") {
			return nil
		}
	}
	return &cannot{
		fact: "a link leads to " + file + ", out of spec.path and spec.approvals.path",
		hint: "replace the link by a folder or a file; or let spec.approvals.path name the folder that it leads to",
	}
}

// hasBlob reports whether a parent of the next commit has a file with this content.
func (w *attempt) hasBlob(file string, blob plumbing.Hash) (bool, error) {
	e, err := gitobject.EntryAt(w.scratch, w.tree, file)
	if err != nil || e.Hash == blob || w.also.IsZero() {
		return err == nil && e.Hash == blob, err
	}
	hash, ok, err := gitobject.BlobAt(w.scratch, w.also, file)
	return ok && hash == blob, err
}

// placeFor returns the file for an approval, without links.
func (w *attempt) placeFor(t *gittree.Tree, in intent, approvals []plan.Approval) (string, error) {
	file := ""
	for _, a := range approvals {
		if a.Metadata.Namespace == in.release.Plan.Namespace && a.Metadata.Name == in.release.Plan.Name {
			file = a.File
		}
	}
	if a, _ := plan.MatchApproval(in.release, in.commit, approvals); a != nil {
		file = a.File
	}
	if file != "" {
		dir, base, err := t.CleanedAbs(file)
		return strings.TrimPrefix(dir.Join(base), "/"), err
	}
	folder := w.Source.Spec.ApprovalsPath()
	if dir, base, err := t.CleanedAbs(folder); err == nil && base == "" {
		folder = strings.Trim(string(dir), "/")
	}
	for i, p := 0, in.release.Plan; ; i++ {
		name := []string{p.Name, p.Namespace + "-" + p.Name}[min(i, 1)]
		if i > 1 {
			name = fmt.Sprintf("%s-%d", name, i)
		}
		file = path.Join(folder, name+".yaml")
		if !t.Exists(file) {
			return file, t.Err()
		}
	}
}

// checkApproval makes sure that an approval counts, that all others count as
// they did, and that nothing else of what is rendered has changed.
func (w *attempt) checkApproval(in intent, tree plumbing.Hash, file string, before []plan.Approval) error {
	t, err := gittree.OpenTree(w.scratch, tree)
	if err != nil {
		return err
	}
	after, _ := w.approvals(t)
	if t.Err() != nil {
		return t.Err()
	}
	if a, why := plan.MatchApproval(in.release, in.commit, after); !in.covers(a) {
		return &cannot{fact: "it would not count in " + file + ": " + why.Error(), hint: "remove other approvals of the release"}
	}
	others := func(list []plan.Approval) []string {
		var said []string
		for _, a := range list {
			if a.Metadata.Namespace != in.release.Plan.Namespace || a.Metadata.Name != in.release.Plan.Name {
				said = append(said, fmt.Sprintf("%s %s/%s %+v", a.File, a.Metadata.Namespace, a.Metadata.Name, a.Spec))
			}
		}
		return said
	}
	if !slices.Equal(others(before), others(after)) {
		return &cannot{fact: "it would change other approvals in " + file, hint: "give each release a file of its own"}
	}
	if unchanged, err := w.State.Reads.Unchanged(t); err != nil || unchanged && !w.State.HasBases {
		return err
	}
	set, err := w.Reader.Render(t)
	if err != nil {
		return cmp.Or(t.Err(), error(&cannot{fact: "with it the branch does not render: " + plan.OneLine(err.Error())}))
	}
	if where := revert.Keeps(nil, w.set, set); where != "" {
		return &cannot{fact: "it would change " + where, hint: "let spec.approvals.path be a folder that is not rendered"}
	}
	return nil
}
