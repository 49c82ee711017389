package gitsync_test

import (
	"errors"
	"flag"
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/yaml"

	"github.com/tranche-dev/tranche/gitsync/gittest"
	"github.com/tranche-dev/tranche/plan/v1alpha1"
	"github.com/tranche-dev/tranche/rollout/clustertest"
)

var (
	stormSize = flag.Int("storm.operations", 200, "operations of TestStorm")
	stormSeed = flag.Uint64("storm.seed", 1, "seed of TestStorm")
)

// storm does things to a branch and a cluster in random order.
type storm struct {
	*env
	random *rand.Rand
	unhook func()
	stop   func()
	// given are the approvals that were given in the cluster, by release and step.
	given map[string]bool
	// used are the approvals that releases say they went on by.
	used map[string]used
	told []string
	went map[string]int // operations that went well
}

type used struct {
	v1alpha1.StepApproval
	revision, commit string
}

// I4 and I5. After any number of tags, approvals, reverts, force-pushes and refusals, from
// Git and from the cluster, the controllers have nothing left to do. Then the cluster runs
// what the branch says, or a condition says why not. No step was passed by an approval that
// was not for it.
func TestStorm(t *testing.T) {
	t.Parallel()
	s := &storm{env: newIdleEnv(t), random: rand.New(rand.NewPCG(*stormSeed, 0)), given: map[string]bool{}, used: map[string]used{}, went: map[string]int{}}
	s.stop = s.startController(andRollout)
	t.Cleanup(func() { s.stop() })
	s.repo.Git("config", "user.name", "Ada")
	s.applied2(s.repo.CommitAndPush(manifests("v0"), "web: v0"), writesBack)
	s.isAt("web", "ReleaseCompleted", 1)
	t.Cleanup(func() {
		if t.Failed() {
			t.Logf("the last operations: %s", strings.Join(s.told[max(0, len(s.told)-30):], ", "))
			t.Logf("the branch:\n%s", s.inBare("log", "--format=%h %an %s", "-30", "main"))
			t.Logf("the release: %+v", s.release("web").Status)
		}
	})
	operations := []struct {
		name   string
		weight int
		do     func() error
	}{
		{"tag", 7, s.tag}, {"approve", 6, s.approveInGit}, {"approve badly", 3, s.approveBadly},
		{"revert", 3, s.revert}, {"approve in the cluster", 10, s.approveInCluster}, {"roll back in the cluster", 6, s.rollBackInCluster},
		{"other change", 4, s.other}, {"force-push", 1, s.forcePush}, {"refuse pushes", 2, s.refuse}, {"take pushes", 3, s.take},
		{"kill", 1, s.kill}, {"wait", 6, s.wait},
	}
	var deck []int
	for i, o := range operations {
		deck = append(deck, slices.Repeat([]int{i}, o.weight)...)
	}
	for range *stormSize {
		o := operations[deck[s.random.IntN(len(deck))]]
		err := o.do()
		s.told = append(s.told, fmt.Sprintf("%s: %v", o.name, err))
		if err == nil {
			s.went[o.name]++
		}
		s.note()
	}
	s.must(s.take())
	s.rest()
}

// tag brings one of four versions, so that revisions come back.
func (s *storm) tag() error {
	v := fmt.Sprintf("v%d", s.random.IntN(4))
	return s.change(func() error { return s.replace("deploy/web.yaml", "web:v[0-9]+", "web:"+v) }, "web: "+v)
}

func (s *storm) other() error {
	n := fmt.Sprint(s.random.IntN(1000))
	return s.change(func() error {
		s.repo.Write(map[string]string{"deploy/more.yaml": configMap("more", "n"+n)})
		return s.replace("deploy/web.yaml", "team: [a-z0-9]+", "team: t"+n)
	}, "Other "+n)
}

// replace puts a text in the place of what matches.
func (s *storm) replace(file, pattern, text string) error {
	path := filepath.Join(s.repo.Work, file)
	old, err := os.ReadFile(path)
	if err != nil {
		return err
	}
	return os.WriteFile(path, regexp.MustCompile(pattern).ReplaceAll(old, []byte(text)), 0o600)
}

