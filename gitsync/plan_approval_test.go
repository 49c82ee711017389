package gitsync_test

import (
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/tranche-dev/tranche/gitsync/gittest"
	"github.com/tranche-dev/tranche/plan/v1alpha1"
	"github.com/tranche-dev/tranche/rollout/clustertest"
)

// signed is a source whose commits three keys may sign, and whose approvals two of
// them: k1 may commit and not approve.
type signed struct {
	*env
	*sizes
	stop       func()
	k1, k2, k3 gittest.Key
	uid        types.UID // of Deployment web
	allowed    int32     // pods of v2, before a gate is approved
}

// signedPlan is what governs: two gates, each with an approval.
var signedPlan = []string{"1", "50%", "100%"}

func newSigned(t *testing.T, edit ...func(*v1alpha1.GitSource)) *signed {
	t.Helper()
	a := &signed{env: newIdleEnv(t), allowed: 1}
	a.start()
	t.Cleanup(func() { a.stop() })
	for _, k := range []*gittest.Key{&a.k1, &a.k2, &a.k3} {
		*k = gittest.NewSSHKey(t, "ed25519", "")
	}
	first := a.by(a.k1, map[string]string{"deploy/web.yaml": sizedWeb(3, "v1"), "deploy/release.yaml": planOf("web", signedPlan...), "deploy/a.yaml": configMap("a", "one")})
	a.applied2(first, append([]func(*v1alpha1.GitSource){a.demands}, edit...)...)
	a.isAt("web", "ReleaseCompleted", 2)
	a.sizes, a.uid = a.recordSizes("v2"), a.deployment("web").UID
	return a
}

func (a *signed) start() { a.stop = a.startController(andRollout) }

// demands is the spec of the source.
func (a *signed) demands(gs *v1alpha1.GitSource) {
	k1, k2, k3 := "k1@example.org "+a.k1.Public, "k2@example.org "+a.k2.Public, "k3@example.org "+a.k3.Public
	gs.Spec.Verify = committers(a.lists("committers", k1, k2, k3))
	gs.Spec.Approvals = &v1alpha1.ApprovalPolicy{Signers: a.lists("approvers", k2, k3), DistinctAuthor: true}
}

// by pushes a commit that a key has signed.
func (a *signed) by(k gittest.Key, files map[string]string) string {
	a.Helper()
	a.repo.Sign(&k)
	return a.push(files)
}

// terms are the text of which an approval names the digest, as docs/signatures.md
// specifies it. They are for a plan without pauses and a Deployment without a
// strategy.
func (a *signed) terms(steps ...string) string {
	var list []string
	for i, s := range steps {
		if strings.HasSuffix(s, "%") {
			s = `"` + s + `"`
		}
		gate := `"gate":"approval",`
		if i == len(steps)-1 {
			gate = ""
		}
		list = append(list, "{"+gate+`"replicas":`+s+"}")
	}
	return `{"deployment":"` + a.ns + `/web","minReadySeconds":0,"onFailure":"Hold","progressDeadlineSeconds":600,"rollback":[1,"100%"],"steps":[` +
		strings.Join(list, ",") + `],"strategy":{"maxSurge":"25%","maxUnavailable":"25%"}}`
}

// paused are those of a plan whose gates open by themselves after a second.
func (a *signed) paused() string { return strings.ReplaceAll(a.terms(signedPlan...), "approval", "1s") }

func (a *signed) ungoverned() string { return `{"deployment":"` + a.ns + `/web","governed":false}` }
func (a *signed) removed() string {
	return `{"deployment":"` + a.ns + `/web","governed":false,"removed":true}`
}

func digestOf(terms string) string {
	sum := sha256.Sum256([]byte(terms))
	return hex.EncodeToString(sum[:])
}

const planApproval = "deploy/approvals/plans/web.yaml"

// agrees is the file that approves terms, in the namespace of their Deployment.
func agrees(terms string) map[string]string {
	namespace, _, _ := strings.Cut(strings.TrimPrefix(terms, `{"deployment":"`), "/")
	return map[string]string{planApproval: "apiVersion: tranche.dev/v1alpha1\nkind: BatchApproval\nmetadata: {name: web, namespace: " + namespace + "}\nspec: {plan: " + digestOf(terms) + "}\n"}
}

// approves pushes an approval of terms, and waits until they count.
func (a *signed) approves(k gittest.Key, terms string) {
	a.Helper()
	a.applied(a.by(k, agrees(terms)))
	a.says("True")
}

// brings pushes an image, by k1.
func (a *signed) brings(image string) string {
	a.Helper()
	return a.by(a.k1, map[string]string{"deploy/web.yaml": sizedWeb(3, image)})
}

