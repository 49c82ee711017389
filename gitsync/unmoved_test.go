package gitsync_test

import (
	"errors"
	"fmt"
	"net/http"
	"os"
	"slices"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	ctrl "sigs.k8s.io/controller-runtime"

	"github.com/tranche-dev/tranche/gitsync"
	"github.com/tranche-dev/tranche/plan/v1alpha1"
	"github.com/tranche-dev/tranche/rollout/clustertest"
)

// ofEachKind has an object of each kind that syncs treat differently, with the label
// team=shop.
func ofEachKind(ns string) map[string]string {
	labelled := func(kind, name, more string) string {
		return kind + "\nmetadata: {name: " + name + ", labels: {team: shop}}\n" + more
	}
	return map[string]string{
		"deploy/config.yaml":  labelled("apiVersion: v1\nkind: ConfigMap", "a", "data: {value: one}\n"),
		"deploy/gone.yaml":    configMap("gone", "one"),
		"deploy/secret.yaml":  labelled("apiVersion: v1\nkind: Secret", "a", "stringData: {value: one}\n"),
		"deploy/service.yaml": labelled("apiVersion: v1\nkind: Service", "a", "spec: {ports: [{port: 80}]}\n"),
		"deploy/account.yaml": labelled("apiVersion: v1\nkind: ServiceAccount", "a", ""),
		"deploy/role.yaml":    labelled("apiVersion: rbac.authorization.k8s.io/v1\nkind: Role", "a", "rules: []\n"),
		"deploy/all.yaml":     labelled("apiVersion: rbac.authorization.k8s.io/v1\nkind: ClusterRole", ns+"-a", "rules: []\n"),
		"deploy/web.yaml":     web("v1"),
		"deploy/api.yaml":     web("v1", "web", "api"),
		"deploy/release.yaml": strings.ReplaceAll(webPlan, "{name: web}\nspec", "{name: web, labels: {team: shop}}\nspec"),
	}
}

// isList reports whether a request of the ledger lists a kind.
func isList(request string) bool {
	method, path, _ := strings.Cut(request, " ")
	parts := strings.Split(strings.Trim(path, "/"), "/")
	plurals := []string{
		"configmaps", "secrets", "services", "serviceaccounts", "roles", "clusterroles",
		"deployments", "batchreleases", "horizontalpodautoscalers",
	}
	return method == http.MethodGet && slices.Contains(plurals, parts[len(parts)-1])
}

// onlyLists waits until the controller does nothing but list for two intervals.
func onlyLists(s *env, requests *ledger) {
	s.Helper()
	clustertest.Wait(s, "intervals that only list", func() error {
		all, _ := requests.since(0)
		lists := 0
		for i := len(all) - 1; i >= 0 && isList(all[i]) && lists < 2; i-- {
			if strings.HasSuffix(all[i], "/namespaces/"+s.ns+"/configmaps") {
				lists++
			}
		}
		if lists < 2 {
			return fmt.Errorf("the last requests: %s", all[max(0, len(all)-20):])
		}
		return nil
	})
}

// An interval in which nothing has changed costs lists of versions. Drift of each kind of
// object is found in it, and reverted.
func TestInterval_ListsAndFindsDrift(t *testing.T) {
	t.Parallel()
	s := newIdleEnv(t)
	requests := &ledger{}
	t.Cleanup(s.startControllerWith(requests.config(s.c.Config), gitsyncOnly))
	tip := s.push(ofEachKind(s.ns))
	s.source(func(gs *v1alpha1.GitSource) { gs.Spec.Interval.Duration = 3 * time.Second })
	s.applied(tip)
	onlyLists(s, requests)
	objects := []string{
		"configmap/a", "secret/a", "service/a", "serviceaccount/a", "role/a", "clusterrole/" + s.ns + "-a",
		"deployment/web", "deployment/api", "batchrelease/web",
	}
	s.kubectl(append([]string{"label", "--overwrite"}, append(objects, "team=hand")...)...)
	clustertest.Wait(t, "the end of the drift", func() error {
		teams := s.kubectl(append([]string{"get", "-o", "jsonpath={range .items[*]}{.kind}={.metadata.labels.team} {end}"}, objects...)...)
		if strings.Contains(teams, "hand") || strings.Count(teams, "=shop") != len(objects) {
			return errors.New(teams)
		}
		return nil
	})
	s.kubectl("delete", "configmap/gone") // the second drift of one object within a minute would be a contest
	clustertest.Wait(t, "the ConfigMap to be there again", func() error {
		_, err := s.c.Kubectl(t, "-n", s.ns, "get", "configmap/gone")
		return err
	})
	onlyLists(s, requests)
}

