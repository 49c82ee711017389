package gitserver

import (
	"bytes"
	"cmp"
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/url"
	"path/filepath"
	"slices"
	"strings"
	"sync/atomic"
	"syscall"

	"github.com/go-git/go-git/v5/plumbing"
	"github.com/go-git/go-git/v5/plumbing/format/pktline"
	"github.com/go-git/go-git/v5/plumbing/object"
	"github.com/go-git/go-git/v5/plumbing/protocol/packp"
	"github.com/go-git/go-git/v5/plumbing/protocol/packp/capability"
	"github.com/go-git/go-git/v5/plumbing/protocol/packp/sideband"
	"github.com/go-git/go-git/v5/plumbing/transport"
	gitclient "github.com/go-git/go-git/v5/plumbing/transport/client"
	"github.com/go-git/go-git/v5/storage"
	"github.com/go-git/go-git/v5/storage/filesystem"
	"golang.org/x/crypto/ssh"
	hostkeys "golang.org/x/crypto/ssh/knownhosts"

	"github.com/tranche-dev/tranche/gitsync/gittree"
	"github.com/tranche-dev/tranche/plan"
	"github.com/tranche-dev/tranche/plan/v1alpha1"
)

// Remote is a repository and how to come to it.
type Remote struct {
	// URL is that of the GitSource.
	URL *url.URL
	// Secret is namespace and name of the Secret with the credentials; empty: none.
	Secret string
	// Proxy is namespace and name of the Secret with the proxy; empty: none.
	Proxy string
	// Access is what the two Secrets say.
	Access Access
	// Base is set for a remote base, which a tenant names.
	Base bool
	// MayPush is asked before each push; its error refuses the push. nil: it may.
	MayPush func() error
}

// ParseURL takes a GitSource's URL apart.
func ParseURL(raw string) (*url.URL, error) {
	u, err := url.Parse(raw)
	if err != nil {
		// url.Error quotes the URL, which may hold what it should not.
		return nil, &plan.Problem{Reason: v1alpha1.ReasonInvalidURL, Where: "spec.url", Err: errors.New("is not a URL")}
	}
	if _, hasPassword := u.User.Password(); hasPassword || (u.User != nil && u.Scheme != "ssh") {
		return nil, &plan.Problem{
			Reason: v1alpha1.ReasonInvalidURL, Where: "spec.url", Err: errors.New("has credentials in it"),
			Hint: "put them into a Secret and name it in spec.secretRef",
		}
	}
	return u, nil
}

// MayRead refuses a file URL that leads out of the folders that may be read. It returns
// the URL to read: that of a file without links and dots. Git follows these in another
// way than they are checked, and at another time.
func MayRead(roots []string, u *url.URL) (*url.URL, error) {
	if u.Scheme != "file" {
		return u, nil
	}
	if at := resolved(u.Path); isBelow(roots, at) {
		return &url.URL{Scheme: u.Scheme, Path: at}, nil
	}
	return nil, &plan.Problem{
		Reason: v1alpha1.ReasonInvalidURL, Where: "spec.url",
		Err:  errors.New("the controller follows no repository in that folder"),
		Hint: "use https or ssh, or start the controller with --file-roots",
	}
}

// MayWrite reports whether commits may be pushed to a URL that [MayRead] returned: a file
// URL only below the given folders.
func MayWrite(roots []string, u *url.URL) bool { return u.Scheme != "file" || isBelow(roots, u.Path) }

// isBelow reports whether a path without links is one of the folders or below one.
func isBelow(roots []string, at string) bool {
	return slices.ContainsFunc(roots, func(root string) bool {
		inside, err := filepath.Rel(resolved(root), at)
		return err == nil && filepath.IsLocal(inside)
	})
}

// resolved is where a path leads, as far as it is there.
func resolved(p string) string {
	p = filepath.Clean(p)
	if to, err := filepath.EvalSymlinks(p); err == nil {
		return to
	}
	if dir := filepath.Dir(p); dir != p {
		return filepath.Join(resolved(dir), filepath.Base(p))
	}
	return p
}

// String is the URL without userinfo, for messages.
func (r Remote) String() string {
	u := *r.URL
	u.User = nil
	return u.String()
}

