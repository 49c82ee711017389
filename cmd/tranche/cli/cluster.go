package cli

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"net/http"
	"runtime/debug"
	"slices"
	"strings"

	"github.com/spf13/cobra"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/cli-runtime/pkg/genericclioptions"
	clientgoscheme "k8s.io/client-go/kubernetes/scheme"
	"k8s.io/client-go/rest"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/tranche-dev/tranche/cmd/tranche/terminal"
	"github.com/tranche-dev/tranche/plan"
	"github.com/tranche-dev/tranche/plan/v1alpha1"
)

// Cluster is the cluster and namespace that a command is about, as kubectl's
// flags and configuration name them.
type Cluster struct {
	flags *genericclioptions.ConfigFlags
}

// AddCluster gives a command the flags of kubectl that say which cluster and namespace.
func AddCluster(c *cobra.Command) *Cluster {
	k := &Cluster{flags: clusterFlags()}
	k.flags.Namespace = genericclioptions.NewConfigFlags(true).Namespace
	k.flags.AddFlags(c.Flags())
	k.CompleteFlag(c, "namespace", namespaceNames)
	return k
}

// AddWholeCluster gives a command that is about all namespaces the flags that say which
// cluster.
func AddWholeCluster(c *cobra.Command) *Cluster {
	k := &Cluster{flags: clusterFlags()}
	k.flags.AddFlags(c.Flags())
	return k
}

func clusterFlags() *genericclioptions.ConfigFlags {
	all := genericclioptions.NewConfigFlags(true)
	return &genericclioptions.ConfigFlags{
		KubeConfig: all.KubeConfig, Context: all.Context,
		Impersonate: all.Impersonate, ImpersonateGroup: all.ImpersonateGroup, Timeout: all.Timeout,
	}
}

// Connection is a client of the cluster, and the namespace to look in.
type Connection struct {
	client.Client
	Config    *rest.Config
	Namespace string
}

// newScheme knows the kinds of Kubernetes and ours.
func newScheme() (*runtime.Scheme, error) {
	scheme := runtime.NewScheme()
	if err := errors.Join(clientgoscheme.AddToScheme(scheme), v1alpha1.AddToScheme(scheme)); err != nil {
		return nil, fmt.Errorf("registering API types: %w", err)
	}
	return scheme, nil
}

func (c *Cluster) Connect() (*Connection, error) {
	namespace, _, err := c.flags.ToRawKubeConfigLoader().Namespace()
	if err != nil {
		return nil, fmt.Errorf("reading the kubeconfig: %w", err)
	}
	config, err := c.flags.ToRESTConfig()
	if err != nil {
		return nil, fmt.Errorf("reading the kubeconfig: %w", err)
	}
	config.QPS, config.Burst = 50, 300 // as kubectl's
	config.UserAgent = "tranche/" + VersionString()
	return connect(config, namespace)
}

func connect(config *rest.Config, namespace string) (*Connection, error) {
	scheme, err := newScheme()
	if err != nil {
		return nil, err
	}
	made, err := client.New(config, client.Options{Scheme: scheme})
	if err != nil {
		return nil, fmt.Errorf("connecting to %s: %w", config.Host, err)
	}
	return &Connection{made, config, namespace}, nil
}

// With returns the connection with another transport around its own.
func (c *Connection) With(transport func(http.RoundTripper) http.RoundTripper) (*Connection, error) {
	config := rest.CopyConfig(c.Config)
	config.Wrap(transport)
	return connect(config, c.Namespace)
}

// Releases lists the releases of a namespace, or of all where it is empty.
func (c *Connection) Releases(ctx context.Context, namespace string) ([]v1alpha1.BatchRelease, error) {
	var list v1alpha1.BatchReleaseList
	if err := c.List(ctx, &list, client.InNamespace(namespace)); err != nil {
		return nil, fmt.Errorf("listing BatchReleases: %w", err)
	}
	slices.SortFunc(list.Items, func(a, b v1alpha1.BatchRelease) int {
		return cmp.Or(cmp.Compare(a.Namespace, b.Namespace), cmp.Compare(a.Name, b.Name))
	})
	return list.Items, nil
}

