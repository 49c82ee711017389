package doctor

import (
	"cmp"
	"context"
	"fmt"
	"regexp"
	"slices"
	"strings"

	appsv1 "k8s.io/api/apps/v1"
	authorizationv1 "k8s.io/api/authorization/v1"
	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/tranche-dev/tranche/cmd/tranche/cli"
	"github.com/tranche-dev/tranche/config"
	"github.com/tranche-dev/tranche/plan"
)

// instance is a Deployment of controllers.
type instance struct {
	deployment appsv1.Deployment
	args       []string
	image      string
	account    string
	selector   string // of --watch-label-selector
	elects     bool   // --leader-elect
	lease      client.ObjectKey
}

func (i *instance) name() string { return i.deployment.Namespace + "/" + i.deployment.Name }

// findInstances lists the Deployments of controllers, once.
func (e *exam) findInstances(ctx context.Context) ([]instance, error) {
	if e.instances != nil {
		return e.instances, nil
	}
	list, err := e.Controllers(ctx)
	if err != nil {
		return nil, err
	}
	e.instances = []instance{}
	for _, d := range list {
		if i, ok := instanceOf(d); ok {
			e.instances = append(e.instances, i)
		}
	}
	return e.instances, nil
}

// instanceOf reads the arguments of a controller. It reports false for a Deployment that
// runs none.
func instanceOf(d appsv1.Deployment) (instance, bool) {
	pod := &d.Spec.Template.Spec
	for _, c := range pod.Containers {
		args := slices.Concat(c.Command, c.Args)
		if !slices.Contains(args, "controller") {
			continue
		}
		i := instance{deployment: d, args: args, image: c.Image,
			account: cli.AccountName(d.Namespace, cmp.Or(pod.ServiceAccountName, "default"))}
		if as, ok := cli.ArgumentOf(args, "--as"); ok && as != "" {
			i.account = as
		}
		i.selector, _ = cli.ArgumentOf(args, "--watch-label-selector")
		elects, given := cli.ArgumentOf(args, "--leader-elect")
		i.elects = given && elects != "false"
		namespace, _ := cli.ArgumentOf(args, "--leader-election-namespace")
		i.lease = client.ObjectKey{Namespace: cmp.Or(namespace, d.Namespace), Name: cli.LeaseName(i.selector)}
		return i, true
	}
	return instance{}, false
}

// checkControllers examines the Deployments of controllers.
func (e *exam) checkControllers(ctx context.Context) []Finding {
	const check = "controller"
	instances, err := e.findInstances(ctx)
	if err != nil {
		return []Finding{unknown(check, "", err)}
	}
	if len(instances) == 0 {
		return []Finding{{Result: Warning, Check: check, Message: "no Deployment of a controller is there; one may run outside the cluster",
			Todo: "tranche install | kubectl apply --server-side -f -, if none does"}}
	}
	var list []Finding
	for i := range instances {
		f := examineInstance(&instances[i])
		f.Check, f.Object = check, "Deployment "+instances[i].name()
		list = append(list, f)
	}
	for i := range instances {
		for j := range instances[:i] {
			a, b := &instances[j], &instances[i]
			if a.selector == b.selector && (a.lease != b.lease || !a.elects || !b.elects) {
				list = append(list, Finding{Result: Problem, Check: check, Object: "Deployment " + b.name(),
					Message: "it works for the same objects as Deployment " + a.name() + ", and the two do not share a lease",
					Todo:    "delete one of the two, or give them different values of --watch-label-selector"})
			}
		}
	}
	return list
}

// examineInstance judges whether a controller is available, and its version.
func examineInstance(i *instance) Finding {
	d := &i.deployment
	wanted := ptr.Deref(d.Spec.Replicas, 1)
	s := &d.Status
	version, own := cli.ImageVersion(i.image), cli.VersionString()
	message := fmt.Sprintf("%d of %d pods are available, version %s; this program is %s", s.AvailableReplicas, wanted, version, own)
	describe := fmt.Sprintf("see kubectl -n %s describe deployment %s", d.Namespace, d.Name)
	switch {
	case wanted == 0:
		return Finding{Result: Problem, Message: "it has 0 replicas",
			Todo: fmt.Sprintf("kubectl -n %s scale deployment %s --replicas=2", d.Namespace, d.Name)}
	case wanted > 1 && !i.elects:
		return Finding{Result: Problem, Message: fmt.Sprintf("it has %d replicas without --leader-elect, which all work", wanted),
			Todo: "add --leader-elect to its arguments"}
	case s.AvailableReplicas == 0:
		return Finding{Result: Problem, Message: message, Todo: describe}
	case s.ObservedGeneration != d.Generation || s.UpdatedReplicas < wanted || s.AvailableReplicas < wanted:
		return Finding{Result: Warning, Message: message, Todo: describe}
	case isRelease(version) && isRelease(own) && version != own:
		return Finding{Result: Warning, Message: message, Todo: "use the command line of the controller's version, or upgrade the controller"}
	}
	return Finding{Result: OK, Message: message}
}

