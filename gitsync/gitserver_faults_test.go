package gitsync_test

import (
	"fmt"
	"net/http"
	"path/filepath"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/tranche-dev/tranche/gitsync/gittest"
	"github.com/tranche-dev/tranche/plan/v1alpha1"
	"github.com/tranche-dev/tranche/rollout/clustertest"
)

// cut is an answer that ends in the middle: the connection is closed, or hangs.
type cut struct {
	http.ResponseWriter
	left  int
	hangs <-chan struct{}
}

func (c *cut) Write(b []byte) (int, error) {
	if len(b) <= c.left {
		c.left -= len(b)
		return c.ResponseWriter.Write(b)
	}
	if _, err := c.ResponseWriter.Write(b[:c.left]); err != nil {
		return 0, err
	}
	if f, ok := c.ResponseWriter.(http.Flusher); ok {
		f.Flush()
	}
	if c.hangs != nil {
		<-c.hangs
	}
	panic(http.ErrAbortHandler)
}

// Faults of a Git server. The status reports each by a reason and a sentence, nothing
// in the cluster changes, and no password is shown. Once the fault is over, the
// waiting commit is applied once.
func TestGitServerFaults(t *testing.T) {
	t.Parallel()
	s := newEnv(t, gitsyncOnly)
	var fault atomic.Pointer[func(http.ResponseWriter, *http.Request, http.Handler)]
	server := gittest.Serve(t, filepath.Dir(s.repo.Bare), gittest.ServeOptions{Username: "ada", Password: "s3cret", Wrap: func(h http.Handler) http.Handler {
		return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			if f := fault.Load(); f != nil {
				(*f)(w, r, h)
				return
			}
			h.ServeHTTP(w, r)
		})
	}})
	secret := &corev1.Secret{ObjectMeta: metav1.ObjectMeta{Name: "git", Namespace: s.ns}, StringData: map[string]string{"username": "ada", "password": "s3cret"}}
	s.must(s.c.Client.Create(t.Context(), secret))
	value := strings.Repeat("x", 10_000) // so that there is something to cut in the middle of
	s.push(map[string]string{"deploy/a.yaml": configMap("a", "v0"), "deploy/b.yaml": configMap("b", value)})
	s.source(func(gs *v1alpha1.GitSource) {
		gs.Spec.URL = server.URL + "/repo.git"
		gs.Spec.SecretRef = &v1alpha1.LocalObjectReference{Name: "git"}
		gs.Spec.Interval.Duration, gs.Spec.Timeout.Duration = time.Second, 30*time.Second
	})
	s.applied(s.repo.Head())

	status := func(code int, header ...string) func(http.ResponseWriter, *http.Request, http.Handler) {
		return func(w http.ResponseWriter, _ *http.Request, _ http.Handler) {
			for i := 0; i+1 < len(header); i += 2 {
				w.Header().Set(header[i], header[i+1])
			}
			http.Error(w, "made by a test", code)
		}
	}
	isPack := func(r *http.Request) bool { return strings.HasSuffix(r.URL.Path, "/git-upload-pack") }
	for i, tc := range []struct {
		name  string
		fault func(http.ResponseWriter, *http.Request, http.Handler)
		want  string
		hangs bool // until the source's timeout, which is then short
	}{
		{"401", status(http.StatusUnauthorized), "AuthenticationFailed", false},
		{"403", status(http.StatusForbidden), "AuthenticationFailed", false},
		{"429", status(http.StatusTooManyRequests, "Retry-After", "3600"), "RateLimited", false},
		{"500", status(http.StatusInternalServerError), "FetchFailed", false},
		{"a list of branches that ends in the middle", func(w http.ResponseWriter, r *http.Request, h http.Handler) {
			h.ServeHTTP(&cut{ResponseWriter: w, left: 60}, r)
		}, "FetchFailed", false},
		{"a pack that ends in the middle", func(w http.ResponseWriter, r *http.Request, h http.Handler) {
			if isPack(r) {
				w = &cut{ResponseWriter: w, left: 100}
			}
			h.ServeHTTP(w, r)
		}, "FetchFailed", false},
		{"no answer", func(_ http.ResponseWriter, r *http.Request, _ http.Handler) { <-r.Context().Done() }, "Timeout", true},
		{"a pack that hangs in the middle", func(w http.ResponseWriter, r *http.Request, h http.Handler) {
			if isPack(r) {
				w = &cut{ResponseWriter: w, left: 100, hangs: r.Context().Done()}
			}
			h.ServeHTTP(w, r)
		}, "Timeout", true},
	} {
		s := s.in(t)
		before := s.gs().Status.AppliedCommit
		s.timeout(tc.hangs)
		fault.Store(&tc.fault)
		next := s.push(map[string]string{"deploy/a.yaml": configMap("a", fmt.Sprintf("v%d", i+1)), "deploy/b.yaml": configMap("b", fmt.Sprintf("v%d", i)+value)})
		message := s.unready(tc.want)
		t.Logf("%s: %s", tc.name, message)
		if strings.Contains(message, "s3cret") {
			t.Errorf("%s: tells the password: %s", tc.name, message)
		}
		if v := get(s, "a", &corev1.ConfigMap{}).Data["value"]; v != fmt.Sprintf("v%d", i) || s.gs().Status.AppliedCommit != before {
			t.Errorf("%s: a is %q, applied %s", tc.name, v, s.gs().Status.AppliedCommit)
		}
		fault.Store(nil)
		s.timeout(false)
		s.lookNow()
		s.applied(next)
	}
}