// change commits on the tip as it is, and pushes; another may be faster.
func (s *storm) change(edit func() error, message string) error {
	s.repo.Git("fetch", "-q", "origin")
	s.repo.Git("reset", "-q", "--hard", "origin/main")
	if err := edit(); err != nil {
		return err
	}
	s.repo.Commit(nil, message)
	return tryGit(s.Context(), s.repo.Work, "push", "-q", "origin", "main")
}

func (s *storm) approval(revision, commit string, step int32) map[string]string {
	return map[string]string{"deploy/approvals/web.yaml": fmt.Sprintf("apiVersion: tranche.dev/v1alpha1\nkind: BatchApproval\nmetadata: {name: web}\nspec: {revision: %q, commit: %q, step: %d}\n", revision, commit, step)}
}

func (s *storm) approveInGit() error {
	if s.random.IntN(2) == 0 {
		if err := s.wait(); err != nil {
			return err
		}
	}
	br := s.release("web")
	return s.change(func() error {
		s.repo.Write(s.approval(br.Status.UpdateRevision, br.Spec.Commit, 0))
		return nil
	}, "Approve by hand")
}

func (s *storm) approveBadly() error {
	br := s.release("web")
	revision, commit := br.Status.UpdateRevision, br.Spec.Commit
	return s.change(func() error {
		switch s.random.IntN(4) {
		case 0:
			s.repo.Write(s.approval("0000000000", commit, 0))
		case 1:
			s.repo.Write(s.approval(revision, "0123456789", 0))
		case 2:
			s.repo.Write(s.approval(revision, commit, 7))
		default:
			s.repo.Write(map[string]string{"deploy/approvals/web.yaml": "apiVersion: tranche.dev/v1alpha1\nkind: BatchApproval\nspec: {\n"})
		}
		return nil
	}, "Approve badly")
}

func (s *storm) revert() error {
	s.repo.Git("fetch", "-q", "origin")
	s.repo.Git("reset", "-q", "--hard", "origin/main")
	if err := tryGit(s.Context(), s.repo.Work, "revert", "--no-edit", "HEAD"); err != nil {
		return errors.Join(err, tryGit(s.Context(), s.repo.Work, "revert", "--abort"))
	}
	return tryGit(s.Context(), s.repo.Work, "push", "-q", "origin", "main")
}

func (s *storm) forcePush() error {
	s.repo.Git("fetch", "-q", "origin")
	n := 1 + s.random.IntN(2)
	if err := tryGit(s.Context(), s.repo.Work, "reset", "-q", "--hard", "origin/main~"+strconv.Itoa(n)); err != nil {
		return err
	}
	return tryGit(s.Context(), s.repo.Work, "push", "-q", "--force", "origin", "main")
}

// approveInCluster completes the step, if the release is still as it was read.
func (s *storm) approveInCluster() error {
	if err := s.wait(); err != nil {
		return err
	}
	br := s.release("web")
	if br.Status.CurrentStepState != v1alpha1.StepBlocking {
		return errors.New("no gate is closed")
	}
	patch := fmt.Appendf(nil, `{"metadata":{"resourceVersion":%q},"status":{"currentStepState":"Completed"}}`, br.ResourceVersion)
	if err := s.c.Client.Status().Patch(s.Context(), br, client.RawPatch(types.MergePatchType, patch)); err != nil {
		return err
	}
	s.given[fmt.Sprint(br.Status.UpdateRevision, br.Status.UpdateCommit, br.Status.CurrentStepIndex)] = true
	return nil
}

func (s *storm) rollBackInCluster() error {
	if s.random.IntN(2) == 0 {
		if err := s.wait(); err != nil {
			return err
		}
	}
	s.rollBack("web")
	return nil
}

func (s *storm) refuse() error {
	if s.unhook == nil {
		s.unhook = s.hook("pre-receive", "while read old new ref; do git log -1 --format=%cn $new | grep -q tranche && echo 'nothing from robots' >&2 && exit 1; done; exit 0")
	}
	return nil
}

func (s *storm) take() error {
	if s.unhook != nil {
		s.unhook()
		s.unhook = nil
	}
	return nil
}

func (s *storm) kill() error {
	s.stop()
	s.stop = s.startController(andRollout)
	return nil
}

