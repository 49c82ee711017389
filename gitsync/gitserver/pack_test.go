package gitserver

import (
	"bytes"
	"compress/zlib"
	"context"
	"crypto/sha1"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"testing"
	"testing/iotest"
	"time"

	"github.com/go-git/go-billy/v5"
	"github.com/go-git/go-billy/v5/osfs"
	"github.com/go-git/go-git/v5/plumbing"

	"github.com/tranche-dev/tranche/gitsync/gittest"
	"github.com/tranche-dev/tranche/gitsync/gittree"
	"github.com/tranche-dev/tranche/gitsync/turns"
)

// packOf writes a pack whose head says that it has so many objects.
func packOf(says uint32, objects ...[]byte) []byte {
	var pack bytes.Buffer
	pack.WriteString("PACK")
	_ = binary.Write(&pack, binary.BigEndian, []uint32{2, says})
	for _, o := range objects {
		pack.Write(o)
	}
	sum := sha1.Sum(pack.Bytes())
	return append(pack.Bytes(), sum[:]...)
}

// entry is an object of a pack: what says its type and length, and its content.
func entry(header, content []byte) []byte {
	var b bytes.Buffer
	b.Write(header)
	z := zlib.NewWriter(&b)
	_, _ = z.Write(content)
	_ = z.Close()
	return b.Bytes()
}

// blobOf is one of at least 16 bytes.
func blobOf(content []byte) []byte {
	header := []byte{0xb0 | byte(len(content)&15)}
	for n := len(content) >> 4; n > 0; n >>= 7 {
		header = append(header, byte(n&0x7f)|0x80)
	}
	header[len(header)-1] &= 0x7f
	return entry(header, content)
}

// manyDeltas are a file of 63 MiB, and deltas that each copy it.
func manyDeltas(n int) [][]byte {
	const size = 63 << 20
	file := make([]byte, size)
	base := plumbing.ComputeHash(plumbing.BlobObject, file)
	delta := binary.AppendUvarint(binary.AppendUvarint(nil, size), size)
	for left := size; left > 0; left -= 1 << 16 {
		delta = append(delta, 0x80) // copy 64 KiB from the beginning
	}
	list := [][]byte{blobOf(file)}
	header := []byte{0xf0 | byte(len(delta)&15), byte(len(delta) >> 4)}
	for range n {
		list = append(list, entry(append(header, base[:]...), delta))
	}
	return list
}

// chainOfDeltas are the same, but each is made from the one before.
func chainOfDeltas(n int) [][]byte {
	list := manyDeltas(n)
	for i, o := range list[1:] {
		place := uint64(len(list[i])) // of the one before, counted back
		header := []byte{o[0]&0x8f | 0x60, o[1], byte(place & 0x7f)}
		for place >>= 7; place > 0; place >>= 7 {
			place--
			header = slices.Insert(header, 2, byte(place&0x7f)|0x80)
		}
		list[i+1] = append(header, o[2+20:]...)
	}
	return list
}

func storePack(ctx context.Context, files billy.Filesystem, from io.Reader, room int64, l gittree.Limits) error {
	pack, err := receivePack(ctx, files, from, room, l)
	if err != nil {
		return err
	}
	return pack.index(ctx)
}

// store returns what is in the folder of packs after a pack has come.
func store(t *testing.T, ctx context.Context, pack []byte, l gittree.Limits) ([]string, error) {
	t.Helper()
	dir := t.TempDir()
	err := storePack(ctx, osfs.New(dir), bytes.NewReader(pack), l.RepositorySize, l)
	names, globErr := filepath.Glob(filepath.Join(dir, packFolder, "*"))
	if globErr != nil {
		t.Fatal(globErr)
	}
	return names, err
}

// A pack that is not as its head says, or too large, leaves nothing, and takes no memory by
// what it says of itself.
func TestPackThatIsRefused(t *testing.T) {
	delta := append([]byte{4}, binary.AppendUvarint(nil, 1<<40)...)
	base := plumbing.ComputeHash(plumbing.BlobObject, []byte("base"))
	grows := packOf(2, entry([]byte{0x34}, []byte("base")), entry(append([]byte{0x70 | byte(len(delta))}, base[:]...), delta))
	some := blobOf([]byte("sixteen bytes or more"))
	whole := packOf(1, some)
	otherSum := bytes.Clone(whole)
	otherSum[len(otherSum)-1]++
	for _, tt := range []struct {
		name string
		pack []byte
		says string
	}{
		{"four billion objects that it has not", packOf(1<<32-1, some),
			"the server sends 4294967295 objects, and at most 1048576 are taken"},
		{"as many as may be, and it has not", packOf(1<<20, some), "EOF"},
		{"a delta of some bytes that makes a terabyte", grows, "a file of 1Ti is in its history"},
		{"a file of zeros that is small in the pack", packOf(1, blobOf(make([]byte, 65<<20))), "a file of 65Mi is in its history"},
		{"deltas that make a large file again and again", packOf(1+600, manyDeltas(600)...),
			"all versions of its files have more than 32Gi together"},
		{"a long chain of deltas", packOf(1+9, chainOfDeltas(9)...),
			"a chain of deltas has more than 512Mi together"},
		{"nothing", nil, "empty packfile"},
		{"no pack", []byte("HTTP/1.1 200 OK"), "signature"},
		{"it ends in an object", whole[:len(whole)-25], "EOF"},
		{"it ends in its checksum", whole[:len(whole)-5], "EOF"},
		{"another checksum", otherSum, "checksum"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			var before, after runtime.MemStats
			runtime.ReadMemStats(&before)
			left, err := store(t, t.Context(), tt.pack, gittree.DefaultLimits())
			runtime.ReadMemStats(&after)
			if !gittest.ErrorSays(err, tt.says) {
				t.Errorf("got %v, want %q", err, tt.says)
			}
			if len(left) > 0 {
				t.Errorf("it leaves %v", left)
			}
			if taken := after.TotalAlloc - before.TotalAlloc; taken > 32<<20 {
				t.Errorf("it took %d bytes of memory", taken)
			}
		})
	}
}

