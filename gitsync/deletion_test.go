package gitsync_test

import (
	"context"
	"fmt"
	"os"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/tranche-dev/tranche/gitsync"
	"github.com/tranche-dev/tranche/plan/v1alpha1"
	"github.com/tranche-dev/tranche/rollout/clustertest"
)

// mounts is a Deployment whose pods mount ConfigMaps.
func mounts(names ...string) string {
	volumes := "      volumes:\n"
	for _, name := range names {
		volumes += "      - {name: " + name + ", configMap: {name: " + name + "}}\n"
	}
	return web("v1", "      containers:\n", volumes+"      containers:\n")
}

// deletedInUse has a source with a Deployment whose two pods run, and a pod without an
// owner, db-0. That pod uses ConfigMap settings as well. Then it deletes the source.
func (s *env) deletedInUse() {
	s.Helper()
	s.source()
	s.applied(s.push(map[string]string{"deploy/web.yaml": mounts("settings", "own"), "deploy/settings.yaml": configMap("settings", "one"), "deploy/own.yaml": configMap("own", "one")}))
	clustertest.Wait(s, "two pods", func() error {
		if d := s.deployment("web"); d.Status.AvailableReplicas != 2 {
			return fmt.Errorf("%+v", d.Status)
		}
		return nil
	})
	s.must(s.c.Client.Create(s.Context(), s.user()))
	s.must(s.c.Client.Delete(s.Context(), s.gs()))
}

// usedFor adds the controller of sources, which waits as long at most for those who use
// what it deletes.
func usedFor(t *testing.T, d time.Duration) func(ctrl.Manager) error {
	return func(mgr ctrl.Manager) error {
		return gitsync.Add(mgr, gitsync.Options{Renderer: renderers(), StorageDir: t.TempDir(), Concurrent: 2, NoRemoteBases: true, FileRoots: []string{os.TempDir()}, UsedFor: d})
	}
}

func (s *env) user() *corev1.Pod {
	return &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{Name: "db-0", Namespace: s.ns},
		Spec: corev1.PodSpec{
			Containers: []corev1.Container{{Name: "db", Image: "registry.example.org/db", EnvFrom: []corev1.EnvFromSource{{ConfigMapRef: &corev1.ConfigMapEnvSource{LocalObjectReference: corev1.LocalObjectReference{Name: "settings"}}}}}},
		},
	}
}

// A deleted source that prunes waits for the pods that use its ConfigMaps, and
// says for which: those of its own Deployment, and others.
func TestDeletedWhileInUse(t *testing.T) {
	t.Parallel()
	s := newIdleEnv(t)
	t.Cleanup(s.startManager(s.c.Config, usedFor(t, time.Hour)))
	s.deletedInUse()
	s.isGone("web", &appsv1.Deployment{})
	s.isGone("own", &corev1.ConfigMap{}) // not before the pods that mount it
	if n, err := s.mounted(); err != nil || len(n) > 0 {
		t.Errorf("there are pods that mounted it: %v %v", n, err)
	}
	clustertest.Wait(t, "the wait", func() error {
		gs := s.gs()
		if k := gs.Status.Kept; len(k) != 1 || k[0] != (v1alpha1.KeptObject{ID: s.ns + "_settings__ConfigMap", UsedBy: "Pod " + s.ns + "/db-0"}) {
			return fmt.Errorf("kept: %+v", k)
		}
		if !strings.Contains(said(gs), "Pruning: deleting what was applied; waiting, for 1h0m0s at most, for who uses ConfigMap "+s.ns+"/settings (Pod "+s.ns+"/db-0)") {
			return fmt.Errorf("%s", said(gs))
		}
		return nil
	})
	get(s, "settings", &corev1.ConfigMap{})
	s.must(s.c.Client.Delete(t.Context(), s.user(), client.GracePeriodSeconds(0)))
	s.isGone("settings", &corev1.ConfigMap{})
	s.isGone("shop", &v1alpha1.GitSource{})
}

// A pod that never goes does not keep the source: the objects in use stay, and an
// event reports them.
func TestDeletedWhileInUseForEver(t *testing.T) {
	t.Parallel()
	s := newIdleEnv(t)
	t.Cleanup(s.startManager(s.c.Config, usedFor(t, time.Second)))
	s.deletedInUse()
	s.isGone("shop", &v1alpha1.GitSource{})
	s.isGone("web", &appsv1.Deployment{})
	get(s, "settings", &corev1.ConfigMap{})
	get(s, "db-0", &corev1.Pod{})
	s.told("Orphaned", "ConfigMap "+s.ns+"/settings (")
}

// values are what the pods' ConfigMaps say, which all have to be there.
func (s *env) values() ([]string, error) {
	var pods corev1.PodList
	if err := s.c.Client.List(s.Context(), &pods, client.InNamespace(s.ns), client.MatchingLabels{"app": "web"}); err != nil {
		return nil, err
	}
	var values []string
	for _, p := range pods.Items {
		for _, v := range p.Spec.Volumes {
			if v.ConfigMap == nil {
				continue
			}
			var cm corev1.ConfigMap
			if err := s.c.Client.Get(s.Context(), client.ObjectKey{Namespace: s.ns, Name: v.ConfigMap.Name}, &cm); err != nil {
				return nil, fmt.Errorf("pod %s: %w", p.Name, err)
			}
			values = append(values, cm.Data["value"])
		}
	}
	slices.Sort(values)
	return slices.Compact(values), nil
}

