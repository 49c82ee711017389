package sandbox_test

import (
	"encoding/json"
	"errors"
	"fmt"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/go-logr/logr"
	"github.com/google/go-cmp/cmp"
	"sigs.k8s.io/kustomize/kyaml/filesys"

	"github.com/tranche-dev/tranche/gitsync/sandbox"
	"github.com/tranche-dev/tranche/plan"
	"github.com/tranche-dev/tranche/plan/manifest"
	"github.com/tranche-dev/tranche/plan/plantest"
)

const (
	asWorker = "a-renderer"
	asThief  = "a-thief"
)

func TestMain(m *testing.M) {
	switch {
	case len(os.Args) > 1 && os.Args[1] == asWorker:
		if err := sandbox.Main(os.Args[2:]); err != nil {
			fmt.Fprintln(os.Stderr, err)
			os.Exit(1)
		}
	case len(os.Args) > 2 && os.Args[1] == asThief:
		steal(os.Args[2], os.Args[3])
	default:
		os.Exit(m.Run())
	}
}

func newPool(t *testing.T, memory int64, timeout time.Duration, workers int) *sandbox.Pool {
	t.Helper()
	command, err := sandbox.Command(asWorker)
	if err != nil {
		t.Fatal(err)
	}
	p := sandbox.NewPool(sandbox.Options{Command: command, Workers: workers, Memory: memory, Timeout: timeout, Log: logr.Discard()})
	t.Cleanup(p.Close)
	return p
}

const (
	enough = 256 << 20
	long   = 5 * time.Minute
)

const deployment = "apiVersion: apps/v1\nkind: Deployment\nmetadata: {name: web, annotations: {n: \"1\"}}\nspec: {replicas: 3, template: " +
	"{spec: {containers: [{name: web, image: web:v1}]}}}\n"

// trees are folders to render, good and bad.
var trees = map[string]map[string]string{
	"plain": {"a.yaml": deployment, "sub/b.yaml": "apiVersion: v1\nkind: ConfigMap\nmetadata: {name: b}\ndata: {n: \"1.0\"}\n"},
	"kustomization": {"kustomization.yaml": "resources: [a.yaml]\nnamePrefix: x-\nconfigMapGenerator: [{name: c, files: [data.txt]}]\n",
		"a.yaml": deployment, "data.txt": "text"},
	"overlay": {"kustomization.yaml": "resources: [base]\nimages: [{name: web, newTag: v2}]\n",
		"base/kustomization.yaml": "resources: [a.yaml]\n", "base/a.yaml": deployment},
	"numbers": {"a.yaml": "apiVersion: example.org/v1\nkind: Thing\nmetadata: {name: x}\nspec: {big: 9007199254740993, float: 1.5, " +
		"negative: -3, list: [1, a, null, true]}\n"},
	"no such file":  {"kustomization.yaml": "resources: [missing.yaml]\n"},
	"two problems":  {"a.yaml": "kind: [\n", "b.yaml": "apiVersion: v1\nkind: ConfigMap\n"},
	"no kind":       {"a.yaml": "metadata: {name: x}\n"},
	"a remote base": {"kustomization.yaml": "resources: [https://example.org/base]\n"},
	"nothing":       {"README.md": "nothing"},
	"its own openapi": {"kustomization.yaml": "resources: [a.yaml]\nopenapi: {path: schema.json}\n",
		"a.yaml": deployment, "schema.json": `{"definitions": {}}`},
}

// A worker renders the same as this process, objects and errors.
func TestRenderIsTheSame(t *testing.T) {
	p := newPool(t, enough, long, 2)
	for name, files := range trees {
		t.Run(name, func(t *testing.T) {
			here, errHere := manifest.Render(plantest.Tree(t, files), ".", manifest.RenderOptions{})
			there, errThere := p.Render("shop", plantest.Tree(t, files), ".", manifest.RenderOptions{})
			if diff := cmp.Diff(said(errHere), said(errThere)); diff != "" {
				t.Errorf("errors (-here +there):\n%s", diff)
			}
			if diff := cmp.Diff(encoded(t, here), encoded(t, there)); diff != "" {
				t.Errorf("objects (-here +there):\n%s", diff)
			}
		})
	}
}

