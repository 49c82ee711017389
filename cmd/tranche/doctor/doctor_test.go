package doctor

import (
	"context"
	"errors"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	admissionv1 "k8s.io/api/admissionregistration/v1"
	appsv1 "k8s.io/api/apps/v1"
	authorizationv1 "k8s.io/api/authorization/v1"
	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/version"
	clientgoscheme "k8s.io/client-go/kubernetes/scheme"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"

	"github.com/tranche-dev/tranche/cmd/tranche/cli"
	"github.com/tranche-dev/tranche/cmd/tranche/clitest"
	"github.com/tranche-dev/tranche/config"
	"github.com/tranche-dev/tranche/plan/v1alpha1"
)

// world is a cluster as the command finds it. A test on a real one is in cmd/tranche.
type world struct {
	objects   []client.Object
	server    version.Info
	mayNot    func(r *authorizationv1.ResourceAttributes) bool // rights that the controller lacks
	everybody bool                                             // the controller is cluster-admin
	forbidden func(kind string) bool                           // what this account may not read
	code      int                                              // of the webhook receiver
	renews    bool                                             // a leader renews its lease while it is read
}

const policyHeld = "tranche-held-deployments"

// healthy is an installation in which all is well: a release under way, whose source gets
// webhooks.
func healthy() *world {
	w := &world{server: version.Info{Major: "1", Minor: "36", GitVersion: "v1.36.3"}, code: 405}
	for _, o := range config.Objects("crd", "CustomResourceDefinition") {
		w.objects = append(w.objects, o)
	}
	bindings := config.Objects("policy", "ValidatingAdmissionPolicyBinding")
	for i, o := range config.Objects("policy", "ValidatingAdmissionPolicy") {
		p, b := typed[admissionv1.ValidatingAdmissionPolicy](o), typed[admissionv1.ValidatingAdmissionPolicyBinding](bindings[i])
		setDefaults(p, b)
		w.objects = append(w.objects, p, b)
	}
	for _, o := range config.Objects("manager", "Deployment", "Service") {
		o.SetNamespace("tranche-system")
		if o.GetKind() == "Service" {
			w.objects = append(w.objects, typed[corev1.Service](o))
			continue
		}
		d := typed[appsv1.Deployment](o)
		d.Spec.Template.Spec.Containers[0].Image = "registry.example.org/tranche:v1.2.3"
		d.Status = appsv1.DeploymentStatus{Replicas: 2, UpdatedReplicas: 2, AvailableReplicas: 2}
		w.objects = append(w.objects, d)
	}
	gs, br := clitest.Source(), clitest.Release()
	gs.Spec.Webhook = &v1alpha1.Webhook{}
	gs.Status.Conditions = []metav1.Condition{{Type: "Ready", Status: metav1.ConditionTrue, Reason: "Applied"}}
	w.objects = append(w.objects, gs, br, heldDeployment("shop", "web"),
		&corev1.ServiceAccount{ObjectMeta: metav1.ObjectMeta{Namespace: "tranche-system", Name: "tranche-controller"}},
		leaseOf("tranche-controller-5d_1234", 3*time.Second))
	return w
}

func heldDeployment(namespace, name string) *appsv1.Deployment {
	labels := map[string]string{v1alpha1.LabelHeld: ""}
	return &appsv1.Deployment{
		ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: name, Labels: labels},
		Spec:       appsv1.DeploymentSpec{Paused: true, Strategy: appsv1.DeploymentStrategy{Type: appsv1.RecreateDeploymentStrategyType}},
	}
}

func leaseOf(holder string, ago time.Duration) *coordinationv1.Lease {
	return &coordinationv1.Lease{ObjectMeta: metav1.ObjectMeta{Namespace: "tranche-system", Name: "tranche-controller"},
		Spec: coordinationv1.LeaseSpec{HolderIdentity: &holder, RenewTime: &metav1.MicroTime{Time: clitest.Noon.Add(-ago)},
			AcquireTime: &metav1.MicroTime{Time: clitest.Noon.Add(-time.Hour)}}}
}

