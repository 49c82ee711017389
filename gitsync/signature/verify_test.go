package signature_test

import (
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/tranche-dev/tranche/gitsync/gittest"
	"github.com/tranche-dev/tranche/gitsync/signature"
)

// noon is when the commits of these tests are made, and an hour later they
// are looked at.
var noon = time.Date(2026, 6, 1, 12, 0, 0, 0, time.UTC)

// repoAt is a repository whose commits are made at a time.
func repoAt(t *testing.T, at time.Time) *gittest.Repo {
	repo := gittest.NewRepo(t)
	date := at.Format(time.RFC3339)
	repo.Env = []string{"GIT_COMMITTER_DATE=" + date, "GIT_AUTHOR_DATE=" + date}
	return repo
}

// raw returns the bytes of a commit object.
func raw(t *testing.T, repo *gittest.Repo, commit string) string {
	t.Helper()
	cmd := exec.Command("git", "cat-file", "commit", commit)
	cmd.Dir = repo.Work
	out, err := cmd.Output()
	if err != nil {
		t.Fatal(err)
	}
	return string(out)
}

func keysOf(t *testing.T, data map[string]string) *signature.Keys {
	t.Helper()
	bytes := map[string][]byte{}
	for k, v := range data {
		bytes[k] = []byte(v)
	}
	keys, err := signature.ParseKeys(bytes)
	if err != nil {
		t.Fatal(err)
	}
	return keys
}

// seenAt is of a commit that was first seen at a time.
func seenAt(at time.Time) func(time.Time) bool {
	return func(until time.Time) bool { return !at.After(until) }
}

// A key that has expired signs nothing more, whatever date it writes: the time counts at
// which the commit was first seen. A commit that was seen while the key was valid stays
// signed.
func TestExpiredKeySignsNothingMore(t *testing.T) {
	t.Parallel()
	ssh := gittest.NewSSHKey(t, "ed25519", "")
	pgp := gittest.NewGPG(t).NewKey("ada@example.org", "20260601T123000", "", "--faked-system-time", "20260601T120000!")
	repo := repoAt(t, noon) // that is the date in the commits, whenever they are made
	end := noon.Add(30 * time.Minute)
	for _, kind := range []struct {
		name, entry, content string
		key                  *gittest.Key
	}{
		{"SSH", "allowed_signers", `ada@example.org valid-before="202606011230Z" ` + ssh.Public, &ssh},
		{"OpenPGP", "ada.asc", pgp.Public, &pgp},
	} {
		repo.Sign(kind.key)
		commit := raw(t, repo, repo.Commit(map[string]string{"a": kind.name}))
		keys := keysOf(t, map[string]string{kind.entry: kind.content})
		for _, tt := range []struct {
			reason string
			now    time.Time
			seen   func(time.Time) bool
			want   error
		}{
			{"while it is valid", end, nil, nil},
			{"new, and the key has expired", end.Add(time.Hour), nil, signature.ErrExpired},
			{"seen too late", end.Add(time.Hour), seenAt(end.Add(time.Second)), signature.ErrExpired},
			{"seen in time", end.Add(time.Hour), seenAt(end), nil},
		} {
			got, err := signature.Verify([]byte(commit), keys, tt.now, tt.seen)
			if !errors.Is(err, tt.want) || err == nil && got.Principal != "ada@example.org" {
				t.Errorf("%s: %s: got %v, %v; want %v", kind.name, tt.reason, got, err, tt.want)
			}
		}
	}
}

