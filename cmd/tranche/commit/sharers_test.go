package commit

import (
	"bytes"
	"context"
	"errors"
	"slices"
	"strings"
	"testing"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/tranche-dev/tranche/cmd/tranche/cli"
	"github.com/tranche-dev/tranche/cmd/tranche/clitest"
	"github.com/tranche-dev/tranche/plan/v1alpha1"
)

// sourcesOf is a cluster that has only GitSources. An account may list those of a
// namespace, and not always all.
type sourcesOf struct {
	client.Client
	sources []v1alpha1.GitSource
	bounded bool
}

func (c sourcesOf) List(_ context.Context, list client.ObjectList, opts ...client.ListOption) error {
	var o client.ListOptions
	o.ApplyOptions(opts)
	if c.bounded && o.Namespace == "" {
		return apierrors.NewForbidden(v1alpha1.GroupVersion.WithResource("gitsources").GroupResource(), "", errors.New("not of the cluster"))
	}
	if o.Namespace != "" {
		list.(*v1alpha1.GitSourceList).Items = slices.DeleteFunc(slices.Clone(c.sources), func(gs v1alpha1.GitSource) bool { return gs.Namespace != o.Namespace })
		return nil
	}
	list.(*v1alpha1.GitSourceList).Items = append([]v1alpha1.GitSource{}, c.sources...)
	return nil
}

// A base that two GitSources render: the command names what it would move of the other
// one, and --yes does not agree to that. The overlay of one source moves that one alone.
func TestRollback_OnASharedBase(t *testing.T) {
	tag := func(v string) string {
		return "resources: [../base]\nimages: [{name: registry.example.org/web, newTag: " + v + "}]\n"
	}
	const both = "resources: [../base]\n"
	line := "the same lines released BatchRelease k/web of GitSource k/src (registry.example.org/web:v2 → registry.example.org/web:v1), which would go back, too; nothing was changed. To roll back all of them, give --with k/web"
	for _, tc := range []struct {
		why   string
		v1    map[string]string // beside the base
		v2    map[string]string // beside the base
		more  string            // path of one more source
		with  []string
		files string // that the commit changes
		err   string
	}{
		{"--yes does not agree to it", nil, nil, "", nil, "", line},
		{"the other one is asked for", nil, nil, "", []string{"k/web"}, "base/deployment.yaml", ""},
		{"one that is not there", nil, nil, "", []string{"k/api"}, "", "--with k/api: the branch has no such BatchRelease"},
		{"the overlay has an image of its own", map[string]string{"j/kustomization.yaml": tag("v1")}, map[string]string{"j/kustomization.yaml": tag("v2")}, "", nil, "j/kustomization.yaml", ""},
		{"the other overlay has an image of its own", map[string]string{"k/kustomization.yaml": tag("v7")}, nil, "", nil, "base/deployment.yaml", ""},
		{"one that does not render", map[string]string{"k/kustomization.yaml": "resources: [missing.yaml, ../base]\n"}, nil, "", nil, "", "the same lines released what GitSource k/src renders (not known: "},
		{"one that does not render elsewhere", map[string]string{"k/kustomization.yaml": tag("v7"), "x/kustomization.yaml": "resources: [missing.yaml]\n"}, nil, "x", nil, "base/deployment.yaml", ""},
	} {
		t.Run(tc.why, func(t *testing.T) {
			st, _ := commandIn(t)
			s := clitest.Clone{TB: t, Dir: st.clone.Dir}
			commit := func(message string, files map[string]string) string {
				for name, text := range files {
					s.Write(name, text)
				}
				s.Run("git", "add", ".")
				s.Run("git", "commit", "--quiet", "-m", message)
				return s.Run("git", "rev-parse", "HEAD")
			}
			s.Run("mkdir", "base")
			s.Run("git", "mv", "deployment.yaml", "release.yaml", "base")
			s.Write("base/kustomization.yaml", "resources: [deployment.yaml, release.yaml]\n")
			s.Write("j/kustomization.yaml", "namespace: j\n"+both)
			s.Write("k/kustomization.yaml", "namespace: k\n"+both)
			commit("v1", tc.v1)
			s.Replace("base/deployment.yaml", "web:v1", "web:v2")
			v2 := commit("v2", tc.v2)
			source := func(namespace, path string) v1alpha1.GitSource {
				return v1alpha1.GitSource{
					ObjectMeta: metav1.ObjectMeta{Name: "src", Namespace: namespace, UID: types.UID(namespace)},
					Spec:       v1alpha1.GitSourceSpec{Path: path, Ref: v1alpha1.GitReference{Branch: "main"}},
				}
			}
			cluster := sourcesOf{sources: []v1alpha1.GitSource{source("j", "j"), source("k", "k")}}
			if tc.more != "" {
				cluster.sources = append(cluster.sources, source("x", tc.more))
			}
			st.at = &cli.Connection{Client: cluster}
			st.source = &cluster.sources[0]
			st.release.Namespace, st.release.Spec.Commit = "j", v2
			err := st.rollback("", tc.with)
			if (err == nil) != (tc.err == "") || err != nil && !strings.Contains(err.Error(), tc.err) {
				t.Errorf("%v, want %q", err, tc.err)
			}
			if got := s.Run("git", "diff", "--name-only", v2, "HEAD"); got != tc.files {
				t.Errorf("changed are %s, want %s", got, tc.files)
			}
			if dirty := s.Run("git", "status", "--porcelain"); dirty != "" {
				t.Errorf("the clone is not clean: %s", dirty)
			}
		})
	}
}

// An account that may not list the GitSources of other namespaces cannot know which of them
// the files move. The commands say so, and go on. A problem that the branch has is
// shown with the change.
func TestRollback_SourcesThatMayNotBeListed(t *testing.T) {
	const hidden = "Not checked: whether GitSources of other namespaces take the same files: "
	const problem = "The branch has a problem already:\nGitSource shop/shop, main of , applied -: DryRunFailed: service.yaml: port\n"
	for _, bounded := range []bool{true, false} {
		st, _ := commandIn(t, [2]string{"deployment.yaml", "web:v1 => web:v2"})
		st.at = &cli.Connection{Client: sourcesOf{bounded: bounded}}
		if bounded {
			meta.SetStatusCondition(&st.source.Status.Conditions, metav1.Condition{Type: "Ready", Status: metav1.ConditionFalse, Reason: "DryRunFailed", Message: "service.yaml: port"})
		}
		var out bytes.Buffer
		st.cmd.SetOut(&out)
		if err := st.rollback("", nil); err != nil {
			t.Fatal(err)
		}
		if text := out.String(); strings.Contains(text, hidden) != bounded || strings.Contains(text, problem) != bounded || !strings.Contains(text, "Committed ") {
			t.Errorf("where it may not list all is %t, it says\n%s", bounded, text)
		}
		out.Reset()
		if err := st.pause(true, false, false); err != nil {
			t.Fatal(err)
		}
		if text := out.String(); strings.Contains(text, hidden) != bounded {
			t.Errorf("where it may not list all is %t, pause says\n%s", bounded, text)
		}
	}
}
