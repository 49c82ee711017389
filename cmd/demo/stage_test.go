package main

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	neturl "net/url"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/spf13/cobra"
	"sigs.k8s.io/yaml"

	"github.com/tranche-dev/tranche/cmd/tranche/clone"
	"github.com/tranche-dev/tranche/cmd/tranche/controller"
	"github.com/tranche-dev/tranche/cmd/tranche/dashboard"
	"github.com/tranche-dev/tranche/plan/v1alpha1"
	"github.com/tranche-dev/tranche/rollout/clustertest"
)

// TestMain makes the test binary the program tranche, where it is called by that name or
// renders for it. As that it runs the controller.
func TestMain(m *testing.M) {
	if filepath.Base(os.Args[0]) == "tranche" || len(os.Args) > 1 && os.Args[1] == controller.RenderWorker {
		root := &cobra.Command{Use: "tranche"}
		root.AddCommand(controller.New(), controller.NewRenderWorker(), dashboard.New())
		if root.Execute() != nil {
			os.Exit(1)
		}
		return
	}
	os.Exit(m.Run())
}

// linkPrograms lays out a folder as the repository is, whose program tranche is this one.
func linkPrograms(t *testing.T, dir string) {
	t.Helper()
	root, err := filepath.Abs(filepath.Join("..", ".."))
	if err != nil {
		t.Fatal(err)
	}
	for name, to := range map[string]string{
		"config": filepath.Join(root, "config"), "examples": filepath.Join(root, "examples"), "bin/tranche": os.Args[0],
		"bin/devcluster": filepath.Join(root, "bin", "devcluster"), "bin/kubectl": filepath.Join(root, "bin", "kubectl"),
		"bin/prometheus": filepath.Join(root, "bin", "prometheus"),
	} {
		name = filepath.Join(dir, name)
		if err := errors.Join(os.MkdirAll(filepath.Dir(name), 0o755), os.Symlink(to, name)); err != nil {
			t.Fatal(err)
		}
	}
}

// `make dev` serves the controller's metrics at the address that it prints,
// with those of the release that it has made. Nothing of it is left after ^C.
func TestStay_ServesMetrics(t *testing.T) {
	dir := t.TempDir()
	linkPrograms(t, dir)
	t.Setenv("TMPDIR", t.TempDir())
	r, w, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	stdout := os.Stdout
	os.Stdout = w
	defer func() { os.Stdout = stdout }()
	ctx, stop := context.WithCancel(t.Context())
	defer stop()
	ended := make(chan error, 1)
	go func() { ended <- errors.Join(run(ctx, filepath.Join(dir, "bin"), "", true), w.Close()) }()

	url, page, prometheus, printed := addresses(r)
	if url == "" {
		t.Fatalf("it names no address of metrics: %v\n%s", <-ended, printed)
	}
	isDashboard(t, page)
	go func() { _, _ = io.Copy(io.Discard, r) }() // what it prints from now on
	const want = `tranche_release_condition{condition="Ready",namespace="shop",release="web",status="True"} 1`
	clustertest.Wait(t, "the metrics of the release", func() error {
		if code, text := get(t, url); code != http.StatusOK || !strings.Contains(text, want) {
			return fmt.Errorf("%s: %d, without %s:\n%s", url, code, want, text)
		}
		return nil
	})
	scraped(t, prometheus, want)
	stop()
	if err := <-ended; err != nil {
		t.Error(err)
	}
	if code, _ := get(t, url); code != 0 {
		t.Errorf("%s: %d, though it has ended", url, code)
	}
	if left, err := os.ReadDir(os.TempDir()); err != nil || len(left) > 0 {
		t.Errorf("%v is left: %v", left, err)
	}
}

// scraped waits until Prometheus has the traffic of ten pods, 50 requests a second each,
// and the same metric of the controller.
func scraped(t *testing.T, prometheus, metric string) {
	t.Helper()
	for _, query := range []string{
		`sum(rate(http_requests_total{namespace="shop"}[5s])) > 400 < 600`,
		"sum(" + strings.TrimSuffix(metric, " 1") + ") == 1",
	} {
		clustertest.Wait(t, query, func() error {
			address := prometheus + "?query=" + neturl.QueryEscape(query)
			if code, text := get(t, address); code != http.StatusOK || !strings.Contains(text, `"value"`) {
				return fmt.Errorf("%s: %d: %s", address, code, text)
			}
			return nil
		})
	}
}

// addresses reads what is printed until the address of the metrics. It returns that one, the
// dashboard's, and that of Prometheus.
func addresses(r io.Reader) (metrics, dashboard, prometheus, printed string) {
	for lines := bufio.NewScanner(r); metrics == "" && lines.Scan(); {
		line := lines.Text()
		printed += line + "\n"
		if _, at, ok := strings.Cut(line, "metrics: "); ok {
			metrics = at
		}
		if _, at, ok := strings.Cut(line, "The dashboard: "); ok {
			dashboard = at
		}
		if _, at, ok := strings.Cut(line, "curl -s "); ok {
			prometheus, _, _ = strings.Cut(at, " ")
		}
	}
	return metrics, dashboard, prometheus, printed
}

// isDashboard fails unless an address answers with the page of the dashboard.
func isDashboard(t *testing.T, url string) {
	t.Helper()
	if code, text := get(t, url); code != http.StatusOK || !strings.Contains(text, "<title>Tranche") {
		t.Errorf("the dashboard at %q: %d: %s", url, code, text)
	}
}

// get returns what an address answers; 0: nothing.
func get(t *testing.T, url string) (int, string) {
	t.Helper()
	ctx, stop := context.WithTimeout(t.Context(), 30*time.Second)
	defer stop()
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, url, http.NoBody)
	if err != nil {
		t.Fatal(err)
	}
	res, err := http.DefaultClient.Do(req)
	if err != nil {
		return 0, err.Error()
	}
	defer res.Body.Close()
	text, err := io.ReadAll(res.Body)
	if err != nil {
		t.Fatal(err)
	}
	return res.StatusCode, string(text)
}

// The commands that commit, `tranche approve` among them, accept the clone that
// `make dev` leaves to the user.
func TestStay_CloneIsOfTheSource(t *testing.T) {
	s := newStage([]string{t.TempDir()}, filepath.Join("..", ".."), t.TempDir())
	s.stay, s.url = true, "http://127.0.0.1:1/web.git"
	if _, err := s.output(t.Context(), s.dir, "git", "init", "--quiet", "--bare", "--initial-branch=main", s.bare()); err != nil {
		t.Fatal(err)
	}
	if err := s.seed(t.Context()); err != nil {
		t.Fatal(err)
	}
	var gs v1alpha1.GitSource
	if err := yaml.Unmarshal(fmt.Appendf(nil, source, s.followed()), &gs); err != nil {
		t.Fatal(err)
	}
	c, err := clone.Find(t.Context(), s.clone(), gs.Spec.URL)
	if err != nil {
		t.Fatal(err)
	}
	if c.Remote != "origin" {
		t.Errorf("the remote of the source is %q", c.Remote)
	}
}