// edit changes the object of that type and name.
func edit[T client.Object](w *world, name string, change func(T)) {
	for _, o := range w.objects {
		if t, ok := o.(T); ok && o.GetName() == name {
			change(t)
			return
		}
	}
	panic("no " + name)
}

// crd changes a CustomResourceDefinition's schema of spec.
func (w *world) crd(name string, change func(fields map[string]any)) {
	edit(w, name, func(o *unstructured.Unstructured) {
		versions, _, err := unstructured.NestedSlice(o.Object, "spec", "versions")
		if err != nil {
			panic(err)
		}
		fields, _, err := unstructured.NestedMap(versions[0].(map[string]any), "schema", "openAPIV3Schema", "properties", "spec", "properties")
		if err != nil {
			panic(err)
		}
		change(fields)
		err = errors.Join(
			unstructured.SetNestedMap(versions[0].(map[string]any), fields, "schema", "openAPIV3Schema", "properties", "spec", "properties"),
			unstructured.SetNestedSlice(o.Object, versions, "spec", "versions"))
		if err != nil {
			panic(err)
		}
	})
}

// starts replaces the lease by a pod that has run since then.
func (w *world) starts(since time.Time, restarts int32) {
	w.objects = slices.DeleteFunc(w.objects, func(o client.Object) bool { _, ok := o.(*coordinationv1.Lease); return ok })
	edit(w, "tranche-controller", func(d *appsv1.Deployment) {
		w.objects = append(w.objects, &corev1.Pod{
			ObjectMeta: metav1.ObjectMeta{Namespace: d.Namespace, Name: "tranche-controller-5d", Labels: d.Spec.Selector.MatchLabels},
			Status: corev1.PodStatus{ContainerStatuses: []corev1.ContainerStatus{{RestartCount: restarts,
				State: corev1.ContainerState{Running: &corev1.ContainerStateRunning{StartedAt: metav1.NewTime(since)}}}}},
		})
	})
}

// drop removes objects of that name.
func (w *world) drop(name string) {
	w.objects = slices.DeleteFunc(w.objects, func(o client.Object) bool { return o.GetName() == name })
}

// exam examines the world at noon.
func (w *world) exam(t *testing.T) *exam {
	t.Helper()
	scheme := runtime.NewScheme()
	if err := errors.Join(clientgoscheme.AddToScheme(scheme), v1alpha1.AddToScheme(scheme)); err != nil {
		t.Fatal(err)
	}
	denied := func(o runtime.Object) error {
		kind := strings.TrimSuffix(strings.TrimSuffix(kindOf(o), "List"), "Review")
		if w.forbidden == nil || !w.forbidden(kind) {
			return nil
		}
		return apierrors.NewForbidden(schema.GroupResource{Resource: strings.ToLower(kind)}, "", errors.New("made by a test"))
	}
	leases := 0
	c := fake.NewClientBuilder().WithScheme(scheme).WithObjects(w.objects...).WithInterceptorFuncs(interceptor.Funcs{
		Create: func(_ context.Context, _ client.WithWatch, o client.Object, _ ...client.CreateOption) error {
			review, ok := o.(*authorizationv1.SubjectAccessReview)
			if !ok {
				t.Errorf("it writes a %T", o)
				return nil
			}
			a := review.Spec.ResourceAttributes
			review.Status.Allowed = (a.Resource != "*" || w.everybody) && (w.mayNot == nil || !w.mayNot(a))
			return denied(o)
		},
		Get: func(ctx context.Context, c client.WithWatch, key client.ObjectKey, o client.Object, opts ...client.GetOption) error {
			if until, ok := ctx.Deadline(); ok && time.Until(until) < time.Second {
				return errors.New("client rate limiter Wait returned an error: rate: Wait(n=1) would exceed context deadline")
			}
			err := errors.Join(denied(o), c.Get(ctx, key, o, opts...))
			if l, ok := o.(*coordinationv1.Lease); ok && err == nil && w.renews {
				leases++
				l.Spec.RenewTime = &metav1.MicroTime{Time: l.Spec.RenewTime.Add(time.Duration(leases) * time.Second)}
			}
			return firstOf(err)
		},
		List: func(ctx context.Context, c client.WithWatch, o client.ObjectList, opts ...client.ListOption) error {
			return firstOf(errors.Join(denied(o), c.List(ctx, o, opts...)))
		},
	}).Build()
	return &exam{
		Connection: &cli.Connection{Client: c}, now: func() time.Time { return clitest.Noon }, leaseWithin: 2 * time.Second,
		serverVersion: func() (*version.Info, error) { return &w.server, nil },
		call:          func(context.Context, string, string, string, string) (int, error) { return w.code, nil },
	}
}

