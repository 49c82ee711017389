package rollout_test

import (
	"bytes"
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"maps"
	"net/http"
	"net/netip"
	"regexp"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/intstr"
	"k8s.io/client-go/transport"
	"k8s.io/utils/ptr"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/tranche-dev/tranche/plan/v1alpha1"
	"github.com/tranche-dev/tranche/rollout"
	"github.com/tranche-dev/tranche/rollout/analysis"
	"github.com/tranche-dev/tranche/rollout/clustertest"
)

// fault is what becomes of one write.
type fault string

const (
	killed     fault = "killed"        // it is made, and the controller is dead
	lost       fault = "answer lost"   // it is made, and the answer does not come
	unsent     fault = "not sent"      // it is not made, and no answer comes
	conflict   fault = "409"           // refused, as if another write had come first
	broken     fault = "500"           // refused by a server that is not well
	overloaded fault = "429"           // refused, and asked to come again
	gateway    fault = "504, and made" // made, and a proxy in between gives up
)

// story is what happens to a release while the faults come.
type story struct {
	name   string
	second string   // tag that comes once v2 has its first pod
	after  bool     // or once v2 has all of them
	writes int      // more than the story takes
	end    string   // tag that runs in the end
	want   []string // the history, newest first
	says   string   // what is measured of v2 at the first step; empty: nothing
}

var stories = []story{
	{name: "release", end: "v2", want: []string{"Completed"}, writes: 27},
	{name: "rollback", second: "v1", end: "v1", want: []string{"RolledBack"}, writes: 30},
	{name: "supersession", second: "v3", end: "v3", want: []string{"Completed", "Superseded"}, writes: 30},
	{name: "two releases", second: "v3", after: true, end: "v3", want: []string{"Completed", "Completed"}, writes: 42},
}

// measuredStories are of releases whose first gate measures.
var measuredStories = []story{
	{name: "passes", says: saysPass, end: "v2", want: []string{"Completed"}, writes: 30},
	{name: "fails", says: saysFail, end: "v1", want: []string{"RolledBack"}, writes: 33},
	{name: "is silent, and passes", says: saysLater, end: "v2", want: []string{"Completed"}, writes: 34},
}

var fullFaults = flag.Bool("full", false, "every fault at every write of every story, and chaos for minutes")

// faultCase is one release with one fault.
type faultCase struct {
	story
	name  string
	fault fault
	at    int // the number of the write, from 1

	mu   sync.Mutex
	made int
	hit  string // the write
	dead bool

	brought string
	begun   bool // v2 has had a pod
	done    bool
}

// faultyTransport makes the faults. It knows a case by its name, which is part
// of the names of all its objects.
type faultyTransport struct {
	next  http.RoundTripper
	cases map[string]*faultCase
}

var (
	caseName  = regexp.MustCompile(`case-[0-9]{4}`)
	wholeName = regexp.MustCompile(`case-[0-9]{4}(-[a-z0-9]+)?`)
)

