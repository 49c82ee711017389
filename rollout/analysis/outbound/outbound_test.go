package outbound

import (
	"context"
	"encoding/pem"
	"errors"
	"net"
	"net/http"
	"net/http/httptest"
	"net/netip"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"golang.org/x/net/dns/dnsmessage"

	"github.com/tranche-dev/tranche/rollout/analysis/unknown"
)

func TestNetworks(t *testing.T) {
	t.Parallel()
	some, err := ParseNetworks([]string{"10.0.0.0/8", " 2001:db8::/32"})
	if err != nil {
		t.Fatal(err)
	}
	none, err := ParseNetworks([]string{"none"})
	if err != nil {
		t.Fatal(err)
	}
	for address, want := range map[string][2]bool{ // without networks, and with some
		"10.1.2.3": {true, true}, "192.0.2.1": {true, false}, "2001:db8::1": {true, true}, "fd00::1": {true, false},
		"127.0.0.1": {}, "127.9.9.9": {}, "::1": {}, "::ffff:127.0.0.1": {}, "0.0.0.0": {}, "0.1.2.3": {}, "::": {},
		"169.254.169.254": {}, "::ffff:169.254.169.254": {}, "fe80::1%eth0": {}, "fd00:ec2::254": {}, "100.100.100.200": {},
		"64:ff9b::7f00:1": {}, "64:ff9b::a9fe:a9fe": {}, "64:ff9b::a01:203": {true, true}, "2002:7f00:1::": {}, "::127.0.0.1": {},
		"224.0.0.1": {}, "ff02::1": {}, "255.255.255.255": {},
	} {
		a := netip.MustParseAddr(address)
		if got := [2]bool{(Networks{}).MayReach(a) == nil, some.MayReach(a) == nil}; got != want {
			t.Errorf("%s: %v, want %v", address, got, want)
		}
		if none.MayReach(a) == nil {
			t.Errorf("%s may be reached without any network", address)
		}
	}
	for _, list := range [][]string{{"10.0.0.0"}, {"none", "10.0.0.0/8"}, {""}} {
		if _, err := ParseNetworks(list); err == nil {
			t.Errorf("%q is taken", list)
		}
	}
}

// rebinding is a DNS server whose name leads to another address each time that it is asked.
func rebinding(t *testing.T, addresses ...string) (*net.Resolver, *atomic.Int32) {
	t.Helper()
	udp, err := net.ListenPacket("udp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { udp.Close() })
	var asked atomic.Int32
	go func() {
		buffer := make([]byte, 1500)
		for {
			n, from, err := udp.ReadFrom(buffer)
			if err != nil {
				return
			}
			var m dnsmessage.Message
			if m.Unpack(buffer[:n]) != nil || len(m.Questions) == 0 {
				continue
			}
			m.Response, m.Authoritative, m.Additionals = true, true, nil
			if q := m.Questions[0]; q.Type == dnsmessage.TypeA {
				address := netip.MustParseAddr(addresses[min(int(asked.Add(1)), len(addresses))-1])
				m.Answers = []dnsmessage.Resource{{
					Header: dnsmessage.ResourceHeader{Name: q.Name, Type: q.Type, Class: q.Class},
					Body:   &dnsmessage.AResource{A: address.As4()},
				}}
			}
			if answer, err := m.Pack(); err == nil {
				_, _ = udp.WriteTo(answer, from)
			}
		}
	}()
	return &net.Resolver{PreferGo: true, Dial: func(ctx context.Context, _, _ string) (net.Conn, error) {
		return (&net.Dialer{}).DialContext(ctx, "udp", udp.LocalAddr().String())
	}}, &asked
}

// A name leads to an address that may be reached first, and to this machine then. The address
// is checked when it is dialled, so the second request is refused, and nothing is sent.
func TestRebinding(t *testing.T) {
	t.Parallel()
	var hits atomic.Int32
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		hits.Add(1)
		w.Header().Set("Connection", "close")
	}))
	defer server.Close()
	resolver, asked := rebinding(t, "127.0.0.1", "127.0.0.2")
	allowed := netip.MustParseAddr("127.0.0.1")
	clients := NewClients(Options{Now: time.Now, Resolver: resolver, MayReach: func(a netip.Addr) error {
		if a == allowed { // as an address of another machine
			return nil
		}
		return Networks{}.MayReach(a)
	}})
	defer clients.Close()
	client, err := clients.For(false, TLS{})
	if err != nil {
		t.Fatal(err)
	}
	address := "http://rebinding.example.test" + server.URL[strings.LastIndex(server.URL, ":"):]
	get := func() error {
		r, err := http.NewRequestWithContext(t.Context(), http.MethodGet, address, nil)
		if err != nil {
			t.Fatal(err)
		}
		_, err = client.Do(r)
		return err
	}
	if err := get(); err != nil || hits.Load() != 1 {
		t.Fatalf("the first request: %v, %d requests", err, hits.Load())
	}
	var refused *unknown.Error
	if err := get(); !errors.As(err, &refused) || refused.Reason != unknown.ProviderRefused || refused.Retry {
		t.Errorf("the second request: %v", err)
	}
	if hits.Load() != 1 || asked.Load() < 2 {
		t.Errorf("%d requests came, and the name was resolved %d times", hits.Load(), asked.Load())
	}
}

