package gitserver

import (
	"bufio"
	"crypto/x509"
	"fmt"
	"io"
	"net"
	"net/http"
	"reflect"
	"sync"
	"time"

	"github.com/go-git/go-git/v5/plumbing/transport"
	githttp "github.com/go-git/go-git/v5/plumbing/transport/http"
)

// maxListed bounds the list of references that the server of a repository may send, in
// bytes: some 400,000 of them. All are kept in memory, for a moment.
const maxListed = 32 << 20

// Names of the bounded answers, as messages have them.
const (
	theList       = "the list of its branches and tags"
	theBeginning  = "the answer before its pack"
	theReport     = "the answer to a push"
	theErrorOfIts = "an error of its server"
)

// plainTransport reaches repositories without certificates and a proxy of their own.
var plainTransport = sync.OnceValue(func() transport.Transport { return overHTTP(http.DefaultTransport) })

func overHTTP(t http.RoundTripper) transport.Transport {
	return githttp.NewClient(&http.Client{Transport: boundedTransport{t, maxListed}})
}

// overHTTP is how a repository is reached by https and http. go-git has options for
// certificates and proxies, and takes them only without a transport of ours.
func (a Access) overHTTP() (transport.Transport, error) {
	if len(a.caBundle) == 0 && len(a.clientCert) == 0 && a.proxy.options.URL == "" {
		return plainTransport(), nil
	}
	config, err := a.tls()
	if err != nil {
		return nil, err
	}
	if len(a.caBundle) > 0 {
		if config.RootCAs, err = x509.SystemCertPool(); err != nil {
			return nil, fmt.Errorf("reading the certificates of the system: %w", err)
		}
		config.RootCAs.AppendCertsFromPEM(a.caBundle)
	}
	return overHTTP(&http.Transport{
		Proxy:               a.proxy.of(),
		TLSClientConfig:     config,
		DialContext:         (&net.Dialer{Timeout: 30 * time.Second}).DialContext,
		ForceAttemptHTTP2:   true,
		TLSHandshakeTimeout: 10 * time.Second,
		IdleConnTimeout:     10 * time.Second,
	}), nil
}

// output is what a command of Git answers over ssh, or beside a local repository.
type output struct{ *boundedBody }

// boundOutput bounds the answer of a session by a command, its list of references first.
// go-git reads it from a field of a type that it does not export. Answers over HTTP are
// bounded by their transport.
func boundOutput(session any) output {
	field := reflect.Indirect(reflect.ValueOf(session)).FieldByName("Stdout")
	if !field.IsValid() || !field.CanSet() {
		return output{}
	}
	from, ok := field.Interface().(io.Reader)
	if !ok {
		return output{}
	}
	closer, ok := from.(io.Closer)
	if !ok {
		closer = io.NopCloser(from)
	}
	// go-git reads four bytes and the rest of a line, line by line, and over ssh each
	// read sends a packet.
	body := struct {
		io.Reader
		io.Closer
	}{bufio.NewReader(from), closer}
	o := output{&boundedBody{ReadCloser: body, what: theList, most: maxListed}}
	field.Set(reflect.ValueOf(o.boundedBody))
	return o
}

// next begins to count what comes after the list.
func (o output) next(what, until string) {
	if o.boundedBody != nil {
		o.what, o.until, o.most, o.read, o.tail = what, until, maxBeforePack, 0, nil
	}
}
