package cluster

import (
	"fmt"
	"net"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

func TestDirectoryIsHeldByOne(t *testing.T) {
	path := filepath.Join(t.TempDir(), "new", "cluster")
	first, err := openDirectory(path)
	if err != nil {
		t.Fatal(err)
	}
	_, err = openDirectory(path)
	if err == nil {
		t.Fatal("two hold the same directory")
	}
	for _, want := range []string{path, fmt.Sprint(os.Getpid()), "--dir"} {
		if !strings.Contains(err.Error(), want) {
			t.Errorf("the refusal %q does not mention %s", err, want)
		}
	}
	if err := first.close(); err != nil {
		t.Fatal(err)
	}
	again, err := openDirectory(path)
	if err != nil {
		t.Fatalf("after the first has ended: %v", err)
	}
	if err := again.close(); err != nil {
		t.Fatal(err)
	}
}

func TestWriteFile(t *testing.T) {
	path := filepath.Join(t.TempDir(), "file")
	for _, content := range []string{"long content", "short"} {
		if err := writeFile(path, []byte(content)); err != nil {
			t.Fatal(err)
		}
		got, err := os.ReadFile(path)
		if err != nil {
			t.Fatal(err)
		}
		if string(got) != content {
			t.Errorf("wrote %q, read %q", content, got)
		}
	}
	info, err := os.Stat(path)
	if err != nil {
		t.Fatal(err)
	}
	if info.Mode().Perm() != 0o600 {
		t.Errorf("mode is %v: others could read keys", info.Mode())
	}
	entries, err := os.ReadDir(filepath.Dir(path))
	if err != nil {
		t.Fatal(err)
	}
	if len(entries) != 1 {
		t.Errorf("%d files are left, want one", len(entries))
	}
}

func TestFreePort(t *testing.T) {
	port, err := freePort(0)
	if err != nil {
		t.Fatal(err)
	}
	l, err := net.Listen("tcp", fmt.Sprintf("127.0.0.1:%d", port))
	if err != nil {
		t.Fatalf("port %d is not free: %v", port, err)
	}
	l.Close()
}

func TestChoosePort_GivesNoneTwice(t *testing.T) {
	s, given := &supervisor{}, map[int]bool{}
	for range 3000 {
		port, err := s.choosePort(0)
		if err != nil {
			t.Fatal(err)
		}
		if given[port] {
			t.Fatalf("port %d is given twice", port)
		}
		given[port] = true
	}
}
