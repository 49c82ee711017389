package rollout_test

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/google/go-cmp/cmp"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/tranche-dev/tranche/plan"
	"github.com/tranche-dev/tranche/plan/v1alpha1"
	"github.com/tranche-dev/tranche/rollout/clustertest"
)

// orphan deletes the Deployment and nothing else, and waits until it is gone.
func (s *env) orphan() {
	s.Helper()
	before := s.running()
	s.kubectl("-n", s.ns, "delete", "deployment/web", "--cascade=orphan", "--wait=false", "--ignore-not-found")
	clustertest.Wait(s, "the Deployment to be gone", func() error {
		var d appsv1.Deployment
		err := s.c.Client.Get(s.Context(), client.ObjectKey{Namespace: s.ns, Name: "web"}, &d)
		if apierrors.IsNotFound(err) {
			return nil
		}
		return fmt.Errorf("finalizers %v; %w", d.Finalizers, err)
	})
	if diff := cmp.Diff(before, s.running()); diff != "" {
		s.Errorf("what runs (-before +after):\n%s", diff)
	}
	for _, rs := range s.sets() {
		if owner := metav1.GetControllerOf(&rs); owner != nil {
			s.Errorf("ReplicaSet %s still belongs to %s", rs.Name, owner.Name)
		}
	}
}

// A Deployment is deleted with --cascade=orphan in the middle of a release: that
// ends, and its pods stay. The two records are written once each: they are such that
// the garbage collector can orphan them.
func TestOrphan_InTheMiddle(t *testing.T) {
	t.Parallel()
	s := newEnv(t)
	var calls requests
	startControllerIn(t, s.c, s.ns, calls.count)
	s.c.Guard(t, s.ns)
	s.install(2)
	s.plan("1", "100%")
	s.waitFor(v1alpha1.ReasonReleaseCompleted, 1, nil)
	s.bring("v2")
	s.waitFor(v1alpha1.ReasonWaitingForApproval, 0, map[string]int32{"v1": 1, "v2": 1})
	s.orphan()
	if n := calls.of(http.MethodPost, "/controllerrevisions"); n != 2 {
		t.Errorf("%d records were made, of 2 revisions\n%s", n, calls.String())
	}
	s.waitFor(v1alpha1.ReasonDeploymentNotFound, 0, map[string]int32{"v1": 1, "v2": 1})
}

// An earlier version wrote the data of its records with the keys in another order,
// which the garbage collector cannot orphan. Each is made again, and nothing of it
// is lost, where a crash comes between, too. A deletion that hangs already ends.
func TestOrphan_RecordsOfAnEarlierVersion(t *testing.T) {
	t.Parallel()
	for name, hangs := range map[string]bool{"made again before the deletion": false, "made again after it": true} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s, stop := atGateOf(t, 2)
			stop()
			before := s.contents()
			s.disorder()
			if hangs {
				s.kubectl("-n", s.ns, "delete", "deployment/web", "--cascade=orphan", "--wait=false")
				clustertest.Wait(t, "the ReplicaSets to be orphaned", func() error {
					for _, rs := range s.sets() {
						if metav1.GetControllerOf(&rs) != nil {
							return fmt.Errorf("%s is not", rs.Name)
						}
					}
					return nil
				})
			}
			var failed atomic.Bool
			startControllerIn(t, s.c, s.ns, func(next http.RoundTripper) http.RoundTripper {
				return roundTripper(func(r *http.Request) (*http.Response, error) {
					if r.Method == http.MethodDelete && strings.Contains(r.URL.Path, "/controllerrevisions/") && failed.CompareAndSwap(false, true) {
						return nil, errors.New("the connection is cut")
					}
					return next.RoundTrip(r)
				})
			})
			if !hangs {
				s.looked(v1alpha1.ReasonWaitingForApproval, 0, map[string]int32{"v1": 1, "v2": 1})
			}
			s.orphan()
			if diff := cmp.Diff(before, s.contents()); diff != "" {
				t.Errorf("records (-before +after):\n%s", diff)
			}
			if !failed.Load() {
				t.Error("no deletion of a record was cut off")
			}
		})
	}
}

// disorder writes the data of all records as an earlier version did.
func (s *env) disorder() {
	s.Helper()
	for _, c := range s.records() {
		var data struct {
			Spec struct {
				Template *corev1.PodTemplateSpec `json:"template"`
			} `json:"spec"`
		}
		s.must(json.Unmarshal(c.Data.Raw, &data))
		raw, err := json.Marshal(data)
		s.must(err)
		if bytes.Equal(raw, c.Data.Raw) {
			s.Fatalf("the data of %s is as an earlier version wrote it: %s", c.Name, raw)
		}
		s.must(s.c.Client.Delete(s.Context(), &c))
		c.ResourceVersion, c.UID, c.Data = "", "", runtime.RawExtension{Raw: raw}
		s.must(s.c.Client.Create(s.Context(), &c))
	}
}

// contents returns what the records keep, by their order.
func (s *env) contents() map[int64]plan.Record {
	s.Helper()
	all := map[int64]plan.Record{}
	for _, c := range s.records() {
		r, err := plan.ReadRecord(&c)
		s.must(err)
		if _, ok := all[r.Order]; ok {
			s.Errorf("two records of order %d", r.Order)
		}
		r.Name, r.ResourceVersion = "", ""
		all[r.Order] = r
	}
	return all
}
