package main

import (
	"cmp"
	"fmt"
	"io/fs"
	"slices"
	"strings"

	"github.com/spf13/cobra"
	"sigs.k8s.io/kustomize/api/krusty"
	"sigs.k8s.io/kustomize/kyaml/filesys"

	"github.com/tranche-dev/tranche/config"
)

func newInstall() *cobra.Command {
	var image, with string
	c := &cobra.Command{
		Use:   "install",
		Short: "Print the manifests that install this version",
		Long: `Print the manifests that install this version: those of config/default. Nothing is
written to a cluster. --image names the controller's image, of a registry that the cluster
can pull from.

A GitSource is applied with the rights of an account in its own namespace. --with tenants
adds limits for a cluster with several tenants. --with cluster-admin applies a
GitSource that names no account with all rights. It is for a cluster where every user who
may write a GitSource in any namespace is cluster-admin already.`,
		Example: `  tranche install | kubectl apply --server-side -f -
  tranche install --image registry.example.org/tranche:v1.2.3 | kubectl apply --server-side -f -`,
		Args: cobra.NoArgs,
	}
	c.Flags().StringVar(&image, "image", "", "image of the controller, with a tag or a digest (default: that of config/default)")
	f := c.Flags()
	f.StringVar(&with, "with", "", "what to install beyond config/default: "+strings.Join(variants, " or "))
	if err := c.RegisterFlagCompletionFunc("with", cobra.FixedCompletions(variants, cobra.ShellCompDirectiveNoFileComp)); err != nil {
		panic(err) // the flag is defined one line above
	}
	c.RunE = func(cmd *cobra.Command, _ []string) error {
		if cmd.Flags().Changed("image") {
			if err := checkImage(image); err != nil {
				return err
			}
		}
		if with != "" && !slices.Contains(variants, with) {
			return fmt.Errorf("--with %s: must be %s", with, strings.Join(variants, " or "))
		}
		text, err := manifests(image, with)
		if err != nil {
			return fmt.Errorf("rendering the manifests: %w", err)
		}
		_, err = cmd.OutOrStdout().Write(text)
		return err
	}
	return c
}

// variants are the folders of config that install more than config/default.
var variants = []string{"cluster-admin", "tenants"}

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

// withImage is a kustomization of a folder of config with another image.
func withImage(folder, image string) string {
	name, digest, _ := strings.Cut(image, "@")
	tag := ""
	if colon := strings.LastIndex(name, ":"); colon > strings.LastIndex(name, "/") {
		name, tag = name[:colon], name[colon+1:]
	}
	text := fmt.Sprintf("resources: [..%s]\nimages:\n- name: tranche\n  newName: %q\n", folder, name)
	if tag != "" {
		text += fmt.Sprintf("  newTag: %q\n", tag)
	}
	if digest != "" {
		text += fmt.Sprintf("  digest: %q\n", digest)
	}
	return text
}

// manifests renders config/default, or the variant where one is named, as kubectl
// kustomize does; with an image, for the controller with that one.
func manifests(image, variant string) ([]byte, error) {
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
	root := "/" + cmp.Or(variant, "default")
	if image != "" {
		text := withImage(root, image)
		root = "/image"
		if err := fsys.WriteFile(root+"/kustomization.yaml", []byte(text)); err != nil {
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
