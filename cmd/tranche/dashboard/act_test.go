package dashboard_test

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/tranche-dev/tranche/cmd/tranche/cli"
	"github.com/tranche-dev/tranche/cmd/tranche/clitest"
	"github.com/tranche-dev/tranche/cmd/tranche/dashboard"
	"github.com/tranche-dev/tranche/cmd/tranche/dashboard/access"
	"github.com/tranche-dev/tranche/plan/v1alpha1"
)

// pausingIn returns a clone, and the action of the page that pauses a release in it.
func pausingIn(t *testing.T) (clitest.Clone, func(digest string) (int, map[string]any)) {
	t.Helper()
	return actingIn(t, "pause", func(*v1alpha1.GitSource, *v1alpha1.BatchRelease) {})
}

// actingIn returns a clone, and an action of the page on a release in it: shown without a
// digest, carried out with one.
func actingIn(
	t *testing.T, verb string, edit func(*v1alpha1.GitSource, *v1alpha1.BatchRelease),
) (clitest.Clone, func(digest string) (int, map[string]any)) {
	t.Helper()
	for k, v := range map[string]string{
		"GIT_CONFIG_GLOBAL": os.DevNull, "GIT_CONFIG_NOSYSTEM": "1", "GIT_AUTHOR_NAME": "Ada", "GIT_AUTHOR_EMAIL": "ada@example.org",
		"GIT_COMMITTER_NAME": "Ada", "GIT_COMMITTER_EMAIL": "ada@example.org",
	} {
		t.Setenv(k, v)
	}
	dir := t.TempDir()
	own, bare := clitest.Clone{TB: t, Dir: filepath.Join(dir, "clone")}, filepath.Join(dir, "bare.git")
	clitest.Run(t, dir, "git", "init", "--quiet", "--initial-branch=main", own.Dir)
	if err := os.CopyFS(own.Dir, os.DirFS("../../../examples/web")); err != nil {
		t.Fatal(err)
	}
	own.Run("git", "add", ".")
	own.Run("git", "commit", "--quiet", "-m", "first")
	own.Run("git", "clone", "--quiet", "--bare", ".", bare)
	own.Run("git", "remote", "add", "origin", "file://"+bare)

	c := newCluster(t)
	gs := &v1alpha1.GitSource{}
	if err := c.Get(t.Context(), client.ObjectKey{Namespace: "shop", Name: "shop"}, gs); err != nil {
		t.Fatal(err)
	}
	gs.Spec.URL, gs.Spec.Path = "file://"+bare, "."
	br := &v1alpha1.BatchRelease{}
	if err := c.Get(t.Context(), client.ObjectKey{Namespace: "shop", Name: "web"}, br); err != nil {
		t.Fatal(err)
	}
	edit(gs, br)
	if err := errors.Join(c.Update(t.Context(), gs), c.Update(t.Context(), br)); err != nil {
		t.Fatal(err)
	}
	local := access.NewLocal(8642, time.Now)
	h := (&dashboard.Server{
		Feed: feedOf(t, c), Auth: local, Rights: access.All{}, Hosts: []string{host}, Now: time.Now,
		Clone: &dashboard.Clone{Dir: own.Dir, Connection: &cli.Connection{Client: c}},
	}).Handler()
	return own, func(digest string) (int, map[string]any) {
		body := fmt.Sprintf(`{"verb":%q,"namespace":"shop","name":"web","step":1,"digest":%q}`, verb, digest)
		res := patient(h, "POST", "/api/act", cookie(asked(h, "GET", "/?token="+local.Token)), func(r *http.Request) {
			r.Body = io.NopCloser(strings.NewReader(body))
		})
		answer := map[string]any{}
		if err := json.NewDecoder(res.Body).Decode(&answer); err != nil {
			t.Fatal(err)
		}
		return res.StatusCode, answer
	}
}

// An approval that the page does not offer to the author of the change is refused without the page, too.
func TestAct_OwnChange(t *testing.T) {
	own, act := actingIn(t, "approve", func(gs *v1alpha1.GitSource, br *v1alpha1.BatchRelease) {
		gs.Spec.Approvals = &v1alpha1.ApprovalPolicy{DistinctAuthor: true}
		br.Annotations = map[string]string{v1alpha1.AnnotationCommitAuthor: "Ada <ada@example.org>"}
	})
	before := own.Run("git", "ls-remote", "origin", "main")
	for _, digest := range []string{"", strings.Repeat("0", 64)} {
		code, answer := act(digest)
		if said, _ := answer["error"].(string); code != http.StatusConflict || !strings.Contains(said, "its author may not approve it") {
			t.Errorf("%d, %v", code, answer)
		}
	}
	if after := own.Run("git", "ls-remote", "origin", "main"); after != before {
		t.Errorf("it was pushed: %s", after)
	}
}

// A change that is shown is committed once. The second click says that the branch has it, and with
// which commit another person was first.
func TestAct_ChangeIsThereAlready(t *testing.T) {
	own, act := pausingIn(t)
	_, proposed := act("")
	digest, _ := proposed["digest"].(string)
	if code, answer := act(digest); code != http.StatusOK || digest == "" {
		t.Fatalf("%d, %v of %v", code, answer, proposed)
	}
	pushed := own.Run("git", "ls-remote", "origin", "main")
	want := "The branch says so already"
	if code, answer := act(digest); code != http.StatusConflict || !strings.Contains(fmt.Sprint(answer["error"]), want) {
		t.Errorf("again: %d, %v", code, answer)
	}
	own.Run("git", "reset", "--quiet", "--hard", "HEAD~") // as the clone of another person
	want = "spec.paused of shop/web is true already, by Ada <ada@example.org> in commit " + pushed[:7]
	if code, answer := act(digest); code != http.StatusConflict || !strings.Contains(fmt.Sprint(answer["error"]), want) {
		t.Errorf("of another person: %d, %v", code, answer)
	}
	if now := own.Run("git", "ls-remote", "origin", "main"); now != pushed {
		t.Errorf("the server has %s after %s", now, pushed)
	}
}

// A commit of the clone that was not shown is not pushed with the change, and the author is the
// one that was shown.
func TestAct_OtherThanShown(t *testing.T) {
	own, act := pausingIn(t)
	_, proposed := act("")
	digest, _ := proposed["digest"].(string)
	before := own.Run("git", "ls-remote", "origin", "main")
	refused := func(reason string) {
		t.Helper()
		if code, answer := act(digest); code != http.StatusConflict || !strings.Contains(fmt.Sprint(answer["error"]), "another one by now") {
			t.Errorf("%s: %d, %v", reason, code, answer)
		}
	}
	own.Run("git", "commit", "--quiet", "--allow-empty", "-m", "not yet")
	refused("with another commit")
	own.Run("git", "reset", "--quiet", "--hard", "HEAD~")
	t.Setenv("GIT_AUTHOR_NAME", "Bea")
	refused("as another person")
	t.Setenv("GIT_AUTHOR_NAME", "Ada")
	if now := own.Run("git", "ls-remote", "origin", "main"); now != before {
		t.Errorf("the server has %s after %s", now, before)
	}
	if code, answer := act(digest); code != http.StatusOK || digest == "" {
		t.Errorf("as shown: %d, %v", code, answer)
	}
}