// Session is one connection to a Git server.
type Session struct {
	remote Remote
	// Git is the exchange itself.
	Git transport.UploadPackSession
	// Refs is what the server advertises.
	Refs *packp.AdvRefs
	// Depth is how many commits of a history are fetched; 0: all.
	Depth int
	// abandoned: a local git is still at it.
	abandoned atomic.Bool
}

// Connect opens a session and reads what the server advertises.
func Connect(ctx context.Context, r Remote) (*Session, error) {
	s := &Session{remote: r}
	err := within(ctx, func() (err error) {
		s.Git, err = dial(r)
		return err
	}, func() { s.Close() })
	if err != nil {
		return nil, r.Problem(err)
	}
	out := boundOutput(s.Git)
	if s.Refs, err = s.Git.AdvertisedReferencesContext(ctx); err != nil {
		s.Close()
		if isNotGit(err) && !r.Base {
			return nil, r.notGit(ctx)
		}
		return nil, r.Problem(cmpContext(ctx, err))
	}
	out.next(theBeginning, packSignature)
	return s, nil
}

// dial has no context in go-git, nor a limit for the handshake.
func dial(r Remote) (transport.UploadPackSession, error) {
	ep, c, err := r.transport()
	if err != nil {
		return nil, err
	}
	return c.NewUploadPackSession(ep, r.Access.method)
}

// transport returns how to come to a repository, to read or to write.
func (r Remote) transport() (*transport.Endpoint, transport.Transport, error) {
	ep, err := transport.NewEndpoint(r.URL.String())
	if err != nil {
		return nil, nil, err
	}
	if r.Base {
		return ep, baseTransport(), nil
	}
	if ep.Protocol == "https" || ep.Protocol == "http" {
		c, err := r.Access.overHTTP()
		return ep, c, err
	}
	c, err := gitclient.NewClient(ep)
	return ep, c, err
}

// within runs f until ctx ends. If f ends after that, undo takes back what it opened. A server
// whose answer makes go-git panic ends no other source.
func within(ctx context.Context, f func() error, undo func()) error {
	done := make(chan error, 1)
	go func() {
		defer func() {
			if p := recover(); p != nil {
				done <- fmt.Errorf("reading the answer: panic: %v", p)
			}
		}()
		done <- f()
	}()
	select {
	case err := <-done:
		return err
	case <-ctx.Done():
		go func() {
			if <-done == nil {
				undo()
			}
		}()
		return ctx.Err()
	}
}

// cmpContext prefers the end of the context over what it led to.
func cmpContext(ctx context.Context, err error) error {
	if ctx.Err() != nil {
		return ctx.Err()
	}
	return err
}

// Close ends the session.
func (s *Session) Close() {
	if s.abandoned.Load() {
		return // it ends by itself
	}
	_ = s.Git.Close() // all that was wanted has been read
}

// Tip returns the advertised commit of a branch.
func (s *Session) Tip(branch string) (plumbing.Hash, error) {
	h, ok := s.Refs.References[plumbing.NewBranchReferenceName(branch).String()]
	if !ok {
		return plumbing.ZeroHash, noBranch(s, branch)
	}
	return h, nil
}

// MayWant reports whether the server lets a commit be asked for by its name.
func (s *Session) MayWant(commit plumbing.Hash) bool {
	if s.Refs.Capabilities.Supports(capability.AllowReachableSHA1InWant) {
		return true
	}
	for _, h := range s.Refs.References {
		if h == commit {
			return true
		}
	}
	return false
}

