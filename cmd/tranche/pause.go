package main

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"strings"

	"github.com/spf13/cobra"
	"go.yaml.in/yaml/v3"

	"github.com/tranche-dev/tranche/cmd/tranche/clone"
)

func newPause() *cobra.Command {
	return pauseCommand(true, "pause NAME", "Freeze a release where it stands, as a commit",
		`Freeze a release where it stands: commit spec.paused: true to the plan, in the
clone of the source's repository that one stands in. No step begins and no gate
opens until it is resumed. Comments and formatting of the file stay.`)
}

func newResume() *cobra.Command {
	return pauseCommand(false, "resume NAME", "Let a paused release go on, as a commit",
		`Let a paused release go on: commit spec.paused: false to the plan, in the clone of
the source's repository that one stands in. Comments and formatting of the file stay.`)
}

func pauseCommand(paused bool, use, short, long string) *cobra.Command {
	var o steerOptions
	verb, _, _ := strings.Cut(use, " ")
	c := &cobra.Command{Use: use, Short: short, Long: long, Example: "  tranche " + verb + " web -n shop --push", Args: cobra.ExactArgs(1)}
	k := addCluster(c)
	o.add(c, k)
	c.ValidArgsFunction = k.completeNames
	c.RunE = func(cmd *cobra.Command, args []string) error {
		at, err := k.connect()
		if err != nil {
			return err
		}
		st, err := o.newSteering(cmd, at, args[0])
		if err != nil {
			return err
		}
		return st.pause(paused)
	}
	return c
}

// pause commits spec.paused of the plan.
func (st *steering) pause(paused bool) error {
	change := func(ctx context.Context, ch *clone.Change) (string, error) {
		head, err := st.clone.Head(ctx)
		if err != nil {
			return "", err
		}
		set, _, err := st.set(head)
		if err != nil {
			return "", err
		}
		r, err := st.planned(set)
		if err != nil {
			return "", err
		}
		subject := "Pause " + st.release.Name
		if !paused {
			subject = "Resume " + st.release.Name
		}
		if r.Plan.Spec.Paused == paused {
			return subject, nil
		}
		text, err := ch.Read(r.File)
		if err != nil {
			return "", err
		}
		if text, err = setPaused(text, r.Plan.Name, paused); err != nil {
			return "", fmt.Errorf("%s: %w", r.File, err)
		}
		return subject, ch.Write(r.File, text)
	}
	check := func(commit string) error {
		set, _, err := st.set(commit)
		if err != nil {
			return err
		}
		r, err := st.planned(set)
		if err != nil {
			return err
		}
		if r.Plan.Spec.Paused != paused {
			return fmt.Errorf("the plan would still have spec.paused: %t, since something else than %s sets it; nothing was changed", r.Plan.Spec.Paused, r.File)
		}
		return nil
	}
	return st.commit(change, check)
}

// setPaused edits spec.paused of a plan in the text of its file, and nothing
// else of it. Where the file has several plans, it is the one of that name; a
// plan alone may be renamed by kustomize.
func setPaused(text, name string, paused bool) (string, error) {
	plans, err := plansIn(text)
	if err != nil {
		return "", err
	}
	var spec *yaml.Node
	for _, p := range plans {
		if len(plans) == 1 || value(value(p, "metadata"), "name").value() == name {
			spec = value(p, "spec").Node
		}
	}
	if spec == nil || spec.Kind != yaml.MappingNode || len(spec.Content) == 0 {
		return "", fmt.Errorf("there is no BatchRelease %s with a spec in it", name)
	}
	lines := strings.SplitAfter(text, "\n")
	if at := value(node{spec}, "paused").Node; at != nil {
		if at.Kind != yaml.ScalarNode || at.Style&(yaml.LiteralStyle|yaml.FoldedStyle) != 0 || at.Value == "" {
			return "", errors.New("spec.paused is not a plain value; edit it by hand")
		}
		line := &lines[at.Line-1]
		from := column(*line, at.Column)
		rest, ok := strings.CutPrefix((*line)[from:], at.Value)
		if !ok {
			return "", errors.New("spec.paused is not a plain value; edit it by hand")
		}
		*line = (*line)[:from] + fmt.Sprint(paused) + rest
		return strings.Join(lines, ""), nil
	}
	first := spec.Content[0]
	line := &lines[first.Line-1]
	from := column(*line, first.Column)
	if spec.Style&yaml.FlowStyle != 0 {
		*line = (*line)[:from] + fmt.Sprintf("paused: %t, ", paused) + (*line)[from:]
	} else {
		*line = fmt.Sprintf("%spaused: %t\n", strings.Repeat(" ", from), paused) + *line
	}
	return strings.Join(lines, ""), nil
}

// column is where in a line a column of YAML is, which counts characters from 1.
func column(line string, at int) int {
	for i := range line {
		if at--; at == 0 {
			return i
		}
	}
	return len(line)
}

// plansIn are the BatchReleases of a file.
func plansIn(text string) ([]node, error) {
	var plans []node
	for d := yaml.NewDecoder(bytes.NewBufferString(text)); ; {
		var doc yaml.Node
		err := d.Decode(&doc)
		if errors.Is(err, io.EOF) {
			return plans, nil
		}
		if err != nil {
			return nil, fmt.Errorf("reading it as YAML: %w", err)
		}
		if len(doc.Content) == 1 && value(node{doc.Content[0]}, "kind").value() == "BatchRelease" {
			plans = append(plans, node{doc.Content[0]})
		}
	}
}

// node is a node of a document; without one, it has nothing in it.
type node struct{ *yaml.Node }

func (n node) value() string {
	if n.Node == nil {
		return ""
	}
	return n.Value
}

// value is the value of a key of a mapping.
func value(n node, key string) node {
	if n.Node == nil || n.Kind != yaml.MappingNode {
		return node{}
	}
	for i := 0; i+1 < len(n.Content); i += 2 {
		if n.Content[i].Value == key {
			return node{n.Content[i+1]}
		}
	}
	return node{}
}
