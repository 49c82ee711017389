package cluster

import (
	"fmt"

	"k8s.io/client-go/tools/clientcmd"
	clientcmdapi "k8s.io/client-go/tools/clientcmd/api"
)

// newKubeconfig is a kubeconfig for one user of one server, with everything embedded.
func newKubeconfig(server string, caPEM []byte, user string, pair keyPair) *clientcmdapi.Config {
	const name = "devcluster"
	return &clientcmdapi.Config{
		Clusters:       map[string]*clientcmdapi.Cluster{name: {Server: server, CertificateAuthorityData: caPEM}},
		AuthInfos:      map[string]*clientcmdapi.AuthInfo{user: {ClientCertificateData: pair.cert, ClientKeyData: pair.key}},
		Contexts:       map[string]*clientcmdapi.Context{name: {Cluster: name, AuthInfo: user, Namespace: "default"}},
		CurrentContext: name,
	}
}

func writeKubeconfig(path string, c *clientcmdapi.Config) error {
	data, err := clientcmd.Write(*c)
	if err != nil {
		return fmt.Errorf("encoding %s: %w", path, err)
	}
	return writeFile(path, data)
}
