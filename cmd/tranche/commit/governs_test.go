package commit

import (
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/tranche-dev/tranche/cmd/tranche/clitest"
	"github.com/tranche-dev/tranche/rollout/clustertest"
)

const base = "resources:\n- deployment.yaml\n- release.yaml\n"

const overlay = "resources:\n- ../../base\n# how many\nreplicas:\n- {name: web, count: 3}\n"

// pauseBaseRows are the rows of TestPause_Base.
var pauseBaseRows = []struct {
	why      string
	overlays []string
	flags    pauseOptions
	answer   string
	err      string
	want     []string // the overlays that are paused
	files    string   // that the commit changes
}{
	{
		"--yes does not agree to it", []string{"production", "staging"}, pauseOptions{}, "",
		"base/release.yaml governs more than shop/web: overlays/staging; nothing was changed. Give --overlay to write a patch into " +
			"overlays/production/kustomization.yaml, or --base",
		nil, "",
	},
	{
		"the overlay alone", []string{"production", "staging"}, pauseOptions{overlay: true}, "", "", []string{"production"},
		"overlays/production/kustomization.yaml",
	},
	{
		"the overlay is offered", []string{"production", "staging"}, pauseOptions{}, "y\ny\n", "", []string{"production"},
		"overlays/production/kustomization.yaml",
	},
	{"and declined", []string{"production", "staging"}, pauseOptions{}, "n\n", "not committed; give --base", nil, ""},
	{
		"all that the base governs", []string{"production", "staging"}, pauseOptions{base: true}, "", "",
		[]string{"production", "staging"}, "base/release.yaml",
	},
	{"nothing else takes the base", []string{"production"}, pauseOptions{}, "", "", []string{"production"}, "base/release.yaml"},
}

// A base that two overlays take: the plan is paused in one of them, or in both where that
// is asked for. kubectl kustomize says what is.
func TestPause_Base(t *testing.T) {
	root, err := clustertest.Root()
	if err != nil {
		t.Fatal(err)
	}
	for _, tc := range pauseBaseRows {
		t.Run(tc.why, func(t *testing.T) {
			st, _ := commandIn(t)
			s := clitest.Clone{TB: t, Dir: st.clone.Dir}
			s.Run("mkdir", "base")
			s.Run("git", "mv", "deployment.yaml", "release.yaml", "service.yaml", "base")
			s.Write("base/kustomization.yaml", base)
			for _, name := range tc.overlays {
				s.Write("overlays/"+name+"/kustomization.yaml", overlay)
			}
			s.Run("git", "add", ".")
			s.Run("git", "commit", "--quiet", "-m", "overlays")
			head := s.Run("git", "rev-parse", "HEAD")
			st.source.Spec.Path = "overlays/production"
			if st.yes = tc.answer == ""; !st.yes {
				st.cmd.SetIn(&lineReader{tc.answer})
			}
			paused := func() []string {
				var names []string
				for _, name := range tc.overlays {
					out, err := exec.Command(filepath.Join(root, "bin", "kubectl"), "kustomize", filepath.Join(s.Dir, "overlays", name)).CombinedOutput()
					if err != nil {
						t.Fatalf("%v: %s", err, out)
					}
					if strings.Contains(string(out), "\n  paused: true\n") {
						names = append(names, name)
					}
				}
				return names
			}
			err := st.pause(true, tc.flags.overlay, tc.flags.base)
			if (err == nil) != (tc.err == "") || err != nil && !strings.Contains(err.Error(), tc.err) {
				t.Errorf("%v, want %q", err, tc.err)
			}
			if diff := cmp.Diff(tc.want, paused()); diff != "" {
				t.Errorf("paused are (-want +got):\n%s", diff)
			}
			if got := s.Run("git", "diff", "--name-only", head, "HEAD"); got != tc.files {
				t.Errorf("changed are %s, want %s", got, tc.files)
			}
			if dirty := s.Run("git", "status", "--porcelain"); dirty != "" || tc.err != "" {
				if dirty != "" {
					t.Errorf("the clone is not clean: %s", dirty)
				}
				return
			}
			st.yes = true
			if err := st.pause(false, false, true); err != nil {
				t.Fatal(err)
			}
			if got := paused(); got != nil {
				t.Errorf("resumed, and still paused are %v", got)
			}
			if tc.files == "overlays/production/kustomization.yaml" {
				if got := s.Run("git", "diff", head, "HEAD"); got != "" {
					t.Errorf("something is left:\n%s", got)
				}
			}
		})
	}
}

// lineReader gives a line at a time, as a terminal does.
type lineReader struct{ text string }

func (r *lineReader) Read(p []byte) (int, error) {
	line, rest, _ := strings.Cut(r.text, "\n")
	r.text = rest
	return copy(p, line+"\n"), nil
}
