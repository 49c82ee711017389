package rollout_test

import (
	"bytes"
	"fmt"
	"io"
	"net/http"
	"strings"
	"sync/atomic"
	"testing"

	appsv1 "k8s.io/api/apps/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/runtime/serializer"

	"github.com/tranche-dev/tranche/plan"
	"github.com/tranche-dev/tranche/plan/v1alpha1"
	"github.com/tranche-dev/tranche/rollout/clustertest"
)

// A record that has the name of one to be made, and another template, is replaced by that
// one, each time. The release is made of what Git brings.
func TestRecordOfAnotherTemplate(t *testing.T) {
	t.Parallel()
	s := newEnv(t)
	var planting atomic.Bool
	var planted, made atomic.Int32
	startControllerIn(t, s.c, s.ns, func(next http.RoundTripper) http.RoundTripper {
		return roundTripper(func(r *http.Request) (*http.Response, error) {
			if r.Method == http.MethodPost && strings.HasSuffix(r.URL.Path, "/controllerrevisions") && planting.Load() {
				made.Add(1)
				if plant(s, r) {
					planted.Add(1)
				}
				planting.Store(planted.Load() < 3)
			}
			return next.RoundTrip(r)
		})
	})
	s.install(4)
	s.plan("1", "100%")
	s.waitFor(v1alpha1.ReasonReleaseCompleted, 1, nil)
	planting.Store(true)
	s.bring("v2")
	s.waitFor(v1alpha1.ReasonWaitingForApproval, 0, map[string]int32{"v1": 3, "v2": 1})
	if n := planted.Load(); n != 3 {
		t.Errorf("%d records were planted, of %d that were to be made", n, made.Load())
	}
	for _, record := range s.records() {
		if kept, err := plan.ReadRecord(&record); err != nil || strings.HasPrefix(kept.Template.Spec.Containers[0].Image, "planted/") {
			t.Errorf("record %s: %v, %+v", record.Name, err, kept.Template)
		}
	}
}

// An administrator takes the label off the records. They are found by their names, and have
// their labels again. The release stays at its gate, and its approval counts.
func TestRecordsWithoutTheirLabel(t *testing.T) {
	t.Parallel()
	s := newEnv(t)
	startControllerIn(t, s.c, s.ns)
	s.install(4)
	s.plan("1", "100%")
	s.waitFor(v1alpha1.ReasonReleaseCompleted, 1, nil)
	s.bring("v2")
	s.waitFor(v1alpha1.ReasonWaitingForApproval, 0, map[string]int32{"v1": 3, "v2": 1})
	had := len(s.records())
	s.kubectl("-n", s.ns, "label", "controllerrevisions", "--all", plan.LabelManagedBy+"-")
	clustertest.Wait(t, "the labels", func() error {
		if now := len(s.records()); now < had {
			return fmt.Errorf("%d records of %d", now, had)
		}
		return nil
	})
	s.waitFor(v1alpha1.ReasonWaitingForApproval, 0, map[string]int32{"v1": 3, "v2": 1})
	s.approve(0)
	s.waitFor(v1alpha1.ReasonReleaseCompleted, 1, map[string]int32{"v2": 4})
}

// plant makes the record of a request with another template, before the request.
func plant(s *env, r *http.Request) bool {
	body, err := r.GetBody()
	if err != nil {
		s.Error(err)
		return false
	}
	defer body.Close()
	raw, err := io.ReadAll(body)
	if err != nil {
		s.Error(err)
		return false
	}
	o, _, err := serializer.NewCodecFactory(s.c.Scheme).UniversalDeserializer().Decode(raw, nil, nil)
	record, ok := o.(*appsv1.ControllerRevision)
	if err != nil || !ok {
		s.Errorf("decoding a record: %T %v", o, err)
		return false
	}
	record.OwnerReferences = nil
	record.Data.Raw = bytes.Replace(record.Data.Raw, []byte(`"image":"`), []byte(`"image":"planted/`), 1)
	if err := s.c.Client.Create(r.Context(), record); err != nil && !apierrors.IsAlreadyExists(err) {
		s.Error(err)
	}
	return err == nil
}
