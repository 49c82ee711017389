package main

import (
	"fmt"
	"path/filepath"
	"testing"

	"sigs.k8s.io/yaml"

	"github.com/tranche-dev/tranche/cmd/tranche/clone"
	"github.com/tranche-dev/tranche/plan/v1alpha1"
)

// The commands that commit, `tranche approve` among them, accept the clone that
// `make dev` leaves to the user.
func TestStay_CloneIsOfTheSource(t *testing.T) {
	s := newStage(t.TempDir(), filepath.Join("..", ".."), t.TempDir())
	s.stay, s.url = true, "http://127.0.0.1:1/web.git"
	if _, err := s.output(t.Context(), s.dir, "git", "init", "--quiet", "--bare", "--initial-branch=main", s.bare()); err != nil {
		t.Fatal(err)
	}
	if err := s.seed(t.Context()); err != nil {
		t.Fatal(err)
	}
	var gs v1alpha1.GitSource
	if err := yaml.Unmarshal(fmt.Appendf(nil, source, s.followed()), &gs); err != nil {
		t.Fatal(err)
	}
	c, err := clone.Find(t.Context(), s.clone(), gs.Spec.URL)
	if err != nil {
		t.Fatal(err)
	}
	if c.Remote != "origin" {
		t.Errorf("the remote of the source is %q", c.Remote)
	}
}
