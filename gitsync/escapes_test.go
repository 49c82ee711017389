package gitsync_test

import (
	"encoding/json"
	"fmt"
	"io"
	"maps"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/tranche-dev/tranche/gitsync"
	"github.com/tranche-dev/tranche/gitsync/gittest"
	"github.com/tranche-dev/tranche/gitsync/sandbox"
	"github.com/tranche-dev/tranche/plan/v1alpha1"
	"github.com/tranche-dev/tranche/rollout/clustertest"
	"github.com/tranche-dev/tranche/rollout/notify"
)

// escape is one attempt of a tenant to reach out. MINE, OTHER and HOST are its namespace,
// the neighbour's, and the address of a server that never answers.
type escape struct {
	files map[string]string
	links map[string]string         // symbolic links, by their names
	edit  func(*v1alpha1.GitSource) // of the tenant's GitSource, with OTHER's names
	// posts are made to the receiver of webhooks; the GitSource stays as it is.
	posts func(t *testing.T, address string)
	// reason of the refusal, or several with | between them; empty: any.
	reason string
	// heard: the neighbour's receiver of notifications hears of a failure of its own.
	heard bool
}

// kustomization has a kustomization with one field, beside a ConfigMap and a file.
func kustomization(field string) escape {
	return escape{files: map[string]string{"deploy/kustomization.yaml": "resources: [a.yaml]\n" + field + "\n", "deploy/local.txt": "harmless"}}
}

// only has these files beside those that are applied.
func only(files map[string]string) escape { return escape{files: files} }

// secretOf names a Secret that is there in the neighbour's namespace alone.
var secretOf = v1alpha1.LocalObjectReference{Name: "token"}

