package signers

import (
	"bytes"
	"fmt"
	"os/exec"
	"runtime"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/go-git/go-git/v5/plumbing"

	"github.com/tranche-dev/tranche/gitsync/gittest"
	"github.com/tranche-dev/tranche/gitsync/signature"
)

// historyOf is a history for git fast-import. The first commit has all files, and each later
// one changes one of them.
func historyOf(commits, files int) string {
	var history bytes.Buffer
	for i := range commits {
		fmt.Fprintf(&history, "commit refs/heads/main\ncommitter Ada <ada@example.org> %d +0000\ndata 6\nChange\n", 1_700_000_000+i)
		for n := range files {
			if i > 0 && n > 0 {
				break
			}
			at, text := (i+n)%files, fmt.Sprintf("kind: ConfigMap\nmetadata: {name: a}\ndata: {a: '%d'}\n", i)
			fmt.Fprintf(&history, "M 100644 inline apps/%d/%d/a.yaml\ndata %d\n%s\n", at/1000, at%1000, len(text), text)
		}
	}
	return history.String()
}

// cpuTime is what the process has used.
func cpuTime(b *testing.B) time.Duration {
	var u syscall.Rusage
	if err := syscall.Getrusage(syscall.RUSAGE_SELF, &u); err != nil {
		b.Fatal(err)
	}
	return time.Duration(u.Utime.Nano() + u.Stime.Nano())
}

// The time until it is known who has written an approval, in a history of 20,000 commits and
// 20,000 files.
func BenchmarkSignerOfFile(b *testing.B) {
	const commits, files, file = 20_000, 20_000, "deploy/approvals/web.yaml"
	repo, grace := gittest.NewRepo(b), gittest.NewSSHKey(b, "ed25519", "")
	git := func(in string, args ...string) string {
		c := exec.CommandContext(b.Context(), "git", args...)
		c.Dir, c.Stdin = repo.Work, strings.NewReader(in)
		out, err := c.CombinedOutput()
		if err != nil {
			b.Fatalf("git %s: %v\n%s", args, err, out)
		}
		return strings.TrimSpace(string(out))
	}
	git(historyOf(commits, files), "fast-import", "--quiet", "--force")
	repo.Sign(&grace)
	tip := git("", "rev-parse", "main")
	commit := func(parent, text string) string {
		git("", "read-tree", parent)
		git("", "update-index", "--add", "--cacheinfo", "100644,"+git(text, "hash-object", "-w", "--stdin")+","+file)
		return git("", "commit-tree", "-S", "-m", "Approve", "-p", parent, git("", "write-tree"))
	}
	of := func(release, note string) string {
		return note + "kind: BatchApproval\nmetadata: {name: web}\nspec:\n  # 1\n  step: 0\n  # 2\n  # 3\n  commit: \"" + release + "\"\n"
	}
	plan := "kind: BatchApproval\nspec: {plan: " + strings.Repeat("ab", 32) + "}\n"
	before := git("", "rev-parse", tip+"~5000")
	first := commit(tip, of(tip, ""))
	keys, err := signature.ParseKeys(map[string][]byte{"allowed_signers": []byte("grace@example.org " + grace.Public)})
	if err != nil {
		b.Fatal(err)
	}
	for _, c := range []struct{ name, tip, release string }{
		{"made on the commit before", commit(tip, of(before, "# Made on "+tip+".\n")), before},
		{"of the release before", first, tip},
		{"of a release 5000 commits ago", commit(tip, of(before, "")), before},
		{"a step by hand", commit(first, strings.Replace(of(tip, ""), "step: 0", "step: 1", 1)), tip},
		{"of a plan by hand", commit(tip, plan), plumbing.ZeroHash.String()},
		{"of a plan made on the commit before", commit(tip, "# Made on "+tip+".\n"+plan), plumbing.ZeroHash.String()},
	} {
		b.Run(c.name, func(b *testing.B) {
			var before, after runtime.MemStats
			cpu := cpuTime(b)
			runtime.ReadMemStats(&before)
			for b.Loop() {
				s := storeOf(repo)
				at, err := LastChange(s, plumbing.NewHash(c.tip), file, FileOrigin{})
				if err != nil {
					b.Fatal(err)
				}
				policy := Policy{Signers: keys, Now: time.Now().Add(time.Minute)}
				if _, why, _, err := policy.SignerOfFile(b.Context(), s, file, at, plumbing.NewHash(c.release)); err != nil || why != "" {
					b.Fatal(why, err)
				}
			}
			runtime.ReadMemStats(&after)
			b.ReportMetric(float64(after.TotalAlloc-before.TotalAlloc)/float64(b.N)/(1<<20), "MiB/op")
			b.ReportMetric((cpuTime(b)-cpu).Seconds()/float64(b.N), "cpu-s/op")
			b.ReportMetric(float64(after.HeapSys)/(1<<20), "MiB-heap")
		})
	}
}
