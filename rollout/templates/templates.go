package templates

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"sync"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/tranche-dev/tranche/plan"
	"github.com/tranche-dev/tranche/plan/v1alpha1"
	"github.com/tranche-dev/tranche/rollout/engine"
	"github.com/tranche-dev/tranche/rollout/impersonate"
	"github.com/tranche-dev/tranche/rollout/jsonpatch"
)

// Cache has what the API server makes of pod templates, so that a release asks
// once. It asks by a dry run of the later hand-back. A template that could not be handed
// back is not held. It is safe for use by several goroutines.
type Cache struct {
	mu    sync.Mutex
	known map[types.NamespacedName]map[string]answer // by BatchRelease, then by all that counts
}

// answer is what the API server makes of a template.
type answer struct {
	*corev1.PodTemplateSpec
	// again is true if it makes the same of its own answer.
	again bool
}

// New returns a cache that has asked for nothing.
func New() *Cache {
	return &Cache{known: map[types.NamespacedName]map[string]answer{}}
}

// kept is how many answers are kept of a release.
const kept = 8

// ErrNotIdempotent says that admission changes a template each time it is written.
var ErrNotIdempotent = errors.New("admission changes it again each time it is written, " +
	"so that the native controller would roll it out after the release; " +
	"let the admission policy or webhook leave it alone once it is as wanted")

// Complete returns a template as the API server would keep it, by the account of the context.
// The error is [ErrNotIdempotent] if it would not keep its own answer. That is asked only of an
// answer that the Deployment does not have: nothing is released otherwise.
func (t *Cache) Complete(
	ctx context.Context, c client.Client, br *v1alpha1.BatchRelease, d *appsv1.Deployment, template *corev1.PodTemplateSpec,
) (*corev1.PodTemplateSpec, error) {
	strategy, err := json.Marshal(br.Spec.DeploymentStrategy)
	if err != nil {
		return nil, fmt.Errorf("encoding spec.deploymentStrategy: %w", err)
	}
	key := client.ObjectKeyFromObject(br)
	of := fmt.Sprint(br.UID, d.UID, engine.Held(d), impersonate.Account(ctx), string(strategy), plan.TemplateDigest(template))
	t.mu.Lock()
	known := t.known[key][of]
	t.mu.Unlock()
	has := func(template *corev1.PodTemplateSpec) bool {
		return !engine.Held(d) && plan.EqualTemplate(template, &d.Spec.Template)
	}
	if known.again || known.PodTemplateSpec != nil && has(known.PodTemplateSpec) {
		return known.PodTemplateSpec, nil
	}
	completed, err := dryRun(ctx, c, br, d, template) // admission may have changed since an answer that was not tried again
	if err != nil {
		return nil, err
	}
	if has(completed) {
		t.keep(key, of, answer{completed, false})
		return completed, nil
	}
	again, err := dryRun(ctx, c, br, d, completed)
	if err != nil {
		return nil, err
	}
	if !plan.EqualTemplate(completed, again) {
		return nil, fmt.Errorf("dry run of spec.template on Deployment %s/%s: %w", d.Namespace, d.Name, ErrNotIdempotent)
	}
	t.keep(key, of, answer{completed, true})
	return completed, nil
}

func (t *Cache) keep(key types.NamespacedName, of string, known answer) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.known[key] == nil || len(t.known[key]) >= kept {
		t.known[key] = map[string]answer{}
	}
	t.known[key][of] = known
}

// dryRun returns a template as the API server would keep it, with the strategy that
// the Deployment is to be handed back with.
func dryRun(
	ctx context.Context, c client.Client, br *v1alpha1.BatchRelease, d *appsv1.Deployment, template *corev1.PodTemplateSpec,
) (*corev1.PodTemplateSpec, error) {
	answer := d.DeepCopy()
	p := jsonpatch.Patch{}
	p.Add("/spec/template", template)
	if s := br.Spec.DeploymentStrategy; s != nil && !engine.Held(d) {
		p.Add("/spec/strategy", s)
	}
	if err := c.Patch(ctx, answer, p.Raw(), client.DryRunAll, client.FieldOwner(v1alpha1.ManagerRollout)); err != nil {
		return nil, fmt.Errorf("dry run of spec.template on Deployment %s/%s: %w", d.Namespace, d.Name, err)
	}
	return &answer.Spec.Template, nil
}

// Forget drops what is known of a BatchRelease that is gone.
func (t *Cache) Forget(key types.NamespacedName) {
	t.mu.Lock()
	defer t.mu.Unlock()
	delete(t.known, key)
}
