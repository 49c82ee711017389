package main

import (
	"bytes"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"strings"

	"github.com/spf13/cobra"
)

func newChartCommand() *cobra.Command {
	var folder, source, image string
	c := &cobra.Command{
		Use:   "chart --out FOLDER --image IMAGE",
		Short: "Write the package of the Helm chart",
		Args:  cobra.NoArgs,
	}
	of := addBuild(c)
	c.Flags().StringVar(&folder, "out", "", "folder to write to")
	c.Flags().StringVar(&source, "chart", "config/chart/tranche", "folder of the chart")
	c.Flags().StringVar(&image, "image", "tranche", "image of the program without a tag: the default of the value image.repository")
	_ = c.MarkFlagRequired("out")
	c.RunE = func(cmd *cobra.Command, _ []string) error {
		b, err := of()
		if err != nil {
			return err
		}
		files, err := chartFiles(source, image, b)
		if err != nil {
			return fmt.Errorf("chart %s: %w", source, err)
		}
		file := filepath.Join(folder, "tranche-"+chartVersion(b)+".tgz")
		if err := writeArchive(file, b.time, files); err != nil {
			return err
		}
		_, err = fmt.Fprintln(cmd.OutOrStdout(), file)
		return err
	}
	return c
}

// chartVersion is the semantic version of a package. Its users write it without a v. A version that is none of a
// release gets 0.0.0-g before it: a commit may look like a number.
func chartVersion(b build) string {
	if krewVersion.MatchString(b.version) {
		return strings.TrimPrefix(b.version, "v")
	}
	return "0.0.0-g" + regexp.MustCompile(`[^0-9A-Za-z-]`).ReplaceAllString(b.version, "-")
}

// chartFiles returns the files of a chart in the order of their names, with version and image of a
// release.
func chartFiles(source, image string, b build) ([]entry, error) {
	var files []entry
	err := fs.WalkDir(os.DirFS(source), ".", func(name string, d fs.DirEntry, err error) error {
		if err != nil || d.IsDir() || name == ".helmignore" {
			return err
		}
		content, err := os.ReadFile(filepath.Join(source, name))
		if err != nil {
			return err
		}
		if content, err = released(name, content, image, b); err != nil {
			return fmt.Errorf("%s: %w", name, err)
		}
		files = append(files, entry{"tranche/" + name, content, 0o644})
		return nil
	})
	if err == nil && len(files) == 0 {
		err = errors.New("there are no files")
	}
	return files, err
}

// released puts version and image of a release into a file that names them.
func released(name string, content []byte, image string, b build) ([]byte, error) {
	var pairs []string
	switch name {
	case "Chart.yaml":
		pairs = []string{
			"\nversion: 0.0.0-dev\n", "\nversion: " + chartVersion(b) + "\n",
			"\nappVersion: dev\n", fmt.Sprintf("\nappVersion: %q\n", b.version),
			"image: tranche:dev\n", "image: " + image + ":" + b.version + "\n",
			"artifacthub.io/prerelease: \"true\"", fmt.Sprintf("artifacthub.io/prerelease: %q", fmt.Sprint(strings.Contains(chartVersion(b), "-"))),
		}
	case "values.yaml", "files/values.yaml":
		pairs = []string{"\n  repository: tranche\n", "\n  repository: " + image + "\n"}
	case "README.md":
		pairs = []string{"| `image.repository` | `\"tranche\"` |", fmt.Sprintf("| `image.repository` | `%q` |", image)}
	}
	for i := 0; i < len(pairs); i += 2 {
		if n := bytes.Count(content, []byte(pairs[i])); n != 1 {
			return nil, fmt.Errorf("%q is there %d times, not once", pairs[i], n)
		}
		content = bytes.Replace(content, []byte(pairs[i]), []byte(pairs[i+1]), 1)
	}
	return content, nil
}