// runs waits until all pods run an image, and the Deployment is native.
func (a *signed) runs(name, image string) {
	a.Helper()
	clustertest.Wait(a.env, "all pods to run "+image, func() error {
		var d appsv1.Deployment
		if err := a.c.Client.Get(a.Context(), client.ObjectKey{Namespace: a.ns, Name: name}, &d); err != nil {
			return withSource(a, err)
		}
		if now := d.Spec.Template.Spec.Containers[0].Image; !strings.HasSuffix(now, ":"+image) || d.Spec.Paused || d.Status.UpdatedReplicas != 3 || d.Status.Replicas != 3 || d.Status.AvailableReplicas != 3 {
			return withSource(a, fmt.Errorf("%s, paused %t, %d of %d updated", now, d.Spec.Paused, d.Status.UpdatedReplicas, d.Status.Replicas))
		}
		return nil
	})
}

// isStopped waits until the tip is seen and no release is on its way without an
// approval. It fails the test if more pods than the first step has were to run v2, or
// if a Deployment came or went. It also fails if none of that is reported.
func (a *signed) isStopped(terms string) {
	a.Helper()
	a.seen(a.inBare("rev-parse", "main"))
	comesToRest := func() error {
		var list v1alpha1.BatchReleaseList
		a.must(a.c.Client.List(a.Context(), &list, client.InNamespace(a.ns)))
		for _, br := range list.Items {
			if st := br.Status; st.ObservedGeneration != br.Generation || st.Reason != "WaitingForApproval" && st.Reason != "ReleaseCompleted" {
				return fmt.Errorf("BatchRelease %s: %s: %s", br.Name, st.Reason, st.Message)
			}
		}
		return nil
	}
	clustertest.Wait(a.env, "releases to rest", comesToRest)
	for range 2 {
		a.lookNow()
	}
	clustertest.Wait(a.env, "releases to rest", comesToRest)
	a.settled()
	a.atMost(a.allowed)
	var list appsv1.DeploymentList
	a.must(a.c.Client.List(a.Context(), &list, client.InNamespace(a.ns)))
	for _, d := range list.Items {
		if d.Name != "web" || d.UID != a.uid {
			a.Errorf("there is another Deployment %s", d.Name)
		}
	}
	if len(list.Items) == 0 {
		a.Error("the Deployment is gone")
	}
	m := a.differs("PlanNotApproved")
	for _, want := range []string{"Deployment " + a.ns + "/web", digestOf(terms), planApproval, "tranche approve web -n " + a.ns + " --plan --sign"} {
		if !strings.Contains(m, want) {
			a.Errorf("InSync does not tell %s: %s", want, m)
		}
	}
}

// seen waits until a commit was looked at, and what comes of it is done.
func (a *signed) seen(commit string) {
	a.Helper()
	clustertest.Wait(a.env, "commit "+commit+" to be seen", func() error {
		gs := a.gs()
		if c := a.inSync(); gs.Status.ObservedCommit != commit || c.Reason == "Applying" || c.Reason == "WaitingForHandBack" {
			return fmt.Errorf("%s", said(gs))
		}
		return nil
	})
}

// settled waits until the native controller has nothing to do.
func (a *signed) settled() {
	a.Helper()
	clustertest.Wait(a.env, "the Deployments to be looked at", func() error {
		var list appsv1.DeploymentList
		a.must(a.c.Client.List(a.Context(), &list, client.InNamespace(a.ns)))
		for _, d := range list.Items {
			if d.Status.ObservedGeneration != d.Generation || d.Status.Replicas != *d.Spec.Replicas {
				return fmt.Errorf("%s has %d pods of %d", d.Name, d.Status.Replicas, *d.Spec.Replicas)
			}
		}
		return nil
	})
}

