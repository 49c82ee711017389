// Package podcauses says why pods of a release are not available: not created, not
// scheduled, on a node that is gone, or not ready.
package podcauses

import (
	"context"
	"fmt"
	"maps"
	"regexp"
	"slices"
	"strings"
	"sync"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/selection"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/tranche-dev/tranche/rollout/engine"
)

// Finder finds out why pods are not available. It reads them past the cache, which has
// none: only a release that is stuck asks.
type Finder struct {
	reader   client.Reader
	now      func() time.Time
	since    func(time.Time) time.Duration
	searches *searches
}

// New returns a Finder that reads from the API server. The times that it tells are by now. The
// ages of times in pods, which the cluster has written, are by since.
func New(reader client.Reader, now func() time.Time, since func(time.Time) time.Duration) *Finder {
	return &Finder{reader: reader, now: now, since: since, searches: &searches{of: map[types.NamespacedName]search{}}}
}

// Forget forgets a release that is gone.
func (f *Finder) Forget(release types.NamespacedName) { f.searches.forget(release) }

// Find returns why pods of the update revision are not available.
func (f *Finder) Find(ctx context.Context, o *engine.Observed) (*engine.Pods, error) {
	causes := causes{pods: &engine.Pods{}, counted: map[string]int32{}, since: f.since}
	for _, rs := range o.ReplicaSets {
		if !engine.IsUpdate(o, rs) {
			continue
		}
		causes.notCreated(rs)
		var pods corev1.PodList
		selector := client.MatchingLabels(rs.Spec.Selector.MatchLabels)
		if err := f.reader.List(ctx, &pods, client.InNamespace(rs.Namespace), selector); err != nil {
			return nil, fmt.Errorf("listing the pods of ReplicaSet %s/%s: %w", rs.Namespace, rs.Name, err)
		}
		for i := range pods.Items {
			available := isAvailable(&pods.Items[i], o.Deployment.Spec.MinReadySeconds, f.since)
			if available {
				continue // nothing to explain, and no Node to ask for
			}
			lost, err := f.isLost(ctx, &pods.Items[i])
			if err != nil {
				return nil, err
			}
			causes.add(&pods.Items[i], lost)
		}
		if missing := ptr.Deref(rs.Spec.Replicas, 1) - int32(len(pods.Items)); missing > 0 {
			strangers, keys, err := f.findStrangers(ctx, client.ObjectKeyFromObject(o.Release), rs, missing)
			if err != nil {
				return nil, err
			}
			causes.strangers(strangers, missing, ptr.Deref(rs.Spec.Replicas, 1), keys)
		}
	}
	return causes.sum(f.now()), nil
}

// Ready counts the pods of the update revision that are ready by what they say themselves. It
// reads no clock: how long they have been ready is in the status of their ReplicaSet.
func (f *Finder) Ready(ctx context.Context, o *engine.Observed) (*int32, error) {
	var ready int32
	for _, rs := range o.ReplicaSets {
		if !engine.IsUpdate(o, rs) {
			continue
		}
		for more := ""; ; {
			var pods corev1.PodList
			err := f.reader.List(ctx, &pods, client.InNamespace(rs.Namespace), client.MatchingLabels(rs.Spec.Selector.MatchLabels),
				client.Limit(podsOfPage), client.Continue(more))
			if err != nil {
				return nil, fmt.Errorf("listing the pods of ReplicaSet %s/%s: %w", rs.Namespace, rs.Name, err)
			}
			for i := range pods.Items {
				if pod := &pods.Items[i]; metav1.IsControlledBy(pod, rs) && isReady(pod) {
					ready++
				}
			}
			if more = pods.Continue; more == "" {
				break
			}
		}
	}
	return &ready, nil
}