// keeps waits until the pods' ConfigMaps say these values, and as many others are kept.
func (s *env) keeps(kept int, values ...string) {
	s.Helper()
	clustertest.Wait(s, fmt.Sprintf("pods with %q, and %d kept", values, kept), func() error {
		got, err := s.values()
		if err != nil {
			return err
		}
		if k := s.gs().Status.Kept; !slices.Equal(got, values) || len(k) != kept || slices.ContainsFunc(k, func(o v1alpha1.KeptObject) bool { return o.UsedBy == "" }) {
			return fmt.Errorf("pods with %q, kept: %+v", got, k)
		}
		return nil
	})
}

// A commit that changes all of an app's ConfigMaps takes none away. Each is kept for
// the pods that use it, and a rollback finds it. Once no pod uses it any more, it goes
// with the next interval.
func TestKeptWhileInUse(t *testing.T) {
	t.Parallel()
	s := newEnv(t, andRollout)
	with := func(value string) map[string]string {
		k := "resources: [web.yaml, plan.yaml]\nconfigMapGenerator:\n"
		for _, name := range []string{"a", "b", "c", "d"} {
			k += "- {name: " + name + ", literals: [value=" + value + "]}\n"
		}
		return map[string]string{"deploy/web.yaml": mounts("a", "b", "c", "d"), "deploy/plan.yaml": webPlan, "deploy/kustomization.yaml": k}
	}
	s.source(func(gs *v1alpha1.GitSource) { gs.Spec.Interval.Duration = time.Second })
	s.applied(s.push(with("one")))
	s.isAt("web", "ReleaseCompleted", 1)
	s.keeps(0, "one")
	bad := s.push(with("two"))
	s.applied(bad)
	s.isAt("web", "WaitingForApproval", 0)
	s.keeps(4, "one", "two")
	s.rollBack("web")
	s.isAt("web", "RolledBack", 1)
	s.keeps(4, "one") // the branch says two, and what runs is kept
	s.repo.Revert(bad)
	s.repo.Push()
	s.rolledBack("web")
	s.keeps(0, "one")
	clustertest.Wait(t, "the others to go", func() error {
		var left corev1.ConfigMapList
		s.must(s.c.Client.List(t.Context(), &left, client.InNamespace(s.ns), client.MatchingLabels{v1alpha1.LabelSource: "shop"}))
		for _, cm := range left.Items {
			if cm.Data["value"] != "one" {
				return fmt.Errorf("%s is still there", cm.Name)
			}
		}
		return nil
	})
}

// A plan is deleted by hand and N changes while no controller runs. The Deployment is
// held when the controller is back: the plan is made again, the release waits at its gate,
// and no file is blamed.
func TestPlanDeletedWhileDown(t *testing.T) {
	t.Parallel()
	for name, change := range map[string]func(*env){
		"scaled by hand": func(s *env) { s.scale(5, "web") },
		"scaled in Git": func(s *env) {
			s.push(map[string]string{"deploy/web.yaml": web("v2", "replicas: 2", "replicas: 5")})
		},
		"not scaled": func(*env) {},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s := newIdleEnv(t)
			stop := s.startController(andRollout)
			t.Cleanup(func() { stop() })
			s.beginRelease()
			stop()
			s.kubectl("delete", "batchrelease/web")
			change(s)
			blamed := s.recordBlame()
			stop = s.startController(andRollout)
			s.lookNow()
			clustertest.Wait(s, "the plan", func() error {
				if err := s.c.Client.Get(t.Context(), client.ObjectKey{Namespace: s.ns, Name: "web"}, &v1alpha1.BatchRelease{}); err != nil {
					return withSource(s, err)
				}
				return nil
			})
			s.isAt("web", "WaitingForApproval", 0)
			if n := s.deployment("web").Status.UpdatedReplicas; n > 1 {
				t.Errorf("%d pods run what no one has approved", n)
			}
			s.lookNow()
			for _, m := range blamed() {
				t.Errorf("the source says %s", m)
			}
		})
	}
}

// recordBlame watches the conditions of the GitSource for what is not True of Ready.
func (s *env) recordBlame() (seen func() []string) {
	s.Helper()
	var mu sync.Mutex
	var messages []string
	events, err := s.c.Client.Watch(context.Background(), &v1alpha1.GitSourceList{}, client.InNamespace(s.ns))
	s.must(err)
	s.Cleanup(events.Stop)
	go func() {
		for e := range events.ResultChan() {
			gs, ok := e.Object.(*v1alpha1.GitSource)
			if !ok {
				continue
			}
			for _, c := range gs.Status.Conditions {
				if c.Type == "Ready" && c.Status == metav1.ConditionFalse {
					mu.Lock()
					messages = append(messages, c.Reason+": "+c.Message)
					mu.Unlock()
				}
			}
		}
	}()
	return func() []string {
		mu.Lock()
		defer mu.Unlock()
		return slices.Compact(slices.Clone(messages))
	}
}
