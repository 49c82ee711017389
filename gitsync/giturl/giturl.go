// Package giturl compares the URLs of Git repositories.
//
// One repository has many URLs: over HTTPS, over SSH, and in scp's form. Each function
// answers for another asker. [Key] is for a forge that names its own repository, [Same]
// for two objects of the cluster, and [SameForUser] for the remote of a clone.
package giturl

import (
	"cmp"
	"net/url"
	"path"
	"path/filepath"
	"regexp"
	"strings"
)

// Key returns the part that the URLs of one repository have in common, over HTTPS, SSH
// and in scp's form: host and path. It is empty for a URL without a host or a path.
func Key(address string) string {
	if !strings.Contains(address, "://") { // git@host:path
		host, path, ok := strings.Cut(address, ":")
		if !ok {
			return ""
		}
		address = "ssh://" + host + "/" + path
	}
	u, err := url.Parse(address)
	if err != nil || u.Hostname() == "" && u.Scheme != "file" {
		return ""
	}
	path := strings.TrimSuffix(strings.Trim(u.Path, "/"), ".git")
	path = strings.TrimPrefix(path, "scm/") // Bitbucket Data Center, over HTTP
	if path == "" {
		return ""
	}
	return strings.ToLower(u.Hostname()) + "/" + path
}

// Same reports whether two URLs of GitSources lead to the same repository. Two protocols
// of one host, such as HTTPS and SSH, may have different ports.
func Same(a, b string) bool {
	if a == b {
		return true
	}
	u, err := url.Parse(a)
	v, bad := url.Parse(b)
	switch {
	case err != nil || bad != nil:
		return false
	case u.Scheme != v.Scheme:
		return Key(a) != "" && Key(a) == Key(b)
	case u.Scheme == "file":
		return path.Clean(u.Path) == path.Clean(v.Path)
	}
	return Key(a) != "" && Key(a) == Key(b) && portOf(u) == portOf(v)
}

func portOf(u *url.URL) string {
	usual := map[string]string{"https": "443", "http": "80", "ssh": "22"}
	return cmp.Or(u.Port(), usual[u.Scheme])
}

// scp is the short form of SSH, user@host:path.
var scp = regexp.MustCompile(`^(?:[^/@:]+@)?([^/:]+):([^/].*|/.*)$`)

// SameForUser reports whether a user means one repository by two URLs, in any form, over
// any protocol and port, and as any user. It resolves links in paths of this machine.
func SameForUser(a, b string) bool { return normal(a) == normal(b) }

func normal(address string) string {
	host, p := "", address
	u, err := url.Parse(address)
	switch {
	case err == nil && u.Scheme == "file":
		p = u.Path
	case err == nil && u.Host != "":
		host, p = strings.ToLower(u.Hostname()), u.Path
	default:
		if m := scp.FindStringSubmatch(address); m != nil && !filepath.IsAbs(address) {
			host, p = strings.ToLower(m[1]), m[2]
		}
	}
	if host == "" {
		if real, err := filepath.EvalSymlinks(p); err == nil {
			p = real
		}
	}
	p = strings.TrimSuffix(path.Clean("/"+p), ".git")
	return host + p
}
