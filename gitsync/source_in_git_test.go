package gitsync_test

import (
	"strings"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// shopAs is the GitSource shop as a manifest.
func shopAs(s *env, name string) string {
	return "apiVersion: tranche.dev/v1alpha1\nkind: GitSource\nmetadata: {name: " + name + "}\n" +
		"spec: {url: '" + s.repo.URL() + "', path: deploy, prune: true, ref: {branch: main}, interval: 1h, timeout: 10s}\n"
}

// A commit may remove or rename the manifest of a GitSource. The objects of that source stay, and no
// gate opens.
func TestSourceLeavesGit(t *testing.T) {
	t.Parallel()
	t.Run("its own branch has it", func(t *testing.T) {
		s := newRelease(t)
		uid := s.deployment("web").UID
		s.applied(s.push(map[string]string{"deploy/self.yaml": shopAs(s, "shop")}))
		for name, self := range map[string]string{"removed": "", "renamed": shopAs(s, "shop-web")} {
			t.Run(name, func(t *testing.T) {
				s := s.in(t)
				says := s.refused(s.push(map[string]string{"deploy/self.yaml": self}), "PruneRefused")
				if !strings.Contains(says, "is this source") {
					t.Errorf("it says %s", says)
				}
				isHeldAs(s, uid)
				s.applied(s.push(map[string]string{"deploy/self.yaml": shopAs(s, "shop")}))
			})
		}
	})
	t.Run("another source has it", func(t *testing.T) {
		s := newRelease(t)
		uid := s.deployment("web").UID
		s.push(map[string]string{"parent/shop.yaml": shopAs(s, "shop"), "parent/a.yaml": configMap("a", "one")})
		s.another("parent", "parent")
		s.ready("parent", metav1.ConditionTrue, "Applied")
		for name, child := range map[string]string{"removed": "", "renamed": shopAs(s, "shop-web")} {
			t.Run(name, func(t *testing.T) {
				s := s.in(t)
				s.push(map[string]string{"parent/shop.yaml": child})
				s.lookNow("parent")
				says := s.ready("parent", metav1.ConditionFalse, "PruneRefused")
				if !strings.Contains(says, "its Deployment would be handed back") {
					t.Errorf("it says %s", says)
				}
				isHeldAs(s, uid)
				s.push(map[string]string{"parent/shop.yaml": shopAs(s, "shop")})
				s.lookNow("parent")
				s.ready("parent", metav1.ConditionTrue, "Applied")
			})
		}
	})
}