// isReady reports whether a pod runs and is ready.
func isReady(pod *corev1.Pod) bool {
	counts := pod.Status.Phase == corev1.PodRunning && pod.DeletionTimestamp == nil
	return counts && slices.ContainsFunc(pod.Status.Conditions, func(c corev1.PodCondition) bool {
		return c.Type == corev1.PodReady && c.Status == corev1.ConditionTrue
	})
}

// findStrangers counts the pods that were made for a ReplicaSet and that its selector
// does not match, and names the labels. Admission has changed them, so the ReplicaSet
// controller lets them go and makes others, without end.
//
// Those that have kept a part of their labels are found by it. If these are fewer than
// are missing, all pods of the namespace are listed, page by page. As long as that finds
// none, it is done less and less often.
func (f *Finder) findStrangers(
	ctx context.Context, release types.NamespacedName, rs *appsv1.ReplicaSet, missing int32,
) (n int32, keys []string, err error) {
	const hash = appsv1.DefaultDeploymentUniqueLabelKey
	found := &strangers{of: rs, keys: map[string]bool{}}
	rest := labels.Set(maps.Clone(rs.Spec.Selector.MatchLabels))
	delete(rest, hash)
	selectors := []labels.Selector{labels.SelectorFromSet(labels.Set{hash: rs.Spec.Selector.MatchLabels[hash]})}
	if other, err := labels.NewRequirement(hash, selection.NotEquals, []string{rs.Spec.Selector.MatchLabels[hash]}); err == nil &&
		len(rest) > 0 {
		selectors = append(selectors, rest.AsSelector().Add(*other))
	}
	for _, selector := range selectors {
		if err := f.list(ctx, found, client.MatchingLabelsSelector{Selector: selector}); err != nil {
			return 0, nil, err
		}
	}
	if found.n < missing && f.searches.due(release, rs.UID, f.now()) {
		found = &strangers{of: rs, keys: map[string]bool{}}
		if err := f.list(ctx, found); err != nil {
			return 0, nil, err
		}
		if found.n > 0 {
			f.searches.forget(release) // what was found is as old as this round, and no older
		}
	}
	return found.n, slices.Sorted(maps.Keys(found.keys)), nil
}

// searchAfter and searchEvery bound the time from one list of all pods of a namespace to
// the next one. They apply while pods of a release are missing.
const (
	searchAfter = 15 * time.Second
	searchEvery = 5 * time.Minute
)

// podsOfPage is how many pods a page of a list has.
const podsOfPage = 500

// list adds the strangers among pods of the ReplicaSet's namespace.
func (f *Finder) list(ctx context.Context, found *strangers, opts ...client.ListOption) error {
	var pods metav1.PartialObjectMetadataList
	pods.SetGroupVersionKind(corev1.SchemeGroupVersion.WithKind("PodList"))
	for {
		page := append([]client.ListOption{
			client.InNamespace(found.of.Namespace), client.Limit(podsOfPage), client.Continue(pods.Continue),
		}, opts...)
		if err := f.reader.List(ctx, &pods, page...); err != nil {
			return fmt.Errorf("listing the pods of namespace %s: %w", found.of.Namespace, err)
		}
		for i := range pods.Items {
			found.add(&pods.Items[i])
		}
		if pods.Continue == "" {
			return nil
		}
	}
}

// strangers are pods that were made for a ReplicaSet, and whose labels were changed.
type strangers struct {
	of   *appsv1.ReplicaSet
	n    int32
	keys map[string]bool // of the labels
}

func (s *strangers) add(pod *metav1.PartialObjectMetadata) {
	if pod.GenerateName != s.of.Name+"-" || pod.DeletionTimestamp != nil {
		return
	}
	changed := false
	for k, v := range s.of.Spec.Selector.MatchLabels {
		if pod.Labels[k] != v {
			s.keys[k], changed = true, true
		}
	}
	if changed {
		s.n++
	}
}

// searches remembers, by release, when all pods of its namespace were listed in vain.
type searches struct {
	mu sync.Mutex
	of map[types.NamespacedName]search
}

