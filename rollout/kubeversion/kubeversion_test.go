package kubeversion

import (
	"errors"
	"strings"
	"testing"

	"k8s.io/apimachinery/pkg/version"
)

// server answers with a version, or with an error.
type server struct {
	version.Info
	err error
}

func (s *server) ServerVersion() (*version.Info, error) { return &s.Info, s.err }

func TestMinor(t *testing.T) {
	for _, tc := range []struct {
		reason       string
		major, minor string
		want         int
		refused      string
	}{
		{"the oldest", "1", "34", 34, ""},
		{"a provider adds a sign", "1", "35+", 35, ""},
		{"one that this program has never seen", "1", "61", 61, ""},
		{"too old", "1", "33", 0, "the cluster runs Kubernetes 1.33 (v1.33.0-test), and Tranche needs 1.34 or later; upgrade the cluster first"},
		{"too old, by a provider", "1", "9+", 0, "Kubernetes 1.9 "},
		{"another major version", "2", "40", 0, "Kubernetes 2.40 "},
		{"no version", "", "", 0, `"."" is not a version`},
	} {
		s := &server{Info: version.Info{Major: tc.major, Minor: tc.minor, GitVersion: "v" + tc.major + "." + tc.minor + ".0-test"}}
		got, err := Minor(s)
		if got != tc.want || (err != nil) != (tc.refused != "") || err != nil && !strings.Contains(err.Error(), tc.refused) {
			t.Errorf("%s: %d, %v", tc.reason, got, err)
		}
	}
}

// The cluster is upgraded while the controller runs. A version that cannot be read is the last one.
func TestVersion_Upgrade(t *testing.T) {
	s := &server{Info: version.Info{Major: "1", Minor: "35"}}
	v, err := Read(s)
	if err != nil {
		t.Fatal(err)
	}
	for _, step := range []struct {
		minor string
		err   error
		want  int
	}{{"35", nil, 35}, {"36", nil, 36}, {"37", errors.New("connection refused"), 36}, {"33", nil, 36}, {"37", nil, 37}, {"36", nil, 36}} {
		s.Minor, s.err = step.minor, step.err
		v.refresh(t.Context())
		if v.Minor() != step.want {
			t.Errorf("the server says %s, %v: %d, want %d", step.minor, step.err, v.Minor(), step.want)
		}
	}
}