// escapes are the attempts, by what they try.
var escapes = map[string]escape{
	// Files of the controller's machine.
	"a link to a file":                   {links: map[string]string{"deploy/b.yaml": "/etc/passwd"}},
	"a link up and out":                  {links: map[string]string{"deploy/b.yaml": "../../../../../../../../etc/passwd"}},
	"a link to itself":                   {links: map[string]string{"deploy/b.yaml": "b.yaml"}},
	"a link to a folder":                 {links: map[string]string{"deploy/sub": "/etc"}, files: map[string]string{"deploy/kustomization.yaml": "configMapGenerator: [{name: c, files: [sub/passwd]}]\n"}},
	"a resource up and out":              kustomization("components: [../../../../../../etc]"),
	"a generator of a file":              kustomization("configMapGenerator: [{name: c, files: [/etc/passwd]}]"),
	"a generator of the account's token": kustomization("configMapGenerator: [{name: c, files: [t=/var/run/secrets/kubernetes.io/serviceaccount/token]}]"),
	"a generator of variables":           kustomization("secretGenerator: [{name: c, envs: [../../../../../../proc/self/environ]}]"),
	"a repository on disk":               {edit: func(gs *v1alpha1.GitSource) { gs.Spec.URL = "file:///var/lib/other.git" }},
	"a push to a repository on disk":     {reason: "NotSupported", edit: func(gs *v1alpha1.GitSource) { gs.Spec.WriteBack = &v1alpha1.WriteBack{Enabled: true} }},
	"notes in a repository on disk":      {reason: "NotSupported", edit: func(gs *v1alpha1.GitSource) { gs.Spec.WriteBack = &v1alpha1.WriteBack{Notes: true} }},

	// URLs in every field that kustomize reads.
	"resources":             {files: map[string]string{"deploy/kustomization.yaml": "resources: [a.yaml, 'http://HOST/x.yaml']\n"}},
	"a repository":          {files: map[string]string{"deploy/kustomization.yaml": "resources: [a.yaml, 'git::http://HOST/x.git//deploy?ref=main']\n"}},
	"bases":                 kustomization("bases: ['http://HOST/x']"),
	"components":            kustomization("components: ['http://HOST/x.git']"),
	"files of a ConfigMap":  kustomization("configMapGenerator: [{name: c, files: ['x=http://HOST/x']}]"),
	"variables":             kustomization("configMapGenerator: [{name: c, envs: ['http://HOST/x']}]"),
	"files of a Secret":     kustomization("secretGenerator: [{name: c, files: ['x=http://HOST/x']}]"),
	"patchesStrategicMerge": kustomization("patchesStrategicMerge: ['http://HOST/x?{']"),
	"patches":               kustomization("patches: [{path: 'http://HOST/x.yaml'}]"),
	"patchesJson6902":       kustomization("patchesJson6902: [{path: 'http://HOST/x.yaml', target: {version: v1, kind: ConfigMap, name: a}}]"),
	"crds":                  kustomization("crds: ['http://HOST/x.json']"),
	"openapi":               kustomization("openapi: {path: 'http://HOST/x.json'}"),
	"configurations":        kustomization("configurations: ['http://HOST/x.yaml']"),
	"transformers":          kustomization("transformers: ['http://HOST/x.yaml']"),
	"generators":            kustomization("generators: ['http://HOST/x.yaml']"),
	"validators":            kustomization("validators: ['http://HOST/x.yaml']"),
	"replacements":          kustomization("replacements: [{path: 'http://HOST/x.yaml'}]"),
	"charts":                kustomization("helmCharts: [{name: x, repo: 'http://HOST/', version: 1.0.0}]"),
	"a generator that is patched into a URL": only(map[string]string{
		"deploy/kustomization.yaml":           "resources: [a.yaml]\ngenerators: [generator]\n",
		"deploy/generator/kustomization.yaml": "resources: [generator.yaml]\npatches:\n- patch: |-\n    - {op: replace, path: /files/0, value: \"stolen=http://HOST/x\"}\n  target: {kind: ConfigMapGenerator}\n",
		"deploy/generator/generator.yaml":     "apiVersion: builtin\nkind: ConfigMapGenerator\nmetadata: {name: stolen}\nfiles: [stolen=local.txt]\n",
		"deploy/generator/local.txt":          "harmless", "deploy/local.txt": "harmless",
	}),
	"a program": only(map[string]string{
		"deploy/kustomization.yaml": "resources: [a.yaml]\ntransformers: [run.yaml]\n",
		"deploy/run.yaml":           "apiVersion: example.org/v1\nkind: Run\nmetadata: {name: run, annotations: {config.kubernetes.io/function: \"exec: {path: ./run.sh}\"}}\n",
		"deploy/run.sh":             "#!/bin/sh\ncat /etc/passwd\n",
	}),

	// Locks.
	"the lock for openapi": {reason: "LimitExceeded|RendererFailed", files: map[string]string{
		"deploy/kustomization.yaml": "openapi: {path: schema.json}\n" + endless()["deploy/kustomization.yaml"], "deploy/big.yaml": endless()["deploy/big.yaml"],
		"deploy/schema.json": `{"swagger": "2.0", "info": {"title": "x", "version": "v1"}, "paths": {}, "definitions": {}}`,
	}},
	"the lease of a leader": only(map[string]string{"deploy/b.yaml": "apiVersion: coordination.k8s.io/v1\nkind: Lease\nmetadata: {name: tranche, namespace: OTHER}\nspec: {holderIdentity: mine, leaseDurationSeconds: 3600}\n"}),
	"the record of syncs":   only(map[string]string{"deploy/b.yaml": configMap("tranche-syncs, namespace: OTHER", "mine")}),

	// Notifications. That of the tenant goes to a server that never answers.
	"a notification": {heard: true, files: map[string]string{"deploy/b.yaml": "apiVersion: v1\nkind: \"SourceRecovered of OTHER/neighbour\\n[OTHER] ok\"\nmetadata: {name: b, namespace: OTHER}\n"}},

	// Bombs.
	"aliases in a patch": {files: map[string]string{"deploy/kustomization.yaml": bomb()["evil/kustomization.yaml"]}},
	"aliases in a file":  {files: map[string]string{"deploy/b.yaml": aliases()}},
	// A machine that is busy with other things ends it by the clock before its CPU time is used.
	"a rendering without end": {reason: "LimitExceeded|RendererFailed", files: endless()},

	// Webhooks.
	"posts that stall": {posts: func(t *testing.T, address string) {
		for n := range 300 {
			stallPost(t, address, fmt.Sprintf("127.0.0.%d", 2+n%3), "POST /webhook HTTP/1.1\r\nHost: x\r\nContent-Type: application/json\r\nContent-Length: 2000\r\n\r\n{")
		}
	}},
	"large posts that stall": {posts: func(t *testing.T, address string) {
		for range 40 {
			stallPost(t, address, "127.0.0.5", "POST /webhook HTTP/1.1\r\nHost: x\r\nContent-Type: application/json\r\nContent-Length: 3145728\r\n\r\n\""+strings.Repeat("a", 1<<20))
		}
	}},
	"headers that stall": {posts: func(t *testing.T, address string) {
		for range 300 {
			stallPost(t, address, "127.0.0.6", "POST /webhook HTTP/1.1\r\nHost: x\r\nX-")
		}
	}},
	"a post that is too large": {posts: func(t *testing.T, address string) {
		answer, err := http.Post("http://"+address+"/webhook", "application/json", io.LimitReader(endlessText{}, 64<<20))
		if err != nil {
			return // the receiver has closed the connection
		}
		_ = answer.Body.Close()
		if answer.StatusCode != http.StatusRequestEntityTooLarge {
			t.Errorf("the answer is %s", answer.Status)
		}
	}},

	// Objects and accounts of others.
	"an object there":   only(map[string]string{"deploy/b.yaml": configMap("b, namespace: OTHER", "mine")}),
	"a Secret there":    only(map[string]string{"deploy/b.yaml": "apiVersion: v1\nkind: Secret\nmetadata: {name: token, namespace: OTHER}\nstringData: {value: mine}\n"}),
	"a Namespace":       only(map[string]string{"deploy/b.yaml": "apiVersion: v1\nkind: Namespace\nmetadata: {name: OTHER, labels: {tranche.dev/drift: correct}}\n"}),
	"a GitSource there": only(map[string]string{"deploy/b.yaml": "apiVersion: tranche.dev/v1alpha1\nkind: GitSource\nmetadata: {name: mine, namespace: OTHER}\nspec: {url: 'https://HOST/x.git', serviceAccountName: deployer, secretRef: {name: token}}\n"}),
	"a ClusterRoleBinding": only(map[string]string{"deploy/b.yaml": "apiVersion: rbac.authorization.k8s.io/v1\nkind: ClusterRoleBinding\nmetadata: {name: MINE-all}\n" +
		"roleRef: {apiGroup: rbac.authorization.k8s.io, kind: ClusterRole, name: cluster-admin}\nsubjects: [{kind: ServiceAccount, name: tenant, namespace: MINE}]\n"}),
	"a claim without the right": only(map[string]string{"deploy/b.yaml": strings.Replace(configMap("settings, namespace: OTHER", "mine"), "metadata: {", "metadata: {annotations: {tranche.dev/reconcile: disabled}, ", 1)}),
	"a target namespace":        {edit: func(gs *v1alpha1.GitSource) { gs.Spec.TargetNamespace = "OTHER" }},
	"another's account":         {edit: func(gs *v1alpha1.GitSource) { gs.Spec.ServiceAccountName = "deployer" }},
	"another's credentials":     {edit: func(gs *v1alpha1.GitSource) { gs.Spec.SecretRef = &secretOf }},
	"another's keys":            {edit: func(gs *v1alpha1.GitSource) { gs.Spec.Verify = committers(&v1alpha1.Verification{SecretRef: secretOf}) }},
	"another's source": {edit: func(gs *v1alpha1.GitSource) {
		gs.Spec.DependsOn = []v1alpha1.NamespacedObjectReference{{Namespace: "OTHER", Name: "neighbour"}}
	}},
}

