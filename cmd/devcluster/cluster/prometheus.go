package cluster

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"net/http"
	"net/url"
	"os"
	"path"
	"path/filepath"
	"slices"
	"time"
)

// PrometheusOptions say what RunPrometheus brings up.
type PrometheusOptions struct {
	// Program is the binary of Prometheus; empty: the file prometheus beside this binary.
	Program string
	Dir     string // where it keeps its series, its configuration and its log
	Port    int    // of 127.0.0.1; 0: any free one
	// Config is a configuration file as Prometheus reads it; empty: what is below.
	Config   string
	Scrape   map[string]string // by the name of the job: the URL of its metrics
	Interval time.Duration     // between two scrapes
}

// RunPrometheus runs Prometheus until the context is cancelled, and then returns nil. It
// calls ready once, with the URL. It returns an error when Prometheus does not come up or
// ends on its own. No child process is left in any case. A second run on the same
// directory has the series of the first.
func RunPrometheus(ctx context.Context, o PrometheusOptions, ready func(url string)) error {
	c, err := newPrometheus(&o)
	if err != nil {
		return err
	}
	runCtx, fail := context.WithCancelCause(ctx)
	defer fail(nil)
	s := &supervisor{
		env: childEnv(os.Environ()), logs: o.Dir, client: &http.Client{Timeout: 10 * time.Second},
		fail: fail, grace: stopGrace, spawner: newSpawner(),
	}
	defer s.stop()
	port, err := s.start(runCtx, c)
	if err != nil {
		return endOf(ctx, runCtx, err)
	}
	ready(localURL("http", port, ""))
	<-runCtx.Done()
	return endOf(ctx, runCtx, nil)
}

// newPrometheus writes the configuration, and returns the component that reads it.
func newPrometheus(o *PrometheusOptions) (component, error) {
	var err error
	if o.Dir, err = filepath.Abs(o.Dir); err != nil {
		return component{}, fmt.Errorf("resolving %s: %w", o.Dir, err)
	}
	if o.Program == "" {
		executable, err := os.Executable()
		if err != nil {
			return component{}, fmt.Errorf("finding this binary: %w", err)
		}
		o.Program = filepath.Join(filepath.Dir(executable), "prometheus")
	}
	if _, err := os.Stat(o.Program); err != nil {
		return component{}, fmt.Errorf("finding Prometheus: %w; run 'make bin/prometheus' first", err)
	}
	if err := os.MkdirAll(o.Dir, 0o700); err != nil {
		return component{}, fmt.Errorf("making the directory of Prometheus: %w", err)
	}
	if o.Config == "" {
		text, err := prometheusConfig(o.Scrape, o.Interval)
		if err != nil {
			return component{}, err
		}
		o.Config = filepath.Join(o.Dir, "prometheus.yml")
		if err := writeFile(o.Config, text); err != nil {
			return component{}, err
		}
	}
	return component{
		name: "prometheus", program: o.Program, port: o.Port,
		args: func(port int) []string {
			return []string{
				flag("config.file", o.Config),
				flag("storage.tsdb.path", filepath.Join(o.Dir, "data")),
				flag("web.listen-address", fmt.Sprintf("127.0.0.1:%d", port)),
				flag("log.level", "warn"),
			}
		},
		health: func(port int) string { return localURL("http", port, "/-/ready") },
	}, nil
}

// prometheusConfig returns a configuration that scrapes these URLs. JSON is YAML, too.
func prometheusConfig(scrape map[string]string, interval time.Duration) ([]byte, error) {
	if len(scrape) == 0 {
		return nil, errors.New("there is nothing to scrape; give a URL or a configuration file")
	}
	if interval < time.Millisecond || interval%time.Millisecond != 0 {
		return nil, fmt.Errorf("an interval of %s: Prometheus takes whole milliseconds, 1ms or more", interval)
	}
	type object map[string]any
	milliseconds := fmt.Sprintf("%dms", interval.Milliseconds())
	jobs := []object{}
	for _, name := range slices.Sorted(maps.Keys(scrape)) {
		u, err := url.Parse(scrape[name])
		if err != nil || u.Host == "" || u.Scheme != "http" && u.Scheme != "https" {
			return nil, fmt.Errorf("scraping %s: %q is not an HTTP URL", name, scrape[name])
		}
		jobs = append(jobs, object{
			"job_name": name, "scheme": u.Scheme, "metrics_path": path.Join("/", u.Path), "params": u.Query(),
			"honor_labels":   true, // namespace and pod are those that the exporter gives
			"static_configs": []object{{"targets": []string{u.Host}}},
		})
	}
	return json.MarshalIndent(object{
		"global":         object{"scrape_interval": milliseconds, "scrape_timeout": milliseconds},
		"scrape_configs": jobs,
	}, "", "  ")
}
