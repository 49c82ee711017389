package controller

import (
	"context"
	"errors"
	"io"
	"net/http"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	apischema "k8s.io/apimachinery/pkg/runtime/schema"
)

// refusal stands for a read that the API server refuses.
const refusal = "403"

// scripted answers reads of the resourceVersion, one after the other. An empty answer is an
// error.
func scripted(answers ...string) *rewind {
	return &rewind{wake: make(chan struct{}, 1), lost: make(chan struct{}), read: func(context.Context) (string, error) {
		answer := answers[0]
		answers = answers[1:]
		switch answer {
		case "":
			return "", errors.New("connection refused")
		case refusal:
			return "", apierrors.NewForbidden(apischema.GroupResource{Group: "apps", Resource: "deployments"}, "", errors.New("no right"))
		}
		return answer, nil
	}}
}

// answersIn returns the answers of a text. A hyphen is an error.
func answersIn(text string) (answers []string) {
	for _, a := range strings.Fields(text) {
		answers = append(answers, strings.TrimPrefix(a, "-"))
	}
	return answers
}

func (r *rewind) isLost() bool {
	select {
	case <-r.lost:
		return true
	default:
		return false
	}
}

func TestRewind_Check(t *testing.T) {
	for _, tc := range []struct {
		reason, answers string
		writes, lost    bool
	}{
		{"it goes forwards", "7 8", true, false},
		{"nothing was written meanwhile", "7 7", true, false},
		{"one with more digits is newer", "99 100", true, false},
		{"etcd was restored", "100 99", false, true},
		{"the API server cannot be reached", "7 -", false, false},
		{"the API server is back", "7 - 8", true, false},
		{"etcd was restored while the API server was away", "7 - - 6", false, true},
		{"etcd was restored, and is newer again", "7 6 8", false, true},
		{"it is no number, and cannot be compared", "b a", true, false},
	} {
		t.Run(tc.reason, func(t *testing.T) {
			answers := answersIn(tc.answers)
			r := scripted(answers...)
			for range answers {
				r.check(t.Context())
			}
			if err := r.mayWrite(); (err == nil) != tc.writes || r.isLost() != tc.lost {
				t.Errorf("it may write: %v; it is lost: %t", err, r.isLost())
			}
		})
	}
}

// An outage may hide a restore of etcd, if it is longer than that of a short restart.
func TestRewind_Outage(t *testing.T) {
	for _, tc := range []struct {
		reason, answers string
		lost            bool
	}{
		{"it never answered before", strings.Repeat("- ", 60) + "8", false},
		{"no outage", strings.Repeat("8 ", 60), false},
		{"a short restart", "7 " + strings.Repeat("- ", 10) + "8", false},
		{"an outage of a minute", "7 " + strings.Repeat("- ", 29) + "8", true},
		{"an outage that has not ended", "7 " + strings.Repeat("- ", 29), false},
		{"short restarts", strings.Repeat("7 "+strings.Repeat("- ", 10), 5), false},
		{"refusals of 50 s", "7 " + strings.Repeat(refusal+" ", 25) + "8", false},
		{"refusals of 50 s, again and again", strings.Repeat("7 "+strings.Repeat(refusal+" ", 25), 3), false},
		{"refusals of a minute", "7 " + strings.Repeat(refusal+" ", 31), true},
		{"an outage among refusals", "7 " + strings.Repeat(refusal+" ", 10) + "- " + strings.Repeat(refusal+" ", 10) + "8", true},
		{"a short outage among refusals", "7 " + refusal + " - " + refusal + " 8", false},
	} {
		t.Run(tc.reason, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				answers := answersIn(tc.answers)
				r := scripted(answers...)
				for range answers {
					r.check(t.Context())
					time.Sleep(rewindPeriod)
				}
				if r.isLost() != tc.lost {
					t.Errorf("it is lost: %t", r.isLost())
				}
				const want = "Deployment could not be read for 1m0s"
				if tc.reason == "refusals of a minute" && !strings.Contains(r.because.Error(), want) {
					t.Errorf("it ends because %v; want %s", r.because, want)
				}
			})
		})
	}
}

// A request without an answer stops all writes until the resourceVersion has been read, and no
// read. Writes wait for it, so one lost answer fails no other request.
func TestRewind_Guard(t *testing.T) {
	synctest.Test(t, testRewindGuard)
}