// endless is a kustomization that takes very long to render.
func endless() map[string]string {
	return map[string]string{
		"deploy/kustomization.yaml": "resources: [a.yaml, big.yaml]\nreplacements:\n" + numbered(3000, "- {source: {kind: Big, name: big, fieldPath: spec.v%d}, targets: [{select: {kind: Big, name: big}, fieldPaths: [spec.list.*.v]}]}\n"),
		"deploy/big.yaml":           "apiVersion: example.org/v1\nkind: Big\nmetadata: {name: big}\nspec:\n" + numbered(3000, "  v%d: x\n") + "  list:\n" + numbered(3000, "  - {v: \"%d\"}\n"),
	}
}

// numbered repeats a text that has a number in it.
func numbered(n int, text string) string {
	var b strings.Builder
	for i := range n {
		fmt.Fprintf(&b, text, i)
	}
	return b.String()
}

// stallPost opens a connection from a loopback address, and sends what never becomes a
// whole request. The receiver may close it.
func stallPost(t *testing.T, address, from, text string) {
	t.Helper()
	c, err := (&net.Dialer{LocalAddr: &net.TCPAddr{IP: net.ParseIP(from)}}).DialContext(t.Context(), "tcp", address)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = c.Close() })
	go func() { _, _ = io.WriteString(c, text) }()
}