// A key that may commit and not approve changes neither the steps of a release nor
// whether it has any. A signer's approval lets the same change count.
func TestPlanNeedsApproval(t *testing.T) {
	t.Parallel()
	loose := func() map[string]string {
		return map[string]string{"deploy/web.yaml": sizedWeb(3, "v2"), "deploy/release.yaml": planOf("web", "100%")}
	}
	for name, tt := range map[string]struct {
		// attack pushes, and returns the terms that are not approved.
		attack func(a *signed) string
		// honest goes on once they are.
		honest func(a *signed)
	}{
		"an image with one step": {func(a *signed) string { a.by(a.k1, loose()); return a.terms("100%") },
			func(a *signed) { a.brings("v3"); a.runs("web", "v3") }},
		"pauses for approvals, of a release that waits": {
			func(a *signed) string {
				a.brings("v2")
				a.isAt("web", "WaitingForApproval", 0)
				text := strings.ReplaceAll(planOf("web", signedPlan...), "replicas: 1\n", "replicas: 1\n      pause: {duration: 1s}\n")
				a.by(a.k1, map[string]string{"deploy/release.yaml": strings.ReplaceAll(text, "replicas: 50%\n", "replicas: 50%\n      pause: {duration: 1s}\n")})
				return a.paused()
			},
			func(a *signed) { a.runs("web", "v2") },
		},
		"the plan is removed, with an image": {
			func(a *signed) string {
				a.by(a.k1, map[string]string{"deploy/web.yaml": sizedWeb(3, "v2"), "deploy/release.yaml": ""})
				return a.ungoverned()
			},
			func(a *signed) { a.isGone("web", &v1alpha1.BatchRelease{}); a.runs("web", "v2") },
		},
		"the plan is removed, and then an image": {
			func(a *signed) string {
				a.applied(a.by(a.k1, map[string]string{"deploy/release.yaml": ""}))
				a.brings("v2")
				return a.ungoverned()
			},
			func(a *signed) { a.isGone("web", &v1alpha1.BatchRelease{}); a.runs("web", "v2") },
		},
		"the plan is removed, and comes again with one step": {
			func(a *signed) string {
				a.applied(a.by(a.k1, map[string]string{"deploy/release.yaml": ""}))
				a.by(a.k1, loose())
				return a.terms("100%")
			},
			func(a *signed) { a.brings("v3"); a.runs("web", "v3") },
		},
		"the plan gets another name and one step": {
			func(a *signed) string {
				files := loose()
				files["deploy/release.yaml"] = planOf("next", "100%")
				a.by(a.k1, files)
				return a.terms("100%")
			},
			func(a *signed) { a.brings("v3"); a.runs("web", "v3"); a.isGone("web", &v1alpha1.BatchRelease{}) },
		},
		"the Deployment gets a prefix": {
			func(a *signed) string {
				a.by(a.k1, map[string]string{
					"deploy/web.yaml": "", "deploy/release.yaml": "",
					"deploy/kustomization.yaml":     "resources: [a.yaml, web]\n",
					"deploy/web/kustomization.yaml": "namePrefix: prod-\nresources: [web.yaml, release.yaml]\n",
					"deploy/web/web.yaml":           sizedWeb(3, "v2"),
					"deploy/web/release.yaml":       strings.ReplaceAll(planOf("web", "100%"), "workloadRef: {name: web}", "workloadRef: {name: prod-web}"),
				})
				return a.removed()
			},
			func(a *signed) { a.isGone("web", &appsv1.Deployment{}); a.runs("prod-web", "v2") },
		},
		"the Deployment is removed, and comes again with one step": {
			func(a *signed) string {
				a.seen(a.by(a.k1, map[string]string{"deploy/web.yaml": "", "deploy/release.yaml": ""}))
				a.by(a.k1, loose())
				return a.terms("100%")
			},
			func(a *signed) { a.brings("v3"); a.runs("web", "v3") },
		},
		"the BatchRelease is deleted, and the plan has one step": {
			func(a *signed) string {
				a.stop()
				a.kubectl("delete", "batchrelease/web")
				a.by(a.k1, loose())
				a.start()
				return a.terms("100%")
			},
			func(a *signed) { a.brings("v3"); a.runs("web", "v3") },
		},
		"the Deployment is left alone for a commit": {
			func(a *signed) string {
				files := loose()
				files["deploy/web.yaml"] = sizedWeb(3, "v2", "labels: {app: web, team: shop}", "labels: {app: web, team: shop}\n  annotations: {tranche.dev/reconcile: disabled}")
				a.seen(a.by(a.k1, files))
				a.by(a.k1, loose())
				return a.terms("100%")
			},
			func(a *signed) { a.brings("v3"); a.runs("web", "v3") },
		},
		"the namespace of the plan's reference is written, too": {
			func(a *signed) string {
				files := loose()
				files["deploy/release.yaml"] = strings.Replace(files["deploy/release.yaml"], "metadata: {name: web}", "metadata: {name: web, namespace: "+a.ns+"}", 1)
				a.by(a.k1, files)
				return a.terms("100%")
			},
			func(a *signed) { a.brings("v3"); a.runs("web", "v3") },
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			a := newSigned(t)
			terms := tt.attack(a)
			a.isStopped(terms)
			if t.Failed() {
				return
			}
			a.by(a.k2, agrees(terms))
			tt.honest(a)
			a.says("True")
		})
	}
}

