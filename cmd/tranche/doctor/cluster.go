package doctor

import (
	"context"
	"fmt"
	"net/http"
	"strconv"
	"strings"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/version"
	"k8s.io/client-go/discovery"
	"k8s.io/client-go/rest"

	"github.com/tranche-dev/tranche/cmd/tranche/cli"
	"github.com/tranche-dev/tranche/rollout/kubeversion"
)

// leaseLasts is how long the lease of a leader lasts that does not renew it.
const leaseLasts = 15 * time.Second

// newExam examines a cluster.
func newExam(at *cli.Connection) *exam {
	e := &exam{Connection: at, now: time.Now, leaseWithin: leaseLasts + 2*time.Second}
	e.serverVersion = func() (*version.Info, error) {
		d, err := discovery.NewDiscoveryClientForConfig(at.Config)
		if err != nil {
			return nil, err
		}
		return d.ServerVersion()
	}
	e.call = func(ctx context.Context, namespace, service, port, path string) (int, error) {
		c, err := rest.HTTPClientFor(at.Config)
		if err != nil {
			return 0, err
		}
		base, _, err := rest.DefaultServerUrlFor(at.Config)
		if err != nil {
			return 0, err
		}
		url := base.JoinPath("api/v1/namespaces", namespace, "services", "http:"+service+":"+port, "proxy", path)
		ctx, stop := context.WithTimeout(ctx, 10*time.Second)
		defer stop()
		q, err := http.NewRequestWithContext(ctx, http.MethodGet, url.String(), nil)
		if err != nil {
			return 0, err
		}
		answer, err := c.Do(q)
		if err != nil {
			return 0, err
		}
		return answer.StatusCode, answer.Body.Close()
	}
	return e
}

// isForbidden reports whether this account may not do what it tried.
func isForbidden(err error) bool { return apierrors.IsForbidden(err) || apierrors.IsUnauthorized(err) }

// checkServer compares the version of the API server with what is supported.
func (e *exam) checkServer(context.Context) []Finding {
	v, err := e.serverVersion()
	if err != nil {
		return []Finding{unknown("server", "", err)}
	}
	f := Finding{Result: OK, Check: "server", Message: "Kubernetes " + v.GitVersion}
	minor, err := strconv.Atoi(strings.TrimRight(v.Minor, "+"))
	switch {
	case err != nil || v.Major != "1":
		f.Result, f.Todo = Unknown, "see docs/install.md for the versions that Tranche supports"
	case minor < kubeversion.Oldest:
		f.Result = Problem
		f.Message += fmt.Sprintf(" is older than 1.%d, the oldest that Tranche supports", kubeversion.Oldest)
		f.Todo = "upgrade the cluster"
	}
	return []Finding{f}
}

// typed converts an embedded object.
func typed[T any](o *unstructured.Unstructured) *T {
	var t T
	if err := runtime.DefaultUnstructuredConverter.FromUnstructured(o.Object, &t); err != nil {
		panic(fmt.Sprintf("%s %s of the embedded manifests: %v", o.GetKind(), o.GetName(), err)) // a test reads all of them
	}
	return &t
}

// apply says how to apply a folder of this version's manifests: as the controller's Deployment was
// applied.
func (e *exam) apply(folder string) string {
	if release, namespace, ok := helmRelease(e.instances); ok {
		return fmt.Sprintf("helm upgrade %s --namespace %s, with the chart of version %s", release, namespace, cli.VersionString())
	}
	return "apply " + folder + " of version " + cli.VersionString()
}

// helmRelease is the release that has installed a controller. It reports false if none has.
func helmRelease(instances []instance) (name, namespace string, ok bool) {
	for i := range instances {
		a := instances[i].deployment.Annotations
		if release := a["meta.helm.sh/release-name"]; release != "" {
			return release, a["meta.helm.sh/release-namespace"], true
		}
	}
	return "", "", false
}
