package webhook

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"runtime"
	"strings"
	"sync"
	"testing"

	"github.com/go-logr/logr"
	"golang.org/x/time/rate"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/util/workqueue"

	"github.com/tranche-dev/tranche/rollout/clustertest"
)

// hookServer serves webhooks until the test ends, and returns its address.
func hookServer(t *testing.T) (*Receiver, string) {
	t.Helper()
	c := clustertest.Shared(t)
	w := &Receiver{
		c: c.Client, own: c.Client, log: logr.Discard(), limit: rate.NewLimiter(rate.Inf, 1), jobs: make(chan hook, hooksWaiting),
		reading: newShares(hooksReading, hooksOfPeer), large: make(chan struct{}, largeHooks),
		slots: make(chan struct{}, 1), asked: map[types.NamespacedName]bool{}, named: workqueue.NewTyped[types.NamespacedName](),
	}
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	ctx, stop := context.WithCancel(context.Background())
	var running sync.WaitGroup
	running.Go(func() {
		if err := w.serve(ctx, l); err != nil {
			t.Errorf("serving: %v", err)
		}
	})
	t.Cleanup(func() {
		stop()
		running.Wait()
	})
	return w, l.Addr().String()
}

// stalled opens a connection from a loopback address, and sends what never becomes
// a whole request.
func stalled(t *testing.T, from, to, text string) net.Conn {
	t.Helper()
	conn, err := (&net.Dialer{LocalAddr: &net.TCPAddr{IP: net.ParseIP(from)}}).DialContext(t.Context(), "tcp", to)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = conn.Close() })
	go func() { _, _ = io.WriteString(conn, text) }() // the server may close it
	return conn
}

func heap() uint64 {
	runtime.GC()
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	return m.HeapAlloc
}

// Posts of large bodies that stall take little memory; and a
// push of another peer is taken meanwhile.
func TestStalledHooks(t *testing.T) {
	w, address := hookServer(t)
	body := "POST /webhook HTTP/1.1\r\nHost: tranche\r\nContent-Type: application/json\r\nContent-Length: 3145728\r\n\r\n\"" +
		strings.Repeat("a", 3<<20-100)
	before := heap()
	for range 40 {
		stalled(t, "127.0.0.2", address, body)
	}
	clustertest.Wait(t, "the posts to stall", func() error {
		if n := len(w.large); n != largeHooks {
			return fmt.Errorf("%d large ones are being read", n)
		}
		return nil
	})
	takesAnother(t, address)
	if after := heap(); after > before+64<<20 { // 40 of them would take 120 MiB, and a buffer that grows up to twice its size
		t.Errorf("the stalled posts take %d MiB", (after-before)>>20)
	}
}

// takesAnother posts the push of another peer, and expects it to be taken.
func takesAnother(t *testing.T, address string) {
	t.Helper()
	answer, err := http.Post("http://"+address+"/webhook", "application/json", strings.NewReader(pushes["github"]))
	if err != nil {
		t.Fatal(err)
	}
	_ = answer.Body.Close()
	if answer.StatusCode != http.StatusAccepted {
		t.Errorf("a push of another peer: %s", answer.Status)
	}
}

// A peer has so many connections, and no more; another one has its own.
func TestStalledConnections(t *testing.T) {
	_, address := hookServer(t)
	var mu sync.Mutex
	closed := 0
	for range 300 {
		conn := stalled(t, "127.0.0.3", address, "POST /webhook HTTP/1.1\r\n")
		go func() {
			if n, _ := conn.Read(make([]byte, 1)); n == 0 {
				mu.Lock()
				defer mu.Unlock()
				closed++
			}
		}()
	}
	clustertest.Wait(t, "the connections beyond a peer's to be closed", func() error {
		mu.Lock()
		defer mu.Unlock()
		if closed < 300-connectionsOfPeer {
			return fmt.Errorf("%d of 300 are", closed)
		}
		return nil
	})
	takesAnother(t, address)
}

// A slot for large bodies is free again once the body has been looked into or was
// refused.
func TestLargeHooks(t *testing.T) {
	w, _ := hookServer(t)
	for _, tc := range []struct {
		why, body string
		code      int
	}{
		{"a large push", `{"url":"https://github.com/shop/web","x":"` + strings.Repeat("a", 1<<20) + `"}`, http.StatusAccepted},
		{"no JSON", strings.Repeat("a", 1<<20), http.StatusBadRequest},
		{"too large", `"` + strings.Repeat("a", maxHook) + `"`, http.StatusRequestEntityTooLarge},
		{"as large as may be", `"` + strings.Repeat("a", maxHook-2) + `"`, http.StatusAccepted},
	} {
		for range largeHooks + 1 {
			for _, length := range []bool{true, false} {
				var r io.Reader = bytes.NewReader([]byte(tc.body))
				if !length {
					r = struct{ io.Reader }{r}
				}
				answer := httptest.NewRecorder()
				w.ServeHTTP(answer, httptest.NewRequest(http.MethodPost, "/webhook", r))
				if answer.Code != tc.code {
					t.Errorf("%s: %d %s, want %d", tc.why, answer.Code, answer.Body, tc.code)
				}
			}
		}
	}
	clustertest.Wait(t, "all slots to be free", func() error {
		if n := len(w.large); n > 0 {
			return fmt.Errorf("%d are taken", n)
		}
		return nil
	})
}