// All verdicts on SSH signatures, and that git with ssh-keygen has the same.
func TestSSH(t *testing.T) {
	t.Parallel()
	key, other := gittest.NewSSHKey(t, "ed25519", ""), gittest.NewSSHKey(t, "ecdsa", "")
	repo := repoAt(t, noon)
	unsigned := repo.Commit(map[string]string{"a": "1"})
	repo.Sign(&key)
	good := repo.Commit(map[string]string{"a": "2"})
	line := "ada@example.org " + key.Public
	with := func(options string) string { return "ada@example.org " + options + " " + key.Public }
	edited := func(old, new string) string {
		was := raw(t, repo, good)
		is := strings.Replace(was, old, new, 1)
		if was == is {
			t.Fatalf("%q is not in %s", old, was)
		}
		return object(t, repo, is)
	}
	for name, tt := range map[string]struct {
		reason, commit, allowed string
		want                    error
		principal               string
	}{
		"good":                      {"a listed key", good, line, nil, "ada@example.org"},
		"good among others":         {"comments, and other keys", good, "# us\n\nbob@example.org " + other.Public + "\n" + line, nil, "ada@example.org"},
		"patterns of principals":    {"git asks for whoever has the key", good, "*@example.org,bob " + key.Public, nil, "*@example.org,bob"},
		"unsigned":                  {"a commit without gpgsig", unsigned, line, signature.ErrUnsigned, ""},
		"an unknown key":            {"listed is another", good, "bob@example.org " + other.Public, signature.ErrUnknownKey, ""},
		"for git":                   {"the namespace of commits", good, with(`namespaces="file,git"`), nil, "ada@example.org"},
		"for anything":              {"a pattern", good, with(`namespaces="*"`), nil, "ada@example.org"},
		"for another namespace":     {"git is not among them", good, with(`namespaces="file"`), signature.ErrNamespace, ""},
		"for all but git":           {"an exception counts more", good, with(`namespaces="*,!git"`), signature.ErrNamespace, ""},
		"valid":                     {"the commit is within the window", good, with(`valid-after="20260601Z",valid-before="20260602Z"`), nil, "ada@example.org"},
		"valid to the second":       {"the end belongs to the window", good, with(`valid-before="202606011200Z",namespaces="git"`), nil, "ada@example.org"},
		"valid from the second":     {"the beginning does, too", good, with(`valid-after="202606011200Z"`), nil, "ada@example.org"},
		"expired":                   {"a second after the end", good, with(`valid-before="20260601115959Z"`), signature.ErrExpired, ""},
		"expired since":             {"it was valid when it signed", good, with(`valid-before="20260601123000Z"`), nil, "ada@example.org"},
		"not yet valid":             {"a second before the beginning", good, with(`valid-after="20260601120001Z"`), signature.ErrNotYetValid, ""},
		"one line fits":             {"a key may be listed twice", good, with(`namespaces="file"`) + "\n" + with(`valid-before="20270101Z"`), nil, "ada@example.org"},
		"another message":           {"the message is signed", edited("\n\nChange", "\n\nchange"), line, signature.ErrBadSignature, ""},
		"another tree":              {"the tree is signed", edited("tree "+repo.Git("rev-parse", good+"^{tree}"), "tree "+repo.Git("rev-parse", unsigned+"^{tree}")), line, signature.ErrBadSignature, ""},
		"another date":              {"the date is signed", edited("committer Ada Example <ada@example.org> 1780", "committer Ada Example <ada@example.org> 1680"), line, signature.ErrBadSignature, ""},
		"one header more":           {"headers are signed, too", edited("\n\nChange", "\nencoding UTF-8\n\nChange"), line, signature.ErrBadSignature, ""},
		"a signature that is bent":  {"no base64", edited("U1NIU0lH", "U1NIU0lI"), line, signature.ErrBadSignature, ""},
		"a signature that is short": {"it ends too soon", edited("-----END SSH SIGNATURE-----", "----- SSH SIGNATURE-----"), line, signature.ErrBadSignature, ""},
	} {
		t.Run(name, func(t *testing.T) {
			keys := keysOf(t, map[string]string{"allowed_signers": tt.allowed})
			got, err := signature.Verify([]byte(raw(t, repo, tt.commit)), keys, noon.Add(time.Hour), seenAt(noon))
			if !errors.Is(err, tt.want) || got.Principal != tt.principal {
				t.Errorf("%s: got %v, %v; want %v", tt.reason, got, err, tt.want)
			}
			file := filepath.Join(t.TempDir(), "allowed_signers")
			if err := os.WriteFile(file, []byte(tt.allowed+"\n"), 0o600); err != nil {
				t.Fatal(err)
			}
			cmd := exec.Command("git", "-c", "gpg.ssh.allowedSignersFile="+file, "verify-commit", tt.commit)
			cmd.Dir = repo.Work
			if out, err := cmd.CombinedOutput(); (err == nil) != (tt.want == nil) {
				t.Errorf("git has another opinion: %v\n%s", err, out)
			}
		})
	}
}

