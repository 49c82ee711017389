package gitsync_test

import (
	"fmt"
	"strings"
	"testing"

	"github.com/tranche-dev/tranche/rollout/clustertest"
)

// A user who may write BatchReleases, and not the GitSource, says otherwise than Git
// does with kubectl. The API server refuses it, so that no gate opens: the sizes of the
// ReplicaSets and the bare repository tell. Pausing is no such thing. The GitSource
// goes on writing, and an approval on the branch opens the gate.
func TestForgedPlan(t *testing.T) {
	t.Parallel()
	s := newRelease(t)
	sizes := s.recordSizes("v2")
	s.kubectl("create", "role", "releases", "--resource=batchreleases", "--verb=get,list,create,patch,update,delete,deletecollection")
	s.kubectl("create", "rolebinding", "releases", "--role=releases", "--user=eve")
	s.kubectl("create", "role", "deployments", "--resource=deployments", "--verb=get,patch")
	s.kubectl("create", "rolebinding", "deployments", "--role=deployments", "--user=eve")
	s.kubectl("create", "role", "sources", "--resource=gitsources", "--resource-name=eves", "--verb=patch")
	s.kubectl("create", "rolebinding", "sources", "--role=sources", "--user=eve")
	clustertest.Wait(t, "eve's rights", func() error {
		for _, right := range []string{"patch batchreleases", "patch deployments", "patch gitsources/eves"} {
			if out, err := s.c.Kubectl(t, append([]string{"auth", "can-i", "-n", s.ns, "--as=eve"}, strings.Fields(right)...)...); err != nil {
				return fmt.Errorf("%s: %s", right, out)
			}
		}
		return nil
	})
	if out, err := s.c.KubectlWith(t, strings.Replace(planOf("own", "100%"), "workloadRef: {name: web}", "workloadRef: {name: api}", 1), "-n", s.ns, "--as=eve", "create", "-f", "-"); err != nil {
		t.Errorf("eve's own plan: %v: %s", err, out)
	}
	br, refusal := s.release("web"), "eve may not patch GitSource "+s.ns+"/shop"
	approval := fmt.Sprintf(`{"revision":%q,"commit":%q,"step":1}`, br.Status.UpdateRevision, br.Spec.Commit)
	patch := func(body string) []string { return []string{"patch", "batchrelease/web", "--type=merge", "-p", body} }
	for _, tc := range []struct {
		why, refusal string
		args         []string
	}{
		{"it would open the gate", refusal, patch(`{"spec":{"approval":` + approval + `}}`)},
		{"it would open the gate", refusal, []string{"apply", "--server-side", "--force-conflicts", "-f", "-"}},
		{"there would be no gate", refusal, patch(`{"spec":{"strategy":{"steps":[{"replicas":"100%"}]}}}`)},
		{"it would release something else", refusal, patch(`{"spec":{"template":{"spec":{"hostNetwork":true}}}}`)},
		{"an old approval would count", refusal, patch(`{"spec":{"commit":"0123456"}}`)},
		{"approvals of former releases would count", refusal, patch(`{"spec":{"approvalsSince":null}}`)},
		{"unsigned approvals would count", refusal, patch(`{"spec":{"requireSignedApprovals":true}}`)},
		{"it would be written with other rights", refusal, patch(`{"spec":{"serviceAccountName":"another"}}`)},
		{"the garbage collector would delete it", refusal, patch(`{"metadata":{"ownerReferences":[{"apiVersion":"v1","kind":"ConfigMap","name":"nope","uid":"11111111-1111-1111-1111-111111111111"}]}}`)},
		{"the policy would not know the source", refusal, patch(`{"metadata":{"labels":{"tranche.dev/source":null}}}`)},
		{"the policy would ask about another source", refusal, patch(`{"metadata":{"labels":{"tranche.dev/source-namespace":"eve"}}}`)},
		{"its steps would govern the first plan of Git", refusal, []string{"create", "-f", "-"}},
		{"it would be taken for what Git said", refusal, []string{"label", "batchrelease/own", "tranche.dev/source=shop"}},
		{"it would govern before Git's plan", "may not patch GitSources in all namespaces", []string{"label", "batchrelease/own", "tranche.dev/source=eves"}},
		{"all pods would run it", "may neither make or delete it", []string{"delete", "batchrelease/web"}},
		{"all pods would run it", "may neither make or delete it", []string{"delete", "--raw", "/apis/tranche.dev/v1alpha1/namespaces/" + s.ns + "/batchreleases"}},
		{"it stops the release", "", patch(`{"spec":{"paused":true}}`)},
		{"it lets the release go on", "", patch(`{"spec":{"paused":false}}`)},
		{"it says nothing of the release", "", []string{"annotate", "batchrelease/web", "note=hello"}},
	} {
		manifest := `{"apiVersion":"tranche.dev/v1alpha1","kind":"BatchRelease","metadata":{"name":"web"},"spec":{"approval":` + approval + `}}`
		if tc.args[0] == "create" {
			manifest = strings.Replace(planOf("api", "100%"), "{name: api}", "{name: api, labels: {tranche.dev/source: shop, tranche.dev/source-namespace: "+s.ns+"}}", 1)
		}
		out, err := s.c.KubectlWith(t, manifest, append([]string{"-n", s.ns, "--as=eve"}, tc.args...)...)
		if (err == nil) != (tc.refusal == "") || !strings.Contains(out, tc.refusal) {
			t.Errorf("kubectl %s: %s: want %q, got %v: %s", strings.Join(tc.args, " "), tc.why, tc.refusal, err, out)
		}
	}
	annotatesNothingOfGit(s, "web", refusal)
	s.lookNow()
	s.isAt("web", "WaitingForApproval", 0)
	sizes.atMost(1)
	if subjects := s.subjects("main"); len(subjects) != 2 {
		t.Errorf("the branch has %q", subjects)
	}
	s.push(map[string]string{"deploy/approvals/web.yaml": approvalOf("web", br.Status.UpdateRevision, br.Spec.Commit, "0")})
	s.lookNow()
	s.isAt("web", "ReleaseCompleted", 1)
}

// annotatesNothingOfGit fails if eve may write an annotation that says what Git says. Her chats
// would name a person who has rejected a release, another author or another page. The Deployment
// would stay held without a plan.
func annotatesNothingOfGit(s *env, name, refusal string) {
	s.Helper()
	for _, key := range []string{"rejected", "commit-author", "commit-url", "returns"} {
		for _, value := range []string{key + "=0123456", key + "-"} {
			out, err := s.c.Kubectl(s.T, "-n", s.ns, "--as=eve", "annotate", "--overwrite", "batchrelease/"+name, "tranche.dev/"+value)
			has := s.release(name).Annotations["tranche.dev/"+key] != ""
			if (has || !strings.HasSuffix(value, "-")) && (err == nil || !strings.Contains(out, refusal)) {
				s.Errorf("kubectl annotate %s: want %q, got %v: %s", value, refusal, err, out)
			}
		}
	}
}
