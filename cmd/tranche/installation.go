package main

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"regexp"
	"slices"
	"strings"

	appsv1 "k8s.io/api/apps/v1"
	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/util/yaml"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/tranche-dev/tranche/plan"
	"github.com/tranche-dev/tranche/plan/records"
	"github.com/tranche-dev/tranche/plan/v1alpha1"
)

// defaultNamespace is that of config/manager.
const defaultNamespace = "tranche-system"

// installation is where Tranche is installed, and by which tool.
type installation struct {
	found                      bool
	namespace                  string
	helmRelease, helmNamespace string // empty: not by Helm
}

// The annotations of Helm on what a release has installed.
const (
	annotationHelmRelease   = "meta.helm.sh/release-name"
	annotationHelmNamespace = "meta.helm.sh/release-namespace"
)

// findInstallation reads the ClusterRoleBinding of the controller. Its name is the same for each way of
// installation.
func findInstallation(ctx context.Context, c client.Reader) (installation, error) {
	at := installation{namespace: defaultNamespace}
	var binding rbacv1.ClusterRoleBinding
	err := c.Get(ctx, client.ObjectKey{Name: "tranche-controller"}, &binding)
	if client.IgnoreNotFound(err) != nil {
		return at, fmt.Errorf("reading ClusterRoleBinding tranche-controller: %w", err)
	}
	if err != nil {
		return at, nil
	}
	at.found = true
	at.helmRelease, at.helmNamespace = binding.Annotations[annotationHelmRelease], binding.Annotations[annotationHelmNamespace]
	for _, s := range binding.Subjects {
		if s.Kind == rbacv1.ServiceAccountKind && s.Namespace != "" {
			at.namespace = s.Namespace
		}
	}
	return at, nil
}

// checkHelm refuses a run that another tool should make. release is the one whose hook the command is.
// Objects that kubectl has applied from helm template have no annotations of Helm. Helm has not
// run the hook then, either.
func (i installation) checkHelm(release string) error {
	switch {
	case !i.found || release == i.helmRelease:
		return nil
	case i.helmRelease == "":
		return fmt.Errorf("--helm-release %s: Helm has not installed Tranche in this cluster; run tranche uninstall without the flag", release)
	case release == "":
		return fmt.Errorf("Tranche was installed by Helm; run helm uninstall %s --namespace %s", i.helmRelease, i.helmNamespace)
	}
	return fmt.Errorf("--helm-release %s: Tranche was installed by Helm release %s in namespace %s", release, i.helmRelease, i.helmNamespace)
}

// labelName is the label of the controller's Deployments and pods.
const labelName = "app.kubernetes.io/name"

// stopController deletes the controllers, waits until their pods are gone, and deletes what they have
// written for themselves. It does not scale them: that would leave a field to another manager
// than Helm's, and a later helm upgrade would fail.
func (u *uninstall) stopController(ctx context.Context) error {
	in := client.InNamespace(u.installed.namespace)
	var list appsv1.DeploymentList
	if err := u.at.List(ctx, &list, in, client.MatchingLabels{labelName: "tranche"}); err != nil {
		return fmt.Errorf("listing the controllers: %w", err)
	}
	for i := range list.Items {
		d := &list.Items[i]
		if err := u.at.Delete(ctx, d, client.PropagationPolicy(metav1.DeletePropagationBackground)); client.IgnoreNotFound(err) != nil {
			return fmt.Errorf("deleting Deployment %s/%s: %w", d.Namespace, d.Name, err)
		}
	}
	err := u.await(ctx, "the controllers to end", func(ctx context.Context) ([]string, error) {
		var left []string
		for i := range list.Items {
			selector, err := metav1.LabelSelectorAsSelector(list.Items[i].Spec.Selector)
			if err != nil {
				return nil, err
			}
			var pods corev1.PodList
			if err := u.at.List(ctx, &pods, in, client.MatchingLabelsSelector{Selector: selector}); err != nil {
				return nil, err
			}
			for _, p := range pods.Items {
				left = append(left, "Pod "+p.Namespace+"/"+p.Name)
			}
		}
		return left, nil
	})
	if err != nil {
		return err
	}
	if held, err := u.at.Held(ctx, ""); err != nil || len(held) > 0 {
		return errors.Join(err, u.heldMeanwhile(held))
	}
	return u.deleteRecords(ctx)
}

