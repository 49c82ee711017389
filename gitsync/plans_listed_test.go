package gitsync_test

import (
	"fmt"
	"strings"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/tranche-dev/tranche/plan/v1alpha1"
	"github.com/tranche-dev/tranche/rollout/clustertest"
)

// A source with many plans lists them together, also beside many plans of others. A plan that
// leaves the branch then goes, as one of a few does, and its Deployment is Git's again.
func TestManyPlansAreListedTogether(t *testing.T) {
	t.Parallel()
	s := newIdleEnv(t)
	requests := &ledger{}
	t.Cleanup(s.startControllerWith(requests.config(s.c.Config), gitsyncOnly))
	const plans, others = 20, 150
	files := map[string]string{}
	for i := range plans {
		name := fmt.Sprintf("web-%02d", i)
		files["deploy/"+name+".yaml"] = web("v1", "web", name, "replicas: 2", "replicas: 0")
		files["deploy/plan-"+name+".yaml"] = strings.ReplaceAll(webPlan, "name: web", "name: "+name)
	}
	s.applied2(s.push(files))
	takes := func(most int) {
		clustertest.Wait(t, "a look with few lists", func() error { // one that meets a conflict is repeated
			_, n := requests.since(0)
			s.wholeLook()
			got, _ := requests.since(n)
			lists := 0
			for _, r := range got {
				if strings.HasPrefix(r, "GET ") && strings.HasSuffix(r, "/batchreleases") {
					lists++
				}
			}
			if lists > most {
				return fmt.Errorf("%d lists for %d plans, at most %d", lists, plans, most)
			}
			return nil
		})
	}
	takes(8 + 1 + 1) // the last one is of the plans as objects of the source
	for i := range others {
		s.must(s.c.Client.Create(s.Context(), &v1alpha1.BatchRelease{
			ObjectMeta: metav1.ObjectMeta{Namespace: s.ns, Name: fmt.Sprintf("other-%03d", i)},
			Spec: v1alpha1.BatchReleaseSpec{
				WorkloadRef: v1alpha1.WorkloadReference{APIVersion: "apps/v1", Kind: "Deployment", Name: fmt.Sprintf("other-%03d", i)},
				Strategy:    s.release("web-00").Spec.Strategy,
			},
		}))
	}
	takes(8 + 1 + 8 + 1) // the first list of all is cut off, and that of the objects is not tried again
	s.applied(s.push(map[string]string{
		"deploy/web-19.yaml": web("v2", "web", "web-19", "replicas: 2", "replicas: 0"), "deploy/plan-web-19.yaml": "",
	}))
	s.isGone("web-19", &v1alpha1.BatchRelease{})
	if image := s.deployment("web-19").Spec.Template.Spec.Containers[0].Image; !strings.HasSuffix(image, ":v2") {
		t.Errorf("web-19 runs %s", image)
	}
	for i := range plans - 1 {
		s.release(fmt.Sprintf("web-%02d", i))
	}
}