// endlessText is read without end.
type endlessText struct{}

func (endlessText) Read(p []byte) (int, error) {
	for i := range p {
		p[i] = ' '
	}
	return len(p), nil
}

// aliases is a file that is much larger with its aliases written out.
func aliases() string {
	text := strings.Builder{}
	text.WriteString("apiVersion: v1\nkind: ConfigMap\nmetadata: {name: b}\nx:\n- &a0 [x, x, x, x, x, x, x, x, x, x]\n")
	for i := 1; i < 9; i++ {
		fmt.Fprintf(&text, "- &a%d [%s]\n", i, strings.TrimSuffix(strings.Repeat(fmt.Sprintf("*a%d, ", i-1), 10), ", "))
	}
	return text.String()
}

// unanswering is a server that takes connections, counts them and never answers.
func unanswering(t *testing.T) (address string, dialled *atomic.Int64) {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	dialled = &atomic.Int64{}
	var open []net.Conn
	done := make(chan struct{})
	go func() {
		defer close(done)
		for {
			c, err := l.Accept()
			if err != nil {
				return
			}
			dialled.Add(1)
			open = append(open, c)
		}
	}()
	t.Cleanup(func() {
		_ = l.Close()
		<-done
		for _, c := range open {
			_ = c.Close()
		}
	})
	return l.Addr().String(), dialled
}

