package view

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/tranche-dev/tranche/cmd/tranche/cli"
	"github.com/tranche-dev/tranche/plan"
	"github.com/tranche-dev/tranche/plan/v1alpha1"
)

// Facts are the objects of a release, as read from the cluster.
type Facts struct {
	Now        time.Time
	Release    *v1alpha1.BatchRelease
	Source     *v1alpha1.GitSource  // nil: none, or the reader may not see it
	Deployment *appsv1.Deployment   // nil: there is none
	Sets       []*appsv1.ReplicaSet // those with pods, and those of the release; newest first
}

// SourceKey returns the name of the GitSource that a release comes from; empty: none.
func SourceKey(br *v1alpha1.BatchRelease) client.ObjectKey {
	name := br.Labels[v1alpha1.LabelSource]
	if name == "" {
		return client.ObjectKey{}
	}
	return client.ObjectKey{Namespace: cmp.Or(br.Labels[v1alpha1.LabelSourceNamespace], br.Namespace), Name: name}
}

// Read reads a release and its objects.
func Read(ctx context.Context, from client.Reader, key client.ObjectKey, now time.Time) (*Facts, error) {
	s := &Facts{Now: now, Release: &v1alpha1.BatchRelease{}}
	if err := from.Get(ctx, key, s.Release); err != nil {
		return nil, fmt.Errorf("reading BatchRelease %s: %w", key, err)
	}
	if err := s.ReadSource(ctx, from); err != nil {
		return nil, err
	}
	return s, s.ReadWorkload(ctx, from)
}

// ReadSource reads the GitSource of the release.
func (s *Facts) ReadSource(ctx context.Context, from client.Reader) error {
	key := SourceKey(s.Release)
	if key.Name == "" {
		return nil
	}
	var gs v1alpha1.GitSource
	err := from.Get(ctx, key, &gs)
	if apierrors.IsNotFound(err) || apierrors.IsForbidden(err) {
		return nil
	}
	if err != nil {
		return fmt.Errorf("reading GitSource %s: %w", key, err)
	}
	s.Source = &gs
	return nil
}

// ReadWorkload reads the Deployment of the release and its ReplicaSets.
func (s *Facts) ReadWorkload(ctx context.Context, from client.Reader) error {
	namespace := s.Release.Namespace
	var d appsv1.Deployment
	err := from.Get(ctx, client.ObjectKey{Namespace: namespace, Name: s.Release.Spec.WorkloadRef.Name}, &d)
	if apierrors.IsNotFound(err) {
		return nil
	}
	if err != nil {
		return fmt.Errorf("reading Deployment %s/%s: %w", namespace, s.Release.Spec.WorkloadRef.Name, err)
	}
	s.Deployment = &d
	selector, err := metav1.LabelSelectorAsSelector(d.Spec.Selector)
	if err != nil {
		return fmt.Errorf("reading Deployment %s/%s: spec.selector: %w", d.Namespace, d.Name, err)
	}
	var list appsv1.ReplicaSetList
	if err := from.List(ctx, &list, client.InNamespace(namespace), client.MatchingLabelsSelector{Selector: selector}); err != nil {
		return fmt.Errorf("listing ReplicaSets: %w", err)
	}
	for i := range list.Items {
		if rs := &list.Items[i]; metav1.IsControlledBy(rs, &d) && (rs.Status.Replicas > 0 || s.Role(rs) != "") {
			s.Sets = append(s.Sets, rs)
		}
	}
	slices.SortFunc(s.Sets, func(a, b *appsv1.ReplicaSet) int {
		return cmp.Or(b.CreationTimestamp.Compare(a.CreationTimestamp.Time), cmp.Compare(a.Name, b.Name))
	})
	return nil
}

// The roles of a ReplicaSet in a release.
const (
	RoleUpdate = "update"
	RoleStable = "stable"
)

// Role returns which revision of the release a ReplicaSet is; empty: none.
func (s *Facts) Role(rs *appsv1.ReplicaSet) string {
	switch rs.Labels[appsv1.DefaultDeploymentUniqueLabelKey] {
	case "":
		return ""
	case s.Release.Status.UpdateRevision:
		if s.RolledBack() {
			return RoleStable
		}
		return RoleUpdate
	case s.Release.Status.StableRevision:
		return RoleStable
	}
	return ""
}

// Set returns the ReplicaSet of a revision, or nil.
func (s *Facts) Set(revision string) *appsv1.ReplicaSet {
	for _, rs := range s.Sets {
		if revision != "" && rs.Labels[appsv1.DefaultDeploymentUniqueLabelKey] == revision {
			return rs
		}
	}
	return nil
}

// RolledBack reports whether the release that spec brings has ended by a rollback.
func (s *Facts) RolledBack() bool {
	at := &s.Release.Status
	return at.Phase == v1alpha1.PhaseCompleted && at.Reason == v1alpha1.ReasonRolledBack && at.FailedRevision != ""
}

// Image is the image of a container.
type Image struct {
	Container string `json:"container"`
	// From is the image of the stable revision; empty: it is the same, or not known.
	From string `json:"from,omitempty"`
	To   string `json:"to"`
}

// Images returns the images of each container of the release.
func (s *Facts) Images() []Image {
	template := s.Release.Spec.Template
	if template == nil {
		return nil
	}
	if rs := s.Set(s.Release.Status.UpdateRevision); rs != nil && cli.CommitOf(s.Release) != s.Release.Spec.Commit {
		template = &rs.Spec.Template // spec brings another one, which has not begun
	}
	before := map[string]string{}
	if rs := s.Set(s.Release.Status.StableRevision); rs != nil {
		for _, c := range cli.Containers(&rs.Spec.Template) {
			before[c.Name] = c.Image
		}
	}
	var images []Image
	for _, c := range cli.Containers(template) {
		image := Image{Container: c.Name, To: c.Image}
		if old := before[c.Name]; old != c.Image {
			image.From = old
		}
		images = append(images, image)
	}
	return images
}

// Tone is what a reason means for a reader.
type Tone string

// The tones.
const (
	ToneGood  Tone = "good"
	ToneWaits Tone = "waits"
	ToneBusy  Tone = "busy"
	ToneBad   Tone = "bad"
)

// Tone returns the tone of the reason of the release.
func (s *Facts) Tone() Tone { return toneOf(s.Release.Status.Reason) }

func toneOf(reason string) Tone {
	switch reason {
	case v1alpha1.ReasonReleaseCompleted:
		return ToneGood
	case v1alpha1.ReasonWaitingForApproval, v1alpha1.ReasonWaitingForPause, v1alpha1.ReasonReleasePaused, v1alpha1.ReasonScaledToZero,
		v1alpha1.ReasonWaitingForAnalysis:
		return ToneWaits
	case v1alpha1.ReasonUpgrading, v1alpha1.ReasonTakingHold, v1alpha1.ReasonHandingBack:
		return ToneBusy
	}
	return ToneBad
}

// Approver returns who opened a gate, and in which commit. After an override it also returns which
// metrics did not count, and why.
func Approver(a v1alpha1.StepApproval) string {
	by := a.By
	switch {
	case a.By == v1alpha1.ApprovedByCluster:
		by = "in the cluster"
	case a.Commit != "":
		by += " in " + cli.Short(a.Commit)
	}
	if len(a.Override) == 0 {
		return by
	}
	by += " (override of " + plan.JoinNames(a.Override)
	if a.Reason != "" {
		by += ": " + clippedTo(a.Reason, maxReason)
	}
	return by + ")"
}

// maxReason is how much of the reason of an override a line has.
const maxReason = 100
