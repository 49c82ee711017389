package gitsync_test

import (
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"strings"
	"sync"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/rest"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/tranche-dev/tranche/plan/v1alpha1"
	"github.com/tranche-dev/tranche/rollout/clustertest"
)

// wholeLook has the source be looked at as at an interval, by another interval.
func (s *env) wholeLook() {
	s.Helper()
	gs := s.gs()
	patch := client.MergeFrom(gs.DeepCopy())
	gs.Spec.Interval.Duration += time.Minute
	s.must(s.c.Client.Patch(s.Context(), gs, patch))
	clustertest.Wait(s, "a whole look", func() error {
		if now := s.gs(); now.Status.ObservedGeneration != gs.Generation {
			return fmt.Errorf("generation %d was looked at", now.Status.ObservedGeneration)
		}
		return nil
	})
}

// An object that an apply would not change is tried once, and then only read. If a
// client has changed it, or a user asks for a sync, it is tried again.
func TestNothingIsTriedTwice(t *testing.T) {
	t.Parallel()
	s := newIdleEnv(t)
	requests := &ledger{}
	t.Cleanup(s.startControllerWith(requests.config(s.c.Config), gitsyncOnly))
	s.push(map[string]string{
		"deploy/a.yaml": configMap("a", "one"), "deploy/b.yaml": configMap("b", "one"), "deploy/release.yaml": webPlan,
		"deploy/web.yaml": web("v1", "replicas: 2", "replicas: 0"), "deploy/api.yaml": web("v1", "web", "api", "replicas: 2", "replicas: 0"),
	})
	s.source()
	s.applied(s.repo.Head())
	s.wholeLook()
	n := 0
	tried := func() (objects []string) {
		var list []string
		for list, n = requests.since(n); len(list) > 0; list = list[1:] {
			if method, path, _ := strings.Cut(list[0], " "); method == dry+http.MethodPatch || method == http.MethodPatch {
				objects = append(objects, path[strings.LastIndex(path, "/")+1:])
			}
		}
		return objects
	}
	tried()
	// The controllers of Deployments are still writing their first status.
	versions := map[string]string{}
	clustertest.Wait(t, "a look that only reads", func() error {
		versions["web"], versions["api"] = s.deployment("web").ResourceVersion, s.deployment("api").ResourceVersion
		if s.wholeLook(); s.deployment("web").Status.ObservedGeneration == 0 || s.deployment("api").Status.ObservedGeneration == 0 {
			return fmt.Errorf("the Deployments are new; tried: %v", tried())
		}
		if objects := tried(); len(objects) > 0 {
			return fmt.Errorf("tried: %v", objects)
		}
		return nil
	})

	s.kubectl("patch", "configmap/a", "-p", `{"data":{"value":"by hand"}}`)
	s.wholeLook()
	if v := get(s, "a", &corev1.ConfigMap{}).Data["value"]; v != "one" {
		t.Errorf("a is %q", v)
	}
	for _, name := range tried() {
		if !isWritten(s, name, versions[name]) {
			t.Errorf("%s was tried, and only a was changed", name)
		}
	}
	s.applied(s.push(map[string]string{"deploy/b.yaml": configMap("b", "two")}))
	if v := get(s, "b", &corev1.ConfigMap{}).Data["value"]; v != "two" {
		t.Errorf("b is %q", v)
	}
	tried()
	s.lookNow()
	if objects := fmt.Sprint(tried()); !strings.Contains(objects, "a") || !strings.Contains(objects, "b") || !strings.Contains(objects, "api") || !strings.Contains(objects, "web") {
		t.Errorf("when somebody asked, only these were tried: %s", objects)
	}
}

// isWritten tells whether a is meant, or a Deployment that has been written since a version.
// Its status may be written late.
func isWritten(s *env, name, version string) bool {
	s.Helper()
	return name == "a" || version != "" && s.deployment(name).ResourceVersion != version
}

// Plans of others in the namespace cost a source nothing.
func TestOnlyThePlansOfItsDeploymentsAreRead(t *testing.T) {
	t.Parallel()
	s := newIdleEnv(t)
	var mu sync.Mutex
	read := map[string]bool{}
	c := rest.CopyConfig(s.c.Config)
	c.Wrap(func(rt http.RoundTripper) http.RoundTripper {
		return roundTripper(func(r *http.Request) (*http.Response, error) {
			answer, err := rt.RoundTrip(r)
			// The cache's own list has a limit, or is a watch.
			if err != nil || !strings.HasSuffix(r.URL.Path, "/batchreleases") || r.URL.Query().Has("watch") || r.URL.Query().Has("limit") {
				return answer, err
			}
			body, err := io.ReadAll(answer.Body)
			if err != nil {
				return nil, err
			}
			answer.Body = io.NopCloser(bytes.NewReader(body))
			var list v1alpha1.BatchReleaseList
			if err := json.Unmarshal(body, &list); err != nil {
				return nil, err
			}
			mu.Lock()
			defer mu.Unlock()
			for _, br := range list.Items {
				read[br.Name] = true
			}
			return answer, nil
		})
	})
	t.Cleanup(s.startControllerWith(c, gitsyncOnly))
	for i := range 3 {
		br := &v1alpha1.BatchRelease{ObjectMeta: metav1.ObjectMeta{Name: fmt.Sprint("other-", i), Namespace: s.ns}}
		br.Spec.WorkloadRef.Name = br.Name
		br.Spec.Strategy.Steps = []v1alpha1.Step{{Replicas: full}}
		s.must(s.c.Client.Create(t.Context(), br))
	}
	// One of them by hand, and one in Git.
	s.push(map[string]string{"deploy/web.yaml": web("v1"), "deploy/release.yaml": webPlan, "deploy/api.yaml": web("v1", "web", "api"), "deploy/other.yaml": web("v1", "web", "other-0")})
	s.source()
	s.applied(s.repo.Head())
	s.lookNow()
	mu.Lock()
	defer mu.Unlock()
	if len(read) != 2 || !read["web"] || !read["other-0"] {
		t.Errorf("the plans that were read: %v", read)
	}
}
