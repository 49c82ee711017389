package revert

import "testing"

// A result may differ from the tip in what the release had touched, and in
// nothing else.
func TestKept(t *testing.T) {
	object := func(image string, replicas int64, label string) map[string]any {
		return map[string]any{"Deployment web": map[string]any{"spec": map[string]any{"image": image, "replicas": replicas},
			"labels": map[string]any{"team": label}}}
	}
	pairs := [][2]any{{object("v1", 1, "a"), object("v2", 1, "a")}}
	for _, c := range []struct {
		because     string
		tip, result map[string]any
		want        string
	}{
		{"only the image goes back", object("v2", 5, "b"), object("v1", 5, "b"), ""},
		{"the replicas were not the release's", object("v2", 5, "b"), object("v1", 1, "b"), "Deployment web: spec.replicas"},
		{"nor was the label", object("v2", 5, "b"), object("v1", 5, "a"), "Deployment web: labels"},
		{"nor another object", object("v2", 5, "b"),
			map[string]any{"Deployment web": object("v1", 5, "b")["Deployment web"], "Service web": map[string]any{}}, "Service web"},
	} {
		if got := kept(nil, pairs, c.tip, c.result); got != c.want {
			t.Errorf("%s: %q, want %q", c.because, got, c.want)
		}
	}
}