var release = regexp.MustCompile(`^v?[0-9]+\.[0-9]+`)

// isRelease reports whether a version can be compared: it is no digest, and no name of a
// build.
func isRelease(version string) bool { return release.MatchString(version) }

// checkAccounts looks for the ServiceAccounts of controllers.
func (e *exam) checkAccounts(ctx context.Context) []Finding {
	const check = "account"
	accounts, err := e.accounts(ctx)
	if err != nil {
		return []Finding{unknown(check, "", err)}
	}
	if len(accounts) == 0 {
		return []Finding{{Result: Unknown, Check: check, Message: "the controller's account is not known",
			Todo: "name it with --controller-account"}}
	}
	var list []Finding
	for _, user := range accounts {
		namespace, name, ok := cli.ParseAccount(user)
		if !ok {
			list = append(list, Finding{Result: OK, Check: check, Object: user, Message: "no ServiceAccount"})
			continue
		}
		f := Finding{Result: OK, Check: check, Object: user, Message: "it is there"}
		var account corev1.ServiceAccount
		err := e.Get(ctx, client.ObjectKey{Namespace: namespace, Name: name}, &account)
		switch {
		case apierrors.IsNotFound(err):
			f.Result, f.Message, f.Todo = Problem, "there is no such ServiceAccount", e.apply("config/rbac")
		case err != nil:
			f = unknown(check, user, err)
		}
		list = append(list, f)
	}
	return list
}

// checkRights asks whether the accounts of controllers have the rights of their roles.
func (e *exam) checkRights(ctx context.Context) []Finding {
	accounts, err := e.accounts(ctx)
	if err != nil || len(accounts) == 0 {
		return nil // checkAccounts has said so
	}
	var list []Finding
	for _, user := range accounts {
		f := e.checkRightsOf(ctx, user)
		f.Check, f.Object = "rights", user
		list = append(list, f)
	}
	return list
}

func (e *exam) checkRightsOf(ctx context.Context, user string) Finding {
	rights := e.needed(user)
	var lacking []string
	for _, r := range rights {
		ok, err := r.IsHeld(ctx, e)
		if err != nil {
			return unknown("", "", err)
		}
		if !ok {
			lacking = append(lacking, r.String())
		}
	}
	if len(lacking) > 0 {
		return Finding{Result: Problem, Message: "it may not " + plan.JoinNames(lacking), Todo: e.apply("config/rbac")}
	}
	all := cli.Right{Account: user, ResourceAttributes: authorizationv1.ResourceAttributes{Verb: "*", Group: "*", Resource: "*"}}
	everything, err := all.IsHeld(ctx, e)
	switch {
	case err != nil:
		return unknown("", "", err)
	case everything && appliesAs(user, e.instances):
		return Finding{Result: Warning, Message: "it is cluster-admin, and GitSources without an account are applied with its rights: " +
			"each user who may write a GitSource in any namespace has all rights",
			Todo: "apply config/default and delete the ClusterRoleBinding tranche-applier, unless that is meant"}
	}
	return Finding{Result: OK, Message: fmt.Sprintf("it has the %d rights of its roles", len(rights))}
}

// appliesAs reports whether one of the controllers applies GitSources that name no account as
// its own account.
func appliesAs(user string, instances []instance) bool {
	return slices.ContainsFunc(instances, func(i instance) bool {
		name, _ := cli.ArgumentOf(i.args, "--default-service-account")
		return i.account == user && name == ""
	})
}

// needed are the rights of the roles that config/rbac gives a controller.
func (e *exam) needed(user string) []cli.Right {
	namespace, _, _ := cli.ParseAccount(user)
	for i := range e.instances {
		if e.instances[i].account == user {
			namespace = e.instances[i].lease.Namespace
		}
	}
	var rights []cli.Right
	for _, o := range config.Objects("rbac", "ClusterRole") {
		if role := typed[rbacv1.ClusterRole](o); role.Name == "tranche-controller" {
			rights = append(rights, rightsOf(user, "", role.Rules)...)
		}
	}
	for _, o := range config.Objects("rbac", "Role") {
		if namespace != "" { // a controller without a lease has none
			rights = append(rights, rightsOf(user, namespace, typed[rbacv1.Role](o).Rules)...)
		}
	}
	return rights
}

// rightsOf are the rights that the rules of a role give.
func rightsOf(user, namespace string, rules []rbacv1.PolicyRule) []cli.Right {
	var rights []cli.Right
	for _, rule := range rules {
		names := rule.ResourceNames
		if len(names) == 0 {
			names = []string{""}
		}
		for _, group := range rule.APIGroups {
			for _, resource := range rule.Resources {
				resource, subresource, _ := strings.Cut(resource, "/")
				for _, verb := range rule.Verbs {
					for _, name := range names {
						rights = append(rights, cli.Right{Account: user, ResourceAttributes: authorizationv1.ResourceAttributes{
							Namespace: namespace, Verb: verb, Group: group, Resource: resource, Subresource: subresource, Name: name,
						}})
					}
				}
			}
		}
	}
	return rights
}
