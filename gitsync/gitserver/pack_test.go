package gitserver

import (
	"bytes"
	"compress/zlib"
	"crypto/sha1"
	"encoding/binary"
	"io"
	"testing"

	"github.com/go-git/go-git/v5/plumbing"

	"github.com/tranche-dev/tranche/gitsync/gittest"
)

// A delta of some bytes that makes an object of a terabyte is found out by
// what it says of itself.
func TestDeltaThatGrows(t *testing.T) {
	var pack bytes.Buffer
	entry := func(header []byte, content []byte) {
		pack.Write(header)
		z := zlib.NewWriter(&pack)
		_, _ = z.Write(content)
		_ = z.Close()
	}
	pack.WriteString("PACK")
	_ = binary.Write(&pack, binary.BigEndian, []uint32{2, 2})
	entry([]byte{0x34}, []byte("base")) // a blob of 4 bytes
	delta := append([]byte{4}, binary.AppendUvarint(nil, 1<<40)...)
	base := plumbing.ComputeHash(plumbing.BlobObject, []byte("base"))
	entry(append([]byte{0x70 | byte(len(delta))}, base[:]...), delta)
	sum := sha1.Sum(pack.Bytes())
	pack.Write(sum[:])
	for _, tt := range []struct {
		most int64
		says string
	}{{1 << 20, "a file of 1Ti is in its history"}, {1 << 41, ""}} {
		p := readPack(t.Context(), bytes.NewReader(pack.Bytes()), 1<<20, tt.most)
		got, err := io.ReadAll(p)
		p.close()
		if !gittest.ErrorSays(err, tt.says) {
			t.Errorf("at most %d: %v, want %q", tt.most, err, tt.says)
		}
		if whole := bytes.Equal(got, pack.Bytes()); whole != (tt.says == "") {
			t.Errorf("at most %d: %d of %d bytes were passed on", tt.most, len(got), pack.Len())
		}
		if tt.says != "" && len(got) > pack.Len()-checksumSize {
			t.Error("the checksum was let go before all was looked at")
		}
	}
}

func TestReadPackPassesAllOn(t *testing.T) {
	for _, n := range []int{0, 1, 19, 20, 21, 4096, 100_000} {
		want := []byte(gittest.Noise(n))
		p := readPack(t.Context(), bytes.NewReader(want), 1<<20, 1<<20)
		got, err := io.ReadAll(p)
		p.close()
		if err != nil || !bytes.Equal(got, want) {
			t.Errorf("%d bytes: got %d, %v", n, len(got), err)
		}
	}
}
