package view

import (
	"cmp"
	"net/url"
	"path"
	"regexp"
	"strings"

	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/tranche-dev/tranche/cmd/tranche/cli"
	"github.com/tranche-dev/tranche/gitsync/gitobject"
	"github.com/tranche-dev/tranche/plan"
	"github.com/tranche-dev/tranche/plan/v1alpha1"
)

// Need is what a person has to do.
type Need string

// The needs.
const (
	NeedNothing   Need = ""
	NeedApproval  Need = "approval"  // of the present step
	NeedResume    Need = "resume"    // the plan is paused
	NeedRevert    Need = "revert"    // the branch still brings what failed
	NeedAttention Need = "attention" // it does not go on as it should
)

// Row is a release as a table shows it. It has only what its BatchRelease says.
type Row struct {
	Namespace  string `json:"namespace"`
	Name       string `json:"name"`
	Deployment string `json:"deployment"`
	// Source is NAMESPACE/NAME of the GitSource; empty: none.
	Source      string       `json:"source,omitempty"`
	Phase       string       `json:"phase"`
	Reason      string       `json:"reason"`
	Message     string       `json:"message,omitempty"`
	Tone        Tone         `json:"tone"`
	Needs       Need         `json:"needs,omitempty"`
	Step        int32        `json:"step"`
	Steps       int32        `json:"steps"`
	RollingBack bool         `json:"rollingBack,omitempty"`
	Paused      bool         `json:"paused,omitempty"`
	Replicas    int32        `json:"replicas"`
	Updated     int32        `json:"updated"`
	Available   int32        `json:"available"`
	Stable      string       `json:"stable,omitempty"`
	Update      string       `json:"update,omitempty"`
	Image       string       `json:"image,omitempty"`
	Commit      string       `json:"commit,omitempty"`
	Author      string       `json:"author,omitempty"`
	Since       *metav1.Time `json:"since,omitempty"`
	Start       *metav1.Time `json:"start,omitempty"`
}

// NewRow returns the row of a release.
func NewRow(br *v1alpha1.BatchRelease) Row {
	at, commit := &br.Status, cli.CommitOf(br)
	row := Row{
		Namespace: br.Namespace, Name: br.Name, Deployment: br.Spec.WorkloadRef.Name,
		Phase: string(at.Phase), Reason: at.Reason, Message: at.Message, Tone: rowTone(at), Needs: needOf(br),
		Step: at.CurrentStepIndex, Steps: int32(len(br.Spec.Strategy.Steps)), RollingBack: at.RollingBack, Paused: br.Spec.Paused,
		Replicas: at.Replicas, Updated: at.UpdatedReplicas, Available: at.UpdatedAvailableReplicas,
		Stable: at.StableRevision, Update: at.UpdateRevision, Commit: commit, Author: recordedAuthor(br, commit),
		Since: at.ReasonTime, Start: at.StartTime,
	}
	if key := SourceKey(br); key.Name != "" {
		row.Source = key.Namespace + "/" + key.Name
	}
	if t := br.Spec.Template; t != nil && len(t.Spec.Containers) > 0 {
		row.Image = t.Spec.Containers[0].Image
	}
	if row.Since == nil {
		row.Since = cmp.Or(at.StepStateTime, at.LastUpdateTime)
	}
	return row
}

// recordedAuthor returns the author of a commit as the BatchRelease has it; empty: that is
// about another commit.
func recordedAuthor(br *v1alpha1.BatchRelease, commit string) string {
	if commit == "" || br.Spec.Commit != commit {
		return ""
	}
	return gitobject.Printable(br.Annotations[v1alpha1.AnnotationCommitAuthor])
}

// rowTone is toneOf, where a rollback under way is busy and a status that is not there yet
// is, too.
func rowTone(at *v1alpha1.BatchReleaseStatus) Tone {
	switch at.Reason {
	case v1alpha1.ReasonRollingBack, v1alpha1.ReasonNativeRollout, "":
		if meta.IsStatusConditionTrue(at.Conditions, v1alpha1.ConditionStalled) {
			return ToneBad
		}
		return ToneBusy
	case v1alpha1.ReasonWaitingForReview:
		return ToneWaits
	}
	return toneOf(at.Reason)
}