type search struct {
	set   types.UID // the ReplicaSet
	until time.Time // when the next one may be
	wait  time.Duration
}

// due reports whether all pods may be listed. Each search doubles the time to the next
// one, from searchAfter to searchEvery.
func (s *searches) due(release types.NamespacedName, set types.UID, now time.Time) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	last := s.of[release]
	if last.set != set {
		last = search{set: set, wait: searchAfter / 2}
	}
	if now.Before(last.until) {
		return false
	}
	last.wait = min(2*last.wait, searchEvery)
	last.until = now.Add(last.wait)
	s.of[release] = last
	return true
}

func (s *searches) forget(release types.NamespacedName) {
	s.mu.Lock()
	defer s.mu.Unlock()
	delete(s.of, release)
}

// NotCreated returns the condition by which the ReplicaSet controller says that it
// could not create pods; nil where it could.
func NotCreated(rs *appsv1.ReplicaSet) *appsv1.ReplicaSetCondition {
	for i, c := range rs.Status.Conditions {
		if c.Type == appsv1.ReplicaSetReplicaFailure && c.Status == corev1.ConditionTrue {
			return &rs.Status.Conditions[i]
		}
	}
	return nil
}

// isLost reports whether a pod sits on a node that is gone, or does not answer.
func (f *Finder) isLost(ctx context.Context, pod *corev1.Pod) (bool, error) {
	if pod.Spec.NodeName == "" {
		return false, nil
	}
	var node corev1.Node
	err := f.reader.Get(ctx, types.NamespacedName{Name: pod.Spec.NodeName}, &node)
	switch {
	case apierrors.IsNotFound(err):
		return true, nil
	case apierrors.IsForbidden(err):
		return false, nil // without the right to see nodes, none is lost
	case err != nil:
		return false, fmt.Errorf("getting Node %s: %w", pod.Spec.NodeName, err)
	}
	for _, c := range node.Status.Conditions {
		if c.Type == corev1.NodeReady {
			return c.Status != corev1.ConditionTrue, nil
		}
	}
	return false, nil
}

// causes counts pods by why they are not available.
type causes struct {
	pods    *engine.Pods
	counted map[string]int32
	refused bool // the API server refuses pods of the template
	since   func(time.Time) time.Duration
	placed  time.Duration // for how long the first of the failing pods has had its node
}

// notCreated counts what the ReplicaSet controller could not create. A quota that
// is used up does not tell against a release; a template that is refused does.
func (c *causes) notCreated(rs *appsv1.ReplicaSet) {
	condition := NotCreated(rs)
	if condition == nil || rs.Spec.Replicas == nil {
		return
	}
	missing := *rs.Spec.Replicas - rs.Status.Replicas
	if missing <= 0 {
		return
	}
	if strings.Contains(condition.Message, "exceeded quota") {
		c.pods.Waiting += missing
	} else {
		c.pods.Failing += missing
		c.refused = true
	}
	c.counted["not created: "+podName.ReplaceAllString(condition.Message, "")] += missing
}

// strangers counts the pods that a ReplicaSet has let go. A few may be those that a user
// has given other labels, to look into them. With more of them than the ReplicaSet is to
// have, admission does that to each, and the pods that are missing do not come.
func (c *causes) strangers(n, missing, wanted int32, keys []string) {
	switch {
	case n == 0:
	case n <= wanted+1:
		c.counted["not selected by the ReplicaSet, since the labels "+strings.Join(keys, ", ")+" were changed"] += n
	default:
		c.pods.Failing += missing
		c.refused = true
		c.counted["not selected by the ReplicaSet: an admission policy or webhook changes the labels "+strings.Join(keys, ", ")+
			" of pods, and the ReplicaSet controller makes pods without end; exempt pods from it, and delete these"] += n
	}
}

// podName begins what the API server says of a pod that it refuses. Each try has
// another name.
var podName = regexp.MustCompile(`^pods? "[^"]*" is (forbidden|invalid): `)