// firstOf returns the first of joined errors: the API server gives one.
func firstOf(err error) error {
	if joined, ok := err.(interface{ Unwrap() []error }); ok {
		return joined.Unwrap()[0]
	}
	return err
}

func kindOf(o runtime.Object) string {
	if kind := o.GetObjectKind().GroupVersionKind().Kind; kind != "" {
		return kind
	}
	gvks, _, err := clientgoscheme.Scheme.ObjectKinds(o)
	if err != nil {
		switch o.(type) {
		case *v1alpha1.GitSource, *v1alpha1.GitSourceList:
			return "GitSource"
		case *v1alpha1.BatchReleaseList:
			return "BatchRelease"
		}
		panic(err)
	}
	return gvks[0].Kind
}

// The output for whole clusters.
func TestDoctor_Golden(t *testing.T) {
	defer func(was string) { cli.Version = was }(cli.Version)
	cli.Version = "v1.2.3"
	for name, w := range map[string]*world{
		"healthy": healthy(),
		"empty":   {server: version.Info{Major: "1", Minor: "33+", GitVersion: "v1.33.1"}},
		"sick":    sick(),
		"reader":  reader(),
		"removal": removal(),
	} {
		t.Run(name, func(t *testing.T) {
			d := w.exam(t).diagnose(t.Context())
			for _, output := range []string{cli.OutputTable, cli.OutputYAML} {
				var b strings.Builder
				if err := d.print(&b, output); err != nil {
					t.Fatal(err)
				}
				clitest.Golden(t, "testdata/"+name+"."+output, b.String())
			}
		})
	}
}

// sick has one fault for each check.
func sick() *world {
	w := healthy()
	w.crd("gitsources.tranche.dev", func(fields map[string]any) { delete(fields, "verify") })
	w.crd("batchreleases.tranche.dev", func(fields map[string]any) { fields["later"] = map[string]any{"type": "string"} })
	w.drop("tranche-replicaset-templates")
	edit(w, policyHeld, func(b *admissionv1.ValidatingAdmissionPolicyBinding) {
		b.Spec.ValidationActions = []admissionv1.ValidationAction{admissionv1.Audit}
	})
	edit(w, "tranche-batchreleases", func(p *admissionv1.ValidatingAdmissionPolicy) { p.Spec.Validations[0].Expression = "true" })
	edit(w, "tranche-batchreleases-of-git", func(b *admissionv1.ValidatingAdmissionPolicyBinding) {
		b.Spec.MatchResources = &admissionv1.MatchResources{NamespaceSelector: &metav1.LabelSelector{MatchLabels: map[string]string{"a": "b"}}}
	})
	edit(w, "tranche-controller", func(d *appsv1.Deployment) {
		d.Spec.Template.Spec.ServiceAccountName, d.Status.AvailableReplicas = "another", 0
	})
	second := appsv1.Deployment{}
	edit(w, "tranche-controller", func(d *appsv1.Deployment) { d.DeepCopyInto(&second) })
	second.Namespace = "tranche"
	second.Status.AvailableReplicas = 2
	w.mayNot = func(r *authorizationv1.ResourceAttributes) bool {
		return r.Resource == "deployments" && r.Verb == "patch" || r.Resource == "nodes"
	}
	edit(w, "tranche-controller", func(l *coordinationv1.Lease) {
		l.Spec.RenewTime = &metav1.MicroTime{Time: clitest.Noon.Add(-time.Hour)}
	})
	for _, gs := range clitest.Sources() {
		w.objects = append(w.objects, &gs)
	}
	stalled := clitest.Release()
	stalled.Name = "stalled"
	stalled.Status.Conditions = []metav1.Condition{
		{Type: "Stalled", Status: metav1.ConditionTrue, Reason: "RecordsLost", Message: "the records are lost"},
	}
	w.objects = append(w.objects, &second, stalled, heldDeployment("shop", "orphan"))
	w.code = 503
	return w
}

