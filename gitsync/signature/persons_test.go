package signature

import (
	"strings"
	"testing"

	"github.com/tranche-dev/tranche/gitsync/gittest"
)

// A person is one, with whatever keys and under whatever names.
func TestSame(t *testing.T) {
	t.Parallel()
	keys, by := make([]string, 4), make([]Signature, 4)
	for i := range keys {
		keys[i], by[i] = newListedKey(t)
	}
	gpg := gittest.NewGPG(t).NewKey("Grace Example <Grace@Example.org>", "never", "").Public
	for _, tt := range []struct {
		reason string
		lines  []string
		asc    string
		a, b   string // principals
		same   bool
	}{
		{"two persons", []string{"ada@example.org " + keys[0], "grace@example.org " + keys[1]}, "", "ada@example.org", "grace@example.org", false},
		{"the same principal", []string{"ada@example.org " + keys[0], "Ada@Example.org " + keys[1]}, "", "ada@example.org", "Ada@Example.org", true},
		{"one of several principals", []string{"ada@example.org,ada " + keys[0], "root,ada " + keys[1]}, "", "ada@example.org,ada", "root,ada", true},
		{"a display name", []string{`"Ada <ada@example.org>" ` + keys[0], "ada@example.org " + keys[1]}, "", "Ada <ada@example.org>", "ada@example.org", true},
		{"listed twice, each time for another", []string{"ada@example.org " + keys[0], "ada@corp.example " + keys[0], "ada@corp.example " + keys[1]}, "", "ada@example.org", "ada@corp.example", true},
		{"by way of a third key", []string{"ada@example.org " + keys[0], "ada@example.org,ada " + keys[2], "ada " + keys[1]}, "", "ada@example.org", "ada", true},
		{"an excluded name", []string{"ada@example.org,!x " + keys[0], "grace@example.org,!x " + keys[1]}, "", "ada@example.org,!x", "grace@example.org,!x", false},
	} {
		k := parsedKeys(t, tt.lines, tt.asc)
		a, b := Signature{Key: by[0].Key, Principal: tt.a}, Signature{Key: by[1].Key, Principal: tt.b}
		if k.Same(a, b) != tt.same || k.Same(b, a) != tt.same {
			t.Errorf("%s: %t", tt.reason, !tt.same)
		}
	}
	k := parsedKeys(t, []string{"grace@example.org " + keys[0], "ada@example.org " + keys[1]}, gpg)
	pgp := Signature{Key: fingerprint(k.openPGP[0]), Principal: "Grace Example <Grace@Example.org>"}
	if ssh := (Signature{Key: by[0].Key, Principal: "grace@example.org"}); !k.Same(pgp, ssh) || !k.Same(ssh, pgp) {
		t.Error("an OpenPGP key and an SSH key of one principal are two persons")
	}
	if ssh := (Signature{Key: by[1].Key, Principal: "ada@example.org"}); k.Same(pgp, ssh) {
		t.Error("two principals are one person")
	}
}

// A key that is listed for a pattern may be of anyone, and makes no two others one person.
func TestSame_Patterns(t *testing.T) {
	t.Parallel()
	keys, by := make([]string, 3), make([]Signature, 3)
	for i := range keys {
		keys[i], by[i] = newListedKey(t)
	}
	for _, tt := range []struct {
		reason, a, b string // each the principals of a key
		same         bool
	}{
		{"a pattern", "*@example.org", "grace@example.org", true},
		{"one character that is any", "gr?ce@example.org", "grace@example.org", true},
		{"a pattern among others", "root,*@example.org", "grace@example.org", true},
		{"a decomposed letter", "jos\u00e9@example.org", "jose\u0301@example.org", true},
		{"a domain in Unicode", "ada@b\u00fccher.example", "ada@xn--bcher-kva.example.", true},
		{"two persons, beside a third key that may be of each", "ada@example.org", "grace@example.org", false},
	} {
		k := parsedKeys(t, []string{tt.a + " " + keys[0], tt.b + " " + keys[1], "*@example.org " + keys[2]}, "")
		a, b := Signature{Key: by[0].Key, Principal: tt.a}, Signature{Key: by[1].Key, Principal: tt.b}
		if k.Same(a, b) != tt.same || k.Same(b, a) != tt.same {
			t.Errorf("%s: %t", tt.reason, !tt.same)
		}
	}
}

// A key of an *.sshpub entry has the principal that its comment is. Without one it may be of
// anyone, unless it is listed for a principal elsewhere.
func TestSame_Comments(t *testing.T) {
	t.Parallel()
	keys, by := make([]string, 2), make([]Signature, 2)
	for i := range keys {
		keys[i], by[i] = newListedKey(t)
		keys[i] = strings.Join(strings.Fields(keys[i])[:2], " ")
	}
	for _, tt := range []struct {
		reason, a, b string // the comments
		lines        string // of allowed_signers, also for the second key
		same         bool
	}{
		{"two comments", "ada@example.org", "grace@example.org", "", false},
		{"one comment", "ada@example.org", "ada@example.org", "", true},
		{"none", "ada@example.org", "", "", true},
		{"none, but another principal elsewhere", "ada@example.org", "", "grace@example.org " + keys[1], false},
		{"none, but the same principal elsewhere", "ada@example.org", "", "ada@example.org " + keys[1], true},
	} {
		data := map[string][]byte{"a.sshpub": []byte(keys[0] + " " + tt.a + "\n" + keys[1] + " " + tt.b), "allowed_signers": []byte(tt.lines)}
		k, err := ParseKeys(data)
		if err != nil {
			t.Fatal(err)
		}
		a, b := Signature{Key: by[0].Key, Principal: tt.a}, Signature{Key: by[1].Key, Principal: tt.b}
		if k.Same(a, b) != tt.same || k.Same(b, a) != tt.same {
			t.Errorf("%s: %t", tt.reason, !tt.same)
		}
	}
}

// newListedKey returns a new key as a list has it, and a signature by it.
func newListedKey(t *testing.T) (string, Signature) {
	t.Helper()
	key := gittest.NewSSHKey(t, "ed25519", "").Public
	return key, Signature{Key: parsedKeys(t, []string{"x " + key}, "").listings()[0].key}
}

// parsedKeys are those of lines of allowed_signers, and of an OpenPGP entry.
func parsedKeys(t *testing.T, lines []string, asc string) *Keys {
	t.Helper()
	data := map[string][]byte{"allowed_signers": []byte(strings.Join(lines, "\n"))}
	if asc != "" {
		data["a.asc"] = []byte(asc)
	}
	k, err := ParseKeys(data)
	if err != nil {
		t.Fatal(err)
	}
	return k
}