// said is all that callers read of an error.
func said(err error) []string {
	var ps plan.Problems
	if p, ok := errors.AsType[*plan.Problem](err); ok && !errors.As(err, &ps) {
		ps = plan.Problems{p}
	}
	lines := []string{fmt.Sprintf("%T", err)}
	for _, p := range ps {
		lines = append(lines, fmt.Sprintf("%s|%t|%s", p.Reason, p.Retry, p.Error()))
	}
	return lines
}

func encoded(t *testing.T, objects []plan.Object) []string {
	t.Helper()
	var all []string
	for _, o := range objects {
		data, err := json.Marshal(o.Object)
		if err != nil {
			t.Fatal(err)
		}
		all = append(all, o.File+": "+string(data))
	}
	return all
}

// bomb is a kustomization whose patch grows beyond all memory, in some hundred bytes.
func bomb() map[string]string {
	var patch strings.Builder
	patch.WriteString("apiVersion: v1\nkind: ConfigMap\nmetadata: {name: x}\na0: &a0 [x, x, x, x, x, x, x, x, x, x]\n")
	for i := 1; i < 9; i++ {
		fmt.Fprintf(&patch, "a%d: &a%d [%s]\n", i, i, strings.TrimSuffix(strings.Repeat(fmt.Sprintf("*a%d, ", i-1), 10), ", "))
	}
	return map[string]string{
		"kustomization.yaml": "resources: [a.yaml]\npatches:\n- patch: |-\n    " +
			strings.ReplaceAll(strings.TrimSpace(patch.String()), "\n", "\n    ") + "\n",
		"a.yaml": "apiVersion: v1\nkind: ConfigMap\nmetadata: {name: x}\n",
	}
}

func isLimit(err error) bool {
	p, ok := errors.AsType[*plan.Problem](err)
	return ok && p.Reason == sandbox.ReasonLimitExceeded && !p.Retry
}

// A folder that would take all memory is refused alone, and the next rendering is as good
// as before.
func TestMemory(t *testing.T) {
	p := newPool(t, enough, long, 2)
	for range 3 {
		if _, err := p.Render("evil", plantest.Tree(t, bomb()), ".", manifest.RenderOptions{}); !isLimit(err) {
			t.Fatalf("rendered, or refused otherwise: %v", err)
		}
		if _, err := p.Render("shop", plantest.Tree(t, trees["overlay"]), ".", manifest.RenderOptions{}); err != nil {
			t.Fatal(err)
		}
	}
}

// slow is a tree whose files are never read.
type slow struct {
	filesys.FileSystem
	asked chan struct{}
	until chan struct{}
}

func (s slow) ReadFile(string) ([]byte, error) {
	s.asked <- struct{}{}
	<-s.until
	return nil, errors.New("too late")
}

// A tenant whose renderings do not end holds all places but one: another's goes
// through meanwhile.
func TestOneTenantLeavesAPlace(t *testing.T) {
	const workers = 3
	p := newPool(t, enough, long, workers)
	s := slow{plantest.Tree(t, trees["plain"]), make(chan struct{}), make(chan struct{})}
	var evil sync.WaitGroup
	for range workers + 2 {
		evil.Go(func() {
			_, _ = p.Render("evil", s, ".", manifest.RenderOptions{}) // what it says is its own affair
		})
	}
	for range workers - 1 {
		<-s.asked // as many as it gets
	}
	if _, err := p.Render("shop", plantest.Tree(t, trees["overlay"]), ".", manifest.RenderOptions{}); err != nil {
		t.Error(err)
	}
	close(s.until)
	go func() {
		for range s.asked { //nolint:revive // the others ask, too
		}
	}()
	evil.Wait()
	close(s.asked)
}

// endless is a kustomization that takes very long: many replacements, each in many objects.
func endless() map[string]string {
	const replacement = "- {source: {kind: ConfigMap, name: x0, fieldPath: data.k}, targets: [{select: {kind: ConfigMap}, fieldPaths: " +
		"[data.k]}]}\n"
	var objects strings.Builder
	for i := range 300 {
		fmt.Fprintf(&objects, "---\napiVersion: v1\nkind: ConfigMap\nmetadata: {name: x%d}\ndata: {k: v}\n", i)
	}
	return map[string]string{
		"kustomization.yaml": "resources: [a.yaml]\nreplacements:\n" + strings.Repeat(replacement, 5000),
		"a.yaml":             objects.String(),
	}
}

