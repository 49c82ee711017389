package status

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"slices"
	"strings"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/tranche-dev/tranche/cmd/tranche/cli"
	"github.com/tranche-dev/tranche/cmd/tranche/clone"
	"github.com/tranche-dev/tranche/cmd/tranche/terminal"
	"github.com/tranche-dev/tranche/cmd/tranche/view"
	"github.com/tranche-dev/tranche/plan/v1alpha1"
)

// lookEvery is the time between two readings of a release that is watched. The view has
// times in it, which change without any event: it is read and printed again at this pace.
const lookEvery = time.Second

// watchStatus shows a release until it is over. If the cluster does not answer for a
// while, it says so and asks again.
func watchStatus(ctx context.Context, w io.Writer, o statusOptions, look func(context.Context) (*releaseView, error)) error {
	ctx, stop := endsAfter(ctx, o.timeout)
	defer stop()
	show := lines(w)
	if terminal.Is(w) {
		show = screen(w)
	}
	v := verdict{commit: o.commit, last: "nothing was read of it", contains: newAncestry(ctx, o.commit).contains}
	tick := time.NewTicker(lookEvery)
	defer tick.Stop()
	for {
		s, err := look(ctx)
		if ctx.Err() == nil {
			if apierrors.IsNotFound(err) || isRefusal(err) {
				return err
			}
			if err := show(s, err); err != nil {
				return err
			}
			if err == nil {
				if over, err := v.see(s); over {
					return err
				}
			}
		}
		select {
		case <-ctx.Done():
			if errors.Is(context.Cause(ctx), context.DeadlineExceeded) {
				return cli.WithCode(cli.ExitTimeout, fmt.Errorf("the release is not over after %s: %s", o.timeout, v.last))
			}
			return errors.New("interrupted")
		case <-tick.C:
		}
	}
}

// endsAfter returns a context that is cancelled after a time, with the cause
// [context.DeadlineExceeded]; 0: never. It has no deadline: the client refuses requests
// for which it would have to wait until then, and says so in words of its own.
func endsAfter(ctx context.Context, d time.Duration) (context.Context, func()) {
	ctx, cancel := context.WithCancelCause(ctx)
	if d <= 0 {
		return ctx, func() { cancel(nil) }
	}
	timer := time.AfterFunc(d, func() { cancel(context.DeadlineExceeded) })
	return ctx, func() { timer.Stop(); cancel(nil) }
}

// isRefusal reports whether the API server lets this user read nothing.
func isRefusal(err error) bool { return apierrors.IsForbidden(err) || apierrors.IsUnauthorized(err) }

// awaitRelease waits for the BatchRelease that a commit brings first. It ends when a
// GitSource of the namespace refuses that commit, or has applied it and there is none.
func awaitRelease(ctx context.Context, at *cli.Connection, w io.Writer, o statusOptions, name string) (*v1alpha1.BatchRelease, error) {
	ctx, stop := endsAfter(ctx, o.timeout)
	defer stop()
	if _, err := fmt.Fprintf(w, "Waiting for commit %s to bring %s.\n", cli.Short(o.commit), name); err != nil {
		return nil, err
	}
	in := newAncestry(ctx, o.commit)
	tick := time.NewTicker(lookEvery)
	defer tick.Stop()
	for {
		var sources v1alpha1.GitSourceList
		listed := at.List(ctx, &sources, client.InNamespace(at.Namespace)) // before the release: what is applied is there
		br, err := at.Release(ctx, name)
		if err == nil {
			return br, nil
		}
		if isRefusal(err) || isRefusal(listed) {
			return nil, err
		}
		if listed == nil {
			if over, problem := comes(sources.Items, o.commit, in.contains); over {
				return nil, cmp.Or(problem, err)
			}
		}
		select {
		case <-ctx.Done():
			if errors.Is(context.Cause(ctx), context.DeadlineExceeded) {
				return nil, cli.WithCode(cli.ExitTimeout, fmt.Errorf("commit %s has not come after %s: %w", cli.Short(o.commit), o.timeout, err))
			}
			return nil, errors.New("interrupted")
		case <-tick.C:
		}
	}
}

// comes reports whether nothing more comes of a commit: a source refuses it, with the
// error, or has applied it, or there is no source.
func comes(sources []v1alpha1.GitSource, commit string, contains func(repository, branch, tip string) bool) (over bool, err error) {
	v, over := verdict{commit: commit}, len(sources) == 0
	for i := range sources {
		if refused, err := v.refused(&releaseView{view.Facts{Source: &sources[i]}}); refused {
			return true, err
		}
		spec, tip := &sources[i].Spec, sources[i].Status.AppliedCommit
		if strings.HasPrefix(tip, commit) || tip != "" && contains(spec.URL, spec.Ref.Branch, tip) {
			over = true
		}
	}
	return over, nil
}