// removal is a cluster in which helm uninstall has failed half-way, without a controller. The GitSources are deleted, and one is
// gone already: its finalizer was removed by hand.
func removal() *world {
	w := healthy()
	helm := map[string]string{"meta.helm.sh/release-name": "tranche", "meta.helm.sh/release-namespace": "tranche-system"}
	edit(w, "tranche-controller", func(d *appsv1.Deployment) { d.Annotations, d.Status.AvailableReplicas = helm, 0 })
	edit(w, "tranche-controller", func(l *coordinationv1.Lease) {
		l.Spec.RenewTime = &metav1.MicroTime{Time: clitest.Noon.Add(-time.Hour)}
	})
	w.drop("batchreleases.tranche.dev") // crds.install=false brings it back by no upgrade
	deleted := metav1.NewTime(clitest.Noon.Add(-time.Minute))
	edit(w, "shop", func(gs *v1alpha1.GitSource) {
		gs.DeletionTimestamp, gs.Finalizers, gs.Spec.Prune, gs.Spec.Webhook = &deleted, []string{"tranche.dev/prune"}, false, nil
	})
	for name, change := range map[string]func(*v1alpha1.GitSource){
		"pruning":   func(gs *v1alpha1.GitSource) { gs.Spec.Prune = true },
		"suspended": func(gs *v1alpha1.GitSource) { gs.Spec.Suspend = true },
	} {
		edit(w, "shop", func(gs *v1alpha1.GitSource) {
			gs = gs.DeepCopy()
			gs.Name = name
			change(gs)
			w.objects = append(w.objects, gs)
		})
	}
	for _, name := range []string{"api", "mail"} {
		br := clitest.Release()
		br.Name, br.Labels[v1alpha1.LabelSource] = name, "gone"
		w.objects = append(w.objects, br)
	}
	return w
}

// reader is the healthy cluster, for a user who may read little.
func reader() *world {
	w := healthy()
	w.forbidden = func(kind string) bool { return kind != "GitSource" && kind != "BatchRelease" }
	return w
}

// ofAnotherInstallation gives a policy the account of an installation in another namespace.
func ofAnotherInstallation(p *admissionv1.ValidatingAdmissionPolicy) {
	for i := range p.Spec.Variables {
		v := &p.Spec.Variables[i]
		v.Expression = strings.ReplaceAll(v.Expression, embeddedAccount, "system:serviceaccount:ops:release")
	}
}

