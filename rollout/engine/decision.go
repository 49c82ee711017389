package engine

import (
	"time"

	"github.com/tranche-dev/tranche/plan/v1alpha1"
	"github.com/tranche-dev/tranche/rollout/engine/action"
)

// Decision is what comes out of a round.
type Decision struct {
	// Actions are the writes to make, in this order; the first that fails
	// ends the round, and the next one looks again.
	Actions []Action
	// Status is true once the actions are made.
	Status v1alpha1.BatchReleaseStatus
	// Events tell what was decided, for people.
	Events []Event
	// Wait is when to look again; 0: when something changes.
	Wait time.Duration
	// Measure are the measurements whose answers are missing, those that are due and the next
	// ones. Each stays in the list until its answer is in the status. An answer may be forgotten
	// once its key is not in the list any more.
	Measure []Measurement
	// NeedsPods: the decision depends on why pods of the update revision are not
	// available. Observe [Observed].Pods and decide again before acting on it.
	NeedsPods bool
	// NeedsReady: a gate opens in it. Observe [Observed].Ready and decide again before acting
	// on it.
	NeedsReady bool
	// Unready: pods are on their way. With [Observed].Pods the message says why they
	// are not there; all else stays.
	Unready bool
	// Growth gives the update revision's ReplicaSet the size that its step gives it, if that is
	// larger. The actions may make room for it first.
	Growth *Resize
}

// Event is one line of the story that `kubectl describe` tells.
type Event struct {
	Warning bool
	Reason  string
	Message string
}

// Action is one write to one object. Package action has the closed set.
type Action = action.Action

// The actions, under the names that callers use.
type (
	Remember          = action.Remember
	Forget            = action.Forget
	Hold              = action.Hold
	HandBack          = action.HandBack
	Unlabel           = action.Unlabel
	CreateReplicaSet  = action.CreateReplicaSet
	CountCollision    = action.CountCollision
	Resize            = action.Resize
	UnlabelReplicaSet = action.UnlabelReplicaSet
	ClearRollback     = action.ClearRollback
)