// Each attempt is refused. The API server has nothing new outside of the tenant's
// namespace, the tenant is shown nothing of what is there, and no connection is made.
// The neighbour's commit is applied meanwhile.
func TestTenantEscapes(t *testing.T) {
	t.Parallel()
	s := &tenancy{env: newIdleEnv(t)}
	s.other = s.c.Namespace(t)
	there := &env{T: t, c: s.c, ns: s.other, repo: gittest.NewRepo(t)}
	s.admin("tenant")
	there.admin("deployer")
	s.t(s.c.KubectlWith(t, theirs, "apply", "-n", s.other, "-f", "-"))
	host, dialled := unanswering(t)
	hooks := gittest.FreeAddress(t)
	news := newNewsroom(t, s.ns, s.other)
	command, err := sandbox.Command(renderWorker)
	s.must(err)
	pool := sandbox.NewPool(sandbox.Options{Command: command, Workers: 3, Memory: 256 << 20, Timeout: 3 * time.Second, Log: ctrl.Log})
	t.Cleanup(pool.Close)
	t.Cleanup(s.startManager(s.c.Controller, func(mgr ctrl.Manager) error {
		s.must(mgr.Add(news.notifier))
		return gitsync.Add(mgr, gitsync.Options{Renderer: pool, WebhookAddress: hooks, Tell: news.tell, StorageDir: t.TempDir(), Concurrent: 4, NoRemoteBases: true, NoCrossNamespaceRefs: true, FileRoots: []string{os.TempDir()}, DefaultServiceAccount: "nobody"})
	}, s.other))
	s.commit = s.push(map[string]string{"deploy/a.yaml": configMap("a", "one")})
	s.source(func(gs *v1alpha1.GitSource) { gs.Spec.ServiceAccountName = "tenant" })
	s.applied(s.commit)
	there.repo.CommitAndPush(map[string]string{"deploy/news.yaml": configMap("news", "v0")})
	neighbour := &v1alpha1.GitSource{ObjectMeta: metav1.ObjectMeta{Name: "neighbour", Namespace: s.other},
		Spec: v1alpha1.GitSourceSpec{URL: there.repo.URL(), Path: "deploy", ServiceAccountName: "deployer", Interval: metav1.Duration{Duration: time.Hour}}}
	s.must(s.c.Client.Create(t.Context(), neighbour))
	t.Cleanup(func() { there.end("neighbour") })
	there.holds("news", "v0")
	told := there.hooked()

	n, took := 0, map[string][]time.Duration{}
	// The neighbour commits a next version, and it is applied. How long that took is no
	// assertion: the machine may be busy with other tests.
	commits := func(there *env, repo *gittest.Repo, file, name, when string, told func()) {
		n++
		began := time.Now()
		repo.CommitAndPush(map[string]string{file: configMap(name, fmt.Sprintf("v%d", n))})
		told()
		there.holds(name, fmt.Sprintf("v%d", n))
		took[when] = append(took[when], time.Since(began))
	}
	byWatch := func(there *env, when string) {
		commits(there, there.repo, "deploy/news.yaml", "news", when+", by the watch of a folder", func() {})
	}
	byHook := func(there *env, when string) {
		commits(there, told.repo, "hooked/told.yaml", "told", when+", by a webhook", func() {
			if code := there.tellOf(hooks, told.body, hookToken); code != http.StatusAccepted {
				there.Errorf("the neighbour's post is answered %d", code)
			}
		})
	}
	for range 5 {
		byWatch(there, "without an attempt")
		byHook(there, "without an attempt")
	}
	if len(escapes) < 30 {
		t.Errorf("%d attempts are made", len(escapes))
	}
	for _, name := range slices.Sorted(maps.Keys(escapes)) {
		try := escapes[name]
		t.Run(name, func(t *testing.T) {
			s, there := s.in(t), there.in(t)
			before := s.outside()
			if try.posts != nil {
				try.posts(t, hooks)
				byHook(there, "during an attempt")
				s.leavesOutside(before)
				return
			}
			s.attempt(try, strings.NewReplacer("MINE", s.ns, "OTHER", s.other, "HOST", host))
			byWatch(there, "during an attempt")
			s.isRefused(try)
			if try.heard {
				news.refused(s, said(s.gs()))
				there.repo.CommitAndPush(map[string]string{"deploy/news.yaml": "broken: ["})
				news.hears(there, "dev.tranche.source.SourceFailed")
				byWatch(there, "during an attempt")
				news.hears(there, "dev.tranche.source.SourceRecovered")
			}
			s.leavesOutside(before)
			if d := dialled.Load(); d > 0 {
				t.Errorf("%d connections were made: %s", d, said(s.gs()))
			}
			t.Log(said(s.gs()))
			if try.edit != nil {
				s.edit(func(gs *v1alpha1.GitSource) {
					gs.Spec = v1alpha1.GitSourceSpec{URL: s.repo.URL(), Path: "deploy", Prune: true, Ref: gs.Spec.Ref, Interval: gs.Spec.Interval, Timeout: gs.Spec.Timeout, ServiceAccountName: "tenant"}
				})
			}
		})
	}
	news.onlyOf(t, s.other)
	for _, when := range slices.Sorted(maps.Keys(took)) {
		all := took[when]
		slices.Sort(all)
		t.Logf("the neighbour's commit %s: %d times, p50 %s, at most %s", when, len(all), all[len(all)/2].Round(time.Millisecond), all[len(all)-1].Round(time.Millisecond))
	}
	s.reset() // the honest way is open as before
	s.applied(s.push(map[string]string{"deploy/a.yaml": configMap("a", "two")}))
	s.holds("a", "two")
}

