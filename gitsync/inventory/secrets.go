package inventory

import "github.com/tranche-dev/tranche/plan/v1alpha1"

// NamedSecret is a Secret that the spec of a GitSource names, and the field that does.
type NamedSecret struct{ Name, Field string }

// Secrets returns the Secrets that a spec names.
func Secrets(spec *v1alpha1.GitSourceSpec) []NamedSecret {
	var named []NamedSecret
	if ref := spec.SecretRef; ref != nil {
		named = append(named, NamedSecret{ref.Name, "spec.secretRef"})
	}
	if ref := spec.ProxySecretRef; ref != nil {
		named = append(named, NamedSecret{ref.Name, "spec.proxySecretRef"})
	}
	if v := spec.Verify; v != nil {
		named = append(named, NamedSecret{v.SecretRef.Name, "spec.verify.secretRef"})
	}
	if a := spec.Approvals; a != nil && a.Signers != nil {
		named = append(named, NamedSecret{a.Signers.SecretRef.Name, "spec.approvals.signers.secretRef"})
	}
	if w := spec.WriteBack; w != nil && w.SigningKey != nil {
		named = append(named, NamedSecret{w.SigningKey.Name, "spec.writeBack.signingKey"})
	}
	if w := spec.Webhook; w != nil {
		named = append(named, NamedSecret{w.SecretRef.Name, "spec.webhook.secretRef"})
	}
	return named
}

// FieldNaming returns the field of a GitSource that names a Secret, or an empty string.
func FieldNaming(gs *v1alpha1.GitSource, namespace, name string) string {
	if gs.Namespace != namespace {
		return ""
	}
	for _, s := range Secrets(&gs.Spec) {
		if s.Name == name {
			return s.Field
		}
	}
	return ""
}

// NamesSecret returns the sentence of a message that a GitSource names a Secret.
func NamesSecret(gs *v1alpha1.GitSource, namespace, name string) string {
	return FieldNaming(gs, namespace, name) + " of GitSource " + gs.Namespace + "/" + gs.Name + " names this Secret"
}
