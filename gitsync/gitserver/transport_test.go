package gitserver

import (
	"encoding/pem"
	"fmt"
	"net/http"
	"net/http/httptest"
	"net/url"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/tranche-dev/tranche/gitsync/gittest"
	"github.com/tranche-dev/tranche/gitsync/gittree"
)

// A server that lists references without end is read up to a bound, by each way to reach
// it, to fetch and to push.
func TestConnect_ListIsBounded(t *testing.T) {
	const most = 3 * maxListed
	line := func(w http.ResponseWriter, text string) int {
		n, _ := fmt.Fprintf(w, "%04x%s", len(text)+4, text)
		return n
	}
	hash := strings.Repeat("1", 40)
	h := http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		service := r.URL.Query().Get("service")
		w.Header().Set("Content-Type", "application/x-"+service+"-advertisement")
		line(w, "# service="+service+"\n")
		_, _ = w.Write([]byte("0000"))
		sent := line(w, hash+" HEAD\x00side-band-64k ofs-delta report-status agent=evil\n")
		name := strings.Repeat("PACK", 250)
		for n := 0; sent < most && r.Context().Err() == nil; n++ {
			sent += line(w, fmt.Sprintf("%s refs/heads/%s%d\n", hash, name, n))
		}
		_, _ = w.Write([]byte("0000"))
	})
	plain, secure := httptest.NewServer(h), httptest.NewTLSServer(h)
	t.Cleanup(plain.Close)
	t.Cleanup(secure.Close)
	repo := gittest.NewRepo(t)
	head := repo.CommitAndPush(map[string]string{"a": "a"})
	var refs strings.Builder
	refs.WriteString("# pack-refs with: peeled fully-peeled sorted \n")
	for n := 0; refs.Len() < maxListed+maxListed/8; n++ {
		fmt.Fprintf(&refs, "%s refs/heads/%s%08d\n", head, strings.Repeat("PACK", 250), n)
	}
	if err := os.WriteFile(filepath.Join(repo.Bare, "packed-refs"), []byte(refs.String()), 0o600); err != nil {
		t.Fatal(err)
	}
	at := func(address string, a Access) Remote {
		u, err := url.Parse(address)
		if err != nil {
			t.Fatal(err)
		}
		return Remote{URL: u, Access: a}
	}
	certificate := Access{caBundle: pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: secure.Certificate().Raw})}
	server := gittest.ServeSSH(t)
	key := server.Key("client", "ed25519", "")
	server.Let(key)
	identity, err := os.ReadFile(key)
	if err != nil {
		t.Fatal(err)
	}
	overSSH := at(server.URL(repo.Bare), Access{})
	overSSH.Access, err = NewAccess(overSSH.URL, "shop/git", map[string][]byte{"identity": identity, "known_hosts": []byte(server.KnownHosts("ed25519"))}, time.Minute)
	if err != nil {
		t.Fatal(err)
	}
	for name, r := range map[string]Remote{
		"ssh":                overSSH,
		"http":               at(plain.URL+"/repo", Access{}),
		"https with a CA":    at(secure.URL+"/repo", certificate),
		"a local repository": at(repo.URL(), Access{}),
	} {
		t.Run(name, func(t *testing.T) {
			s, err := Connect(t.Context(), r)
			if err == nil {
				s.Close()
			}
			want := r.String() + ": the list of its branches and tags has more than 32Mi"
			if err == nil || !gittree.IsExceeded(err) || !strings.Contains(err.Error(), want) {
				t.Errorf("to fetch: %v, want %q", err, want)
			}
			p, err := r.receiver(t.Context())
			if err == nil {
				p.close()
			}
			if err == nil || !gittree.IsExceeded(err) {
				t.Errorf("to push: %v", err)
			}
		})
	}
}