// An approval of a plan counts as one of a release does: by a signer, not the author,
// with all of the digest, and once.
func TestPlanApprovalThatDoesNotCount(t *testing.T) {
	t.Parallel()
	for name, tt := range map[string]struct {
		attack func(a *signed) string
		says   string
	}{
		"unsigned by a signer": {func(a *signed) string {
			files := agrees(a.terms("100%"))
			files["deploy/release.yaml"], files["deploy/web.yaml"] = planOf("web", "100%"), sizedWeb(3, "v2")
			a.by(a.k1, files)
			return a.terms("100%")
		}, "it is signed by a key that is not listed"},
		"by its author": {func(a *signed) string {
			a.by(a.k2, map[string]string{"deploy/release.yaml": planOf("web", "100%")})
			a.by(a.k2, agrees(a.terms("100%")))
			a.brings("v2")
			return a.terms("100%")
		}, "as is commit"},
		"by one of its authors": {func(a *signed) string {
			a.by(a.k2, map[string]string{"deploy/release.yaml": planOf("web", "50%", "100%")})
			a.by(a.k1, map[string]string{"deploy/release.yaml": planOf("web", "100%")})
			a.by(a.k2, agrees(a.terms("100%")))
			a.brings("v2")
			return a.terms("100%")
		}, "as is commit"},
		"by the author of what a merge brings back": {func(a *signed) string {
			loose := a.by(a.k2, map[string]string{"deploy/release.yaml": planOf("web", "100%")})
			a.by(a.k1, map[string]string{"deploy/release.yaml": planOf("web", signedPlan...)})
			a.repo.Sign(&a.k2)
			a.repo.Git("reset", "-q", "--hard", a.repo.Git("commit-tree", "-S", "-m", "Merge", "-p", "HEAD", "-p", loose, loose+"^{tree}"))
			a.repo.Push()
			a.by(a.k2, agrees(a.terms("100%")))
			a.brings("v2")
			return a.terms("100%")
		}, "as is commit"},
		"by the key of write-back, which another source may share": {func(a *signed) string {
			a.must(a.c.Client.Create(a.Context(), &corev1.Secret{ObjectMeta: metav1.ObjectMeta{Namespace: a.ns, Name: "signing"}, Data: map[string][]byte{"identity": []byte(a.k2.Private)}}))
			gs := a.gs()
			gs.Spec.WriteBack = &v1alpha1.WriteBack{Enabled: true, SigningKey: &v1alpha1.LocalObjectReference{Name: "signing"}}
			a.write(gs)
			a.by(a.k1, map[string]string{"deploy/release.yaml": planOf("web", "100%"), "deploy/web.yaml": sizedWeb(3, "v2")})
			a.by(a.k2, agrees(a.terms("100%")))
			return a.terms("100%")
		}, "which is the controller's and no person's"},
		"of a part of the digest": {func(a *signed) string {
			files := agrees(a.terms("100%"))
			digest := digestOf(a.terms("100%"))
			files[planApproval] = strings.ReplaceAll(files[planApproval], digest, digest[:20])
			a.by(a.k1, map[string]string{"deploy/release.yaml": planOf("web", "100%"), "deploy/web.yaml": sizedWeb(3, "v2")})
			a.by(a.k2, files)
			return a.terms("100%")
		}, "is not a digest"},
		"of another plan": {func(a *signed) string {
			a.by(a.k2, agrees(a.terms("50%", "100%")))
			a.by(a.k1, map[string]string{"deploy/release.yaml": planOf("web", "100%"), "deploy/web.yaml": sizedWeb(3, "v2")})
			return a.terms("100%")
		}, "it is of another digest"},
		"planted in the file of another approval": {func(a *signed) string {
			v2 := a.brings("v2")
			a.isAt("web", "WaitingForApproval", 0)
			const file = "deploy/approvals/web.yaml"
			planted := agrees(a.terms("100%"))[planApproval]
			a.by(a.k1, map[string]string{"deploy/release.yaml": planOf("web", "100%"), file: planted})
			a.by(a.k2, map[string]string{file: planted + "---\n" + a.approvalOf(a.release("web").Status.UpdateRevision, v2, "0")})
			return a.terms("100%")
		}, "its file has other documents"},
		"given ahead, of another plan than the one that came": {func(a *signed) string {
			files := agrees(a.terms("100%"))
			files["deploy/approvals/ahead.yaml"] = files[planApproval]
			delete(files, planApproval)
			a.by(a.k2, files)
			a.by(a.k1, map[string]string{"deploy/release.yaml": planOf("web", "2", "100%")})
			a.approves(a.k3, a.terms("2", "100%"))
			a.hasSteps("2", "100%")
			a.allowed = 2
			a.brings("v2")
			a.isAt("web", "WaitingForApproval", 0)
			a.by(a.k1, map[string]string{"deploy/release.yaml": planOf("web", "100%")})
			return a.terms("100%")
		}, "was on the branch when the present plan took effect"},
		"used before, after the history was rewritten": {func(a *signed) string {
			first := a.repo.Head()
			a.by(a.k1, map[string]string{"deploy/release.yaml": planOf("web", "100%")})
			a.approves(a.k2, a.terms("100%"))
			used := a.repo.Head()
			a.repo.Git("reset", "-q", "--hard", first)
			a.repo.Push("--force")
			a.approves(a.k3, a.terms(signedPlan...))
			a.repo.Sign(&a.k1)
			a.repo.Git("reset", "-q", "--hard", a.repo.Git("commit-tree", "-S", "-m", "Merge", "-p", "HEAD", "-p", used, used+"^{tree}"))
			a.repo.Push()
			a.brings("v2")
			return a.terms("100%")
		}, "was used before"},
		"used before, for a plan that came again since": {func(a *signed) string {
			a.by(a.k1, map[string]string{"deploy/release.yaml": ""})
			a.approves(a.k2, a.ungoverned())
			a.isGone("web", &v1alpha1.BatchRelease{})
			a.applied(a.by(a.k1, map[string]string{"deploy/release.yaml": planOf("web", signedPlan...)}))
			a.isAt("web", "ReleaseCompleted", 2)
			a.by(a.k1, map[string]string{"deploy/release.yaml": "", "deploy/web.yaml": sizedWeb(3, "v2")})
			return a.ungoverned()
		}, "was used before"},
		"used before, after a push by force": {func(a *signed) string {
			a.by(a.k1, map[string]string{"deploy/release.yaml": planOf("web", "100%")})
			a.approves(a.k2, a.terms("100%"))
			used := a.repo.Head()
			a.by(a.k1, map[string]string{"deploy/release.yaml": planOf("web", signedPlan...)})
			a.approves(a.k2, a.terms(signedPlan...))
			a.repo.Git("reset", "-q", "--hard", used)
			a.repo.Push("--force")
			a.brings("v2")
			return a.terms("100%")
		}, "was used before"},
		"used before, with its signature written in another way": {func(a *signed) string {
			a.by(a.k1, map[string]string{"deploy/release.yaml": planOf("web", "100%")})
			a.approves(a.k2, a.terms("100%"))
			twin := a.twin(a.repo.Head())
			a.by(a.k1, map[string]string{"deploy/release.yaml": planOf("web", signedPlan...)})
			a.approves(a.k3, a.terms(signedPlan...))
			a.repo.Sign(&a.k1)
			a.repo.Git("reset", "-q", "--hard", a.repo.Git("commit-tree", "-S", "-m", "Merge", "-p", twin, "-p", "HEAD", twin+"^{tree}"))
			a.repo.Push("--force")
			a.brings("v2")
			return a.terms("100%")
		}, "was used before"},
		"used before, after a merge": {func(a *signed) string {
			a.by(a.k1, map[string]string{"deploy/release.yaml": planOf("web", "100%")})
			a.approves(a.k2, a.terms("100%"))
			used := a.repo.Head()
			a.by(a.k1, map[string]string{"deploy/release.yaml": planOf("web", signedPlan...)})
			a.approves(a.k3, a.terms(signedPlan...))
			a.repo.Sign(&a.k1)
			a.repo.Git("reset", "-q", "--hard", a.repo.Git("commit-tree", "-S", "-m", "Merge", "-p", used, "-p", "HEAD", used+"^{tree}"))
			a.repo.Push()
			a.brings("v2")
			return a.terms("100%")
		}, "was used before"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			a := newSigned(t)
			terms := tt.attack(a)
			a.isStopped(terms)
			if m := a.inSync().Message; !strings.Contains(m, tt.says) {
				t.Errorf("it does not tell %q: %s", tt.says, m)
			}
			files := agrees(terms) // of another person, by a new commit
			files[planApproval] = "# again\n" + files[planApproval]
			a.repo.Git("rm", "-q", "--ignore-unmatch", "deploy/approvals/web.yaml")
			a.by(a.k3, files)
			a.says("True")
			a.brings("v3")
			a.runs("web", "v3")
		})
	}
}