// A rendering that takes more CPU time than it may is ended, and so is the next one in
// the same pool. The time of each folder is counted by itself.
func TestTime(t *testing.T) {
	p := newPool(t, 2<<30, time.Second, 2) // it is the time that ends it
	for range 2 {
		if err := finally(p, plantest.Tree(t, endless())); !isLimit(err) || !strings.Contains(err.Error(), "more than 1s of CPU time") {
			t.Errorf("rendered, or refused otherwise: %v", err)
		}
	}
}

// finally renders, again and again where the machine was too busy for the folder, as the
// controller does.
func finally(p *sandbox.Pool, tree filesys.FileSystem) error {
	for {
		_, err := p.Render("evil", tree, ".", manifest.RenderOptions{})
		if said, ok := errors.AsType[*plan.Problem](err); !ok || !said.Retry {
			return err
		}
	}
}

// stalled is a tree whose files are read only after some time, as on a machine that does
// something else.
type stalled struct {
	filesys.FileSystem
	wait time.Duration
	once *sync.Once
}

func (s stalled) ReadFile(name string) ([]byte, error) {
	s.once.Do(func() { time.Sleep(s.wait) })
	return s.FileSystem.ReadFile(name)
}

// A machine that stalls for longer than a folder may take is no fault of the folder: it
// is rendered. One that stalls for very long has the folder tried again.
func TestTime_StalledMachine(t *testing.T) {
	const timeout = time.Second
	p := newPool(t, enough, timeout, 2)
	if err := finally(p, stalled{plantest.Tree(t, trees["plain"]), timeout + time.Second, &sync.Once{}}); err != nil {
		t.Errorf("a machine that stalls for a while: %v", err)
	}
	tree := stalled{plantest.Tree(t, trees["plain"]), 20*timeout + time.Second, &sync.Once{}}
	_, err := p.Render("shop", tree, ".", manifest.RenderOptions{})
	if said, ok := errors.AsType[*plan.Problem](err); !ok || said.Reason != "RendererFailed" || !said.Retry ||
		!strings.Contains(said.Error(), "has not ended after 20s") {
		t.Errorf("a machine that stalls for very long: %v", err)
	}
	if err := finally(p, plantest.Tree(t, trees["plain"])); err != nil {
		t.Errorf("afterwards: %v", err)
	}
}

// A generator that makes another one's file name a URL, after the kustomization was
// looked at, reaches nothing; nor does a patch that is one.
func TestNothingIsReached(t *testing.T) {
	var hits atomic.Int32
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		hits.Add(1)
		_, _ = w.Write([]byte("secret: 1\n"))
	}))
	t.Cleanup(server.Close)
	for name, files := range map[string]map[string]string{
		"a generator patched into a URL": {
			"kustomization.yaml":           "generators: [generator]\n",
			"generator/kustomization.yaml": "resources: [generator.yaml]\npatches:\n- patch: |-\n    - {op: replace, path: /files/0, value: \"stolen=" + server.URL + "/x\"}\n  target: {kind: ConfigMapGenerator}\n",
			"generator/generator.yaml":     "apiVersion: builtin\nkind: ConfigMapGenerator\nmetadata: {name: stolen}\nfiles: [stolen=local.txt]\n",
			"generator/local.txt":          "harmless",
			"local.txt":                    "harmless",
		},
		"a patch that is a URL": {
			"kustomization.yaml": "resources: [a.yaml]\npatchesStrategicMerge: [\"" + server.URL + "/x?{\"]\n", "a.yaml": deployment,
		},
	} {
		t.Run(name, func(t *testing.T) {
			objects, err := newPool(t, enough, long, 2).Render("evil", plantest.Tree(t, files), ".", manifest.RenderOptions{})
			if err == nil {
				t.Errorf("rendered: %v", encoded(t, objects))
			}
			if hits.Load() > 0 {
				t.Errorf("%d requests have come, and it says %v", hits.Load(), err)
			}
		})
	}
}

