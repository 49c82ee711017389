package analysis

import (
	"cmp"
	"context"
	"fmt"
	"net"
	"net/netip"
	"net/url"
	"strconv"
	"strings"
	"time"

	"github.com/go-logr/logr"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/tranche-dev/tranche/plan/v1alpha1"
	"github.com/tranche-dev/tranche/rollout/analysis/job"
	"github.com/tranche-dev/tranche/rollout/analysis/outbound"
	"github.com/tranche-dev/tranche/rollout/analysis/pool"
	"github.com/tranche-dev/tranche/rollout/analysis/unknown"
	"github.com/tranche-dev/tranche/rollout/engine"
	"github.com/tranche-dev/tranche/rollout/engine/verdict"
	"github.com/tranche-dev/tranche/rollout/impersonate"
)

// queryTime is how long the queries of one measurement may take together.
const queryTime = 30 * time.Second

// maxMessage is the length of a message.
const maxMessage = 512

// Options of the providers.
type Options struct {
	// Configuration has the providers that plans name; nil: none.
	Configuration *Configuration
	// Networks are those in which servers may be that plans name by their addresses.
	Networks outbound.Networks
	// Client reads Secrets and makes Jobs as the account that its context names. It has no
	// cache.
	Client client.Client
	// DefaultAccount is the account of releases that name none; empty: the controller's own.
	DefaultAccount string
	Now            func() time.Time
	// Uptime is a time that no one can set, from any moment on.
	Uptime func() time.Duration
	Log    logr.Logger
	// Resolver and MayReach are for tests.
	Resolver *net.Resolver
	MayReach func(netip.Addr) error
}

// Providers answer measurements.
type Providers struct {
	o       Options
	clients *outbound.Clients
	secrets *secrets
}

// NewProviders returns the providers.
func NewProviders(o Options) *Providers {
	if o.Configuration == nil {
		o.Configuration = &Configuration{}
	}
	return &Providers{
		o:       o,
		clients: outbound.NewClients(outbound.Options{Networks: o.Networks, Resolver: o.Resolver, Now: o.Now, MayReach: o.MayReach}),
		secrets: &secrets{reader: o.Client, now: o.Now, of: map[secretKey]secret{}},
	}
}

// Close closes the connections that are not in use.
func (p *Providers) Close() { p.clients.Close() }

// Question returns a measurement as the pool asks it. The owner is the BatchRelease.
func (p *Providers) Question(m engine.Measurement, owner metav1.OwnerReference) pool.Question[verdict.Key, engine.Measured] {
	a := &asking{Providers: p, m: m}
	if q := m.Update; q != nil && q.Job != nil {
		a.job = &job.Run{
			Client: p.o.Client, Job: types.NamespacedName{Namespace: m.Namespace, Name: jobName(m)}, From: q.Job.From,
			Key: m.Hash(), Owner: owner, Timeout: orDefault(q.Job.Timeout, 10*time.Minute), Uptime: p.o.Uptime,
		}
	}
	return pool.Question[verdict.Key, engine.Measured]{Key: m.Key, Host: p.host(m), At: m.At, Run: a.run}
}

// jobName names the Job of a measurement: a person finds it by the metric.
func jobName(m engine.Measurement) string {
	hash := m.Hash()[:16]
	name := m.Plan + "-" + m.Metric
	return strings.TrimRight(name[:min(len(name), 62-len(hash))], "-.") + "-" + hash
}

func orDefault(d *metav1.Duration, otherwise time.Duration) time.Duration {
	if d == nil || d.Duration <= 0 {
		return otherwise
	}
	return d.Duration
}

// host names what a measurement takes a place of. An address that a plan names is another
// host for each namespace. So no tenant takes the places of a server by its name alone.
func (p *Providers) host(m engine.Measurement) string {
	q := m.Update
	own := func(address string) string {
		u, err := url.Parse(address)
		if err != nil {
			return m.Namespace + "/"
		}
		return m.Namespace + "/" + u.Host
	}
	switch {
	case q == nil:
		return m.Namespace + "/"
	case q.Prometheus != nil && q.Prometheus.Provider != "":
		return "provider/" + q.Prometheus.Provider
	case q.Prometheus != nil:
		return own(q.Prometheus.Address)
	case q.Datadog != nil && q.Datadog.Provider != "":
		return "provider/" + q.Datadog.Provider
	case q.Datadog != nil:
		return own(datadogAddress(q.Datadog.Site))
	case q.Web != nil:
		return own(q.Web.URL)
	}
	return "job/" + m.Namespace
}

