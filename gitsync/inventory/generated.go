package inventory

import "regexp"

// contentHash matches the suffix that kustomize appends to the names of the ConfigMaps and Secrets
// that it generates.
var contentHash = regexp.MustCompile(`-[bcdfghkmt2456789]{10}$`)

// WithoutHash returns the entry without the hash of its content, or the zero value if
// its name has none.
func (e Entry) WithoutHash() Entry {
	gk, at := e.GVK.GroupKind(), contentHash.FindStringIndex(e.Name)
	if gk != ConfigMapKind && gk != SecretKind || at == nil {
		return Entry{}
	}
	return Entry{e.GVK, e.Namespace, e.Name[:at[0]]}
}

// Generated returns the entries whose names have a hash of their content, without the hash.
func (inv Set) Generated() map[Entry]bool {
	names := map[Entry]bool{}
	for _, e := range inv {
		names[e.WithoutHash()] = true
	}
	delete(names, Entry{})
	return names
}
