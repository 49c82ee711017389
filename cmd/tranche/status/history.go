package status

import (
	"cmp"
	"context"
	"fmt"
	"io"
	"os"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/duration"

	"github.com/tranche-dev/tranche/cmd/tranche/cli"
	"github.com/tranche-dev/tranche/cmd/tranche/clone"
	"github.com/tranche-dev/tranche/cmd/tranche/terminal"
	"github.com/tranche-dev/tranche/cmd/tranche/view"
	"github.com/tranche-dev/tranche/gitsync/gitobject"
	"github.com/tranche-dev/tranche/plan/v1alpha1"
)

type historyOptions struct{ scope }

func NewHistory() *cobra.Command {
	var o historyOptions
	c := &cobra.Command{
		Use:   "history [NAME]",
		Short: "Show what was released when, by which commit, and who approved it",
		Long: `Show the releases of a namespace, of a GitSource (--source) or of one BatchRelease (NAME),
newest first. Each has its times, revision, commit and outcome, and who opened the gate of
which step in which commit. One that was measured has the verdicts with the values of both
revisions. A rollback is marked as one. A release that is
under way has the outcome UnderWay. The cluster keeps the last ten of each BatchRelease.

The author of the newest commit is what the cluster has recorded. Authors of others, the
subject of a commit and the reason of tranche reject are read from the clone in the current
folder. If it does not have the commit, the author is unknown and the rest is missing.`,
		Example: `  tranche history -n shop --since 24h
  tranche history --source shop/shop --since 2026-07-01 -o yaml
  tranche history web -n shop`,
	}
	o.addTo(c, "releases", "in all of its namespaces", "ended")
	c.RunE = func(cmd *cobra.Command, args []string) error {
		at, since, err := o.connect(args)
		if err != nil {
			return err
		}
		list, where, err := o.releases(cmd.Context(), at, args)
		if err != nil {
			return err
		}
		h := historyOf(list, since)
		h.readCommits(cmd.Context())
		if o.output != cli.OutputTable {
			return cli.PrintValue(cmd.OutOrStdout(), o.output, h)
		}
		if len(h.Items) == 0 {
			if !since.IsZero() {
				where += " since " + cli.Absolute(&metav1.Time{Time: since})
			}
			_, err := fmt.Fprintf(cmd.ErrOrStderr(), "No releases %s.\n", where)
			return err
		}
		_, err = io.WriteString(cmd.OutOrStdout(), h.table(len(args) == 0, o.all || o.source != ""))
		return err
	}
	return c
}

// releases are those that the history is about, and where that is.
func (o *historyOptions) releases(ctx context.Context, at *cli.Connection, args []string) ([]v1alpha1.BatchRelease, string, error) {
	switch {
	case len(args) == 1:
		br, err := at.Release(ctx, args[0])
		if err != nil {
			return nil, "", err
		}
		return []v1alpha1.BatchRelease{*br}, "of " + br.Namespace + "/" + br.Name, nil
	case o.source != "":
		gs, err := at.SourceNamed(ctx, at.Namespace, o.source)
		if err != nil {
			return nil, "", err
		}
		list, err := at.ReleasesOf(ctx, gs)
		return list, "of GitSource " + gs.Namespace + "/" + gs.Name, err
	case o.all:
		list, err := at.Releases(ctx, "")
		return list, "in any namespace", err
	}
	list, err := at.Releases(ctx, at.Namespace)
	return list, "in namespace " + at.Namespace, err
}

// History is the document that history prints.
type History struct {
	cli.Head `json:",inline"`
	Items    []HistoryEntry `json:"items"`
}

// OutcomeUnderWay is the outcome of a release that has none yet.
const OutcomeUnderWay = "UnderWay"

// HistoryEntry is one release.
type HistoryEntry struct {
	Namespace  string `json:"namespace"`
	Name       string `json:"name"`
	Deployment string `json:"deployment"`
	Source     string `json:"source,omitempty"` // NAMESPACE/NAME
	Revision   string `json:"revision"`
	Commit     string `json:"commit,omitempty"`
	Author     string `json:"author,omitempty"`
	Subject    string `json:"subject,omitempty"`
	// Outcome: UnderWay, or as in status.history.
	Outcome   string                  `json:"outcome"`
	Rollback  bool                    `json:"rollback"`
	Rejected  *Rejection              `json:"rejected,omitempty"`
	StartTime *metav1.Time            `json:"startTime,omitempty"`
	EndTime   *metav1.Time            `json:"endTime,omitempty"`
	Approvals []v1alpha1.StepApproval `json:"approvals,omitempty"`
	// StepTimes has the times of the steps that had their pods.
	StepTimes []v1alpha1.StepTimes `json:"stepTimes,omitempty"`
	// Analysis has the last verdict of each metric, with the values of both revisions.
	Analysis []view.Evidence `json:"analysis,omitempty"`
}

