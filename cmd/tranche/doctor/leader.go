package doctor

import (
	"cmp"
	"context"
	"fmt"
	"regexp"
	"slices"
	"strings"
	"time"

	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/duration"
	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/tranche-dev/tranche/cmd/tranche/cli"
)

// leaseNamed matches the names of the leases of controllers.
var leaseNamed = regexp.MustCompile(`^tranche-controller(-[0-9a-f]{8})?$`)

// checkLeaders examines the leases of controllers.
func (e *exam) checkLeaders(ctx context.Context) []Finding {
	list := e.examineLeases(ctx)
	for i := range list {
		list[i].Check = "leader"
	}
	e.leads = gravest(list)
	return list
}

func (e *exam) examineLeases(ctx context.Context) []Finding {
	keys, err := e.leaseKeys(ctx)
	if err != nil {
		return []Finding{unknown("", "", err)}
	}
	var list []Finding
	for _, key := range keys {
		f := e.examineLease(ctx, key)
		f.Object = "Lease " + key.String()
		if f.Result == Problem && len(e.instances) > 0 && !slices.ContainsFunc(e.instances, func(n instance) bool { return n.lease == key }) {
			f.Result, f.Message = Warning, f.Message+"; no Deployment of a controller uses this lease"
			f.Todo = fmt.Sprintf("kubectl -n %s delete lease %s, if no controller outside the cluster is to use it", key.Namespace, key.Name)
		}
		if f.Result == Problem && haveJustStarted(ctx, e, key) {
			f.Result, f.Message, f.Todo = Unknown, f.Message+"; its controllers have just started", "run tranche doctor again in 15 s"
		}
		list = append(list, f)
	}
	for i := range e.instances {
		if n := &e.instances[i]; !n.elects {
			list = append(list, Finding{Result: OK, Object: "Deployment " + n.name(), Message: "it is the only controller, without --leader-elect"})
		}
	}
	if len(list) == 0 {
		return []Finding{{Result: Problem, Message: "there is no lease of a controller, so none runs with --leader-elect",
			Todo: "start a controller; if one runs without --leader-elect, this check cannot see it"}}
	}
	return list
}

// leaseKeys are the leases that the Deployments of controllers use. If this account may
// list all leases, those of controllers outside the cluster are among them.
func (e *exam) leaseKeys(ctx context.Context) ([]client.ObjectKey, error) {
	var keys []client.ObjectKey
	for i := range e.instances {
		if n := &e.instances[i]; n.elects && !slices.Contains(keys, n.lease) {
			keys = append(keys, n.lease)
		}
	}
	var all coordinationv1.LeaseList
	err := e.List(ctx, &all)
	if err != nil && (!isForbidden(err) || len(keys) == 0) {
		return nil, err
	}
	for i := range all.Items {
		l := &all.Items[i]
		key := client.ObjectKeyFromObject(l)
		// A controller that has ended has given its lease up.
		if leaseNamed.MatchString(l.Name) && ptr.Deref(l.Spec.HolderIdentity, "") != "" && !slices.Contains(keys, key) {
			keys = append(keys, key)
		}
	}
	slices.SortFunc(keys, func(a, b client.ObjectKey) int { return cmp.Compare(a.String(), b.String()) })
	return keys, nil
}

// examineLease finds out whether a controller renews a lease.
func (e *exam) examineLease(ctx context.Context, key client.ObjectKey) Finding {
	logs := fmt.Sprintf("see kubectl -n %s get pods, and the log of the controller", key.Namespace)
	var l coordinationv1.Lease
	err := e.Get(ctx, key, &l)
	switch {
	case apierrors.IsNotFound(err):
		return Finding{Result: Problem, Message: "not found: no controller has led",
			Todo: logs + "; if one runs without --leader-elect, this check cannot see it"}
	case err != nil:
		return unknown("", "", err)
	}
	holder := ptr.Deref(l.Spec.HolderIdentity, "")
	if holder == "" {
		return Finding{Result: Problem, Message: "no controller holds it, and releases stand still", Todo: logs}
	}
	age := e.now().Sub(renewedAt(&l))
	if age >= leaseLasts || age < 0 { // it is old, or the clocks differ
		renewed, err := e.isRenewed(ctx, key, &l)
		if err != nil {
			return unknown("", "", err)
		}
		if !renewed {
			return Finding{Result: Problem, Todo: logs,
				Message: fmt.Sprintf("%s does not renew it since %s, and releases stand still", holder, renewedAt(&l).UTC().Format(time.RFC3339))}
		}
	}
	message := fmt.Sprintf("%s holds it, renewed %s ago, taken %s ago", holder,
		duration.HumanDuration(max(age, 0)), duration.HumanDuration(max(e.now().Sub(acquiredAt(&l)), 0)))
	if f, ok := e.compareLeader(ctx, key.Namespace, holder, message); ok {
		return f
	}
	return Finding{Result: OK, Message: message}
}

