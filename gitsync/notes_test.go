package gitsync_test

import (
	"fmt"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"

	"github.com/tranche-dev/tranche/gitsync/gittest"
	"github.com/tranche-dev/tranche/plan/v1alpha1"
	"github.com/tranche-dev/tranche/rollout/clustertest"
)

// git log --notes=tranche shows the course of a release, beside what others have
// noted, and nothing is noted twice.
func TestNotes(t *testing.T) {
	t.Parallel()
	s := newRelease(t, func(gs *v1alpha1.GitSource) { gs.Spec.WriteBack = &v1alpha1.WriteBack{Notes: true} })
	release := s.release("web")
	revision, commit := release.Status.UpdateRevision, release.Spec.Commit
	noted := func(want ...string) string {
		t.Helper()
		note := ""
		clustertest.Wait(t, "the note", func() error {
			note = s.inBare("log", "-1", "--format=%N", "--notes=tranche", commit)
			for _, w := range want {
				if !strings.Contains(note, w) {
					return withSource(s, fmt.Errorf("%q is not in %q", w, note))
				}
			}
			return nil
		})
		return note
	}
	begun := noted("Tranche-Release: " + s.ns + "/web\nTranche-Revision: " + revision + "\nStarted: ")
	if strings.Contains(begun, "Outcome") {
		t.Errorf("it has not ended: %q", begun)
	}
	// Another user notes something, on the same commit and on another one.
	gittest.Git(t, s.repo.Bare, "notes", "--ref=tranche", "append", "-m", "Looked at by Grace", commit)
	gittest.Git(t, s.repo.Bare, "notes", "--ref=tranche", "add", "-m", "The first", commit+"~1")
	s.repo.Author = grace
	approved := s.push(map[string]string{"deploy/approvals/web.yaml": approvalOf("web", revision, commit, "0")})
	s.isAt("web", "ReleaseCompleted", 1)
	note := noted("Step 0: approved by "+grace+", ", ", in "+approved[:12], "Outcome: Completed, ", "Looked at by Grace")
	if strings.Count(note, "Tranche-Release") != 1 {
		t.Errorf("twice: %q", note)
	}
	if other := s.inBare("log", "-1", "--format=%N", "--notes=tranche", commit+"~1"); other != "The first" {
		t.Errorf("the other note is %q", other)
	}
	head := s.inBare("rev-parse", "refs/notes/tranche")
	for range 3 {
		s.lookNow()
	}
	if now := s.inBare("rev-parse", "refs/notes/tranche"); now != head {
		t.Errorf("noted again: %s", s.inBare("log", "--format=%h %s", "refs/notes/tranche"))
	}
	s.inBare("fsck", "--strict")
}

// A ref that names no commit takes no notes. The source stays Ready, and notes are written
// again when the ref is gone.
func TestNotes_RefIsNoCommit(t *testing.T) {
	t.Parallel()
	s := newRelease(t, func(gs *v1alpha1.GitSource) { gs.Spec.WriteBack = &v1alpha1.WriteBack{Notes: true} })
	gittest.Git(t, s.repo.Bare, "-c", "user.name=Mallory", "-c", "user.email=mallory@example.org", "tag", "-a", "-m", "x", "mine", "main")
	for what, object := range map[string]string{"tag": "mine", "blob": "main:deploy/web.yaml", "tree": "main^{tree}"} {
		gittest.Git(t, s.repo.Bare, "update-ref", "refs/notes/tranche", s.inBare("rev-parse", object))
		s.repo.CommitAndPush(map[string]string{
			"deploy/web.yaml":  web("v3"),
			"deploy/what.yaml": "apiVersion: v1\nkind: ConfigMap\nmetadata:\n  name: " + what + "\n",
		}, "web: v3, "+what)
		s.lookNow()
		clustertest.Wait(t, "the conflict", func() error {
			if c := s.inSync(); c.Reason != "WriteBackConflict" || !strings.Contains(c.Message, "refs/notes/tranche: it names "+what) {
				return fmt.Errorf("%s", said(s.gs()))
			}
			return nil
		})
		s.applied(s.inBare("rev-parse", "main"))
		get(s, what, &corev1.ConfigMap{})
		clustertest.Wait(t, "Ready, for which dependent sources wait", func() error {
			if gs := s.gs(); !meta.IsStatusConditionTrue(gs.Status.Conditions, "Ready") {
				return fmt.Errorf("%s", said(gs))
			}
			return nil
		})
	}
	gittest.Git(t, s.repo.Bare, "update-ref", "-d", "refs/notes/tranche")
	s.repo.CommitAndPush(map[string]string{"deploy/web.yaml": web("v4")}, "web: v4")
	s.lookNow()
	commit := s.repo.Head()
	clustertest.Wait(t, "the note", func() error {
		note := s.inBare("log", "-1", "--format=%N", "--notes=tranche", commit)
		if !strings.Contains(note, "Tranche-Release: "+s.ns+"/web") {
			return withSource(s, fmt.Errorf("it is %q", note))
		}
		return nil
	})
}