// Rejection is what a commit of tranche reject says.
type Rejection struct {
	Commit string `json:"commit"`
	By     string `json:"by"`
	Reason string `json:"reason"`
}

// historyOf puts the releases of all BatchReleases in order, newest first.
func historyOf(list []v1alpha1.BatchRelease, since time.Time) *History {
	h := &History{Head: cli.NewHead("ReleaseHistory"), Items: []HistoryEntry{}}
	for i := range list {
		br := &list[i]
		entry := HistoryEntry{Namespace: br.Namespace, Name: br.Name, Deployment: br.Spec.WorkloadRef.Name}
		if name := br.Labels[v1alpha1.LabelSource]; name != "" {
			entry.Source = cmp.Or(br.Labels[v1alpha1.LabelSourceNamespace], br.Namespace) + "/" + name
		}
		if s := &br.Status; s.Phase != "" && s.Phase != v1alpha1.PhaseCompleted {
			now := entry
			now.Revision, now.Commit, now.Outcome = s.UpdateRevision, s.UpdateCommit, OutcomeUnderWay
			now.Rollback, now.StartTime, now.Approvals = s.RollingBack, s.StartTime, s.Approvals
			now.StepTimes = view.TimesOf(s)
			if s.Analysis != nil {
				now.Analysis = view.EvidenceOf(s.Analysis.Records)
			}
			now.Author = recordedAuthor(br, now.Commit)
			h.Items = append(h.Items, now)
		}
		for _, r := range br.Status.History {
			if r.EndTime.Time.Before(since) {
				continue
			}
			then := entry
			then.Revision, then.Commit, then.Outcome = r.Revision, r.Commit, string(r.Outcome)
			then.Rollback, then.StartTime, then.EndTime, then.Approvals = r.Rollback, r.StartTime, &r.EndTime, r.Approvals
			then.StepTimes = r.StepTimes
			then.Analysis = view.EvidenceOf(r.Analysis)
			then.Author = recordedAuthor(br, then.Commit)
			h.Items = append(h.Items, then)
		}
	}
	slices.SortStableFunc(h.Items, func(a, b HistoryEntry) int {
		switch {
		case (a.EndTime == nil) != (b.EndTime == nil): // what is under way comes first
			if a.EndTime == nil {
				return -1
			}
			return 1
		case a.EndTime != nil:
			return b.EndTime.Compare(a.EndTime.Time)
		case a.StartTime != nil && b.StartTime != nil:
			return b.StartTime.Compare(a.StartTime.Time)
		}
		return 0
	})
	return h
}

// recordedAuthor is the author of a commit as the controller has recorded it on the
// BatchRelease; empty where that is about another commit.
func recordedAuthor(br *v1alpha1.BatchRelease, commit string) string {
	if commit == "" || br.Spec.Commit != commit {
		return ""
	}
	return gitobject.Printable(br.Annotations[v1alpha1.AnnotationCommitAuthor])
}

// authorUnknown stands in tables for the author of a commit that neither the cluster nor
// the clone has.
const authorUnknown = "unknown"

// author is who made the commit, for a table.
func (e *HistoryEntry) author() string {
	if e.Author == "" && e.Commit != "" {
		return authorUnknown
	}
	return cli.OrNone(e.Author)
}

// readCommits adds what the clone that one stands in has of the commits. A history
// without authors is still one, so nothing that goes wrong here ends the command.
func (h *History) readCommits(ctx context.Context) {
	here, err := os.Getwd()
	if err != nil {
		return
	}
	in, err := clone.At(ctx, here)
	if err != nil {
		return
	}
	commits, rejected := commitsOf(ctx, in, h.Items), rejectedIn(ctx, in)
	for i := range h.Items {
		e := &h.Items[i]
		if c, ok := commits[e.Commit]; ok {
			e.Author, e.Subject = cmp.Or(e.Author, c[0]), c[1]
		}
		if r, ok := rejected[e.Namespace+"/"+e.Name+" "+e.Commit]; ok && e.Outcome != string(v1alpha1.OutcomeCompleted) {
			e.Rejected = &r
		}
	}
}