// newsroom is who notifications of sources go to: a server that never answers for those of
// the tenant, and one of the neighbour's.
type newsroom struct {
	notifier *notify.Notifier
	waiting  *atomic.Int64 // connections to the server that never answers

	mu     sync.Mutex
	events []cloudEvent
}

// cloudEvent is what a receiver is sent.
type cloudEvent struct {
	Type, Subject string
	Data          struct{ Namespace, Message string }
}

func newNewsroom(t *testing.T, tenant, neighbour string) *newsroom {
	t.Helper()
	n := &newsroom{}
	address, waiting := unanswering(t)
	n.waiting = waiting
	server := httptest.NewServer(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
		var e cloudEvent
		if err := json.NewDecoder(r.Body).Decode(&e); err != nil {
			t.Error(err)
		}
		n.mu.Lock()
		defer n.mu.Unlock()
		n.events = append(n.events, e)
	}))
	t.Cleanup(server.Close)
	file := filepath.Join(t.TempDir(), "notifications.yaml")
	receivers := fmt.Sprintf("receivers:\n- {name: theirs, type: webhook, url: 'http://%s', namespaces: [%s]}\n- {name: ours, type: webhook, url: %q, namespaces: [%s]}\n", address, tenant, server.URL, neighbour)
	err := os.WriteFile(file, []byte(receivers), 0o600)
	if err == nil {
		n.notifier, err = notify.New(file, ctrl.Log)
	}
	if err != nil {
		t.Fatal(err)
	}
	return n
}

// tell sends what becomes of a source, as the controller does.
func (n *newsroom) tell(s gitsync.SourceNews) {
	tr := notify.Transition{Namespace: s.Namespace, Source: s.Name, Reason: notify.SourceRecovered, Message: s.Message, State: notify.Succeeded, Commit: s.Commit, Author: s.Author, Time: time.Now()}
	if s.Failed {
		tr.Reason, tr.State = notify.SourceFailed, notify.Failed
	}
	n.notifier.Tell(tr)
}

// refused makes sure that the tenant's own receiver is asked.
func (n *newsroom) refused(s *tenancy, why string) {
	s.Helper()
	clustertest.Wait(s, "a notification of the tenant", func() error {
		if n.waiting.Load() == 0 {
			return fmt.Errorf("of %s", why)
		}
		return nil
	})
}

// hears waits for an event of the neighbour's source that is followed by no other.
func (n *newsroom) hears(s *env, kind string) {
	s.Helper()
	clustertest.Wait(s, kind, func() error {
		n.mu.Lock()
		defer n.mu.Unlock()
		if len(n.events) == 0 || n.events[len(n.events)-1].Type != kind {
			return fmt.Errorf("heard %v", n.events)
		}
		return nil
	})
}

// onlyOf makes sure that the neighbour's receiver heard of the neighbour's sources alone.
func (n *newsroom) onlyOf(t *testing.T, namespace string) {
	t.Helper()
	n.mu.Lock()
	defer n.mu.Unlock()
	for _, e := range n.events {
		if e.Data.Namespace != namespace || !strings.HasPrefix(e.Subject, namespace+"/") {
			t.Errorf("the neighbour hears of %s: %+v", e.Subject, e)
		}
	}
}

// hookToken is that of the neighbour's GitSource that is synced by webhooks.
const hookToken = "neighbour's"

// hooked is a repository whose pushes a webhook reports to a GitSource that else looks once an
// hour.
type hooked struct {
	repo *gittest.Repo
	body string // of the webhook
}