// faults are clusters in which one thing is wrong, or only looks so.
var faults = map[string]struct {
	reason string
	change func(w *world)
	want   string // check, result and part of the message of the gravest finding
}{
	"healthy": {"all is well", func(*world) {}, "server OK Kubernetes"},
	"a description": {"the CRD is of another version", func(w *world) {
		w.crd("gitsources.tranche.dev", func(f map[string]any) { f["url"].(map[string]any)["description"] = "another" })
	}, "crd Warning only descriptions differ"},
	"a rule": {"objects are validated otherwise", func(w *world) {
		w.crd("gitsources.tranche.dev", func(f map[string]any) { f["url"].(map[string]any)["maxLength"] = int64(7) })
	}, "crd Problem differs from that of this program in spec.url"},
	"no binding": {"nothing is refused", func(w *world) {
		for i, o := range w.objects {
			if _, ok := o.(*admissionv1.ValidatingAdmissionPolicyBinding); ok && o.GetName() == policyHeld {
				w.objects[i] = &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: "other"}}
			}
		}
	}, "policy Problem its binding is not there"},
	"folded otherwise": {"kustomize folds lines with a blank line in between", func(w *world) {
		edit(w, "tranche-batchreleases-of-git", func(p *admissionv1.ValidatingAdmissionPolicy) {
			for i := range p.Spec.Variables {
				p.Spec.Variables[i].Expression = strings.ReplaceAll(p.Spec.Variables[i].Expression, "\n", "\n\n")
			}
		})
	}, "server OK Kubernetes"},
	"by Helm": {"an apply would be taken back", func(w *world) {
		w.drop("tranche-replicaset-templates")
		edit(w, "tranche-controller", func(d *appsv1.Deployment) {
			d.Annotations = map[string]string{"meta.helm.sh/release-name": "batches", "meta.helm.sh/release-namespace": "ops"}
		})
	}, "policy Problem helm upgrade batches --namespace ops, with the chart of version v1.2.3"},
	"another account": {"it could take a hold and not hand back", func(w *world) { edit(w, policyHeld, ofAnotherInstallation) },
		"policy Problem run the controller as that account"},
	"two versions": {"the command line is of another version", func(w *world) {
		edit(w, "tranche-controller", func(d *appsv1.Deployment) { d.Spec.Template.Spec.Containers[0].Image = "tranche:v1.3.0" })
	}, "controller Warning version v1.3.0; this program is v1.2.3"},
	"two replicas without a lease": {"both work", func(w *world) {
		edit(w, "tranche-controller", func(d *appsv1.Deployment) { d.Spec.Template.Spec.Containers[0].Args = []string{"controller"} })
	}, "controller Problem without --leader-elect"},
	"an upgrade stands still": {"the leader is old", func(w *world) {
		w.objects = append(w.objects, &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: "tranche-system", Name: "tranche-controller-5d"},
			Spec: corev1.PodSpec{Containers: []corev1.Container{{Image: "tranche:v1.1.0", Args: []string{"controller"}}}}})
	}, "leader Warning its version is v1.1.0, and Deployment tranche-system/tranche-controller has v1.2.3"},
	"clocks differ": {"the lease is renewed, by another clock", func(w *world) {
		w.renews = true
		edit(w, "tranche-controller", func(l *coordinationv1.Lease) {
			l.Spec.RenewTime = &metav1.MicroTime{Time: clitest.Noon.Add(-time.Hour)}
		})
	}, "server OK Kubernetes"},
	"given up": {"no controller works", func(w *world) {
		edit(w, "tranche-controller", func(l *coordinationv1.Lease) { l.Spec.HolderIdentity = ptr.To("") })
	}, "leader Problem no controller holds it"},
	"just installed": {"no controller has had the time to lead", func(w *world) { w.starts(clitest.Noon.Add(-time.Second), 0) },
		"leader Unknown its controllers have just started; run tranche doctor again"},
	"installed a while ago": {"they had the time to lead", func(w *world) { w.starts(clitest.Noon.Add(-time.Minute), 0) },
		"leader Problem not found: no controller has led; see kubectl"},
	"started again and again": {"they had the time to lead", func(w *world) { w.starts(clitest.Noon.Add(-time.Second), 1) },
		"leader Problem not found: no controller has led; see kubectl"},
	"a lease that was left": {"no controller of that selector is there any more", func(w *world) {
		l := leaseOf("tranche-controller-a_5", time.Hour)
		l.Name += "-0123abcd"
		w.objects = append(w.objects, l)
	}, "leader Warning no Deployment of a controller uses this lease"},
	"cluster-admin": {"by the choice of a name", func(w *world) {
		w.everybody = true
		edit(w, "tranche-controller", func(d *appsv1.Deployment) {
			d.Spec.Template.Spec.Containers[0].Args = []string{"controller", "--leader-elect", "--webhook-address=:9292"}
		})
	}, "rights Warning each user who may write a GitSource"},
	"no receiver": {"no one listens", func(w *world) {
		edit(w, "tranche-controller", func(d *appsv1.Deployment) {
			d.Spec.Template.Spec.Containers[0].Args = []string{"controller", "--leader-elect", "--default-service-account=default"}
		})
	}, "webhook Problem no Deployment of a controller has --webhook-address"},
	"many sources fail": {"the list is cut", func(w *world) {
		for i := range most + 5 {
			gs := clitest.Sources()[1]
			gs.Name += string(rune('a' + i))
			w.objects = append(w.objects, &gs)
		}
	}, "source Problem InvalidManifest"},
}