// Plans that count without an approval, or with one that came before.
func TestPlanThatCounts(t *testing.T) {
	t.Parallel()
	a := newSigned(t)
	quiet := func() {
		t.Helper()
		for range 2 {
			a.lookNow()
		}
		a.says("True")
		if n := a.events("PlanNotApproved"); len(n) > 0 {
			t.Errorf("%q", n)
		}
	}
	// spec.replicas is scaling.
	a.applied(a.by(a.k1, map[string]string{"deploy/web.yaml": sizedWeb(6, "v1")}))
	a.applied(a.by(a.k1, map[string]string{"deploy/web.yaml": sizedWeb(3, "v1")}))
	quiet()
	// A Deployment that no plan governed gets one.
	other := func(image string) string {
		return strings.NewReplacer("name: web\n", "name: other\n", "app: web", "app: other").Replace(web(image))
	}
	plan := func(steps ...string) string {
		return strings.Replace(planOf("other", steps...), "workloadRef: {name: web}", "workloadRef: {name: other}", 1)
	}
	a.applied(a.by(a.k1, map[string]string{"deploy/other.yaml": other("v1")}))
	a.applied(a.by(a.k1, map[string]string{"deploy/plan.yaml": plan("1", "100%")}))
	a.isAt("other", "ReleaseCompleted", 1)
	quiet()
	// The same plan under another name.
	a.applied(a.by(a.k1, map[string]string{"deploy/release.yaml": planOf("next", signedPlan...)}))
	a.isGone("web", &v1alpha1.BatchRelease{})
	a.applied(a.by(a.k1, map[string]string{"deploy/release.yaml": planOf("web", signedPlan...)}))
	a.isGone("next", &v1alpha1.BatchRelease{})
	quiet()
	// An approval that is ahead of the plan.
	a.applied(a.by(a.k2, agrees(a.terms("2", "100%"))))
	a.applied(a.by(a.k1, map[string]string{"deploy/release.yaml": planOf("web", "2", "100%")}))
	a.hasSteps("2", "100%")
	quiet()
	// Both in one commit is of one author.
	files := agrees(a.terms("3", "100%"))
	files["deploy/release.yaml"] = planOf("web", "3", "100%")
	a.by(a.k2, files)
	a.differs("PlanNotApproved")
	a.hasSteps("2", "100%")
	// Taken back, there is no difference. The other Deployment was never held up.
	a.by(a.k1, map[string]string{"deploy/release.yaml": planOf("web", "2", "100%"), "deploy/other.yaml": other("v2")})
	a.says("True")
	a.isAt("other", "WaitingForApproval", 0)
}

