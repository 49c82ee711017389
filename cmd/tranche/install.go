package main

import (
	"fmt"
	"io/fs"
	"strings"

	"github.com/spf13/cobra"
	"sigs.k8s.io/kustomize/api/krusty"
	"sigs.k8s.io/kustomize/kyaml/filesys"

	"github.com/tranche-dev/tranche/config"
)

func newInstall() *cobra.Command {
	var image string
	c := &cobra.Command{
		Use:   "install",
		Short: "Print the manifests that install this version",
		Long: `Print the manifests that install this version: those of config/default. Nothing is
written to a cluster. --image names the controller's image, of a registry that the cluster
can pull from.`,
		Example: `  tranche install | kubectl apply --server-side -f -
  tranche install --image registry.example.org/tranche:v1.2.3 | kubectl apply --server-side -f -`,
		Args: cobra.NoArgs,
	}
	c.Flags().StringVar(&image, "image", "", "image of the controller, with a tag or a digest (default: that of config/default)")
	c.RunE = func(cmd *cobra.Command, _ []string) error {
		if cmd.Flags().Changed("image") {
			if err := checkImage(image); err != nil {
				return err
			}
		}
		text, err := manifests(image)
		if err != nil {
			return fmt.Errorf("rendering the manifests: %w", err)
		}
		_, err = cmd.OutOrStdout().Write(text)
		return err
	}
	return c
}

// checkImage refuses what names no version of an image.
func checkImage(image string) error {
	name, digest, hasDigest := strings.Cut(image, "@")
	colon := strings.LastIndex(name, ":")
	tagged := colon > strings.LastIndex(name, "/") && colon < len(name)-1
	switch {
	case image == "" || strings.ContainsAny(image, " \t\n") || colon == 0:
		return fmt.Errorf("--image %q: must be REPOSITORY:TAG or REPOSITORY@DIGEST", image)
	case hasDigest && digest == "" || !hasDigest && !tagged:
		return fmt.Errorf("--image %s: the tag or the digest is missing; write %s:v1.2.3, for one", image, strings.TrimRight(name, ":"))
	}
	return nil
}

// withImage is a kustomization of config/default with another image.
func withImage(image string) string {
	name, digest, _ := strings.Cut(image, "@")
	tag := ""
	if colon := strings.LastIndex(name, ":"); colon > strings.LastIndex(name, "/") {
		name, tag = name[:colon], name[colon+1:]
	}
	text := fmt.Sprintf("resources: [../default]\nimages:\n- name: tranche\n  newName: %q\n", name)
	if tag != "" {
		text += fmt.Sprintf("  newTag: %q\n", tag)
	}
	if digest != "" {
		text += fmt.Sprintf("  digest: %q\n", digest)
	}
	return text
}

// manifests renders config/default as kubectl kustomize does; with an image, for the
// controller with that one.
func manifests(image string) ([]byte, error) {
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
	root := "/default"
	if image != "" {
		root = "/image"
		if err := fsys.WriteFile(root+"/kustomization.yaml", []byte(withImage(image))); err != nil {
			return nil, err
		}
	}
	options := krusty.MakeDefaultOptions()
	options.Reorder = krusty.ReorderOptionLegacy // as kubectl does: what others need comes first
	objects, err := krusty.MakeKustomizer(options).Run(fsys, root)
	if err != nil {
		return nil, err
	}
	return objects.AsYaml()
}
