package cli

import (
	"context"
	"errors"
	"strings"
	"testing"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/tranche-dev/tranche/plan/v1alpha1"
)

// A Deployment's name finds the plan that governs it, and not the first by name.
func TestGoverning(t *testing.T) {
	list := make([]v1alpha1.BatchRelease, 3)
	for i, name := range []string{"a-web", "api", "web-plan"} {
		list[i].Name, list[i].Spec.WorkloadRef.Name = name, "web"
	}
	list[1].Spec.WorkloadRef.Name = "api"
	list[2].Labels = map[string]string{v1alpha1.LabelSource: "shop"}
	if br := governing(list, "web"); br == nil || br.Name != "web-plan" {
		t.Errorf("it is %v", br)
	}
	if br := governing(list, "other"); br != nil {
		t.Errorf("it is %s", br.Name)
	}
}

// locked is a cluster of which an account may list nothing.
type locked struct{ client.Client }

func (locked) List(context.Context, client.ObjectList, ...client.ListOption) error {
	return apierrors.NewForbidden(v1alpha1.GroupVersion.WithResource("gitsources").GroupResource(), "", errors.New("no right"))
}

// Sources that may not be listed are no sources without problems.
func TestSourceProblems_MayNotBeListed(t *testing.T) {
	c := &Connection{Client: locked{}}
	said, err := c.SourceProblems(t.Context(), "shop")
	if err != nil || !strings.HasPrefix(said, "Problems of GitSources are not known: listing GitSources: ") ||
		!strings.HasSuffix(said, "no right\n") {
		t.Errorf("%q, %v", said, err)
	}
}
