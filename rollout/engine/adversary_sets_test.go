package engine_test

import (
	"errors"
	"fmt"
	"maps"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/equality"

	"github.com/tranche-dev/tranche/plan"
	"github.com/tranche-dev/tranche/plan/v1alpha1"
	"github.com/tranche-dev/tranche/rollout/engine"
)

// This file is admission that mutates the ReplicaSets that the controller makes, and
// what package rollout does about it. It exempts the native controller, which would
// make ReplicaSets without end.

// errAltered says that admission has changed the template of a ReplicaSet that was made.
var errAltered = errors.New("admission changes the template of a ReplicaSet")

// setsTrial is what the process remembers of the last ReplicaSet that was changed.
type setsTrial struct {
	about string
	until time.Time
	wait  time.Duration
}

func aboutRelease(br *v1alpha1.BatchRelease) string {
	return fmt.Sprint(br.UID, br.Generation, br.Annotations)
}

// altered reports whether admission of ReplicaSets has made a template.
func altered(t *corev1.PodTemplateSpec) bool { return t.Annotations[annotationMade] == byReplicaSets }

// alter is what admission does to the template of a ReplicaSet that is created.
func (c *cluster) alter(rs *appsv1.ReplicaSet, dryRun bool) *appsv1.ReplicaSet {
	switch {
	case c.setAdmission == admitsAll, c.setAdmission == mutatesSince && !c.alters, c.setAdmission == mutatesNotDry && dryRun:
		return rs
	}
	rs = rs.DeepCopy()
	rs.Spec.Template.Annotations = maps.Clone(rs.Spec.Template.Annotations)
	if rs.Spec.Template.Annotations == nil {
		rs.Spec.Template.Annotations = map[string]string{}
	}
	rs.Spec.Template.Annotations[annotationMade] = byReplicaSets
	return rs
}

// makeSet makes a ReplicaSet at 0, and gives it its size if its template is the one
// that was sent.
func (c *cluster) makeSet(rs *appsv1.ReplicaSet) error {
	empty := rs.DeepCopy()
	empty.Spec.Replicas = new(int32)
	c.createSet(c.alter(empty, false))
	i := len(c.sets) - 1
	switch {
	case c.halfway:
		return errAgain
	case altered(&c.sets[i].rs.Spec.Template):
		return errAltered
	}
	c.writeSet(i, func(made *appsv1.ReplicaSet) { made.Spec.Replicas = rs.Spec.Replicas })
	return nil
}

// tryReplicaSets is the dry run of the creation that follows a hold.
func (c *cluster) tryReplicaSets(o engine.Observed, d engine.Decision) error {
	for _, a := range d.Actions {
		h, ok := a.(engine.Hold)
		if !ok || o.Deployment.Labels[v1alpha1.LabelHeld] != "" && (plan.EqualTemplate(h.Template, &o.Deployment.Spec.Template) || !engine.Held(o.Deployment)) {
			continue
		}
		for _, rs := range engine.Moves(o) {
			if rs.UID == "" && altered(&c.alter(rs, true).Spec.Template) {
				return errAltered
			}
		}
	}
	return nil
}

// awaitTrial refuses creations until the next one may be tried.
func (c *cluster) awaitTrial(o *engine.Observed) {
	if c.trial.about != aboutRelease(o.Release) {
		c.trial = setsTrial{}
		return
	}
	if c.now.Before(c.trial.until) && o.Refused == nil {
		o.Refused, o.RefusedReason, o.CreationRefused = errAltered, v1alpha1.ReasonWriteRefused, true
	}
}

// tellAltered ends a round that has made a ReplicaSet whose template was changed.
func tellAltered(c *cluster, o *engine.Observed) {
	wait := min(max(time.Minute, 2*c.trial.wait), time.Hour)
	c.trial = setsTrial{about: aboutRelease(o.Release), until: c.now.Add(wait), wait: wait}
	tellRefused(c, o, errAltered)
}

// tellRefused ends a round in which the API server has refused or changed a write.
func tellRefused(c *cluster, o *engine.Observed, err error) {
	status, wait := engine.Refused(*o, err, c.now)
	c.wake = c.now.Add(wait)
	if equality.Semantic.DeepEqual(o.Release.Status, status) || o.Release.ResourceVersion != c.br.ResourceVersion {
		return
	}
	before := c.br.Status
	c.writeStatus(status)
	c.brRead = c.br
	c.oracle.said(c, o, before)
}

// judgeTemplates: the controller gives no pod to a template that Git never had.
func (o *oracle) judgeTemplates(c, before *cluster, a engine.Action) {
	for i := range c.sets {
		rs := c.sets[i].rs
		if rs == nil || !altered(&rs.Spec.Template) {
			continue
		}
		var was int32
		if i < len(before.sets) && before.sets[i].rs != nil {
			was = before.size(i)
		}
		if c.size(i) > was {
			c.violate("template", "%s gives pods to a template that Git never had\n was %s", a, before)
		}
	}
}
