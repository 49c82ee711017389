package signers

import (
	"strings"
	"testing"
	"time"

	"github.com/go-git/go-git/v5/plumbing"

	"github.com/tranche-dev/tranche/gitsync/gittest"
	"github.com/tranche-dev/tranche/gitsync/signature"
)

// The commit that renames or copies a folder is not the one that brought an approval in it.
func TestPlantedApproval(t *testing.T) {
	t.Parallel()
	const file, text = "deploy/approvals/web.yaml", "kind: BatchApproval\nspec: {revision: abc, commit: \"0123456\", step: 2}\n"
	k1, k2, k3 := gittest.NewSSHKey(t, "ed25519", ""), gittest.NewSSHKey(t, "ed25519", ""), gittest.NewSSHKey(t, "ed25519", "")
	signers, err := signature.ParseKeys(map[string][]byte{"allowed_signers": []byte("k2@example.org " + k2.Public + "\nk3@example.org " + k3.Public)})
	if err != nil {
		t.Fatal(err)
	}
	for name, tt := range map[string]struct {
		// story ends with a commit of the approver k2. The committer k1 is no approver.
		story func(r *gittest.Repo, by func(gittest.Key, map[string]string), move func(k gittest.Key, from, to string))
		why   string // empty: it counts
	}{
		"a file of the approver": {func(_ *gittest.Repo, by func(gittest.Key, map[string]string), _ func(gittest.Key, string, string)) {
			by(k2, map[string]string{file: text})
		}, ""},
		"the committer puts it into a folder that is renamed": {func(_ *gittest.Repo, by func(gittest.Key, map[string]string), move func(gittest.Key, string, string)) {
			by(k1, map[string]string{"new/approvals/web.yaml": text})
			move(k2, "new", "deploy")
		}, "the repository had it at new/approvals/web.yaml before"},
		"the folder is renamed twice": {func(_ *gittest.Repo, by func(gittest.Key, map[string]string), move func(gittest.Key, string, string)) {
			by(k1, map[string]string{"new/approvals/web.yaml": text})
			move(k2, "new", "next")
			move(k2, "next", "deploy")
		}, "the repository had it at new/approvals/web.yaml before"},
		"the folder is copied": {func(_ *gittest.Repo, by func(gittest.Key, map[string]string), _ func(gittest.Key, string, string)) {
			by(k1, map[string]string{"new/approvals/web.yaml": text})
			by(k2, map[string]string{file: text})
		}, "the repository had it at new/approvals/web.yaml before"},
		"a merge moves it": {func(r *gittest.Repo, by func(gittest.Key, map[string]string), move func(gittest.Key, string, string)) {
			before := r.Head()
			by(k1, map[string]string{"new/approvals/web.yaml": text})
			planted := r.Head()
			move(k1, "new", "deploy")
			tree := r.Git("rev-parse", "HEAD^{tree}")
			r.Git("reset", "-q", "--hard", before)
			by(k2, map[string]string{"README.md": "y"})
			r.Sign(&k2)
			r.Git("reset", "-q", "--hard", r.Git("commit-tree", "-S", "-m", "Merge", "-p", r.Head(), "-p", planted, tree))
		}, "it is a merge, and none of its parents has the file like this"},
		"the committer takes it from another folder, and that is renamed": {func(_ *gittest.Repo, by func(gittest.Key, map[string]string), move func(gittest.Key, string, string)) {
			by(k2, map[string]string{"staging/approvals/web.yaml": text})
			by(k1, map[string]string{"new/approvals/web.yaml": text})
			move(k2, "new", "deploy")
		}, "the repository had it at new/approvals/web.yaml before"},
		"another approver's folder is renamed": {func(_ *gittest.Repo, by func(gittest.Key, map[string]string), move func(gittest.Key, string, string)) {
			by(k3, map[string]string{"new/approvals/web.yaml": text})
			move(k2, "new", "deploy")
		}, "of another than k2@example.org"},
		"the approver's own folder is renamed": {func(_ *gittest.Repo, by func(gittest.Key, map[string]string), move func(gittest.Key, string, string)) {
			by(k2, map[string]string{"new/approvals/web.yaml": text})
			move(k2, "new", "deploy")
		}, ""},
		"the approver changes the file": {func(_ *gittest.Repo, by func(gittest.Key, map[string]string), _ func(gittest.Key, string, string)) {
			by(k1, map[string]string{"new/approvals/web.yaml": text})
			by(k2, map[string]string{file: "# mine\n" + text})
		}, ""},
		"the committer copies it afterwards": {func(_ *gittest.Repo, by func(gittest.Key, map[string]string), _ func(gittest.Key, string, string)) {
			by(k2, map[string]string{file: text})
			by(k1, map[string]string{"new/approvals/web.yaml": text})
		}, ""},
		"the approver brings back what was removed": {func(r *gittest.Repo, by func(gittest.Key, map[string]string), _ func(gittest.Key, string, string)) {
			by(k1, map[string]string{file: text})
			by(k3, map[string]string{file: ""})
			by(k2, map[string]string{"README.md": "y"})
			r.Sign(&k2)
			r.Revert("HEAD~1")
		}, "the repository had it at deploy/approvals/web.yaml before"},
		"the approver writes what was removed elsewhere": {func(_ *gittest.Repo, by func(gittest.Key, map[string]string), _ func(gittest.Key, string, string)) {
			by(k1, map[string]string{"new/approvals/web.yaml": text})
			by(k1, map[string]string{"new/approvals/web.yaml": ""})
			by(k2, map[string]string{file: text})
		}, "the repository had it at new/approvals/web.yaml before"},
		"the approver brings back the approver's own": {func(r *gittest.Repo, by func(gittest.Key, map[string]string), _ func(gittest.Key, string, string)) {
			by(k2, map[string]string{file: text})
			by(k1, map[string]string{file: ""})
			r.Sign(&k2)
			r.Revert("HEAD")
		}, ""},
		"the approver writes a comment into what is brought back": {func(_ *gittest.Repo, by func(gittest.Key, map[string]string), _ func(gittest.Key, string, string)) {
			by(k1, map[string]string{file: text})
			by(k2, map[string]string{file: ""})
			by(k2, map[string]string{file: "# mine\n" + text})
		}, ""},
		"many copies": {func(_ *gittest.Repo, by func(gittest.Key, map[string]string), _ func(gittest.Key, string, string)) {
			files := map[string]string{}
			for i := range maxPlaces + 1 {
				files["new/"+strings.Repeat("a", i+1)] = text
			}
			by(k2, files)
			by(k2, map[string]string{file: text})
		}, "in more than 16 places before"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			repo := gittest.NewRepo(t)
			by := func(k gittest.Key, files map[string]string) {
				repo.Sign(&k)
				repo.Commit(files)
			}
			by(k1, map[string]string{"README.md": "x"})
			tt.story(repo, by, func(k gittest.Key, from, to string) {
				repo.Git("mv", from, to)
				by(k, map[string]string{"README.md": from + " is " + to})
			})
			s := storeOf(repo)
			at, err := LastChange(s, plumbing.NewHash(repo.Head()), file, FileOrigin{})
			if err != nil {
				t.Fatal(err)
			}
			policy := Policy{Signers: signers, Now: time.Now().Add(time.Minute)}
			_, why, _, err := policy.SignerOfFile(t.Context(), s, file, at, plumbing.ZeroHash)
			if err != nil || tt.why == "" && why != "" || !strings.Contains(why, tt.why) {
				t.Errorf("%q %v, want %q\n%s", why, err, tt.why, repo.Git("log", "--graph", "--stat", "--format=%h %s"))
			}
		})
	}
}