// hasSteps waits until a BatchRelease has steps.
func (a *signed) hasSteps(want ...string) {
	a.Helper()
	clustertest.Wait(a.env, fmt.Sprintf("steps %q", want), func() error {
		var got []string
		for _, s := range a.release("web").Spec.Strategy.Steps {
			got = append(got, s.Replicas.String())
		}
		if !slices.Equal(got, want) {
			return withSource(a, fmt.Errorf("%q", got))
		}
		return nil
	})
}

// The Deployment's own strategy and minReadySeconds wait, too. The rest of the commit
// is applied, and drift is put back to what governs.
func TestStrategyNeedsApproval(t *testing.T) {
	t.Parallel()
	a := newSigned(t)
	loose := sizedWeb(3, "v1", "replicas: 3\n", "replicas: 5\n  minReadySeconds: 7\n  strategy: {rollingUpdate: {maxSurge: 3, maxUnavailable: 100%}}\n")
	a.by(a.k1, map[string]string{"deploy/web.yaml": loose, "deploy/a.yaml": configMap("a", "two")})
	a.differs("PlanNotApproved")
	is := func(minReady int32, surge string) {
		t.Helper()
		clustertest.Wait(t, "the Deployment", func() error {
			d := a.deployment("web").Spec
			if d.MinReadySeconds != minReady || d.Strategy.RollingUpdate == nil || d.Strategy.RollingUpdate.MaxSurge.String() != surge || *d.Replicas != 5 {
				return fmt.Errorf("minReadySeconds %d, strategy %+v, %d replicas", d.MinReadySeconds, d.Strategy.RollingUpdate, *d.Replicas)
			}
			return nil
		})
	}
	for range 2 {
		a.lookNow()
	}
	is(0, "25%")
	a.kubectl("patch", "deployment/web", "--type=merge", "-p", `{"spec":{"minReadySeconds":9,"strategy":{"rollingUpdate":{"maxSurge":2}}}}`)
	is(0, "25%")
	terms := strings.NewReplacer(`"minReadySeconds":0`, `"minReadySeconds":7`, `"maxSurge":"25%","maxUnavailable":"25%"`, `"maxSurge":3,"maxUnavailable":"100%"`).Replace(a.terms(signedPlan...))
	a.approves(a.k2, terms)
	is(7, "3")
}

