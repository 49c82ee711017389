package cluster

import (
	"crypto/tls"
	"crypto/x509"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"path/filepath"
	"testing"

	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"
)

// TestKubeconfig goes through a real handshake: each side must present a certificate that the other accepts.
func TestKubeconfig(t *testing.T) {
	c, err := newCredentials(t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	server := httptest.NewUnstartedServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		fmt.Fprint(w, r.TLS.PeerCertificates[0].Subject.CommonName)
	}))
	cert, err := tls.X509KeyPair(c.serving.cert, c.serving.key)
	if err != nil {
		t.Fatal(err)
	}
	clients := x509.NewCertPool()
	clients.AddCert(c.authority.cert)
	server.TLS = &tls.Config{Certificates: []tls.Certificate{cert}, ClientCAs: clients, ClientAuth: tls.RequireAndVerifyClientCert}
	server.StartTLS()
	defer server.Close()

	path := filepath.Join(t.TempDir(), "kubeconfig")
	if err := writeKubeconfig(path, newKubeconfig(server.URL, c.authority.pem, "admin", c.admin)); err != nil {
		t.Fatal(err)
	}
	config, err := clientcmd.BuildConfigFromFlags("", path)
	if err != nil {
		t.Fatal(err)
	}
	if config.Insecure || len(config.CAData) == 0 {
		t.Error("the server's certificate is not checked")
	}
	client, err := rest.HTTPClientFor(config)
	if err != nil {
		t.Fatal(err)
	}
	resp, err := client.Get(config.Host)
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	user, err := io.ReadAll(resp.Body)
	if err != nil {
		t.Fatal(err)
	}
	if string(user) != "admin" {
		t.Errorf("the server saw user %s", user)
	}
}
