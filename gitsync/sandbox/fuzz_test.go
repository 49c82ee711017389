package sandbox

import (
	"bytes"
	"encoding/gob"
	"io"
	"testing"

	"github.com/tranche-dev/tranche/plan"
	"github.com/tranche-dev/tranche/plan/manifest"
	"github.com/tranche-dev/tranche/plan/plantest"
)

// said is what a worker writes.
func said(f *testing.F, messages ...fromWorker) []byte {
	f.Helper()
	var b bytes.Buffer
	e := gob.NewEncoder(&b)
	for _, m := range messages {
		if err := e.Encode(m); err != nil {
			f.Fatal(err)
		}
	}
	return b.Bytes()
}

// FuzzWorker: whatever a worker writes, the pool ends with objects or with an error. The
// objects are no more than a commit may bring: plan.Collect refuses the rest.
func FuzzWorker(f *testing.F) {
	const configMap = `{"apiVersion":"v1","kind":"ConfigMap","metadata":{"name":"a"}}`
	f.Add(said(f, fromWorker{Questions: []question{{readFile, "a.yaml"}}}, fromWorker{
		Result: &result{Objects: []object{{"a.yaml", []byte(configMap)}}},
	}))
	f.Add(said(f, fromWorker{Questions: []question{{readDir, "../../etc"}}}, fromWorker{Questions: []question{{99, "/"}}}, fromWorker{}))
	f.Add(said(f, fromWorker{
		Result: &result{Objects: []object{{"", []byte("null")}, {"a", []byte("[]")}, {"b", []byte(`{"metadata":[],"kind":1}`)}}},
	}))
	f.Add(said(f, fromWorker{Result: &result{Listed: true}}))
	f.Add(said(f, fromWorker{
		Result: &result{
			Listed: true, Faults: []fault{{Text: "x"}, {Problem: true, Retry: true}},
			Ignored: []fault{{Absent: true, Submodule: true}},
		},
	}))
	f.Add(said(f, fromWorker{Hello: &hello{"x"}, Questions: []question{{storageErr, ""}}}))
	tree := plantest.Tree(f, map[string]string{"a.yaml": configMap})
	f.Fuzz(func(t *testing.T, written []byte) {
		bounded := &io.LimitedReader{R: bytes.NewReader(written), N: maxOutput}
		s := &process{in: gob.NewDecoder(bounded), out: gob.NewEncoder(io.Discard), bounded: bounded}
		r, err := s.converse(tree, job{Dir: "."})
		if err != nil {
			return
		}
		objects, err := r.read(func(p *plan.Problem) {
			if p == nil || p.Error() == "" && p.Reason == "" {
				t.Errorf("it ignores %+v", p)
			}
		})
		if err != nil {
			if len(objects) > 0 {
				t.Errorf("%d objects beside %v", len(objects), err)
			}
			return
		}
		for _, o := range objects {
			if o.Unstructured == nil {
				t.Fatalf("no object: %+v", o)
			}
		}
		_, _ = plan.Collect(objects, plan.CollectOptions{Namespace: "shop", Namespaced: manifest.Namespaced})
	})
}

// FuzzRender: whatever the files of a folder say, a rendering comes through the wire as
// it was. It is the objects, or an error in the same words.
func FuzzRender(f *testing.F) {
	f.Add("resources: [a.yaml]\n", "apiVersion: v1\nkind: ConfigMap\nmetadata: {name: a}\n")
	f.Add("resources: [a.yaml]\npatches: [{patch: \"[{op: remove, path: /data}]\"}]\n",
		"apiVersion: v1\nkind: Secret\nmetadata: {name: a}\nstringData: {n: 9007199254740993}\n")
	f.Add("generators: [a.yaml]\n", "apiVersion: builtin\nkind: ConfigMapGenerator\nmetadata: {name: a}\nliterals: [a=b]\n")
	f.Add("generators: [a.yaml]\n", "- a\n")
	f.Add("", "- [\n---\n")
	f.Fuzz(func(t *testing.T, kustomization, content string) {
		tree := plantest.Tree(t, map[string]string{"kustomization.yaml": kustomization, "a.yaml": content})
		objects, err := manifest.Render(tree, ".", manifest.RenderOptions{})
		r, encoding := resultOf(objects, nil, err)
		if encoding != nil {
			return // the worker says so
		}
		var b bytes.Buffer
		if err := gob.NewEncoder(&b).Encode(fromWorker{Result: r}); err != nil {
			t.Fatal(err)
		}
		var m fromWorker
		if err := gob.NewDecoder(&b).Decode(&m); err != nil {
			t.Fatal(err)
		}
		got, gotErr := m.Result.read(nil)
		switch {
		case (err == nil) != (gotErr == nil):
			t.Fatalf("here %v, there %v", err, gotErr)
		case err != nil:
			if err.Error() != gotErr.Error() {
				t.Errorf("here %q, there %q", err, gotErr)
			}
			return
		case len(got) != len(objects):
			t.Fatalf("%d objects here, %d there", len(objects), len(got))
		}
		for i := range got {
			here, _ := objects[i].MarshalJSON()
			there, _ := got[i].MarshalJSON()
			if !bytes.Equal(here, there) || got[i].File != objects[i].File {
				t.Errorf("here %s: %s\nthere %s: %s", objects[i].File, here, got[i].File, there)
			}
		}
	})
}