// If a source gets signers, an approval is needed to change the terms that govern
// then. If it loses them, Git alone counts again.
func TestSignersComeAndGo(t *testing.T) {
	t.Parallel()
	a := newSigned(t, func(gs *v1alpha1.GitSource) { gs.Spec.Approvals = nil })
	if p := a.gs().Status.Plans; len(p) > 0 {
		t.Errorf("without signers, there are %v", p)
	}
	a.applied(a.by(a.k1, map[string]string{"deploy/release.yaml": planOf("web", "2", "100%")}))
	a.hasSteps("2", "100%")
	a.stop()
	gs := a.gs()
	a.demands(gs)
	a.write(gs)
	a.by(a.k1, map[string]string{"deploy/release.yaml": planOf("web", "100%"), "deploy/web.yaml": sizedWeb(3, "v2")})
	a.start()
	a.isAt("web", "WaitingForApproval", 0)
	a.hasSteps("2", "100%")
	a.differs("PlanNotApproved")
	a.atMost(2)
	gs = a.gs()
	gs.Spec.Approvals = nil
	a.write(gs)
	a.hasSteps("100%")
	clustertest.Wait(t, "the record to go", func() error {
		if p := a.gs().Status.Plans; len(p) > 0 {
			return fmt.Errorf("%v", p)
		}
		return nil
	})
}

// Another source without signers does not get at a Deployment that one with signers
// governs.
func TestPlanMovedToAnotherSource(t *testing.T) {
	t.Parallel()
	a := newSigned(t)
	a.by(a.k1, map[string]string{"other/b.yaml": configMap("b", "one")})
	a.another("loose", "other")
	a.seen(a.by(a.k1, map[string]string{
		"deploy/web.yaml": "", "deploy/release.yaml": "", "other/web.yaml": sizedWeb(3, "v2"), "other/release.yaml": planOf("web", "100%"),
	}))
	a.lookNow("loose")
	a.isStopped(a.removed())
	a.by(a.k2, agrees(a.removed()))
	a.says("True")
	a.lookNow("loose")
	a.runs("web", "v2")
}

// A namespace with a governed Deployment is not pruned: what comes back with it would
// come with all pods at once.
func TestNamespaceOfAGovernedDeployment(t *testing.T) {
	t.Parallel()
	a := newSigned(t)
	namespace := "apiVersion: v1\nkind: Namespace\nmetadata: {name: " + a.ns + ", annotations: {tranche.dev/prune: enabled}}\n"
	a.applied(a.by(a.k1, map[string]string{"deploy/ns.yaml": namespace}))
	a.applied(a.by(a.k1, map[string]string{"deploy/ns.yaml": ""}))
	a.says("False PlanNotApproved: Namespace " + a.ns + ": it has left the branch and stays")
	for range 2 {
		a.lookNow()
	}
	if ns := get(a.env, "default", &corev1.ServiceAccount{}); ns.DeletionTimestamp != nil {
		t.Error("what is in the namespace goes")
	}
	var ns corev1.Namespace
	a.must(a.c.Client.Get(t.Context(), client.ObjectKey{Name: a.ns}, &ns))
	if ns.DeletionTimestamp != nil {
		t.Error("the namespace goes")
	}
	a.applied(a.by(a.k1, map[string]string{"deploy/ns.yaml": namespace}))
	a.says("True")
}

// A source that gets signers while its plan leaves the branch: the plan in the cluster
// governs, though nothing is on record.
func TestSignersComeAsThePlanGoes(t *testing.T) {
	t.Parallel()
	a := newSigned(t, func(gs *v1alpha1.GitSource) { gs.Spec.Approvals = nil })
	a.stop()
	gs := a.gs()
	a.demands(gs)
	a.write(gs)
	a.by(a.k1, map[string]string{"deploy/release.yaml": "", "deploy/web.yaml": sizedWeb(3, "v2")})
	a.start()
	a.isStopped(a.ungoverned())
	a.by(a.k2, agrees(a.ungoverned()))
	a.isGone("web", &v1alpha1.BatchRelease{})
	a.runs("web", "v2")
}

