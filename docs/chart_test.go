package docs_test

import (
	"io/fs"
	"os"
	"path/filepath"
	"testing"

	"github.com/tranche-dev/tranche/config/chart"
)

// The Helm chart has what config has. A change of config is a change of the chart.
func TestChartIsCurrent(t *testing.T) {
	want, err := chart.Files("../config")
	if err != nil {
		t.Fatal(err)
	}
	const folder = "../config/chart/tranche"
	for name, text := range want {
		got, err := os.ReadFile(filepath.Join(folder, name))
		if err != nil || string(got) != string(text) {
			t.Errorf("config/chart/tranche/%s is not current: run `go run ./config/chart/generate` (%v)", name, err)
		}
	}
	err = fs.WalkDir(os.DirFS(folder), "files", func(name string, d fs.DirEntry, err error) error {
		if err == nil && !d.IsDir() && want[name] == nil {
			t.Errorf("config/chart/tranche/%s is made from nothing: run `go run ./config/chart/generate`", name)
		}
		return err
	})
	if err != nil {
		t.Error(err)
	}
}
