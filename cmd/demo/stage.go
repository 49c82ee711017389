package main

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"time"

	"k8s.io/apimachinery/pkg/runtime"
	clientgoscheme "k8s.io/client-go/kubernetes/scheme"
	"k8s.io/client-go/tools/clientcmd"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/tranche-dev/tranche/plan/v1alpha1"
)

const (
	// upWithin is how long a part may take to come up.
	upWithin = 90 * time.Second
	// stopWithin is how long a part has to stop before it is killed.
	stopWithin = 30 * time.Second
)

// stage is where the story plays: a cluster, a Git server with one repository,
// a clone of it, and the controller.
type stage struct {
	programs   []string // folders, the first one with a program has it
	root, dir  string
	env        []string
	parts      []*exec.Cmd // running, in order of their start
	url        string      // of the repository, over HTTP
	stay       bool        // the user goes on in the clone
	metrics    string      // address of the controller's metrics
	traffic    string      // URL of what the pods serve
	prometheus string      // URL of the Prometheus that scrapes both
	dashboard  string      // URL of the dashboard
	client     client.Client
}

// account is the controller's own, as config/rbac makes it.
const account = "system:serviceaccount:tranche-system:tranche-controller"

func newStage(programs []string, root, dir string) *stage {
	s := &stage{programs: programs, root: root, dir: dir}
	s.env = append(os.Environ(),
		"PATH="+pathOf(append(slices.Clone(programs), os.Getenv("PATH"))),
		"KUBECONFIG="+s.kubeconfig(),
		"GIT_CONFIG_GLOBAL="+os.DevNull, "GIT_CONFIG_NOSYSTEM=1", "GIT_TERMINAL_PROMPT=0", "GIT_PAGER=cat",
		"GIT_AUTHOR_NAME=Ada", "GIT_AUTHOR_EMAIL=ada@example.org", "GIT_COMMITTER_NAME=Ada", "GIT_COMMITTER_EMAIL=ada@example.org",
	)
	return s
}

// pathOf is the value of PATH with these folders.
func pathOf(folders []string) string { return strings.Join(folders, string(os.PathListSeparator)) }

func (s *stage) kubeconfig() string { return filepath.Join(s.dir, "cluster", "kubeconfig") }
func (s *stage) clone() string      { return filepath.Join(s.dir, "web") }
func (s *stage) bare() string       { return filepath.Join(s.dir, "git", "web.git") }

// followed is the URL of the GitSource: a local repository, so that a push needs no webhook.
func (s *stage) followed() string { return "file://" + s.bare() }

// remote is where the clone comes from. The commands that commit refuse a clone of
// another repository than the GitSource's, and cannot know that both URLs lead to one.
func (s *stage) remote() string {
	if s.stay {
		return s.followed()
	}
	return s.url
}

// set brings everything up.
func (s *stage) set(ctx context.Context) error {
	say("Starting a cluster (kube-apiserver, kube-controller-manager, scheduler, etcd), a Git server, Prometheus and the controller …")
	if _, err := s.start(ctx, "cluster", "devcluster", "up", "--dir", filepath.Join(s.dir, "cluster")); err != nil {
		return err
	}
	for _, part := range [][]string{{"-f", "manager/namespace.yaml"}, {"-k", "crd"}, {"-k", "rbac"}, {"-k", "policy"}} {
		if _, err := s.output(ctx, s.dir, "kubectl", "apply", "--server-side", part[0], filepath.Join(s.root, "config", part[1])); err != nil {
			return err
		}
	}
	if _, err := s.output(ctx, s.dir, "git", "init", "--quiet", "--bare", "--initial-branch=main", s.bare()); err != nil {
		return err
	}
	line, err := s.start(ctx, "git", "devcluster", "git", "--dir", filepath.Join(s.dir, "git"), "--addr", "127.0.0.1:0")
	if err != nil {
		return err
	}
	at := strings.Index(line, "http://")
	if at < 0 {
		return fmt.Errorf("the Git server does not say where it is: %q", line)
	}
	s.url = strings.TrimRight(strings.Fields(line[at:])[0], "/") + "/web.git"
	if s.metrics, err = freeAddress(); err != nil {
		return err
	}
	if err := s.monitor(ctx); err != nil {
		return err
	}
	if _, err := s.start(ctx, "controller", "tranche", "controller", "--as", account, "--default-service-account=default",
		"--storage-path", filepath.Join(s.dir, "mirrors"), "--file-roots", s.dir, "--file-write-roots", filepath.Dir(s.bare()),
		"--metrics-bind-address", s.metrics, "--metrics-secure=false", "--analysis-config", filepath.Join(s.dir, providersFile)); err != nil {
		return err
	}
	if err := s.connect(); err != nil {
		return err
	}
	return s.seed(ctx)
}

// providersFile has the Prometheus that plans may name, in the folder of the stage.
const providersFile = "providers.yaml"

// monitor starts the traffic of the pods, and a Prometheus that scrapes it. Plans name it
// platform.
func (s *stage) monitor(ctx context.Context) (err error) {
	if s.traffic, err = s.start(ctx, "traffic", "devcluster", "traffic"); err != nil {
		return err
	}
	if s.prometheus, err = s.start(ctx, "prometheus", "devcluster", "prometheus", "--dir", filepath.Join(s.dir, "prometheus"),
		"--scrape", "traffic="+s.traffic+"/metrics", "--scrape", "tranche=http://"+s.metrics+"/metrics"); err != nil {
		return err
	}
	text := fmt.Sprintf("providers:\n- {name: platform, type: prometheus, address: %q}\n", s.prometheus)
	return os.WriteFile(filepath.Join(s.dir, providersFile), []byte(text), 0o644)
}