// Release finds a release by its name, or by that of its Deployment.
func (c *Connection) Release(ctx context.Context, name string) (*v1alpha1.BatchRelease, error) {
	name = name[strings.LastIndex(name, "/")+1:] // batchrelease/web, deployment/web
	var br v1alpha1.BatchRelease
	err := c.Get(ctx, client.ObjectKey{Namespace: c.Namespace, Name: name}, &br)
	if !apierrors.IsNotFound(err) {
		if err != nil {
			err = fmt.Errorf("reading BatchRelease %s/%s: %w", c.Namespace, name, err)
		}
		return &br, err
	}
	list, err := c.Releases(ctx, c.Namespace)
	if err != nil {
		return nil, err
	}
	if br := governing(list, name); br != nil {
		return br, nil
	}
	var names []string
	for i := range list {
		names = append(names, list[i].Name)
	}
	hint := "there are " + strings.Join(names, ", ")
	if len(names) == 0 {
		hint = "there is none; name another namespace with -n"
	}
	if problems, err := c.SourceProblems(ctx, c.Namespace); err == nil && problems != "" {
		hint += "\n" + strings.TrimSuffix(problems, "\n")
	}
	return nil, fmt.Errorf("no BatchRelease in namespace %s is called %q or governs a Deployment of that name; %s", c.Namespace, name, hint)
}

// governing returns the plan that governs a Deployment; nil: none of the list does.
func governing(list []v1alpha1.BatchRelease, deployment string) *v1alpha1.BatchRelease {
	var first *v1alpha1.BatchRelease
	for i := range list {
		p := &list[i]
		if p.Spec.WorkloadRef.Name == deployment && (first == nil || plan.ComparePlans(p, first) < 0) {
			first = p
		}
	}
	return first
}

// SourceOf returns the GitSource that a release comes from, nil where there is
// none or this user may not see it.
func (c *Connection) SourceOf(ctx context.Context, br *v1alpha1.BatchRelease) (*v1alpha1.GitSource, error) {
	name := br.Labels[v1alpha1.LabelSource]
	if name == "" {
		return nil, nil
	}
	var gs v1alpha1.GitSource
	namespace := cmp.Or(br.Labels[v1alpha1.LabelSourceNamespace], br.Namespace)
	err := c.Get(ctx, client.ObjectKey{Namespace: namespace, Name: name}, &gs)
	if apierrors.IsNotFound(err) || apierrors.IsForbidden(err) {
		return nil, nil
	}
	if err != nil {
		return nil, fmt.Errorf("reading GitSource %s/%s: %w", namespace, name, err)
	}
	return &gs, nil
}

// Version is the version that package main has from the linker; empty: none.
var Version string

// VersionString is the version of this program.
func VersionString() string {
	if Version != "" {
		return Version
	}
	if info, ok := debug.ReadBuildInfo(); ok && info.Main.Version != "" {
		return info.Main.Version
	}
	return "unknown"
}

// Sources lists the GitSources of a namespace, or of all where it is empty.
func (c *Connection) Sources(ctx context.Context, namespace string) ([]v1alpha1.GitSource, error) {
	var list v1alpha1.GitSourceList
	if err := c.List(ctx, &list, client.InNamespace(namespace)); err != nil {
		return nil, fmt.Errorf("listing GitSources: %w", err)
	}
	slices.SortFunc(list.Items, func(a, b v1alpha1.GitSource) int {
		return cmp.Or(cmp.Compare(a.Namespace, b.Namespace), cmp.Compare(a.Name, b.Name))
	})
	return list.Items, nil
}

