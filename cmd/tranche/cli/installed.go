package cli

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"slices"
	"strings"

	appsv1 "k8s.io/api/apps/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/tranche-dev/tranche/plan/v1alpha1"
	"github.com/tranche-dev/tranche/rollout/engine"
)

// LeaseName names the lease of the leader, of which there is one for each label selector
// of controllers.
func LeaseName(selector string) string {
	const name = "tranche-controller"
	if selector == "" {
		return name
	}
	sum := sha256.Sum256([]byte(selector))
	return name + "-" + hex.EncodeToString(sum[:4])
}

// Controllers lists the Deployments of controllers that an installation has made. A
// controller outside the cluster has none.
func (c *Connection) Controllers(ctx context.Context) ([]appsv1.Deployment, error) {
	var list appsv1.DeploymentList
	if err := c.List(ctx, &list, client.MatchingLabels{"app.kubernetes.io/name": "tranche"}); err != nil {
		return nil, fmt.Errorf("listing the Deployments of controllers: %w", err)
	}
	return list.Items, nil
}

// ImageVersion returns the tag or the digest of an image.
func ImageVersion(image string) string { return image[strings.LastIndexAny(image, ":@")+1:] }

// ArgumentOf returns the value that the arguments of a controller give to a flag of its,
// such as --leader-election-namespace. It reports false where they do not have the flag.
func ArgumentOf(args []string, flag string) (string, bool) {
	for i, arg := range args {
		if value, ok := strings.CutPrefix(arg, flag+"="); ok {
			return value, true
		}
		if arg == flag {
			if i+1 < len(args) && !strings.HasPrefix(args[i+1], "--") {
				return args[i+1], true
			}
			return "", true
		}
	}
	return "", false
}

// Held lists the Deployments of a namespace that are held, as namespace/name; of all
// namespaces where it is empty. A Deployment with only the label, and without a BatchRelease, is
// not held: any user may have labelled it.
func (c *Connection) Held(ctx context.Context, namespace string) ([]string, error) {
	var list appsv1.DeploymentList
	if err := c.List(ctx, &list, client.InNamespace(namespace), client.HasLabels{v1alpha1.LabelHeld}); err != nil {
		return nil, fmt.Errorf("listing held Deployments: %w", err)
	}
	releases, err := c.Releases(ctx, namespace)
	if err != nil && !meta.IsNoMatchError(err) && !apierrors.IsNotFound(err) {
		return nil, err
	}
	governed := map[string]bool{}
	for i := range releases {
		governed[releases[i].Namespace+"/"+releases[i].Spec.WorkloadRef.Name] = true
	}
	var held []string
	for i := range list.Items {
		if name := list.Items[i].Namespace + "/" + list.Items[i].Name; governed[name] || engine.Held(&list.Items[i]) {
			held = append(held, name)
		}
	}
	slices.Sort(held)
	return held, nil
}