// Fetch brings commits and their history into a store that has the haves. It
// is what go-git's Remote.Fetch does, on the session that is open already.
// At most so many bytes are brought.
func (s *Session) Fetch(ctx context.Context, store *filesystem.Storage, wants, haves []plumbing.Hash, l gittree.Limits, room int64) error {
	req := packp.NewUploadPackRequestFromCapabilities(s.Refs.Capabilities)
	if s.Refs.Capabilities.Supports(capability.NoProgress) {
		if err := req.Capabilities.Set(capability.NoProgress); err != nil {
			return err
		}
	}
	if s.Depth > 0 && s.Refs.Capabilities.Supports(capability.Shallow) {
		if err := req.Capabilities.Set(capability.Shallow); err != nil {
			return err
		}
		req.Depth = packp.DepthCommits(s.Depth)
	}
	req.Wants, req.Haves = wants, haves
	answer, err := s.uploadPack(ctx, req)
	if err != nil && strings.HasSuffix(err.Error(), "closing input: EOF") {
		return fmt.Errorf("%w: %w", ErrHungUp, s.remote.Problem(err))
	}
	if err != nil {
		return s.remote.Problem(cmpContext(ctx, err))
	}
	pack, err := receivePack(ctx, store.Filesystem(), demultiplex(req.Capabilities, answer), room, l)
	if err != nil {
		s.abandon(answer)
		return s.remote.Problem(cmpContext(ctx, err))
	}
	closed := answer.Close()
	if closed != nil {
		closed = s.remote.Problem(cmpContext(ctx, closed))
	}
	if err := pack.index(ctx); err != nil {
		return s.remote.Problem(err)
	}
	return closed // all is there
}

// ErrHungUp says that an SSH server has sent all that it has before go-git could say that
// it wants no more. go-git takes that for an error, and has no other word for it.
var ErrHungUp = errors.New("the server was too fast")

// uploadPack asks for a pack. The end of ctx ends the exchange; one with a
// local git, which has no other end than its own, is left to itself then.
func (s *Session) uploadPack(ctx context.Context, req *packp.UploadPackRequest) (*packp.UploadPackResponse, error) {
	if !s.isLocal() {
		return s.Git.UploadPack(ctx, req)
	}
	// The result has no name: at the end of ctx a return would set it to nil. The
	// goroutine that ends the exchange later would have nothing to end.
	var answer *packp.UploadPackResponse
	err := within(ctx, func() (err error) {
		answer, err = s.Git.UploadPack(context.WithoutCancel(ctx), req)
		return err
	}, func() { s.abandon(answer) })
	if ctx.Err() != nil {
		s.abandoned.Store(true)
		return nil, ctx.Err()
	}
	return answer, err
}

func (s *Session) isLocal() bool { return s.remote.URL.Scheme == "file" }

// abandon ends an exchange before its end. A local git would wait for ever until the
// rest is read from its pipe, and go-git for ever for that git.
func (s *Session) abandon(answer *packp.UploadPackResponse) {
	if !s.isLocal() {
		_ = answer.Close() // it has failed already
		return
	}
	s.abandoned.Store(true)
	go func() {
		_, _ = io.Copy(io.Discard, answer)
		_ = answer.Close()
	}()
}

func demultiplex(c *capability.List, r io.Reader) io.Reader {
	switch {
	case c.Supports(capability.Sideband64k):
		return sideband.NewDemuxer(sideband.Sideband64k, r)
	case c.Supports(capability.Sideband):
		return sideband.NewDemuxer(sideband.Sideband, r)
	default:
		return r
	}
}

// maxHaves is how many commits a fetch says it has.
const maxHaves = 256

// Haves returns the newest commits of a store. After a force-push the server
// may lack the tip that we have, and needs an older one to build on.
func Haves(store storage.Storer, tips []plumbing.Hash) []plumbing.Hash {
	var list []plumbing.Hash
	seen := map[plumbing.Hash]bool{}
	queue := tips
	for len(queue) > 0 && len(list) < maxHaves {
		h := queue[0]
		queue = queue[1:]
		if seen[h] {
			continue
		}
		seen[h] = true
		c, err := object.GetCommit(store, h)
		if err != nil {
			continue // a hole: do not claim to have it
		}
		list = append(list, h)
		queue = append(queue, c.ParentHashes...)
	}
	return list
}

