package prometheus_test

import (
	"fmt"
	"net/http"
	"net/http/httptest"
	"net/netip"
	"strings"
	"testing"
	"time"

	"github.com/tranche-dev/tranche/rollout/analysis/outbound"
	"github.com/tranche-dev/tranche/rollout/analysis/prometheus"
	"github.com/tranche-dev/tranche/rollout/analysis/unknown"
)

// The values of a range are those of the window: no more than it has, and of no other time.
func TestSamples_OfTheWindow(t *testing.T) {
	to := time.Unix(1_800_000_000, 0)
	from := to.Add(-time.Minute)
	for name, c := range map[string]struct {
		seconds []int64 // of the values, after the begin of the window
		want    string  // a reason; empty: it is an answer
	}{
		"all of it":              {[]int64{10, 20, 30, 40, 50, 60}, ""},
		"at multiples of a step": {[]int64{4, 14, 24, 34, 44, 54, 64}, ""},
		"a part of it":           {[]int64{40}, ""},
		"one too many":           {[]int64{1, 10, 20, 30, 40, 50, 55, 60}, unknown.BadAnswer},
		"of 1970":                {[]int64{-1_799_999_000}, unknown.BadAnswer},
		"of the window before":   {[]int64{-20, 10}, unknown.BadAnswer},
		"of tomorrow":            {[]int64{10, 86_400}, unknown.BadAnswer},
	} {
		var points []string
		for _, s := range c.seconds {
			points = append(points, fmt.Sprintf(`[%d,"1"]`, from.Unix()+s))
		}
		server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
			_, _ = fmt.Fprintf(w, `{"status":"success","data":{"resultType":"matrix","result":[{"values":[%s]}]}}`, strings.Join(points, ","))
		}))
		client, err := outbound.NewClients(outbound.Options{
			Now: time.Now, MayReach: func(netip.Addr) error { return nil },
		}).For(false, outbound.TLS{})
		if err != nil {
			t.Fatal(err)
		}
		asked := prometheus.Server{Client: client, Address: server.URL}
		got, err := asked.Samples(t.Context(), "x", from, to, 10*time.Second)
		server.Close()
		switch {
		case c.want == "" && (err != nil || len(got) != len(c.seconds)):
			t.Errorf("%s: %v, %v", name, got, err)
		case c.want != "" && (err == nil || unknown.Of(err).Reason != c.want):
			t.Errorf("%s: %v, %v, want %s", name, got, err, c.want)
		}
	}
}
