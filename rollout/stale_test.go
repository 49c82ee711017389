package rollout_test

import (
	"io"
	"net/http"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/tranche-dev/tranche/plan/v1alpha1"
)

// delayed passes on what it reads a while after it came.
type delayed struct {
	io.Closer
	chunks chan chunk
	rest   []byte
	done   chan struct{}
	once   sync.Once
}

type chunk struct {
	due  time.Time
	data []byte
	err  error
}

func delay(body io.ReadCloser, by time.Duration) io.ReadCloser {
	d := &delayed{Closer: body, chunks: make(chan chunk, 1000), done: make(chan struct{})}
	go func() {
		for {
			buffer := make([]byte, 64<<10)
			n, err := body.Read(buffer)
			select {
			case d.chunks <- chunk{time.Now().Add(by), buffer[:n], err}:
			case <-d.done:
				return
			}
			if err != nil {
				return
			}
		}
	}()
	return d
}

func (d *delayed) Read(p []byte) (int, error) {
	for len(d.rest) == 0 {
		select {
		case c := <-d.chunks:
			select {
			case <-time.After(time.Until(c.due)):
			case <-d.done:
				return 0, io.ErrClosedPipe
			}
			if d.rest = c.data; c.err != nil && len(c.data) == 0 {
				return 0, c.err
			}
		case <-d.done:
			return 0, io.ErrClosedPipe
		}
	}
	n := copy(p, d.rest)
	d.rest = d.rest[n:]
	return n, nil
}

func (d *delayed) Close() error {
	d.once.Do(func() { close(d.done) })
	return d.Closer.Close()
}

// late delays the events of one kind's watch.
func late(resource string, by time.Duration) func(http.RoundTripper) http.RoundTripper {
	return func(next http.RoundTripper) http.RoundTripper {
		return roundTripper(func(r *http.Request) (*http.Response, error) {
			answer, err := next.RoundTrip(r)
			if err == nil && r.URL.Query().Get("watch") == "true" && strings.HasSuffix(r.URL.Path, "/"+resource) {
				answer.Body = delay(answer.Body, by)
			}
			return answer, err
		})
	}
}

// The events of one kind come late, and all writes are made as a tenant's account. No
// round is decided on an object that is older than the controller's own last write of it.
// After the hand-back nothing is taken for drift, and nothing goes back.
func TestTenant_StaleReads(t *testing.T) {
	t.Parallel()
	for _, resource := range []string{"deployments", "replicasets", "controllerrevisions", "batchreleases"} {
		t.Run(resource, func(t *testing.T) {
			t.Parallel()
			s := newEnv(t)
			startControllerIn(t, s.c, s.ns, late(resource, 700*time.Millisecond))
			s.account("tenant", "--clusterrole=edit")
			s.install(2)
			s.plan("1", "100%")
			s.edit(func(spec *v1alpha1.BatchReleaseSpec) { spec.ServiceAccountName = "tenant" })
			s.waitFor(v1alpha1.ReasonReleaseCompleted, 1, nil)
			s.bring("v2")
			s.waitFor(v1alpha1.ReasonWaitingForApproval, 0, map[string]int32{"v1": 1, "v2": 1})
			s.finish(2)
			s.bring("v3")
			s.waitFor(v1alpha1.ReasonWaitingForApproval, 0, map[string]int32{"v2": 1, "v3": 1})
			if n := s.w.Writes("Deployment", v1alpha1.ManagerRollout); n != 3 {
				t.Errorf("%d writes to the Deployment; hold, hand-back and hold are 3", n)
			}
			events, err := s.c.Kubectl(t, "-n", s.ns, "get", "events", "-o", `jsonpath={range .items[*]}{.reason}{"\n"}{end}`)
			s.must(err)
			for _, word := range []string{v1alpha1.ReasonDriftCorrected, v1alpha1.ReasonRollingBack} {
				if strings.Contains(s.w.Timeline(), word) || strings.Contains(events, word) {
					t.Errorf("%s, falsely", word)
				}
			}
			if t.Failed() {
				t.Log(s.w.Timeline())
			}
		})
	}
}
