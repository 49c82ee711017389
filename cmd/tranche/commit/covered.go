package commit

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/go-git/go-git/v5/plumbing"
	"github.com/go-git/go-git/v5/plumbing/storer"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/tranche-dev/tranche/cmd/tranche/cli"
	"github.com/tranche-dev/tranche/cmd/tranche/commit/signed"
	"github.com/tranche-dev/tranche/gitsync/gitobject"
	"github.com/tranche-dev/tranche/gitsync/signature"
	"github.com/tranche-dev/tranche/plan"
	"github.com/tranche-dev/tranche/plan/v1alpha1"
)

const (
	// searchedCommits bounds how many commits since the last applied one are checked.
	searchedCommits = 200
	// shownCommits is how many of them are shown.
	shownCommits = 10
)

// agreeToCover shows the commits that only the signature of the next commit would let
// spec.verify pass, and asks. A tip's signature covers all the history, so it would apply
// commits of a user without a listed key. yes does not answer that, a flag does. A commit
// that would be pushed without a signature is refused, since the controller refuses it.
func (st *commitCommand) agreeToCover(ctx context.Context) error {
	switch {
	case !cli.VerifiesCommits(st.source):
		return nil
	case !st.willSign(ctx) && st.push:
		return fmt.Errorf("not committed: GitSource %s/%s applies only signed commits (spec.verify); sign this one with --sign",
			st.source.Namespace, st.source.Name)
	case !st.willSign(ctx):
		return nil
	}
	k := &knownSignatures{commitCommand: st}
	if err := k.read(ctx); err != nil {
		return err
	}
	commits, err := k.uncovered(ctx)
	if err != nil || len(commits) == 0 {
		return err
	}
	if err := k.show(ctx, commits); err != nil {
		return err
	}
	switch {
	case st.coverUnverified:
		return nil
	case st.yes:
		return errors.New("not committed: the signature would cover commits that are not verified; review them, and give --cover-unverified to " +
			"sign on top of them")
	case !cli.Ask(st.cmd, "Sign on top of them, so that they are applied?"):
		return errors.New("not committed")
	}
	return nil
}

// willSign reports whether the commit is going to be signed: by the flag, or as git is
// configured.
func (st *commitCommand) willSign(ctx context.Context) bool {
	if st.sign {
		return true
	}
	configured, err := st.clone.Git(ctx, "config", "--type=bool", "--get", "commit.gpgSign")
	return err == nil && configured == "true"
}

// knownSignatures judges commits as the controller does, as far as this user can.
type knownSignatures struct {
	*commitCommand
	// keys are those of spec.verify; nil: this user may not read them, and unread is why.
	keys    *signature.Keys
	unread  error
	objects storer.EncodedObjectStorer
}

// read reads the keys of spec.verify.
func (k *knownSignatures) read(ctx context.Context) (err error) {
	if k.objects, err = k.clone.Objects(); err != nil {
		return err
	}
	k.keys, k.unread = signed.Keys(ctx, k.at, k.source, &k.source.Spec.Verify.Verification)
	return nil
}

// uncovered returns the commits of the clone that are in the history of no applied and no
// verified commit, newest first.
func (k *knownSignatures) uncovered(ctx context.Context) ([]string, error) {
	not := k.passed(ctx)
	judged := map[string]bool{}
	for {
		args := append([]string{
			"--no-replace-objects", "rev-list", "--topo-order", fmt.Sprintf("--max-count=%d", searchedCommits), "HEAD", "--not",
		}, not...)
		out, err := k.clone.Git(ctx, args...)
		if err != nil {
			return nil, fmt.Errorf("listing the commits since the applied one: %w", err)
		}
		commits := strings.Fields(out)
		i := slices.IndexFunc(commits, func(c string) bool {
			if judged[c] {
				return false
			}
			judged[c] = true
			return k.verified(ctx, c)
		})
		if i < 0 {
			return commits, nil
		}
		not = append(not, commits[i]) // its signature covers its history
	}
}

// passed returns the commits of the clone that the controller has let pass: the applied
// one, and the tip if the source is ready.
func (k *knownSignatures) passed(ctx context.Context) []string {
	s := &k.source.Status
	commits := []string{s.AppliedCommit}
	if cli.ReadyOf(k.source).Status == metav1.ConditionTrue && s.ObservedGeneration == k.source.Generation {
		commits = append(commits, s.ObservedCommit)
	}
	return slices.DeleteFunc(commits, func(c string) bool {
		if c == "" {
			return true
		}
		_, err := k.clone.Git(ctx, "cat-file", "-e", c+"^{commit}")
		return err != nil // a force-push has removed it
	})
}

// verified reports whether a commit is known to be signed by a listed key. Without the
// keys, the user's git has to trust the signature, and the controller must not have
// refused it.
func (k *knownSignatures) verified(ctx context.Context, commit string) bool {
	if k.keys == nil {
		if cli.ReadyOf(k.source).Reason == v1alpha1.ReasonCommitNotVerified && k.source.Status.ObservedCommit == commit {
			return false
		}
		return signed.Trusts(ctx, k.clone, commit)
	}
	raw, err := gitobject.RawCommit(k.objects, plumbing.NewHash(commit))
	if err != nil || plumbing.ComputeHash(plumbing.CommitObject, raw) != plumbing.NewHash(commit) {
		return false
	}
	_, err = signature.Verify(raw, k.keys, time.Now(), nil)
	return err == nil
}

// show prints the commits with author and subject.
func (k *knownSignatures) show(ctx context.Context, commits []string) error {
	count := fmt.Sprint(len(commits))
	if len(commits) == searchedCommits {
		count += " or more"
	}
	k.say("\nThe signature would cover commits that GitSource %s/%s has not verified (spec.verify), %s in all:\n",
		k.source.Namespace, k.source.Name, count)
	if k.unread != nil {
		k.say("Not checked with the keys of spec.verify: %s. Commits count as verified if your git trusts their signatures.\n",
			plan.OneLine(k.unread.Error()))
	}
	for i, c := range commits {
		if i == shownCommits {
			k.say("  and %d more: git log HEAD ^%s\n", len(commits)-i, cmp.Or(cli.Short(k.source.Status.AppliedCommit), "COMMIT"))
			break
		}
		text, err := k.clone.Git(ctx, "--no-replace-objects", "log", "-1", "--no-show-signature", "--format=%an <%ae>%x00%s", c)
		if err != nil {
			return fmt.Errorf("reading commit %s: %w", c, err)
		}
		author, subject, _ := strings.Cut(text, "\x00")
		k.say("  %s %s: %s\n", cli.Short(c), gitobject.Printable(author), gitobject.Printable(subject))
	}
	return nil
}
