package gitserver

import (
	"bytes"
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"regexp"
	"slices"
	"strings"
	"time"

	"github.com/go-git/go-git/v5/plumbing"
	"github.com/go-git/go-git/v5/plumbing/protocol/packp"
	"github.com/go-git/go-git/v5/plumbing/protocol/packp/capability"
	"github.com/go-git/go-git/v5/plumbing/transport"
	githttp "github.com/go-git/go-git/v5/plumbing/transport/http"

	"github.com/tranche-dev/tranche/plan"
	"github.com/tranche-dev/tranche/plan/v1alpha1"
)

// ErrBranchMoved says that a branch is no longer where a push was decided on.
var ErrBranchMoved = errors.New("the branch has moved")

// ErrOutdated says that what a push was decided on is not so any more.
var ErrOutdated = errors.New("decided on an older version")

// errMayNotPush says that nothing was pushed, since another controller may lead.
var errMayNotPush = errors.New("not pushed")

// Update moves a branch from one commit to another. From the zero hash it
// makes the branch.
type Update struct {
	// Branch is its name, or that of a ref that is no branch.
	Branch string
	// From and To are commits.
	From, To plumbing.Hash
	// Pack has what To needs besides what the server has.
	Pack []byte
	// Beside are other branches that the push was decided on, and where they were; a
	// server may hide them. If one is elsewhere, the error is ErrBranchMoved.
	Beside map[string]plumbing.Hash
	// Confirm is asked once the server has said where its branches are, right before the
	// push. Its error refuses the push; nil: there is nothing to confirm.
	Confirm func() error
}

// Push makes an update as a compare-and-swap. Its error is ErrBranchMoved if another
// push came first, and a problem otherwise. Each exchange with the server may take as
// long as the timeout says.
func (r Remote) Push(ctx context.Context, u Update, timeout time.Duration) error {
	sending, cancel := context.WithTimeout(ctx, timeout)
	refusal, err := r.send(sending, u)
	cancel()
	switch {
	case err == nil || errors.Is(err, ErrBranchMoved) || errors.Is(err, ErrOutdated):
		return err
	case errors.Is(err, errMayNotPush):
		return &plan.Problem{Reason: v1alpha1.ReasonWriteBackFailed, Where: r.pushing(u), Err: err, Retry: true}
	}
	// Servers have many words for a rejection because another push came first, and an
	// answer may be lost. So the position of the branch now decides (G5).
	asking, cancel := context.WithTimeout(context.WithoutCancel(ctx), timeout)
	defer cancel()
	if s, asked := r.receiver(asking); asked == nil {
		now := s.tip(u.Branch)
		s.close()
		switch now {
		case u.To:
			return nil
		case u.From:
		default:
			return ErrBranchMoved
		}
	}
	if refusal != "" {
		return r.rejected(u, refusal)
	}
	return r.unanswered(u, err)
}

// receiver is one connection on which a server takes a push.
type receiver struct {
	git  transport.ReceivePackSession
	refs *packp.AdvRefs
}

func (r Remote) receiver(ctx context.Context) (*receiver, error) {
	s := &receiver{}
	err := within(ctx, func() error {
		ep, c, err := r.transport()
		if err != nil {
			return err
		}
		s.git, err = c.NewReceivePackSession(ep, r.Access.method)
		return err
	}, func() { s.close() })
	if err != nil {
		return nil, err
	}
	out := boundOutput(s.git)
	if s.refs, err = s.git.AdvertisedReferencesContext(ctx); err != nil {
		s.close()
		return nil, cmpContext(ctx, err)
	}
	out.next(theReport, "")
	return s, nil
}

func (s *receiver) close() { _ = s.git.Close() } // all that was wanted has been read

func (s *receiver) tip(branch string) plumbing.Hash {
	return s.refs.References[refName(branch).String()]
}

// refName returns the ref of a branch. A name that is a ref already stays as it is:
// branches of a GitSource never begin with refs/.
func refName(branch string) plumbing.ReferenceName {
	if strings.HasPrefix(branch, "refs/") {
		return plumbing.ReferenceName(branch)
	}
	return plumbing.NewBranchReferenceName(branch)
}

