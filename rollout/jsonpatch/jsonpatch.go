// Package jsonpatch builds the JSON patches by which rollout writes.
package jsonpatch

import (
	"encoding/json"
	"errors"
	"net/http"
	"strings"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

// Patch is a JSON patch (RFC 6902). It is a patch and not an update, so that fields
// that this version does not know stay. It is not a server-side apply. Under that, a
// field of another manager in the pod template would stay although the new template is
// without it.
type Patch []operation

type operation struct {
	Op    string `json:"op"`
	Path  string `json:"path"`
	Value any    `json:"value,omitempty"`
}

// At makes the patch conditional: the API server answers a write of another
// resourceVersion than the present one with a conflict.
func (p *Patch) At(o client.Object) {
	p.Add("/metadata/resourceVersion", o.GetResourceVersion())
}

// Add sets a member, whether or not it is there.
func (p *Patch) Add(path string, value any) {
	*p = append(*p, operation{"add", path, value})
}

// Remove takes a member away that must be there.
func (p *Patch) Remove(path string) {
	*p = append(*p, operation{Op: "remove", Path: path})
}

// Test makes the patch conditional on the value of a member.
func (p *Patch) Test(path string, value any) {
	*p = append(*p, operation{"test", path, value})
}

// Raw is the patch for a client.
func (p *Patch) Raw() client.Patch {
	raw, err := json.Marshal(p)
	if err != nil { // values are API types and strings, which all encode
		panic("encoding a JSON patch: " + err.Error())
	}
	return client.RawPatch(types.JSONPatchType, raw)
}

// Pointer escapes a member's name for a JSON pointer (RFC 6901).
func Pointer(name string) string {
	return strings.NewReplacer("~", "~0", "/", "~1").Replace(name)
}

// inapplicable is how the API server answers a patch that does not fit the object.
var inapplicable = apierrors.NewGenericServerResponse(http.StatusUnprocessableEntity, "", schema.GroupResource{}, "", "", 0, false)

// IsInapplicable reports whether a patch did not fit the object: a member that it tests or
// removes is not as it was. The API server finds that before it compares resourceVersions. So the
// loser of a race may get this answer in place of a conflict. It is 422, as that of validation and
// policies, which name the object.
func IsInapplicable(err error) bool {
	var status apierrors.APIStatus
	if !apierrors.IsInvalid(err) || !errors.As(err, &status) {
		return false
	}
	got := status.Status()
	return got.Message == inapplicable.ErrStatus.Message && (got.Details == nil || got.Details.Kind == "" && len(got.Details.Causes) == 0)
}
