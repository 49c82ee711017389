package report

import (
	"context"
	"fmt"
	"slices"
	"time"

	"github.com/go-logr/logr"
	"k8s.io/apimachinery/pkg/api/equality"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/tools/events"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/tranche-dev/tranche/gitsync/apiproblem"
	"github.com/tranche-dev/tranche/gitsync/metrics"
	"github.com/tranche-dev/tranche/gitsync/outcome"
	"github.com/tranche-dev/tranche/gitsync/requests"
	"github.com/tranche-dev/tranche/plan"
	"github.com/tranche-dev/tranche/plan/v1alpha1"
)

// Input is the GitSource of a sync, and how to write about it.
type Input struct {
	// Source is the GitSource. Its status is what to write.
	Source *v1alpha1.GitSource
	Client client.Client
	Events events.EventRecorder
	Log    logr.Logger
	// Known is what earlier syncs have reported.
	Known Known
	// HandBackWithin is how long a hand-back may take; 0: a minute.
	HandBackWithin time.Duration
	// Notify is called when a branch can no longer be followed, and when it can again; nil:
	// there is no receiver.
	Notify func(SourceNews)
}

// Known is what was reported of a source. Losing it costs little: the conditions say most of it.
type Known struct {
	// ignored is what was left out, and failure what was wrong with the source.
	ignored, failure string
	// handBack is when the wait for hand-backs began; zero: none is waited for.
	handBack time.Time
}

// Writer writes the status of a GitSource, and records events, in one sync.
type Writer struct {
	Input
	written *v1alpha1.GitSourceStatus
}

// New returns a writer. The API server has the status that the source has now.
func New(in Input) *Writer { return &Writer{in, in.Source.Status.DeepCopy()} }

// Written returns the status that the API server has.
func (w *Writer) Written() *v1alpha1.GitSourceStatus { return w.written }

// Conclude writes the status at the end of a sync, and then records events. If the API server
// refuses the status, the outcome has a problem more.
func (w *Writer) Conclude(ctx context.Context, o *outcome.Outcome) error {
	status, was := &w.Source.Status, w.written.Conditions
	said, later := *o, (*outcome.Outcome)(nil)
	w.log(o)
	if !o.Suspended && o.Commit != "" {
		status.ObservedCommit = o.Commit
	}
	if requests.IsAsked(w.Source) {
		status.LastHandledReconcileAt = requests.Asked(w.Source)
	}
	err := w.Report(ctx, o)
	if isOutdatedCRD(err) {
		if w.addProblems(o, plan.ProblemsOf(err)) {
			with := *o
			later = &with
		}
		status.Conditions = o.Conditions(w.Source.Generation, status.Conditions)
		err = w.write(ctx) // without the fields that the API server does not know
	}
	refused := apierrors.IsForbidden(err) || apierrors.IsInvalid(err) || apierrors.IsBadRequest(err)
	if refused { // the status cannot say it: the metrics and the log do
		o.Problems = append(apiproblem.OfSource(w.Source, err), o.Problems...)
		status.Conditions = o.Conditions(w.Source.Generation, status.Conditions)
		w.Log.Error(err, "Status not written", "commit", o.Commit)
	}
	metrics.Synced(client.ObjectKeyFromObject(w.Source), status.Conditions, o.Behind)
	if err == nil {
		w.notifyApplied(o)
	}
	if err == nil || refused { // else the next sync finds the same
		w.notify(&said, was)
		if later != nil {
			w.notifyProblems(later, was)
		}
	}
	if err == nil {
		w.notifySource(o, was)
	}
	return err
}

// Report writes an outcome into the status.
func (w *Writer) Report(ctx context.Context, o *outcome.Outcome) error {
	w.Source.Status.ObservedGeneration = w.Source.Generation
	w.Source.Status.Conditions = o.Conditions(w.Source.Generation, w.Source.Status.Conditions)
	return w.Save(ctx)
}

// addProblems adds to an outcome the problems of a list that it does not have. It reports
// whether there are any.
func (w *Writer) addProblems(o *outcome.Outcome, list plan.Problems) bool {
	more := NewProblems(o.Problems, list)
	if len(more) > 0 {
		o.Problems = append(more, o.Problems...)
		w.logProblems(o)
	}
	return len(more) > 0
}

// strictly has the API server refuse a status with fields that it does not know. It would
// drop them silently otherwise.
const strictly = client.FieldValidation(metav1.FieldValidationStrict)

// Save writes the status if it says something new.
func (w *Writer) Save(ctx context.Context) error { return w.write(ctx, strictly) }

func (w *Writer) write(ctx context.Context, opts ...client.SubResourceUpdateOption) error {
	if equality.Semantic.DeepEqual(w.written, &w.Source.Status) {
		return nil
	}
	name := client.ObjectKeyFromObject(w.Source).String()
	err := w.Client.Status().Update(ctx, w.Source, append(opts, client.FieldOwner(v1alpha1.ManagerGitSync))...)
	if plan.IsUnknownField(err) {
		var fields []string
		for _, f := range apiproblem.UntypedFields(err.Error()) {
			fields = append(fields, f.Name)
		}
		return &plan.Problem{
			Reason: v1alpha1.ReasonOutdatedCRD, Where: "GitSource " + name, Retry: true,
			Err: fmt.Errorf("the API server knows no field %s", plan.JoinNames(fields)), Hint: plan.HintOlderCRD,
		}
	}
	if err != nil {
		return fmt.Errorf("writing the status of GitSource %s: %w", name, err)
	}
	w.written = w.Source.Status.DeepCopy()
	return nil
}

// isOutdatedCRD reports whether a status was refused for fields that the API server does
// not know.
func isOutdatedCRD(err error) bool {
	return slices.ContainsFunc(plan.ProblemsOf(err), func(p *plan.Problem) bool { return p.Reason == v1alpha1.ReasonOutdatedCRD })
}

// NewProblems returns the problems of a list that are not known yet.
func NewProblems(known, list plan.Problems) plan.Problems {
	return slices.DeleteFunc(list, func(p *plan.Problem) bool {
		return slices.ContainsFunc(known, func(k *plan.Problem) bool { return k.Error() == p.Error() })
	})
}

// OnlyCommitsDiffer reports whether the status is as it was written, except for the commits
// and the tips that were seen.
func (w *Writer) OnlyCommitsDiffer() bool {
	was, now := w.written.DeepCopy(), &w.Source.Status
	was.AppliedCommit, was.ObservedCommit, was.Seen = now.AppliedCommit, now.ObservedCommit, now.Seen
	return equality.Semantic.DeepEqual(was, now)
}