// Commits that git lets pass and Verify does not, since go-git, which reads the commit
// afterwards, may see another commit in it.
func TestStricterThanGit(t *testing.T) {
	t.Parallel()
	key := gittest.NewSSHKey(t, "ed25519", "")
	repo := repoAt(t, noon)
	repo.Commit(map[string]string{"a": "1"})
	repo.Sign(&key)
	good := raw(t, repo, repo.Commit(map[string]string{"a": "2"}))
	keys := keysOf(t, map[string]string{"ada.sshpub": key.Public})
	begin := strings.Index(good, "gpgsig ")
	end := begin + strings.Index(good[begin:], "\n\n") + 1
	sig := good[begin:end]
	without := good[:begin] + good[end:]
	at := func(header string) string { return strings.Replace(without, header, sig+header, 1) }
	if got, err := signature.Verify([]byte(good), keys, noon, nil); err != nil || got.Principal != "key of a test" {
		t.Fatal(got, err)
	}
	for name, tt := range map[string]struct{ reason, commit string }{
		"signature before the parent": {"the commit would have no parent, and bring every file", at("parent ")},
		"signature before the author": {"nothing belongs there", at("author ")},
		"signature at the beginning":  {"nothing belongs there", sig + without},
		"two signatures":              {"which one counts?", good[:begin] + sig + good[begin:]},
		"an unknown signature header": {"git leaves it out of what it checks", good[:begin] + "gpgsig-x 1\n" + good[begin:]},
		"a second tree":               {"which one counts?", good[:end] + good[:strings.Index(good, "\n")+1] + good[end:]},
		"no commit":                   {"a tag has a signature of the same form", strings.Replace(good, "tree ", "object ", 1)},
		"no committer":                {"when was it signed?", strings.Replace(good, "committer ", "commiter ", 1)},
		"no date":                     {"when was it signed?", strings.Replace(good, " +0000\ngpgsig", "\ngpgsig", 1)},
		"something after the armor":   {"it belongs to nothing", strings.Replace(good, "-----END SSH SIGNATURE-----", "-----END SSH SIGNATURE-----\n x", 1)},
	} {
		t.Run(name, func(t *testing.T) {
			if got, err := signature.Verify([]byte(tt.commit), keys, noon, nil); !errors.Is(err, signature.ErrBadSignature) {
				t.Errorf("%s: got %v, %v", tt.reason, got, err)
			}
		})
	}
	if _, err := signature.Verify([]byte(strings.Replace(good, "gpgsig ", "gpgsig-sha256 ", 1)), keys, noon, nil); !errors.Is(err, signature.ErrUnsigned) {
		t.Errorf("gpgsig-sha256 is for repositories of that kind: %v", err)
	}
	// A date that is yet to come is not believed.
	later := keysOf(t, map[string]string{"allowed_signers": `ada@example.org valid-after="20260601Z" ` + key.Public})
	if _, err := signature.Verify([]byte(good), later, noon.Add(-24*time.Hour), nil); !errors.Is(err, signature.ErrNotYetValid) {
		t.Errorf("signed with a date that is yet to come: %v", err)
	}
}

