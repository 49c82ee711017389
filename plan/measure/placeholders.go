package measure

import (
	"encoding/json"
	"fmt"
	"regexp"
	"slices"
	"strings"
	"time"

	"k8s.io/apimachinery/pkg/runtime"
)

// Placeholders are the names that queries may have, as $(name).
var Placeholders = []string{"namespace", "deployment", "revision", "replicaset", "pods", "commit", "step", "window"}

// revisionPlaceholders name one revision.
var revisionPlaceholders = []string{"revision", "replicaset", "pods"}

// placeholder matches $(name). A $ that is followed by none of this is left alone.
var placeholder = regexp.MustCompile(`\$\(([^()]*)\)`)

// longestDeployment is the longest name of a Deployment whose pods begin with the whole name of
// their ReplicaSet. The API server cuts a generated name at 58 characters.
const longestDeployment = 46

// UnknownPlaceholder returns the first placeholder of a text that is not known, and its offset;
// -1 without one.
func UnknownPlaceholder(text string) (name string, offset int) {
	for _, at := range placeholder.FindAllStringSubmatchIndex(text, -1) {
		if name := text[at[2]:at[3]]; !slices.Contains(Placeholders, name) {
			return name, at[0]
		}
	}
	return "", -1
}

// NamesRevision reports whether a text has a placeholder that names one revision.
func NamesRevision(text string) bool {
	return slices.ContainsFunc(revisionPlaceholders, func(name string) bool { return strings.Contains(text, "$("+name+")") })
}

// PodsAmbiguous reports whether a text needs $(pods), and the name of the Deployment is too
// long for it.
func PodsAmbiguous(text, deployment string) bool {
	return len(deployment) > longestDeployment && strings.Contains(text, "$(pods)")
}

// Pods returns a regular expression of the names of a ReplicaSet's pods. It may stand in any
// kind of quotes: it has no backslash.
func Pods(replicaSet string) string {
	return strings.ReplaceAll(replicaSet, ".", "[.]") + "-[a-z0-9]{5}"
}

// WindowText returns a duration as PromQL has it.
func WindowText(d time.Duration) string {
	if d%time.Second == 0 {
		return fmt.Sprintf("%ds", d/time.Second)
	}
	return fmt.Sprintf("%dms", d/time.Millisecond)
}

// Expand replaces the placeholders of a text.
func Expand(text string, values map[string]string) string {
	return placeholder.ReplaceAllStringFunc(text, func(found string) string {
		if value, ok := values[found[2:len(found)-1]]; ok {
			return value
		}
		return found
	})
}

// ExpandBody replaces the placeholders in the strings of a JSON object.
func ExpandBody(body *runtime.RawExtension, values map[string]string) *runtime.RawExtension {
	var v any
	if body == nil || json.Unmarshal(body.Raw, &v) != nil {
		return body
	}
	text, err := json.Marshal(expandJSON(v, values))
	if err != nil {
		return body
	}
	return &runtime.RawExtension{Raw: text}
}

func expandJSON(v any, values map[string]string) any {
	switch v := v.(type) {
	case string:
		return Expand(v, values)
	case []any:
		for i := range v {
			v[i] = expandJSON(v[i], values)
		}
	case map[string]any:
		for k := range v {
			v[k] = expandJSON(v[k], values)
		}
	}
	return v
}
