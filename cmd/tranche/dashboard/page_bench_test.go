package dashboard_test

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/tranche-dev/tranche/cmd/tranche/clitest"
)

// BenchmarkPage is the time from the opening of the page until a browser shows its table,
// and until the table is filtered.
func BenchmarkPage(b *testing.B) {
	for _, n := range []int{1000, 5000} {
		b.Run(fmt.Sprintf("releases=%d", n), func(b *testing.B) {
			_, config := newAPIServer(b, n)
			url := serve(b, config)
			tab := clitest.NewBrowser(b, "web").Tab("bench", nil)
			tab.Opens(url)
			var filtered time.Duration
			for b.Loop() {
				tab.Opens(strings.SplitN(url, "?", 2)[0] + "releases")
				tab.Sees("main", fmt.Sprintf("200 of %d releases", n))
				began := time.Now()
				tab.Does("fill", nil, map[string]any{"tab": "bench", "selector": "input[type=search]", "text": "web-0007"})
				tab.Sees("main", "1 of 1 release")
				filtered += time.Since(began)
			}
			b.ReportMetric(float64(filtered.Milliseconds())/float64(b.N), "ms/filter")
		})
	}
}