// A merge of a signed tag has the tag, with its signature, in a header.
func TestMergetag(t *testing.T) {
	t.Parallel()
	author, merger := gittest.NewSSHKey(t, "ed25519", ""), gittest.NewSSHKey(t, "ed25519", "")
	repo := repoAt(t, noon)
	repo.Commit(map[string]string{"a": "1"})
	repo.Git("checkout", "-q", "-b", "topic")
	repo.Commit(map[string]string{"b": "1"})
	repo.Sign(&author)
	repo.Git("tag", "-s", "-m", "A tag", "v1")
	repo.Git("checkout", "-q", "main")
	repo.Commit(map[string]string{"a": "2"})
	repo.Git("config", "gpg.ssh.allowedSignersFile", "/dev/null")
	for _, tt := range []struct {
		name string
		key  *gittest.Key
		want error
	}{{"signed", &merger, nil}, {"unsigned", nil, signature.ErrUnsigned}} {
		t.Run(tt.name, func(t *testing.T) {
			repo.Git("checkout", "-q", "-B", tt.name, "main")
			repo.Sign(tt.key)
			repo.Git("merge", "-q", "--no-ff", "-m", "Merge v1", "v1")
			commit := raw(t, repo, "HEAD")
			if !strings.Contains(commit, "\nmergetag object ") {
				t.Fatal(commit)
			}
			keys := keysOf(t, map[string]string{"allowed_signers": "author " + author.Public + "\nmerger " + merger.Public})
			got, err := signature.Verify([]byte(commit), keys, noon, nil)
			if !errors.Is(err, tt.want) || err == nil && got.Principal != "merger" {
				t.Errorf("got %v, %v", got, err)
			}
		})
	}
}

func TestOpenPGP(t *testing.T) {
	t.Parallel()
	gpg := gittest.NewGPG(t)
	frozen := []string{"--faked-system-time", "20260601T120000!"}
	key := gpg.NewKey("Ada Example <ada@example.org>", "never", "", frozen...)
	short := gpg.NewKey("short@example.org", "20260602T000000", "", frozen...)
	stranger := gpg.NewKey("stranger@example.org", "never", "", frozen...)
	repo := repoAt(t, noon)
	unsigned := repo.Commit(map[string]string{"a": "1"})
	by := func(k gittest.Key, content string) string {
		repo.Sign(&k)
		return repo.Commit(map[string]string{"a": content})
	}
	// NewKey writes one script for all, with the options of the last.
	good, soon, strange := by(key, "2"), by(short, "3"), by(stranger, "4")
	later := gittest.Key{Config: append([]string{}, short.Config...)}
	wrapper := strings.TrimPrefix(later.Config[2], "gpg.program=")
	script, err := os.ReadFile(wrapper)
	if err != nil {
		t.Fatal(err)
	}
	late := filepath.Join(t.TempDir(), "gpg.sh")
	// GnuPG does not sign with a key that has expired, so its clock must go back,
	// and the date in the commit with it.
	if err := os.WriteFile(late, []byte(strings.Replace(string(script), "20260601T120000!", "20260601T130000!", 1)), 0o700); err != nil {
		t.Fatal(err)
	}
	later.Config[2] = "gpg.program=" + late
	hour := by(later, "5")
	public := key.Public + short.Public
	gpg.Run("--faked-system-time", "20260601T121000!", "--quick-set-expire", gpg.Fingerprint("short@example.org"), "20260601T123000")
	shorter := gpg.Run("--armor", "--export", "short@example.org")
	day := noon.Add(24 * time.Hour)
	for name, tt := range map[string]struct {
		reason, commit, public string
		now                    time.Time
		want                   error
		principal              string
	}{
		"good":              {"a listed key", good, public, day, nil, "Ada Example <ada@example.org>"},
		"two blocks":        {"both are read", soon, public, noon, nil, "short@example.org"},
		"unsigned":          {"no gpgsig", unsigned, public, day, signature.ErrUnsigned, ""},
		"an unknown key":    {"not among the listed", strange, public, day, signature.ErrUnknownKey, ""},
		"expired since":     {"it was valid when it signed", soon, shorter, day, nil, "short@example.org"},
		"expired":           {"it had expired half an hour before", hour, shorter, day, signature.ErrExpired, ""},
		"yet to come":       {"signed an hour ahead of our clock", hour, public, noon, signature.ErrNotYetValid, ""},
		"a clock that goes": {"signed a minute ahead of our clock", hour, public, noon.Add(59 * time.Minute), nil, "short@example.org"},
		"tampered":          {"the message is signed", object(t, repo, strings.Replace(raw(t, repo, good), "\n\nChange", "\n\nchange", 1)), public, day, signature.ErrBadSignature, ""},
	} {
		t.Run(name, func(t *testing.T) {
			got, err := signature.Verify([]byte(raw(t, repo, tt.commit)), keysOf(t, map[string]string{"team.asc": tt.public}), tt.now, seenAt(noon))
			if !errors.Is(err, tt.want) || got.Principal != tt.principal {
				t.Errorf("%s: got %v, %v; want %v", tt.reason, got, err, tt.want)
			}
		})
	}
}

