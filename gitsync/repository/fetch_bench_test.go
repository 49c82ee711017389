package repository

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"github.com/tranche-dev/tranche/gitsync/gitserver"
	"github.com/tranche-dev/tranche/gitsync/gittest"
	"github.com/tranche-dev/tranche/gitsync/gittree"
)

// The repository of the benchmark.
const (
	benchFiles   = 50_000
	benchCommits = 10_000
	benchFolders = 500
)

// benchProcess is set in a process of its own, whose memory is measured. With "look" it
// fetches a repository once; with "run" it runs a command and prints the command's peak.
// The benchmark itself is too large to run one: a process begins with the peak of its
// parent.
const benchProcess = "TRANCHE_BENCH_PROCESS"

func init() {
	var peak float64
	var err error
	switch os.Getenv(benchProcess) {
	case "":
		return
	case "look":
		err = lookOnce(os.Args[1], os.Args[2])
		peak = ownPeak()
	case "run":
		peak, err = runCommand(os.Args[1], os.Args[2:])
	case "nothing":
		peak = ownPeak()
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
	fmt.Println(peak)
	os.Exit(0)
}

// ownPeak is the most memory that this process had, in MiB.
func ownPeak() float64 {
	status, err := os.ReadFile("/proc/self/status")
	if err != nil {
		return 0 // not Linux
	}
	_, rest, _ := strings.Cut(string(status), "VmHWM:")
	var kib float64
	_, _ = fmt.Sscan(rest, &kib)
	return kib / 1024
}

func runCommand(name string, args []string) (float64, error) {
	cmd := exec.Command(name, args...)
	cmd.Stderr = os.Stderr
	if err := cmd.Run(); err != nil {
		return 0, err
	}
	usage, ok := cmd.ProcessState.SysUsage().(*syscall.Rusage)
	if !ok {
		return 0, nil
	}
	return float64(usage.Maxrss) / 1024, nil
}

func lookOnce(dir, raw string) error {
	u, err := gitserver.ParseURL(raw)
	if err != nil {
		return err
	}
	r := gitserver.Remote{URL: u}
	s, err := benchCache(dir).Of(r).Fetch(context.Background(), r, "main")
	if err == nil {
		s.Close()
	}
	return err
}

// benchCache has room for the repository of BenchmarkLargeRepository, which the controller's
// default of --max-repository-size refuses: its pack is some 0.4 MiB too large.
func benchCache(dir string) *Cache {
	ms := NewCache(dir)
	ms.Limits = gittree.Limits{RepositorySize: 4 << 30}.WithDefaults()
	return ms
}

// benchRepo writes a bare repository with git fast-import.
func benchRepo(b *testing.B) string {
	b.Helper()
	dir := filepath.Join(b.TempDir(), "big.git")
	benchGit(b, nil, "init", "-q", "--bare", "-b", "main", dir)
	r, w := io.Pipe()
	go func() {
		var out bytes.Buffer
		for i := range benchCommits {
			fmt.Fprintf(&out, "commit refs/heads/main\ncommitter Ada <ada@example.org> %d +0000\ndata 1\nx\n", 1_700_000_000+i)
			if i == 0 {
				for f := range benchFiles {
					writeBenchFile(&out, f, 0)
				}
			} else {
				writeBenchFile(&out, i*37%benchFiles, i)
			}
			if out.Len() > 1<<20 || i == benchCommits-1 {
				_, _ = out.WriteTo(w)
			}
		}
		_ = w.Close()
	}()
	benchGit(b, r, "-C", dir, "fast-import", "--quiet")
	return dir
}

func writeBenchFile(out *bytes.Buffer, file, version int) {
	content := fmt.Sprintf("apiVersion: v1\nkind: ConfigMap\nmetadata: {name: c%d}\ndata: {version: '%d'}\n", file, version)
	fmt.Fprintf(out, "M 100644 inline apps/d%03d/c%05d.yaml\ndata %d\n%s\n", file%benchFolders, file, len(content), content)
}

// pushOne makes a commit on top.
func pushOne(b *testing.B, dir string, n int) {
	b.Helper()
	var out bytes.Buffer
	fmt.Fprintf(&out, "commit refs/heads/main\ncommitter Ada <ada@example.org> %d +0000\ndata 1\nx\nfrom refs/heads/main^0\n", 1_800_000_000+n)
	writeBenchFile(&out, n*41%benchFiles, -n-1)
	benchGit(b, &out, "-C", dir, "fast-import", "--quiet")
}

func benchGit(b *testing.B, in io.Reader, args ...string) {
	b.Helper()
	cmd := exec.Command("git", args...)
	cmd.Stdin = in
	if out, err := cmd.CombinedOutput(); err != nil {
		b.Fatalf("git %s: %v\n%s", strings.Join(args, " "), err, out)
	}
}

// peak is the most memory that a process of its own had, in MiB.
func peak(b *testing.B, process string, args ...string) float64 {
	b.Helper()
	cmd := exec.Command(os.Args[0], args...)
	cmd.Env = append(os.Environ(), benchProcess+"="+process)
	cmd.Stderr = os.Stderr
	out, err := cmd.Output()
	if err != nil {
		b.Fatalf("%v: %v", args, err)
	}
	var mib float64
	_, _ = fmt.Sscan(string(out), &mib)
	return mib
}

// BenchmarkFetch brings one new commit, and all of them at first, beside the git command
// line. ours/fetch is what a sync of the controller does, with the strict walk of the
// tree.
func BenchmarkFetch(b *testing.B) {
	bare := benchRepo(b)
	url := gittest.Serve(b, filepath.Dir(bare), gittest.ServeOptions{}).URL + "/big.git"
	size := fmt.Sprintf("files=%d/commits=%d", benchFiles, benchCommits)
	n := 0
	b.Run("ours/fetch/"+size, func(b *testing.B) {
		dir := b.TempDir()
		if err := lookOnce(dir, url); err != nil {
			b.Fatal(err)
		}
		u, err := gitserver.ParseURL(url)
		if err != nil {
			b.Fatal(err)
		}
		r, ms := gitserver.Remote{URL: u}, NewCache(dir)
		for b.Loop() {
			b.StopTimer()
			if ms.Of(r).current != nil && ms.Of(r).current.packs() > maxPacks-2 {
				ms = NewCache(b.TempDir())
				if s, err := ms.Of(r).Fetch(b.Context(), r, "main"); err == nil {
					s.Close()
				}
			}
			n++
			pushOne(b, bare, n)
			b.StartTimer()
			s, err := ms.Of(r).Fetch(b.Context(), r, "main")
			if err != nil {
				b.Fatal(err)
			}
			s.Close()
		}
		n++
		pushOne(b, bare, n)
		b.ReportMetric(peak(b, "look", ms.dir, url)-peak(b, "nothing"), "peak-MiB")
		b.ReportMetric(float64(diskSize(ms.dir))/(1<<20), "disk-MiB")
	})
	b.Run("git/fetch/"+size, func(b *testing.B) {
		clone := filepath.Join(b.TempDir(), "clone.git")
		benchGit(b, nil, "clone", "-q", "--bare", "--single-branch", url, clone)
		fetch := []string{"-C", clone, "-c", "gc.auto=0", "fetch", "-q", url, "+refs/heads/main:refs/heads/main"}
		for b.Loop() {
			b.StopTimer()
			n++
			pushOne(b, bare, n)
			b.StartTimer()
			benchGit(b, nil, fetch...)
		}
		n++
		pushOne(b, bare, n)
		b.ReportMetric(peak(b, "run", append([]string{"git"}, fetch...)...), "peak-MiB")
		b.ReportMetric(float64(diskSize(clone))/(1<<20), "disk-MiB")
	})
	b.Run("ours/clone/"+size, func(b *testing.B) {
		for b.Loop() {
			if err := lookOnce(b.TempDir(), url); err != nil {
				b.Fatal(err)
			}
		}
		b.ReportMetric(peak(b, "look", b.TempDir(), url)-peak(b, "nothing"), "peak-MiB")
	})
	b.Run("git/clone/"+size, func(b *testing.B) {
		clone := func(b *testing.B) []string {
			return []string{"clone", "-q", "--bare", "--single-branch", url, filepath.Join(b.TempDir(), "clone.git")}
		}
		for b.Loop() {
			benchGit(b, nil, clone(b)...)
		}
		b.ReportMetric(peak(b, "run", append([]string{"git"}, clone(b)...)...), "peak-MiB")
	})
}
