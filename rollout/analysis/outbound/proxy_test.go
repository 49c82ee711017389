package outbound

import (
	"net"
	"net/http"
	"net/http/httptest"
	"net/netip"
	"os"
	"os/exec"
	"strconv"
	"sync/atomic"
	"testing"
	"time"

	"github.com/tranche-dev/tranche/rollout/analysis/unknown"
)

// asProxied has this test binary ask the server of its value by both clients.
const asProxied = "OUTBOUND_TEST_SERVER"

// A proxy would reach what the addresses of plans must not. So it sees what the configuration names,
// and nothing that a plan names. The environment of a process is read once, so another one asks.
func TestFor_Proxy(t *testing.T) {
	t.Parallel()
	if server := os.Getenv(asProxied); server != "" {
		askBoth(t, server)
		return
	}
	var direct, proxied atomic.Int32
	// A name, since requests to loopback addresses go through no proxy. It is that of the server alone.
	proxy := httptest.NewServer(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
		proxied.Add(1)
		if r.Header.Get("From") != "configuration" {
			t.Errorf("the proxy sees %s %s", r.Method, r.URL)
		}
	}))
	defer proxy.Close()
	server := httptest.NewServer(http.HandlerFunc(func(http.ResponseWriter, *http.Request) { direct.Add(1) }))
	defer server.Close()
	c := exec.CommandContext(t.Context(), os.Args[0], "-test.run=^TestFor_Proxy$")
	c.Env = append(os.Environ(), asProxied+"="+server.URL)
	for _, name := range []string{"HTTP_PROXY", "HTTPS_PROXY", "ALL_PROXY", "http_proxy", "https_proxy", "all_proxy"} {
		c.Env = append(c.Env, name+"="+proxy.URL)
	}
	c.Env = append(c.Env, "NO_PROXY=", "no_proxy=")
	if out, err := c.CombinedOutput(); err != nil {
		t.Fatalf("asking: %v\n%s", err, out)
	}
	if direct.Load() != 1 || proxied.Load() != 1 {
		t.Errorf("the server was asked %d times by a plan, and the proxy %d times by the configuration", direct.Load(), proxied.Load())
	}
}

// A server on this machine listens on all of its addresses. No plan reaches it by any of them.
func TestFor_OwnAddresses(t *testing.T) {
	t.Parallel()
	listener, err := (&net.ListenConfig{}).Listen(t.Context(), "tcp", ":0")
	if err != nil {
		t.Fatal(err)
	}
	server := &httptest.Server{Listener: listener, Config: &http.Server{ReadHeaderTimeout: time.Minute, Handler: http.HandlerFunc(
		func(_ http.ResponseWriter, r *http.Request) { t.Errorf("a plan reaches %s", r.Host) })}}
	server.Start()
	defer server.Close()
	client, err := NewClients(Options{Now: time.Now}).For(false, TLS{})
	if err != nil {
		t.Fatal(err)
	}
	own, err := net.InterfaceAddrs()
	if err != nil {
		t.Fatal(err)
	}
	for _, o := range own {
		host := netip.MustParsePrefix(o.String()).Addr().String()
		url := "http://" + net.JoinHostPort(host, strconv.Itoa(listener.Addr().(*net.TCPAddr).Port)) + "/"
		r, err := http.NewRequestWithContext(t.Context(), http.MethodGet, url, nil)
		if err != nil {
			t.Fatal(err)
		}
		if _, err := client.Do(r); err == nil || unknown.Of(err).Reason != unknown.ProviderRefused {
			t.Errorf("%s: %v", url, err)
		}
	}
}

// askBoth asks as the configuration does, and as a plan does. The plan's server has an address, and
// that of the configuration a name which only a proxy knows.
func askBoth(t *testing.T, server string) {
	clients := NewClients(Options{Now: time.Now, MayReach: func(netip.Addr) error { return nil }})
	for from, url := range map[string]string{"configuration": "http://metrics.invalid/", "plan": server} {
		client, err := clients.For(from == "configuration", TLS{})
		if err != nil {
			t.Fatal(err)
		}
		r, err := http.NewRequestWithContext(t.Context(), http.MethodGet, url, nil)
		if err != nil {
			t.Fatal(err)
		}
		r.Header.Set("From", from)
		if _, err := client.Do(r); err != nil {
			t.Errorf("%s: %v", from, err)
		}
	}
	client, err := clients.For(false, TLS{})
	if err != nil {
		t.Fatal(err)
	}
	r, err := http.NewRequestWithContext(t.Context(), http.MethodGet, "http://metrics.invalid/", nil)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := client.Do(r); err == nil {
		t.Error("a plan reaches a name that only a proxy knows")
	}
}