// timeout sets how long an answer may take: a short time only where the test waits for
// its end.
func (s *env) timeout(short bool) {
	s.Helper()
	gs := s.gs()
	if gs.Spec.Timeout.Duration = 30 * time.Second; short {
		gs.Spec.Timeout.Duration = 2 * time.Second
	}
	s.write(gs)
}

// unready waits until Ready is False for a reason, and returns the message.
func (s *env) unready(reason string) (message string) {
	s.Helper()
	clustertest.Wait(s, "Ready to be False: "+reason, func() error {
		gs := s.gs()
		c := meta.FindStatusCondition(gs.Status.Conditions, "Ready")
		if c == nil || c.Status != metav1.ConditionFalse || c.Reason != reason {
			return fmt.Errorf("%s", said(gs))
		}
		message = c.Message
		return nil
	})
	return message
}

// A password that expires changes nothing in the cluster, and one that is rotated needs
// no restart and no wait for the interval. The order does not matter: the server's first
// or the Secret's.
func TestPasswordRotated(t *testing.T) {
	t.Parallel()
	s := newEnv(t, gitsyncOnly)
	var password atomic.Value
	password.Store("0ld")
	server := gittest.Serve(t, filepath.Dir(s.repo.Bare), gittest.ServeOptions{Wrap: func(h http.Handler) http.Handler {
		return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			if _, given, _ := r.BasicAuth(); given != password.Load() {
				w.Header().Set("WWW-Authenticate", `Basic realm="git"`)
				http.Error(w, "expired", http.StatusUnauthorized)
				return
			}
			h.ServeHTTP(w, r)
		})
	}})
	secret := &corev1.Secret{ObjectMeta: metav1.ObjectMeta{Name: "git", Namespace: s.ns}, StringData: map[string]string{"username": "ada", "password": "0ld"}}
	s.must(s.c.Client.Create(t.Context(), secret))
	first := s.push(map[string]string{"deploy/a.yaml": configMap("a", "one")})
	s.source(func(gs *v1alpha1.GitSource) {
		gs.Spec.URL = server.URL + "/repo.git"
		gs.Spec.SecretRef = &v1alpha1.LocalObjectReference{Name: "git"}
	})
	s.applied(first)

	rotate := func(to string) {
		s.must(s.c.Client.Get(t.Context(), client.ObjectKeyFromObject(secret), secret))
		secret.StringData = map[string]string{"password": to}
		s.must(s.c.Client.Update(t.Context(), secret))
	}
	password.Store("n3w") // the server first: the old one has expired
	second := s.push(map[string]string{"deploy/a.yaml": configMap("a", "two")})
	s.lookNow()
	if m := s.unready("AuthenticationFailed"); !strings.Contains(m, "Secret "+s.ns+"/git") || strings.Contains(m, "0ld") {
		t.Errorf("%q does not name the Secret, or tells the password", m)
	}
	if v := get(s, "a", &corev1.ConfigMap{}).Data["value"]; v != "one" {
		t.Errorf("a is %q", v)
	}
	rotate("n3w")
	s.applied(second)

	rotate("n3wer") // the Secret first
	s.unready("AuthenticationFailed")
	third := s.push(map[string]string{"deploy/a.yaml": configMap("a", "three")})
	password.Store("n3wer")
	s.lookNow()
	s.applied(third)
}
