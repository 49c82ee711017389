package main

import (
	"encoding/base64"
	"fmt"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	authorizationv1 "k8s.io/api/authorization/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/tranche-dev/tranche/cmd/tranche/cli"
	"github.com/tranche-dev/tranche/cmd/tranche/clitest"
	"github.com/tranche-dev/tranche/cmd/tranche/diff"
	"github.com/tranche-dev/tranche/plan/v1alpha1"
	"github.com/tranche-dev/tranche/rollout/clustertest"
)

// diff says what commits would do. Each is compared with a cluster that has another one,
// by a user who may write there and by one who may only read.
func TestDiff(t *testing.T) {
	s := controlledEnv(t, "web")
	s.write("secret.yaml", secretOf("before", "the same"))
	s.write("settings.yaml", configMap("settings", "colour: red")+"  gone: soon\n")
	s.write("old.yaml", configMap("old", "colour: none"))
	s.run(s.clone, "cp", "deployment.yaml", "plain.yaml")
	s.replace("plain.yaml", "name: web\n  labels", "name: plain\n  labels")
	s.replace("plain.yaml", "replicas: 10", "replicas: 1")
	s.replace("plain.yaml", "app: web", "app: plain")
	base := s.push("first state")
	s.follow("source", ".")
	s.waitFor("web", "ReleaseCompleted", 2, map[string]int32{"v1": 10})
	reader := s.reader()

	all := func() {
		s.replace("deployment.yaml", "web:v1", "web:v2")
		s.replace("release.yaml", "20%", "3")
		s.replace("settings.yaml", "red", "`blue`")
		s.replace("settings.yaml", "  gone: soon\n", "")
		s.replace("secret.yaml", encoded("before"), encoded("after"))
		s.run(s.clone, "git", "rm", "--quiet", "old.yaml")
		s.write("new.yaml", configMap("new", "colour: green"))
	}
	s.diff(base, "all", all, 0, "")
	s.diff(base, "all-read", all, 0, "--as "+reader)
	s.diff(base, "all-markdown", all, cli.ExitChanges, "-o markdown --exit-code")
	s.diff(base, "nothing", func() { s.write("README.md", "about") }, 0, "--exit-code")
	s.diff(base, "nothing-read", func() { s.write("README.md", "about") }, 0, "--exit-code --as "+reader)
	s.diff(base, "no-plan", func() { s.run(s.clone, "git", "rm", "--quiet", "release.yaml") }, 0, "")
	leftAlone(s, base)
	plan := func() {
		s.run(s.clone, "cp", "release.yaml", "plan.yaml")
		s.replace("plan.yaml", "name: web", "name: plain")
	}
	s.diff(base, "plan", plan, 0, "--as "+reader)
	release := func() { plan(); s.replace("plain.yaml", "web:v1", "web:v2") }
	s.diff(base, "plan-release", release, 0, "")
	s.diff(base, "plan-release-read", release, 0, "--as "+reader)
	s.diff(base, "more", func() {
		for _, from := range []string{"deployment.yaml", "release.yaml"} {
			s.run(s.clone, "cp", from, "api-"+from)
			s.replace("api-"+from, "name: web", "name: api")
		}
		s.replace("deployment.yaml", "replicas: 10", "replicas: 4")
	}, 0, "")
	s.diff(base, "refused", func() { s.replace("service.yaml", "port: 80", "port: 80000") }, 1, "")
	s.diff(base, "empty", func() { s.run(s.clone, "git", "rm", "--quiet", "*.yaml") }, 1, "-o markdown")

	s.replace("deployment.yaml", "web:v1", "web:v2")
	v2 := s.push("web: v2")
	s.waitFor("web", "WaitingForApproval", 0, map[string]int32{"v1": 8, "v2": 2})
	s.diff(v2, "supersedes", func() { s.replace("deployment.yaml", "web:v2", "web:v3") }, 0, "--as "+reader)
	s.diff(v2, "back", func() { s.replace("deployment.yaml", "web:v2", "web:v1") }, 0, "")
	s.diff(v2, "document", func() {
		s.replace("deployment.yaml", "web:v2", "web:v3")
		s.write("more.yaml", configMap("more", "colour: red"))
	}, cli.ExitChanges, "-o yaml --exit-code")
	s.diff(v2, "approval", func() {
		br := s.release("web")
		s.write("approvals/web.yaml", cli.ApprovalFile(br, 1))
	}, cli.ExitChanges, "--exit-code")
	s.diff(base, "behind", func() { s.write("README.md", "about") }, 0, "--as "+reader)
}

