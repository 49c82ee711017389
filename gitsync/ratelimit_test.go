package gitsync

import (
	"errors"
	"net/http"
	"path/filepath"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/tranche-dev/tranche/gitsync/gitserver"
	"github.com/tranche-dev/tranche/gitsync/gittest"
	"github.com/tranche-dev/tranche/gitsync/outcome"
	"github.com/tranche-dev/tranche/gitsync/repository"
	"github.com/tranche-dev/tranche/plan"
	"github.com/tranche-dev/tranche/plan/v1alpha1"
)

// A server that limits requests is reported as such. It is left alone for the time that
// it asks for, whatever the interval.
func TestRateLimit(t *testing.T) {
	repo := gittest.NewRepo(t)
	repo.CommitAndPush(map[string]string{"a": "1"})
	for _, tc := range []struct {
		reason string
		status int
		header string
		want   string // reason of the problem
		least  time.Duration
	}{
		{"429 with a time", http.StatusTooManyRequests, "600", v1alpha1.ReasonRateLimited, 10 * time.Minute},
		{"429 without", http.StatusTooManyRequests, "", v1alpha1.ReasonRateLimited, time.Second},
		{"503 with a time", http.StatusServiceUnavailable, "120", v1alpha1.ReasonRateLimited, 2 * time.Minute},
		{"503 without", http.StatusServiceUnavailable, "", v1alpha1.ReasonFetchFailed, 0},
	} {
		t.Run(tc.reason, func(t *testing.T) {
			server := gittest.Serve(t, filepath.Dir(repo.Bare), gittest.ServeOptions{Wrap: func(http.Handler) http.Handler {
				return http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
					if tc.header != "" {
						w.Header().Set("Retry-After", tc.header)
					}
					http.Error(w, "slow down", tc.status)
				})
			}})
			u, err := gitserver.ParseURL(server.URL + "/repo.git")
			if err != nil {
				t.Fatal(err)
			}
			r := gitserver.Remote{URL: u}
			_, err = repository.NewCache(t.TempDir()).Of(r).Fetch(t.Context(), r, "main")
			p, ok := errors.AsType[*plan.Problem](err)
			if !ok || p.Reason != tc.want || !p.Retry {
				t.Fatalf("%v, want %s", err, tc.want)
			}
			t.Log(p.Error())
			gs := &v1alpha1.GitSource{Spec: v1alpha1.GitSourceSpec{Interval: metav1.Duration{Duration: time.Second}}}
			o := outcome.Outcome{Problems: plan.Problems{p}}
			if next := o.Next(gs); next < tc.least || next > max(tc.least*11/10, outcome.RetryWithin) {
				t.Errorf("asked again after %s, want %s", next, tc.least)
			}
		})
	}
}
