package webhook

import (
	"context"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/tranche-dev/tranche/rollout/clustertest"
)

// counted counts what is read of whole Secrets.
type counted struct {
	client.Reader
	reads int
}

func (c *counted) Get(ctx context.Context, key client.ObjectKey, o client.Object, opts ...client.GetOption) error {
	c.reads++
	return c.Reader.Get(ctx, key, o, opts...)
}

// A token is read again if its Secret has changed, and not otherwise.
func TestTokens(t *testing.T) {
	c := clustertest.Shared(t)
	ns := c.Namespace(t)
	own, tokens := &counted{Reader: c.Client}, &tokenCache{}
	secret := func(token string) *corev1.Secret {
		return &corev1.Secret{
			ObjectMeta: metav1.ObjectMeta{Name: "hook", Namespace: ns}, StringData: map[string]string{keyToken: token},
		}
	}
	check := func(when, want string, reads int) {
		t.Helper()
		own.reads = 0
		got, err := tokens.of(t.Context(), c.Client, own, client.ObjectKey{Namespace: ns, Name: "hook"})
		if string(got) != want || (err == nil) != (want != "") || own.reads != reads {
			t.Errorf("%s: token %q, %v, %d reads; want %q, %d reads", when, got, err, own.reads, want, reads)
		}
	}
	must := func(err error) {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
	}
	check("before there is one", "", 1)
	must(c.Client.Create(t.Context(), secret("one")))
	check("at first", "one", 1)
	check("again", "one", 0)
	must(c.Client.Update(t.Context(), secret("two")))
	check("after it was changed", "two", 1)
	must(c.Client.Delete(t.Context(), secret("")))
	check("after it was deleted", "", 1)
	must(c.Client.Create(t.Context(), secret("three")))
	check("after it was made again", "three", 1)
	must(c.Client.Update(t.Context(), secret("")))
	check("after its token was taken out", "", 1)
	check("again", "", 1)
}
