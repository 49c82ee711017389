package signature_test

import (
	"testing"

	"github.com/tranche-dev/tranche/gitsync/gittest"
)

// Whatever gpg changes of a key changes the ID of a list with it.
func TestKeys_ID(t *testing.T) {
	t.Parallel()
	const user = "ada@example.org"
	gpg := gittest.NewGPG(t)
	gpg.NewKey(user, "never", "")
	primary := gpg.Fingerprint(user)
	known := map[string]string{}
	for _, change := range [][]string{
		{"--list-keys"}, // none
		{"--passphrase", "", "--quick-add-key", primary, "ed25519", "sign", "never"},
		{"--passphrase", "", "--quick-set-expire", primary, "1y", "*"}, // of the new key
		{"--passphrase", "", "--quick-set-expire", primary, "2y"},
		{"--passphrase", "", "--quick-add-uid", primary, "grace@example.org"},
		{"--passphrase", "", "--quick-revoke-uid", primary, "grace@example.org"},
	} {
		gpg.Run(change...)
		list := map[string]string{"ada.asc": gpg.Run("--armor", "--export", primary)}
		id := keysOf(t, list).ID()
		if again := keysOf(t, list).ID(); again != id {
			t.Errorf("the same list has the IDs %s and %s", id, again)
		}
		if before, ok := known[id]; ok {
			t.Errorf("after %s the ID is that after %s", change, before)
		}
		known[id] = change[len(change)-1]
	}
	gpg.Revoke(primary)
	if before, ok := known[keysOf(t, map[string]string{"ada.asc": gpg.Run("--armor", "--export", primary)}).ID()]; ok {
		t.Errorf("once the key is revoked, the ID is that after %s", before)
	}
}
