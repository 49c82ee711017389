// Package chart makes the files of the Helm chart that come from others. The templates read copies of
// config. README.md has the comments of values.yaml.
package chart

import (
	"bytes"
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"strings"

	"go.yaml.in/yaml/v3"
)

// copied are the folders of config that the chart has copies of.
var copied = map[string]string{
	"crd/bases": "crd", "rbac": "rbac", "policy": "policy", "cluster-admin": "cluster-admin",
	"dashboard": "dashboard", "monitoring": "monitoring", "tenants": "tenants",
}

// left are files of those folders that the chart does without.
var left = map[string]bool{
	"rbac/service_account.yaml":   true, // its name is a value
	"monitoring/pod_monitor.yaml": true, // the chart has the ServiceMonitor
}

// Files returns the files by their names in the chart, given the folder config of the repository.
func Files(config string) (map[string][]byte, error) {
	files := map[string][]byte{}
	for from, to := range copied {
		entries, err := os.ReadDir(filepath.Join(config, from))
		if err != nil {
			return nil, err
		}
		for _, e := range entries {
			if e.Name() == "kustomization.yaml" && from != "tenants" || left[from+"/"+e.Name()] {
				continue
			}
			text, err := os.ReadFile(filepath.Join(config, from, e.Name()))
			if err != nil {
				return nil, err
			}
			files["files/"+to+"/"+e.Name()] = text
		}
	}
	values, err := os.ReadFile(filepath.Join(config, "chart", "tranche", "values.yaml"))
	if err != nil {
		return nil, err
	}
	intro, err := os.ReadFile(filepath.Join(config, "chart", "readme.md"))
	if err != nil {
		return nil, err
	}
	table, err := tableOf(values)
	if err != nil {
		return nil, fmt.Errorf("values.yaml: %w", err)
	}
	files["files/values.yaml"] = values
	files["README.md"] = bytes.Replace(intro, []byte("<!-- values -->\n"), table, 1)
	return files, nil
}

// tableOf returns the values as a table: key, default and comment.
func tableOf(values []byte) ([]byte, error) {
	var doc yaml.Node
	if err := yaml.Unmarshal(values, &doc); err != nil {
		return nil, err
	}
	rows, err := rowsOf("", doc.Content[0])
	if err != nil {
		return nil, err
	}
	return []byte("| value | default | meaning |\n|---|---|---|\n" + strings.Join(rows, "")), nil
}

// rowsOf returns the rows of a mapping. A key with a comment is a row. One without has
// keys that are.
func rowsOf(prefix string, mapping *yaml.Node) ([]string, error) {
	var rows []string
	for i := 0; i+1 < len(mapping.Content); i += 2 {
		key, value := mapping.Content[i], mapping.Content[i+1]
		name := prefix + key.Value
		if key.HeadComment == "" {
			if value.Kind != yaml.MappingNode || len(value.Content) == 0 {
				return nil, fmt.Errorf("%s has no comment", name)
			}
			below, err := rowsOf(name+".", value)
			if err != nil {
				return nil, err
			}
			rows = append(rows, below...)
			continue
		}
		var v any
		if err := value.Decode(&v); err != nil {
			return nil, fmt.Errorf("%s: %w", name, err)
		}
		text, err := json.Marshal(v)
		if err != nil {
			return nil, fmt.Errorf("%s: %w", name, err)
		}
		rows = append(rows, fmt.Sprintf("| `%s` | `%s` | %s |\n", name, text, meaning(key.HeadComment)))
	}
	return rows, nil
}

// meaning is the comment that stands directly above a key, in one line.
func meaning(comment string) string {
	if at := strings.LastIndex(comment, "\n\n"); at >= 0 {
		comment = comment[at+2:]
	}
	var lines []string
	for line := range strings.Lines(comment) {
		lines = append(lines, strings.TrimSpace(strings.TrimPrefix(strings.TrimSpace(line), "#")))
	}
	return strings.Join(lines, " ")
}
