package report

import (
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"

	"github.com/tranche-dev/tranche/gitsync/outcome"
	"github.com/tranche-dev/tranche/plan"
	"github.com/tranche-dev/tranche/plan/v1alpha1"
)

// Event is about a GitSource, or about an object that it applies.
type Event struct {
	// Of is the object; nil: the event is about the source alone. Events of one reason that are
	// about one object are taken for one and the same, whatever they say.
	Of runtime.Object
	// Type is [corev1.EventTypeNormal] or [corev1.EventTypeWarning].
	Type, Reason, Message string
	// Commit is the one that the sync is about.
	Commit string
}

// RecordEvent records an event.
func (w *Writer) RecordEvent(e Event) {
	w.send(e)
	w.Log.Info("Recorded event", "reason", e.Reason, "commit", e.Commit, "because", e.Message)
}

// notifyApplied records the commits that a sync has applied.
func (w *Writer) notifyApplied(o *outcome.Outcome) {
	for _, message := range o.Applied {
		w.RecordEvent(Event{Type: corev1.EventTypeNormal, Reason: v1alpha1.ReasonApplied, Message: message, Commit: o.Commit})
	}
}

func (w *Writer) send(e Event) {
	w.Events.Eventf(w.Source, e.Of, e.Type, e.Reason, "Sync", "%s", note(e.Message))
}

// note is as long as the API server lets a note be.
func note(s string) string {
	const most = 1000
	if len(s) > most {
		return string([]rune(s)[:most/4]) + "…"
	}
	return s
}

// log says what is not applied. Events say it only where it is new.
func (w *Writer) log(o *outcome.Outcome) {
	w.logProblems(o)
	if reason, message := intents(o); reason != "" {
		w.Log.Info("Not committed", "reason", reason, "commit", o.Commit, "because", message)
	}
}

func (w *Writer) logProblems(o *outcome.Outcome) {
	if reason, message := problems(o); reason != "" {
		w.Log.Info("Not applied", "reason", reason, "commit", o.Commit, "because", message)
	}
}

// notify records the events about the end of a sync, for those conditions that the source had
// before.
func (w *Writer) notify(o *outcome.Outcome, was []metav1.Condition) {
	w.notifyProblems(o, was)
	w.notifyOverdue(o, was)
	w.notifyIntents(o, was)
	w.notifyIgnored(o, was)
}

// problems returns what is not applied; empty: all is.
func problems(o *outcome.Outcome) (reason, message string) {
	ps := slices.Concat(o.Problems, o.MaintenanceErrors)
	if len(ps) == 0 {
		return "", ""
	}
	return ps[0].Reason, outcome.OneCondition(ps.Error())
}

func (w *Writer) notifyProblems(o *outcome.Outcome, was []metav1.Condition) {
	reason, message := problems(o)
	if reason == "" {
		return
	}
	ready := meta.FindStatusCondition(was, v1alpha1.ConditionReady)
	if ready == nil || ready.Status != metav1.ConditionFalse || !strings.Contains(ready.Message, message) {
		w.send(Event{Type: corev1.EventTypeWarning, Reason: reason, Message: message})
	}
}

// intents returns what the branch does not say; empty: it says all.
func intents(o *outcome.Outcome) (reason, message string) {
	if len(o.Intents) == 0 {
		return "", ""
	}
	return o.Intents[0].Reason, o.Intents.Error()
}

// notifyIntents records what the branch does not say, when that is something else than before.
func (w *Writer) notifyIntents(o *outcome.Outcome, was []metav1.Condition) {
	reason, message := intents(o)
	inSync := meta.FindStatusCondition(was, v1alpha1.ConditionInSync)
	known := inSync != nil && inSync.Reason == reason && strings.HasPrefix(inSync.Message, outcome.OneCondition(message))
	if reason != "" && !known {
		w.send(Event{Type: corev1.EventTypeWarning, Reason: reason, Message: message})
	}
}

// notifyIgnored records what was left out, when it is something else than before:
// one event for each reason.
func (w *Writer) notifyIgnored(o *outcome.Outcome, was []metav1.Condition) {
	if len(o.Problems) > 0 || len(o.Awaited) > 0 || o.Suspended {
		return
	}
	whole := ""
	for _, p := range o.Ignored {
		whole += p.Error() + "\n"
	}
	if whole == w.Known.ignored {
		return
	}
	w.Known.ignored = whole
	inSync := meta.FindStatusCondition(was, v1alpha1.ConditionInSync)
	if whole == "" || inSync != nil && inSync.Message == outcome.OneCondition(o.Ignored.Error()) {
		return // notified before a restart
	}
	var reasons []string
	by := map[string]plan.Problems{}
	for _, p := range o.Ignored {
		if by[p.Reason] == nil {
			reasons = append(reasons, p.Reason)
		}
		by[p.Reason] = append(by[p.Reason], p)
	}
	for _, reason := range reasons {
		w.RecordEvent(Event{Type: corev1.EventTypeWarning, Reason: reason, Message: by[reason].Error(), Commit: o.Commit})
	}
}