func (f *faultyTransport) RoundTrip(r *http.Request) (*http.Response, error) {
	c := f.caseOf(r)
	if c == nil {
		return f.next.RoundTrip(r)
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.dead {
		return nil, errors.New("killed")
	}
	if c.made++; c.made != c.at {
		return f.next.RoundTrip(r)
	}
	parts := strings.Split(strings.TrimPrefix(r.URL.Path, "/"), "/namespaces/")
	c.hit = r.Method + " " + wholeName.ReplaceAllString(parts[len(parts)-1][strings.Index(parts[len(parts)-1], "/")+1:], "NAME")
	switch c.fault {
	case unsent:
		return nil, fmt.Errorf("not sent: %w", context.DeadlineExceeded)
	case conflict:
		return clustertest.Refusal(r, http.StatusConflict, metav1.StatusReasonConflict), nil
	case broken:
		return clustertest.Refusal(r, http.StatusInternalServerError, metav1.StatusReasonInternalError), nil
	case overloaded:
		answer := clustertest.Refusal(r, http.StatusTooManyRequests, metav1.StatusReasonTooManyRequests)
		answer.Header.Set("Retry-After", "1")
		return answer, nil
	case killed, lost, gateway: // it is made
	}
	answer, err := f.next.RoundTrip(r)
	if err != nil {
		return nil, err
	}
	_ = answer.Body.Close()
	if c.fault == gateway {
		return clustertest.Refusal(r, http.StatusGatewayTimeout, metav1.StatusReasonTimeout), nil
	}
	c.dead = c.fault == killed
	return nil, fmt.Errorf("the answer is lost: %w", context.DeadlineExceeded)
}

// caseOf returns the case of a write; nil for what is none, and for events.
func (f *faultyTransport) caseOf(r *http.Request) *faultCase {
	if r.Method == http.MethodGet || r.URL.Query().Has("dryRun") || strings.Contains(r.URL.Path, "/events") {
		return nil
	}
	name := caseName.FindString(r.URL.Path)
	if name == "" && r.Body != nil {
		body, err := io.ReadAll(r.Body)
		if err != nil {
			return nil
		}
		r.Body = io.NopCloser(bytes.NewReader(body))
		name = string(caseName.Find(body))
	}
	return f.cases[name]
}

// I6: whatever becomes of any single write, the end is the same, with nothing
// lost and nothing twice, and no invariant breaks on the way. The suite takes
// each fault at every second write of one story or another; -full takes all.
func TestFaultAtAnyWrite(t *testing.T) {
	for i, f := range []fault{killed, lost, unsent, conflict, broken, overloaded, gateway} {
		for j, s := range stories {
			t.Run(fmt.Sprintf("%s/%s", f, s.name), func(t *testing.T) {
				t.Parallel()
				cases := map[string]*faultCase{}
				for at := 1; at <= s.writes; at++ {
					if *fullFaults || f == killed && at%2 == j%2 || f != killed && at%6 == (i-1+2*j)%6 {
						name := fmt.Sprintf("case-%04d", len(cases))
						cases[name] = &faultCase{story: s, name: name, fault: f, at: at}
					}
				}
				playFaults(t, cases)
			})
		}
	}
}

// playFaults plays all cases at once, in one namespace and under one controller. Once
// every story is at its end or its controller is dead, it plays them under another.
func playFaults(t *testing.T, cases map[string]*faultCase) {
	c := clustertest.Shared(t)
	ns := c.Namespace(t)
	w := c.Watch(t, ns)
	p := &faultPlay{T: t, c: c, ns: ns, cases: cases, oracle: newOracle(t, cases)}
	p.install()
	start := func(wrap ...transport.WrapperFunc) (stop func()) {
		o := rollout.Options{Concurrent: 50, Analysis: analysis.Options{MayReach: func(netip.Addr) error { return nil }}}
		return startReconciler(t, c, ns, o, func(*ctrl.Options) {}, wrap...)
	}
	stop := start(func(next http.RoundTripper) http.RoundTripper { return &faultyTransport{next, cases} })
	p.until("every story to end, or its controller to be dead", func(c *faultCase) bool { return c.done || c.isDead() })
	stop()
	start()
	p.until("every story to end", func(c *faultCase) bool { return c.done })
	p.judge()
	if t.Failed() {
		t.Logf("timeline:\n%s", w.Timeline())
	}
}

func (c *faultCase) isDead() bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.dead
}

func (c *faultCase) String() string {
	return fmt.Sprintf("%s: %s, %s at write %d (%s)", c.name, c.story.name, c.fault, c.at, c.hit)
}

// faultPlay is the cases in a namespace, and what is read of them.
type faultPlay struct {
	*testing.T
	c     *clustertest.Cluster
	ns    string
	cases map[string]*faultCase
	*oracle

	releases map[string]v1alpha1.BatchRelease
	sizes    map[string]map[string]int32 // by case and tag
}

