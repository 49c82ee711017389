package bootstrap

import (
	"strings"
	"testing"
)

// The account that a controller applies as by default is one of its arguments.
func TestDefaultAccount(t *testing.T) {
	for args, want := range map[string]string{
		"":                          "",
		"controller --leader-elect": "",
		"controller --default-service-account=nobody --leader-elect": "nobody",
		"controller --default-service-account nobody":                "nobody",
		"controller --default-service-account":                       "",
	} {
		if got := defaultAccount(strings.Fields(args)); got != want {
			t.Errorf("%q: got %q, want %q", args, got, want)
		}
	}
}
