package gitserver

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"net"

	"golang.org/x/crypto/ssh"
	hostkeys "golang.org/x/crypto/ssh/knownhosts"
)

// HostKey returns the line for known_hosts of the key that an SSH server shows,
// and its fingerprint. Nothing says that it is the right one.
func HostKey(ctx context.Context, url string) (line, fingerprint string, err error) {
	u, err := ParseURL(url)
	if err != nil {
		return "", "", err
	}
	if u.Scheme != "ssh" {
		return "", "", fmt.Errorf("%s is no SSH URL", Remote{URL: u})
	}
	address := net.JoinHostPort(u.Hostname(), cmp.Or(u.Port(), "22"))
	conn, err := (&net.Dialer{}).DialContext(ctx, "tcp", address)
	if err != nil {
		return "", "", Remote{URL: u}.Problem(err)
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
		return "", "", Remote{URL: u}.Problem(cmpContext(ctx, err))
	}
	return line, fingerprint, nil
}