// install makes the Deployments of two pods, natively, and then their plans.
func (p *faultPlay) install() {
	p.Helper()
	for _, name := range slices.Sorted(maps.Keys(p.cases)) {
		d := &appsv1.Deployment{
			ObjectMeta: metav1.ObjectMeta{Name: name, Namespace: p.ns},
			Spec:       appsv1.DeploymentSpec{Replicas: ptr.To[int32](2), Selector: &metav1.LabelSelector{MatchLabels: map[string]string{"app": name}}, Template: template(name, "v1")},
		}
		p.must(p.c.Client.Create(p.Context(), d))
	}
	clustertest.Wait(p, "the first install", func() error {
		var list appsv1.DeploymentList
		p.must(p.c.Client.List(p.Context(), &list, client.InNamespace(p.ns)))
		for _, d := range list.Items {
			if d.Status.AvailableReplicas != 2 {
				return fmt.Errorf("%s has %d of 2", d.Name, d.Status.AvailableReplicas)
			}
		}
		return nil
	})
	for _, name := range slices.Sorted(maps.Keys(p.cases)) {
		gate := metav1.Duration{}
		if c := p.cases[name]; c.second != "" && !c.after {
			gate.Duration = time.Hour // the second tag comes at the gate
		}
		br := &v1alpha1.BatchRelease{
			ObjectMeta: metav1.ObjectMeta{Name: name, Namespace: p.ns},
			Spec: v1alpha1.BatchReleaseSpec{
				WorkloadRef: v1alpha1.WorkloadReference{APIVersion: "apps/v1", Kind: "Deployment", Name: name},
				Template:    ptr.To(template(name, "v1")), Commit: commitOf("v1"),
				Strategy: v1alpha1.BatchStrategy{Steps: []v1alpha1.Step{
					{Replicas: intstr.FromInt32(1), Pause: &v1alpha1.Pause{Duration: gate}}, {Replicas: intstr.FromString("100%")},
				}},
			},
		}
		if p.cases[name].says != "" {
			br.Spec.Strategy.Steps[0].Pause = nil
			p.measure(&br.Spec.Strategy)
		}
		p.must(p.c.Client.Create(p.Context(), br))
	}
}

func (p *faultPlay) must(err error) {
	p.Helper()
	if err != nil {
		p.Fatal(err)
	}
}

// until goes on with all stories until each is as it is to be. It gives up when
// none has come there for five minutes.
func (p *faultPlay) until(what string, enough func(*faultCase) bool) {
	p.Helper()
	deadline, most := time.Now().Add(5*time.Minute), len(p.cases)
	for {
		p.read()
		var open []string
		for _, c := range p.cases {
			p.goOn(c)
			p.judgeMoves(p.T, c, p.sizes[c.name])
			if !enough(c) {
				br := p.releases[c.name]
				open = append(open, fmt.Sprintf("%s: %s %s: %s; sizes %v", c, br.Status.CurrentStepState, br.Status.Reason, br.Status.Message, p.sizes[c.name]))
			}
		}
		if len(open) == 0 {
			return
		}
		if len(open) < most {
			deadline, most = time.Now().Add(5*time.Minute), len(open)
		}
		if time.Now().After(deadline) {
			slices.Sort(open)
			p.Fatalf("waiting for %s: %d are not, among them\n%s", what, len(open), strings.Join(open[:min(5, len(open))], "\n"))
		}
		select {
		case <-p.Context().Done():
			p.Fatalf("waiting for %s: the test is over", what)
		case <-time.After(300 * time.Millisecond):
		}
	}
}