// commitsOf returns author and subject of the commits that the clone has.
func commitsOf(ctx context.Context, in *clone.Clone, entries []HistoryEntry) map[string][2]string {
	args := []string{"--no-replace-objects", "log", "--no-walk", "--ignore-missing", "--format=%H%x00%an <%ae>%x00%s"}
	asked := len(args)
	for _, e := range entries {
		if e.Commit != "" && !slices.Contains(args, e.Commit) {
			args = append(args, e.Commit)
		}
	}
	found := map[string][2]string{}
	if len(args) == asked {
		return found
	}
	out, err := in.Git(ctx, args...)
	if err != nil {
		return found
	}
	for line := range strings.Lines(out) {
		if f := strings.Split(strings.TrimRight(line, "\n"), "\x00"); len(f) == 3 {
			found[f[0]] = [2]string{gitobject.Printable(f[1]), gitobject.Printable(f[2])}
		}
	}
	return found
}

// rejectedIn returns the rejections that the clone has, by release and commit.
func rejectedIn(ctx context.Context, in *clone.Clone) map[string]Rejection {
	found := map[string]Rejection{}
	value := func(key string) string { return "%(trailers:key=" + key + ",valueonly,unfold,separator=%x20)" }
	out, err := in.Git(ctx, "log", "--all", "--grep=^"+cli.TrailerRejected+": ",
		"--format=%H%x00%an <%ae>%x00"+value("Tranche-Release")+"%x00"+value("Tranche-Commit")+"%x00"+value(cli.TrailerRejected))
	if err != nil {
		return found
	}
	for line := range strings.Lines(out) {
		if f := strings.Split(strings.TrimRight(line, "\n"), "\x00"); len(f) == 5 {
			found[f[2]+" "+f[3]] = Rejection{Commit: f[0], By: gitobject.Printable(f[1]), Reason: gitobject.Printable(f[4])}
		}
	}
	return found
}

// table has a line for each release.
func (h *History) table(names, namespaces bool) string {
	head := []string{"STARTED", "ENDED", "REVISION", "COMMIT", "AUTHOR", "OUTCOME", "APPROVED BY"}
	measured := slices.ContainsFunc(h.Items, func(e HistoryEntry) bool { return len(e.Analysis) > 0 })
	if measured {
		head = append(head, "MEASURED")
	}
	if names {
		head = slices.Insert(head, 2, "RELEASE")
	}
	rows := [][]string{head}
	for _, e := range h.Items {
		row := []string{
			cli.Absolute(e.StartTime), cli.Absolute(e.EndTime), e.Revision, cli.OrNone(cli.Short(e.Commit)), e.author(), e.outcome(),
			cli.OrNone(approvers(e.Approvals)),
		}
		if measured {
			row = append(row, cli.OrNone(evidence(e.Analysis)))
		}
		if names {
			name := e.Name
			if namespaces {
				name = e.Namespace + "/" + e.Name
			}
			row = slices.Insert(row, 2, name)
		}
		rows = append(rows, row)
	}
	return cli.Table(rows)
}

// outcome says how a release ended and how long it took, and marks one that brought
// back what ran before.
func (e *HistoryEntry) outcome() string {
	text := e.Outcome
	if e.Rollback {
		text += ", a rollback"
	}
	if e.StartTime != nil && e.EndTime != nil {
		text += " after " + duration.HumanDuration(e.EndTime.Sub(e.StartTime.Time))
		if at := view.AtGates(e.StepTimes, e.EndTime.Time); at > 0 {
			text += ", " + duration.HumanDuration(at) + " of it at gates"
		}
	}
	if e.Rejected != nil {
		text += ", rejected by " + e.Rejected.By + ": " + e.Rejected.Reason
	}
	return text
}

// evidence says what was measured: "step 0: errors Fail, 4.0 % (41/1022) against 0.1 % (12/9210) of stable".
func evidence(list []view.Evidence) string {
	var texts []string
	for i := range list {
		texts = append(texts, list[i].Line())
	}
	return strings.Join(texts, "; ")
}

// approvers says who opened which gates: "step 0: Ada <ada@example.org> in 3f2c1e0".
func approvers(list []v1alpha1.StepApproval) string {
	var texts []string
	for _, a := range list {
		texts = append(texts, fmt.Sprintf("step %d: %s", a.Step, terminal.Printable(view.Approver(a))))
	}
	return strings.Join(texts, "; ")
}
