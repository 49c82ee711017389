package manifest

import (
	"encoding/json"
	"errors"
	"fmt"
	"path"
	"strings"

	"sigs.k8s.io/kustomize/api/provider"
	"sigs.k8s.io/kustomize/api/types"
	"sigs.k8s.io/kustomize/kyaml/filesys"
	"sigs.k8s.io/yaml"

	"github.com/tranche-dev/tranche/plan"
)

// explainEntries finds patches and literals that kustomize cannot read. Its own words quote them.
func (k *named) explainEntries(fsys filesys.FileSystem) plan.Problems {
	var ps plan.Problems
	for i, p := range k.Patches {
		ps = append(ps, k.explainPatch(fsys, fmt.Sprintf("patches[%d]", i), &p, unreadablePatch)...)
	}
	for i, p := range k.PatchesJson6902 {
		ps = append(ps, k.explainPatch(fsys, fmt.Sprintf("patchesJson6902[%d]", i), &p, unreadableOperations)...)
	}
	for i, text := range k.PatchesStrategicMerge {
		p := types.Patch{Patch: string(text)}
		if isPath(p.Patch) {
			p = types.Patch{Path: p.Patch}
		}
		ps = append(ps, k.explainPatch(fsys, fmt.Sprintf("patchesStrategicMerge[%d]", i), &p, unreadableMerge)...)
	}
	for i, g := range k.ConfigMapGenerator {
		ps = append(ps, explainLiterals(k.file, objectOf("ConfigMap", g.Name), fmt.Sprintf("configMapGenerator[%d]", i), g.KvPairSources)...)
	}
	for i, g := range k.SecretGenerator {
		ps = append(ps, explainLiterals(k.file, objectOf("Secret", g.Name), fmt.Sprintf("secretGenerator[%d]", i), g.KvPairSources)...)
	}
	return ps
}

func entryProblem(where string, err error) *plan.Problem {
	return &plan.Problem{Reason: plan.ReasonRenderFailed, Where: where, Err: err}
}

func explainLiterals(file, object, field string, from types.KvPairSources) (ps plan.Problems) {
	for i, l := range from.LiteralSources {
		if strings.Index(l, "=") <= 0 {
			where := plan.Where(file, object, fmt.Sprintf("%s.literals[%d]", field, i))
			ps = append(ps, entryProblem(where, errors.New("must be key=value")))
		}
	}
	return ps
}

// explainPatch says why kustomize cannot read a patch.
func (k *named) explainPatch(fsys filesys.FileSystem, field string, p *types.Patch, unreadable func(string) error) plan.Problems {
	text, where := strings.TrimSpace(p.Patch), plan.Where(k.file, field)
	if p.Target != nil {
		where = plan.Where(k.file, objectOf(p.Target.Kind, p.Target.Name), field)
	}
	if p.Path != "" {
		at := path.Join(path.Dir(rooted(k.file)), p.Path)
		content, err := fsys.ReadFile(at)
		if err != nil {
			return nil // another problem says so
		}
		text, where = string(content), relative(at)
	}
	if text == "" {
		return nil
	}
	if err := unreadable(text); err != nil {
		return plan.Problems{entryProblem(where, err)}
	}
	return nil
}

// unreadablePatch returns why kustomize can read a patch neither as a strategic merge patch nor as a JSON patch.
func unreadablePatch(text string) error {
	operations, merge := unreadableOperations(text), unreadableMerge(text)
	switch {
	case operations == nil || merge == nil:
		return nil
	case text[0] == '[':
		return operations
	case errors.Is(merge, errNoObject):
		return fmt.Errorf("%w, and no list of operations", errNoObject)
	default:
		return merge
	}
}

var errNoObject = errors.New("the patch is no object with apiVersion, kind and metadata.name")

// unreadableMerge returns why kustomize cannot read a strategic merge patch.
func unreadableMerge(text string) error {
	_, err := provider.NewDefaultDepProvider().GetResourceFactory().SliceFromBytes([]byte(text))
	if err == nil {
		return nil
	}
	if invalid := invalidYAML([]byte(text)); invalid != nil {
		return fmt.Errorf("the patch is no valid YAML: %w", invalid)
	}
	return errNoObject
}

// unreadableOperations returns why kustomize cannot read a JSON patch. One that begins with a bracket
// must be JSON, and any other may be YAML.
func unreadableOperations(text string) error {
	data := []byte(text)
	if text[0] != '[' {
		var err error
		if data, err = yaml.YAMLToJSON(data); err != nil {
			if invalid := invalidYAML([]byte(text)); invalid != nil {
				return fmt.Errorf("the patch is no valid YAML: %w", invalid)
			}
			return errors.New("the patch is no valid YAML")
		}
	}
	var operations []map[string]any
	err := json.Unmarshal(data, &operations)
	if syntax, ok := errors.AsType[*json.SyntaxError](err); ok {
		line := 1 + strings.Count(text[:min(int(syntax.Offset), len(text))], "\n")
		return fmt.Errorf("line %d: the patch is no valid JSON, and a patch that begins with [ must be", line)
	}
	if err != nil {
		return errors.New("the patch is no list of operations, each with op and path")
	}
	return nil
}