// asking is one measurement that is asked.
type asking struct {
	*Providers
	m   engine.Measurement
	job *job.Run // keeps what its pods wait for
}

// run asks for the values of both revisions.
func (a *asking) run(ctx context.Context) (measured engine.Measured, err error) {
	measured.Key = a.m.Key
	began := a.o.Now()
	defer func() {
		if r := recover(); r != nil { // an answer must not end the controller
			err = unknown.New(unknown.BadAnswer, "the answer cannot be read")
			measured.Update = answerOf(nil, "", err)
		}
		a.observe(ctx, a.m, &measured, err, a.o.Now().Sub(began))
	}()
	ctx = impersonate.As(ctx, a.m.Namespace, cmp.Or(a.m.Account, a.o.DefaultAccount))
	update, err := a.side(ctx, a.m.Update)
	measured.Update = update
	if a.m.Stable == nil {
		measured.Retrying = passing(err)
		return measured, retried(err)
	}
	if passing(err) { // the server of the one is that of the other
		again := *update
		measured.Stable, measured.Retrying = &again, true
		return measured, retried(err)
	}
	measured.Stable, err = a.side(ctx, a.m.Stable)
	measured.Retrying = passing(err)
	return measured, retried(err)
}

// passing reports whether an error is one after which the same is asked again.
func passing(err error) bool { return err != nil && unknown.Of(err).Retry }

// retried returns an error only if the pool is to ask again. Another one is the answer.
func retried(err error) error {
	if passing(err) {
		return err
	}
	return nil
}

// side asks about one revision.
func (a *asking) side(ctx context.Context, q *verdict.Question) (*verdict.Answer, error) {
	var values []float64
	var total string
	var err error
	switch {
	case q == nil:
		err = unknown.New(unknown.BadAnswer, "the metric has no query")
	case q.Prometheus != nil:
		ctx, cancel := context.WithTimeout(ctx, queryTime)
		defer cancel()
		values, total, err = a.prometheus(ctx, q.Prometheus)
	case q.Datadog != nil:
		ctx, cancel := context.WithTimeout(ctx, queryTime)
		defer cancel()
		values, total, err = a.datadog(ctx, q.Datadog)
	case q.Web != nil:
		ctx, cancel := context.WithTimeout(ctx, orDefault(q.Web.Timeout, queryTime))
		defer cancel()
		values, err = passed(a.web(ctx, q.Web))
	case a.job != nil:
		values, err = passed(a.job.Poll(ctx))
	default:
		err = unknown.New(unknown.BadAnswer, "the metric has no provider")
	}
	return answerOf(values, total, err), err
}

func passed(ok bool, err error) ([]float64, error) {
	switch {
	case err != nil:
		return nil, err
	case ok:
		return []float64{1}, nil
	}
	return []float64{0}, nil
}

// answerOf puts an answer into words.
func answerOf(values []float64, total string, err error) *verdict.Answer {
	if err != nil {
		e := unknown.Of(err)
		message := e.Detail
		if len(message) > maxMessage {
			message = message[:maxMessage]
		}
		return &verdict.Answer{Unknown: e.Reason, Message: message}
	}
	a := &verdict.Answer{Total: total}
	for _, v := range values {
		a.Values = append(a.Values, format(v))
	}
	return a
}

func format(v float64) string { return strconv.FormatFloat(v, 'g', -1, 64) }

// of returns the client and the credentials for a server. They are of the configuration if it
// names the provider, and else of a Secret of the release.
func (a *asking) of(
	ctx context.Context, provider, kind string, ref *v1alpha1.LocalObjectReference,
) (*outbound.Client, Provider, credentials, error) {
	var p Provider
	var c credentials
	var err error
	switch {
	case provider != "":
		if p, err = a.o.Configuration.find(a.m.Namespace, provider, kind); err == nil {
			c, err = ofProvider(p, a.m.Namespace)
		}
	case ref != nil:
		var data map[string][]byte
		if data, err = a.secrets.get(ctx, a.m.Namespace, ref.Name); err == nil {
			c, err = ofSecret(ref.Name, data)
		}
	}
	if err != nil {
		return nil, p, c, err
	}
	client, err := a.clients.For(provider != "", c.tls)
	if err != nil {
		return nil, p, c, fmt.Errorf("making a client: %w", err)
	}
	return client, p, c, nil
}
