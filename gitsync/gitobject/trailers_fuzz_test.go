package gitobject

import (
	"strings"
	"testing"
)

// FuzzTrailers: whatever a commit message is, a trailer is one line of its last
// paragraph, with our key and a value without a break.
func FuzzTrailers(f *testing.F) {
	f.Add("web: v2\n\nTranche-Release: shop/web\nTranche-Step: 1\n")
	f.Add("Revert\n\nThis reverts commit 1.\n\nTranche-Release: a/b\r\nTranche-Release: a/c\n\n\n")
	f.Add("Tranche-Release: shop/web")
	f.Add("a\n\n Tranche-Step : 1\nTranche-Step:1\nTranche-: \n")
	f.Fuzz(func(t *testing.T, message string) {
		last := strings.TrimRight(message, "\n")
		last = last[strings.LastIndex(last, "\n\n")+1:]
		for key, values := range Trailers(message) {
			if !strings.HasPrefix(key, "Tranche-") || len(values) == 0 {
				t.Errorf("trailer %q: %q", key, values)
			}
			for _, v := range values {
				if strings.Contains(v, "\n") || strings.TrimSpace(v) != v || !strings.Contains(last, key+": ") {
					t.Errorf("trailer %q: %q", key, v)
				}
			}
		}
	})
}
