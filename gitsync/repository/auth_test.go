package repository

import (
	"context"
	"crypto/ed25519"
	"crypto/rand"
	"crypto/rsa"
	"encoding/pem"
	"fmt"
	"io"
	"net"
	"net/url"
	"os/exec"
	"strings"
	"testing"
	"time"

	"golang.org/x/crypto/ssh"

	"github.com/tranche-dev/tranche/gitsync/gitserver"
	"github.com/tranche-dev/tranche/gitsync/gittest"
	"github.com/tranche-dev/tranche/plan"
	"github.com/tranche-dev/tranche/plan/v1alpha1"
)

func newKey(t *testing.T, passphrase string) (ssh.Signer, []byte) {
	t.Helper()
	_, key, err := ed25519.GenerateKey(rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	var block *pem.Block
	if passphrase == "" {
		block, err = ssh.MarshalPrivateKey(key, "")
	} else {
		block, err = ssh.MarshalPrivateKeyWithPassphrase(key, "", []byte(passphrase))
	}
	if err != nil {
		t.Fatal(err)
	}
	signer, err := ssh.NewSignerFromKey(key)
	if err != nil {
		t.Fatal(err)
	}
	return signer, pem.EncodeToMemory(block)
}

func TestSecretsThatDoNotFit(t *testing.T) {
	_, key := newKey(t, "")
	_, locked := newKey(t, "s3cret")
	hosts := []byte("git.example.org ssh-ed25519 AAAAC3NzaC1lZDI1NTE5AAAAIOMqqnkVzrm0SdG6UOoqKLsabgH5C9okWi0dh2l9GKJl\n")
	for name, tt := range map[string]struct {
		url  string
		data map[string]string
		says string
	}{
		"both kinds": {"https://git.example.org/a", map[string]string{
			"bearerToken": "s3cret", "password": "s3cret",
		}, "keep one of them"},
		"half a certificate": {"https://git.example.org/a", map[string]string{"tls.crt": "s3cret"}, "go together"},
		"no key":             {"ssh://git.example.org/a", map[string]string{"known_hosts": string(hosts)}, "identity is missing"},
		"no known_hosts":     {"ssh://git.example.org/a", map[string]string{"identity": string(key)}, "known_hosts is missing"},
		"not a key": {"ssh://git.example.org/a", map[string]string{
			"identity": "s3cret", "known_hosts": string(hosts),
		}, "no private key"},
		"locked": {"ssh://git.example.org/a", map[string]string{
			"identity": string(locked), "known_hosts": string(hosts),
		}, "there is no password"},
		"locked, wrong": {"ssh://git.example.org/a", map[string]string{
			"identity": string(locked), "password": "wr0ng", "known_hosts": string(hosts),
		}, "does not open it"},
		"known_hosts garbage": {"ssh://git.example.org/a", map[string]string{
			"identity": string(key), "known_hosts": "s3cret s3cret s3cret",
		}, "ssh-keyscan"},
		"locked, right": {"ssh://git.example.org/a", map[string]string{
			"identity": string(locked), "password": "s3cret", "known_hosts": string(hosts),
		}, ""},
		"no Secret for https": {"https://git.example.org/a", nil, ""},
	} {
		t.Run(name, func(t *testing.T) {
			data := map[string][]byte{}
			for k, v := range tt.data {
				data[k] = []byte(v)
			}
			u, _ := url.Parse(tt.url)
			_, err := gitserver.NewAccess(u, "shop/git", data, time.Second)
			if tt.says == "" {
				if err != nil {
					t.Error(err)
				}
				return
			}
			if err == nil || !strings.Contains(err.Error(), tt.says) || strings.Contains(err.Error(), "s3cret") ||
				strings.Contains(err.Error(), "PRIVATE") {
				t.Errorf("%v", err)
			}
		})
	}
}

// sshServer serves repositories over SSH, with two host keys of which the RSA
// one is what an unprepared client would choose.
func sshServer(t *testing.T, client ssh.PublicKey, hosts ...ssh.Signer) string {
	t.Helper()
	config := &ssh.ServerConfig{PublicKeyCallback: func(_ ssh.ConnMetadata, key ssh.PublicKey) (*ssh.Permissions, error) {
		if string(key.Marshal()) != string(client.Marshal()) {
			return nil, fmt.Errorf("unknown key")
		}
		return nil, nil
	}}
	for _, h := range hosts {
		config.AddHostKey(h)
	}
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = l.Close() })
	go func() {
		for {
			c, err := l.Accept()
			if err != nil {
				return
			}
			go serveSSH(c, config)
		}
	}()
	return l.Addr().String()
}

