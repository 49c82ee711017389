package repository

import (
	"context"
	"os"
	"strings"
	"testing"

	"github.com/tranche-dev/tranche/gitsync/gittest"
	"github.com/tranche-dev/tranche/plan"
	"github.com/tranche-dev/tranche/plan/v1alpha1"
)

// OpenSSH's own server: every kind of key, on either side, locked and not; host keys by
// name and hashed. Each fault has an error of its own; that of an unknown host key has
// its fingerprint and that of the known one.
func TestSSHD(t *testing.T) {
	t.Parallel()
	server := gittest.ServeSSH(t)
	repo := gittest.NewRepo(t)
	tip := repo.CommitAndPush(map[string]string{"a": "1"})
	for _, kind := range gittest.KeyTypes {
		server.Let(server.Key(kind, kind, ""))
		server.Let(server.Key(kind+"-locked", kind, "s3cret"))
	}
	read := func(file string) []byte {
		text, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		return text
	}
	locked := server.Key("ed25519-late", "ed25519", "s3cret")
	server.Let(locked)
	stranger, other := server.Key("stranger", "ed25519", ""), server.Key("other", "ed25519", "")
	type row struct {
		url, hosts, password string
		identity             []byte
		reason               string
		says                 []string
	}
	good := row{url: server.URL(repo.Bare), hosts: server.KnownHosts("ed25519"), identity: read(locked), password: "s3cret"}
	rows := map[string]row{}
	add := func(name string, edit func(*row)) {
		r := good
		edit(&r)
		rows[name] = r
	}
	for _, kind := range gittest.KeyTypes {
		key := server.Key(kind+"-client", kind, "")
		server.Let(key)
		add("client key "+kind, func(r *row) { r.identity, r.password = read(key), "" })
		add("host key "+kind, func(r *row) { r.hosts = server.KnownHosts(kind) })
	}
	add("hashed known_hosts", func(r *row) { r.hosts = server.Hashed(r.hosts) })
	add("another host's key", func(r *row) {
		r.hosts = server.KnownHosts(other)
		r.reason, r.says = v1alpha1.ReasonHostKeyMismatch, []string{server.Fingerprint(other), server.Fingerprint("ed25519")}
	})
	add("an unknown host", func(r *row) {
		r.hosts = strings.Replace(r.hosts, "127.0.0.1", "example.org", 1)
		r.reason, r.says = v1alpha1.ReasonHostKeyMismatch, []string{"is not in known_hosts", "its key is", "SHA256:"}
	})
	add("a revoked host key", func(r *row) {
		r.hosts += "@revoked " + r.hosts
		r.reason = v1alpha1.ReasonHostKeyMismatch
	})
	add("a stranger's key", func(r *row) {
		r.identity, r.password, r.reason = read(stranger), "", v1alpha1.ReasonAuthenticationFailed
	})
	add("no such repository", func(r *row) { r.url, r.reason = server.URL(repo.Bare+"x"), v1alpha1.ReasonRepositoryNotFound })
	for name, tt := range rows {
		t.Run(name, func(t *testing.T) {
			r := remoteFor(t, tt.url, map[string][]byte{"identity": tt.identity, "known_hosts": []byte(tt.hosts), "password": []byte(tt.password)})
			ctx, cancel := context.WithTimeout(t.Context(), lookWithin(tt.reason))
			defer cancel()
			s, err := NewCache(t.TempDir()).Of(r).Fetch(ctx, r, "main")
			if tt.reason == "" {
				if err != nil {
					t.Fatal(err)
				}
				defer s.Close()
				if s.Commit.String() != tip {
					t.Errorf("at %s, want %s", s.Commit, tip)
				}
				return
			}
			ps := plan.ProblemsOf(err)
			if len(ps) != 1 || ps[0].Reason != tt.reason {
				t.Fatalf("%v, want %s", err, tt.reason)
			}
			for _, says := range tt.says {
				if !strings.Contains(ps[0].Error(), says) {
					t.Errorf("%q does not say %q", ps[0].Error(), says)
				}
			}
		})
	}
}