// needOf returns what a person has to do for a release.
func needOf(br *v1alpha1.BatchRelease) Need {
	at := &br.Status
	switch at.Reason {
	case v1alpha1.ReasonWaitingForApproval, v1alpha1.ReasonWaitingForReview:
		return NeedApproval
	case v1alpha1.ReasonReleasePaused:
		return NeedResume
	case v1alpha1.ReasonRolledBack:
		if at.FailedCommit == "" {
			return NeedNothing
		}
		return NeedRevert
	case v1alpha1.ReasonWaitingForSource:
		return NeedNothing
	}
	if rowTone(at) == ToneBad {
		return NeedAttention
	}
	return NeedNothing
}

// SourceRow is a GitSource as a table shows it.
type SourceRow struct {
	Namespace string `json:"namespace"`
	Name      string `json:"name"`
	URL       string `json:"url"`
	Ref       string `json:"ref"`
	Branch    string `json:"branch"`
	Path      string `json:"path,omitempty"`
	Applied   string `json:"applied,omitempty"`
	Observed  string `json:"observed,omitempty"`
	Suspended bool   `json:"suspended,omitempty"`
	Tone      Tone   `json:"tone"`
	Reason    string `json:"reason,omitempty"`
	// AsOf is when the controller wrote the status last.
	AsOf     *metav1.Time `json:"asOf,omitempty"`
	Problems []Problem    `json:"problems,omitempty"`
	Since    *metav1.Time `json:"since,omitempty"`
}

// Problem is a problem of a source, with its place in the repository where that is known.
type Problem struct {
	Reason  string `json:"reason"`
	File    string `json:"file,omitempty"`
	Object  string `json:"object,omitempty"`
	Field   string `json:"field,omitempty"`
	Message string `json:"message"`
}

// NewSourceRow returns the row of a source.
func NewSourceRow(gs *v1alpha1.GitSource) SourceRow {
	row := SourceRow{
		Namespace: gs.Namespace, Name: gs.Name, URL: withoutUser(gs.Spec.URL), Ref: cli.PinOf(gs.Spec.Ref), Branch: gs.Spec.Ref.Branch,
		Applied: gs.Status.AppliedCommit, Observed: gs.Status.ObservedCommit, Suspended: gs.Spec.Suspend, Tone: ToneGood,
	}
	if p := path.Clean(gs.Spec.Path); p != "." {
		row.Path = p
	}
	if at := cli.WrittenAt(gs); !at.IsZero() {
		row.AsOf = &at
	}
	ready := cli.ReadyOf(gs)
	row.Reason = ready.Reason
	switch problem := cli.ProblemOf(gs); {
	case gs.Spec.Suspend:
		row.Tone, row.Reason = ToneWaits, v1alpha1.ReasonSuspended
	case problem != nil:
		row.Tone, row.Reason, row.Since = ToneBad, problem.Reason, &problem.LastTransitionTime
		row.Problems = problemsOf(problem.Reason, problem.Message)
	case ready.Status != metav1.ConditionTrue:
		row.Tone = ToneBusy
	}
	return row
}

func withoutUser(at string) string {
	if u, err := url.Parse(at); err == nil && u.User != nil {
		u.User = nil
		return u.String()
	}
	return at
}

var (
	fileOf   = regexp.MustCompile(`^([^\s:]+\.(?:ya?ml|json)): `)
	objectOf = regexp.MustCompile(`^([A-Z]\w+ \S+?): `)
	fieldOf  = regexp.MustCompile(`^((?:spec|metadata|data|status)(?:[\w./*-]|\[[^\]]*\])*): `)
)

// problemsOf takes the message of a condition apart, as [plan.Problems] makes it.
func problemsOf(reason, message string) []Problem {
	var problems []Problem
	for text := range strings.SplitSeq(message, " | ") {
		p := Problem{Reason: reason}
		for _, part := range []struct {
			into *string
			is   *regexp.Regexp
		}{{&p.File, fileOf}, {&p.Object, objectOf}, {&p.Field, fieldOf}} {
			if m := part.is.FindStringSubmatch(text); m != nil {
				*part.into, text = m[1], text[len(m[0]):]
			}
		}
		p.Message = plan.OneLine(text)
		problems = append(problems, p)
	}
	return problems
}
