package gittest

import (
	"bytes"
	"fmt"
	"net"
	"os"
	"os/exec"
	"os/user"
	"path/filepath"
	"strings"
	"sync/atomic"
	"testing"
	"time"
)

// SSHD is OpenSSH's server. It serves every repository of this machine to each client
// with a key that it knows.
type SSHD struct {
	t    testing.TB
	dir  string
	addr string
	// User to log in as.
	User string
}

// KeyTypes are those that OpenSSH makes without hardware.
var KeyTypes = []string{"ed25519", "ecdsa", "rsa"}

// ServeSSH runs sshd with a host key of each of KeyTypes until the test ends. If there is
// none, the test is skipped. In CI, which installs sshd, it fails.
func ServeSSH(t testing.TB) *SSHD {
	t.Helper()
	const sshd = "/usr/sbin/sshd" // it wants an absolute path
	if _, err := os.Stat(sshd); err != nil {
		if os.Getenv("CI") != "" {
			t.Fatal("there is no sshd: install openssh-server")
		}
		t.Skip("there is no sshd on this machine: install openssh-server for this test")
	}
	me, err := user.Current()
	if err != nil {
		t.Fatal(err)
	}
	s := &SSHD{t: t, dir: t.TempDir(), addr: FreeAddress(t), User: me.Username}
	if os.Geteuid() == 0 {
		if err := os.MkdirAll("/run/sshd", 0o755); err != nil { // sshd demands it of root
			t.Fatal(err)
		}
	}
	host, port, _ := net.SplitHostPort(s.addr)
	config := fmt.Sprintf("ListenAddress %s\nPort %s\nPidFile none\nUsePAM no\nStrictModes no\nPasswordAuthentication no\n"+
		"PermitRootLogin yes\nAuthorizedKeysFile %s\n",
		host, port, filepath.Join(s.dir, "authorized_keys"))
	for _, kind := range KeyTypes {
		config += "HostKey " + s.Key("host-"+kind, kind, "") + "\n"
	}
	file := filepath.Join(s.dir, "sshd_config")
	if err := os.WriteFile(file, []byte(config), 0o600); err != nil {
		t.Fatal(err)
	}
	var log bytes.Buffer
	cmd := exec.Command(sshd, "-D", "-e", "-f", file)
	cmd.Stderr = &log
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	var how error
	ended := make(chan struct{})
	go func() {
		how = cmd.Wait()
		close(ended)
	}()
	t.Cleanup(func() {
		_ = cmd.Process.Kill() // it may have ended
		<-ended
	})
	for deadline := time.Now().Add(20 * time.Second); ; {
		c, err := net.DialTimeout("tcp", s.addr, time.Second)
		if err == nil {
			_ = c.Close()
			return s
		}
		select {
		case <-ended:
			t.Fatalf("sshd ended: %v: %s", how, log.String())
		case <-time.After(20 * time.Millisecond):
		}
		if time.Now().After(deadline) {
			t.Fatalf("sshd does not listen: %v", err)
		}
	}
}

// Ports from firstPort on are below those that a kernel gives to who asks for any.
const (
	firstPort = 20000
	ports     = 10000
)

// nextPort is where this process begins to look. Others are likely to begin elsewhere.
var nextPort atomic.Uint32

func init() { nextPort.Store(uint32(os.Getpid()) * 97) }

// FreeAddress returns an address that no process listens on. No other call of the process
// returns it, and no process gets it that asks the kernel for any port.
func FreeAddress(t testing.TB) string {
	t.Helper()
	for range ports {
		address := fmt.Sprintf("127.0.0.1:%d", firstPort+nextPort.Add(1)%ports)
		if l, err := net.Listen("tcp", address); err == nil {
			_ = l.Close()
			return address
		}
	}
	t.Fatal("no port is free")
	return ""
}

// Key makes a key with ssh-keygen, and returns its file.
func (s *SSHD) Key(name, kind, passphrase string) string {
	s.t.Helper()
	file := filepath.Join(s.dir, name)
	args := []string{"-q", "-t", kind, "-N", passphrase, "-C", name, "-f", file}
	if out, err := exec.Command("ssh-keygen", args...).CombinedOutput(); err != nil {
		s.t.Fatalf("ssh-keygen %v: %v: %s", args, err, out)
	}
	return file
}

// Let lets clients with a key log in.
func (s *SSHD) Let(key string) {
	s.t.Helper()
	public := s.read(key + ".pub")
	f, err := os.OpenFile(filepath.Join(s.dir, "authorized_keys"), os.O_APPEND|os.O_CREATE|os.O_WRONLY, 0o600)
	if err != nil {
		s.t.Fatal(err)
	}
	if _, err := f.WriteString(public); err != nil {
		s.t.Fatal(err)
	}
	if err := f.Close(); err != nil {
		s.t.Fatal(err)
	}
}

// Only lets clients with a key log in, and no other.
func (s *SSHD) Only(key string) {
	s.t.Helper()
	if err := os.WriteFile(filepath.Join(s.dir, "authorized_keys"), []byte(s.read(key+".pub")), 0o600); err != nil {
		s.t.Fatal(err)
	}
}

func (s *SSHD) read(file string) string {
	s.t.Helper()
	text, err := os.ReadFile(file)
	if err != nil {
		s.t.Fatal(err)
	}
	return string(text)
}

// URL of a repository.
func (s *SSHD) URL(bare string) string { return "ssh://" + s.User + "@" + s.addr + bare }

// KnownHosts is a line for a host key, of one of KeyTypes or a file of Key.
func (s *SSHD) KnownHosts(key string) string {
	s.t.Helper()
	host, port, _ := net.SplitHostPort(s.addr)
	if !filepath.IsAbs(key) {
		key = filepath.Join(s.dir, "host-"+key)
	}
	fields := strings.Fields(s.read(key + ".pub"))
	return fmt.Sprintf("[%s]:%s %s %s\n", host, port, fields[0], fields[1])
}

// Hashed is what ssh-keygen -H makes of known hosts.
func (s *SSHD) Hashed(lines string) string {
	s.t.Helper()
	file := filepath.Join(s.dir, "to-hash")
	if err := os.WriteFile(file, []byte(lines), 0o600); err != nil {
		s.t.Fatal(err)
	}
	if out, err := exec.Command("ssh-keygen", "-q", "-H", "-f", file).CombinedOutput(); err != nil {
		s.t.Fatalf("ssh-keygen -H: %v: %s", err, out)
	}
	return s.read(file)
}

// Fingerprint is what ssh-keygen calls a key's.
func (s *SSHD) Fingerprint(key string) string {
	s.t.Helper()
	if !filepath.IsAbs(key) {
		key = filepath.Join(s.dir, "host-"+key)
	}
	out, err := exec.Command("ssh-keygen", "-l", "-f", key+".pub").Output()
	if err != nil {
		s.t.Fatal(err)
	}
	return strings.Fields(string(out))[1]
}