func (p *faultPlay) read() {
	p.Helper()
	var releases v1alpha1.BatchReleaseList
	var sets appsv1.ReplicaSetList
	clustertest.Wait(p, "an answer", func() error { // the API server may just have begun again
		in := client.InNamespace(p.ns)
		return errors.Join(p.c.Client.List(p.Context(), &releases, in), p.c.Client.List(p.Context(), &sets, in))
	})
	p.releases, p.sizes = map[string]v1alpha1.BatchRelease{}, map[string]map[string]int32{}
	for _, br := range releases.Items {
		p.releases[br.Name] = br
		p.sizes[br.Name] = map[string]int32{}
	}
	for _, rs := range sets.Items {
		_, tag, _ := strings.Cut(rs.Spec.Template.Spec.Containers[0].Image, ":")
		if name := caseName.FindString(rs.Name); *rs.Spec.Replicas > 0 {
			p.sizes[name][tag] += *rs.Spec.Replicas
		}
	}
}

// goOn brings what is next in a story, and sees whether it is at its end.
func (p *faultPlay) goOn(c *faultCase) {
	p.Helper()
	br, sizes := p.releases[c.name], p.sizes[c.name]
	at := br.Status
	rests := at.Reason == v1alpha1.ReasonReleaseCompleted && at.ObservedGeneration == br.Generation
	switch {
	case c.brought == "" && (rests || c.isDead()):
		p.bring(c, &br, "v2")
	case c.brought == "v2" && c.second != "" && (!c.after && sizes["v2"] > 0 || c.after && rests && sizes["v2"] == 2):
		p.bring(c, &br, c.second)
	case c.ends(rests, at.Reason):
		c.done = len(sizes) == 1 && sizes[c.end] == 2
	}
}

// ends reports whether a story is at its end, if its pods are.
func (c *faultCase) ends(rests bool, reason string) bool {
	if c.says == saysFail {
		return c.brought == "v2" && reason == v1alpha1.ReasonRolledBack
	}
	return c.brought == c.end && rests
}

func (p *faultPlay) bring(c *faultCase, br *v1alpha1.BatchRelease, tag string) {
	p.Helper()
	old := br.DeepCopy()
	br.Spec.Template, br.Spec.Commit = ptr.To(template(c.name, tag)), commitOf(tag)
	if tag == c.second {
		br.Spec.Strategy.Steps[0].Pause = &v1alpha1.Pause{}
	}
	err := p.c.Client.Patch(p.Context(), br, client.MergeFrom(old))
	if !apierrors.IsConflict(err) {
		p.must(err)
	}
	c.brought = tag
}

// judge compares what every story has left behind with what it leaves without
// a fault.
func (p *faultPlay) judge() {
	p.Helper()
	var deployments appsv1.DeploymentList
	p.must(p.c.Client.List(p.Context(), &deployments, client.InNamespace(p.ns)))
	for i := range deployments.Items {
		if d := &deployments.Items[i]; d.Spec.Paused || d.Spec.Strategy.Type != appsv1.RollingUpdateDeploymentStrategyType || d.Labels[v1alpha1.LabelHeld] != "" {
			p.Errorf("%s is not native: paused=%t, strategy %s, labels %v", p.cases[d.Name], d.Spec.Paused, d.Spec.Strategy.Type, d.Labels)
		}
	}
	hit := map[string]int{}
	for _, c := range p.cases {
		var got []string
		for _, h := range p.releases[c.name].Status.History {
			got = append(got, string(h.Outcome))
		}
		if !slices.Equal(got, c.want) {
			p.Errorf("%s: history %v, want %v", c, got, c.want)
		}
		p.judgeQuestions(p.T, c)
		if c.hit != "" {
			hit[string(c.fault)+" "+c.hit]++
		}
		if c.fault != "" && c.at < c.writes/2 && c.hit == "" {
			p.Errorf("%s: the fault never came", c)
		}
	}
	p.Logf("%d cases, %d of them with a fault; %v", len(p.cases), total(hit), hit)
}

func total(m map[string]int) int {
	n := 0
	for _, v := range m {
		n += v
	}
	return n
}