// A key that is listed twice is what both copies say, as in a keyring of gpg. A copy that a
// user forgot to remove does not undo a revocation, and their order decides nothing.
func TestOpenPGP_Copies(t *testing.T) {
	t.Parallel()
	gpg := gittest.NewGPG(t)
	frozen := []string{"--faked-system-time", "20260601T120000!"}
	revoked := gpg.NewKey("revoked@example.org", "never", "", frozen...)
	extended := gpg.NewKey("extended@example.org", "20260602T000000", "", frozen...)
	repo := repoAt(t, noon)
	commit := func(k gittest.Key, content string) string {
		repo.Sign(&k)
		return repo.Commit(map[string]string{"a": content})
	}
	byRevoked, byExtended := commit(revoked, "1"), commit(extended, "2")
	gpg.Revoke("revoked@example.org")
	gpg.Run("--faked-system-time", "20260601T121000!", "--quick-set-expire", gpg.Fingerprint("extended@example.org"), "never")
	export := func(user string) string { return gpg.Run("--armor", "--export", user) }
	for _, tt := range []struct {
		name, commit, before, after string
		only, both                  error // what the copy of before says alone, and what both say
	}{
		{"revoked", byRevoked, revoked.Public, export("revoked@example.org"), nil, signature.ErrRevoked},
		{"made to last longer", byExtended, extended.Public, export("extended@example.org"), signature.ErrExpired, nil},
	} {
		lists := map[string]map[string]string{
			"before and after in one entry":   {"a.asc": tt.before + tt.after},
			"after and before in one entry":   {"a.asc": tt.after + tt.before},
			"before and after in two entries": {"a.asc": tt.before, "b.asc": tt.after},
			"after and before in two entries": {"a.asc": tt.after, "b.asc": tt.before},
		}
		check := func(list string, keys *signature.Keys, want error) {
			if _, err := signature.Verify([]byte(raw(t, repo, tt.commit)), keys, noon.Add(48*time.Hour), nil); !errors.Is(err, want) {
				t.Errorf("%s, %s: %v, want %v", tt.name, list, err, want)
			}
		}
		check("before", keysOf(t, map[string]string{"a.asc": tt.before}), tt.only)
		for name, list := range lists {
			check(name, keysOf(t, list), tt.both)
		}
		before, after := keysOf(t, lists["before and after in one entry"]), keysOf(t, map[string]string{"a.asc": tt.before})
		check("joined", signature.Join(after, before), tt.both)
		check("joined, the other way", signature.Join(before, after), tt.both)
		check("before, once they are joined", after, tt.only)
		// gpg says the same of a keyring with both.
		ring := gittest.NewGPG(t)
		for _, copied := range []string{tt.after, tt.before} {
			ring.Import(copied)
		}
		if says := ring.VerifyCommit(repo, tt.commit); strings.Contains(says, "REVKEYSIG") != (tt.both != nil) {
			t.Errorf("%s: gpg says %s", tt.name, says)
		}
	}
}