// send makes one attempt. The refusal is the server's, in its own words.
func (r Remote) send(ctx context.Context, u Update) (refusal string, err error) {
	s, err := r.receiver(ctx)
	if err != nil {
		return "", err
	}
	defer s.close()
	if s.tip(u.Branch) != u.From {
		return "", ErrBranchMoved
	}
	for branch, was := range u.Beside {
		if now := s.tip(branch); !now.IsZero() && now != was {
			return "", ErrBranchMoved
		}
	}
	req := packp.NewReferenceUpdateRequestFromCapabilities(s.refs.Capabilities)
	var said bytes.Buffer
	for _, c := range []capability.Capability{capability.Sideband64k, capability.Sideband} {
		if s.refs.Capabilities.Supports(c) {
			req.Progress = &said
			if err := req.Capabilities.Set(c); err != nil {
				return "", err
			}
			break
		}
	}
	req.Commands = []*packp.Command{{Name: refName(u.Branch), Old: u.From, New: u.To}}
	req.Packfile = io.NopCloser(bytes.NewReader(u.Pack))
	for _, may := range []func() error{u.Confirm, r.MayPush} { // asked last: the server may have taken long to answer
		if may == nil {
			continue
		}
		if err := may(); err != nil {
			return "", fmt.Errorf("%w: %w", errMayNotPush, err)
		}
	}
	report, err := s.git.ReceivePack(ctx, req)
	if report == nil {
		return "", cmp.Or(cmpContext(ctx, err), error(io.ErrUnexpectedEOF))
	}
	if fact := refusalIn(report); fact != "" {
		if words := r.redact(said.String()); words != "" {
			fact += ": " + words
		}
		return fact, errors.New("rejected")
	}
	return "", nil
}

func refusalIn(report *packp.ReportStatus) string {
	const ok = "ok"
	for _, c := range report.CommandStatuses {
		if c.Status != ok {
			return c.Status
		}
	}
	if report.UnpackStatus != ok {
		return report.UnpackStatus
	}
	return ""
}

// rejected is an answer that says no.
func (r Remote) rejected(u Update, words string) *plan.Problem {
	hint := "see the log of the server, and run git fsck there"
	if mayBeRights(words) {
		hint = "let its account push there, set spec.writeBack.signingKey if only signed commits are taken, or spec.writeBack.branch to push " +
			"to another branch for review"
	}
	return &plan.Problem{
		Reason: v1alpha1.ReasonPushRejected, Where: r.pushing(u), Err: errors.New("the server refuses the push: " + words),
		Hint: hint, Retry: true,
	}
}

// ownFaults are git's words for a refusal that no rule of the server asks for: objects are
// missing, or it could not write.
var ownFaults = []string{
	"missing necessary objects", "unpacker error", "index-pack abnormal exit", "unpack-objects abnormal exit", "bad pack",
	"shallow update not allowed", "internal error", "failed to update ref", "transaction failed", "atomic transaction failed",
}

// mayBeRights reports whether a refusal may be about what an account may push. Forges and
// hooks have their own words for that.
func mayBeRights(words string) bool {
	words = strings.ToLower(words)
	isFault := slices.ContainsFunc(ownFaults, func(fault string) bool { return strings.HasPrefix(words, fault) })
	return !isFault || strings.Contains(words, "permission")
}

// unanswered is a push that did not come so far as to an answer.
func (r Remote) unanswered(u Update, err error) error {
	// It was read a moment ago: that it is not there, or needs other credentials, is how servers say no.
	if errors.Is(err, transport.ErrAuthorizationFailed) || errors.Is(err, transport.ErrAuthenticationRequired) ||
		errors.Is(err, transport.ErrRepositoryNotFound) || isReadOnly(err) {
		return &plan.Problem{
			Reason: v1alpha1.ReasonPushRejected, Where: r.pushing(u), Err: errors.New("the server lets these credentials read, but not push"),
			Hint: r.credentialsHint("grant them write access"), Retry: true,
		}
	}
	p, ok := errors.AsType[*plan.Problem](r.Problem(err))
	if !ok {
		return err
	}
	return &plan.Problem{
		Reason: v1alpha1.ReasonWriteBackFailed, Where: r.pushing(u), Err: errors.New(r.redact(p.Err.Error())), Hint: p.Hint,
		Retry: true,
	}
}

// isReadOnly knows how forges refuse a deploy key that may only read.
func isReadOnly(err error) bool {
	text := strings.ToLower(err.Error())
	return strings.Contains(text, "read only") || strings.Contains(text, "read-only") || strings.Contains(text, "not allowed to push") ||
		strings.Contains(text, "write access")
}

func (r Remote) pushing(u Update) string { return "pushing " + u.Branch + " to " + r.String() }

// userinfo of URLs.
var userinfo = regexp.MustCompile(`://[^/\s@]+@`)

// redact takes credentials out of what a server says.
func (r Remote) redact(words string) string {
	words = userinfo.ReplaceAllString(words, "://")
	for _, secret := range r.Access.secrets() {
		if secret != "" {
			words = strings.ReplaceAll(words, secret, "…")
		}
	}
	return plan.OneLine(words)
}

// secrets are the parts of credentials that go over the wire.
func (a Access) secrets() []string {
	switch m := a.method.(type) {
	case *githttp.BasicAuth:
		return []string{m.Password}
	case *githttp.TokenAuth:
		return []string{m.Token}
	default:
		return nil
	}
}
