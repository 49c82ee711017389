package gitsync_test

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	ctrl "sigs.k8s.io/controller-runtime"

	"github.com/tranche-dev/tranche/gitsync"
	"github.com/tranche-dev/tranche/gitsync/gittest"
)

// A base in another repository is fetched where the controller lets it, and
// refused where not.
func TestRemoteBase(t *testing.T) {
	t.Parallel()
	base := gittest.NewRepo(t)
	base.CommitAndPush(map[string]string{"base/kustomization.yaml": "resources: [a.yaml]\n", "base/a.yaml": configMap("a", "one")})
	server := gittest.Serve(t, filepath.Dir(base.Bare), gittest.ServeOptions{})
	files := map[string]string{"deploy/kustomization.yaml": "namePrefix: our-\nresources: ['git::" + server.URL + "/repo.git//base?ref=main']\n"}
	t.Run("refused", func(t *testing.T) {
		s := newEnv(t, gitsyncOnly)
		s.source()
		if m := s.refused(s.push(files), "RenderFailed"); !strings.HasPrefix(m, "deploy/kustomization.yaml: resources[0]: git::"+server.URL) || !strings.Contains(m, "remote bases are off") {
			t.Error(m)
		}
	})
	t.Run("fetched", func(t *testing.T) {
		s := newIdleEnv(t)
		t.Cleanup(s.startManager(s.c.Config, func(mgr ctrl.Manager) error {
			return gitsync.Add(mgr, gitsync.Options{Renderer: renderers(), StorageDir: t.TempDir(), Concurrent: 2, FileRoots: []string{os.TempDir()}})
		}))
		s.applied2(s.push(files))
		get(s, "our-a", &corev1.ConfigMap{})
		base.CommitAndPush(map[string]string{"base/a.yaml": configMap("a", "two")})
		s.lookNow()
		if v := get(s, "our-a", &corev1.ConfigMap{}).Data["value"]; v != "two" {
			t.Errorf("it is %q", v)
		}
	})
}
