package gitsync_test

import (
	"strings"
	"testing"

	"github.com/tranche-dev/tranche/plan/v1alpha1"
)

// Two sources may bring one folder to two namespaces. An approval opens the gates of the
// namespace that it names. Without one it is for each.
func TestApprovalOfAnotherNamespace(t *testing.T) {
	t.Parallel()
	s := newEnv(t, andRollout)
	first := s.push(map[string]string{"deploy/web.yaml": sizedWeb(3, "v1"), "deploy/release.yaml": planOf("web", "1", "100%")})
	s.source(func(gs *v1alpha1.GitSource) { gs.Spec.TargetNamespace = gs.Namespace })
	s.applied(first)
	s.isAt("web", "ReleaseCompleted", 1)
	sizes := s.recordSizes("v2")
	v2 := s.push(map[string]string{"deploy/web.yaml": sizedWeb(3, "v2")})
	s.isAt("web", "WaitingForApproval", 0)
	approval := approvalOf("web", s.release("web").Status.UpdateRevision, v2, "0")
	naming := func(namespace string) map[string]string {
		text := strings.Replace(approval, "{name: web}", "{name: web, namespace: "+namespace+"}", 1)
		return map[string]string{"deploy/approvals/web.yaml": text}
	}
	s.applied(s.push(naming("staging")))
	s.says("False ApprovalIgnored")
	s.lookNow()
	s.isAt("web", "WaitingForApproval", 0)
	sizes.atMost(1)
	s.push(naming(s.ns))
	s.isAt("web", "ReleaseCompleted", 1)
	s.runs("web", map[string]int32{"v2": 3})

	v3 := s.push(map[string]string{"deploy/web.yaml": sizedWeb(3, "v3")})
	s.isAt("web", "WaitingForApproval", 0)
	s.push(map[string]string{"deploy/approvals/web.yaml": approvalOf("web", s.release("web").Status.UpdateRevision, v3, "0")})
	s.isAt("web", "ReleaseCompleted", 1)
	s.runs("web", map[string]int32{"v3": 3})
}