// Problem puts an error of the exchange in words.
func (r Remote) Problem(err error) error {
	if p, ok := errors.AsType[*plan.Problem](err); ok {
		p.Where = cmp.Or(p.Where, r.String())
		return p
	}
	switch {
	case errors.Is(err, ErrNoRoom):
		return err
	case errors.Is(err, syscall.ENOSPC), errors.Is(err, syscall.EDQUOT), errors.Is(err, syscall.EROFS):
		return StorageProblem(err)
	}
	for _, classify := range []func(error) *plan.Problem{r.limited, r.refused, r.untrusted, r.unreachable} {
		if p := classify(err); p != nil {
			p.Where = r.String()
			return p
		}
	}
	return &plan.Problem{
		Reason: v1alpha1.ReasonFetchFailed, Where: r.String(), Err: errors.New("fetching: " + plan.OneLine(r.rootOf(err))),
		Retry: true,
	}
}

// refused are the answers of a server that was reached.
func (r Remote) refused(err error) *plan.Problem {
	data, _ := errors.AsType[*packp.ErrUnexpectedData](err)
	text := err.Error()
	switch {
	case errors.Is(err, transport.ErrRepositoryNotFound):
		return &plan.Problem{
			Reason: v1alpha1.ReasonRepositoryNotFound,
			Err:    errors.New("there is no such repository, or the credentials may not see it"),
			Hint:   r.credentialsHint("check spec.url"),
		}
	case r.Proxy != "" && isProxyRefusal(err):
		return &plan.Problem{
			Reason: v1alpha1.ReasonAuthenticationFailed, Err: errors.New("the proxy does not accept the credentials"),
			Hint: "set username and password in Secret " + r.Proxy,
		}
	case errors.Is(err, transport.ErrAuthenticationRequired), errors.Is(err, transport.ErrInvalidAuthMethod),
		strings.Contains(text, "ssh: unable to authenticate"):
		return &plan.Problem{
			Reason: v1alpha1.ReasonAuthenticationFailed, Err: errors.New("the server does not accept the credentials"),
			Hint: r.credentialsHint("renew them"),
		}
	case errors.Is(err, transport.ErrAuthorizationFailed):
		return &plan.Problem{
			Reason: v1alpha1.ReasonAuthenticationFailed, Err: errors.New("the server forbids reading the repository"),
			Hint: r.credentialsHint("grant them read access"),
		}
	case strings.Contains(text, "dubious ownership"):
		return &plan.Problem{
			Reason: v1alpha1.ReasonAuthenticationFailed, Err: errors.New("git refuses the repository, since another user owns it"),
			Hint: "make the controller's user its owner, or add it to git's safe.directory",
		}
	case errors.Is(err, transport.ErrEmptyRemoteRepository):
		return &plan.Problem{Reason: v1alpha1.ReasonEmptyRepository, Err: errors.New("the repository is empty"), Hint: "push a branch"}
	case data != nil && bytes.Contains(data.Data, []byte("object-format=sha256")):
		return &plan.Problem{
			Reason: v1alpha1.ReasonUnsupportedObjectFormat,
			Err:    errors.New("the repository names its objects by SHA-256, which is not supported"),
			Hint:   "use a repository with SHA-1, git's default",
		}
	default:
		return nil
	}
}

func (r Remote) credentialsHint(otherwise string) string {
	if r.Secret == "" {
		return "check spec.url; a repository that is not public needs a Secret, named in spec.secretRef"
	}
	return otherwise + ", and Secret " + r.Secret
}

// untrustedHostKey returns a problem with the fingerprints of the key that the host has
// and of those that it should have. A user compares them with those that the host's owner
// publishes.
func (r Remote) untrustedHostKey(key *hostKeyError) *plan.Problem {
	p := &plan.Problem{Reason: v1alpha1.ReasonHostKeyMismatch}
	known, _ := errors.AsType[*hostkeys.KeyError](key.error)
	switch {
	case known != nil && len(known.Want) > 0:
		var want []string
		for _, w := range known.Want {
			want = append(want, w.Key.Type()+" "+ssh.FingerprintSHA256(w.Key))
		}
		p.Err = fmt.Errorf("the host's key, %s, is not the one in known_hosts: %s", key.fingerprint, strings.Join(want, ", "))
		p.Hint = "another server may be answering; if the host has a new key, put it into known_hosts of Secret " + r.Secret
	case known != nil:
		p.Err = fmt.Errorf("the host is not in known_hosts; its key is %s", key.fingerprint)
		p.Hint = "compare that with what its owner publishes, and add it to known_hosts of Secret " + r.Secret
	default:
		p.Err = fmt.Errorf("the host's key, %s, is refused: %w", key.fingerprint, key.error)
		p.Hint = "see the line for it in known_hosts of Secret " + r.Secret
	}
	return p
}