func testRewindGuard(t *testing.T) {
	r := scripted("7", "8", "", "9", "6")
	r.check(t.Context())
	var fault error
	c := r.guard(roundTripper(func(*http.Request) (*http.Response, error) { return &http.Response{StatusCode: http.StatusOK}, fault }))
	ask := func(method string) error {
		q, err := http.NewRequestWithContext(t.Context(), method, "https://example.org", http.NoBody)
		if err != nil {
			t.Fatal(err)
		}
		_, err = c.RoundTrip(q)
		return err
	}
	expect := func(when, method string, ok bool) {
		t.Helper()
		if err := ask(method); (err == nil) != ok {
			t.Errorf("%s: %s: %v", when, method, err)
		}
	}
	expect("at first", http.MethodPatch, true)
	fault = errors.New("connection refused")
	expect("unreachable", http.MethodGet, false)
	fault = nil
	expect("before the check", http.MethodGet, true)
	waits := func(when string, ok bool) {
		t.Helper()
		ended := make(chan error, 1)
		go func() { ended <- ask(http.MethodPatch) }()
		synctest.Wait()
		if len(ended) > 0 {
			t.Errorf("%s: a write did not wait for the check: %v", when, <-ended)
		}
		r.check(t.Context())
		if err := <-ended; (err == nil) != ok {
			t.Errorf("%s: %v", when, err)
		}
	}
	waits("before the check", true)
	expect("after the check", http.MethodPatch, true)
	r.suspect(errors.New("EOF"))
	waits("the API server is away", false)
	expect("the API server is away", http.MethodPatch, false) // at once
	r.check(t.Context())
	expect("the API server is back", http.MethodPatch, true)
	r.suspect(errors.New("EOF"))
	waits("after a restore", false)
	expect("after a restore", http.MethodPost, false)
	expect("after a restore", http.MethodGet, true)
}

// A dry run without an answer is sent again, each time with its body and after a check. Another
// write is not: it may have been done.
func TestRewind_GuardSendsDryRunsAgain(t *testing.T) {
	for _, tc := range []struct {
		reason, query string
		lost, sent    int
		ok            bool
	}{
		{"a dry run has an answer", "?dryRun=All", 0, 1, true},
		{"two answers to a dry run are lost", "?dryRun=All", 2, 3, true},
		{"three answers to a dry run are lost", "?dryRun=All", 3, 3, false},
		{"the answer to a write is lost", "?fieldManager=a", 1, 1, false},
	} {
		t.Run(tc.reason, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				r := scripted("7", "8", "9", "10", "11", "12")
				r.check(t.Context())
				var bodies []string
				c := r.guard(roundTripper(func(q *http.Request) (*http.Response, error) {
					if err := r.mayWrite(); err != nil {
						t.Errorf("it was sent before a check: %v", err)
					}
					body, err := io.ReadAll(q.Body)
					bodies = append(bodies, string(body))
					if err == nil && len(bodies) <= tc.lost {
						err = errors.New("EOF")
					}
					return &http.Response{StatusCode: http.StatusOK}, err
				}))
				q, err := http.NewRequestWithContext(t.Context(), http.MethodPatch, "https://example.org/x"+tc.query, strings.NewReader("{}"))
				if err != nil {
					t.Fatal(err)
				}
				ctx, cancel := context.WithCancel(t.Context())
				defer cancel()
				go r.watch(ctx)
				if _, err = c.RoundTrip(q); (err == nil) != tc.ok {
					t.Errorf("it ended with %v", err)
				}
				if want := slices.Repeat([]string{"{}"}, tc.sent); !slices.Equal(bodies, want) {
					t.Errorf("sent %q; want %q", bodies, want)
				}
			})
		})
	}
}

// The process ends without waiting for the manager.
func TestRewind_Run(t *testing.T) {
	r := scripted("7", "6", "8", "9")
	r.suspect(errors.New("connection refused"))
	err := fences{rewind: r, schemas: &schemas{}, sight: newSight()}.run(t.Context(), func(context.Context) error {
		select {}
	})
	if err == nil || !strings.Contains(err.Error(), "went back from 7 to 6") {
		t.Errorf("it ended with %v", err)
	}
}
