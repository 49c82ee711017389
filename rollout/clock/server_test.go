package clock_test

import (
	"fmt"
	"net/http"
	"net/http/httptest"
	"testing"
	"time"

	"github.com/tranche-dev/tranche/rollout/clock"
)

// The date of the last answer counts, and an answer without one changes nothing.
func TestServer(t *testing.T) {
	date := ""
	answers := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		w.Header()["Date"] = nil
		if date != "" {
			w.Header().Set("Date", date)
		}
	}))
	defer answers.Close()
	server := clock.NewServer(time.Now)
	c := &http.Client{Transport: server.Wrap(http.DefaultTransport)}
	isAhead := func(why string, want time.Duration) {
		t.Helper()
		if off := time.Until(server.Now()) - want; off.Abs() > time.Minute {
			t.Errorf("%s: the server is %s from %s ahead", why, off, want)
		}
	}
	isAhead("before an answer", 0)
	const day = 24 * time.Hour
	for _, step := range []struct{ ahead, want time.Duration }{{time.Hour, time.Hour}, {-day, -day}, {0, -day}} {
		date = ""
		if step.ahead != 0 {
			date = time.Now().Add(step.ahead).UTC().Format(http.TimeFormat)
		}
		resp, err := c.Get(answers.URL)
		if err != nil {
			t.Fatal(err)
		}
		_ = resp.Body.Close()
		isAhead(fmt.Sprintf("after the answer of %q", date), step.want)
	}
	if _, err := c.Get("http://127.0.0.1:1"); err == nil {
		t.Error("nothing answers there")
	}
	isAhead("after no answer", -day)
}
