package cluster

import (
	"fmt"
	"path/filepath"
	"strconv"
	"strings"

	"k8s.io/component-base/version"
)

// The limits that clients and controllers put on themselves by default (20 requests per second) make a
// thousand pods take minutes. These are out of the way on two cores, and still tame a controller run wild.
const (
	apiQPS   = 500
	apiBurst = 1000
)

// flag is one argument of a component.
func flag(name string, value any) string { return fmt.Sprintf("--%s=%v", name, value) }

func localURL(scheme string, port int, path string) string {
	return fmt.Sprintf("%s://127.0.0.1:%d%s", scheme, port, path)
}

func httpsHealth(path string) func(int) string {
	return func(port int) string { return localURL("https", port, path) }
}

// etcd is the store. It does not wait for the disk: what a power cut takes is a development cluster.
func (f *files) etcd() component {
	const peer = "https://127.0.0.1:0" // there is no other member that calls it; any port will do
	return component{
		name: "etcd",
		args: func(port int) []string {
			client := localURL("https", port, "")
			return []string{
				flag("data-dir", f.etcdData),
				flag("listen-client-urls", client),
				flag("advertise-client-urls", client),
				flag("cert-file", f.servingCert),
				flag("key-file", f.servingKey),
				flag("trusted-ca-file", f.ca),
				flag("client-cert-auth", true),
				flag("listen-peer-urls", peer),
				flag("initial-advertise-peer-urls", peer),
				flag("initial-cluster", "default="+peer),
				flag("peer-cert-file", f.servingCert),
				flag("peer-key-file", f.servingKey),
				flag("peer-trusted-ca-file", f.ca),
				flag("peer-client-cert-auth", true),
				flag("unsafe-no-fsync", true),
				flag("snapshot-catchup-entries", 100),
				flag("enable-grpc-gateway", false),
				flag("log-level", "warn"),
			}
		},
		health:  httpsHealth("/health"),
		revived: 10,
	}
}

// apiServer has these admission plugins beside the default ones and NodeRestriction.
func (f *files) apiServer(etcdPort int, admission []string) component {
	return component{
		name: "kube-apiserver",
		args: func(port int) []string {
			return append(featureFlags(version.DefaultKubeBinaryVersion),
				flag("etcd-servers", localURL("https", etcdPort, "")),
				flag("etcd-cafile", f.ca),
				flag("etcd-certfile", f.adminCert),
				flag("etcd-keyfile", f.adminKey),
				flag("bind-address", "127.0.0.1"),
				flag("secure-port", port),
				flag("advertise-address", "127.0.0.1"),
				flag("endpoint-reconciler-type", "none"), // endpoints may not be loopback addresses
				flag("tls-cert-file", f.servingCert),
				flag("tls-private-key-file", f.servingKey),
				flag("client-ca-file", f.ca),
				flag("authorization-mode", "Node,RBAC"),
				flag("enable-admission-plugins", strings.Join(append([]string{"NodeRestriction"}, admission...), ",")),
				flag("allow-privileged", true),
				flag("service-cluster-ip-range", serviceCIDR),
				flag("service-account-issuer", "https://kubernetes.default.svc.cluster.local"),
				flag("service-account-key-file", f.serviceAccountKey),
				flag("service-account-signing-key-file", f.serviceAccountKey),
				flag("max-requests-inflight", 1000),
				flag("max-mutating-requests-inflight", 500),
				flag("profiling", false),
			)
		},
		health: httpsHealth("/readyz"),
	}
}

// featureFlags are those of an API server of this version for what later versions have by default.
// MutatingAdmissionPolicies are on since 1.36. Users of 1.34 and 1.35 turn them on with these flags.
func featureFlags(kubernetes string) []string {
	if kubernetes != "1.34" && kubernetes != "1.35" {
		return nil
	}
	return []string{
		flag("feature-gates", "MutatingAdmissionPolicy=true"),
		flag("runtime-config", "admissionregistration.k8s.io/v1beta1=true"),
	}
}

func (f *files) controllerManager() component {
	return component{
		name: "kube-controller-manager",
		args: func(port int) []string {
			return append(f.controllerArgs(port, f.controllerManagerKubeconfig),
				flag("use-service-account-credentials", true),
				flag("service-account-private-key-file", f.serviceAccountKey),
				flag("root-ca-file", f.ca),
				flag("controllers", "*,"+withoutControllers),
				flag("concurrent-deployment-syncs", 10),
				flag("concurrent-replicaset-syncs", 10),
				flag("horizontal-pod-autoscaler-sync-period", "2s"),
				// Heartbeats come late when both cores are busy; that must not be taken for a dead node.
				flag("node-monitor-grace-period", "2m"),
			)
		},
		health: httpsHealth("/healthz"),
	}
}

// withoutControllers are those that have nothing to do here: no cloud, no volumes, no kubelets.
const withoutControllers = "-certificatesigningrequest-signing-controller,-certificatesigningrequest-approving-controller," +
	"-certificatesigningrequest-cleaner-controller,-podcertificaterequest-cleaner-controller,-node-ipam-controller," +
	"-persistentvolume-attach-detach-controller,-persistentvolume-expander-controller,-resourceclaim-controller," +
	"-device-taint-eviction-controller,-legacy-serviceaccount-token-cleaner-controller,-ttl-controller"

func (f *files) scheduler() component {
	return component{
		name:   "kube-scheduler",
		args:   func(port int) []string { return f.controllerArgs(port, f.schedulerKubeconfig) },
		health: httpsHealth("/readyz"),
	}
}

// controllerArgs are what controller manager and scheduler have in common.
func (f *files) controllerArgs(port int, kubeconfig string) []string {
	return []string{
		flag("kubeconfig", kubeconfig),
		flag("bind-address", "127.0.0.1"),
		flag("secure-port", port),
		flag("tls-cert-file", f.servingCert),
		flag("tls-private-key-file", f.servingKey),
		flag("leader-elect", false),
		flag("kube-api-qps", apiQPS),
		flag("kube-api-burst", apiBurst),
		flag("profiling", false),
	}
}

// kwok has no limit on its requests that could be raised.
func (f *files) kwok() component {
	return component{
		name: "kwok",
		args: func(port int) []string {
			return []string{
				flag("kubeconfig", f.kwokKubeconfig),
				flag("config", f.stages),
				flag("server-address", "127.0.0.1:"+strconv.Itoa(port)),
			}
		},
		health: func(port int) string { return localURL("http", port, "/healthz") },
	}
}

// files are the absolute paths of what the components read.
type files struct {
	etcdData                                                            string
	ca, servingCert, servingKey, adminCert, adminKey, serviceAccountKey string
	controllerManagerKubeconfig, schedulerKubeconfig, kwokKubeconfig    string
	stages                                                              string
}

func newFiles(d *directory) *files {
	pki := func(name string) string { return filepath.Join(d.pki(), name) }
	config := func(name string) string { return filepath.Join(d.config(), name) }
	return &files{
		etcdData:                    d.etcd(),
		ca:                          pki(authorityCertFile),
		servingCert:                 pki("serving.crt"),
		servingKey:                  pki("serving.key"),
		adminCert:                   pki("admin.crt"),
		adminKey:                    pki("admin.key"),
		serviceAccountKey:           pki(serviceAccountFile),
		controllerManagerKubeconfig: config("kube-controller-manager.kubeconfig"),
		schedulerKubeconfig:         config("kube-scheduler.kubeconfig"),
		kwokKubeconfig:              config("kwok.kubeconfig"),
		stages:                      config("kwok.yaml"),
	}
}
