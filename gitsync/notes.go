package gitsync

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/go-git/go-git/v5/plumbing"
	"github.com/go-git/go-git/v5/plumbing/filemode"
	"github.com/go-git/go-git/v5/plumbing/object"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/tranche-dev/tranche/gitsync/apply"
	"github.com/tranche-dev/tranche/gitsync/credentials"
	"github.com/tranche-dev/tranche/gitsync/desired"
	"github.com/tranche-dev/tranche/gitsync/gitobject"
	"github.com/tranche-dev/tranche/gitsync/gitserver"
	"github.com/tranche-dev/tranche/gitsync/gittree"
	"github.com/tranche-dev/tranche/gitsync/repository"
	"github.com/tranche-dev/tranche/gitsync/turns"
	"github.com/tranche-dev/tranche/plan"
	"github.com/tranche-dev/tranche/plan/v1alpha1"
)

// notesRef is where git log --notes=tranche reads.
const notesRef = "refs/notes/tranche"

// stories are what is to be on record, by commit: one paragraph for each
// release that came from it.
type stories map[string][]string

// identifies is how many lines at the beginning of a paragraph tell which
// release it is about.
const identifies = 3

// add puts the releases of a BatchRelease on record.
func (st stories) add(br *v1alpha1.BatchRelease) {
	s := &br.Status
	if s.Phase != "" && s.Phase != v1alpha1.PhaseCompleted && !s.RollingBack {
		st.tell(br, s.UpdateRevision, s.UpdateCommit, s.StartTime, s.Approvals, "")
	}
	for _, r := range s.History {
		st.tell(br, r.Revision, r.Commit, r.StartTime, r.Approvals, "Outcome: "+string(r.Outcome)+", "+timeOf(&r.EndTime)+asRollback(r.Rollback))
	}
}

func (st stories) tell(br *v1alpha1.BatchRelease, revision, commit string, start *metav1.Time, approvals []v1alpha1.StepApproval, outcome string) {
	if commit == "" || start == nil {
		return
	}
	lines := []string{gitobject.TrailerRelease + ": " + br.Namespace + "/" + br.Name, gitobject.TrailerRevision + ": " + revision, "Started: " + timeOf(start)}
	for _, a := range approvals {
		line := fmt.Sprintf("Step %d: approved by %s, %s", a.Step, plan.OneLine(a.By), timeOf(&a.Time))
		if a.Commit != "" {
			line += ", in " + plan.ShortCommit(a.Commit)
		}
		lines = append(lines, line)
	}
	if outcome != "" {
		lines = append(lines, outcome)
	}
	st[commit] = append(st[commit], strings.Join(lines, "\n"))
}

// reject adds to the paragraph of a release why it was rejected.
func (st stories) reject(br *v1alpha1.BatchRelease, why desired.Rejection) {
	for i, p := range st[why.Of] {
		if strings.HasPrefix(p, gitobject.TrailerRelease+": "+br.Namespace+"/"+br.Name+"\n") && strings.Contains(p, "\nOutcome: ") {
			st[why.Of][i] = p + "\n" + why.Line()
		}
	}
}

func asRollback(is bool) string {
	if is {
		return ", a rollback"
	}
	return ""
}

func timeOf(t *metav1.Time) string { return t.UTC().Format(time.RFC3339) }

// chapter changes when the notes of a release change.
func chapter(br *v1alpha1.BatchRelease) string {
	st := stories{}
	st.add(br)
	return fmt.Sprint(st)
}

// withStories returns a note with the paragraphs put into it. They take the place of
// what it says of the same releases, and follow what others have written.
func withStories(note string, paragraphs []string) string {
	var all []string
	for p := range strings.SplitSeq(strings.Trim(note, "\n"), "\n\n") {
		if p != "" {
			all = append(all, p)
		}
	}
	for _, p := range paragraphs {
		same := func(other string) bool { return release(other) == release(p) }
		if i := slices.IndexFunc(all, same); i >= 0 {
			all[i] = desired.WithRejection(p, all[i])
		} else {
			all = append(all, p)
		}
	}
	return strings.Join(all, "\n\n") + "\n"
}

func release(paragraph string) string {
	lines := strings.SplitN(paragraph, "\n", identifies+1)
	return strings.Join(lines[:min(len(lines), identifies)], "\n")
}

