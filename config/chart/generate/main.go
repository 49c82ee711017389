// Command generate writes those files of the Helm chart that are made from others.
package main

import (
	"fmt"
	"os"
	"path/filepath"

	"github.com/tranche-dev/tranche/config/chart"
)

func main() {
	if err := generate("config"); err != nil {
		fmt.Fprintln(os.Stderr, "generate:", err)
		os.Exit(1)
	}
}

// generate writes the files, given the folder config of the repository.
func generate(config string) error {
	files, err := chart.Files(config)
	if err != nil {
		return err
	}
	folder := filepath.Join(config, "chart", "tranche")
	if err := os.RemoveAll(filepath.Join(folder, "files")); err != nil {
		return err
	}
	for name, text := range files {
		path := filepath.Join(folder, name)
		if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
			return err
		}
		if err := os.WriteFile(path, text, 0o644); err != nil {
			return err
		}
	}
	return nil
}