// wait lets what was begun come some way: for most of the time to the next
// gate, or to its end.
func (s *storm) wait() error {
	s.lookNow()
	deadline := time.After(2 * time.Second)
	for {
		if br := s.release("web"); br.Status.ObservedGeneration == br.Generation && (br.Status.CurrentStepState == v1alpha1.StepBlocking || br.Status.Phase == v1alpha1.PhaseCompleted) {
			return nil
		}
		select {
		case <-deadline:
			return errors.New("it takes longer")
		case <-time.After(20 * time.Millisecond):
		}
	}
}

// note keeps the approvals by which releases went on.
func (s *storm) note() {
	st := s.release("web").Status
	add := func(revision, commit string, list []v1alpha1.StepApproval) {
		for _, a := range list {
			s.used[fmt.Sprint(revision, commit, a)] = used{a, revision, commit}
		}
	}
	add(st.UpdateRevision, st.UpdateCommit, st.Approvals)
	for _, h := range st.History {
		add(h.Revision, h.Commit, h.Approvals)
	}
}

// rest waits until nothing moves, and checks what is then there.
func (s *storm) rest() {
	s.Helper()
	clustertest.Wait(s, "rest", func() error {
		state := func() string {
			br, gs := s.release("web"), s.gs()
			return br.ResourceVersion + gs.Status.ObservedCommit + said(gs) + s.inBare("rev-parse", "main")
		}
		before := state()
		s.lookNow()
		s.lookNow()
		if after := state(); after != before {
			return withSource(s, fmt.Errorf("it moves: %s", s.release("web").Status.Message))
		}
		return s.atRest()
	})
	s.note()
	s.approvalsWereGiven()
	s.inBare("fsck", "--strict", "--no-dangling")
	s.Logf("%d operations, %d commits, %d of them ours, %d approvals used; %v", len(s.told), len(s.subjects("main")), strings.Count(s.inBare("log", "--format=%cn", "main"), "tranche"), len(s.used), s.went)
}

// atRest is I4.
func (s *storm) atRest() error {
	br, d, gs := s.release("web"), s.deployment("web"), s.gs()
	manifest := s.inBare("show", "main:deploy/web.yaml")
	_, tip, _ := strings.Cut(manifest, "web:")
	tip, _, _ = strings.Cut(tip, "\n")
	_, runs, _ := strings.Cut(d.Spec.Template.Spec.Containers[0].Image, "web:")
	pods := d.Status.ReadyReplicas == 2 && d.Status.UpdatedReplicas == 2
	switch {
	case gs.Status.AppliedCommit != s.inBare("rev-parse", "main"):
		return fmt.Errorf("applied is %s", gs.Status.AppliedCommit)
	case br.Status.Reason == "WaitingForApproval" && runs == tip:
		return nil // the gate says so
	case br.Status.Reason == "ReleaseCompleted" && runs == tip && pods:
		return nil
	case br.Status.Reason == "RolledBack" && pods && slices.Contains([]string{"RolledBackInCluster", "WriteBackConflict"}, s.inSync().Reason):
		return nil
	default:
		return fmt.Errorf("%s runs, %s is at the tip, %s: %s\n%s", runs, tip, br.Status.Reason, br.Status.Message, said(gs))
	}
}

// approvalsWereGiven is I5.
func (s *storm) approvalsWereGiven() {
	s.Helper()
	for _, u := range s.used {
		if u.By == v1alpha1.ApprovedByCluster {
			if !s.given[fmt.Sprint(u.revision, u.commit, u.Step)] {
				s.Errorf("nobody gave the approval %+v", u)
			}
			continue
		}
		var a v1alpha1.BatchApproval
		if err := yaml.Unmarshal([]byte(gittest.Git(s, s.repo.Bare, "show", u.Commit+":deploy/approvals/web.yaml")), &a); err != nil {
			s.Errorf("%+v: %v", u, err)
		}
		if a.Spec.Revision != u.revision || !strings.HasPrefix(u.commit, a.Spec.Commit) || a.Spec.Step < u.Step {
			s.Errorf("a release went on by %+v, which says %+v", u, a.Spec)
		}
	}
}
