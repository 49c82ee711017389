package gitsync_test

import (
	"errors"
	"strings"
	"testing"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"

	"github.com/tranche-dev/tranche/rollout/clustertest"
)

// invalid are files that make a commit invalid, beside web and its plan, by reason.
var invalid = map[string]struct {
	reason string
	files  map[string]string
}{
	"a plan that does not decode":   {"InvalidPlan", apiPlanWith("- replicas: [1]\n")},
	"a plan whose steps go down":    {"InvalidPlan", apiPlanWith("- replicas: 100%\n    - replicas: 1\n")},
	"a plan without its Deployment": {"InvalidPlan", map[string]string{"deploy/api.yaml": ""}},
	"a governed Deployment that is paused": {"InvalidManifest", map[string]string{
		"deploy/api.yaml": strings.Replace(apiOf("v2", false)["deploy/api.yaml"], "spec:\n", "spec:\n  paused: true\n", 1),
	}},
	"a reserved label": {"InvalidManifest", map[string]string{
		"deploy/more.yaml": strings.Replace(configMap("more", "one"), "{name: more}", "{name: more, labels: {tranche.dev/source: x}}", 1),
	}},
	"an object twice": {"DuplicateObject", map[string]string{
		"deploy/more.yaml": configMap("more", "one") + "---\n" + configMap("more", "two"),
	}},
	"an unknown kind": {"UnknownKind", map[string]string{
		"deploy/more.yaml": "apiVersion: example.org/v1\nkind: Widget\nmetadata: {name: more}\n",
	}},
	"api twice": {"DuplicateObject", map[string]string{"deploy/more.yaml": apiOf("v2", false)["deploy/api.yaml"]}},
	"a second plan": {"InvalidPlan", map[string]string{
		"deploy/more.yaml": strings.Replace(apiOf("v1", false)["deploy/api-plan.yaml"], "{name: api}\nspec", "{name: api2}\nspec", 1),
	}},
	"a BatchAnalysis": {"InvalidPlan", map[string]string{
		"deploy/more.yaml": "apiVersion: tranche.dev/v1alpha1\nkind: BatchAnalysis\nmetadata: {name: more}\nspec: {metrics: []}\n",
	}},
}

// apiPlanWith is the plan of api with other first steps.
func apiPlanWith(steps string) map[string]string {
	const file = "deploy/api-plan.yaml"
	return map[string]string{file: strings.Replace(apiOf("v1", false)[file], "- replicas: 1\n", steps, 1)}
}

// newInvalid has web at the first gate of v2, and a tip of which a part is invalid. It returns
// what takes the part back.
func newInvalid(t *testing.T, name string) (s *env, applied string, valid map[string]string) {
	s = newRefused(t)
	applied = s.gs().Status.AppliedCommit
	tip := s.push(and(map[string]string{"deploy/settings.yaml": configMap("settings", "two")}, flat(invalid[name].files)...))
	s.refused(tip, invalid[name].reason)
	valid = apiOf("v1", false)
	if _, ok := invalid[name].files["deploy/more.yaml"]; ok {
		valid["deploy/more.yaml"] = ""
	}
	return s, applied, valid
}

func flat(files map[string]string) (list []string) {
	for name, content := range files {
		list = append(list, name, content)
	}
	return list
}

// An approval counts that comes after something invalid of other objects, and goes on to count
// once that is valid. Nothing else of such a commit is applied.
func TestApprovalBesideWhatIsInvalid(t *testing.T) {
	t.Parallel()
	for name := range invalid {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s, applied, valid := newInvalid(t, name)
			release, sizes := s.release("web"), s.recordSizes("v2")
			sizes.atMost(1)
			approval := approvalOf("web", release.Status.UpdateRevision, release.Spec.Commit, "0")
			tip := s.push(map[string]string{"deploy/approvals/web.yaml": approval})
			s.runs("web", map[string]int32{"v2": 2})
			s.refused(tip, invalid[name].reason)
			s.isAt("web", "ReleaseCompleted", 1)
			s.runs("api", map[string]int32{"v1": 2})
			if now := s.gs().Status.AppliedCommit; now != applied {
				t.Errorf("applied is %s, and was %s", now, applied)
			}
			if v := get(s, "settings", &corev1.ConfigMap{}).Data["value"]; v != "one" {
				t.Errorf("something of the commit is applied: settings are %q", v)
			}
			s.applied(s.push(valid))
			s.says("True")
			s.runs("web", map[string]int32{"v2": 2})
			if h := s.release("web").Status.History; len(h) != 1 || len(h[0].Approvals) != 1 || h[0].Approvals[0].Commit != tip {
				t.Errorf("the history is %+v, and %s brought the approval", h, tip)
			}
		})
	}
}