// leftAlone compares v2 with plans that are left alone, by Git and by the cluster: no release begins.
func leftAlone(s *env, base string) {
	v2 := func() { s.replace("deployment.yaml", "web:v1", "web:v2") }
	s.diff(base, "left-alone", func() {
		v2()
		s.replace("release.yaml", "metadata:\n", "metadata:\n  annotations: {tranche.dev/reconcile: disabled}\n")
	}, 0, "")
	s.kubectl("annotate", "-n", s.ns, "batchrelease/web", "tranche.dev/reconcile=disabled")
	s.diff(base, "left-alone", v2, 0, "")
	s.kubectl("annotate", "-n", s.ns, "batchrelease/web", "tranche.dev/reconcile-")
}

// Which GitSources a commit is compared for.
func TestDiffSource(t *testing.T) {
	t.Parallel()
	s := envOf(t, "web")
	s.says(1, "diff", "there is no GitSource in namespace "+s.ns)
	for name, url := range map[string]string{"other": "https://git.example.org/shop", "one": "file://" + s.bare, "two": "file://" + s.bare} {
		s.must(s.c.Client.Create(t.Context(), &v1alpha1.GitSource{
			ObjectMeta: metav1.ObjectMeta{Name: name, Namespace: s.ns, Labels: map[string]string{labelOwn: s.ns}}, // no controller applies it
			Spec:       v1alpha1.GitSourceSpec{URL: url, Path: "."},
		}))
	}
	s.says(1, "diff nonsense", "nonsense is no commit of the clone")
	s.says(1, "diff --source none", "reading GitSource "+s.ns+"/none", "not found")
	s.says(1, "diff -o html", "must be one of table, markdown, json, yaml")
	out := s.says(0, "diff", "installed with all its 10 pods at once", "Service "+s.ns+"/web")
	if n := strings.Count(out, "GitSource "+s.ns); n != 2 {
		t.Errorf("%d sources are shown:\n%s", n, out)
	}
	s.says(0, "diff --source "+s.ns+"/other", "GitSource "+s.ns+"/other") // the clone's by another URL
}

// A BatchRelease that is missing is made again, and what the Deployment keeps of its
// failure says that nothing is released. A new commit of the same template is a release.
func TestDiff_KeptFailure(t *testing.T) {
	s := newEnv(t, "web", ".")
	s.waitFor("web", "ReleaseCompleted", 2, map[string]int32{"v1": 10})
	s.replace("release.yaml", "  strategy:\n", "  strategy:\n    progressDeadlineSeconds: 3\n    onFailure: Rollback\n")
	s.replace("deployment.yaml", "web:v1", "web:broken")
	failed := s.push("web: a broken one")
	s.waitFor("web", "RolledBack", 2, map[string]int32{"v1": 10})
	gs := s.source()
	patch := client.MergeFrom(gs.DeepCopy())
	gs.Spec.Suspend = true
	s.must(s.c.Client.Patch(t.Context(), gs, patch))
	clustertest.Wait(t, "the source to rest", func() error {
		if ready := meta.FindStatusCondition(s.source().Status.Conditions, "InSync"); ready == nil || ready.Reason != "Suspended" {
			return fmt.Errorf("%+v", ready)
		}
		return nil
	})
	s.must(s.c.Client.Delete(t.Context(), s.release("web")))
	clustertest.Wait(t, "the BatchRelease to be gone", func() error {
		if br := s.release("web"); br.Name != "" {
			return fmt.Errorf("finalizers %v", br.Finalizers)
		}
		return nil
	})
	s.write("README.md", "about")
	s.run(s.clone, "git", "add", ".")
	s.run(s.clone, "git", "commit", "--quiet", "-m", "about")
	var d diff.Document
	s.document(&d, "diff")
	if r := d.Sources[0].Releases; len(r) != 1 || r[0].Outlook != "Blocked" || !strings.Contains(r[0].Message, "(RolledBack)") ||
		!strings.Contains(r[0].Message, "is not tried again") {
		t.Errorf("the outlook is %+v", r)
	}
	if out := s.says(0, "diff", "Nothing begins (RolledBack)", "BatchRelease "+s.ns+"/web"); strings.Contains(out, "A new release") {
		t.Errorf("commit %s failed, and diff expects its release:\n%s", failed[:7], out)
	}
	s.replace("deployment.yaml", "web:broken", "web:v1")
	s.run(s.clone, "git", "commit", "--quiet", "-a", "-m", "web: v1")
	s.replace("deployment.yaml", "web:v1", "web:broken")
	s.run(s.clone, "git", "commit", "--quiet", "-a", "-m", "web: broken again")
	s.says(0, "diff", "A new release, as BatchRelease web plans it.")
}

