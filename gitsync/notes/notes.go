package notes

import (
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/go-git/go-git/v5/plumbing"
	"github.com/go-git/go-git/v5/plumbing/filemode"
	"github.com/go-git/go-git/v5/plumbing/object"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/tranche-dev/tranche/gitsync/desired"
	"github.com/tranche-dev/tranche/gitsync/gitobject"
	"github.com/tranche-dev/tranche/plan"
	"github.com/tranche-dev/tranche/plan/measure"
	"github.com/tranche-dev/tranche/plan/v1alpha1"
)

// Ref is where git log --notes=tranche reads.
const Ref = "refs/notes/tranche"

// Stories are what is to be on record, by commit: one paragraph for each
// release that came from it.
type Stories map[string][]string

// identifies is how many lines at the beginning of a paragraph tell which
// release it is about.
const identifies = 3

// Add puts the releases of a BatchRelease on record.
func (st Stories) Add(br *v1alpha1.BatchRelease) {
	s := &br.Status
	if s.Phase != "" && s.Phase != v1alpha1.PhaseCompleted && !s.RollingBack {
		st.tell(br, s.UpdateRevision, s.UpdateCommit, s.StartTime, s.Approvals, nil, "")
	}
	for _, r := range s.History {
		outcome := "Outcome: " + string(r.Outcome) + ", " + timeOf(&r.EndTime) + asRollback(r.Rollback)
		st.tell(br, r.Revision, r.Commit, r.StartTime, r.Approvals, r.Analysis, outcome)
	}
}

func (st Stories) tell(
	br *v1alpha1.BatchRelease, revision, commit string, start *metav1.Time, approvals []v1alpha1.StepApproval,
	analysis []v1alpha1.MetricRecord, outcome string,
) {
	if commit == "" || start == nil {
		return
	}
	lines := []string{
		gitobject.TrailerRelease + ": " + br.Namespace + "/" + br.Name, gitobject.TrailerRevision + ": " + revision, "Started: " + timeOf(start),
	}
	for _, a := range approvals {
		line := fmt.Sprintf("Step %d: approved by %s, %s", a.Step, plan.OneLine(a.By), timeOf(&a.Time))
		if a.Commit != "" {
			line += ", in " + plan.ShortCommit(a.Commit)
		}
		lines = append(lines, line)
	}
	for i := range analysis {
		lines = append(lines, "Analysis: "+measure.Evidence(&analysis[i]))
	}
	if outcome != "" {
		lines = append(lines, outcome)
	}
	st[commit] = append(st[commit], strings.Join(lines, "\n"))
}

// Reject adds to the paragraph of a release why it was rejected.
func (st Stories) Reject(br *v1alpha1.BatchRelease, why desired.Rejection) {
	for i, p := range st[why.Of] {
		isOf := strings.HasPrefix(p, gitobject.TrailerRelease+": "+br.Namespace+"/"+br.Name+"\n")
		if isOf && strings.Contains(p, "\nOutcome: ") {
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

// Mark changes when the notes of a release change.
func Mark(br *v1alpha1.BatchRelease) string {
	st := Stories{}
	st.Add(br)
	return fmt.Sprint(st)
}

// merged returns a note with the paragraphs put into it. They take the place of
// what it says of the same releases, and follow what others have written.
func merged(note string, paragraphs []string) string {
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

// Annotate adds the file of a commit's note to change, where it says something new.
// Git spreads notes over folders when there are many, by the first characters of the
// commit. A note stays where it is, and new ones are at the root, where git finds
// them, too.
func Annotate(s *gitobject.Store, root plumbing.Hash, commit string, paragraphs []string, change gitobject.Files) error {
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
	now := merged(note, paragraphs)
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
