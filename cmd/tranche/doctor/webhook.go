package doctor

import (
	"context"
	"fmt"
	"net/http"
	"slices"

	corev1 "k8s.io/api/core/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/tranche-dev/tranche/cmd/tranche/cli"
	"github.com/tranche-dev/tranche/plan/v1alpha1"
)

// webhookPort is the name of the port of the receiver in config/manager.
const webhookPort = "webhook"

// checkWebhook asks the receiver of webhooks, if a GitSource relies on it. The answer comes
// through the API server: whether an Ingress lets a forge in is not seen.
func (e *exam) checkWebhook(ctx context.Context) []Finding {
	f := e.examineWebhook(ctx)
	f.Check = "webhook"
	return []Finding{f}
}

func (e *exam) examineWebhook(ctx context.Context) Finding {
	sources, err := e.Sources(ctx, e.namespace)
	if err != nil {
		return unknown("", "", err)
	}
	uses := slices.DeleteFunc(sources, func(gs v1alpha1.GitSource) bool { return gs.Spec.Webhook == nil })
	if len(uses) == 0 {
		return Finding{Result: OK, Message: "no GitSource has spec.webhook"}
	}
	instances, err := e.findInstances(ctx)
	if err != nil {
		return unknown("", "", err)
	}
	listens := slices.IndexFunc(instances, func(i instance) bool {
		address, ok := cli.ArgumentOf(i.args, "--webhook-address")
		return ok && address != "0"
	})
	if listens < 0 {
		return Finding{Result: Problem, Todo: "add --webhook-address=:9292 to its arguments",
			Message: fmt.Sprintf("%s spec.webhook, and no Deployment of a controller has --webhook-address", have(len(uses)))}
	}
	service, err := webhookService(ctx, e, instances[listens].deployment.Namespace)
	if err != nil {
		return unknown("", "", err)
	}
	if service == nil {
		return Finding{Result: Problem, Todo: e.apply("config/manager"),
			Message: have(len(uses)) + " spec.webhook, and no Service has the port " + webhookPort}
	}
	return e.askWebhook(ctx, service)
}

func have(sources int) string {
	if sources == 1 {
		return "1 GitSource has"
	}
	return fmt.Sprintf("%d GitSources have", sources)
}

// webhookService returns the Service of the receiver; nil: there is none.
func webhookService(ctx context.Context, c client.Reader, namespace string) (*corev1.Service, error) {
	var list corev1.ServiceList
	err := c.List(ctx, &list, client.InNamespace(namespace), client.MatchingLabels{"app.kubernetes.io/name": "tranche"})
	for i := range list.Items {
		for _, p := range list.Items[i].Spec.Ports {
			if p.Name == webhookPort {
				return &list.Items[i], nil
			}
		}
	}
	return nil, err
}

// askWebhook asks the receiver. It answers a GET with 405.
func (e *exam) askWebhook(ctx context.Context, service *corev1.Service) Finding {
	object := "Service " + service.Namespace + "/" + service.Name
	code, err := e.call(ctx, service.Namespace, service.Name, webhookPort, "webhook")
	todo := fmt.Sprintf("see kubectl -n %s get endpointslices -l kubernetes.io/service-name=%s, and the network policies of the namespace",
		service.Namespace, service.Name)
	switch {
	case err != nil:
		return Finding{Result: Unknown, Object: object, Message: err.Error(), Todo: todo}
	case code == http.StatusMethodNotAllowed:
		return Finding{Result: OK, Object: object, Message: "the receiver answers; whether a forge reaches it is not examined"}
	case code == http.StatusForbidden || code == http.StatusUnauthorized:
		return Finding{Result: Unknown, Object: object, Message: fmt.Sprintf("this account may not get services/proxy: %d", code),
			Todo: "ask a user with that right to run tranche doctor"}
	}
	return Finding{Result: Problem, Object: object, Todo: todo,
		Message: fmt.Sprintf("the receiver does not answer: %d %s", code, http.StatusText(code))}
}