func TestParseKeysRefuses(t *testing.T) {
	t.Parallel()
	gittest.Need(t, "ssh-keygen", "gpg")
	key := gittest.NewSSHKey(t, "ed25519", "").Public
	private := gittest.NewGPG(t).NewKey("tranche@example.org", "never", "").Private
	for name, tt := range map[string]struct{ entry, content, says string }{
		"nothing":             {"allowed-signers", "ada@example.org " + key, "lists no key"},
		"only comments":       {"allowed_signers", "# nobody\n", "lists no key"},
		"no principals":       {"allowed_signers", "# us\n" + key, "allowed_signers, line 2: a line begins with the principals"},
		"only exclusions":     {"allowed_signers", "!ada@example.org,!*@example.com " + key, "allowed_signers, line 1: its principals exclude, and name no one"},
		"no key":              {"allowed_signers", "ada@example.org", `allowed_signers, line 1: "" is no type of key`},
		"half a key":          {"allowed_signers", "ada@example.org " + key[:40], "not the base64 form"},
		"another type":        {"allowed_signers", "ada@example.org " + strings.Replace(key, "ssh-ed25519", "ssh-rsa", 1), "not the base64 form"},
		"an unknown option":   {"allowed_signers", "ada@example.org no-pty " + key, `option "no-pty" is none`},
		"an authority":        {"allowed_signers", "*@example.org cert-authority " + key, "cert-authority is not supported; list the keys themselves"},
		"a bare value":        {"allowed_signers", "ada@example.org namespaces=git " + key, "must be in double quotes"},
		"no namespaces":       {"allowed_signers", `ada@example.org namespaces="" ` + key, "namespaces is empty"},
		"twice":               {"allowed_signers", `ada@example.org namespaces="git",namespaces="file" ` + key, "stands there twice"},
		"no time":             {"allowed_signers", `ada@example.org valid-after="2026-06-01" ` + key, "must be YYYYMMDD"},
		"an empty window":     {"allowed_signers", `ada@example.org valid-after="20260602",valid-before="20260601" ` + key, "not later than valid-after"},
		"a quote left open":   {"allowed_signers", `ada@example.org namespaces="git ` + key, "a quote is not closed"},
		"a missing comma":     {"allowed_signers", `ada@example.org namespaces="git"valid-after="20260601" ` + key, "a comma is missing"},
		"a comma at the end":  {"allowed_signers", `ada namespaces="git", ` + key, "comma an option is missing"},
		"options in a sshpub": {"ada.sshpub", `namespaces="git" ` + key, "belong in the entry allowed_signers"},
		"no key in a sshpub":  {"ada.sshpub", "hello", "ada.sshpub, line 1"},
		"a private key":       {"ada.asc", private, "is a private key"},
		"no OpenPGP":          {"ada.asc", "hello", "is no OpenPGP key"},
		"half an OpenPGP key": {"ada.asc", "-----BEGIN PGP PUBLIC KEY BLOCK-----\n\nxyz\n", "key block 1"},
	} {
		t.Run(name, func(t *testing.T) {
			_, err := signature.ParseKeys(map[string][]byte{tt.entry: []byte(tt.content)})
			if err == nil || !strings.Contains(err.Error(), tt.says) {
				t.Errorf("got %v, want %q", err, tt.says)
			}
		})
	}
}

// The example of docs/signatures.md is one that is taken.
func TestDocumentedKeys(t *testing.T) {
	t.Parallel()
	text, err := os.ReadFile("../../docs/signatures.md")
	if err != nil {
		t.Fatal(err)
	}
	_, example, _ := strings.Cut(string(text), "<<'EOF'\n")
	example, _, ok := strings.Cut(example, "EOF\n")
	if !ok {
		t.Fatal("there is no example")
	}
	keysOf(t, map[string]string{"allowed_signers": example})
}