// An approval that came with something invalid counts also if the controller sees it only once
// that is valid: the plan that it approves was.
func TestApprovalOfAnInvalidCommit(t *testing.T) {
	t.Parallel()
	s := newRefused(t)
	release := s.release("web")
	s.suspend("shop")
	const bad = "a plan whose steps go down"
	approval := approvalOf("web", release.Status.UpdateRevision, release.Spec.Commit, "0")
	s.repo.Commit(and(map[string]string{"deploy/approvals/web.yaml": approval}, flat(invalid[bad].files)...))
	tip := s.push(apiOf("v1", false))
	s.resume("shop")
	s.applied(tip)
	s.runs("web", map[string]int32{"v2": 2})
	s.says("True")
}

// A revert counts in the same way.
func TestRevertBesideWhatIsInvalid(t *testing.T) {
	t.Parallel()
	s, applied, valid := newInvalid(t, "an unknown kind")
	tip := s.push(map[string]string{"deploy/web.yaml": web("v1")})
	s.runs("web", map[string]int32{"v1": 2})
	s.refused(tip, "UnknownKind")
	if now := s.gs().Status.AppliedCommit; now != applied {
		t.Errorf("applied is %s, and was %s", now, applied)
	}
	s.applied(s.push(valid))
	s.runs("web", map[string]int32{"v1": 2})
	if d := s.deployment("web"); d.Spec.Paused || !strings.HasSuffix(d.Spec.Template.Spec.Containers[0].Image, ":v1") {
		t.Errorf("web is %+v", d.Spec)
	}
}

// Nothing counts for a release whose own files are invalid, nor an image or steps of such a
// commit. An approval with other steps does not count once the commit is valid, either.
func TestGatesBesideWhatIsInvalid(t *testing.T) {
	t.Parallel()
	s, applied, _ := newInvalid(t, "a reserved label")
	release := s.release("web")
	const file = "deploy/approvals/web.yaml"
	good := approvalOf("web", release.Status.UpdateRevision, release.Spec.Commit, "0")
	v2, v3 := s.recordSizes("v2"), s.recordSizes("v3")
	more := strings.Replace(webPlan, "    - replicas: 100%", "    - replicas: 50%\n    - replicas: 100%", 1)
	for name, files := range map[string]map[string]string{
		"another image":            {"deploy/web.yaml": web("v3")},
		"other steps":              {"deploy/plan.yaml": more},
		"its plan does not decode": {"deploy/plan.yaml": strings.Replace(webPlan, "replicas: 1\n", "replicas: [1]\n", 1)},
		"its plan is twice":        {"deploy/more.yaml": webPlan},
		"web is twice":             {"deploy/more.yaml": web("v2")},
		"web is paused":            {"deploy/web.yaml": web("v2", "spec:\n  replicas", "spec:\n  paused: true\n  replicas")},
		"a second plan":            {"deploy/more.yaml": strings.Replace(webPlan, "{name: web}\nspec", "{name: web2}\nspec", 1)},
	} {
		s.repo.Git("checkout", "-q", "-B", "main", applied)
		s.repo.Commit(invalid["a reserved label"].files)
		if strings.Contains(name, "twice") || strings.Contains(name, "second") {
			s.repo.Commit(map[string]string{"deploy/more.yaml": ""})
		}
		tip := s.repo.Commit(and(map[string]string{file: good}, flat(files)...))
		s.repo.Push("--force")
		s.lookNow()
		clustertest.Wait(t, "the refusal of "+name, func() error {
			gs := s.gs()
			now := said(gs)
			if gs.Status.ObservedCommit == tip && (strings.Contains(now, "Ready=False Invalid") || strings.Contains(now, "Ready=False Duplicate")) {
				return nil
			}
			return errors.New(now)
		})
		for range 2 {
			s.lookNow()
		}
		spec := s.release("web").Spec
		if spec.Commit != release.Spec.Commit || len(spec.Strategy.Steps) != 2 || spec.Approval != nil {
			t.Errorf("%s: the release is %+v", name, spec)
		}
	}
	v2.atMost(1)
	v3.atMost(0)
	s.runs("web", map[string]int32{"v1": 1, "v2": 1})
}

