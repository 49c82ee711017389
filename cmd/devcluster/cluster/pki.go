package cluster

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"errors"
	"fmt"
	"math/big"
	"net"
	"os"
	"path/filepath"
	"time"
)

// The authority and the service account key are kept for the life of a directory. Each
// Run makes every certificate below the authority again, so that none of them ever
// expires in use.
const (
	authorityLife   = 10 * 365 * 24 * time.Hour
	certificateLife = 365 * 24 * time.Hour
	clockSkew       = time.Hour
)

const (
	authorityCertFile  = "ca.crt"
	authorityKeyFile   = "ca.key"
	serviceAccountFile = "sa.key"
)

// keyPair is a certificate with its private key, both as PEM.
type keyPair struct {
	cert, key []byte
}

// authority is the certificate authority of one cluster. All of the cluster trusts it,
// etcd too. A certificate that it signs is either a component's or an administrator's,
// because the controller manager is not given its key.
type authority struct {
	cert *x509.Certificate
	key  *ecdsa.PrivateKey
	pem  []byte
}

// loadAuthority reads the authority of a directory, and makes it first where there is none.
func loadAuthority(dir string) (*authority, error) {
	certPEM, err := os.ReadFile(filepath.Join(dir, authorityCertFile))
	if errors.Is(err, os.ErrNotExist) {
		return createAuthority(dir)
	}
	if err != nil {
		return nil, fmt.Errorf("reading the certificate authority: %w", err)
	}
	keyPEM, err := os.ReadFile(filepath.Join(dir, authorityKeyFile))
	if err != nil {
		return nil, fmt.Errorf("reading the certificate authority's key: %w", err)
	}
	a, err := parseAuthority(certPEM, keyPEM)
	if err != nil {
		return nil, fmt.Errorf("parsing the certificate authority in %s: %w", dir, err)
	}
	return a, nil
}

func parseAuthority(certPEM, keyPEM []byte) (*authority, error) {
	certBlock, _ := pem.Decode(certPEM)
	keyBlock, _ := pem.Decode(keyPEM)
	if certBlock == nil || keyBlock == nil {
		return nil, errors.New("not PEM")
	}
	cert, err := x509.ParseCertificate(certBlock.Bytes)
	if err != nil {
		return nil, err
	}
	key, err := x509.ParseECPrivateKey(keyBlock.Bytes)
	if err != nil {
		return nil, err
	}
	return &authority{cert: cert, key: key, pem: certPEM}, nil
}

func createAuthority(dir string) (*authority, error) {
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		return nil, fmt.Errorf("generating the certificate authority's key: %w", err)
	}
	template, err := newTemplate(pkix.Name{CommonName: "devcluster"}, authorityLife)
	if err != nil {
		return nil, err
	}
	template.IsCA = true
	template.KeyUsage = x509.KeyUsageCertSign | x509.KeyUsageDigitalSignature
	pair, err := sign(template, key, template, key)
	if err != nil {
		return nil, fmt.Errorf("signing the certificate authority: %w", err)
	}
	// The certificate comes last: where it is, the key is.
	if err := writeFile(filepath.Join(dir, authorityKeyFile), pair.key); err != nil {
		return nil, err
	}
	if err := writeFile(filepath.Join(dir, authorityCertFile), pair.cert); err != nil {
		return nil, err
	}
	return parseAuthority(pair.cert, pair.key)
}

// issueClient makes a certificate that the API server takes for the given user.
func (a *authority) issueClient(user string, groups ...string) (keyPair, error) {
	template, err := newTemplate(pkix.Name{CommonName: user, Organization: groups}, certificateLife)
	if err != nil {
		return keyPair{}, err
	}
	template.ExtKeyUsage = []x509.ExtKeyUsage{x509.ExtKeyUsageClientAuth}
	return a.issue(template)
}

// issueServing makes the certificate that every component serves with. It is good for clients too,
// because etcd presents it to its peers.
func (a *authority) issueServing(names []string, ips []net.IP) (keyPair, error) {
	template, err := newTemplate(pkix.Name{CommonName: names[0]}, certificateLife)
	if err != nil {
		return keyPair{}, err
	}
	template.ExtKeyUsage = []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth, x509.ExtKeyUsageClientAuth}
	template.DNSNames = names
	template.IPAddresses = ips
	return a.issue(template)
}

func (a *authority) issue(template *x509.Certificate) (keyPair, error) {
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		return keyPair{}, fmt.Errorf("generating the key of %s: %w", template.Subject.CommonName, err)
	}
	pair, err := sign(template, key, a.cert, a.key)
	if err != nil {
		return keyPair{}, fmt.Errorf("signing the certificate of %s: %w", template.Subject.CommonName, err)
	}
	return pair, nil
}

func newTemplate(subject pkix.Name, life time.Duration) (*x509.Certificate, error) {
	serial, err := rand.Int(rand.Reader, new(big.Int).Lsh(big.NewInt(1), 120))
	if err != nil {
		return nil, fmt.Errorf("choosing a serial number: %w", err)
	}
	now := time.Now()
	return &x509.Certificate{
		SerialNumber:          serial,
		Subject:               subject,
		NotBefore:             now.Add(-clockSkew),
		NotAfter:              now.Add(life),
		KeyUsage:              x509.KeyUsageDigitalSignature,
		BasicConstraintsValid: true,
	}, nil
}

func sign(template *x509.Certificate, key *ecdsa.PrivateKey, parent *x509.Certificate, parentKey *ecdsa.PrivateKey) (keyPair, error) {
	der, err := x509.CreateCertificate(rand.Reader, template, parent, key.Public(), parentKey)
	if err != nil {
		return keyPair{}, err
	}
	keyPEM, err := encodeKey(key)
	if err != nil {
		return keyPair{}, err
	}
	return keyPair{cert: pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: der}), key: keyPEM}, nil
}

func encodeKey(key *ecdsa.PrivateKey) ([]byte, error) {
	der, err := x509.MarshalECPrivateKey(key)
	if err != nil {
		return nil, err
	}
	return pem.EncodeToMemory(&pem.Block{Type: "EC PRIVATE KEY", Bytes: der}), nil
}

// ensureServiceAccountKey makes the key that service account tokens are signed with, where there is none.
// A later Run must find it again: the tokens outlive it.
func ensureServiceAccountKey(dir string) error {
	path := filepath.Join(dir, serviceAccountFile)
	if _, err := os.Stat(path); !errors.Is(err, os.ErrNotExist) {
		return err
	}
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		return fmt.Errorf("generating the service account key: %w", err)
	}
	keyPEM, err := encodeKey(key)
	if err != nil {
		return fmt.Errorf("encoding the service account key: %w", err)
	}
	return writeFile(path, keyPEM)
}
