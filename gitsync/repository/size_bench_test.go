package repository

import (
	"bufio"
	"flag"
	"fmt"
	"io"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"text/tabwriter"
	"time"

	"github.com/tranche-dev/tranche/gitsync/gitserver"
	"github.com/tranche-dev/tranche/gitsync/gittest"
)

var (
	largeSize = flag.Int("large", 1024, "MiB of the repository of BenchmarkLargeRepository")
	manyRefs  = flag.Int("refs", 10_000, "branches and tags of BenchmarkManyRefs")
)

// BenchmarkLargeRepository clones a repository of files that do not get smaller, of 1 MiB
// each, and brings one more commit, beside the git command line.
func BenchmarkLargeRepository(b *testing.B) {
	for b.Loop() {
		bare := filepath.Join(b.TempDir(), "large.git")
		fastImport(b, bare, func(out io.Writer) {
			_, _ = fmt.Fprintf(out, "commit refs/heads/main\ncommitter Ada <ada@example.org> 1700000000 +0000\ndata 1\nx\n")
			writeBenchManifest(out, 0)
			random, blob := rand.NewChaCha8([32]byte{1}), make([]byte, 1<<20)
			for i := range *largeSize {
				_, _ = random.Read(blob) // it never fails
				_, _ = fmt.Fprintf(out, "M 100644 inline assets/%04d.bin\ndata %d\n%s\n", i, len(blob), blob)
			}
		})
		compareFetches(b, bare, fmt.Sprintf("%d MiB in %d files", *largeSize, *largeSize+1))
		if err := os.RemoveAll(bare); err != nil {
			b.Fatal(err)
		}
	}
}

// BenchmarkManyRefs does so with a repository of very many branches and tags, each of which
// has a commit of its own. The server lists all of them, and a mirror fetches one.
func BenchmarkManyRefs(b *testing.B) {
	for b.Loop() {
		bare := filepath.Join(b.TempDir(), "refs.git")
		fastImport(b, bare, func(out io.Writer) {
			_, _ = fmt.Fprintf(out, "commit refs/heads/main\nmark :1\ncommitter Ada <ada@example.org> 1700000000 +0000\ndata 1\nx\n")
			writeBenchManifest(out, 0)
			for i := range *manyRefs {
				kind := []string{"heads", "tags"}[i%2]
				_, _ = fmt.Fprintf(out, "commit refs/%s/team/feature-%05d\n", kind, i)
				_, _ = fmt.Fprintf(out, "committer Ada <ada@example.org> %d +0000\ndata 1\nx\nfrom :1\n", 1_700_000_001+i)
				writeBenchManifest(out, i+1)
			}
		})
		benchGit(b, nil, "-C", bare, "pack-refs", "--all")
		compareFetches(b, bare, fmt.Sprintf("%d references", *manyRefs))
	}
}

func writeBenchManifest(out io.Writer, version int) {
	text := fmt.Sprintf("apiVersion: v1\nkind: ConfigMap\nmetadata: {name: c}\ndata: {version: '%d'}\n", version)
	_, _ = fmt.Fprintf(out, "M 100644 inline deploy/c.yaml\ndata %d\n%s\n", len(text), text)
}

// fastImport makes a bare repository of a stream.
func fastImport(b *testing.B, bare string, write func(io.Writer)) {
	b.Helper()
	benchGit(b, nil, "init", "-q", "--bare", "-b", "main", bare)
	benchGit(b, nil, "-C", bare, "config", "pack.window", "0") // the server does not look for deltas where there are none
	importInto(b, bare, write)
}

func importInto(b *testing.B, bare string, write func(io.Writer)) {
	b.Helper()
	r, w := io.Pipe()
	go func() {
		out := bufio.NewWriterSize(w, 1<<20)
		write(out)
		_ = w.CloseWithError(out.Flush())
	}()
	benchGit(b, r, "-C", bare, "fast-import", "--quiet")
}

// compareFetches prints what the first clone takes and what one commit does, for the mirror
// and for git. Each is a process of its own, whose memory is measured.
func compareFetches(b *testing.B, bare, what string) {
	b.Helper()
	url := gittest.Serve(b, filepath.Dir(bare), gittest.ServeOptions{}).URL + "/" + filepath.Base(bare)
	idle := peak(b, "nothing")
	ours, theirs := b.TempDir(), filepath.Join(b.TempDir(), "clone.git")
	commits := 0
	commit := func() {
		commits++
		importInto(b, bare, func(out io.Writer) {
			_, _ = fmt.Fprint(out, "commit refs/heads/main\n")
			_, _ = fmt.Fprintf(out, "committer Ada <ada@example.org> %d +0000\ndata 1\nx\nfrom refs/heads/main^0\n", 1_800_000_000+commits)
			writeBenchManifest(out, -commits)
		})
	}
	var text strings.Builder
	table := tabwriter.NewWriter(&text, 0, 0, 2, ' ', 0)
	_, _ = fmt.Fprintf(table, "%s\ttime\tmemory\tdisk\n", what)
	line := func(who string, mib float64, took time.Duration, dir string) {
		_, _ = fmt.Fprintf(table, "%s\t%.2f s\t%.0f MiB\t%.1f MiB\n", who, took.Seconds(), mib, float64(diskSize(dir))/(1<<20))
	}
	took := func(process string, args ...string) (float64, time.Duration) {
		began := time.Now()
		return peak(b, process, args...), time.Since(began)
	}
	fetch := []string{"git", "-C", theirs, "-c", "gc.auto=0", "fetch", "-q", url, "+refs/heads/main:refs/heads/main"}
	mib, d := took("look", ours, url)
	line("first clone", mib-idle, d, ours)
	mib, d = took("run", "git", "clone", "-q", "--bare", "--single-branch", "--no-tags", url, theirs)
	line("git clone --bare --single-branch --no-tags", mib, d, theirs)
	commit()
	mib, d = took("look", ours, url)
	line("one commit, after a start", mib-idle, d, ours)
	mib, d = took("run", fetch...)
	line("git fetch", mib, d, theirs)
	d = inOneProcess(b, ours, url, commit)
	_, _ = fmt.Fprintf(table, "one commit, in a process that runs\t%.2f s\n", d.Seconds())
	_ = table.Flush()
	fmt.Printf("\n\n%s\n", text.String())
	b.ReportMetric(0, "ns/op")
}

// inOneProcess is the median time of a commit where the mirror is open already.
func inOneProcess(b *testing.B, dir, url string, commit func()) time.Duration {
	b.Helper()
	u, err := gitserver.ParseURL(url)
	if err != nil {
		b.Fatal(err)
	}
	r, ms := gitserver.Remote{URL: u}, benchCache(dir)
	var all []time.Duration
	for range 6 {
		commit()
		began := time.Now()
		s, err := ms.Of(r).Fetch(b.Context(), r, "main")
		if err != nil {
			b.Fatal(err)
		}
		all = append(all, time.Since(began))
		if !s.Fetched {
			b.Error("the commit was not fetched")
		}
		s.Close()
	}
	all = all[1:] // the first one opens the mirror
	slices.Sort(all)
	return all[len(all)/2]
}
