package main

import (
	"archive/tar"
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	v1 "github.com/google/go-containerregistry/pkg/v1"
	"github.com/google/go-containerregistry/pkg/v1/mutate"
)

// inImage is set where this test binary is to run a program in an image.
const inImage = "RUN_IN_IMAGE"

func init() {
	if root := os.Getenv(inImage); root != "" {
		if err := enter(root, os.Args[1:]); err != nil {
			panic(err)
		}
	}
}

// enter becomes a program of an image, with a root that cannot be written, in the mount namespace
// that it has to itself. It is not root there if it can be another user.
func enter(root string, args []string) error {
	var of syscall.Statfs_t
	if err := syscall.Statfs(root, &of); err != nil {
		return err
	}
	// A user namespace may not take these off.
	kept := uintptr(of.Flags) & (syscall.MS_NOSUID | syscall.MS_NODEV | syscall.MS_NOEXEC | syscall.MS_NOATIME)
	if err := errors.Join(
		syscall.Mount("", "/", "", syscall.MS_PRIVATE|syscall.MS_REC, ""),
		syscall.Mount(root, root, "", syscall.MS_BIND|syscall.MS_REC, ""),
		syscall.Mount("", root, "", syscall.MS_REMOUNT|syscall.MS_BIND|syscall.MS_RDONLY|kept, ""),
		syscall.Chroot(root), syscall.Chdir("/"),
	); err != nil {
		return err
	}
	if os.Getenv("RUN_AS_ROOT") != "" { // of a user namespace: a user without rights
		return syscall.Exec(args[0], args, nil)
	}
	if err := errors.Join(syscall.Setgroups(nil), syscall.Setgid(65532), syscall.Setuid(65532)); err != nil {
		return err
	}
	return syscall.Exec(args[0], args, nil)
}

// inside returns what a program of an unpacked image prints.
func inside(t *testing.T, root string, args ...string) (string, error) {
	t.Helper()
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	c := exec.Command(self, args...)
	c.Env = []string{inImage + "=" + root}
	c.SysProcAttr = &syscall.SysProcAttr{Cloneflags: syscall.CLONE_NEWNS}
	if os.Getuid() != 0 {
		c.Env = append(c.Env, "RUN_AS_ROOT=1")
		c.SysProcAttr.Cloneflags |= syscall.CLONE_NEWUSER
		c.SysProcAttr.UidMappings = []syscall.SysProcIDMap{{HostID: os.Getuid(), Size: 1}}
		c.SysProcAttr.GidMappings = []syscall.SysProcIDMap{{HostID: os.Getgid(), Size: 1}}
	}
	out, err := c.CombinedOutput()
	return string(out), err
}

func unpack(t *testing.T, img v1.Image) string {
	t.Helper()
	root := t.TempDir()
	for dir := root; dir != filepath.Dir(os.TempDir()) && dir != "/"; dir = filepath.Dir(dir) { // user 65532 has to get there
		if info, err := os.Stat(dir); err == nil && info.Mode()&0o001 == 0 {
			if err := os.Chmod(dir, 0o755); err != nil {
				t.Fatal(err)
			}
		}
	}
	content := mutate.Extract(img)
	defer content.Close()
	for _, f := range readArchive(t, content) {
		file := filepath.Join(root, f.Name)
		var err error
		if f.Typeflag == tar.TypeDir {
			err = os.MkdirAll(file, f.FileInfo().Mode())
		} else {
			err = os.WriteFile(file, f.content, f.FileInfo().Mode())
		}
		if err != nil {
			t.Fatal(err)
		}
	}
	return root
}

// The image is the program and certificates, and nothing else. It runs as a user other than
// root, with a root that cannot be written.
func TestImage_Runs(t *testing.T) {
	t.Parallel()
	folder := filepath.Join(t.TempDir(), "image")
	image(t, folder, program(t))
	index, err := readImage(folder)
	if err != nil {
		t.Fatal(err)
	}
	m, err := index.IndexManifest()
	if err != nil {
		t.Fatal(err)
	}
	img, err := index.Image(m.Manifests[0].Digest)
	if err != nil {
		t.Fatal(err)
	}
	root := unpack(t, img)
	if out, err := inside(t, root, "/tranche", "version", "--client"); err != nil || !strings.Contains(out, testVersion) {
		t.Errorf("tranche version: %v: %s", err, out)
	}
	if out, err := inside(t, root, "/tranche", "install", "--image", "registry.example.org/tranche:v1"); err != nil ||
		!strings.Contains(out, "kind: CustomResourceDefinition") {
		t.Errorf("tranche install: %v: %.300s", err, out)
	}
	if out, err := inside(t, root, "/tranche", "controller", "--storage-path", "/data"); err == nil || strings.Contains(out, "panic") {
		t.Errorf("tranche controller without a cluster: %v: %s", err, out)
	}
}