// screen redraws in place.
func screen(w io.Writer) func(*releaseView, error) error {
	at, style, shown := terminal.NewScreen(w), terminal.StyleOf(w), ""
	return func(s *releaseView, err error) error {
		if err != nil {
			return at.Draw(shown + "\n" + style.Bad("not current: "+oneLine(err)))
		}
		shown = s.text(style)
		return at.Draw(shown)
	}
}

// lines writes a line for each change.
func lines(w io.Writer) func(*releaseView, error) error {
	last := ""
	return func(s *releaseView, err error) error {
		line := ""
		if err != nil {
			line = "not current: " + oneLine(err)
		} else {
			line = s.line()
		}
		if line == last {
			return nil
		}
		last = line
		_, err = fmt.Fprintln(w, line)
		return err
	}
}

func oneLine(err error) string { return terminal.Printable(strings.ReplaceAll(err.Error(), "\n", " ")) }

// line is the release on one line, without what changes by itself.
func (s *releaseView) line() string {
	at := &s.Release.Status
	line := fmt.Sprintf("%s/%s: %s: step %s, %d/%d pods of %s available: %s", s.Release.Namespace, s.Release.Name,
		cli.OrNone(string(at.Phase)), cli.StepOf(s.Release), at.UpdatedAvailableReplicas, at.Replicas,
		cli.OrNone(at.UpdateRevision), cli.OrNone(at.Reason))
	if at.Message != "" {
		line += ": " + at.Message
	}
	return terminal.Printable(line)
}

// verdict tells when a release that is watched is over, and how it ended.
type verdict struct {
	commit string // what is not of this commit is not the end; empty: any
	last   string // what was seen last

	// contains reports whether the commit asked for is in the history of a tip of a
	// repository; false where that is not known. nil: it never is.
	contains func(repository, branch, tip string) bool
	came     bool // the commit asked for has come to the release, or was applied without a change of it

	underWay   bool // a release was seen on its way
	rolledBack bool // and then on the way back
}

// see returns whether the release is over, and the error if it has failed.
func (v *verdict) see(s *releaseView) (bool, error) {
	at := &s.Release.Status
	v.last = at.Reason + ": " + at.Message
	if at.Phase != v1alpha1.PhaseCompleted && at.Phase != "" {
		v.underWay = true
	}
	v.rolledBack = v.rolledBack || at.RollingBack
	if over, err := v.refused(s); over {
		return true, err
	}
	if over, err := v.ended(s); over {
		return true, err
	}
	if s.Release.Generation != at.ObservedGeneration || !v.arrived(s) {
		return false, nil // the status is about another spec
	}
	return v.outcome(s)
}

// outcome returns whether the release is over by the reason of a status that is about it.
func (v *verdict) outcome(s *releaseView) (bool, error) {
	at := &s.Release.Status
	failed := cli.WithCode(cli.ExitFailed, fmt.Errorf("%s/%s: %s", s.Release.Namespace, s.Release.Name, v.last))
	switch at.Reason {
	case v1alpha1.ReasonProgressDeadlineExceeded, v1alpha1.ReasonTemplateRefused, v1alpha1.ReasonInvalidPlan,
		v1alpha1.ReasonUnsupportedStrategy, v1alpha1.ReasonAnotherPlan, v1alpha1.ReasonRecordsLost, v1alpha1.ReasonTemplateMissing,
		v1alpha1.ReasonDeploymentNotFound,
		v1alpha1.ReasonRolledBack:
		return true, failed
	case v1alpha1.ReasonNativeRollout, v1alpha1.ReasonPodsUnavailable: // a first install has no deadline but the native one
		if meta.IsStatusConditionTrue(at.Conditions, v1alpha1.ConditionStalled) {
			return true, failed
		}
	case v1alpha1.ReasonReleaseCompleted:
		if v.commit == "" && (v.rolledBack || v.underWay && len(at.History) > 0 && at.History[0].Outcome == v1alpha1.OutcomeRolledBack) {
			return true, cli.WithCode(cli.ExitFailed, fmt.Errorf("%s/%s: the release was rolled back", s.Release.Namespace, s.Release.Name))
		}
		return true, nil
	}
	return false, nil
}