// heldMeanwhile is the error where a release has begun during the removal.
func (u *uninstall) heldMeanwhile(held []string) error {
	if len(held) == 0 {
		return nil
	}
	return fmt.Errorf("a release of %s has begun meanwhile, and the controller is deleted; install Tranche again, so that it hands the "+
		"Deployment back, and then run the command again", strings.Join(held, ", "))
}

// leaseName matches the leases of controllers, with and without --watch-label-selector.
var leaseName = regexp.MustCompile(`^tranche-controller(-[0-9a-f]{8})?$`)

// deleteRecords deletes the controllers' leases, the times of their syncs, and records that are of no
// Deployment, such as those of a back-up.
func (u *uninstall) deleteRecords(ctx context.Context) error {
	records, err := u.records(ctx)
	if err != nil {
		return err
	}
	for i := range records {
		if err := u.at.Delete(ctx, &records[i]); client.IgnoreNotFound(err) != nil {
			return fmt.Errorf("deleting ControllerRevision %s/%s: %w", records[i].Namespace, records[i].Name, err)
		}
	}
	var list coordinationv1.LeaseList
	if err := u.at.List(ctx, &list, client.InNamespace(u.installed.namespace)); err != nil {
		return fmt.Errorf("listing leases: %w", err)
	}
	for i := range list.Items {
		lease := &list.Items[i]
		if !leaseName.MatchString(lease.Name) {
			continue
		}
		syncs := &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Namespace: lease.Namespace, Name: lease.Name + "-syncs"}}
		for _, o := range []client.Object{syncs, lease} {
			if err := u.at.Delete(ctx, o); client.IgnoreNotFound(err) != nil {
				return fmt.Errorf("deleting %s of the controller: %w", o.GetName(), err)
			}
		}
	}
	return nil
}

// deleteInstallation deletes what tranche install prints, in any of its variants. If Helm has
// installed Tranche, it deletes what Helm leaves: the policies, and the CustomResourceDefinitions if they are not to stay.
func (u *uninstall) deleteInstallation(ctx context.Context) error {
	objects, err := u.installation()
	if err != nil {
		return err
	}
	deleted := 0
	for _, o := range objects {
		err := u.at.Delete(ctx, o)
		if isNoKind(err) {
			continue
		}
		if err != nil {
			return fmt.Errorf("deleting %s %s: %w", o.GetKind(), o.GetName(), err)
		}
		deleted++
	}
	_, err = fmt.Fprintf(u.cmd.OutOrStdout(), "Deleted %d GitSources and %d objects of the installation.\n", len(u.sources), deleted)
	return err
}

// installation returns the objects to delete, in that order: rights and policies go after the
// controller and the CustomResourceDefinitions.
func (u *uninstall) installation() ([]*unstructured.Unstructured, error) {
	text, err := manifests("", "cluster-admin") // it has all that the others have
	if err != nil {
		return nil, fmt.Errorf("rendering the manifests: %w", err)
	}
	var objects []*unstructured.Unstructured
	for d := yaml.NewYAMLOrJSONDecoder(bytes.NewReader(text), 4096); ; {
		o := &unstructured.Unstructured{}
		if err := d.Decode(&o.Object); errors.Is(err, io.EOF) {
			break
		} else if err != nil {
			return nil, fmt.Errorf("reading the manifests: %w", err)
		}
		if u.deletes(o) {
			objects = append(objects, o)
		}
	}
	slices.Reverse(objects)
	slices.SortStableFunc(objects, func(a, b *unstructured.Unstructured) int { return deletionOrder(a) - deletionOrder(b) })
	return objects, nil
}

// deletes reports whether an object of config is to be deleted, and moves it to the namespace
// of the installation.
func (u *uninstall) deletes(o *unstructured.Unstructured) bool {
	if u.helmRelease != "" {
		return isPolicy(o) || u.deleteCRDs && o.GetKind() == "CustomResourceDefinition"
	}
	if o.GetNamespace() != "" {
		o.SetNamespace(u.installed.namespace)
	}
	return o.GetKind() != "Namespace" || o.GetName() == u.installed.namespace
}

func isPolicy(o *unstructured.Unstructured) bool {
	return o.GroupVersionKind().Group == "admissionregistration.k8s.io"
}

