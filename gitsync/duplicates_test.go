package gitsync_test

import (
	"strings"
	"testing"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
)

// twice is what the API server refuses in an apply only.
var twice = []string{
	"        - {name: COLOUR, value: blue}\n",
	"        - {name: COLOUR, value: blue}\n        - {name: COLOUR, value: red}\n",
}

// A commit with two variables of one name is refused, though rollout could write it. It does
// not stop what the commit has for another Deployment, and the next commit is released.
func TestDuplicates_OfACommit(t *testing.T) {
	t.Parallel()
	s := newRefused(t)
	applied, release := s.gs().Status.AppliedCommit, s.release("web")
	bad := apiOf("v2", false)
	bad["deploy/api.yaml"] = strings.Replace(bad["deploy/api.yaml"], twice[0], twice[1], 1)
	tip := s.push(and(bad, "deploy/settings.yaml", configMap("settings", "two")))
	message := s.refused(tip, "InvalidManifest")
	if !strings.Contains(message, `deploy/api.yaml: Deployment `+s.ns+
		`/api: spec.template.spec.containers[name="api"].env: more than one entry has the key [name="COLOUR"]; keep one of them`) {
		t.Errorf("the message is %q", message)
	}
	approval := approvalOf("web", release.Status.UpdateRevision, release.Spec.Commit, "0")
	s.push(map[string]string{"deploy/approvals/web.yaml": approval})
	s.runs("web", map[string]int32{"v2": 2})
	if now := s.gs().Status.AppliedCommit; now != applied {
		t.Errorf("applied is %s, and was %s", now, applied)
	}
	if v := get(s, "settings", &corev1.ConfigMap{}).Data["value"]; v != "one" {
		t.Errorf("something of the commit is applied: settings are %q", v)
	}
	s.runs("api", map[string]int32{"v1": 2})
	s.applied(s.push(apiOf("v2", false)))
	s.runs("api", map[string]int32{"v1": 1, "v2": 1})
}

// A Deployment may have them from another write. Its source takes it over, releases and rolls back.
func TestDuplicates_OfTheDeployment(t *testing.T) {
	t.Parallel()
	for name, fromGit := range map[string]bool{"made by hand": false, "from the branch": true} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s := newEnv(t, andRollout)
			if fromGit {
				s.applied2(s.push(map[string]string{"deploy/web.yaml": web("v1")}))
				s.kubectl("patch", "deployment/web", "--type=json",
					`--patch=[{"op": "add", "path": "/spec/template/spec/containers/0/env/-", "value": {"name": "COLOUR", "value": "red"}}]`)
			} else {
				s.with(web("v1", twice...), "create", "-f", "-")
			}
			s.kubectl("rollout", "status", "deployment/web")
			if n := len(get(s, "web", &appsv1.Deployment{}).Spec.Template.Spec.Containers[0].Env); n != 2 {
				t.Fatalf("the Deployment has %d variables", n)
			}
			tip := s.push(map[string]string{"deploy/web.yaml": web("v2"), "deploy/plan.yaml": webPlan})
			if !fromGit {
				s.source()
			}
			s.applied(tip)
			s.runs("web", map[string]int32{"v1": 1, "v2": 1})
			s.applied(s.push(map[string]string{"deploy/web.yaml": web("v3")}))
			s.runs("web", map[string]int32{"v1": 1, "v3": 1})
			release := s.release("web")
			approval := approvalOf("web", release.Status.UpdateRevision, release.Spec.Commit, "0")
			s.push(map[string]string{"deploy/approvals/web.yaml": approval})
			s.runs("web", map[string]int32{"v3": 2})
			if env := get(s, "web", &appsv1.Deployment{}).Spec.Template.Spec.Containers[0].Env; len(env) != 1 || env[0].Value != "blue" {
				t.Errorf("the Deployment has %v", env)
			}
			s.applied(s.push(map[string]string{"deploy/web.yaml": web("v4")}))
			s.runs("web", map[string]int32{"v3": 1, "v4": 1})
			s.repo.Git("revert", "--no-edit", "HEAD")
			s.repo.Push()
			s.lookNow()
			s.runs("web", map[string]int32{"v3": 2})
		})
	}
}