func serveSSH(c net.Conn, config *ssh.ServerConfig) {
	conn, channels, requests, err := ssh.NewServerConn(c, config)
	if err != nil {
		return
	}
	defer conn.Close()
	go ssh.DiscardRequests(requests)
	for nc := range channels {
		ch, requests, err := nc.Accept()
		if err != nil {
			return
		}
		for r := range requests {
			if r.Type != "exec" {
				_ = r.Reply(false, nil)
				continue
			}
			_ = r.Reply(true, nil)
			cmd := exec.Command("sh", "-c", string(r.Payload[4:]))
			cmd.Stdout, cmd.Stderr = ch, ch.Stderr()
			stdin, err := cmd.StdinPipe()
			if err != nil {
				return
			}
			go func() {
				_, _ = io.Copy(stdin, ch) // ends when git has
				_ = stdin.Close()
			}()
			status := uint32(0)
			if cmd.Run() != nil {
				status = 128
			}
			_, _ = ch.SendRequest("exit-status", false, ssh.Marshal(struct{ Status uint32 }{status}))
			_ = ch.Close()
		}
	}
}

func TestSSH(t *testing.T) {
	repo := gittest.NewRepo(t)
	tip := repo.CommitAndPush(map[string]string{"a": "1"})
	client, identity := newKey(t, "")
	_, stranger := newKey(t, "")
	host, _ := newKey(t, "")
	other, _ := newKey(t, "")
	rsaKey, err := rsa.GenerateKey(rand.Reader, 2048)
	if err != nil {
		t.Fatal(err)
	}
	rsaHost, err := ssh.NewSignerFromKey(rsaKey)
	if err != nil {
		t.Fatal(err)
	}
	addr := sshServer(t, client.PublicKey(), rsaHost, host)
	hostname, port, _ := net.SplitHostPort(addr)
	known := func(s ssh.Signer) []byte {
		return []byte("[" + hostname + "]:" + port + " " + string(ssh.MarshalAuthorizedKey(s.PublicKey())))
	}
	silent, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer silent.Close()
	for name, tt := range map[string]struct {
		addr, path   string
		identity     []byte
		hosts        []byte
		reason, says string
	}{
		"good":                       {addr, repo.Bare, identity, known(host), "", ""},
		"the other kind of host key": {addr, repo.Bare, identity, known(rsaHost), "", ""},
		"wrong host key":             {addr, repo.Bare, identity, known(other), v1alpha1.ReasonHostKeyMismatch, "is not the one in known_hosts"},
		"unknown host": {addr, repo.Bare, identity, []byte("elsewhere.example.org " +
			string(ssh.MarshalAuthorizedKey(host.PublicKey()))), v1alpha1.ReasonHostKeyMismatch, "is not in known_hosts"},
		"wrong key":          {addr, repo.Bare, stranger, known(host), v1alpha1.ReasonAuthenticationFailed, "Secret shop/git"},
		"no such repository": {addr, repo.Bare + "x", identity, known(host), v1alpha1.ReasonRepositoryNotFound, "no such repository"},
		"no handshake":       {silent.Addr().String(), repo.Bare, identity, known(host), v1alpha1.ReasonTimeout, "spec.timeout"},
	} {
		t.Run(name, func(t *testing.T) {
			r := remoteFor(t, "ssh://git@"+tt.addr+tt.path, map[string][]byte{"identity": tt.identity, "known_hosts": tt.hosts})
			ctx, cancel := context.WithTimeout(t.Context(), lookWithin(tt.reason))
			defer cancel()
			s, err := NewCache(t.TempDir()).Of(r).Fetch(ctx, r, "main")
			if tt.reason == "" {
				if err != nil {
					t.Fatal(err)
				}
				defer s.Close()
				if s.Commit.String() != tip {
					t.Errorf("at %s", s.Commit)
				}
				return
			}
			ps := plan.ProblemsOf(err)
			if len(ps) != 1 || ps[0].Reason != tt.reason || !strings.Contains(ps[0].Error(), tt.says) || strings.Contains(ps[0].Error(), "git@") {
				t.Errorf("%v", err)
			}
		})
	}
}