func deletionOrder(o *unstructured.Unstructured) int {
	switch {
	case o.GetKind() == "Namespace":
		return 4
	case isPolicy(o):
		return 3
	case o.GroupVersionKind().Group == rbacv1.GroupName || o.GetKind() == rbacv1.ServiceAccountKind:
		return 2
	case o.GetKind() == "CustomResourceDefinition":
		return 1
	}
	return 0
}

// sourcesLeft are the GitSources that are not gone, and why.
func (u *uninstall) sourcesLeft(ctx context.Context) ([]string, error) {
	var left []string
	list, err := u.at.Sources(ctx, "")
	for i := range list {
		gs := &list[i]
		left = append(left, "GitSource "+gs.Namespace+"/"+gs.Name+keptBy(gs)+stalled(gs.Status.Conditions))
	}
	return left, err
}

// keptBy names the finalizers of others, which keep an object that is deleted.
func keptBy(o client.Object) string {
	others := slices.DeleteFunc(slices.Clone(o.GetFinalizers()), func(f string) bool { return strings.HasPrefix(f, v1alpha1.Group+"/") })
	if len(others) == 0 {
		return ""
	}
	return " (kept by the finalizers " + plan.JoinNames(others) + ")"
}

// releasesLeft are the BatchReleases, their records and the held Deployments that are not gone, and why.
func (u *uninstall) releasesLeft(ctx context.Context) ([]string, error) {
	held, err := u.at.Held(ctx, "")
	if err != nil {
		return nil, err
	}
	var left []string
	for _, d := range held {
		left = append(left, "held Deployment "+d+u.lastWarning(ctx, d))
	}
	list, err := u.at.Releases(ctx, "")
	for i := range list {
		br := &list[i]
		left = append(left, "BatchRelease "+br.Namespace+"/"+br.Name+keptBy(br)+stalled(br.Status.Conditions))
	}
	if err != nil && !isNoKind(err) {
		return nil, err
	}
	kept, err := u.records(ctx)
	for i := range kept {
		// The controller deletes those of a Deployment last, after the hand-back.
		if records.DeploymentOf(&kept[i]) != "" {
			left = append(left, "ControllerRevision "+kept[i].Namespace+"/"+kept[i].Name)
		}
	}
	return left, err
}

// records lists the ControllerRevisions of the controller.
func (u *uninstall) records(ctx context.Context) ([]appsv1.ControllerRevision, error) {
	var list appsv1.ControllerRevisionList
	if err := u.at.List(ctx, &list, client.MatchingLabelsSelector{Selector: records.Selector}); err != nil {
		return nil, fmt.Errorf("listing ControllerRevisions: %w", err)
	}
	return list.Items, nil
}

// stalled returns why an object does not go on; empty: it does.
func stalled(conditions []metav1.Condition) string {
	if c := meta.FindStatusCondition(conditions, v1alpha1.ConditionStalled); c != nil && c.Status == metav1.ConditionTrue {
		return " (" + c.Reason + ": " + c.Message + ")"
	}
	return ""
}

// lastWarning returns the last warning on a Deployment, given as namespace/name. When a policy refuses
// the hand-back, that is where the controller says it.
func (u *uninstall) lastWarning(ctx context.Context, deployment string) string {
	namespace, name, _ := strings.Cut(deployment, "/")
	var list corev1.EventList
	err := u.at.List(ctx, &list, client.InNamespace(namespace), client.MatchingFields{
		"involvedObject.kind": "Deployment", "involvedObject.name": name, "type": corev1.EventTypeWarning,
	})
	if err != nil || len(list.Items) == 0 {
		return "" // it is help, and no more
	}
	last := slices.MaxFunc(list.Items, func(a, b corev1.Event) int { return timeOf(&a).Compare(timeOf(&b).Time) })
	return " (" + last.Reason + ": " + last.Message + ")"
}

func timeOf(e *corev1.Event) *metav1.Time {
	t := e.CreationTimestamp
	if e.LastTimestamp.After(t.Time) {
		t = e.LastTimestamp
	}
	if e.Series != nil && e.Series.LastObservedTime.After(t.Time) {
		t = metav1.Time{Time: e.Series.LastObservedTime.Time}
	}
	return &t
}