func TestDoctor_Findings(t *testing.T) {
	for name, tc := range faults {
		t.Run(name, func(t *testing.T) {
			defer func(was string) { cli.Version = was }(cli.Version)
			cli.Version = "v1.2.3"
			w := healthy()
			tc.change(w)
			d := w.exam(t).diagnose(t.Context())
			check, rest, _ := strings.Cut(tc.want, " ")
			result, message, _ := strings.Cut(rest, " ")
			for _, f := range d.Items {
				if f.Result != d.Result {
					continue
				}
				if got := f.Check + " " + string(f.Result); got != check+" "+result || !strings.Contains(f.Message+"; "+f.Todo, message) {
					t.Errorf("%s: the gravest is %s: %s; want %s", tc.reason, got, f.Message, tc.want)
				}
				return
			}
		})
	}
}

// Exit codes tell a script whether there is a problem, and whether all was seen.
func TestVerdict(t *testing.T) {
	for want, results := range map[string][]Result{
		"0":                           {OK, Warning},
		"1 1 check could not be made": {OK, Unknown, Warning},
		"2 2 problems found":          {Problem, Unknown, Problem},
		"2 1 problem found":           {Problem},
	} {
		d := &Diagnosis{}
		for _, r := range results {
			d.Items = append(d.Items, Finding{Result: r})
		}
		got := "0"
		if err := d.verdict(); err != nil {
			got = string(rune('0'+cli.ExitCode(err))) + " " + err.Error()
		}
		if diff := cmp.Diff(want, got); diff != "" {
			t.Errorf("%v: (-want +got):\n%s", results, diff)
		}
	}
}

// The rights are those of the roles, sub-resources and names included.
func TestRightsOf(t *testing.T) {
	got := rightsOf("a", "", []rbacv1.PolicyRule{{
		APIGroups: []string{"apps"}, Resources: []string{"deployments", "deployments/status"}, Verbs: []string{"get", "patch"},
		ResourceNames: []string{"x"},
	}})
	var text []string
	for _, r := range got {
		text = append(text, r.String()+" "+r.Name)
	}
	want := []string{"get deployments in the cluster x", "patch deployments in the cluster x",
		"get deployments/status in the cluster x", "patch deployments/status in the cluster x"}
	if diff := cmp.Diff(want, text); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
}

// A source that has synced and waits for its release is not one that no controller knows.
func TestExamineSource_Waits(t *testing.T) {
	gs := clitest.Sources()[0].DeepCopy()
	gs.Status.ObservedCommit = "3f2c1e0aa55b3c2d1e0f9a8b7c6d5e4f3a2b1c0d"
	gs.Status.Conditions = []metav1.Condition{{
		Type: v1alpha1.ConditionReady, Status: metav1.ConditionUnknown, ObservedGeneration: gs.Generation,
		Reason: "WaitingForReadiness", Message: "BatchRelease shop/web",
	}}
	f, found := examineSource(gs)
	if !found || f.Result != OK || f.Message != "WaitingForReadiness: BatchRelease shop/web" {
		t.Errorf("it says %t, %+v", found, f)
	}
}
