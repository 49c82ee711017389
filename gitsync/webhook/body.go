package webhook

import (
	"bytes"
	"context"
	"errors"
	"io"
	"net"
	"net/http"
	"sync"
)

// Bounds on posts before anything is known of them. Together they bound the memory of
// what is read and of what waits. That is hooksReading and hooksWaiting small bodies, and
// largeHooks large ones.
const (
	// smallHook is a body that is read at once. A larger one waits for one of
	// largeHooks slots first, and keeps it until it has been looked into.
	smallHook = 64 << 10
	// maxHook bounds the body of a webhook; the forges' own bound is lower or
	// so high that no push of people comes near.
	maxHook    = 3 << 20
	largeHooks = 4
	// hooksReading are read at the same time, and hooksOfPeer of one address.
	hooksReading, hooksOfPeer = 64, 16
	// connections are open at the same time, and connectionsOfPeer of one address.
	connections, connectionsOfPeer = 512, 64
)

var (
	errHookTooLarge = errors.New("the body is too large")
	errHooksBusy    = errors.New("too many large webhooks")
)

// shares counts what is taken at the same time, in all and by each peer.
type shares struct {
	most, ofPeer int

	mu    sync.Mutex
	taken int
	by    map[string]int // peer's address
}

func newShares(most, ofPeer int) *shares {
	return &shares{most: most, ofPeer: ofPeer, by: map[string]int{}}
}

// take reports whether a peer may have one more.
func (s *shares) take(peer string) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.taken >= s.most || s.by[peer] >= s.ofPeer {
		return false
	}
	s.taken++
	s.by[peer]++
	return true
}

func (s *shares) giveBack(peer string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.taken--
	if s.by[peer]--; s.by[peer] == 0 {
		delete(s.by, peer)
	}
}

// peerOf is the address without the port.
func peerOf(address string) string {
	if host, _, err := net.SplitHostPort(address); err == nil {
		return host
	}
	return address
}

// sharedListener closes connections beyond what a peer, or all of them, may have.
type sharedListener struct {
	net.Listener
	open *shares
}

func (l *sharedListener) Accept() (net.Conn, error) {
	for {
		c, err := l.Listener.Accept()
		if err != nil {
			return nil, err
		}
		peer := peerOf(c.RemoteAddr().String())
		if l.open.take(peer) {
			return &sharedConn{Conn: c, giveBack: sync.OnceFunc(func() { l.open.giveBack(peer) })}, nil
		}
		_ = c.Close() // nothing was read of it
	}
}

type sharedConn struct {
	net.Conn
	giveBack func()
}

func (c *sharedConn) Close() error {
	c.giveBack()
	return c.Conn.Close()
}

// readHook reads the body of a post. The caller gives a slot of large back where
// the body has more than smallHook bytes. Errors are errHookTooLarge, errHooksBusy
// where ctx ended before a slot was free, and those of the connection.
func readHook(ctx context.Context, r *http.Request, large chan struct{}) ([]byte, error) {
	if r.ContentLength > maxHook {
		return nil, errHookTooLarge
	}
	var body bytes.Buffer
	if _, err := io.CopyN(&body, r.Body, smallHook+1); errors.Is(err, io.EOF) {
		return body.Bytes(), nil
	} else if err != nil {
		return nil, err
	}
	select {
	case large <- struct{}{}:
	case <-ctx.Done():
		return nil, errHooksBusy
	}
	body.Grow(maxHook + bytes.MinRead - body.Len()) // once, and not by doubling
	_, err := io.Copy(&body, io.LimitReader(r.Body, int64(maxHook+1-body.Len())))
	if err == nil && body.Len() > maxHook {
		err = errHookTooLarge
	}
	if err != nil {
		<-large
		return nil, err
	}
	return body.Bytes(), nil
}
