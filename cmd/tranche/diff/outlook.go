package diff

import (
	"context"
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/discovery"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/tranche-dev/tranche/gitsync/preview"
	"github.com/tranche-dev/tranche/plan"
	"github.com/tranche-dev/tranche/plan/records"
	"github.com/tranche-dev/tranche/plan/v1alpha1"
	"github.com/tranche-dev/tranche/rollout/engine"
	"github.com/tranche-dev/tranche/rollout/engine/foresee"
	"github.com/tranche-dev/tranche/rollout/kubeversion"
)

// outlook is what the controller would do with a Deployment, as far as the
// account can read what the controller decides on.
type outlook struct {
	foresee.Outlook
	// Unknown says what could not be read; then the rest is empty.
	Unknown string
	// Estimated: the API server did not complete the template.
	Estimated bool
	// Same: the Deployment has the same outlook without the commit.
	Same bool
}

// foresees gathers what the controller decides on, with the rights of the account.
type foresees struct {
	client.Client
	minor int
	now   time.Time
	// owned is what Deployments and plans own, by namespace: read once for all releases.
	owned map[string]*owned
}

type owned struct {
	sets      appsv1.ReplicaSetList
	revisions appsv1.ControllerRevisionList
}

func newForesees(c client.Client, server discovery.ServerVersionInterface) *foresees {
	return &foresees{Client: c, minor: minorOf(server), now: time.Now(), owned: map[string]*owned{}}
}

// read lists the ReplicaSets and records of a namespace.
func (f *foresees) read(ctx context.Context, namespace string) (*owned, error) {
	if o := f.owned[namespace]; o != nil {
		return o, nil
	}
	o := &owned{}
	if err := f.List(ctx, &o.sets, client.InNamespace(namespace)); err != nil {
		return nil, fmt.Errorf("listing the ReplicaSets of namespace %s: %w", namespace, err)
	}
	if err := f.List(ctx, &o.revisions, client.InNamespace(namespace),
		client.MatchingLabelsSelector{Selector: records.Selector}); err != nil {
		return nil, fmt.Errorf("listing the ControllerRevisions of namespace %s: %w", namespace, err)
	}
	f.owned[namespace] = o
	return o, nil
}

// foresee returns the outlook of a release of a preview that has a plan.
func (f *foresees) foresee(ctx context.Context, r *preview.Release) (outlook, error) {
	o, err := f.observe(ctx, r)
	if what, ok := unreadable(err); ok {
		return outlook{Unknown: what}, nil
	}
	if err != nil {
		return outlook{}, err
	}
	template, estimated, err := f.complete(ctx, &o)
	switch {
	case apierrors.IsInvalid(err) || apierrors.IsBadRequest(err) || apierrors.IsForbidden(err):
		o.Refused = err
	case err != nil:
		return outlook{}, err
	default:
		o.Template = template
	}
	out := outlook{Outlook: foresee.Foresee(o, f.now), Estimated: estimated}
	if r.Live != nil && r.Live.Name == r.Next.Name && !r.Changes() {
		o.Release = r.Live
		out.Same = foresee.Foresee(o, f.now).String() == out.String()
	}
	return out, nil
}

// observe gathers all but the template as the API server completes it.
func (f *foresees) observe(ctx context.Context, r *preview.Release) (engine.Observed, error) {
	o := engine.Observed{Release: r.Next, Rival: r.Rival, Minor: f.minor}
	key := client.ObjectKey{Namespace: r.Next.Namespace, Name: r.Next.Spec.WorkloadRef.Name}
	var d appsv1.Deployment
	if err := f.Get(ctx, key, &d); err != nil {
		if apierrors.IsNotFound(err) {
			return o, nil
		}
		return o, fmt.Errorf("getting Deployment %s: %w", key, err)
	}
	d.Spec.Replicas = &r.Replicas
	o.Deployment = &d
	all, err := f.read(ctx, key.Namespace)
	if err != nil {
		return o, err
	}
	for i := range all.sets.Items {
		rs := &all.sets.Items[i]
		if metav1.IsControlledBy(rs, &d) {
			o.ReplicaSets = append(o.ReplicaSets, rs)
		}
	}
	for i := range all.revisions.Items {
		if !ownedBy(&all.revisions.Items[i], d.UID, r.Next.UID) {
			continue
		}
		if plan.IsFailure(&all.revisions.Items[i]) {
			failure, err := plan.ReadFailure(&all.revisions.Items[i])
			if err != nil {
				return o, err
			}
			o.Release = recalled(o.Release, failure)
			continue
		}
		record, err := plan.ReadRecord(&all.revisions.Items[i])
		if err != nil {
			return o, err
		}
		o.Records = append(o.Records, record)
	}
	return o, nil
}

// recalled is a BatchRelease whose status knows of a failure that the Deployment keeps,
// as the controller completes one that was deleted and made again.
func recalled(br *v1alpha1.BatchRelease, f plan.Failure) *v1alpha1.BatchRelease {
	if br.Status.FailedRevision != "" || br.Spec.Commit != f.Commit || plan.TemplateDigest(br.Spec.Template) != f.Digest {
		return br
	}
	br = br.DeepCopy()
	br.Status.FailedRevision, br.Status.FailedCommit = f.Revision, f.Commit
	br.Status.FailedTemplateDigest, br.Status.FailedMessage = f.Digest, f.Message
	return br
}

// ownedBy reports whether one of these owns an object.
func ownedBy(o client.Object, uids ...types.UID) bool {
	return slices.ContainsFunc(o.GetOwnerReferences(), func(r metav1.OwnerReference) bool {
		return r.UID != "" && slices.Contains(uids, r.UID)
	})
}

