package main

import (
	"encoding/json"
	"fmt"
	"os"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/prometheus/common/model"
	"github.com/prometheus/prometheus/promql/parser"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/labels"
	"sigs.k8s.io/yaml"
)

// Every expression of the alert rules and the dashboard is PromQL, and asks for
// metrics that docs/metrics.md explains.
func TestMonitoring(t *testing.T) {
	documented := documentedMetrics(t)
	variables := strings.NewReplacer("$namespace", "shop", "$release", "web")
	expressions := append(alertExpressions(t), dashboardExpressions(t)...)
	if len(expressions) < 20 {
		t.Errorf("only %d expressions", len(expressions))
	}
	for _, text := range expressions {
		expr, err := parser.NewParser(parser.Options{}).ParseExpr(variables.Replace(text))
		if err != nil {
			t.Errorf("%s: %v", text, err)
			continue
		}
		for _, selectors := range parser.ExtractSelectors(expr) {
			for _, m := range selectors {
				name := strings.TrimSuffix(strings.TrimSuffix(m.Value, "_bucket"), "_count")
				if m.Name == model.MetricNameLabel && strings.HasPrefix(name, "tranche_") && !slices.Contains(documented, name) {
					t.Errorf("%s: docs/metrics.md has no %s", text, name)
				}
			}
		}
	}
}

// documentedMetrics are the names in docs/metrics.md.
func documentedMetrics(t *testing.T) []string {
	t.Helper()
	text, err := os.ReadFile("../../docs/metrics.md")
	if err != nil {
		t.Fatal(err)
	}
	return regexp.MustCompile(`tranche_[a-z_]+`).FindAllString(string(text), -1)
}

func alertExpressions(t *testing.T) []string {
	t.Helper()
	var file struct {
		Spec struct {
			Groups []struct {
				Rules []struct {
					Alert, Record, Expr string
					Labels, Annotations map[string]string
				}
			}
		}
	}
	text, err := os.ReadFile("../../config/monitoring/alerts.yaml")
	if err != nil {
		t.Fatal(err)
	}
	if err := yaml.Unmarshal(text, &file); err != nil {
		t.Fatal(err)
	}
	var expressions []string
	for _, group := range file.Spec.Groups {
		for _, rule := range group.Rules {
			if rule.Record == "" && (rule.Alert == "" || rule.Labels["severity"] == "" || rule.Annotations["summary"] == "") {
				t.Errorf("rule %+v lacks its name, severity or summary", rule)
			}
			expressions = append(expressions, rule.Expr)
		}
	}
	return expressions
}

func dashboardExpressions(t *testing.T) []string {
	t.Helper()
	var dashboard struct {
		Panels []struct {
			Title   string
			Targets []struct{ Expr string }
		}
	}
	text, err := os.ReadFile("../../config/monitoring/dashboard.json")
	if err != nil {
		t.Fatal(err)
	}
	if err := json.Unmarshal(text, &dashboard); err != nil {
		t.Fatal(err)
	}
	var expressions []string
	for _, panel := range dashboard.Panels {
		if len(panel.Targets) == 0 {
			t.Errorf("panel %q asks for nothing", panel.Title)
		}
		for _, target := range panel.Targets {
			expressions = append(expressions, target.Expr)
		}
	}
	return expressions
}

// The Prometheus operator is asked to scrape a port that the controller has, and to leave
// the labels of the metrics alone.
func TestMonitors(t *testing.T) {
	type endpoint struct {
		Port, Scheme string
		HonorLabels  bool
	}
	for file, kind := range map[string]string{"service_monitor.yaml": "ServiceMonitor", "pod_monitor.yaml": "PodMonitor"} {
		var monitor struct {
			Kind string
			Spec struct {
				Selector                       struct{ MatchLabels map[string]string }
				Endpoints, PodMetricsEndpoints []endpoint
			}
		}
		text, err := os.ReadFile("../../config/monitoring/" + file)
		if err != nil {
			t.Fatal(err)
		}
		if err := yaml.Unmarshal(text, &monitor); err != nil {
			t.Fatal(err)
		}
		endpoints := append(monitor.Spec.Endpoints, monitor.Spec.PodMetricsEndpoints...)
		if monitor.Kind != kind || monitor.Spec.Selector.MatchLabels["app.kubernetes.io/name"] != "tranche" || len(endpoints) != 1 {
			t.Errorf("%s: %+v", file, monitor)
			continue
		}
		if e := endpoints[0]; e.Port != "metrics" || e.Scheme != "https" || !e.HonorLabels {
			t.Errorf("%s: %+v", file, e)
		}
	}
	findsMetrics(t)
}

// installed returns the Deployment and the Services of tranche install.
func installed(t *testing.T) (d appsv1.Deployment, services []corev1.Service) {
	t.Helper()
	text, err := manifests("", "")
	if err != nil {
		t.Fatal(err)
	}
	for doc := range strings.SplitSeq(string(text), "\n---\n") {
		var s corev1.Service
		switch {
		case strings.Contains(doc, "\nkind: Service\n"):
			err = yaml.Unmarshal([]byte(doc), &s)
			services = append(services, s)
		case strings.Contains(doc, "\nkind: Deployment\n"):
			err = yaml.Unmarshal([]byte(doc), &d)
		}
		if err != nil {
			t.Fatal(err)
		}
	}
	return d, services
}

// findsMetrics fails unless the labels and the port of the monitors lead to the address
// that the controller of an installation serves metrics at.
func findsMetrics(t *testing.T) {
	t.Helper()
	d, services := installed(t)
	pod := d.Spec.Template
	served := ""
	for _, p := range pod.Spec.Containers[0].Ports {
		if p.Name == "metrics" {
			served = fmt.Sprintf("--metrics-bind-address=:%d", p.ContainerPort)
		}
	}
	if !slices.Contains(pod.Spec.Containers[0].Args, served) || pod.Labels["app.kubernetes.io/name"] != "tranche" {
		t.Errorf("a PodMonitor finds no metrics: port %q of %v, labels %v", served, pod.Spec.Containers[0].Args, pod.Labels)
	}
	found := 0
	for _, s := range services {
		for _, p := range s.Spec.Ports {
			selects := labels.SelectorFromSet(s.Spec.Selector).Matches(labels.Set(pod.Labels))
			if p.Name == "metrics" && p.TargetPort.String() == "metrics" && s.Labels["app.kubernetes.io/name"] == "tranche" &&
				s.Namespace == d.Namespace && selects {
				found++
			}
		}
	}
	if found != 1 {
		t.Errorf("a ServiceMonitor finds metrics at %d Services", found)
	}
}
