package sandbox

import (
	"encoding/gob"
	"fmt"
	"io"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/tranche-dev/tranche/plan/manifest"
	"github.com/tranche-dev/tranche/plan/plantest"
)

// A worker asks for what a kustomization names in one message, and not one by one. If there is too
// much for one answer, it asks for the rest. The objects are those of a rendering without a worker.
func TestWorker_AsksAhead(t *testing.T) {
	for _, tc := range []struct {
		reason     string
		size, most int // bytes of a file, messages
	}{
		{"small files", 10, 8},
		{"one large file fills an answer", enoughData + 1, 40},
		{"files of a third of an answer", enoughData / 3, 20},
	} {
		files := map[string]string{
			"apps/web/kustomization.yaml": "resources: [../../base, one.yaml]\npatches: [{path: patch.yaml}]\nconfigMapGenerator:\n" +
				"- {name: c, files: [0.txt, 1.txt, 2.txt, 3.txt, 4.txt, 5.txt, x=6.txt, 7.txt]}\n",
			"apps/web/one.yaml":       "apiVersion: v1\nkind: ConfigMap\nmetadata: {name: one}\n",
			"apps/web/patch.yaml":     "apiVersion: v1\nkind: ConfigMap\nmetadata: {name: one}\ndata: {a: b}\n",
			"base/kustomization.yaml": "resources: [a.yaml, b.yaml]\n",
			"base/a.yaml":             "apiVersion: v1\nkind: ConfigMap\nmetadata: {name: a}\n",
			"base/b.yaml":             "apiVersion: v1\nkind: ConfigMap\nmetadata: {name: b}\n",
		}
		for i := range 8 {
			files[fmt.Sprintf("apps/web/%d.txt", i)] = strings.Repeat("x", tc.size)
		}
		tree := plantest.Tree(t, files)
		want, err := manifest.Render(tree, "apps/web", manifest.RenderOptions{})
		if err != nil || len(want) != 4 {
			t.Fatalf("%d objects: %v", len(want), err)
		}
		toWorkerR, toWorkerW := io.Pipe()
		toPoolR, toPoolW := io.Pipe()
		w := &worker{in: gob.NewDecoder(toWorkerR), out: gob.NewEncoder(toPoolW)}
		ended := make(chan error, 1)
		go func() { ended <- w.render(&job{Dir: "apps/web"}) }()
		in, out, messages := gob.NewDecoder(toPoolR), gob.NewEncoder(toWorkerW), 0
		var m fromWorker
		for m.Result == nil {
			m = fromWorker{}
			if err := in.Decode(&m); err != nil {
				t.Fatal(err)
			}
			if messages++; m.Result == nil {
				if err := out.Encode(toWorker{Answers: answersTo(m.Questions, tree)}); err != nil {
					t.Fatal(err)
				}
			}
		}
		got, err := m.Result.read(nil)
		if diff := cmp.Diff(want, got); diff != "" || err != nil || messages > tc.most {
			t.Errorf("%s: %d messages, at most %d; %v (-want +got):\n%s", tc.reason, messages, tc.most, err, diff)
		}
		if err := <-ended; err != nil {
			t.Error(err)
		}
	}
}

// A worker that asks for a million paths at once, or for large folders, gets few answers in a message.
func TestAnswersTo_IsBounded(t *testing.T) {
	tree := plantest.Tree(t, map[string]string{"a.yaml": "a", "large": strings.Repeat("x", enoughData+1)})
	ask := func(n int, q question) int { return len(answersTo(slices.Repeat([]question{q}, n), tree)) }
	for q, want := range map[question]int{
		{exists, "a.yaml"}:  mostAnswers,
		{readFile, "large"}: 1,
		{readDir, "."}:      1,
		{readDir, "none"}:   mostAnswers,
	} {
		if got := ask(1e6, q); got != want {
			t.Errorf("%v: %d answers, want %d", q, got, want)
		}
		if got := ask(1, q); got != 1 {
			t.Errorf("%v: %d answers to one question", q, got)
		}
	}
}
