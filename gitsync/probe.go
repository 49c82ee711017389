package gitsync

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"net"
	"time"

	"golang.org/x/crypto/ssh"
	hostkeys "golang.org/x/crypto/ssh/knownhosts"
	"k8s.io/apimachinery/pkg/api/meta"

	"github.com/tranche-dev/tranche/gitsync/gittree"
	"github.com/tranche-dev/tranche/plan"
	"github.com/tranche-dev/tranche/plan/v1alpha1"
)

// Probe looks at the repository of a source as the controller will, but from
// here: with the data of its Secret, and with a mirror in a folder. It returns
// the tip of the branch, and what it renders. Errors are a [plan.Problem], or
// [plan.Problems], where they are about repository or manifests.
func Probe(ctx context.Context, gs *v1alpha1.GitSource, secret map[string][]byte, dir string, mapper meta.RESTMapper) (tip string, set *plan.Set, err error) {
	u, err := parseURL(gs.Spec.URL)
	if err != nil {
		return "", nil, err
	}
	timeout := cmp.Or(gs.Spec.Timeout.Duration, defaultTimeout)
	r := remote{url: u, secret: secretName(gs)}
	if r.access, err = newAccess(u, r.secret, secret, timeout); err != nil {
		return "", nil, err
	}
	ctx, cancel := context.WithTimeout(ctx, timeout)
	defer cancel()
	apps := newGitHubApps()
	if err := apps.authenticate(ctx, &r); err != nil {
		return "", nil, err
	}
	ref := gs.Spec.Ref
	ref.Branch = cmp.Or(ref.Branch, "main")
	s, err := newMirrors(dir).of(r).lookAt(ctx, r, ref, time.Now())
	if err != nil {
		return "", nil, err
	}
	defer s.close()
	t, err := gittree.Open(s, s.commit)
	if err != nil {
		return "", nil, err
	}
	set, err = (&renderer{snapshot: s, gs: gs, mapper: mapper}).render(t)
	return s.commit.String(), set, err
}

// HostKey returns the line for known_hosts of the key that an SSH server shows,
// and its fingerprint. Nothing says that it is the right one.
func HostKey(ctx context.Context, url string) (line, fingerprint string, err error) {
	u, err := parseURL(url)
	if err != nil {
		return "", "", err
	}
	if u.Scheme != "ssh" {
		return "", "", fmt.Errorf("%s is no SSH URL", remote{url: u})
	}
	address := net.JoinHostPort(u.Hostname(), cmp.Or(u.Port(), "22"))
	conn, err := (&net.Dialer{}).DialContext(ctx, "tcp", address)
	if err != nil {
		return "", "", remote{url: u}.problem(err)
	}
	defer conn.Close()
	if deadline, ok := ctx.Deadline(); ok {
		if err := conn.SetDeadline(deadline); err != nil {
			return "", "", fmt.Errorf("limiting the time of %s: %w", address, err)
		}
	}
	seen := errors.New("seen")
	_, _, _, err = ssh.NewClientConn(conn, address, &ssh.ClientConfig{
		HostKeyCallback: func(host string, _ net.Addr, key ssh.PublicKey) error {
			line, fingerprint = hostkeys.Line([]string{hostkeys.Normalize(host)}, key), key.Type()+" "+ssh.FingerprintSHA256(key)
			return seen
		},
	})
	if line == "" {
		return "", "", remote{url: u}.problem(cmpContext(ctx, err))
	}
	return line, fingerprint, nil
}
