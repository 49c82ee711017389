package gitsync_test

import (
	"encoding/json"
	"strings"
	"testing"

	eventsv1 "k8s.io/api/events/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

// visible is the source and all events: what users see who may not read Secrets.
func visible(s *env) string {
	s.Helper()
	var events eventsv1.EventList
	s.must(s.c.Client.List(s.Context(), &events, client.InNamespace(s.ns)))
	gs := s.gs()
	gs.ManagedFields = nil
	all, err := json.Marshal([]any{gs, events.Items})
	s.must(err)
	return string(all)
}

// A kustomization goes wrong where it has to do with a Secret. Status and events name the file and the field,
// and have no value of the Secret.
func TestSecretValues_Kustomize(t *testing.T) {
	t.Parallel()
	s := newEnv(t, gitsyncOnly)
	const db, of = "deploy/db.yaml", "resources: [db.yaml, a.yaml]\n"
	const replace, into = of + "replacements:\n" +
		"- source: {kind: Secret, name: db, fieldPath: ", "  targets: [{select: {kind: ConfigMap}, fieldPaths: [data.value]}]\n"
	const secret = "apiVersion: v1\nkind: Secret\nmetadata: {name: db}\nstringData: {a: hunter7}\n"
	valid := map[string]string{"deploy/kustomization.yaml": of, db: secret, "deploy/a.yaml": configMap("a", "one")}
	first := s.push(valid)
	s.source()
	s.applied(first)
	inline := strings.ReplaceAll(strings.TrimSuffix(secret, "}\n"), "\n", "\n    ")
	for says, content := range map[string]string{
		"patches[0]: the patch is no valid YAML":                 of + "patches:\n- patch: |-\n    " + inline + "\n",
		"patchesStrategicMerge[0]: the patch is no valid YAML":   of + "patchesStrategicMerge:\n- |-\n    " + inline + "\n",
		"replacements[0]: source.fieldPath leads through":        replace + "stringData.a.b.c}\n" + into,
		"replacements[0]: source.options.index is out of bounds": replace + "stringData.a, options: {delimiter: '.', index: 9}}\n" + into,
		"patchesJson6902[0]: the patch is no list": of + "patchesJson6902: [{target: {version: v1, kind: Secret, name: " +
			"db}, patch: 'hunter7 [x'}]\n",
		"secretGenerator[0].literals[0]: must be key=value": of + "secretGenerator: [{name: c, literals: [hunter7nokey]}]\n",
	} {
		bad := s.push(map[string]string{"deploy/kustomization.yaml": content})
		if m := s.refused(bad, "RenderFailed"); !strings.HasPrefix(m, "deploy/kustomization.yaml: ") || !strings.Contains(m, says) {
			t.Errorf("%q is not in %q", says, m)
		}
		if seen := visible(s); strings.Contains(seen, "hunter") {
			t.Errorf("%s: a value of the Secret is in %s", says, seen)
		}
	}
}

// An env file of a Secret has a value of several lines. The API server refuses the further ones as
// keys, and names them. Status and events do not.
func TestSecretValues_EnvFile(t *testing.T) {
	t.Parallel()
	s := newEnv(t, gitsyncOnly)
	s.source()
	bad := s.push(map[string]string{
		"deploy/kustomization.yaml": "secretGenerator: [{name: db, envs: [db.env]}]\n",
		"deploy/db.env":             "USER=web\nKEY=hunter0\nhunter1/\\\"x\nhunter2+" + strings.Repeat("hunter3]/", 40) + "\n",
	})
	const says = "data: a key is not valid: a valid config key must consist of"
	if m := s.refused(bad, "DryRunFailed"); !strings.Contains(m, says) || !strings.Contains(m, "needs a file of its own") {
		t.Errorf("%q is not in %q", says, m)
	}
	if seen := visible(s); strings.Contains(seen, "hunter") {
		t.Errorf("a value of the Secret is in %s", seen)
	}
}