// SourceNamed reads a GitSource by NAME or NAMESPACE/NAME.
func (k *Connection) SourceNamed(ctx context.Context, namespace, name string) (*v1alpha1.GitSource, error) {
	key := client.ObjectKey{Namespace: namespace, Name: name}
	if before, after, ok := strings.Cut(name, "/"); ok {
		key = client.ObjectKey{Namespace: before, Name: after}
	}
	var gs v1alpha1.GitSource
	if err := k.Get(ctx, key, &gs); err != nil {
		return nil, fmt.Errorf("reading GitSource %s: %w", key, err)
	}
	return &gs, nil
}

// ReleasesOf lists the releases of a GitSource, in all namespaces that it applies to.
func (c *Connection) ReleasesOf(ctx context.Context, gs *v1alpha1.GitSource) ([]v1alpha1.BatchRelease, error) {
	namespaces := []string{gs.Namespace}
	if gs.Status.Inventory != nil {
		for _, e := range gs.Status.Inventory.Entries {
			namespace, rest, _ := strings.Cut(e.ID, "_")
			if strings.HasSuffix(rest, "_BatchRelease") && !slices.Contains(namespaces, namespace) {
				namespaces = append(namespaces, namespace)
			}
		}
	}
	slices.Sort(namespaces)
	var found []v1alpha1.BatchRelease
	for _, namespace := range namespaces {
		list, err := c.Releases(ctx, namespace)
		if err != nil {
			return nil, fmt.Errorf("namespace %s: %w", namespace, err)
		}
		for i := range list {
			l := list[i].Labels
			if l[v1alpha1.LabelSource] == gs.Name && cmp.Or(l[v1alpha1.LabelSourceNamespace], list[i].Namespace) == gs.Namespace {
				found = append(found, list[i])
			}
		}
	}
	return found, nil
}

// ReadyOf is the condition Ready; empty before the controller has seen the source.
func ReadyOf(gs *v1alpha1.GitSource) metav1.Condition {
	if c := meta.FindStatusCondition(gs.Status.Conditions, "Ready"); c != nil {
		return *c
	}
	return metav1.Condition{}
}

// WrittenAt returns when the controller wrote the status of a source last: the commits in
// it hold since then. Zero: it is not known.
func WrittenAt(gs *v1alpha1.GitSource) metav1.Time {
	var at metav1.Time
	for _, e := range gs.ManagedFields {
		if e.Manager == v1alpha1.ManagerGitSync && e.Subresource == "status" && e.Time != nil && at.Before(e.Time) {
			at = *e.Time
		}
	}
	return at
}

// ProblemOf is the condition that says why the cluster is not as the branch says; nil
// where it is, or is about to be.
func ProblemOf(gs *v1alpha1.GitSource) *metav1.Condition {
	if gs.Spec.Suspend {
		return nil
	}
	for _, kind := range []string{"Ready", "InSync"} {
		if c := meta.FindStatusCondition(gs.Status.Conditions, kind); c != nil && c.Status == metav1.ConditionFalse {
			return c
		}
	}
	return nil
}

// SourceProblems has a line for each source with a problem; empty without any. It says so
// if this account may not list the GitSources.
func (c *Connection) SourceProblems(ctx context.Context, namespace string) (string, error) {
	list, err := c.Sources(ctx, namespace)
	if apierrors.IsForbidden(err) {
		return "Problems of GitSources are not known: " + plan.OneLine(err.Error()) + "\n", nil
	}
	return ProblemLines(list), err
}

func ProblemLines(list []v1alpha1.GitSource) string {
	var b strings.Builder
	for i := range list {
		gs := &list[i]
		if p := ProblemOf(gs); p != nil {
			fmt.Fprintf(&b, "GitSource %s/%s, %s of %s, applied %s: %s: %s\n",
				gs.Namespace, gs.Name, PinOf(gs.Spec.Ref), gs.Spec.URL, OrNone(Short(gs.Status.AppliedCommit)), p.Reason, p.Message)
		}
	}
	return terminal.Printable(b.String())
}