// A controller that dies after each of its writes comes to the same end, with the
// same plan at each stage.
func TestKilledWhileAPlanWaits(t *testing.T) {
	t.Parallel()
	s := newIdleEnv(t)
	signer := gittest.NewSSHKey(t, "ed25519", "")
	a := &signed{env: s, k2: signer}
	s.startMortals(gitsyncOnly)
	first := s.push(map[string]string{"deploy/web.yaml": web("v1"), "deploy/release.yaml": planOf("web", signedPlan...), "deploy/a.yaml": configMap("a", "one")})
	s.applied2(first, func(gs *v1alpha1.GitSource) {
		gs.Spec.Approvals = &v1alpha1.ApprovalPolicy{Signers: s.lists("approvers", "k2@example.org "+signer.Public)}
	})
	push := func(files map[string]string) {
		t.Helper()
		s.repo.Sign(nil)
		s.applied(s.push(files))
	}
	push(map[string]string{"deploy/release.yaml": planOf("next", "100%"), "deploy/a.yaml": configMap("a", "two")})
	a.differs("PlanNotApproved")
	a.hasSteps(signedPlan...)
	a.approves(a.k2, a.terms("100%"))
	s.isGone("web", &v1alpha1.BatchRelease{})
	push(map[string]string{"deploy/release.yaml": "", "deploy/web.yaml": web("v2")})
	s.says("False PlanNotApproved")
	if br := s.release("next"); len(br.Spec.Strategy.Steps) != 1 || !strings.HasSuffix(br.Spec.Template.Spec.Containers[0].Image, ":v2") {
		t.Errorf("%+v", br.Spec)
	}
	if image := s.deployment("web").Spec.Template.Spec.Containers[0].Image; !strings.HasSuffix(image, ":v1") {
		t.Errorf("without a plan and rollout, %s runs", image)
	}
	files := agrees(a.ungoverned())
	files[planApproval] = strings.Replace(files[planApproval], "name: web", "name: next", 1)
	s.repo.Sign(&a.k2)
	s.applied(s.push(files))
	s.says("True")
	s.isGone("next", &v1alpha1.BatchRelease{})
	clustertest.Wait(t, "the native Deployment, and no record", func() error {
		image := s.deployment("web").Spec.Template.Spec.Containers[0].Image
		if p := s.gs().Status.Plans; !strings.HasSuffix(image, ":v2") || len(p) > 0 {
			return fmt.Errorf("%s runs, and %v governs", image, p)
		}
		return nil
	})
}

// While a change of the plan waits, a release goes on by the plan that governs, with
// approvals of its own. A rollback takes the change back with the image.
func TestReleaseWhileAPlanWaits(t *testing.T) {
	t.Parallel()
	a := newSigned(t, writesBack, func(gs *v1alpha1.GitSource) { gs.Spec.Verify, gs.Spec.Approvals.DistinctAuthor = nil, false })
	a.brings("v2")
	a.isAt("web", "WaitingForApproval", 0)
	br := a.release("web")
	a.by(a.k1, map[string]string{"deploy/release.yaml": strings.ReplaceAll(planOf("web", signedPlan...), "replicas: 50%\n", "replicas: 50%\n      pause: {duration: 1s}\n")})
	a.differs("PlanNotApproved")
	approve := func(step string) {
		t.Helper()
		a.by(a.k2, map[string]string{"deploy/approvals/web.yaml": a.approvalOf(br.Status.UpdateRevision, br.Spec.Commit, step)})
	}
	approve("0")
	a.isAt("web", "WaitingForApproval", 1)
	a.differs("PlanNotApproved")
	a.atMost(2)
	approve("1")
	a.runs("web", "v2")
	a.by(a.k1, map[string]string{"deploy/release.yaml": planOf("web", signedPlan...)})
	a.says("True")

	r := a.recordSizes("v3")
	a.repo.Sign(&a.k1)
	a.repo.CommitAndPush(map[string]string{"deploy/release.yaml": planOf("web", "100%"), "deploy/web.yaml": sizedWeb(3, "v3")}, "web: v3")
	a.isAt("web", "WaitingForApproval", 0)
	a.rollBack("web")
	clustertest.Wait(t, "the revert", func() error {
		if s := a.subjects("main")[0]; s != "Revert \"web: v3\"" {
			return withSource(a, fmt.Errorf("%s", s))
		}
		return nil
	})
	a.runs("web", "v2")
	a.says("True")
	r.atMost(1)
	if text := a.inBare("show", "main:deploy/release.yaml"); !strings.Contains(text, "50%") {
		t.Errorf("the plan on the branch is\n%s", text)
	}
}

// twin returns another commit with the same content and the same signature, whose lines
// are shorter. Any user who may push can make it, and git says that it is good.
func (a *signed) twin(commit string) string {
	a.Helper()
	raw, err := exec.Command("git", "-C", a.repo.Work, "cat-file", "commit", commit).Output()
	a.must(err)
	before, rest, _ := strings.Cut(string(raw), "gpgsig -----BEGIN SSH SIGNATURE-----\n")
	armour, after, ok := strings.Cut(rest, " -----END SSH SIGNATURE-----\n")
	if !ok {
		a.Fatalf("commit %s has no SSH signature:\n%s", commit, raw)
	}
	var lines strings.Builder
	for chunk := range slices.Chunk([]byte(strings.NewReplacer("\n", "", " ", "").Replace(armour)), 60) {
		lines.WriteString(" " + string(chunk) + "\n")
	}
	file := filepath.Join(a.TempDir(), "commit")
	a.must(os.WriteFile(file, []byte(before+"gpgsig -----BEGIN SSH SIGNATURE-----\n"+lines.String()+" -----END SSH SIGNATURE-----\n"+after), 0o600))
	twin := a.repo.Git("hash-object", "-t", "commit", "-w", file)
	if twin == commit {
		a.Fatal("the twin is the same commit")
	}
	return twin
}
