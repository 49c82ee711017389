package rollout

import (
	"encoding/json"
	"strings"

	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

// jsonPatch is a JSON patch (RFC 6902). It is a patch and not an update, so that fields
// that this version does not know stay. It is not a server-side apply. Under that, a
// field of another manager in the pod template would stay although the new template is
// without it.
type jsonPatch []operation

type operation struct {
	Op    string `json:"op"`
	Path  string `json:"path"`
	Value any    `json:"value,omitempty"`
}

// at makes the patch conditional: the API server answers a write of another
// resourceVersion than the present one with a conflict.
func (p *jsonPatch) at(o client.Object) {
	p.add("/metadata/resourceVersion", o.GetResourceVersion())
}

// add sets a member, whether or not it is there.
func (p *jsonPatch) add(path string, value any) {
	*p = append(*p, operation{"add", path, value})
}

// remove takes a member away that must be there.
func (p *jsonPatch) remove(path string) {
	*p = append(*p, operation{Op: "remove", Path: path})
}

func (p *jsonPatch) patch() client.Patch {
	raw, err := json.Marshal(p)
	if err != nil { // values are API types and strings, which all encode
		panic("encoding a JSON patch: " + err.Error())
	}
	return client.RawPatch(types.JSONPatchType, raw)
}

// pointer escapes a member's name for a JSON pointer (RFC 6901).
func pointer(name string) string {
	return strings.NewReplacer("~", "~0", "/", "~1").Replace(name)
}