// An object that a commit moves to the path of another GitSource is not shown as deleted.
func TestDiff_MovedObject(t *testing.T) {
	s := controlledEnv(t, "web")
	s.run(s.clone, "mkdir", "one", "two")
	s.write("one/stays.yaml", configMap("stays", "colour: red"))
	s.write("one/moves.yaml", configMap("moves", "colour: red"))
	s.write("one/goes.yaml", configMap("goes", "colour: red"))
	s.write("two/other.yaml", configMap("other", "colour: red"))
	base := s.push("two folders")
	followBoth(s, base)
	effects := func() map[string]string {
		s.run(s.clone, "git", "add", ".")
		s.run(s.clone, "git", "commit", "--quiet", "-m", "a change")
		var d diff.Document
		s.document(&d, "diff", "--source", "one")
		found := map[string]string{}
		for _, o := range d.Sources[0].Objects {
			found[o.Name] = o.Effect + " " + o.Because
		}
		return found
	}
	s.run(s.clone, "git", "mv", "one/moves.yaml", "two/moves.yaml")
	s.run(s.clone, "git", "rm", "--quiet", "one/goes.yaml")
	got := effects()
	if want := "handed over GitSource " + s.ns + "/two applies it then, where its account may"; got["moves"] != want {
		t.Errorf("what moves is %q, want %q", got["moves"], want)
	}
	if got["goes"] != "pruned " || got["stays"] != "unchanged " {
		t.Errorf("the others are %v", got)
	}
	s.says(cli.ExitChanges, "diff --source one --exit-code", "Handed over:\n  ConfigMap "+s.ns+"/moves", "Pruned:\n  ConfigMap "+s.ns+"/goes")
	s.write("two/broken.yaml", "{")
	if got := effects(); got["moves"] != "kept GitSource "+s.ns+"/two, which may have it then and does not render" {
		t.Errorf("with a source that does not render, what moves is %q", got["moves"])
	}
}

// followBoth has GitSources apply the folders one and two.
func followBoth(s *env, base string) {
	s.Helper()
	for _, name := range []string{"one", "two"} {
		s.follow(name, name)
		clustertest.Wait(s, "GitSource "+name, func() error {
			var gs v1alpha1.GitSource
			if err := s.c.Client.Get(s.Context(), client.ObjectKey{Namespace: s.ns, Name: name}, &gs); err != nil {
				return err
			}
			if gs.Status.AppliedCommit != base {
				return fmt.Errorf("it has applied %q", gs.Status.AppliedCommit)
			}
			return nil
		})
	}
}

