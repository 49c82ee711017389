package gitserver

import (
	"cmp"
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"io"
	"mime"
	"net/http"
	"regexp"
	"strings"

	"github.com/go-git/go-git/v5/plumbing/format/pktline"
	"github.com/go-git/go-git/v5/plumbing/protocol/packp"
	githttp "github.com/go-git/go-git/v5/plumbing/transport/http"

	"github.com/tranche-dev/tranche/plan"
	"github.com/tranche-dev/tranche/plan/v1alpha1"
)

// isNotGit reports whether a server was reached that does not speak Git.
func isNotGit(err error) bool {
	data, unexpected := errors.AsType[*packp.ErrUnexpectedData](err)
	elsewhere := strings.HasPrefix(err.Error(), "http redirect: target ") // go-git has no error of its own for it
	return elsewhere || errors.Is(err, pktline.ErrInvalidPktLen) || unexpected && !strings.Contains(string(data.Data), "object-format=")
}

// notGit returns a problem that says what answers in place of Git. Over HTTP it asks
// the server once more, since go-git keeps nothing of an answer that it cannot read.
// The problem has only the title of a page: the rest may be secret.
func (r Remote) notGit(ctx context.Context) *plan.Problem {
	p := &plan.Problem{
		Reason: v1alpha1.ReasonNotGit, Where: r.String(), Err: errors.New("what answers is no Git"), Retry: true,
		Hint: "check spec.url, and that the account's shell prints nothing",
	}
	if r.URL.Scheme == "ssh" {
		return p
	}
	p.Hint = "check spec.url, and the proxies on the way"
	said, login, err := r.answer(ctx)
	if err != nil {
		return p
	}
	p.Err = errors.New("what answers is no Git: " + said)
	if login {
		p.Hint = r.credentialsHint("it may be a login page: check the credentials")
	}
	return p
}

// pageSize is how much of an answer is read for its title.
const pageSize = 1 << 16

var title = regexp.MustCompile(`(?is)<title[^>]*>(.*?)</title>`)

// answer describes what a server sends where Git would list its branches, and
// whether that is a page for people.
func (r Remote) answer(ctx context.Context) (said string, page bool, err error) {
	req, err := http.NewRequestWithContext(ctx, http.MethodGet,
		strings.TrimSuffix(r.URL.String(), "/")+"/info/refs?service=git-upload-pack", nil)
	if err != nil {
		return "", false, err
	}
	if auth, ok := r.Access.method.(githttp.AuthMethod); ok {
		auth.SetAuth(req)
	}
	config, err := r.Access.tls()
	if err != nil {
		return "", false, err
	}
	transport := &http.Transport{Proxy: r.Access.proxy.of(), TLSClientConfig: config}
	defer transport.CloseIdleConnections()
	stay := func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse } // credentials go nowhere else
	res, err := (&http.Client{Transport: transport, CheckRedirect: stay}).Do(req)
	if err != nil {
		return "", false, err
	}
	defer res.Body.Close()
	if to, err := res.Location(); err == nil {
		return "it leads to " + to.Scheme + "://" + plan.OneLine(to.Host+to.EscapedPath()), true, nil
	}
	body, err := io.ReadAll(io.LimitReader(res.Body, pageSize))
	if err != nil {
		return "", false, err
	}
	kind, _, err := mime.ParseMediaType(res.Header.Get("Content-Type"))
	if err != nil {
		kind = ""
	}
	said = "it sends " + cmp.Or(plan.OneLine(kind), "data of no type")
	if m := title.FindSubmatch(body); m != nil && kind == "text/html" {
		said += `, a page with the title "` + plan.OneLine(string(m[1])) + `"`
	}
	return said, kind == "text/html", nil
}

// tls is what the Secret says of certificates.
func (a Access) tls() (*tls.Config, error) {
	c := &tls.Config{MinVersion: tls.VersionTLS12}
	if len(a.caBundle) > 0 {
		c.RootCAs = x509.NewCertPool()
		c.RootCAs.AppendCertsFromPEM(a.caBundle)
	}
	if len(a.clientCert) > 0 {
		cert, err := tls.X509KeyPair(a.clientCert, a.tlsKey)
		if err != nil {
			return nil, err
		}
		c.Certificates = []tls.Certificate{cert}
	}
	return c, nil
}