// writeNotes keeps the notes as the releases' status has them. There is no exchange
// with the server where they have not changed since the last time. If the notes cannot
// be pushed, InSync says so, and there is no error.
func (l *look) writeNotes(ctx context.Context, r gitserver.Remote, s *repository.Snapshot, c *commit, o *apply.Observer) (step, error) {
	if l.gs.Spec.WriteBack == nil || !l.gs.Spec.WriteBack.Notes {
		return step{}, nil
	}
	st := stories{}
	for i := range c.governed.Set.Releases {
		live, err := o.LivePlan(ctx, &c.governed.Set.Releases[i])
		if err != nil {
			return step{}, err
		}
		if live != nil {
			st.add(live)
			st.reject(live, desired.RejectionIn(s, live))
		}
	}
	// A note on a commit that a force-push took away would be on nothing.
	maps.DeleteFunc(st, func(commit string, _ []string) bool {
		return s.HasEncodedObject(plumbing.NewHash(commit)) != nil
	})
	now := fmt.Sprint(st)
	if len(st) == 0 || now == l.keep.notes {
		return step{}, nil
	}
	err := l.pushNotes(ctx, r, st)
	if err == nil {
		l.keep.notes = now
		return step{}, nil
	}
	if errors.Is(err, gitserver.ErrBranchMoved) {
		return step{moved: true}, nil
	}
	ps := plan.ProblemsOf(err)
	l.outcome.intents = append(l.outcome.intents, ps...)
	if len(ps) > 0 {
		return step{}, nil
	}
	return step{}, fmt.Errorf("writing the notes of releases: %w", err)
}

// pushNotes adds what is missing, as a compare-and-swap on the ref.
func (l *look) pushNotes(ctx context.Context, r gitserver.Remote, st stories) error {
	m := credentials.Unsigned(l.gs.Spec.WriteBack)
	if l.gs.Spec.Verify == nil { // else what others push to the notes would be signed for the branch
		var err error
		if m, err = l.secrets().Committer(ctx); err != nil {
			return err
		}
	}
	for tries := 1; ; tries++ {
		err := l.tryNotes(ctx, r, m, st)
		if !errors.Is(err, gitserver.ErrBranchMoved) || tries == maxMoved || !pauseFor(ctx, tries) {
			return err
		}
	}
}

func (l *look) tryNotes(ctx context.Context, r gitserver.Remote, m gitobject.Committer, st stories) error {
	asking, cancel := context.WithTimeout(ctx, l.gs.Spec.TimeoutOrDefault())
	defer cancel()
	there, err := turns.Exchange(ctx, func() (*repository.Snapshot, error) { return l.mirrors.Of(r).FetchRef(asking, r, notesRef) })
	if err != nil {
		return err
	}
	defer there.Close()
	scratch := gitobject.NewStore(there)
	var root plumbing.Hash
	var parents []plumbing.Hash
	if !there.Commit.IsZero() {
		c, err := object.GetCommit(there, there.Commit)
		if err != nil {
			return gittree.Missing("commit", there.Commit, err)
		}
		root, parents = c.TreeHash, []plumbing.Hash{there.Commit}
	}
	change := gitobject.Files{}
	for commit, paragraphs := range st {
		if err := annotate(scratch, root, commit, paragraphs, change); err != nil {
			return err
		}
	}
	if len(change) == 0 {
		return nil
	}
	tree, err := scratch.WriteTree(root, change)
	if err != nil {
		return err
	}
	head, err := m.Commit(scratch, tree, parents, fmt.Sprintf("Notes on %d releases\n", len(change)), time.Now())
	if err != nil {
		return err
	}
	pack, err := scratch.Pack(head)
	if err != nil {
		return err
	}
	u := gitserver.Update{Branch: notesRef, From: there.Commit, To: head, Pack: pack}
	if err := push(ctx, r, u, l.gs.Spec.TimeoutOrDefault()); err != nil {
		return err
	}
	l.log.Info("noted", "branch", notesRef, "commit", head.String(), "notes", len(change))
	return nil
}

// annotate adds the file of a commit's note to change, where it says something new.
// Git spreads notes over folders when there are many, by the first characters of the
// commit. A note stays where it is, and new ones are at the root, where git finds
// them, too.
func annotate(s *gitobject.Store, root plumbing.Hash, commit string, paragraphs []string, change gitobject.Files) error {
	at, note := commit, ""
	for _, p := range []string{commit, commit[:2] + "/" + commit[2:], commit[:2] + "/" + commit[2:4] + "/" + commit[4:]} {
		if root.IsZero() {
			break
		}
		e, err := gitobject.EntryAt(s, root, p)
		if err != nil {
			return err
		}
		if !e.Mode.IsFile() {
			continue
		}
		content, err := gitobject.ReadBlob(s, e.Hash)
		if err != nil {
			return err
		}
		at, note = p, string(content)
		break
	}
	now := withStories(note, paragraphs)
	if now == note {
		return nil
	}
	h, err := s.WriteBlob([]byte(now))
	if err != nil {
		return err
	}
	change[at] = object.TreeEntry{Mode: filemode.Regular, Hash: h}
	return nil
}