// The caller gets the cause that has ended a pack, wherever in the pack it was.
func TestStorePack_Ends(t *testing.T) {
	broken := errors.New("the connection broke")
	pack := packOf(2, blobOf([]byte("sixteen bytes or more")), blobOf([]byte(gittest.Noise(100))))
	for n := range len(pack) {
		from := io.MultiReader(bytes.NewReader(pack[:n]), iotest.ErrReader(broken))
		files := osfs.New(t.TempDir())
		if err := storePack(t.Context(), files, from, 1<<20, gittree.DefaultLimits()); !errors.Is(err, broken) {
			t.Errorf("after %d of %d bytes: %v", n, len(pack), err)
		}
		if err := storePack(t.Context(), files, bytes.NewReader(pack), int64(n), gittree.DefaultLimits()); !errors.Is(err, ErrNoRoom) {
			t.Errorf("with room for %d of %d bytes: %v", n, len(pack), err)
		}
		if left, err := files.ReadDir(packFolder); err != nil || len(left) > 0 {
			t.Fatalf("it leaves %v: %v", left, err)
		}
	}
}

// git reads what was stored: full packs, and deltas by offset and by name.
func TestStorePack_AsGit(t *testing.T) {
	repo := gittest.NewRepo(t)
	text := gittest.Noise(8 << 10)
	for i := range 20 {
		repo.Commit(map[string]string{"large": fmt.Sprintf("%s%d\n", text, i), fmt.Sprintf("%d/small", i): fmt.Sprint(i)})
	}
	for _, options := range [][]string{nil, {"--delta-base-offset"}, {"--depth=0"}} {
		t.Run(fmt.Sprint(options), func(t *testing.T) {
			cmd := exec.Command("git", append([]string{"-C", repo.Work, "pack-objects", "--revs", "--stdout", "-q"}, options...)...)
			cmd.Stdin = strings.NewReader("HEAD\n")
			pack, err := cmd.Output()
			if err != nil {
				t.Fatal(err)
			}
			dir := filepath.Join(t.TempDir(), "bare")
			gittest.Git(t, repo.Work, "init", "-q", "--bare", dir)
			if err := storePack(t.Context(), osfs.New(dir), bytes.NewReader(pack), 1<<20, gittree.DefaultLimits()); err != nil {
				t.Fatal(err)
			}
			gittest.Git(t, dir, "fsck", "--strict", repo.Head())
			want := gittest.Git(t, repo.Work, "rev-list", "--objects", "HEAD")
			if got := gittest.Git(t, dir, "rev-list", "--objects", repo.Head()); got != want {
				t.Errorf("git finds\n%s\nwant\n%s", got, want)
			}
			indexes, err := filepath.Glob(filepath.Join(dir, packFolder, "*.idx"))
			if err != nil || len(indexes) != 1 {
				t.Fatalf("the indexes are %v: %v", indexes, err)
			}
			gittest.Git(t, dir, "verify-pack", indexes[0])
			if files, err := os.ReadDir(filepath.Join(dir, packFolder)); err != nil || len(files) != 2 {
				t.Errorf("the folder has %v: %v", files, err)
			}
		})
	}
}

// The index of a large pack is made alone, when its server's time may be over. Others are made
// meanwhile.
func TestStorePack_OneLargeAtATime(t *testing.T) {
	syncs := turns.New(2)
	in := func(namespace string) context.Context {
		ctx, end, err := syncs.Working(t.Context(), namespace)
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(end)
		return ctx
	}
	begun, others := make(chan bool), make(chan bool)
	other := in("other")
	go func() {
		_ = turns.Alone(other, time.Hour, func(context.Context) error { // it cannot fail
			close(begun)
			<-others
			return nil
		})
	}()
	<-begun
	ctx, cancel := context.WithCancel(in("own"))
	files := osfs.New(t.TempDir())
	large, err := receivePack(ctx, files, bytes.NewReader(packOf(1, blobOf(make([]byte, 9<<20)))), 1<<20, gittree.DefaultLimits())
	if err != nil {
		t.Fatal(err)
	}
	small := packOf(1, blobOf([]byte("sixteen bytes or more")))
	if names, err := store(t, ctx, small, gittree.DefaultLimits()); err != nil || len(names) != 2 {
		t.Errorf("a small pack: %v, %v", names, err)
	}
	cancel() // an index that is made beside others would end with it
	ended := make(chan error, 1)
	go func() { ended <- large.index(ctx) }()
	close(others)
	if err := <-ended; err != nil {
		t.Errorf("a large pack: %v", err)
	}
	if names, err := files.ReadDir(packFolder); err != nil || len(names) != 2 {
		t.Errorf("a large pack is stored as %v: %v", names, err)
	}
}