// haveJustStarted reports whether the controllers that use a lease have pods, all of which run for less time than a lease lasts.
// They may not lead yet. A pod that was restarted had its time.
func haveJustStarted(ctx context.Context, e *exam, key client.ObjectKey) bool {
	running := 0
	for i := range e.instances {
		n := &e.instances[i]
		if n.lease != key {
			continue
		}
		selector, err := metav1.LabelSelectorAsSelector(n.deployment.Spec.Selector)
		if err != nil {
			return false
		}
		var pods corev1.PodList
		err = e.List(ctx, &pods, client.InNamespace(n.deployment.Namespace), client.MatchingLabelsSelector{Selector: selector})
		if err != nil {
			return false
		}
		for j := range pods.Items {
			for _, c := range pods.Items[j].Status.ContainerStatuses {
				if c.RestartCount > 0 || c.State.Running == nil || e.now().Sub(c.State.Running.StartedAt.Time).Abs() >= leaseLasts {
					return false
				}
				running++
			}
		}
	}
	return running > 0
}

// isRenewed reports whether a lease changes, in the time in which a leader renews it. It
// changes whatever clock the leader has.
func (e *exam) isRenewed(ctx context.Context, key client.ObjectKey, was *coordinationv1.Lease) (bool, error) {
	before := renewedAt(was)
	var l coordinationv1.Lease
	err := wait.PollUntilContextTimeout(ctx, time.Second, e.leaseWithin, false, func(context.Context) (bool, error) {
		err := e.Get(ctx, key, &l) // with the time that it takes: a client refuses a request that may not end within its time
		return err == nil && !renewedAt(&l).Equal(before), client.IgnoreNotFound(err)
	})
	if wait.Interrupted(err) && ctx.Err() == nil {
		return false, nil
	}
	return err == nil, err
}

func renewedAt(l *coordinationv1.Lease) time.Time {
	if l.Spec.RenewTime == nil {
		return time.Time{}
	}
	return l.Spec.RenewTime.Time
}

func acquiredAt(l *coordinationv1.Lease) time.Time {
	if l.Spec.AcquireTime == nil {
		return renewedAt(l)
	}
	return l.Spec.AcquireTime.Time
}

// compareLeader says so if the leader's pod has another image than the Deployment. It
// reports false if there is nothing to say.
func (e *exam) compareLeader(ctx context.Context, namespace, holder, message string) (Finding, bool) {
	var pod corev1.Pod
	name, _, _ := strings.Cut(holder, "_")
	if err := e.Get(ctx, client.ObjectKey{Namespace: namespace, Name: name}, &pod); err != nil {
		return Finding{}, false // a controller outside the cluster has no pod
	}
	for i := range e.instances {
		n := &e.instances[i]
		if n.deployment.Namespace != namespace {
			continue
		}
		for _, c := range pod.Spec.Containers {
			if slices.Contains(c.Args, "controller") && c.Image != n.image {
				return Finding{Result: Warning, Todo: fmt.Sprintf("see kubectl -n %s rollout status deployment %s", namespace, n.deployment.Name),
					Message: message + "; its version is " + cli.ImageVersion(c.Image) + ", and Deployment " + n.name() + " has " +
						cli.ImageVersion(n.image)}, true
			}
		}
	}
	return Finding{}, false
}