// hooked makes a GitSource of the account deployer that is synced by webhooks.
func (s *env) hooked() hooked {
	s.Helper()
	h := hooked{repo: gittest.NewRepo(s)}
	url := gittest.Serve(s, filepath.Dir(h.repo.Bare), gittest.ServeOptions{}).URL + "/repo.git"
	h.body = fmt.Sprintf(`{"ref":"refs/heads/main","repository":{"clone_url":%q}}`, url)
	h.repo.CommitAndPush(map[string]string{"hooked/told.yaml": configMap("told", "v0")})
	s.must(s.c.Client.Create(s.Context(), &corev1.Secret{ObjectMeta: metav1.ObjectMeta{Name: "hook", Namespace: s.ns}, StringData: map[string]string{"token": hookToken}}))
	s.must(s.c.Client.Create(s.Context(), &v1alpha1.GitSource{ObjectMeta: metav1.ObjectMeta{Name: "hooked", Namespace: s.ns}, Spec: v1alpha1.GitSourceSpec{
		URL: url, Path: "hooked", ServiceAccountName: "deployer", Interval: metav1.Duration{Duration: time.Hour},
		Webhook: &v1alpha1.Webhook{SecretRef: v1alpha1.LocalObjectReference{Name: "hook"}},
	}}))
	s.Cleanup(func() { s.end("hooked") })
	s.holds("told", "v0")
	return h
}

// attempt pushes what a tenant tries, or changes its GitSource.
func (s *tenancy) attempt(try escape, names *strings.Replacer) {
	s.Helper()
	if try.edit != nil {
		s.reset()
		gs := s.gs()
		before := gs.DeepCopy()
		try.edit(gs)
		gs.Spec.TargetNamespace = names.Replace(gs.Spec.TargetNamespace)
		for i := range gs.Spec.DependsOn {
			gs.Spec.DependsOn[i].Namespace = names.Replace(gs.Spec.DependsOn[i].Namespace)
		}
		s.must(s.c.Client.Patch(s.Context(), gs, client.MergeFrom(before)))
		return
	}
	s.repo.Git("checkout", "-q", s.commit)
	s.repo.Git("checkout", "-q", "-B", "main")
	for name, target := range try.links {
		path := filepath.Join(s.repo.Work, name)
		s.must(os.MkdirAll(filepath.Dir(path), 0o755))
		s.must(os.Symlink(target, path))
	}
	files := map[string]string{"deploy/a.yaml": configMap("a", s.Name())} // one commit of its own for each try
	for name, content := range try.files {
		files[name] = names.Replace(content)
	}
	s.repo.Commit(files, s.Name())
	s.repo.Push("--force")
}

// isRefused waits until the GitSource says so of what was tried.
func (s *tenancy) isRefused(try escape) {
	s.Helper()
	clustertest.Wait(s, "the refusal", func() error {
		gs := s.gs()
		ready := meta.FindStatusCondition(gs.Status.Conditions, "Ready")
		seen := gs.Status.ObservedGeneration == gs.Generation && (try.edit != nil || gs.Status.ObservedCommit == s.repo.Head())
		if !seen || ready == nil || ready.Status != metav1.ConditionFalse || try.reason != "" && !slices.Contains(strings.Split(try.reason, "|"), ready.Reason) {
			return fmt.Errorf("%s", said(gs))
		}
		return nil
	})
	if v := get(s.env, "a", &corev1.ConfigMap{}).Data["value"]; v != "one" {
		s.Errorf("a part of it was applied: %q", v)
	}
}

// outside is the state of all but the GitSource that is tried with and what the neighbour
// commits.
func (s *tenancy) outside() map[string]string {
	s.Helper()
	state := s.state()
	delete(state, "GitSource "+s.ns+"/shop")
	delete(state, "ConfigMap "+s.other+"/news")
	delete(state, "ConfigMap "+s.other+"/told")
	delete(state, "GitSource "+s.other+"/hooked") // it is annotated at each push
	return state
}

// leavesOutside compares with an earlier state, and looks for the neighbour's secret in
// what the tenant can see.
func (s *tenancy) leavesOutside(before map[string]string) {
	s.Helper()
	now := s.outside()
	for name := range maps.Keys(now) {
		if now[name] != before[name] {
			s.Errorf("%s was written: %s, before %s", name, now[name], before[name])
		}
	}
	for name := range before {
		if _, ok := now[name]; !ok {
			s.Errorf("%s is gone", name)
		}
	}
	if m := said(s.gs()); strings.Contains(m, secret) || strings.Contains(m, "root:x:0:0") {
		s.Errorf("it tells what the tenant may not read: %s", m)
	}
}