// arrived reports whether the commit asked for has come to the release.
func (v *verdict) arrived(s *releaseView) bool {
	if v.commit == "" || v.came || strings.HasPrefix(s.Release.Spec.Commit, v.commit) {
		return true
	}
	if s.Source == nil {
		return false
	}
	tip := s.Source.Status.AppliedCommit
	v.came = strings.HasPrefix(tip, v.commit) ||
		v.contains != nil && tip != "" && v.contains(s.Source.Spec.URL, s.Source.Spec.Ref.Branch, tip)
	if !v.came && tip != "" {
		v.last += fmt.Sprintf("; GitSource %s/%s has applied %s, and not %s itself: a clone of its repository shows whether that commit is in "+
			"it. After a commit that touches nothing of the source, run tranche sync %s -n %s",
			s.Source.Namespace, s.Source.Name, cli.Short(tip), cli.Short(v.commit), s.Source.Name, s.Source.Namespace)
	}
	return v.came
}

// ancestry answers from the clone that one stands in.
type ancestry struct {
	ctx    context.Context
	commit string
	known  map[string]bool // by tip
	// again is when to ask once more, after an answer that was not to be had.
	again time.Time
}

// askAgain is how long a remote that did not answer is left alone: git may ask for a
// passphrase each time.
const askAgain = 30 * time.Second

func newAncestry(ctx context.Context, commit string) *ancestry {
	return &ancestry{ctx: ctx, commit: commit, known: map[string]bool{}}
}

// contains reports whether a tip of the repository has the commit in its history. A tip
// that the clone does not have is fetched; no branch of the clone moves. If that fails,
// the answer is not known yet.
func (a *ancestry) contains(repository, branch, tip string) bool {
	if answer, ok := a.known[tip]; ok {
		return answer
	}
	if time.Now().Before(a.again) {
		return false
	}
	here, err := os.Getwd()
	if err != nil {
		return false
	}
	in, err := clone.Find(a.ctx, here, repository)
	if err != nil {
		return false
	}
	answer, err := in.Contains(a.ctx, branch, tip, a.commit)
	if err != nil {
		a.again = time.Now().Add(askAgain)
		return false
	}
	a.known[tip] = answer
	return answer
}

// ended reports whether the release of the commit asked for is over, and a later
// commit or a rollback has taken its place. A commit that reverts another one is asked
// for by its own name: that it goes back is then no failure.
func (v *verdict) ended(s *releaseView) (bool, error) {
	if v.commit == "" || strings.HasPrefix(s.Release.Spec.Commit, v.commit) && s.Release.Status.FailedCommit == "" {
		return false, nil
	}
	rolledBack := false // after the release that is looked for
	for _, r := range s.Release.Status.History {
		if !strings.HasPrefix(r.Commit, v.commit) {
			rolledBack = rolledBack || r.Rollback
			continue
		}
		how := string(r.Outcome)
		if r.Outcome == v1alpha1.OutcomeCompleted {
			if !rolledBack {
				return true, nil
			}
			how = "Completed, and rolled back since"
		}
		return true, cli.WithCode(cli.ExitFailed,
			fmt.Errorf("%s/%s: the release of commit %s is over: %s", s.Release.Namespace, s.Release.Name, cli.Short(r.Commit), how))
	}
	return false, nil
}

// passing are the reasons of a source that is not ready for which waiting helps, or
// that are not about the commit.
var passing = []string{
	"WaitingForHandBack", "HandBackOverdue", "DependencyNotReady", "PlanNotApproved", "ApplyFailed", "PruneFailed",
	"Timeout", "HostUnreachable", "FetchFailed", "NotGit", "StorageFailed", "OutdatedCRD",
}

// refused reports whether the source cannot apply the commit asked for.
func (v *verdict) refused(s *releaseView) (bool, error) {
	if v.commit == "" || s.Source == nil || !strings.HasPrefix(s.Source.Status.ObservedCommit, v.commit) {
		return false, nil
	}
	ready := meta.FindStatusCondition(s.Source.Status.Conditions, "Ready")
	if ready == nil || ready.Status != metav1.ConditionFalse || ready.ObservedGeneration != s.Source.Generation ||
		slices.Contains(passing, ready.Reason) {
		return false, nil
	}
	return true, cli.WithCode(cli.ExitFailed,
		fmt.Errorf("GitSource %s/%s: %s: %s%s", s.Source.Namespace, s.Source.Name, ready.Reason, ready.Message, v.counted(s.Release)))
}

// counted returns what of a refused commit counts for the release, as the end of a
// sentence. The commit is refused all the same: its other changes are not applied.
func (v *verdict) counted(br *v1alpha1.BatchRelease) string {
	what := ""
	switch {
	case br == nil: // it is to come with the commit
	case strings.HasPrefix(br.Spec.Commit, v.commit):
		what = "rollback"
	case br.Spec.Approval != nil && strings.HasPrefix(br.Spec.Approval.ApprovedIn, v.commit):
		what = "approval"
	}
	if what == "" {
		return ""
	}
	return fmt.Sprintf("; its %s of %s/%s counts all the same: %s: %s", what, br.Namespace, br.Name, br.Status.Reason, br.Status.Message)
}
