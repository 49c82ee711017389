package signature_test

import (
	"testing"
	"time"

	"github.com/tranche-dev/tranche/gitsync/gittest"
	"github.com/tranche-dev/tranche/gitsync/signature"
)

func TestKeys_EndBetween(t *testing.T) {
	t.Parallel()
	ssh, gpg := gittest.NewSSHKey(t, "ed25519", ""), gittest.NewGPG(t)
	const days = 24 * time.Hour
	now := time.Now()
	for why, tc := range map[string]struct {
		entry, text string
		ends        bool
	}{
		"SSH without an end": {"allowed_signers", "ada@example.org " + ssh.Public, false},
		"SSH in two days": {"allowed_signers",
			`ada@example.org valid-before="` + now.Add(2*days).UTC().Format("20060102150405") + `Z" ` + ssh.Public, true},
		"SSH in a year": {"allowed_signers",
			`ada@example.org valid-before="` + now.Add(365*days).UTC().Format("20060102150405") + `Z" ` + ssh.Public, false},
		"SSH long ago":           {"allowed_signers", `ada@example.org valid-before="20200101Z" ` + ssh.Public, false},
		"OpenPGP without an end": {"ada.asc", gpg.NewKey("ada@example.org", "never", "").Public, false},
		"OpenPGP in two days":    {"grace.asc", gpg.NewKey("grace@example.org", "2d", "").Public, true},
	} {
		keys, err := signature.ParseKeys(map[string][]byte{tc.entry: []byte(tc.text)})
		if err != nil {
			t.Fatal(why, err)
		}
		if got := keys.EndBetween(now, now.Add(7*days)); got != tc.ends {
			t.Errorf("%s: %t", why, got)
		}
	}
	var none *signature.Keys
	if none.EndBetween(now, now.Add(days)) {
		t.Error("a list that is not there has an end")
	}
}