// freeAddress is an address on which nothing listens at present.
func freeAddress() (string, error) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return "", fmt.Errorf("finding a free port for the metrics: %w", err)
	}
	return l.Addr().String(), l.Close()
}

// connect makes the client that every state is read with.
func (s *stage) connect() error {
	config, err := clientcmd.BuildConfigFromFlags("", s.kubeconfig())
	if err != nil {
		return fmt.Errorf("reading the kubeconfig: %w", err)
	}
	scheme := runtime.NewScheme()
	if err := errors.Join(clientgoscheme.AddToScheme(scheme), v1alpha1.AddToScheme(scheme)); err != nil {
		return err
	}
	s.client, err = client.New(config, client.Options{Scheme: scheme})
	return err
}

// seed makes the first commit, of examples/web, in a clone.
func (s *stage) seed(ctx context.Context) error {
	if _, err := s.output(ctx, s.dir, "git", "clone", "--quiet", s.remote(), s.clone()); err != nil {
		return err
	}
	if err := os.CopyFS(s.clone(), os.DirFS(filepath.Join(s.root, "examples", "web"))); err != nil {
		return fmt.Errorf("copying examples/web: %w", err)
	}
	return nil
}

// start runs a part until the stage is cleared, its output going to a log, and
// returns the first line that it prints.
func (s *stage) start(ctx context.Context, name, program string, args ...string) (string, error) {
	log, err := os.Create(filepath.Join(s.dir, name+".log"))
	if err != nil {
		return "", err
	}
	defer log.Close()
	cmd := exec.Command(s.look(program), args...)
	cmd.Env, cmd.Stderr, cmd.SysProcAttr = s.env, log, partAttributes()
	if name == "dashboard" { // it commits to the clone that it is started in
		cmd.Dir = s.clone()
	}
	stdout, err := cmd.StdoutPipe()
	if err != nil {
		return "", err
	}
	if err := startPart(cmd); err != nil {
		return "", fmt.Errorf("starting %s: %w", program, err)
	}
	s.parts = append(s.parts, cmd)
	if name == "controller" { // it speaks only when there is something to say
		go func() { _, _ = io.Copy(io.Discard, stdout) }()
		return "", nil
	}
	lines := make(chan string, 1)
	go func() {
		r := bufio.NewReader(stdout)
		line, _ := r.ReadString('\n')
		lines <- strings.TrimSpace(line)
		_, _ = io.Copy(io.Discard, r)
	}()
	select {
	case line := <-lines:
		if line == "" {
			return "", fmt.Errorf("%s has ended; its log is %s", program, log.Name())
		}
		return line, nil
	case <-time.After(upWithin):
		return "", fmt.Errorf("%s was not up within %s; its log is %s", program, upWithin, log.Name())
	case <-ctx.Done():
		return "", ctx.Err()
	}
}

// clear stops all parts, the last one started first.
func (s *stage) clear() {
	for i := len(s.parts) - 1; i >= 0; i-- {
		part := s.parts[i]
		_ = part.Process.Signal(syscall.SIGTERM) // it may have ended already
		kill := time.AfterFunc(stopWithin, func() { _ = part.Process.Kill() })
		_ = part.Wait()
		kill.Stop()
	}
}

// output runs a command that is not part of the story.
func (s *stage) output(ctx context.Context, dir, program string, args ...string) (string, error) {
	cmd := exec.CommandContext(ctx, s.look(program), args...)
	cmd.Dir, cmd.Env = dir, s.env
	out, err := cmd.CombinedOutput()
	if err != nil {
		return "", fmt.Errorf("%s %s: %w: %s", program, strings.Join(args, " "), err, out)
	}
	return string(out), nil
}

// look finds our own programs, kubectl among them, before the machine's.
func (s *stage) look(program string) string {
	for _, folder := range s.programs {
		if own := filepath.Join(folder, program); isFile(own) {
			return own
		}
	}
	return program
}

func isFile(path string) bool {
	info, err := os.Stat(path)
	return err == nil && info.Mode().IsRegular()
}

// leave says what there is to try, and waits for ^C.
func (s *stage) leave(ctx context.Context) error {
	if err := s.install(ctx); err != nil {
		return err
	}
	line, err := s.start(ctx, "dashboard", "tranche", "dashboard")
	if err != nil {
		return err
	}
	_, s.dashboard, _ = strings.Cut(line, "is at ")
	fmt.Printf(`
Everything is up; ^C takes it down.

The dashboard: %s

  export KUBECONFIG=%s
  export PATH=%s:$PATH        # kubectl and tranche
  git clone %s

Three commands to try:

  kubectl get batchreleases,deployments,replicasets -n shop
  (cd %s && sed -i s/:v1/:v2/ deployment.yaml && git commit -am "web: v2" && git push)
  kubectl get batchreleases -n shop --watch

The pods serve requests, at %s/metrics.
The tag v2-errors makes them fail. A Prometheus scrapes them, and the controller. Plans
name it as provider platform:

  curl -s %s/api/v1/query --data-urlencode 'query=sum by (pod, code) (rate(http_requests_total[10s]))'

The controller's metrics: http://%s/metrics
`, s.dashboard, s.kubeconfig(), pathOf(s.programs), s.bare(), s.clone(), s.traffic, s.prometheus, s.metrics)
	<-ctx.Done()
	fmt.Println("\nStopping.")
	return nil
}
