package cluster

import (
	"crypto/tls"
	"crypto/x509"
	"fmt"
	"net"
	"net/http"
	"time"
)

// credentials are all keys and certificates of one Run.
type credentials struct {
	authority                                          *authority
	serving, admin, controllerManager, scheduler, kwok keyPair
}

// newCredentials loads what a directory keeps, and makes the rest.
func newCredentials(dir string) (*credentials, error) {
	a, err := loadAuthority(dir)
	if err != nil {
		return nil, err
	}
	if err := ensureServiceAccountKey(dir); err != nil {
		return nil, err
	}
	c := &credentials{authority: a}
	names := []string{"localhost", "kubernetes", "kubernetes.default", "kubernetes.default.svc", "kubernetes.default.svc.cluster.local"}
	if c.serving, err = a.issueServing(names, []net.IP{net.IPv4(127, 0, 0, 1), net.IPv4(10, 96, 0, 1)}); err != nil {
		return nil, err
	}
	for _, client := range []struct {
		pair   *keyPair
		user   string
		groups []string
	}{
		{&c.admin, "admin", []string{"system:masters"}},
		{&c.controllerManager, "system:kube-controller-manager", nil},
		{&c.scheduler, "system:kube-scheduler", nil},
		// kwok is every kubelet at once, which no role allows for.
		{&c.kwok, "kwok", []string{"system:masters"}},
	} {
		if *client.pair, err = a.issueClient(client.user, client.groups...); err != nil {
			return nil, err
		}
	}
	return c, nil
}

// write puts the files there that the first components read.
func (c *credentials) write(f *files) error {
	for _, file := range []struct {
		path string
		data []byte
	}{
		{f.servingCert, c.serving.cert},
		{f.servingKey, c.serving.key},
		{f.adminCert, c.admin.cert},
		{f.adminKey, c.admin.key},
		{f.stages, stages},
	} {
		if err := writeFile(file.path, file.data); err != nil {
			return err
		}
	}
	return nil
}

// writeKubeconfigs writes the files that the API server's own clients read.
func (c *credentials) writeKubeconfigs(f *files, server string) error {
	for _, client := range []struct {
		path, user string
		pair       keyPair
	}{
		{f.controllerManagerKubeconfig, "kube-controller-manager", c.controllerManager},
		{f.schedulerKubeconfig, "kube-scheduler", c.scheduler},
		{f.kwokKubeconfig, "kwok", c.kwok},
	} {
		if err := writeKubeconfig(client.path, newKubeconfig(server, c.authority.pem, client.user, client.pair)); err != nil {
			return err
		}
	}
	return nil
}

// healthClient returns a client that asks the components how they are. It is the admin's: etcd answers
// no other user.
func (c *credentials) healthClient() *http.Client {
	roots := x509.NewCertPool()
	roots.AddCert(c.authority.cert)
	cert, err := tls.X509KeyPair(c.admin.cert, c.admin.key)
	if err != nil {
		panic(fmt.Sprintf("a certificate that was just made does not fit its key: %v", err))
	}
	return &http.Client{
		Timeout: 5 * time.Second,
		Transport: &http.Transport{
			TLSClientConfig:   &tls.Config{RootCAs: roots, Certificates: []tls.Certificate{cert}},
			DisableKeepAlives: true, // a kept connection would hold up the component's end
		},
	}
}