// untrusted are servers that are not who they should be.
func (r Remote) untrusted(err error) *plan.Problem {
	if key, ok := errors.AsType[*hostKeyError](err); ok {
		return r.untrustedHostKey(key)
	}
	if strings.Contains(err.Error(), "ssh: no common algorithm for host key") {
		return &plan.Problem{
			Reason: v1alpha1.ReasonHostKeyMismatch,
			Err:    errors.New("the host has none of the kinds of key that known_hosts has for it"),
			Hint:   "add its key to known_hosts of Secret " + r.Secret,
		}
	}
	hint := "add the issuer's certificate to the Secret of spec.secretRef as ca.crt"
	_, notTLS := errors.AsType[tls.RecordHeaderError](err)
	_, unknown := errors.AsType[x509.UnknownAuthorityError](err)
	_, verification := errors.AsType[*tls.CertificateVerificationError](err)
	_, alert := errors.AsType[tls.AlertError](err)
	switch {
	case notTLS || errors.Is(err, http.ErrSchemeMismatch):
		return &plan.Problem{
			Reason: v1alpha1.ReasonTLSFailed, Err: errors.New("the server does not speak TLS on this port"), Hint: "check spec.url",
		}
	case unknown:
		return &plan.Problem{
			Reason: v1alpha1.ReasonTLSFailed, Err: errors.New("the server's certificate is signed by an unknown authority"),
			Hint: hint,
		}
	case verification || alert || strings.Contains(err.Error(), "tls: "):
		return &plan.Problem{
			Reason: v1alpha1.ReasonTLSFailed, Err: errors.New(plan.OneLine(r.rootOf(err))),
			Hint: "check the server's certificate, and ca.crt, tls.crt and tls.key of the Secret",
		}
	default:
		return nil
	}
}

// unreachable are servers that do not answer.
func (r Remote) unreachable(err error) *plan.Problem {
	netErr, isNet := errors.AsType[net.Error](err)
	dns, isDNS := errors.AsType[*net.DNSError](err)
	_, isOp := errors.AsType[*net.OpError](err)
	switch {
	case errors.Is(err, context.DeadlineExceeded):
		return &plan.Problem{
			Reason: v1alpha1.ReasonTimeout, Err: errors.New("no answer in time"),
			Hint: "if the server is only slow, raise spec.timeout", Retry: true,
		}
	case isDNS && dns.IsNotFound:
		return &plan.Problem{
			Reason: v1alpha1.ReasonHostUnreachable, Err: fmt.Errorf("there is no host %s", r.URL.Hostname()),
			Hint: "check spec.url, and the cluster's DNS", Retry: true,
		}
	case isNet && netErr.Timeout():
		return &plan.Problem{
			Reason: v1alpha1.ReasonTimeout, Err: errors.New("no answer in time"),
			Hint: "if the server is only slow, raise spec.timeout", Retry: true,
		}
	case isDNS || isOp:
		return &plan.Problem{
			Reason: v1alpha1.ReasonHostUnreachable, Err: errors.New(plan.OneLine(r.rootOf(err))),
			Hint: "check spec.url, and the network policies and proxies on the way", Retry: true,
		}
	default:
		return nil
	}
}

// rootOf is the error without the URL that net/http puts before it.
func (r Remote) rootOf(err error) string {
	if u, ok := errors.AsType[*url.Error](err); ok {
		err = u.Err
	}
	if line, ok := errors.AsType[*pktline.ErrorLine](err); ok {
		return "the server says: " + line.Text
	}
	return strings.TrimPrefix(err.Error(), "unknown error: ")
}

// Branches returns the branches that the server advertises, by name.
func Branches(s *Session) map[string]plumbing.Hash {
	tips := map[string]plumbing.Hash{}
	for name, h := range s.Refs.References {
		if b, ok := strings.CutPrefix(name, "refs/heads/"); ok {
			tips[b] = h
		}
	}
	return tips
}
