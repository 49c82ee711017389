package terms

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/go-git/go-git/v5/plumbing"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/tranche-dev/tranche/gitsync/apply"
	"github.com/tranche-dev/tranche/gitsync/desired"
	"github.com/tranche-dev/tranche/gitsync/gittest"
	"github.com/tranche-dev/tranche/gitsync/inventory"
	"github.com/tranche-dev/tranche/gitsync/repository"
	"github.com/tranche-dev/tranche/plan"
)

// measured has the release of Deployment web measured by a Job that runs this image. An empty
// image: no CronJob is rendered, and the plan names none.
func measured(image string) map[string]string {
	files := state{}.tree()
	delete(files, "deploy/api.yaml")
	files["deploy/kustomization.yaml"] = strings.Replace(files["deploy/kustomization.yaml"], "api.yaml, ", "", 1)
	if image == "" {
		return files
	}
	files["0/kustomization.yaml"] = strings.Replace(files["0/kustomization.yaml"], "b.yaml", "b.yaml, smoke.yaml", 1)
	files["0/smoke.yaml"] = `apiVersion: batch/v1
kind: CronJob
metadata: {name: smoke}
spec:
  schedule: 0 0 1 1 *
  suspend: true
  jobTemplate: {spec: {template: {spec: {restartPolicy: Never, containers: [{name: smoke, image: '` + image + `'}]}}}}
`
	files["0/plan/plan.yaml"] = strings.Replace(files["0/plan/plan.yaml"], "    - replicas: 1\n",
		"    - replicas: 1\n      analysis: {duration: 10m}\n", 1) + "    analysis: {metrics: [{name: smoke, job: {from: smoke}}]}\n"
	return files
}

// termsMeasured are written out. The digest is that of what jq -cS prints of spec.jobTemplate.
func termsMeasured(image string) plan.Terms {
	pod := `{"spec":{"template":{"spec":{"containers":[{"image":"` + image + `","name":"smoke"}],"restartPolicy":"Never"}}}}`
	sum := sha256.Sum256([]byte(pod))
	t := string(termsOfVariant(0))
	t = strings.Replace(t, `{"deployment"`, `{"analysis":{"metrics":[{"delay":"30s","interval":"1m0s",`+
		`"job":{"from":"smoke","timeout":"10m0s"},"name":"smoke","noData":"Unknown","scope":"Revision"}],`+
		`"mode":"Act","onFailure":"Hold","onUnknown":"Hold","unknownDeadlineSeconds":600},"deployment"`, 1)
	t = strings.Replace(t, `"minReady`, `"jobs":{"smoke":"`+hex.EncodeToString(sum[:])+`"},"minReady`, 1)
	const step = `{"analysis":{"duration":"10m0s"},"gate":"analysis","replicas":1}`
	return plan.Terms(strings.Replace(t, `{"gate":"approval","replicas":1}`, step, 1))
}

// governed returns what of the head counts, and remembers it as a sync does.
func governed(a *adversary) *Governed {
	a.t.Helper()
	tip := plumbing.NewHash(a.head)
	s := &repository.Snapshot{EncodedObjectStorer: a.Storage, Commit: tip, Tip: tip}
	r := &desired.Reader{Snapshot: s, Source: a.gs, Mapper: gittest.RESTMapper(), Brought: a.brought, Approved: a.approved,
		Order: a.by.Order, Changes: a.changes, Signatures: a.by}
	d, _, err := r.Read(a.last)
	if err != nil {
		a.t.Fatal(err)
	}
	a.last = d
	g, err := Govern(context.Background(), r, d, apply.NewObserver(a.gs, empty{}, empty{}))
	if err != nil {
		a.t.Fatal(err)
	}
	a.gs.Status.Plans, a.gs.Status.AppliedCommit = g.Plans, a.head
	return g
}

// imagesOf are those of the CronJobs that a set has.
func imagesOf(set *plan.Set) (images []string) {
	for _, o := range set.Objects {
		if o.GetKind() == "CronJob" {
			images = append(images, fmt.Sprint(o.Object["spec"].(map[string]any)["jobTemplate"]))
		}
	}
	return images
}

// isApplied fails if the other Job is not applied.
func isApplied(t *testing.T, g *Governed) {
	t.Helper()
	images := imagesOf(g.Set)
	if len(images) != 1 || !strings.Contains(images[0], "image:other") || len(g.Keeps) != 0 || len(g.Withheld) != 0 {
		t.Errorf("approved, the Job is %q; kept %v, withheld %q", images, g.Keeps, g.Withheld)
	}
}

// isWithheld fails if the commit changes the Job, or does not say that it may not.
func isWithheld(t *testing.T, g *Governed) {
	t.Helper()
	kind := schema.GroupVersionKind{Group: "batch", Version: "v1", Kind: "CronJob"}
	smoke := inventory.Entry{GVK: kind, Namespace: "shop", Name: "smoke"}
	if _, kept := g.Keeps[smoke.ID()]; len(imagesOf(g.Set)) != 0 || !kept || g.Plans[0].Terms != string(termsMeasured("tests")) {
		t.Errorf("the commit applies the Job %q; kept %v; %s governs", imagesOf(g.Set), g.Keeps, g.Plans[0].Terms)
	}
	says := slices.ContainsFunc(g.Withheld, func(s string) bool { return strings.HasSuffix(s, "CronJob shop/smoke") })
	if len(g.Unapproved) != 1 || !says {
		t.Errorf("it says %v, and withholds %q", g.Unapproved, g.Withheld)
	}
}

// A Job decides about a gate as a query does. Until a signer approves it, a commit changes neither
// what the Job runs nor that there is one.
func TestJobs_NeedApproval(t *testing.T) {
	t.Parallel()
	const stranger, signer = 0, 1
	for name, then := range map[string]string{"another image": "other", "another one, approved": "other, approved", "no Job": ""} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			image, approved := strings.CutSuffix(then, ", approved")
			a := newAdversary(t, 1)
			a.head = a.Commit(a.keys[stranger], measured("tests"))
			if g := governed(a); g.Plans[0].Terms != string(termsMeasured("tests")) || len(imagesOf(g.Set)) != 1 {
				t.Fatalf("at first\n%s governs, want\n%s\nwith %q", g.Plans[0].Terms, termsMeasured("tests"), imagesOf(g.Set))
			}
			files := measured(image)
			a.head = a.Commit(a.keys[stranger], files, a.head)
			if approved {
				files["deploy/approvals/0.yaml"] = document{name: "web", namespace: "shop", plan: termsMeasured("other").Digest(), at: 1}.text()
				a.head = a.Commit(a.keys[signer], files, a.head)
			}
			if approved {
				isApplied(t, governed(a))
				return
			}
			isWithheld(t, governed(a))
			a.head = a.Commit(a.keys[stranger], measured("tests"), a.head)
			if g := governed(a); len(imagesOf(g.Set)) != 1 || len(g.Keeps) != 0 || len(g.Unapproved) != 0 {
				t.Errorf("put back, it applies %q, keeps %v and says %v", imagesOf(g.Set), g.Keeps, g.Unapproved)
			}
		})
	}
}
