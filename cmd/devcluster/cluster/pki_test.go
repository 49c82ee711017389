package cluster

import (
	"bytes"
	"crypto/x509"
	"encoding/pem"
	"net"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

func TestAuthorityIsKept(t *testing.T) {
	dir := t.TempDir()
	first, err := loadAuthority(dir)
	if err != nil {
		t.Fatal(err)
	}
	second, err := loadAuthority(dir)
	if err != nil {
		t.Fatal(err)
	}
	if !bytes.Equal(first.pem, second.pem) {
		t.Error("the second load made another certificate authority")
	}
}

func TestBrokenAuthorityIsRefused(t *testing.T) {
	dir := t.TempDir()
	if _, err := loadAuthority(dir); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(dir, authorityKeyFile), []byte("garbage"), 0o600); err != nil {
		t.Fatal(err)
	}
	if _, err := loadAuthority(dir); err == nil || !strings.Contains(err.Error(), dir) {
		t.Errorf("got error %v, want one that names %s", err, dir)
	}
}

func TestServiceAccountKeyIsKept(t *testing.T) {
	path := filepath.Join(t.TempDir(), serviceAccountFile)
	var keys [2][]byte
	for i := range keys {
		if err := ensureServiceAccountKey(filepath.Dir(path)); err != nil {
			t.Fatal(err)
		}
		var err error
		if keys[i], err = os.ReadFile(path); err != nil {
			t.Fatal(err)
		}
	}
	if !bytes.Equal(keys[0], keys[1]) {
		t.Error("the tokens of an earlier run would no longer be good")
	}
}

func TestIssuedCertificates(t *testing.T) {
	a, err := loadAuthority(t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	client, err := a.issueClient("admin", "system:masters")
	if err != nil {
		t.Fatal(err)
	}
	serving, err := a.issueServing([]string{"localhost"}, []net.IP{net.IPv4(127, 0, 0, 1)})
	if err != nil {
		t.Fatal(err)
	}
	for _, test := range []struct {
		reason string
		pair   keyPair
		host   string
		usage  x509.ExtKeyUsage
		ok     bool
	}{
		{"clients are known by their certificate", client, "", x509.ExtKeyUsageClientAuth, true},
		{"a client must not be able to pose as the API server", client, "", x509.ExtKeyUsageServerAuth, false},
		{"kubeconfigs say 127.0.0.1", serving, "127.0.0.1", x509.ExtKeyUsageServerAuth, true},
		{"people say localhost", serving, "localhost", x509.ExtKeyUsageServerAuth, true},
		{"no other host is served", serving, "example.org", x509.ExtKeyUsageServerAuth, false},
		{"etcd presents it to its peers", serving, "", x509.ExtKeyUsageClientAuth, true},
	} {
		roots := x509.NewCertPool()
		roots.AddCert(a.cert)
		_, err := parseCert(t, test.pair.cert).Verify(x509.VerifyOptions{
			Roots: roots, DNSName: test.host, KeyUsages: []x509.ExtKeyUsage{test.usage},
		})
		if (err == nil) != test.ok {
			t.Errorf("%s: verifying gives %v", test.reason, err)
		}
	}
	if got := parseCert(t, client.cert).Subject.String(); got != "CN=admin,O=system:masters" {
		t.Errorf("the client's subject is %s", got)
	}
}

func parseCert(t *testing.T, certPEM []byte) *x509.Certificate {
	t.Helper()
	block, _ := pem.Decode(certPEM)
	cert, err := x509.ParseCertificate(block.Bytes)
	if err != nil {
		t.Fatal(err)
	}
	return cert
}