// The configuration's server may be on this machine; the same address of a plan may not. The
// clients are not shared.
func TestFor(t *testing.T) {
	t.Parallel()
	server := httptest.NewTLSServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		switch r.URL.Path {
		case "/seconds":
			w.Header().Set("Retry-After", "7")
			w.WriteHeader(http.StatusTooManyRequests)
		case "/date": // by the server's clock, which is an hour off
			now := time.Now().Add(time.Hour)
			w.Header().Set("Date", now.UTC().Format(http.TimeFormat))
			w.Header().Set("Retry-After", now.Add(9*time.Second).UTC().Format(http.TimeFormat))
			w.WriteHeader(http.StatusServiceUnavailable)
		case "/ever":
			w.Header().Set("Retry-After", "99999999999")
			w.WriteHeader(http.StatusServiceUnavailable)
		case "/garbage":
			w.Header().Set("Retry-After", "-1 hours")
			w.WriteHeader(http.StatusServiceUnavailable)
		}
	}))
	defer server.Close()
	clients := NewClients(Options{Now: time.Now})
	defer clients.Close()
	ca := pemOf(server)
	get := func(trusted bool, certificates TLS, path string) *unknown.Error {
		client, err := clients.For(trusted, certificates)
		if err == nil {
			var r *http.Request
			if r, err = http.NewRequestWithContext(t.Context(), http.MethodGet, server.URL+path, nil); err != nil {
				t.Fatal(err)
			}
			_, err = client.Do(r)
		}
		if err == nil {
			return nil
		}
		return unknown.Of(err)
	}
	if err := get(true, TLS{CA: ca}, ""); err != nil {
		t.Errorf("a configured server: %v", err)
	}
	for name, c := range map[string]struct {
		trusted      bool
		certificates TLS
		path, want   string
		after        time.Duration
	}{
		"a plan's":               {false, TLS{CA: ca}, "", unknown.ProviderRefused, 0},
		"without its authority":  {true, TLS{}, "", unknown.ProviderUnavailable, 0},
		"no authority":           {true, TLS{CA: []byte("secret")}, "", unknown.SecretNotReadable, 0},
		"no key":                 {true, TLS{CA: ca, Certificate: ca, Key: []byte("secret")}, "", unknown.SecretNotReadable, 0},
		"waits for seconds":      {true, TLS{CA: ca}, "/seconds", unknown.ProviderUnavailable, 7 * time.Second},
		"waits until a time":     {true, TLS{CA: ca}, "/date", unknown.ProviderUnavailable, 9 * time.Second},
		"waits for ever":         {true, TLS{CA: ca}, "/ever", unknown.ProviderUnavailable, 10 * time.Minute},
		"waits for some garbage": {true, TLS{CA: ca}, "/garbage", unknown.ProviderUnavailable, 0},
	} {
		err := get(c.trusted, c.certificates, c.path)
		if err == nil || err.Reason != c.want || err.After.Round(time.Second) != c.after || strings.Contains(err.Error(), "secret") {
			t.Errorf("%s: %+v, want %s after %s", name, err, c.want, c.after)
		}
	}
}

func pemOf(server *httptest.Server) []byte {
	return pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: server.Certificate().Raw})
}