// steal tries what a worker may not do, in a sealed worker: to read a file, to open a
// socket, to run a program. It prints what went well.
func steal(file, address string) {
	sandbox.Seal()
	if _, err := os.ReadFile(file); err == nil { //nolint:gosec // of the test
		fmt.Println("read")
	}
	if c, err := net.Dial("tcp", address); err == nil { //nolint:noctx // it is refused
		fmt.Println("dialled", c.RemoteAddr())
	}
	if err := os.WriteFile(file, nil, 0o600); err == nil {
		fmt.Println("wrote")
	}
	if err := exec.Command("/bin/true").Run(); err == nil { //nolint:noctx // it is refused
		fmt.Println("ran")
	}
	fmt.Println("end")
}

// The kernel refuses a sealed worker files, sockets and programs.
func TestSealed(t *testing.T) {
	server := httptest.NewServer(http.NotFoundHandler())
	t.Cleanup(server.Close)
	file := t.TempDir() + "/file"
	if err := os.WriteFile(file, []byte("x"), 0o600); err != nil {
		t.Fatal(err)
	}
	//nolint:gosec // this program
	out, err := exec.CommandContext(t.Context(), os.Args[0], asThief, file, server.Listener.Addr().String()).CombinedOutput()
	if err != nil || string(out) != "end\n" {
		t.Errorf("%v: %s", err, out)
	}
}

// A worker that dies of itself is no fault of the folder: it is tried again, by another.
func TestWorkerDies(t *testing.T) {
	command := func(sandbox.Bounds) *exec.Cmd { return exec.Command("false") } //nolint:noctx // it ends at once
	p := sandbox.NewPool(sandbox.Options{Command: command, Workers: 2, Memory: enough, Timeout: long, Log: logr.Discard()})
	t.Cleanup(p.Close)
	if _, err := p.Render("shop", plantest.Tree(t, trees["plain"]), ".", manifest.RenderOptions{}); err == nil {
		t.Error("rendered by a program that ends at once")
	}
}

// After Close, nothing is rendered and no worker lives.
func TestClose(t *testing.T) {
	p := newPool(t, enough, long, 2)
	if _, err := p.Render("shop", plantest.Tree(t, trees["plain"]), ".", manifest.RenderOptions{}); err != nil {
		t.Fatal(err)
	}
	p.Close()
	if _, err := p.Render("shop", plantest.Tree(t, trees["plain"]), ".", manifest.RenderOptions{}); err == nil {
		t.Error("rendered by a closed pool")
	}
}

// asked counts the questions about a tree.
type asked struct {
	filesys.FileSystem
	of map[string]int
}

func (a *asked) ReadFile(p string) ([]byte, error) {
	a.of["ReadFile "+p]++
	return a.FileSystem.ReadFile(p)
}

func (a *asked) Exists(p string) bool {
	a.of["Exists "+p]++
	return a.FileSystem.Exists(p)
}

func (a *asked) CleanedAbs(p string) (filesys.ConfirmedDir, string, error) {
	a.of["CleanedAbs "+p]++
	return a.FileSystem.CleanedAbs(p)
}

// A worker asks each question once in a rendering, and again in the next one.
func TestRender_AsksOnce(t *testing.T) {
	p := newPool(t, enough, long, 2)
	for _, value := range []string{"one", "two"} {
		tree := &asked{plantest.Tree(t, map[string]string{
			"kustomization.yaml":      "resources: [base]\nnamePrefix: x-\n",
			"base/kustomization.yaml": "resources: [a.yaml]\n",
			"base/a.yaml":             "apiVersion: v1\nkind: ConfigMap\nmetadata: {name: a}\ndata: {value: " + value + "}\n",
		}), map[string]int{}}
		objects, err := p.Render("shop", tree, ".", manifest.RenderOptions{})
		if err != nil || len(objects) != 1 || !strings.Contains(encoded(t, objects)[0], value) {
			t.Fatalf("%v %v", encoded(t, objects), err)
		}
		if tree.of["ReadFile /base/a.yaml"] != 1 {
			t.Errorf("%s: the questions are %v", value, tree.of)
		}
		for question, n := range tree.of {
			if n != 1 {
				t.Errorf("%s: %s was asked %d times", value, question, n)
			}
		}
	}
}
