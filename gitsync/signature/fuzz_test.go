package signature

import (
	"strings"
	"testing"
	"time"
)

// A line that is taken means the same when written again with its parts.
func FuzzAllowedSigners(f *testing.F) {
	const key = "ssh-ed25519 AAAAC3NzaC1lZDI1NTE5AAAAIJ4S6yxgjXGEoCJFGYpOJn2ozz6SrZBkCcRFjPnbzqbV"
	for _, line := range []string{
		"ada@example.org " + key,
		`*@example.org,!eve@example.org namespaces="git,file" ` + key + " a comment",
		`"ada lovelace" valid-after="20260101Z",valid-before="202612312359",namespaces="a\"b" ` + key,
		"# comment\n\n\t" + `ada cert-authority ` + key,
		"ada " + key[:30], `ada namespaces="git`, `ada ,,=" x`, key,
	} {
		f.Add(line)
	}
	f.Fuzz(func(t *testing.T, content string) {
		keys, err := ParseKeys(map[string][]byte{entryAllowedSigners: []byte(content)})
		if err != nil {
			if keys != nil || !strings.HasPrefix(err.Error(), "lists no key") && !strings.HasPrefix(err.Error(), "allowed_signers, line ") {
				t.Errorf("%v, %v", keys, err)
			}
			return
		}
		for _, a := range keys.ssh {
			if a.principals == "" || a.key == nil || len(keys.of(a.key)) == 0 {
				t.Errorf("%+v", a)
			}
			if !a.before.IsZero() && a.check(when{signed: a.before.Add(time.Second)}) == nil {
				t.Errorf("%+v is valid after its end", a)
			}
			if !a.after.IsZero() && a.check(when{signed: a.after.Add(-time.Second)}) == nil {
				t.Errorf("%+v is valid before its beginning", a)
			}
		}
	})
}

// A commit without a signature is never taken as signed, and what is signed is a commit
// as git makes it.
func FuzzCommit(f *testing.F) {
	const (
		begin = "tree 4b825dc642cb6eb9a060e54bf8d69288fbee4904\n"
		who   = "author A <a@example.org> 1780315200 +0000\ncommitter A <a@example.org> 1780315200 +0000\n"
		ssh   = "gpgsig -----BEGIN SSH SIGNATURE-----\n U1NIU0lHAAAAAQ==\n -----END SSH SIGNATURE-----\n"
		pgp   = "gpgsig -----BEGIN PGP SIGNATURE-----\n \n iHUEABYKAB0=\n =abcd\n -----END PGP SIGNATURE-----\n"
	)
	for _, c := range []string{
		begin + who + "\nx\n", begin + who + ssh + "\nx\n", begin + who + pgp + "\nx\n", begin + ssh + who + "\nx\n",
		begin + who + "mergetag object 4b825dc642cb6eb9a060e54bf8d69288fbee4904\n type commit\n \n -----BEGIN SSH SIGNATURE-----\n" + ssh +
			"\nx\n",
		begin + who + ssh + strings.Replace(ssh, "gpgsig", "gpgsig-sha256", 1), "\n", " \n", begin + "parent ", who,
	} {
		f.Add([]byte(c))
	}
	keys, err := ParseKeys(map[string][]byte{
		"a.sshpub": []byte("ssh-ed25519 AAAAC3NzaC1lZDI1NTE5AAAAIJ4S6yxgjXGEoCJFGYpOJn2ozz6SrZBkCcRFjPnbzqbV"),
	})
	if err != nil {
		f.Fatal(err)
	}
	f.Fuzz(func(t *testing.T, raw []byte) {
		if s, err := Verify(raw, keys, time.Unix(1780315200, 0), nil); err == nil {
			t.Errorf("signed by %s", s)
		}
		c, err := parse(raw)
		if err != nil {
			return
		}
		if !strings.HasPrefix(string(c.payload), "tree ") || !strings.Contains(string(c.payload), "\ncommitter ") || len(c.payload) >= len(raw) {
			t.Errorf("the payload is %q", c.payload)
		}
	})
}
