package plan

import (
	"testing"

	"sigs.k8s.io/kustomize/kyaml/filesys"
)

// A clone is on disk, beside the tree, and goes away with RemoveAll; the rest
// of the disk is not there.
func TestRemoteFS(t *testing.T) {
	tree := filesys.MakeFsInMemory()
	if err := tree.WriteFile("/apps/a.yaml", []byte("tree")); err != nil {
		t.Fatal(err)
	}
	r, err := newRemoteFS(tree)
	if err != nil {
		t.Fatal(err)
	}
	clone, err := filesys.NewTmpConfirmedDir() // as kustomize makes one
	if err != nil {
		t.Fatal(err)
	}
	disk := filesys.MakeFsOnDisk()
	defer func() { _ = disk.RemoveAll(clone.String()) }()
	if err := disk.WriteFile(clone.Join("b.yaml"), []byte("clone")); err != nil {
		t.Fatal(err)
	}
	for p, want := range map[string]string{"/apps/a.yaml": "tree", clone.Join("b.yaml"): "clone", "/etc/hostname": "", "/tmp/kustomize-none/../../etc/hostname": ""} {
		got, err := r.ReadFile(p)
		if string(got) != want || (err == nil) != (want != "") {
			t.Errorf("%s: got %q, %v", p, got, err)
		}
	}
	if dir, file, err := r.CleanedAbs(clone.String()); dir != clone || file != "" || err != nil || !r.IsDir(clone.String()) || !r.Exists(clone.String()) {
		t.Errorf("the clone: %s, %s, %v", dir, file, err)
	}
	if err := r.RemoveAll(clone.String()); err != nil || disk.Exists(clone.String()) {
		t.Errorf("the clone stays: %v", err)
	}
}
