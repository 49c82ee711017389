package gitsync_test

import (
	"os"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/tranche-dev/tranche/gitsync/gittest"
	"github.com/tranche-dev/tranche/plan/v1alpha1"
)

// A deploy key that is rotated needs no restart and no wait for the interval, whichever
// side has the new one first. The same goes for the server's own key.
func TestSSHKeysRotated(t *testing.T) {
	t.Parallel()
	s := newEnv(t, gitsyncOnly)
	server := gittest.ServeSSH(t)
	files, keys := map[string]string{}, map[string]string{}
	for _, name := range []string{"one", "two", "three"} {
		files[name] = server.Key(name, "ed25519", "")
		text, err := os.ReadFile(files[name])
		s.must(err)
		keys[name] = string(text)
	}
	server.Only(files["one"])
	secret := &corev1.Secret{
		ObjectMeta: metav1.ObjectMeta{Name: "git", Namespace: s.ns},
		StringData: map[string]string{"identity": keys["one"], "known_hosts": server.KnownHosts("ed25519")},
	}
	s.must(s.c.Client.Create(t.Context(), secret))
	first := s.push(map[string]string{"deploy/a.yaml": configMap("a", "one")})
	s.source(func(gs *v1alpha1.GitSource) {
		gs.Spec.URL = server.URL(s.repo.Bare)
		gs.Spec.SecretRef = &v1alpha1.LocalObjectReference{Name: "git"}
		gs.Spec.Timeout.Duration = time.Minute // a busy machine takes long for the handshake
	})
	s.applied(first)

	rotate := func(data map[string]string) {
		s.must(s.c.Client.Get(t.Context(), client.ObjectKeyFromObject(secret), secret))
		secret.StringData = data
		s.must(s.c.Client.Update(t.Context(), secret))
	}
	server.Only(files["two"]) // the server first
	second := s.push(map[string]string{"deploy/a.yaml": configMap("a", "two")})
	s.lookNow()
	if m := s.unready("AuthenticationFailed"); !strings.Contains(m, "Secret "+s.ns+"/git") || strings.Contains(m, "PRIVATE KEY") {
		t.Errorf("%q does not name the Secret, or tells the key", m)
	}
	if v := get(s, "a", &corev1.ConfigMap{}).Data["value"]; v != "one" {
		t.Errorf("a is %q", v)
	}
	rotate(map[string]string{"identity": keys["two"]})
	s.applied(second)

	rotate(map[string]string{"identity": keys["three"]}) // the Secret first
	s.unready("AuthenticationFailed")
	third := s.push(map[string]string{"deploy/a.yaml": configMap("a", "three")})
	server.Only(files["three"])
	s.lookNow()
	s.applied(third)

	rotate(map[string]string{"known_hosts": server.KnownHosts(files["one"])}) // not the server's
	if m := s.unready("HostKeyMismatch"); !strings.Contains(m, server.Fingerprint("ed25519")) {
		t.Errorf("%q does not have the key that the server showed", m)
	}
	fourth := s.push(map[string]string{"deploy/a.yaml": configMap("a", "four")})
	rotate(map[string]string{"known_hosts": server.KnownHosts(files["one"]) + server.KnownHosts("ed25519")})
	s.applied(fourth)
}
