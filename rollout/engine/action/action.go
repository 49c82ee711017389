package action

import (
	"fmt"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"

	"github.com/tranche-dev/tranche/plan"
	"github.com/tranche-dev/tranche/plan/v1alpha1"
	"github.com/tranche-dev/tranche/rollout/engine/facts"
)

// Action is one write to one object. The set is closed: Remember, Forget,
// Hold, HandBack, Unlabel, CreateReplicaSet, CountCollision, Resize, UnlabelReplicaSet,
// ClearRollback.
type Action interface {
	// String says what is written, in a few words.
	String() string
	// Because says why.
	Because() string
	action()
}

// Why is why a write is made. Each action embeds it.
type Why string

// Because returns it as a string.
func (w Why) Because() string { return string(w) }
func (Why) action()           {}

// Remember keeps a revision: as the stable one, or with Order 0 as the one that
// is being released.
type Remember struct {
	Why
	Record plan.Record
	// Exists: the record is there already, and its order, name and origin change.
	Exists bool
	// Written: the template to keep is the one that the API server returned for the write
	// before, which admission may have changed. If that is Record.Template nothing is
	// written, unless the record has neither a name nor an order: then it is not there
	// yet.
	Written bool
	// Renames: a template that admission has changed is another revision, and named
	// as its ReplicaSet will be. Not once it has pods: approvals have its name then.
	Renames bool
}

func (a Remember) String() string {
	switch {
	case a.Written:
		return "remember the template of " + a.Record.Revision + " as written"
	case a.Record.Order == 0:
		return "remember " + a.Record.Revision
	}
	return "remember " + a.Record.Revision + " as stable"
}

// Forget deletes a record that is neither of the stable nor of the last
// stable revision.
type Forget struct {
	Why
	Record plan.Record
}

func (a Forget) String() string { return "forget " + a.Record.Revision }

// Hold keeps the native controller off and sets the template, in one write. A
// Remember of the template as it was written follows it.
type Hold struct {
	Why
	Template *corev1.PodTemplateSpec
	Revision string
}

func (a Hold) String() string { return "hold at template " + a.Revision }

// HandBack ends the hold: unpaused, the manifest's own strategy back, nothing
// of ours left, in one write.
type HandBack struct {
	Why
	Strategy appsv1.DeploymentStrategy
	// Template is set only where the Deployment is handed back at the stable
	// one; nil leaves the template as it is.
	Template *corev1.PodTemplateSpec
}

func (a HandBack) String() string {
	if a.Template != nil {
		return "hand back at the stable template"
	}
	return "hand back"
}

// Unlabel takes the label of a hold off a Deployment that is not held.
type Unlabel struct{ Why }

func (Unlabel) String() string { return "take off label " + v1alpha1.LabelHeld }

// CreateReplicaSet makes the update revision's ReplicaSet, complete.
type CreateReplicaSet struct {
	Why
	ReplicaSet *appsv1.ReplicaSet
}

func (a CreateReplicaSet) String() string {
	return fmt.Sprintf("create ReplicaSet %s of %d", a.ReplicaSet.Name, facts.Size(a.ReplicaSet))
}

// CountCollision raises the count that the hashes of new names contain: a ReplicaSet that
// is being deleted has this one. The next round makes the ReplicaSet under another name.
type CountCollision struct {
	Why
	Name string
}

func (a CountCollision) String() string { return "find another name than " + a.Name }

// Resize sets a ReplicaSet's size and its desired-replicas and max-replicas
// annotations, in one write (H6).
type Resize struct {
	Why
	ReplicaSet *appsv1.ReplicaSet
	To         int32
	Desired    int32
	Max        int32
	// Held: the ReplicaSet then has the label of a hold. If not, it is without.
	Held bool
}

func (a Resize) String() string {
	if from := facts.Size(a.ReplicaSet); from != a.To {
		return fmt.Sprintf("resize ReplicaSet %s from %d to %d", a.ReplicaSet.Name, from, a.To)
	}
	return "put right the annotations of ReplicaSet " + a.ReplicaSet.Name
}

// UnlabelReplicaSet takes the label of a hold off a ReplicaSet.
type UnlabelReplicaSet struct {
	Why
	ReplicaSet *appsv1.ReplicaSet
}

func (a UnlabelReplicaSet) String() string {
	return "take label " + v1alpha1.LabelHeld + " off ReplicaSet " + a.ReplicaSet.Name
}

// ClearRollback takes the rollback annotation off the BatchRelease, once it
// has been acted on.
type ClearRollback struct{ Why }

func (ClearRollback) String() string { return "clear the rollback annotation" }