// add counts a pod that is not available.
func (c *causes) add(pod *corev1.Pod, lost bool) {
	switch {
	case pod.Status.Phase == corev1.PodFailed || pod.Status.Phase == corev1.PodSucceeded:
		return // the ReplicaSet controller has replaced it, as one that was evicted
	case pod.DeletionTimestamp != nil:
		return // it does not count any more
	case lost:
		c.pods.Waiting++
		c.counted["on node "+pod.Spec.NodeName+", which does not answer"]++
		return
	}
	if pod.Spec.NodeName == "" {
		c.pods.Waiting++
		c.counted["not scheduled"+because(pod)]++
		return
	}
	c.pods.Failing++
	c.counted["not ready"+waitingReason(pod)]++
	c.placed = max(c.placed, c.since(placedTime(pod)))
}

// placedTime returns when a pod got its node. A pod that names its node itself has
// had it from the beginning.
func placedTime(pod *corev1.Pod) time.Time {
	for _, c := range pod.Status.Conditions {
		if c.Type == corev1.PodScheduled && c.Status == corev1.ConditionTrue {
			return c.LastTransitionTime.Time
		}
	}
	return pod.CreationTimestamp.Time
}

// isAvailable reports whether a pod is available, or too young to be.
func isAvailable(pod *corev1.Pod, minReadySeconds int32, since func(time.Time) time.Duration) bool {
	soak := time.Duration(minReadySeconds) * time.Second
	for _, c := range pod.Status.Conditions {
		if c.Type == corev1.PodReady && c.Status == corev1.ConditionTrue {
			return since(c.LastTransitionTime.Time) >= soak || since(pod.CreationTimestamp.Time) <= 2*soak
		}
	}
	return false
}

// because is what the scheduler says of a pod.
func because(pod *corev1.Pod) string {
	for _, c := range pod.Status.Conditions {
		if c.Type == corev1.PodScheduled && c.Message != "" {
			return ": " + c.Message
		}
	}
	return ""
}

// waitingReason is why a scheduled pod is not ready: ImagePullBackOff, or
// CrashLoopBackOff with how its container ended last. Init containers are first.
func waitingReason(pod *corev1.Pod) string {
	for _, s := range slices.Concat(pod.Status.InitContainerStatuses, pod.Status.ContainerStatuses) {
		last := s.LastTerminationState.Terminated
		switch waiting, ended := s.State.Waiting, s.State.Terminated; {
		case waiting != nil && waiting.Reason != "" && last != nil:
			return fmt.Sprintf(": %s, last %s", waiting.Reason, howEnded(last))
		case waiting != nil && waiting.Reason != "":
			return ": " + waiting.Reason
		case ended != nil && ended.ExitCode != 0:
			return ": container " + s.Name + " ended, " + howEnded(ended)
		}
	}
	return ""
}

// howEnded is how a container ended: with an exit code, and OOMKilled where it was.
func howEnded(t *corev1.ContainerStateTerminated) string {
	how := fmt.Sprintf("exit code %d", t.ExitCode)
	if t.Reason != "" && t.Reason != "Error" {
		how += ", " + t.Reason
	}
	return how
}

// namedCauses is how many causes a message names.
const namedCauses = 3

func (c *causes) sum(now time.Time) *engine.Pods {
	var said []string
	for _, cause := range slices.Sorted(maps.Keys(c.counted)) {
		noun := "pods"
		if c.counted[cause] == 1 {
			noun = "pod"
		}
		said = append(said, fmt.Sprintf("%d %s %s", c.counted[cause], noun, cause))
	}
	if more := len(said) - namedCauses; more > 0 {
		said = append(said[:namedCauses], fmt.Sprintf("and %d more causes", more))
	}
	if c.pods.Failing > 0 && !c.refused {
		c.pods.PlacedTime = now.Add(-c.placed)
	}
	c.pods.Cause = strings.Join(said, "; ")
	return c.pods
}
