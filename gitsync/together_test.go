package gitsync_test

import (
	"fmt"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/tranche-dev/tranche/plan/v1alpha1"
	"github.com/tranche-dev/tranche/rollout/clustertest"
)

// A source with many objects of a kind reads them by a list. It reads them one by one if it may not
// list them, or if the namespace has many more. Either way it undoes what others have done.
func TestManyObjectsAreReadTogether(t *testing.T) {
	t.Parallel()
	verbs := []string{"create", "delete", "get", "patch", "update"}[:5:5]
	for name, tc := range map[string]struct {
		verbs         []string
		objects       int
		others        int
		singles, most int // GETs of single objects, and lists
	}{
		"few":           {verbs: append(verbs, "list"), objects: 8, singles: 8},
		"together":      {verbs: append(verbs, "list"), objects: 20, most: 1},
		"in pages":      {verbs: append(verbs, "list"), objects: 60, others: 120, most: 2},
		"beside others": {verbs: append(verbs, "list"), objects: 20, others: 200, singles: 20},
		"may not list":  {verbs: verbs, objects: 20, singles: 20},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s, requests := newIdleEnv(t), &ledger{}
			t.Cleanup(s.startControllerWith(requests.config(s.c.Config), gitsyncOnly))
			s.kubectl("-n", s.ns, "create", "serviceaccount", "narrow")
			s.kubectl("-n", s.ns, "create", "role", "narrow", "--resource=configmaps", "--verb="+strings.Join(tc.verbs, ","))
			s.kubectl("-n", s.ns, "create", "rolebinding", "narrow", "--role=narrow", "--serviceaccount="+s.ns+":narrow")
			for i := range tc.others {
				other := metav1.ObjectMeta{Namespace: s.ns, Name: fmt.Sprintf("other-%03d", i)}
				s.must(s.c.Client.Create(t.Context(), &corev1.ConfigMap{ObjectMeta: other}))
			}
			files := map[string]string{}
			for i := range tc.objects {
				files[fmt.Sprintf("deploy/%02d.yaml", i)] = configMap(fmt.Sprintf("settings-%02d", i), "one")
			}
			s.applied2(s.push(files), func(gs *v1alpha1.GitSource) { gs.Spec.ServiceAccountName = "narrow" })
			s.wholeLook() // what an account may not list is known then

			s.kubectl("-n", s.ns, "delete", "configmap", "settings-03")
			s.kubectl("-n", s.ns, "patch", "configmap", "settings-04", "--type=merge", "-p", `{"data":{"value":"theirs"}}`)
			s.wholeLook()
			var maps corev1.ConfigMapList
			s.must(s.c.Client.List(t.Context(), &maps, client.InNamespace(s.ns)))
			values := 0
			for _, m := range maps.Items {
				if strings.HasPrefix(m.Name, "settings-") && m.Data["value"] == "one" {
					values++
				}
			}
			if values != tc.objects {
				t.Errorf("%d of %d are as the branch says", values, tc.objects)
			}
			clustertest.Wait(t, "a look that reads as it may", func() error { // one that meets a conflict is repeated
				_, n := requests.since(0)
				s.wholeLook()
				singles, lists := requests.reads(n, "/api/v1/namespaces/"+s.ns+"/configmaps")
				if singles != tc.singles || lists > tc.most {
					return fmt.Errorf("%d reads of one object and %d lists, want %d and at most %d", singles, lists, tc.singles, tc.most)
				}
				return nil
			})
		})
	}
}

// reads returns how many objects of a resource the requests after the first n read one by one,
// and how many lists.
func (l *ledger) reads(n int, resource string) (singles, lists int) {
	got, _ := l.since(n)
	for _, r := range got {
		switch path, ok := strings.CutPrefix(r, "GET "+resource); {
		case ok && path == "":
			lists++
		case ok:
			singles++
		}
	}
	return singles, lists
}
