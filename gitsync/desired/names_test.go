package desired

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/go-git/go-git/v5/plumbing"

	"github.com/tranche-dev/tranche/gitsync/gittest"
	"github.com/tranche-dev/tranche/plan"
	"github.com/tranche-dev/tranche/plan/v1alpha1"
)

// namedPlans are Deployments sa and sb, with plans of these names, at an image.
func namedPlans(image, a, b string) map[string]string {
	files := map[string]string{}
	for name, planName := range map[string]string{"sa": a, "sb": b} {
		d, p, _ := strings.Cut(gittest.Web(image)["deploy/web.yaml"], "---\n")
		p = strings.Replace(p, "metadata: {name: web}", "metadata: {name: "+planName+"}", 1)
		p = strings.Replace(p, "workloadRef: {name: web}", "workloadRef: {name: "+name+"}", 1)
		d = strings.ReplaceAll(strings.Replace(d, "metadata: {name: web}", "metadata: {name: "+name+"}", 1), "app: web", "app: "+name)
		files["deploy/"+name+".yaml"] = d + "---\n" + p
	}
	return files
}

// An approval is for the Deployment that the plan of its name governed in the commit which
// brought it. A plan is renamed without an approval, so another one may have its name since.
func TestApprovalIsForOneDeployment(t *testing.T) {
	t.Parallel()
	const file = "deploy/approvals/a.yaml"
	approvalOf := func(name, commit string) string {
		return fmt.Sprintf("apiVersion: tranche.dev/v1alpha1\nkind: BatchApproval\nmetadata: {name: %s, namespace: shop}\nspec: {revision: abc, commit: %s, step: 0}\n", name, commit)
	}
	for name, tt := range map[string]struct {
		// story goes on after the commit that both releases come from.
		story func(r *gittest.Repo, release string)
		// pin returns the commit that is pinned; nil: the branch is followed.
		pin  func(r *gittest.Repo) string
		want []string // Deployments with an approval
	}{
		"the names stay": {func(r *gittest.Repo, release string) {
			r.Commit(map[string]string{file: approvalOf("psa", release)})
		}, nil, []string{"sa"}},
		"another plan gets the name": {func(r *gittest.Repo, release string) {
			r.Commit(map[string]string{file: approvalOf("psa", release)})
			r.Commit(namedPlans("v2", "psa3", "psb"))
			r.Commit(namedPlans("v2", "psa3", "psa"))
		}, nil, nil},
		"the plans exchange their names": {func(r *gittest.Repo, release string) {
			r.Commit(map[string]string{file: approvalOf("psa", release)})
			r.Commit(namedPlans("v2", "psb", "psa"))
		}, nil, nil},
		"the name comes back": {func(r *gittest.Repo, release string) {
			r.Commit(map[string]string{file: approvalOf("psa", release)})
			r.Commit(namedPlans("v2", "psb", "psa"))
			r.Commit(namedPlans("v2", "psa", "psb"))
		}, nil, []string{"sa"}},
		"a name to come": {func(r *gittest.Repo, release string) {
			r.Commit(map[string]string{file: approvalOf("next", release)})
			r.Commit(namedPlans("v2", "psa", "next"))
		}, nil, nil},
		"with the new name": {func(r *gittest.Repo, release string) {
			files := namedPlans("v2", "psa", "next")
			files[file] = approvalOf("next", release)
			r.Commit(files)
		}, nil, []string{"sb"}},
		"a pin moves to where another plan has the name": {func(r *gittest.Repo, release string) {
			r.Commit(map[string]string{file: approvalOf("psa", release)})
			r.Commit(namedPlans("v2", "psb", "psa"))
		}, func(r *gittest.Repo) string { return r.Head() }, nil},
		"a pin": {func(r *gittest.Repo, release string) {
			r.Commit(map[string]string{file: approvalOf("psa", release)})
		}, func(r *gittest.Repo) string { return r.Git("rev-parse", "HEAD~1") }, []string{"sa"}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			repo := gittest.NewRepo(t)
			repo.Commit(namedPlans("v1", "psa", "psb"))
			release := repo.Commit(namedPlans("v2", "psa", "psb"))
			tt.story(repo, release)
			repo.Push()
			r := rendererAt(t, repo, "")
			if tt.pin != nil {
				r.Source.Spec.Ref.Commit = tt.pin(repo)
				r.Snapshot.Commit = plumbing.NewHash(r.Source.Spec.Ref.Commit)
			}
			d, _, err := r.Read(nil)
			if err != nil {
				t.Fatal(err)
			}
			live := map[string]*v1alpha1.BatchRelease{}
			for i := range d.Set.Releases {
				of := &d.Set.Releases[i]
				br := of.Plan.DeepCopy()
				br.Spec.Template, br.Spec.Commit = of.Template, release
				br.Spec.ApprovalsSince = &v1alpha1.ApprovalsSince{AppliedCommit: release, ObservedCommit: release}
				live[plan.ReleaseName(of.Plan)] = br
			}
			list, ignored, err := r.Releases(t.Context(), d, d.Set.Releases, live)
			if err != nil {
				t.Fatal(err)
			}
			var got []string
			for _, br := range list {
				if br.Spec.Approval != nil {
					got = append(got, br.Spec.WorkloadRef.Name)
				}
			}
			if !slices.Equal(got, tt.want) {
				t.Errorf("approved are %q, want %q: %v", got, tt.want, ignored)
			}
			if len(tt.want) == 0 && len(ignored) != 1 {
				t.Errorf("it is not said why: %v", ignored)
			}
		})
	}
}

// A commit in which two plans have each other's names has other templates for none of
// their Deployments.
func TestTemplateIn_NamesExchanged(t *testing.T) {
	t.Parallel()
	repo := gittest.NewRepo(t)
	repo.Commit(namedPlans("v1", "psa", "psb"))
	repo.Push()
	now, _, err := rendererAt(t, repo, "").Read(nil)
	if err != nil {
		t.Fatal(err)
	}
	repo.Commit(namedPlans("v1", "psb", "psa"))
	repo.Push()
	then, _, err := rendererAt(t, repo, "").Read(nil)
	if err != nil {
		t.Fatal(err)
	}
	for i := range now.Set.Releases {
		r := &now.Set.Releases[i]
		if got := TemplateIn(then.Set, r); !plan.EqualTemplate(got, r.Template) {
			t.Errorf("Deployment %s has the template of %s", r.Deployment.GetName(), got.Labels["app"])
		}
	}
}
