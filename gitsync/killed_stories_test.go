package gitsync_test

import (
	"fmt"
	"strings"

	corev1 "k8s.io/api/core/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/tranche-dev/tranche/plan/v1alpha1"
	"github.com/tranche-dev/tranche/rollout/clustertest"
)

const (
	webIsGitSyncs = "Deployment web: 2 x v1 with 1 env and 2 labels, gitsync's"
	webIsRollouts = "Deployment web: 2 x v1 with 1 env and 2 labels, rollout's"
	webHasAPlan   = "BatchRelease web: has a commit: true"
)

// killedStories are for a controller that dies again and again.
var killedStories = map[string]func(*env) []stage{
	"a plan comes and goes": func(*env) []stage {
		return []stage{
			{
				push: map[string]string{"deploy/web.yaml": web("v1"), "deploy/a.yaml": configMap("a", "one"), "deploy/old.yaml": configMap("old", "one")},
				want: []string{"ConfigMap a: one", "ConfigMap old: one", webIsGitSyncs},
			},
			{
				push: map[string]string{"deploy/release.yaml": webPlan, "deploy/web.yaml": web("v1", ", team: shop", ""), "deploy/old.yaml": ""},
				want: []string{webHasAPlan, "ConfigMap a: one", "Deployment web: 2 x v1 with 1 env and 1 labels, rollout's"},
			},
			{
				push: map[string]string{"deploy/web.yaml": web("v1", "\n        env:\n        - {name: COLOUR, value: blue}", ""), "deploy/release.yaml": ""},
				want: []string{"ConfigMap a: one", "Deployment web: 2 x v1 with 0 env and 2 labels, gitsync's"},
			},
		}
	},
	"a plan gets another name, and its old one again": func(*env) []stage {
		named := func(name string) map[string]string {
			return map[string]string{"deploy/release.yaml": planOf(name, "1", "50%", "100%"), "deploy/a.yaml": configMap("a", name)}
		}
		commit := ""
		return []stage{
			{push: map[string]string{"deploy/web.yaml": web("v1"), "deploy/release.yaml": planOf("web", "1", "50%", "100%")}, want: []string{webHasAPlan, webIsRollouts}},
			{
				do:   func(s *env) { s.atStep("web", 1); commit = s.release("web").Spec.Commit },
				push: named("next"), want: []string{"BatchRelease next: has a commit: true, at step 1", "ConfigMap a: next", webIsRollouts},
			},
			{
				do: func(s *env) {
					if now := s.release("next").Spec.Commit; now != commit {
						s.Errorf("the release comes from %s, and came from %s", now, commit)
					}
				},
				push: named("web"), want: []string{webHasAPlan + ", at step 1", "ConfigMap a: web", webIsRollouts},
			},
		}
	},
	"an autoscaler comes and goes": func(*env) []stage {
		sized := func(n int) string { return strings.Replace(webIsRollouts, "2 x", fmt.Sprintf("%d x", n), 1) }
		return []stage{
			{push: map[string]string{"deploy/web.yaml": web("v1"), "deploy/release.yaml": webPlan}, want: []string{webHasAPlan, webIsRollouts}},
			{
				push: map[string]string{"deploy/hpa.yaml": autoscaler("web", "v2"), "deploy/web.yaml": web("v1", "  replicas: 2\n", "")},
				want: []string{webHasAPlan, webIsRollouts, "HorizontalPodAutoscaler web"},
			},
			{
				do: func(s *env) { s.scale(5, "web") }, push: map[string]string{"deploy/a.yaml": configMap("a", "one")},
				want: []string{webHasAPlan, "ConfigMap a: one", sized(5), "HorizontalPodAutoscaler web"},
			},
			{
				push: map[string]string{"deploy/hpa.yaml": "", "deploy/web.yaml": web("v1", "replicas: 2", "replicas: 3")},
				want: []string{webHasAPlan, "ConfigMap a: one", sized(3)},
			},
		}
	},
	"an object is made anew": func(*env) []stage {
		fixed := func(value string) map[string]string {
			return map[string]string{"deploy/fixed.yaml": strings.Replace(configMap("fixed", value), "name: fixed", "name: fixed, annotations: {tranche.dev/force: 'true'}", 1) + "immutable: true\n"}
		}
		return []stage{
			{push: fixed("one"), want: []string{"ConfigMap fixed: one"}},
			{push: fixed("two"), want: []string{"ConfigMap fixed: two, anew"}},
		}
	},
	"a kind comes with its object and their namespace, and goes": func(s *env) []stage {
		const yes, toy = "annotations: {tranche.dev/prune: enabled}", "apiVersion: %s.example.org/v1\nkind: Toy\nmetadata: {name: ball, namespace: %s-new}\n"
		kept := []string{"ConfigMap a: one", "ConfigMap b: one", "ConfigMap c: one"}
		claim := func(name, more string) string {
			return "apiVersion: v1\nkind: PersistentVolumeClaim\nmetadata: {name: " + name + more + "}\nspec: {storageClassName: none, accessModes: [ReadWriteOnce], resources: {requests: {storage: 1Gi}}}\n"
		}
		return []stage{
			{
				push: map[string]string{
					"deploy/crd.yaml": strings.ReplaceAll(toyCRD, "GROUP", s.ns+".example.org"), "deploy/toy.yaml": fmt.Sprintf(toy, s.ns, s.ns),
					"deploy/new.yaml": namespace(s.ns+"-new", ", "+yes), "deploy/claim.yaml": claim("claim", ", "+yes) + "---\n" + claim("left", ""),
					"deploy/a.yaml": configMap("a", "one"), "deploy/b.yaml": configMap("b", "one"), "deploy/c.yaml": configMap("c", "one"),
				},
				want: append(kept, "CustomResourceDefinition toys.NS.example.org", "Namespace NS-new", "PersistentVolumeClaim claim", "PersistentVolumeClaim left", "Toy NS-new/ball"),
			},
			{
				push: map[string]string{"deploy/crd.yaml": "", "deploy/toy.yaml": "", "deploy/claim.yaml": ""},
				want: append(kept, "Namespace NS-new", "PersistentVolumeClaim left, nobody's"),
			},
			{push: map[string]string{"deploy/new.yaml": ""}, want: append(kept, "PersistentVolumeClaim left, nobody's")},
		}
	},
	"another path, another namespace, another account": func(s *env) []stage {
		return []stage{
			{
				push: map[string]string{"deploy/a.yaml": configMap("a", "one"), "deploy/web.yaml": web("v1"), "deploy/b.yaml": configMap("b", "one")},
				want: []string{"ConfigMap a: one", "ConfigMap b: one", webIsGitSyncs},
			},
			{
				do:       edited(func(gs *v1alpha1.GitSource) { gs.Spec.Path = "more" }),
				push:     map[string]string{"deploy/a.yaml": "", "deploy/web.yaml": "", "deploy/b.yaml": "", "more/a.yaml": configMap("a", "two"), "more/web.yaml": web("v1")},
				confirms: true, want: []string{"ConfigMap a: two", webIsGitSyncs},
			},
			{
				confirms: true,
				do: func(s *env) {
					s.kubectl("create", "namespace", s.ns+"-target")
					s.Cleanup(func() { s.at("").kubectl("delete", "namespace", s.ns+"-target", "--wait=false") })
					edited(func(gs *v1alpha1.GitSource) { gs.Spec.TargetNamespace = s.ns + "-target" })(s)
				},
				want: []string{"ConfigMap NS-target/a: two", "Deployment NS-target/web: 2 x v1 with 1 env and 2 labels, gitsync's", "Namespace NS-target, nobody's"},
			},
			{
				confirms: true,
				do: func(s *env) {
					s.kubectl("create", "serviceaccount", "tenant")
					s.kubectl("create", "rolebinding", "tenant", "--clusterrole=edit", "--serviceaccount="+s.ns+":tenant")
					s.at(s.ns+"-target").kubectl("create", "rolebinding", "tenant", "--clusterrole=edit", "--serviceaccount="+s.ns+":tenant")
					edited(func(gs *v1alpha1.GitSource) { gs.Spec.TargetNamespace, gs.Spec.ServiceAccountName = "", "tenant" })(s)
				},
				want: []string{"ConfigMap a: two", webIsGitSyncs, "Namespace NS-target, nobody's"},
			},
		}
	},
	"what a pod uses leaves": func(s *env) []stage {
		uses := func(volumes string) string { return web("v1", "      containers:\n", volumes+"      containers:\n") }
		const used = "      volumes: [{name: c, configMap: {name: used}}]\n"
		isKept := func() {
			clustertest.Wait(s, "what is kept", func() error {
				if kept := s.gs().Status.Kept; len(kept) != 1 || kept[0].ID != s.ns+"_used__ConfigMap" {
					return fmt.Errorf("%+v", kept)
				}
				return nil
			})
		}
		return []stage{
			{
				push: map[string]string{"deploy/web.yaml": uses(used), "deploy/used.yaml": configMap("used", "one"), "deploy/a.yaml": configMap("a", "one")},
				want: []string{"ConfigMap a: one", "ConfigMap used: one", webIsGitSyncs},
			},
			{push: map[string]string{"deploy/used.yaml": ""}, want: []string{"ConfigMap a: one", "ConfigMap used: one", webIsGitSyncs}},
			{do: func(*env) { isKept() }, push: map[string]string{"deploy/web.yaml": uses("")}, asks: true, want: []string{"ConfigMap a: one", webIsGitSyncs}},
		}
	},
	"from one source to another": func(s *env) []stage {
		b := strings.Replace(configMap("b", "one"), "name: b", "name: b, annotations: {tranche.dev/prune: disabled}", 1)
		stay := []string{"ConfigMap c: one", "ConfigMap d: one", "ConfigMap e: one"}
		return []stage{
			{
				push: map[string]string{
					"deploy/a.yaml": configMap("a", "one"), "deploy/b.yaml": b, "deploy/web.yaml": web("v1"),
					"deploy/c.yaml": configMap("c", "one"), "deploy/d.yaml": configMap("d", "one"), "deploy/e.yaml": configMap("e", "one"), "more/README.md": "none yet",
				},
				want: append([]string{"ConfigMap a: one", "ConfigMap b: one"}, append(stay, webIsGitSyncs)...),
			},
			{
				do:   func(s *env) { s.another("other", "more") },
				push: map[string]string{"deploy/a.yaml": "", "deploy/b.yaml": "", "deploy/web.yaml": "", "more/a.yaml": configMap("a", "one"), "more/b.yaml": b, "more/web.yaml": web("v1")},
				want: append([]string{"ConfigMap a: one, other's", "ConfigMap b: one, other's"}, append(stay, webIsGitSyncs+", other's")...),
			},
		}
	},
	"an object goes before it has come": func(*env) []stage {
		return []stage{
			{push: map[string]string{"deploy/a.yaml": configMap("a", "one")}, want: []string{"ConfigMap a: one"}},
			{
				do: func(s *env) {
					s.push(map[string]string{"deploy/b.yaml": configMap("b", "one"), "deploy/c.yaml": configMap("c", "one")})
					clustertest.Wait(s, "the first of two", func() error {
						return s.c.Client.Get(s.Context(), client.ObjectKey{Namespace: s.ns, Name: "b"}, &corev1.ConfigMap{})
					})
				},
				push: map[string]string{"deploy/b.yaml": "", "deploy/c.yaml": ""},
				want: []string{"ConfigMap a: one"},
			},
		}
	},
}

// edited changes the GitSource.
func edited(edit func(*v1alpha1.GitSource)) func(*env) {
	return func(s *env) {
		clustertest.Wait(s, "the edit", func() error {
			gs := s.gs()
			edit(gs)
			return s.c.Client.Update(s.Context(), gs)
		})
	}
}
