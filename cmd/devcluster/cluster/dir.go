package cluster

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"syscall"
)

// directory is where a cluster lives, held by one Run at a time.
type directory struct {
	path string
	lock *os.File
}

// openDirectory makes the directory and those in it, and takes its lock.
func openDirectory(path string) (*directory, error) {
	absolute, err := filepath.Abs(path)
	if err != nil {
		return nil, fmt.Errorf("resolving %s: %w", path, err)
	}
	d := &directory{path: absolute}
	for _, sub := range []string{d.pki(), d.config(), d.logs()} {
		if err := os.MkdirAll(sub, 0o700); err != nil {
			return nil, fmt.Errorf("making the cluster's directory: %w", err)
		}
	}
	if d.lock, err = lockFile(filepath.Join(d.path, "lock")); err != nil {
		return nil, err
	}
	return d, nil
}

func (d *directory) pki() string        { return filepath.Join(d.path, "pki") }
func (d *directory) config() string     { return filepath.Join(d.path, "config") }
func (d *directory) logs() string       { return filepath.Join(d.path, "logs") }
func (d *directory) etcd() string       { return filepath.Join(d.path, "etcd") }
func (d *directory) kubeconfig() string { return filepath.Join(d.path, "kubeconfig") }

// close gives the lock back. The kernel does the same for a process that is killed.
func (d *directory) close() error { return d.lock.Close() }

// lockFile locks a file against other processes and writes our process id into it, for their message.
func lockFile(path string) (*os.File, error) {
	f, err := os.OpenFile(path, os.O_RDWR|os.O_CREATE, 0o600)
	if err != nil {
		return nil, fmt.Errorf("opening the lock: %w", err)
	}
	if err := syscall.Flock(int(f.Fd()), syscall.LOCK_EX|syscall.LOCK_NB); err != nil {
		defer f.Close()
		if errors.Is(err, syscall.EWOULDBLOCK) {
			return nil, fmt.Errorf("%s is in use by another devcluster (process %s); stop that one or choose another --dir",
				filepath.Dir(path), holder(path))
		}
		return nil, fmt.Errorf("locking %s: %w", path, err)
	}
	if err := writeHolder(f); err != nil {
		f.Close()
		return nil, fmt.Errorf("writing the process id into %s: %w", path, err)
	}
	return f, nil
}

func writeHolder(f *os.File) error {
	if err := f.Truncate(0); err != nil {
		return err
	}
	_, err := fmt.Fprintln(f, os.Getpid())
	return err
}

func holder(path string) string {
	pid, err := os.ReadFile(path)
	if err != nil || len(pid) == 0 {
		return "unknown"
	}
	return strings.TrimSpace(string(pid))
}

// writeFile writes a file that only its owner may read, so that a reader sees all of it or none.
func writeFile(path string, data []byte) error {
	tmp, err := os.CreateTemp(filepath.Dir(path), "."+filepath.Base(path)+".*")
	if err != nil {
		return fmt.Errorf("writing %s: %w", path, err)
	}
	_, err = tmp.Write(data)
	if err := errors.Join(err, tmp.Close()); err != nil {
		return fmt.Errorf("writing %s: %w", path, errors.Join(err, os.Remove(tmp.Name())))
	}
	if err := os.Rename(tmp.Name(), path); err != nil {
		return fmt.Errorf("writing %s: %w", path, err)
	}
	return nil
}