// A committer who is no signer wins nothing by a commit of which a part is invalid. Neither his
// own approval counts, nor other steps. The approval of a signer does.
func TestSignedBesideWhatIsInvalid(t *testing.T) {
	t.Parallel()
	a := newSigned(t)
	a.applied(a.brings("v2"))
	a.isAt("web", "WaitingForApproval", 0)
	release := a.release("web")
	approval := map[string]string{"deploy/approvals/web.yaml": a.approvalOf(release.Status.UpdateRevision, release.Spec.Commit, "0")}
	a.refused(a.by(a.k1, invalid["a reserved label"].files), "InvalidManifest")
	for _, attack := range []map[string]string{
		approval,
		{"deploy/release.yaml": planOf("web", "100%")},
		{"deploy/release.yaml": planOf("web", "50%", "100%")},
		{"deploy/release.yaml": "", "deploy/other.yaml": planOf("other", "100%")},
		{"deploy/release.yaml": planOf("web", signedPlan...), "deploy/other.yaml": ""},
	} {
		a.refused(a.by(a.k1, attack), "InvalidManifest")
		for range 2 {
			a.lookNow()
		}
		a.atMost(1)
	}
	const file = "deploy/approvals/web.yaml"
	a.refused(a.by(a.k2, map[string]string{file: approval[file] + "# agreed\n"}), "InvalidManifest")
	a.isAt("web", "WaitingForApproval", 1)
	a.env.runs("web", map[string]int32{"v1": 1, "v2": 2})
	a.atMost(2)
	a.applied(a.by(a.k1, map[string]string{"deploy/more.yaml": ""}))
	for range 2 {
		a.lookNow()
	}
	a.isAt("web", "WaitingForApproval", 1)
	a.atMost(2)
}

// A plan that leads to another Deployment waits for its approval. Releases of others do not
// wait with it.
func TestSignedBesideAPlanOfAnother(t *testing.T) {
	t.Parallel()
	a := newSigned(t)
	of := func(name, image string) string { return strings.ReplaceAll(sizedWeb(3, image), "web", name) }
	plan := planOf("web", signedPlan...)
	apiPlan := strings.ReplaceAll(plan, "web", "api")
	a.applied(a.by(a.k1, map[string]string{"deploy/api.yaml": of("api", "v1"), "deploy/api-plan.yaml": apiPlan}))
	a.isAt("api", "ReleaseCompleted", 2)
	a.applied(a.by(a.k1, map[string]string{"deploy/api.yaml": of("api", "v2")}))
	a.isAt("api", "WaitingForApproval", 0)
	a.refused(a.by(a.k1, map[string]string{
		"deploy/plain.yaml":   of("plain", "v1"),
		"deploy/release.yaml": strings.Replace(plan, "workloadRef: {name: web}", "workloadRef: {name: plain}", 1),
	}), "PlanNotApproved")
	release := a.release("api")
	approval := strings.Replace(a.approvalOf(release.Status.UpdateRevision, release.Spec.Commit, "0"), "name: web", "name: api", 1)
	tip := a.by(a.k2, map[string]string{"deploy/approvals/api.yaml": approval})
	a.isAt("api", "WaitingForApproval", 1)
	a.refused(tip, "PlanNotApproved")
	a.env.runs("api", map[string]int32{"v1": 1, "v2": 2})
	tip = a.by(a.k1, map[string]string{"deploy/api.yaml": of("api", "v1")})
	a.env.runs("api", map[string]int32{"v1": 3})
	a.refused(tip, "PlanNotApproved")
	a.env.runs("web", map[string]int32{"v1": 3})
	a.absent("plain", &appsv1.Deployment{})
}