// unreadable says what the account may not read, as the API server tells it.
func unreadable(err error) (string, bool) {
	if !apierrors.IsForbidden(err) {
		return "", false
	}
	return err.Error(), true
}

// minorOf is that of the server's version, 36 for 1.36; 0 where it is not known.
// Only the name of a revision that no ReplicaSet has yet depends on it.
func minorOf(server discovery.ServerVersionInterface) int {
	minor, err := kubeversion.Minor(server)
	if err != nil {
		return 0
	}
	return minor
}

// complete returns the template of a release with what the API server adds. It takes that
// from the record if Git said the same before, else from a dry run. An account that may
// try neither gets it from a template of the Deployment that differs only by defaults.
// With none, the template has no equal there and stays as it is.
func (f *foresees) complete(ctx context.Context, o *engine.Observed) (t *corev1.PodTemplateSpec, estimated bool, err error) {
	said := o.Release.Spec.Template
	if said == nil {
		return nil, false, nil
	}
	digest := plan.TemplateDigest(said)
	for _, r := range o.Records {
		if r.Sent == digest {
			return r.Template, false, nil
		}
	}
	if o.Deployment == nil {
		return said, false, nil
	}
	held := v1alpha1.HasHeld(o.Deployment.Labels)
	tried, err := f.try(ctx, o.Deployment, said, held)
	if !apierrors.IsForbidden(err) || !held && byPolicy(err) {
		return tried, false, err
	}
	for _, r := range o.Records {
		if sameButDefaults(said, r.Template) {
			return r.Template, true, nil
		}
	}
	for _, rs := range o.ReplicaSets {
		if sameButDefaults(said, &rs.Spec.Template) {
			return withoutHash(&rs.Spec.Template), true, nil
		}
	}
	if live := &o.Deployment.Spec.Template; sameButDefaults(said, live) {
		return live, true, nil
	}
	return said, true, nil
}

// byPolicy tells the answer of a policy from a missing right.
func byPolicy(err error) bool { return strings.Contains(err.Error(), "ValidatingAdmissionPolicy") }

// try has the API server complete a template. Only the controller may write the
// template of a held Deployment, so that is tried on one of another name.
func (f *foresees) try(ctx context.Context, d *appsv1.Deployment, t *corev1.PodTemplateSpec, held bool) (*corev1.PodTemplateSpec, error) {
	if !held {
		raw, err := json.Marshal([]map[string]any{{"op": "replace", "path": "/spec/template", "value": t}})
		if err != nil {
			return nil, fmt.Errorf("encoding the template of Deployment %s/%s: %w", d.Namespace, d.Name, err)
		}
		tried := d.DeepCopy()
		err = f.Patch(ctx, tried, client.RawPatch(types.JSONPatchType, raw), client.DryRunAll, client.FieldOwner(v1alpha1.ManagerRollout))
		return &tried.Spec.Template, err
	}
	tried := &appsv1.Deployment{
		ObjectMeta: metav1.ObjectMeta{Namespace: d.Namespace, GenerateName: d.Name + "-", Labels: maps.Clone(d.Labels)},
		Spec:       appsv1.DeploymentSpec{Selector: d.Spec.Selector, Template: *t},
	}
	delete(tried.Labels, v1alpha1.LabelHeld)
	err := f.Create(ctx, tried, client.DryRunAll)
	return &tried.Spec.Template, err
}

func withoutHash(t *corev1.PodTemplateSpec) *corev1.PodTemplateSpec {
	t = t.DeepCopy()
	delete(t.Labels, appsv1.DefaultDeploymentUniqueLabelKey)
	return t
}

// defaults are what the API server sets in pod templates, by field. The
// values of a field whose default depends on others are not listed: any counts.
var defaults = map[string][]any{
	"apiVersion": {"v1"}, "creationTimestamp": {nil}, "defaultMode": {420.0}, "dnsPolicy": {"ClusterFirst"}, "emptyDir": nil,
	"enableServiceLinks": {true}, "failureThreshold": {3.0}, "hostPort": nil, "imagePullPolicy": nil, "path": {"/"}, "periodSeconds": {10.0},
	"protocol": {"TCP"}, "requests": nil, "resources": nil, "restartPolicy": {"Always"}, "schedulerName": {"default-scheduler"},
	"scheme":          {"HTTP"},
	"securityContext": nil, "service": {""}, "serviceAccount": nil, "successThreshold": {1.0}, "terminationGracePeriodSeconds": {30.0},
	"terminationMessagePath": {"/dev/termination-log"}, "terminationMessagePolicy": {"File"}, "timeoutSeconds": {1.0}, "type": {""},
}

// sameButDefaults reports whether a template as the API server returned it is
// the one that Git says, with defaults.
func sameButDefaults(said, completed *corev1.PodTemplateSpec) bool {
	var a, b any
	for t, to := range map[*corev1.PodTemplateSpec]*any{said: &a, withoutHash(completed): &b} {
		raw, err := json.Marshal(t)
		if err != nil || json.Unmarshal(raw, to) != nil {
			return false
		}
	}
	return completes(a, b)
}

// completes reports whether b is a with nothing but defaults added.
func completes(a, b any) bool {
	switch a := a.(type) {
	case map[string]any:
		m, ok := b.(map[string]any)
		if !ok {
			return false
		}
		for k, v := range m {
			if said, ok := a[k]; ok {
				if !completes(said, v) {
					return false
				}
			} else if values, known := defaults[k]; !known || values != nil && !slices.Contains(values, v) {
				return false
			}
		}
		for k := range a {
			if _, ok := m[k]; !ok && a[k] != nil {
				return false
			}
		}
		return true
	case []any:
		l, ok := b.([]any)
		return ok && slices.EqualFunc(a, l, completes)
	default:
		return a == b
	}
}
