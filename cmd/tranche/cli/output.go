package cli

import (
	"encoding/json"
	"fmt"
	"io"
	"strconv"
	"strings"
	"time"

	"github.com/spf13/cobra"
	"sigs.k8s.io/yaml"
)

// documentVersion is the apiVersion of what commands print as JSON or YAML and is no
// object of the cluster. A field keeps its name and meaning within a version;
// docs/output.md has all of them.
const documentVersion = "cli.tranche.dev/v1alpha1"

// Head is the head of such a document.
type Head struct {
	APIVersion string `json:"apiVersion"`
	Kind       string `json:"kind"`
}

func NewHead(kind string) Head { return Head{documentVersion, kind} }

// AddOutput gives a command the flag -o. The formats begin with the default one.
func AddOutput(c *cobra.Command, output *string, formats ...string) {
	c.Flags().StringVarP(output, "output", "o", formats[0], "output format: "+strings.Join(formats, ", "))
	err := c.RegisterFlagCompletionFunc("output", cobra.FixedCompletions(formats, cobra.ShellCompDirectiveNoFileComp))
	if err != nil {
		panic(err) // the flag is defined one line above
	}
}

func CheckOutput(output string, formats ...string) error {
	for _, f := range formats {
		if output == f {
			return nil
		}
	}
	return fmt.Errorf("--output %s: must be one of %s", output, strings.Join(formats, ", "))
}

// PrintValue writes a value as one document of JSON or YAML.
func PrintValue(w io.Writer, output string, v any) error {
	if output == OutputJSON {
		e := json.NewEncoder(w)
		e.SetEscapeHTML(false)
		e.SetIndent("", "    ") // as kubectl
		if err := e.Encode(v); err != nil {
			return fmt.Errorf("printing: %w", err)
		}
		return nil
	}
	text, err := yaml.Marshal(v)
	if err != nil {
		return fmt.Errorf("printing: %w", err)
	}
	_, err = w.Write(text)
	return err
}

// The formats that commands have in common.
const (
	OutputTable = "table"
	OutputJSON  = "json"
	OutputYAML  = "yaml"
	OutputWide  = "wide"
	OutputName  = "name"

	OutputMarkdown = "markdown"
)

// ParseSince reads --since: how long ago, a day or a time. Empty is the beginning.
func ParseSince(text string, now time.Time) (time.Time, error) {
	if text == "" {
		return time.Time{}, nil
	}
	if days, ok := strings.CutSuffix(text, "d"); ok {
		if n, err := strconv.ParseUint(days, 10, 16); err == nil {
			return now.Add(-24 * time.Hour * time.Duration(n)), nil
		}
	}
	if d, err := time.ParseDuration(text); err == nil && d >= 0 {
		return now.Add(-d), nil
	}
	if t, err := time.Parse(time.RFC3339, text); err == nil {
		return t, nil
	}
	if t, err := time.Parse(time.DateOnly, text); err == nil {
		return t, nil
	}
	return time.Time{}, fmt.Errorf("--since %s: must be how long ago, such as 90m or 7d, a day, such as 2026-07-01, or a time, such as "+
		"2026-07-01T12:00:00Z", text)
}