// If each of many sources has a namespace of its own, one list of all namespaces answers for all
// of them. Drift in each is found.
func TestInterval_ManyNamespaces(t *testing.T) {
	t.Parallel()
	s, requests := newIdleEnv(t), &ledger{}
	envs, more := []*env{s}, []string{}
	for range 6 {
		envs = append(envs, inNamespace(s))
		more = append(more, envs[len(envs)-1].ns)
	}
	t.Cleanup(s.startManager(requests.config(s.c.Config), func(mgr ctrl.Manager) error {
		options := gitsync.Options{Renderer: renderers(), StorageDir: t.TempDir(), Concurrent: 2, NoRemoteBases: true}
		options.FileRoots = []string{os.TempDir()}
		return gitsync.Add(mgr, options)
	}, more...))
	role := "apiVersion: rbac.authorization.k8s.io/v1\nkind: Role\nmetadata: {name: a, labels: {team: shop}}\nrules: []\n"
	tip := s.push(map[string]string{"deploy/role.yaml": role})
	for _, of := range envs {
		of.source()
		of.applied(tip)
	}
	for _, of := range envs {
		of.kubectl("patch", "gsrc/shop", "--type=merge", "-p", `{"spec":{"interval":"3s"}}`)
	}
	const roles = "GET /apis/rbac.authorization.k8s.io/v1/roles"
	onlyTogether := func() {
		t.Helper()
		clustertest.Wait(t, "intervals that only list all namespaces", func() error {
			all, _ := requests.since(0)
			if len(all) < 3 || slices.ContainsFunc(all[len(all)-3:], func(r string) bool { return r != roles }) {
				return fmt.Errorf("the last requests: %s", all[max(0, len(all)-20):])
			}
			return nil
		})
	}
	onlyTogether()
	envs[2].kubectl("label", "--overwrite", "role/a", "team=hand")
	envs[5].kubectl("delete", "role/a")
	for _, of := range []*env{envs[2], envs[5]} {
		clustertest.Wait(t, of.ns+": the end of the drift", func() error {
			out, err := s.c.Kubectl(t, "-n", of.ns, "get", "role/a", "-o", "jsonpath={.metadata.labels.team}")
			if err == nil && out != "shop" {
				err = errors.New(out)
			}
			return err
		})
	}
	onlyTogether()
}

// An account that may not list has each object read.
func TestInterval_WithoutTheRightToList(t *testing.T) {
	t.Parallel()
	s := newIdleEnv(t)
	requests := &ledger{}
	t.Cleanup(s.startControllerWith(requests.config(s.c.Config), gitsyncOnly))
	s.must(s.c.Client.Create(t.Context(), &corev1.ServiceAccount{ObjectMeta: metav1.ObjectMeta{Name: "tenant", Namespace: s.ns}}))
	s.grant("configmaps", "", "get", "create", "patch", "delete")
	tip := s.push(map[string]string{"deploy/a.yaml": configMap("a", "one")})
	s.source(func(gs *v1alpha1.GitSource) {
		gs.Spec.Interval.Duration, gs.Spec.ServiceAccountName = 2*time.Second, "tenant"
	})
	s.applied(tip)
	_, n := requests.since(0)
	clustertest.Wait(t, "reads of the object", func() error {
		reads := 0
		for _, r := range first(requests.since(n)) {
			if strings.HasPrefix(r, "GET") && strings.HasSuffix(r, "/configmaps/a") {
				reads++
			}
		}
		if reads < 2 {
			return fmt.Errorf("%d reads", reads)
		}
		return nil
	})
	s.kubectl("patch", "configmap/a", "-p", `{"data":{"value":"by hand"}}`)
	clustertest.Wait(t, "the end of the drift", func() error {
		if v := get(s, "a", &corev1.ConfigMap{}).Data["value"]; v != "one" {
			return fmt.Errorf("a is %q", v)
		}
		return nil
	})
	if !meta.IsStatusConditionTrue(s.gs().Status.Conditions, "Ready") {
		t.Errorf("the source is not ready: %s", said(s.gs()))
	}
}

// A first sync reads none of the objects that do not exist. One that exists is read, and what
// others had said of it is reported.
func TestFirstSync_ReadsOnlyWhatExists(t *testing.T) {
	t.Parallel()
	s := newIdleEnv(t)
	requests := &ledger{}
	t.Cleanup(s.startControllerWith(requests.config(s.c.Config), gitsyncOnly))
	if out, err := s.c.KubectlWith(t, configMap("b", "other"), "apply", "-n", s.ns, "-f", "-"); err != nil {
		t.Fatal(out)
	}
	tip := s.push(map[string]string{
		"deploy/a.yaml": configMap("a", "one"), "deploy/b.yaml": configMap("b", "one"), "deploy/api.yaml": web("v1", "web", "api"),
	})
	s.source()
	s.applied(tip)
	read := map[string]int{}
	for _, r := range first(requests.since(0)) {
		if method, path, _ := strings.Cut(r, " "); method == http.MethodGet && strings.Contains(path, "/namespaces/"+s.ns+"/") {
			read[path[strings.LastIndex(path, "/")+1:]]++
		}
	}
	if read["a"] > 0 || read["api"] > 0 || read["b"] != 1 {
		t.Errorf("the reads: %v", read)
	}
	if v := get(s, "b", &corev1.ConfigMap{}).Data["value"]; v != "one" {
		t.Errorf("b is %q", v)
	}
	s.told("FieldConflict", "ConfigMap "+s.ns+"/b: other managers had other values of data.value")
}

func first(list []string, _ int) []string { return list }
