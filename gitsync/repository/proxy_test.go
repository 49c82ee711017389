package repository

import (
	"encoding/pem"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/tranche-dev/tranche/gitsync/gittest"
	"github.com/tranche-dev/tranche/rollout/clustertest"
)

// tunnel is an HTTP proxy that brings every host to one server.
type tunnel struct {
	*httptest.Server
	to    string
	mu    sync.Mutex
	asked []string
}

func newTunnel(t *testing.T, to string) *tunnel {
	t.Helper()
	p := &tunnel{to: to}
	p.Server = httptest.NewServer(p)
	t.Cleanup(p.Close)
	return p
}

func (p *tunnel) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	p.mu.Lock()
	p.asked = append(p.asked, r.Method+" "+r.Host)
	p.mu.Unlock()
	server, err := net.Dial("tcp", p.to)
	if err != nil {
		http.Error(w, err.Error(), http.StatusBadGateway)
		return
	}
	w.WriteHeader(http.StatusOK)
	client, read, err := http.NewResponseController(w).Hijack()
	if err != nil {
		_ = server.Close()
		return
	}
	go func() {
		_, _ = io.Copy(server, read) // what has come already, too; ends when either does
		_ = server.Close()
	}()
	_, _ = io.Copy(client, server)
	_ = client.Close()
}

// inProxied is set in the process that has a proxy in its environment.
const inProxied = "TRANCHE_TEST_PROXIED_CA"

// A proxy is taken from the environment, which a process reads once: so another
// one looks.
func TestProxy(t *testing.T) {
	if ca := os.Getenv(inProxied); ca != "" {
		s := mustLook(t, NewCache(t.TempDir()), remoteFor(t, "https://example.com/repo.git", map[string][]byte{"ca.crt": []byte(ca)}), "main")
		if got := content(t, s, "a.yaml"); got != "one" {
			t.Errorf("read %q", got)
		}
		return
	}
	repo := gittest.NewRepo(t)
	repo.CommitAndPush(map[string]string{"a.yaml": "one"})
	server := gittest.Serve(t, filepath.Dir(repo.Bare), gittest.ServeOptions{TLS: true})
	proxy := newTunnel(t, server.Listener.Addr().String())
	cmd := exec.Command(os.Args[0], "-test.run=^TestProxy$")
	cmd.Env = append(slices.DeleteFunc(os.Environ(), func(v string) bool { return strings.Contains(strings.ToUpper(v), "PROXY") }),
		"HTTPS_PROXY="+proxy.URL, clustertest.WithoutCluster+"=1", inProxied+"="+string(pem.EncodeToMemory(&pem.Block{
			Type: "CERTIFICATE", Bytes: server.Certificate().Raw,
		})))
	if out, err := cmd.CombinedOutput(); err != nil {
		t.Fatalf("%v: %s", err, out)
	}
	proxy.mu.Lock()
	defer proxy.mu.Unlock()
	if len(proxy.asked) == 0 || proxy.asked[0] != "CONNECT example.com:443" {
		t.Errorf("the proxy was asked for %v", proxy.asked)
	}
}
