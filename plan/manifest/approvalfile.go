package manifest

import (
	"bytes"
	"cmp"
	"encoding/json"
	"fmt"
	"path"
	"strconv"
	"strings"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"sigs.k8s.io/yaml"

	"github.com/tranche-dev/tranche/plan/v1alpha1"
)

// PutApproval returns the content of a file with an approval in it. It takes the place of
// the one that the same release has there, or comes at the end. All other documents of
// the file stay as they are. Approvals of the file without a namespace are in
// defaultNamespace.
//
// A note is one line about the approval, and may be empty. An approval that is
// given again with another note changes the file, so that another commit brings it.
func PutApproval(file string, content []byte, a v1alpha1.BatchApproval, note, defaultNamespace string) ([]byte, error) {
	text, err := approvalText(file, a, note)
	if err != nil {
		return nil, err
	}
	var out bytes.Buffer
	put := false
	for _, doc := range documents(content) {
		if !put && approves(file, doc, a, defaultNamespace) {
			doc.text, put = text, true
		}
		appendDocument(&out, doc)
	}
	if !put {
		appendDocument(&out, document{text: text})
	}
	return out.Bytes(), nil
}

// appendDocument begins a document with a marker, unless it is the first.
func appendDocument(out *bytes.Buffer, doc document) {
	first, _, _ := bytes.Cut(doc.text, []byte("\n"))
	if out.Len() > 0 && doc.hasContent() && !isMarker(first, "---") {
		if !bytes.HasSuffix(out.Bytes(), []byte("\n")) {
			out.WriteByte('\n')
		}
		out.WriteString("---\n")
	}
	out.Write(doc.text)
}

// approves reports whether a document is an approval for the BatchRelease that a names.
// Its revision, commit and step may be others than those of a.
func approves(file string, doc document, a v1alpha1.BatchApproval, defaultNamespace string) bool {
	v, err := doc.decode()
	if err != nil {
		return false
	}
	objects, err := expand(v, file)
	if err != nil || len(objects) != 1 || objects[0].GroupVersionKind().GroupKind() != kindApproval {
		return false
	}
	if commit, _, _ := unstructured.NestedString(objects[0].Object, "spec", "commit"); commit == "" {
		return false // of a plan
	}
	return cmp.Or(objects[0].GetNamespace(), defaultNamespace) == a.Metadata.Namespace && objects[0].GetName() == a.Metadata.Name
}

var kindApproval = v1alpha1.GroupVersion.WithKind("BatchApproval").GroupKind()

// annotationNote has the note of an approval in JSON, which has no comments.
const annotationNote = v1alpha1.Group + "/note"

// approvalText is an approval as a person would write it.
func approvalText(file string, a v1alpha1.BatchApproval, note string) ([]byte, error) {
	if path.Ext(file) != ".json" {
		if note != "" {
			note = "# " + note + "\n"
		}
		return fmt.Appendf(nil, `%sapiVersion: %s
kind: BatchApproval
metadata:
  name: %s
  namespace: %s
spec:
  revision: %q
  commit: %q
  step: %d
`, note, v1alpha1.GroupVersion, scalar(a.Metadata.Name), scalar(a.Metadata.Namespace), a.Spec.Revision, a.Spec.Commit, a.Spec.Step), nil
	}
	metadata := map[string]any{"name": a.Metadata.Name, "namespace": a.Metadata.Namespace}
	if note != "" {
		metadata["annotations"] = map[string]string{annotationNote: note}
	}
	text, err := json.MarshalIndent(map[string]any{
		"apiVersion": v1alpha1.GroupVersion.String(), "kind": kindApproval.Kind,
		"metadata": metadata, "spec": a.Spec,
	}, "", "  ")
	return append(text, '\n'), err
}

// PlanApprovalFile returns the content of a file that approves the plan of a digest,
// and nothing else.
func PlanApprovalFile(namespace, name, digest, note string) []byte {
	return fmt.Appendf(nil, `# %s
apiVersion: %s
kind: BatchApproval
metadata:
  name: %s
  namespace: %s
spec:
  plan: %q
`, note, v1alpha1.GroupVersion, scalar(name), scalar(namespace), digest)
}

// scalar quotes a string where YAML would take it for something else.
func scalar(s string) string {
	text, err := yaml.Marshal(s)
	if err != nil {
		return strconv.Quote(s)
	}
	return strings.TrimSpace(string(text))
}