// A plan that a commit moves alone is not handed over, and the commit is refused as the controller refuses it.
func TestDiff_MovedPlan(t *testing.T) {
	s := controlledEnv(t, "web")
	s.run(s.clone, "mkdir", "one", "two")
	s.run(s.clone, "git", "mv", "deployment.yaml", "release.yaml", "one")
	s.write("one/stays.yaml", configMap("stays", "colour: red"))
	s.write("two/other.yaml", configMap("other", "colour: red"))
	followBoth(s, s.push("two folders"))
	s.run(s.clone, "git", "mv", "one/release.yaml", "two/release.yaml")
	s.run(s.clone, "git", "commit", "--quiet", "-m", "the plan alone")
	s.says(1, "diff --source one", "Deployment "+s.ns+"/web would stay without a plan; GitSource "+s.ns+"/two, which may have it then")
	// The controller may read remote bases, and only it knows what the other source has.
	s.write("two/kustomization.yaml", "resources: [other.yaml, \"https://git.example.org/base?ref=v1\"]\n")
	s.run(s.clone, "git", "add", ".")
	s.run(s.clone, "git", "commit", "--quiet", "-m", "a remote base")
	s.says(0, "diff --source one", "No plan governs it any more")
}

// masked is what a command prints, with what is new in each run taken out.
func (s *env) masked(out string) string {
	commit := s.run(s.clone, "git", "rev-parse", "HEAD")
	return strings.NewReplacer(s.ns, "NAMESPACE", commit[:12], "COMMIT", commit[:7], "COMMIT").Replace(out)
}

func encoded(v string) string { return base64.StdEncoding.EncodeToString([]byte(v)) }

func secretOf(password, user string) string {
	return fmt.Sprintf("apiVersion: v1\nkind: Secret\nmetadata: {name: login}\ndata: {password: %s}\nstringData: {user: %s}\n",
		encoded(password), user)
}

func configMap(name, text string) string {
	return fmt.Sprintf("apiVersion: v1\nkind: ConfigMap\nmetadata: {name: %s}\ndata:\n  settings: |\n    %s\n", name, text)
}

// reader is a user who may read all but Secrets, as with role view.
func (s *env) reader() string {
	s.Helper()
	user := "reader-" + s.ns
	s.must(s.c.Client.Create(s.Context(), &rbacv1.ClusterRoleBinding{
		ObjectMeta: metav1.ObjectMeta{Name: user},
		RoleRef:    rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "ClusterRole", Name: "view"},
		Subjects:   []rbacv1.Subject{{Kind: rbacv1.UserKind, APIGroup: rbacv1.GroupName, Name: user}},
	}))
	allows(s, user, authorizationv1.ResourceAttributes{Verb: "list", Group: "apps", Resource: "deployments"})
	return user
}

// what differs from one run to the next.
var (
	commits = regexp.MustCompile(`\b[0-9a-f]{40}\b`)
	hashes  = regexp.MustCompile(`\b[0-9a-f]{7}\b`)
	spaces  = regexp.MustCompile(`test-\d+`)
)

// diff commits a change on top of a commit, and compares what `tranche diff` prints
// with a file.
func (s *env) diff(base, name string, change func(), code int, flags string) {
	s.Helper()
	s.run(s.clone, "git", "checkout", "--quiet", "--detach", base)
	change()
	s.run(s.clone, "git", "add", ".")
	s.run(s.clone, "git", "commit", "--quiet", "-m", name)
	out := s.says(code, "diff "+flags)
	s.run(s.clone, "git", "checkout", "--quiet", "main")
	for _, secret := range []string{"before", "after", "the same"} {
		if strings.Contains(out, encoded(secret)) || strings.Contains(out, secret+"\n") {
			s.Errorf("%s: the Secret's data is shown:\n%s", name, out)
		}
	}
	out = strings.ReplaceAll(out, s.bare, "/bare.git")
	out = commits.ReplaceAllString(out, "0000000000000000000000000000000000000000")
	out = hashes.ReplaceAllString(spaces.ReplaceAllString(out, "shop"), "0000000")
	clitest.Golden(s, filepath.Join("testdata", "diff", name+".txt"), out)
}
