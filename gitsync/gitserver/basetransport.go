package gitserver

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/netip"
	"slices"
	"strings"
	"sync"
	"syscall"
	"time"

	"github.com/go-git/go-git/v5/plumbing/transport"
	githttp "github.com/go-git/go-git/v5/plumbing/transport/http"
	"github.com/tranche-dev/tranche/gitsync/gittree"
	"github.com/tranche-dev/tranche/plan"
)

// Limits, in bytes, of the answers that are kept in memory before a pack comes. They are
// the list of the references of a base, the answer that names what follows, and an
// error's text.
const (
	maxAdvertised = 16 << 20
	maxBeforePack = 1 << 20
	maxErrorText  = 64 << 10
)

// baseTransport is how servers of remote bases are reached. A tenant chooses their URLs.
// So it has no credentials and follows no redirect to another host. It dials no address at
// which a cloud serves the secrets of its machines, and reads no list without end.
var baseTransport = sync.OnceValue(func() transport.Transport {
	t := &http.Transport{
		Proxy:               http.ProxyFromEnvironment,
		DialContext:         (&net.Dialer{Timeout: 30 * time.Second, Control: mayDial}).DialContext,
		ForceAttemptHTTP2:   true,
		TLSHandshakeTimeout: 10 * time.Second,
		IdleConnTimeout:     10 * time.Second,
		DisableCompression:  true, // or a small answer could become one without end
	}
	return githttp.NewClient(&http.Client{Transport: publicTransport{boundedTransport{t, maxAdvertised}}, CheckRedirect: sameHost})
})

// errMayNotDial is of an address that no repository is at.
var errMayNotDial = errors.New("no remote base is fetched from this address: it is link-local, or that of a metadata service")

// metadataAddresses are those of clouds' metadata services which are not link-local.
var metadataAddresses = []netip.Addr{
	netip.MustParseAddr("100.100.100.200"), netip.MustParseAddr("168.63.129.16"), netip.MustParseAddr("192.0.0.192"),
	netip.MustParseAddr("fd00:ec2::254"), netip.MustParseAddr("fd20:ce::254"),
}

// mayDial is asked with the address that a name has led to.
func mayDial(_, address string, _ syscall.RawConn) error {
	to, err := netip.ParseAddrPort(address)
	if err != nil {
		return fmt.Errorf("reading the address %s: %w", address, err)
	}
	return mayReach(to.Addr())
}

func mayReach(a netip.Addr) error {
	a = a.Unmap().WithZone("")
	if a.IsLinkLocalUnicast() || a.IsMulticast() || a.IsUnspecified() || slices.Contains(metadataAddresses, a) {
		return errMayNotDial
	}
	return nil
}

const maxRedirects = 10

// sameHost refuses a redirect to another host, or away from TLS.
func sameHost(to *http.Request, via []*http.Request) error {
	from := via[0].URL
	if to.URL.Host != from.Host || to.URL.Scheme != from.Scheme {
		return fmt.Errorf("the server redirects to %s, and a remote base is fetched from the host that is named", plan.OneLine(to.URL.Host))
	}
	if len(via) >= maxRedirects {
		return errors.New("the server redirects without end")
	}
	return nil
}

// publicTransport asks no address at which no repository is.
type publicTransport struct{ http.RoundTripper }

func (t publicTransport) RoundTrip(r *http.Request) (*http.Response, error) {
	// Through a proxy, what is dialled is the proxy.
	if a, err := netip.ParseAddr(r.URL.Hostname()); err == nil {
		if err := mayReach(a); err != nil {
			return nil, err
		}
	}
	return t.RoundTripper.RoundTrip(r)
}

// boundedTransport bounds what is read before a pack comes.
type boundedTransport struct {
	http.RoundTripper
	list int // of references, in bytes
}

func (t boundedTransport) RoundTrip(r *http.Request) (*http.Response, error) {
	answer, err := t.RoundTripper.RoundTrip(r)
	switch {
	case err != nil:
	case answer.StatusCode >= http.StatusMultipleChoices:
		answer.Body = &boundedBody{ReadCloser: answer.Body, what: theErrorOfIts, most: maxErrorText}
	case strings.HasSuffix(r.URL.Path, "/info/refs"):
		answer.Body = &boundedBody{ReadCloser: answer.Body, what: theList, most: t.list}
	default:
		answer.Body = &boundedBody{ReadCloser: answer.Body, what: theBeginning, most: maxBeforePack, until: packSignature}
	}
	return answer, err
}

// packSignature is what a pack begins with. https://git-scm.com/docs/pack-format
const packSignature = "PACK"

// boundedBody ends with an error if it is longer than it may be, in bytes. Bytes after
// until are not counted: the size of a pack is bounded by the code that writes it.
type boundedBody struct {
	io.ReadCloser
	what, until string
	most, read  int
	tail        []byte
	free        bool
}

func (b *boundedBody) Read(p []byte) (int, error) {
	n, err := b.ReadCloser.Read(p)
	if b.free {
		return n, err
	}
	seen := append(b.tail, p[:n]...)
	if b.until != "" && bytes.Contains(seen, []byte(b.until)) {
		b.free, b.tail = true, nil
		return n, err
	}
	b.tail = slices.Clone(seen[max(0, len(seen)-len(b.until)):])
	if b.read += n; b.read > b.most {
		return 0, gittree.Exceeded("", b.what+" has more than "+gittree.FormatSize(int64(b.most)), "")
	}
	return n, err
}
