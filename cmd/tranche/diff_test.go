package main

import (
	"strings"
	"testing"

	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// told is what diff prints, with what is new in each run taken out.
func (s *shop) told(out string) string {
	commit := s.run(s.clone, "git", "rev-parse", "HEAD")
	return strings.NewReplacer(s.ns, "NAMESPACE", commit[:12], "COMMIT", commit[:7], "COMMIT").Replace(out)
}

// What a commit would do is shown before it is pushed: to a person who may
// write, to one who may only read, and as Markdown.
func TestDiff(t *testing.T) {
	s := newShop(t, "web", ".")
	s.waitFor("web", "ReleaseCompleted", 2, map[string]int32{"v1": 10})
	golden(t, "testdata/diff/nothing.txt", s.told(s.says(0, "diff")))

	s.write("settings.yaml", "apiVersion: v1\nkind: ConfigMap\nmetadata: {name: settings}\ndata: {colour: blue}\n")
	s.write("secret.yaml", "apiVersion: v1\nkind: Secret\nmetadata: {name: token}\nstringData: {token: hunter2}\n")
	s.applied(s.push("settings"))

	s.replace("deployment.yaml", "web:v1", "web:v2")
	s.replace("release.yaml", "50%", "60%")
	s.replace("secret.yaml", "hunter2", "hunter3")
	s.replace("service.yaml", "port: 80", "port: 81")
	s.run(s.clone, "git", "rm", "--quiet", "settings.yaml")
	s.write("other.yaml", "apiVersion: v1\nkind: ConfigMap\nmetadata: {name: other}\n")
	s.run(s.clone, "git", "add", "-A")
	s.run(s.clone, "git", "commit", "--quiet", "-m", "web: v2")

	out := s.says(0, "diff")
	if strings.Contains(out, "hunter") || strings.Contains(out, "aHVudGVy") {
		t.Errorf("a Secret is told:\n%s", out)
	}
	golden(t, "testdata/diff/changes.txt", s.told(out))
	golden(t, "testdata/diff/changes.md", s.told(s.says(0, "diff -o markdown --source source")))

	s.must(s.c.Client.Create(t.Context(), &rbacv1.Role{ObjectMeta: metav1.ObjectMeta{Name: "reader", Namespace: s.ns},
		Rules: []rbacv1.PolicyRule{{APIGroups: []string{"*"}, Resources: []string{"*"}, Verbs: []string{"get", "list"}}}}))
	s.must(s.c.Client.Create(t.Context(), &rbacv1.RoleBinding{ObjectMeta: metav1.ObjectMeta{Name: "reader", Namespace: s.ns},
		RoleRef:  rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "Role", Name: "reader"},
		Subjects: []rbacv1.Subject{{Kind: rbacv1.UserKind, APIGroup: rbacv1.GroupName, Name: "reader"}}}))
	golden(t, "testdata/diff/reader.txt", s.told(s.says(0, "diff --as reader")))

	if pods := s.pods("web"); pods["v1"] != 10 || len(pods) != 1 {
		t.Errorf("diff has moved pods: %v", pods)
	}
	s.replace("deployment.yaml", "replicas: 10", "replicas: -1")
	s.run(s.clone, "git", "commit", "--quiet", "-am", "nonsense")
	s.says(1, "diff", "deployment.yaml: Deployment "+s.ns+"/web: spec.replicas", "could not be applied")
	s.says(1, "diff nonsense", "no commit of the clone")
	s.says(1, "diff --source other", `"other" not found`)
	s.says(1, "diff -o json", "must be text or markdown")
}
