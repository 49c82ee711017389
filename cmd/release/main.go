// Command release makes the files of a release of Tranche from binaries that go build has made.
// These are the image, the archives with their checksums, the bills of materials and the manifest
// of the kubectl plugin. The same binaries give the same bytes. The Makefile calls it.
package main

import (
	"fmt"
	"os"
	"path/filepath"
	"time"

	"github.com/google/go-containerregistry/pkg/authn"
	"github.com/google/go-containerregistry/pkg/name"
	"github.com/google/go-containerregistry/pkg/v1/remote"
	"github.com/spf13/cobra"
)

func main() {
	if err := newRoot().Execute(); err != nil {
		fmt.Fprintln(os.Stderr, "release:", err)
		os.Exit(1)
	}
}

func newRoot() *cobra.Command {
	root := &cobra.Command{
		Use: "release", Short: "Make the image and the files of a release", SilenceUsage: true, SilenceErrors: true,
	}
	root.AddCommand(newImageCommand(), newPushCommand(), newFilesCommand(), newChartCommand())
	return root
}

// addBuild adds the flags of a build. The time has to be one of RFC 3339, in seconds, as git log
// --format=%cI prints it.
func addBuild(c *cobra.Command) func() (build, error) {
	var b build
	var at string
	c.Flags().StringVar(&b.version, "version", "dev", "version of the binaries")
	c.Flags().StringVar(&b.revision, "revision", "", "commit of the binaries")
	c.Flags().StringVar(&at, "time", "1970-01-01T00:00:00Z", "time of that commit, as git log --format=%cI prints it")
	return func() (build, error) {
		var err error
		b.time, err = time.Parse(time.RFC3339, at)
		if err != nil {
			return b, fmt.Errorf("flag --time: %w", err)
		}
		b.time = b.time.UTC()
		return b, nil
	}
}

func parseBinaries(files []string) ([]binary, error) {
	list := make([]binary, len(files))
	for i, file := range files {
		var err error
		if list[i], err = parseBinary(file); err != nil {
			return nil, err
		}
	}
	return list, nil
}

func newImageCommand() *cobra.Command {
	var folder string
	c := &cobra.Command{
		Use:   "image --out FOLDER BINARY...",
		Short: "Write the image as an OCI layout, and as a tar archive beside it",
		Args:  cobra.MinimumNArgs(1),
	}
	of := addBuild(c)
	c.Flags().StringVar(&folder, "out", "", "folder of the layout, which is replaced")
	_ = c.MarkFlagRequired("out")
	c.RunE = func(cmd *cobra.Command, args []string) error {
		b, err := of()
		if err != nil {
			return err
		}
		binaries, err := parseBinaries(args)
		if err != nil {
			return err
		}
		index, err := newIndex(b, binaries)
		if err != nil {
			return err
		}
		digest, err := writeImage(folder, b.time, index)
		if err != nil {
			return err
		}
		_, err = fmt.Fprintln(cmd.OutOrStdout(), digest)
		return err
	}
	return c
}

func newPushCommand() *cobra.Command {
	return &cobra.Command{
		Use:   "push LAYOUT IMAGE",
		Short: "Push the image of a layout to a registry, and print its name with digest",
		Long:  "Push the image of a layout to a registry, with the credentials of docker login, and print its name with digest.",
		Args:  cobra.ExactArgs(2),
		RunE: func(cmd *cobra.Command, args []string) error {
			ref, err := name.ParseReference(args[1])
			if err != nil {
				return fmt.Errorf("image %s: %w", args[1], err)
			}
			index, err := readImage(args[0])
			if err != nil {
				return err
			}
			digest, err := index.Digest()
			if err != nil {
				return err
			}
			err = remote.WriteIndex(ref, index, remote.WithAuthFromKeychain(authn.DefaultKeychain), remote.WithContext(cmd.Context()))
			if err != nil {
				return fmt.Errorf("pushing %s: %w", ref, err)
			}
			_, err = fmt.Fprintln(cmd.OutOrStdout(), ref.Context().Digest(digest.String()))
			return err
		},
	}
}

func newFilesCommand() *cobra.Command {
	var folder, address string
	var beside []string
	c := &cobra.Command{
		Use:   "files --out FOLDER --with FILE... BINARY...",
		Short: "Write archives, bills of materials, the plugin's manifest and SHA256SUMS",
		Args:  cobra.MinimumNArgs(1),
	}
	of := addBuild(c)
	c.Flags().StringVar(&folder, "out", "", "folder to write to; SHA256SUMS covers all files in it")
	c.Flags().StringVar(&address, "url", "https://example.org/tranche", "address that the archives are downloaded from")
	c.Flags().StringSliceVar(&beside, "with", nil, "files that are in each archive beside the program")
	_ = c.MarkFlagRequired("out")
	c.RunE = func(_ *cobra.Command, args []string) error {
		b, err := of()
		if err != nil {
			return err
		}
		binaries, err := parseBinaries(args)
		if err != nil {
			return err
		}
		return writeFiles(folder, address, b, binaries, beside)
	}
	return c
}

func writeFiles(folder, address string, b build, binaries []binary, beside []string) error {
	for _, bin := range binaries {
		files, err := archiveOf(bin, beside)
		if err != nil {
			return err
		}
		if err := writeArchive(filepath.Join(folder, archiveName(b, bin)), b.time, files); err != nil {
			return err
		}
		sbom := fmt.Sprintf("tranche-%s-%s-%s.cdx.json", b.version, bin.os, bin.arch)
		if err := writeSBOM(filepath.Join(folder, sbom), b, bin); err != nil {
			return err
		}
	}
	if err := writeKrew(filepath.Join(folder, "tranche.krew.yaml"), b, address, binaries); err != nil {
		return err
	}
	return writeSums(folder)
}
