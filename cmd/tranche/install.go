package main

import (
	"fmt"
	"io/fs"

	"github.com/spf13/cobra"
	"sigs.k8s.io/kustomize/api/krusty"
	"sigs.k8s.io/kustomize/kyaml/filesys"

	"github.com/tranche-dev/tranche/config"
)

func newInstall() *cobra.Command {
	return &cobra.Command{
		Use:   "install",
		Short: "Print the manifests that install this version",
		Long: `Print the manifests that install this version: those of config/default. Nothing is
written to a cluster.`,
		Example: "  tranche install | kubectl apply --server-side -f -",
		Args:    cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			text, err := manifests()
			if err != nil {
				return fmt.Errorf("rendering the manifests: %w", err)
			}
			_, err = cmd.OutOrStdout().Write(text)
			return err
		},
	}
}

// manifests renders config/default as kubectl kustomize does.
func manifests() ([]byte, error) {
	fsys := filesys.MakeFsInMemory()
	err := fs.WalkDir(config.Files, ".", func(path string, d fs.DirEntry, err error) error {
		if err != nil || d.IsDir() {
			return err
		}
		text, err := config.Files.ReadFile(path)
		if err != nil {
			return err
		}
		return fsys.WriteFile("/"+path, text)
	})
	if err != nil {
		return nil, err
	}
	options := krusty.MakeDefaultOptions()
	options.Reorder = krusty.ReorderOptionLegacy // as kubectl does: what others need comes first
	objects, err := krusty.MakeKustomizer(options).Run(fsys, "/default")
	if err != nil {
		return nil, err
	}
	return objects.AsYaml()
}
