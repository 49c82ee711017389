package rollout

import (
	"context"
	"crypto/sha256"
	"encoding/json"
	"fmt"
	"sync"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/tranche-dev/tranche/plan"
	"github.com/tranche-dev/tranche/plan/v1alpha1"
	"github.com/tranche-dev/tranche/rollout/engine"
)

// indexOwner is the field of the cache's index of ReplicaSets and
// ControllerRevisions.
const indexOwner = "controllerUID"

// observe gathers what a round is decided on.
func (r *reconciler) observe(ctx context.Context, br *v1alpha1.BatchRelease) (engine.Observed, error) {
	o := engine.Observed{Release: br, Minor: r.minor, FirstLook: r.looked.first(client.ObjectKeyFromObject(br))}
	var plans v1alpha1.BatchReleaseList
	if err := r.List(ctx, &plans, client.InNamespace(br.Namespace), client.MatchingFields{v1alpha1.FieldWorkload: br.Spec.WorkloadRef.Name}); err != nil {
		return o, fmt.Errorf("listing the plans of Deployment %s: %w", br.Spec.WorkloadRef.Name, err)
	}
	o.Rival = rival(br, plans.Items)
	err := r.observeWorkload(ctx, types.NamespacedName{Namespace: br.Namespace, Name: br.Spec.WorkloadRef.Name}, &o)
	if err != nil || o.Deployment == nil || br.Spec.Template == nil {
		return o, err
	}
	o.Template, err = r.templates.complete(ctx, r, br, o.Deployment)
	if apierrors.IsInvalid(err) || apierrors.IsBadRequest(err) || apierrors.IsForbidden(err) {
		o.Refused, err = err, nil
	}
	return o, err
}

// rival returns the name of an older plan for the same Deployment, which is
// the one that counts; empty without one.
func rival(br *v1alpha1.BatchRelease, plans []v1alpha1.BatchRelease) string {
	for _, p := range plans {
		before := p.CreationTimestamp.Compare(br.CreationTimestamp.Time)
		if before < 0 || before == 0 && p.Name < br.Name {
			return p.Name
		}
	}
	return ""
}

// observeWorkload gathers the Deployment and what it owns.
func (r *reconciler) observeWorkload(ctx context.Context, key types.NamespacedName, o *engine.Observed) error {
	var d appsv1.Deployment
	if err := r.Get(ctx, key, &d); err != nil {
		if apierrors.IsNotFound(err) {
			return nil
		}
		return fmt.Errorf("getting Deployment %s: %w", key, err)
	}
	owned := []client.ListOption{client.InNamespace(key.Namespace), client.MatchingFields{indexOwner: string(d.UID)}}
	var sets appsv1.ReplicaSetList
	if err := r.List(ctx, &sets, owned...); err != nil {
		return fmt.Errorf("listing the ReplicaSets of Deployment %s: %w", key, err)
	}
	var revisions appsv1.ControllerRevisionList
	if err := r.List(ctx, &revisions, owned...); err != nil {
		return fmt.Errorf("listing the ControllerRevisions of Deployment %s: %w", key, err)
	}
	o.Deployment = &d
	for i := range sets.Items {
		if sets.Items[i].DeletionTimestamp == nil {
			o.ReplicaSets = append(o.ReplicaSets, &sets.Items[i])
		}
	}
	for i := range revisions.Items {
		record, err := plan.ReadRecord(&revisions.Items[i])
		if err != nil {
			return err
		}
		o.Records = append(o.Records, record)
	}
	return nil
}

// templates remembers what the API server makes of a spec.template, so that a
// release asks once: by a dry run of the very write that the hold will be.
type templates struct {
	mu    sync.Mutex
	known map[types.NamespacedName]completed // by BatchRelease
}

type completed struct {
	uid      types.UID
	of       [sha256.Size]byte
	template *corev1.PodTemplateSpec
}

func (t *templates) complete(ctx context.Context, r *reconciler, br *v1alpha1.BatchRelease, d *appsv1.Deployment) (*corev1.PodTemplateSpec, error) {
	raw, err := json.Marshal(br.Spec.Template)
	if err != nil {
		return nil, fmt.Errorf("encoding spec.template: %w", err)
	}
	sum := sha256.Sum256(append(raw, br.Spec.ServiceAccountName...))
	key := client.ObjectKeyFromObject(br)
	t.mu.Lock()
	known := t.known[key]
	t.mu.Unlock()
	if known.uid == br.UID && known.of == sum {
		return known.template, nil
	}
	w, err := r.writerFor(br)
	if err != nil {
		return nil, err
	}
	answer := d.DeepCopy()
	p := jsonPatch{}
	p.add("/spec/template", br.Spec.Template)
	if err := w.Patch(ctx, answer, p.patch(), client.DryRunAll, client.FieldOwner(v1alpha1.ManagerRollout)); err != nil {
		return nil, fmt.Errorf("dry run of spec.template on Deployment %s/%s: %w", d.Namespace, d.Name, err)
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	t.known[key] = completed{uid: br.UID, of: sum, template: &answer.Spec.Template}
	return &answer.Spec.Template, nil
}

// forget drops what is known of a BatchRelease that is gone.
func (t *templates) forget(key types.NamespacedName) {
	t.mu.Lock()
	defer t.mu.Unlock()
	delete(t.known, key)
}

// indexByWorkload and indexByOwner are the cache's index functions.
func indexByWorkload(o client.Object) []string {
	return []string{o.(*v1alpha1.BatchRelease).Spec.WorkloadRef.Name}
}

func indexByOwner(o client.Object) []string {
	if c := metav1.GetControllerOf(o); c != nil && c.Kind == "Deployment" {
		return []string{string(c.UID)}
	}
	return nil
}

// looks remembers which releases this process has looked at.
type looks struct {
	mu   sync.Mutex
	seen map[types.NamespacedName]bool
}

func (l *looks) first(key types.NamespacedName) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	first := !l.seen[key]
	l.seen[key] = true
	return first
}

// forget drops a BatchRelease that is gone.
func (l *looks) forget(key types.NamespacedName) {
	l.mu.Lock()
	defer l.mu.Unlock()
	delete(l.seen, key)
}
