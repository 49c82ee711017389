package main

import (
	"context"
	"fmt"
	"io"
	"time"

	"github.com/spf13/cobra"

	"github.com/tranche-dev/tranche/cmd/tranche/cli"
)

func newVersion() *cobra.Command {
	var clientOnly bool
	var output string
	c := &cobra.Command{
		Use:   "version",
		Short: "Print the versions of this program and of the controller",
		Long: `Print the versions of this program and, where the cluster can be asked, of the
controller in it. A cluster that does not answer is no error.`,
		Args: cobra.NoArgs,
	}
	k := cli.AddCluster(c)
	c.Flags().BoolVar(&clientOnly, "client", false, "ask no cluster")
	cli.AddOutput(c, &output, cli.OutputTable, cli.OutputJSON, cli.OutputYAML)
	c.RunE = func(cmd *cobra.Command, _ []string) error {
		if err := cli.CheckOutput(output, cli.OutputTable, cli.OutputJSON, cli.OutputYAML); err != nil {
			return err
		}
		v := &versions{Head: cli.NewHead("Version"), Client: cli.VersionString()}
		if !clientOnly {
			ctx, stop := context.WithTimeout(cmd.Context(), 5*time.Second)
			defer stop()
			v.Controller = controllerVersion(ctx, k)
		}
		if output != cli.OutputTable {
			return cli.PrintValue(cmd.OutOrStdout(), output, v)
		}
		_, err := io.WriteString(cmd.OutOrStdout(), v.text())
		return err
	}
	return c
}

// versions is the document that version prints.
type versions struct {
	cli.Head   `json:",inline"`
	Client     string             `json:"client"`
	Controller *versionController `json:"controller,omitempty"`
}

// versionController is the controller in the cluster, or why it is not known.
type versionController struct {
	Version   string `json:"version,omitempty"`
	Image     string `json:"image,omitempty"`
	Namespace string `json:"namespace,omitempty"`
	Name      string `json:"name,omitempty"`
	// Unknown says why the rest is missing.
	Unknown string `json:"unknown,omitempty"`
}

func (v *versions) text() string {
	text := "client:     " + v.Client + "\n"
	switch c := v.Controller; {
	case c == nil:
	case c.Version == "":
		text += "controller: " + c.Unknown + "\n"
	default:
		text += fmt.Sprintf("controller: %s (Deployment %s/%s)\n", c.Version, c.Namespace, c.Name)
	}
	return text
}

// controllerVersion is the tag of the controller's image, or why it is not known.
func controllerVersion(ctx context.Context, k *cli.Cluster) *versionController {
	at, err := k.Connect()
	if err != nil {
		return &versionController{Unknown: "unknown: " + err.Error()}
	}
	list, err := at.Controllers(ctx)
	if err != nil {
		return &versionController{Unknown: "unknown: " + err.Error()}
	}
	for _, d := range list {
		for _, c := range d.Spec.Template.Spec.Containers {
			return &versionController{Version: cli.ImageVersion(c.Image), Image: c.Image, Namespace: d.Namespace, Name: d.Name}
		}
	}
	return &versionController{Unknown: "not installed in this cluster"}
}
