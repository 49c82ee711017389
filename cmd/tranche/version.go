package main

import (
	"context"
	"fmt"
	"strings"
	"time"

	"github.com/spf13/cobra"
	appsv1 "k8s.io/api/apps/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

func newVersion() *cobra.Command {
	var clientOnly bool
	c := &cobra.Command{
		Use:   "version",
		Short: "Print the versions of this program and of the controller",
		Long: `Print the versions of this program and, where the cluster can be asked, of the
controller in it. A cluster that does not answer is no error.`,
		Args: cobra.NoArgs,
	}
	k := addCluster(c)
	c.Flags().BoolVar(&clientOnly, "client", false, "ask no cluster")
	c.RunE = func(cmd *cobra.Command, _ []string) error {
		if _, err := fmt.Fprintln(cmd.OutOrStdout(), "client:     "+versionString()); err != nil || clientOnly {
			return err
		}
		ctx, stop := context.WithTimeout(cmd.Context(), 5*time.Second)
		defer stop()
		_, err := fmt.Fprintln(cmd.OutOrStdout(), "controller: "+controllerVersion(ctx, k))
		return err
	}
	return c
}

// controllerVersion is the tag of the controller's image, or why it is not known.
func controllerVersion(ctx context.Context, k *cluster) string {
	at, err := k.connect()
	if err != nil {
		return "unknown: " + err.Error()
	}
	var list appsv1.DeploymentList
	if err := at.List(ctx, &list, client.MatchingLabels{"app.kubernetes.io/name": "tranche"}); err != nil {
		return "unknown: " + err.Error()
	}
	for _, d := range list.Items {
		for _, container := range d.Spec.Template.Spec.Containers {
			image := container.Image
			return fmt.Sprintf("%s (Deployment %s/%s)", image[strings.LastIndexAny(image, ":@")+1:], d.Namespace, d.Name)
		}
	}
	return "not installed in this cluster"
}
