package traffic

import (
	"slices"
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/tools/cache"
)

// exporter keeps the counters of all pods. They are those of a program that serves
// requests and is instrumented by the library of Prometheus: each request is counted.
type exporter struct {
	profiles Profiles
	now      func() time.Time

	mu      sync.Mutex
	pods    map[cache.ObjectName]*pod
	changes map[tagKey]Change

	requests *prometheus.CounterVec
	duration *prometheus.HistogramVec
}

// tagKey is an image tag in a namespace.
type tagKey struct{ namespace, tag string }

// pod is one that has been ready.
type pod struct {
	name     cache.ObjectName
	uid      types.UID
	tag      string
	restarts int32 // of its containers
	serving  bool  // ready, and not being deleted
	since    time.Time
	profile  Profile
	busy     time.Duration // time in which it has served with this profile, up to since
	served   int           // requests with this profile
}

const (
	codeOK    = "200"
	codeError = "500"
)

func newExporter(profiles Profiles, now func() time.Time) *exporter {
	labels := []string{"namespace", "pod"}
	return &exporter{
		profiles: profiles, now: now, pods: map[cache.ObjectName]*pod{}, changes: map[tagKey]Change{},
		requests: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "http_requests_total", Help: "Requests served, by pod and status code.",
		}, append(labels, "code")),
		duration: prometheus.NewHistogramVec(prometheus.HistogramOpts{
			Name: "http_request_duration_seconds", Help: "Latencies of the requests, by pod.", Buckets: prometheus.DefBuckets,
		}, labels),
	}
}

// Describe is of prometheus.Collector.
func (e *exporter) Describe(ch chan<- *prometheus.Desc) {
	e.requests.Describe(ch)
	e.duration.Describe(ch)
}

// Collect serves what is due, and gives the counters.
func (e *exporter) Collect(ch chan<- prometheus.Metric) {
	e.mu.Lock()
	defer e.mu.Unlock()
	for _, p := range e.pods {
		e.serve(p)
	}
	e.requests.Collect(ch)
	e.duration.Collect(ch)
}

// serve counts the requests of a pod from since to now.
func (e *exporter) serve(p *pod) {
	now := e.now()
	elapsed := now.Sub(p.since)
	p.since = now
	if !p.serving || p.profile.Silent {
		return
	}
	ok := e.requests.WithLabelValues(p.name.Namespace, p.name.Name, codeOK)
	failed := e.requests.WithLabelValues(p.name.Namespace, p.name.Name, codeError)
	latencies := e.duration.WithLabelValues(p.name.Namespace, p.name.Name)
	p.busy += elapsed
	for due := whole(p.profile.Rate * p.busy.Seconds()); p.served < due; {
		failures := whole(float64(p.served) * p.profile.Errors)
		if p.served++; whole(float64(p.served)*p.profile.Errors) > failures {
			failed.Inc()
		} else {
			ok.Inc()
		}
		latencies.Observe(p.profile.latency(p.served))
	}
}

// whole rounds down, but takes a number that floating point left a little too small
// for the whole number that it should be.
func whole(x float64) int { return int(x + 1e-6) }

// forget takes the series of a pod away.
func (e *exporter) forget(name cache.ObjectName) {
	labels := prometheus.Labels{"namespace": name.Namespace, "pod": name.Name}
	e.requests.DeletePartialMatch(labels)
	e.duration.DeletePartialMatch(labels)
}

// observe follows a pod. Its counters begin when it is ready for the first time. They
// begin again at 0 when a container was restarted, and with another pod of the same name.
func (e *exporter) observe(o *corev1.Pod) {
	e.mu.Lock()
	defer e.mu.Unlock()
	name := cache.MetaObjectToName(o)
	p, known := e.pods[name]
	serving, restarts := serves(o), restarts(o)
	if !known && !serving {
		return
	}
	if known {
		e.serve(p)
	}
	if !known || restarts != p.restarts || o.UID != p.uid {
		e.forget(name)
		p = &pod{name: name, uid: o.UID, tag: tagOf(o.Spec.Containers[0].Image), restarts: restarts, since: e.now()}
		p.profile = e.profileOf(p)
		e.pods[name] = p
	}
	p.serving = serving
	e.serve(p) // its series are there at once
}

// remove ends what a pod has.
func (e *exporter) remove(name cache.ObjectName) {
	e.mu.Lock()
	defer e.mu.Unlock()
	delete(e.pods, name)
	e.forget(name)
}

// change sets what differs from a tag's profile in a namespace; nil: nothing.
func (e *exporter) change(key tagKey, c *Change) {
	e.mu.Lock()
	defer e.mu.Unlock()
	if c == nil {
		delete(e.changes, key)
	} else {
		e.changes[key] = *c
	}
	for name, p := range e.pods {
		if name.Namespace != key.namespace || p.tag != key.tag {
			continue
		}
		e.serve(p)
		p.profile, p.busy, p.served = e.profileOf(p), 0, 0
		if p.profile.Silent {
			e.forget(name)
		}
		e.serve(p)
	}
}

func (e *exporter) profileOf(p *pod) Profile {
	return e.changes[tagKey{p.name.Namespace, p.tag}].apply(e.profiles.of(p.tag))
}

// serves reports whether a Service would send requests to a pod. The pods of Jobs get none.
func serves(p *corev1.Pod) bool {
	ofJob := func(o metav1.OwnerReference) bool { return o.Kind == "Job" }
	if p.DeletionTimestamp != nil || slices.ContainsFunc(p.OwnerReferences, ofJob) {
		return false
	}
	for _, c := range p.Status.Conditions {
		if c.Type == corev1.PodReady {
			return c.Status == corev1.ConditionTrue
		}
	}
	return false
}

func restarts(p *corev1.Pod) int32 {
	var n int32
	for _, c := range p.Status.ContainerStatuses {
		n += c.RestartCount
	}
	return n
}
