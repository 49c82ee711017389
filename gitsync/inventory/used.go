package inventory

import (
	"context"
	"encoding/json"
	"fmt"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/util/sets"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/tranche-dev/tranche/plan/records"
)

// Used has the ConfigMaps and Secrets that pod templates refer to, by kind, namespace and
// name, each with the object that has such a template.
type Used map[string]string

// By returns which object uses a ConfigMap or Secret, or an empty string.
func (u Used) By(gk schema.GroupKind, namespace, name string) string {
	return u[gk.Kind+" "+namespace+"/"+name]
}

// Has reports whether an object is used.
func (u Used) Has(gk schema.GroupKind, namespace, name string) bool {
	_, ok := u[gk.Kind+" "+namespace+"/"+name]
	return ok
}

// AddTemplate adds what the pod template of user, an object, refers to. It looks at all
// fields by their names, so that it also finds references in a new kind of volume.
func (u Used) AddTemplate(user, namespace string, t *corev1.PodTemplateSpec) error {
	raw, err := json.Marshal(t)
	if err != nil {
		return fmt.Errorf("encoding a pod template: %w", err)
	}
	var m map[string]any
	if err := json.Unmarshal(raw, &m); err != nil {
		return fmt.Errorf("decoding a pod template: %w", err)
	}
	u.addValue(user, namespace, "", m)
	return nil
}

// referenceKinds are the fields that hold a reference, and the kind that it
// is to.
var referenceKinds = map[string]string{
	"configMapRef": "ConfigMap", "configMapKeyRef": "ConfigMap", "configMap": "ConfigMap",
	"secretRef": "Secret", "secretKeyRef": "Secret", "secret": "Secret", "imagePullSecrets": "Secret",
	"nodePublishSecretRef": "Secret",
}

func (u Used) addValue(user, namespace, field string, v any) {
	switch v := v.(type) {
	case []any:
		for _, e := range v {
			u.addValue(user, namespace, field, e)
		}
	case map[string]any:
		if kind, ok := referenceKinds[field]; ok {
			for _, nameField := range []string{"name", "secretName"} {
				if name, ok := v[nameField].(string); ok {
					u[kind+" "+namespace+"/"+name] = user
				}
			}
		}
		for k, e := range v {
			u.addValue(user, namespace, k, e)
		}
	case string:
		if field == "secretName" { // azureFile and others that have it beside other fields
			u["Secret "+namespace+"/"+v] = user
		}
	}
}

// addNamespace adds what the pods of a namespace refer to: those that run, and those that its
// Deployments and ReplicaSets are about to make. It also adds what stable revisions refer to.
func (u Used) addNamespace(ctx context.Context, c client.Reader, namespace string) error {
	for _, add := range []func(context.Context, client.Reader, string) error{u.addPods, u.addDeployments, u.addReplicaSets, u.addRevisions} {
		if err := add(ctx, c, namespace); err != nil {
			return err
		}
	}
	return nil
}

func (u Used) addPods(ctx context.Context, c client.Reader, namespace string) error {
	var pods corev1.PodList
	if err := c.List(ctx, &pods, client.InNamespace(namespace)); err != nil {
		return fmt.Errorf("listing the Pods of %s: %w", namespace, err)
	}
	for i := range pods.Items {
		p := &pods.Items[i]
		if p.Status.Phase == corev1.PodSucceeded || p.Status.Phase == corev1.PodFailed {
			continue
		}
		if err := u.AddTemplate("Pod "+namespace+"/"+p.Name, namespace, &corev1.PodTemplateSpec{Spec: p.Spec}); err != nil {
			return err
		}
	}
	return nil
}

func (u Used) addDeployments(ctx context.Context, c client.Reader, namespace string) error {
	var deployments appsv1.DeploymentList
	if err := c.List(ctx, &deployments, client.InNamespace(namespace)); err != nil {
		return fmt.Errorf("listing the Deployments of %s: %w", namespace, err)
	}
	for i := range deployments.Items {
		d := &deployments.Items[i]
		if d.Spec.Replicas != nil && *d.Spec.Replicas == 0 {
			continue
		}
		if err := u.AddTemplate("Deployment "+namespace+"/"+d.Name, namespace, &d.Spec.Template); err != nil {
			return err
		}
	}
	return nil
}

func (u Used) addReplicaSets(ctx context.Context, c client.Reader, namespace string) error {
	var sets appsv1.ReplicaSetList
	if err := c.List(ctx, &sets, client.InNamespace(namespace)); err != nil {
		return fmt.Errorf("listing the ReplicaSets of %s: %w", namespace, err)
	}
	for i := range sets.Items {
		rs := &sets.Items[i]
		if (rs.Spec.Replicas != nil && *rs.Spec.Replicas == 0) && rs.Status.Replicas == 0 {
			continue
		}
		if err := u.AddTemplate("ReplicaSet "+namespace+"/"+rs.Name, namespace, &rs.Spec.Template); err != nil {
			return err
		}
	}
	return nil
}

// addRevisions adds what the stable revisions of a namespace refer to.
func (u Used) addRevisions(ctx context.Context, c client.Reader, namespace string) error {
	var list appsv1.ControllerRevisionList
	if err := c.List(ctx, &list, client.InNamespace(namespace), client.MatchingLabelsSelector{Selector: records.Selector}); err != nil {
		return fmt.Errorf("listing the ControllerRevisions of %s: %w", namespace, err)
	}
	for i := range list.Items {
		var data struct {
			Spec struct {
				Template corev1.PodTemplateSpec `json:"template"`
			} `json:"spec"`
		}
		if err := json.Unmarshal(list.Items[i].Data.Raw, &data); err != nil {
			return fmt.Errorf("reading ControllerRevision %s/%s: %w", namespace, list.Items[i].Name, err)
		}
		if err := u.AddTemplate("the stable revision, ControllerRevision "+namespace+"/"+list.Items[i].Name, namespace,
			&data.Spec.Template); err != nil {
			return err
		}
	}
	return nil
}

// ReadUsed returns what pods use in the namespaces of the ConfigMaps and Secrets among gone.
// It reads no other namespace.
func ReadUsed(ctx context.Context, c client.Reader, gone []Entry) (Used, error) {
	used := Used{}
	seen := sets.New[string]()
	for _, e := range gone {
		if gk := e.GVK.GroupKind(); gk != ConfigMapKind && gk != SecretKind || seen.Has(e.Namespace) {
			continue
		}
		seen.Insert(e.Namespace)
		if err := used.addNamespace(ctx, c, e.Namespace); err != nil {
			return used, err
		}
	}
	return used, nil
}
