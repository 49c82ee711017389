package stage

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/tranche-dev/tranche/gitsync/apply"
	"github.com/tranche-dev/tranche/plan"
	"github.com/tranche-dev/tranche/plan/contest"
	"github.com/tranche-dev/tranche/plan/v1alpha1"
)

func targetOf(gvk schema.GroupVersionKind, name string, live bool) *apply.Target {
	u := &unstructured.Unstructured{Object: map[string]any{}}
	u.SetGroupVersionKind(gvk)
	u.SetNamespace("shop")
	u.SetName(name)
	t := &apply.Target{Object: plan.Object{Unstructured: u}}
	if live {
		t.Live = u.DeepCopy()
	}
	return t
}

var (
	deploymentGVK = schema.GroupVersionKind{Group: "apps", Version: "v1", Kind: "Deployment"}
	configMapGVK  = schema.GroupVersionKind{Version: "v1", Kind: "ConfigMap"}
)

// A BatchRelease that is being deleted is named with the Deployment that stays held. That
// Deployment may be gone itself.
func TestStage_Unfinished(t *testing.T) {
	for name, tc := range map[string]struct {
		held, there bool
		want        string
	}{
		"held":     {held: true, there: true, want: "Deployment web stays held"},
		"not held": {there: true},
		"gone":     {},
	} {
		t.Run(name, func(t *testing.T) {
			d := targetOf(deploymentGVK, "web", tc.there)
			if tc.held {
				d.Live.SetLabels(map[string]string{v1alpha1.LabelHeld: "web"})
			}
			br := targetOf(v1alpha1.GroupVersion.WithKind("BatchRelease"), "web", true)
			br.Mode = apply.AfterDeletion
			if err := unstructured.SetNestedField(br.Object.Object, "web", "spec", "workloadRef", "name"); err != nil {
				t.Fatal(err)
			}
			err := New(Input{Targets: []*apply.Target{d}, Releases: []*apply.Target{br}}).Unfinished()
			if err == nil || !strings.Contains(err.Error(), "created again once it is gone") {
				t.Fatalf("%v", err)
			}
			if got := strings.Contains(err.Error(), "stays held"); got != (tc.want != "") || !strings.Contains(err.Error(), tc.want) {
				t.Errorf("%v", err)
			}
		})
	}
}

// An object that is gone comes back, unless the refused commit has it in a way that cannot
// be tried.
func TestStage_MayBeMeantToGo(t *testing.T) {
	web, settings := targetOf(deploymentGVK, "web", false), targetOf(configMapGVK, "settings", false)
	refused := New(Input{
		Targets: []*apply.Target{settings},
		Set:     &plan.Set{Objects: []plan.Object{web.Object, settings.Object}},
	})
	if !refused.mayBeMeantToGo(web) {
		t.Error("the commit has no target for the Deployment, and it would come back")
	}
	if refused.mayBeMeantToGo(settings) || refused.mayBeMeantToGo(targetOf(configMapGVK, "other", false)) {
		t.Error("a ConfigMap would stay away")
	}
	if none := (*Stage)(nil); none.mayBeMeantToGo(web) || none.Gone() != nil {
		t.Error("a commit that does not render keeps an object away")
	}
}

// Drift that came back after a revert stays for a while. A user who asks for a sync does not
// wait, and neither does another commit.
func TestStage_Leaves(t *testing.T) {
	gs := &v1alpha1.GitSource{}
	gs.Status.AppliedCommit, gs.Status.AppliedWith = "abc", apply.Digest(&gs.Spec)
	settings := targetOf(configMapGVK, "settings", true)
	contests := Contests{settings.Entry().ID(): contest.Contest{Reverts: 3, Last: time.Now()}}
	stage := func(commit string, asked bool) *Stage {
		return New(Input{Applier: &apply.Applier{Source: gs, Commit: commit}, Contests: contests, Asked: asked})
	}
	s := stage("abc", false)
	if !s.leaves(settings) || s.result.Due.Before(time.Now()) {
		t.Errorf("it is reverted at once, and the next time is %s", s.result.Due)
	}
	if stage("abc", true).leaves(settings) || stage("def", false).leaves(settings) {
		t.Error("it stays for a user who asks, or for another commit")
	}
}

// together answers dry runs once four of them are there, and refuses some objects.
type together struct {
	client.Client
	four    sync.WaitGroup
	waiting atomic.Int32
}

func (c *together) Apply(_ context.Context, o runtime.ApplyConfiguration, _ ...client.ApplyOption) error {
	if c.waiting.Add(1) <= 4 {
		c.four.Done()
	}
	c.four.Wait()
	u, ok := o.(interface{ GetName() string })
	if !ok || !strings.HasSuffix(u.GetName(), "3") {
		return nil
	}
	return apierrors.NewForbidden(schema.GroupResource{Resource: "configmaps"}, u.GetName(), nil)
}

// Objects are tried several at a time, and the problems are in the order of application.
func TestStage_DryRunTogether(t *testing.T) {
	c := &together{}
	c.four.Add(4)
	in := Input{Applier: &apply.Applier{Source: &v1alpha1.GitSource{}, Client: c}, Observer: &apply.Observer{}}
	for i := range 40 {
		in.Targets = append(in.Targets, targetOf(configMapGVK, fmt.Sprintf("settings-%02d", i), false))
	}
	ps := plan.ProblemsOf(New(in).DryRun(t.Context()))
	var refused []string
	for _, p := range ps {
		refused = append(refused, p.Where)
	}
	want := []string{"shop/settings-03", "shop/settings-13", "shop/settings-23", "shop/settings-33"}
	if !slices.EqualFunc(refused, want, strings.HasSuffix) {
		t.Errorf("refused: %q, want %q", refused, want)
	}
	for i, target := range in.Targets {
		if target.Refused != (i%10 == 3) {
			t.Errorf("%s refused: %t", target, target.Refused)
		}
	}
}
