package gitserver

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"path"
	"time"

	"github.com/go-git/go-billy/v5"
	"github.com/go-git/go-git/v5/plumbing"
	"github.com/go-git/go-git/v5/plumbing/format/idxfile"
	"github.com/go-git/go-git/v5/plumbing/format/packfile"

	"github.com/tranche-dev/tranche/gitsync/gittree"
	"github.com/tranche-dev/tranche/gitsync/turns"
	"github.com/tranche-dev/tranche/plan"
	"github.com/tranche-dev/tranche/plan/v1alpha1"
)

const (
	// bytesOfObject is how many bytes of a repository's size there are for each object that
	// one fetch may bring. An index takes about half as much memory for each while it is made.
	bytesOfObject = 1024
	// lightPack is the memory that an index may take while others are made. A pack of some
	// kilobytes may have an object of hundreds of megabytes, and many servers may send one.
	lightPack = 8 << 20
	// unpackedShare is how many times the size of a repository the objects that one fetch brings
	// may have together. An index is made by having each of them once.
	unpackedShare = 32
	// chainShare is the part of a repository's size that a chain of deltas may have, each made
	// from the one before. go-git may have all of them in memory.
	chainShare = 2
	// indexWithin is how long the index of a pack may wait for others, and how long it may take.
	indexWithin = 3 * time.Minute
)

// received is a pack that has come, and that has no index yet.
type received struct {
	*packFile
	memory int64 // that its index takes at most
	limits gittree.Limits
}

// receivePack brings a pack of at most so many bytes into the files of a store, and looks at each
// object as it comes. go-git makes the index meanwhile, and takes memory by what the head of the
// pack says. Here the index is made once all of the pack is on the disk.
func receivePack(ctx context.Context, files billy.Filesystem, from io.Reader, room int64, l gittree.Limits) (*received, error) {
	to, err := newPackFile(files)
	if err != nil {
		return nil, err
	}
	in := &bounded{ctx: ctx, from: from, left: room}
	memory, err := lookAtPack(io.TeeReader(in, to), l)
	if err != nil {
		return nil, errors.Join(cmp.Or(in.err, err), to.discard()) // go-git does not always wrap the cause
	}
	return &received{to, memory, l}, nil
}

// lookAtPack reads a pack, and returns how much memory its index takes. It returns an error at
// the first object that would be too large, before its content comes.
func lookAtPack(from io.Reader, l gittree.Limits) (memory int64, err error) {
	s := packfile.NewScanner(from)
	_, n, err := s.Header()
	if err != nil {
		return 0, err
	}
	if most := l.RepositorySize / bytesOfObject; int64(n) > most {
		return 0, gittree.Exceeded("", fmt.Sprintf("the server sends %d objects, and at most %d are taken", n, most),
			fmt.Sprintf("--max-repository-size, which allows one object for each %d bytes", bytesOfObject))
	}
	var unpacked int64
	for range n {
		_, size, err := nextObject(s, mostOfObject(l))
		if err != nil {
			return 0, err
		}
		unpacked += size
		if most := l.RepositorySize * unpackedShare; unpacked > most {
			return 0, gittree.Exceeded("", fmt.Sprintf("all versions of its files have more than %s together", gittree.FormatSize(most)),
				"--max-repository-size, of which they may have 32 times as much")
		}
	}
	_, err = io.Copy(io.Discard, from) // what is left is the checksum
	return int64(n)*bytesOfObject/2 + unpacked, err
}

// index makes the index of the pack, and gives both their names. If that takes much memory, it
// waits for its turn. It is no longer the server's time that passes then.
func (r *received) index(ctx context.Context) (err error) {
	defer func() { err = errors.Join(err, r.discard()) }()
	if r.memory <= lightPack {
		return indexPack(ctx, r.packFile)
	}
	late := &plan.Problem{
		Reason: v1alpha1.ReasonFetchFailed, Err: errors.New("it waits for the indexes of other large repositories"), Retry: true,
	}
	err = turns.Alone(ctx, indexWithin, func(ctx context.Context) error {
		late.Err, late.Hint = ErrNotIndexed, "make the repository smaller, or give the controller more CPU"
		if _, err := r.Seek(0, io.SeekStart); err != nil {
			return err
		}
		if err := checkChains(&interruptible{r, ctx}, r.limits); err != nil {
			return err
		}
		return indexPack(ctx, r.packFile)
	})
	if errors.Is(err, context.DeadlineExceeded) {
		return late
	}
	return err
}

// ErrNotIndexed says that a pack takes too long to be indexed.
var ErrNotIndexed = fmt.Errorf("the pack that the server has sent was not indexed within %s", indexWithin)

// mostOfObject is how many bytes one object may have. An index is made by having each object in
// memory, needed or not.
func mostOfObject(l gittree.Limits) int64 {
	const usual = 64 << 20
	return max(min(l.RepositorySize/4, usual), l.RepositorySize/16)
}

// nextObject returns the size of the next object in a pack: of what it makes, if it is a delta. A
// pack of a megabyte can hold an object of a gigabyte.
func nextObject(s *packfile.Scanner, most int64) (h *packfile.ObjectHeader, size int64, err error) {
	if h, err = s.NextObjectHeader(); err != nil {
		return nil, 0, err
	}
	size = h.Length
	var d deltaHead
	to := io.Discard
	if h.Type.IsDelta() {
		to = &d
	}
	if size <= most {
		if _, _, err := s.NextObject(to); err != nil {
			return nil, 0, err
		}
		size = max(size, d.target())
	}
	if size > most || size < 0 { // less than nothing: a number of 64 bits
		return nil, 0, gittree.Exceeded("", fmt.Sprintf("a file of %s is in its history, and at most %s are taken",
			gittree.FormatSize(size), gittree.FormatSize(most)), "--max-repository-size, of which one file may have a sixteenth")
	}
	return h, size, nil
}

// checkChains returns an error if an object would take too much memory with those that it is a
// delta of. A delta names its base by an earlier place in the pack, or by its hash. In the
// second case it may be of all others that do.
func checkChains(from io.Reader, l gittree.Limits) error {
	s := packfile.NewScanner(from)
	_, n, err := s.Header()
	if err != nil {
		return err
	}
	chains := map[int64]int64{} // by place
	var longest, byHash int64
	for range n {
		h, size, err := nextObject(s, mostOfObject(l))
		if err != nil {
			return err
		}
		if h.Type == plumbing.REFDeltaObject {
			byHash += size
		}
		chain := size + chains[h.OffsetReference]
		chains[h.Offset], longest = chain, max(longest, chain)
		if most := l.RepositorySize / chainShare; longest+byHash > most {
			return gittree.Exceeded("", fmt.Sprintf("a chain of deltas has more than %s together", gittree.FormatSize(most)),
				"--max-repository-size, of which one may have a half")
		}
	}
	return nil
}

func indexPack(ctx context.Context, pack *packFile) error {
	if _, err := pack.Seek(0, io.SeekStart); err != nil {
		return err
	}
	var w idxfile.Writer
	parser, err := packfile.NewParser(packfile.NewScanner(&interruptible{pack, ctx}), &w)
	if err != nil {
		return err
	}
	sum, err := parser.Parse()
	if err != nil {
		return err
	}
	index, err := w.Index()
	if err != nil {
		return err
	}
	to, err := newPackFile(pack.files)
	if err != nil {
		return err
	}
	if _, err := idxfile.NewEncoder(to).Encode(index); err != nil {
		return errors.Join(err, to.discard())
	}
	name := path.Join(packFolder, "pack-"+sum.String())
	if err := to.keep(name + ".idx"); err != nil {
		return err
	}
	return pack.keep(name + ".pack")
}

// bounded ends with an error after so many bytes, and with the context.
type bounded struct {
	ctx  context.Context
	from io.Reader
	left int64
	err  error // that it has ended with, if not as a pack does
}

func (r *bounded) Read(b []byte) (int, error) {
	n, err := r.from.Read(b)
	if r.left -= int64(n); r.left < 0 {
		n, err = 0, ErrNoRoom
	}
	if err = cmp.Or(r.ctx.Err(), err); err != nil && !errors.Is(err, io.EOF) {
		r.err = err
	}
	return n, err
}

// interruptible is a file that is read until its context ends.
type interruptible struct {
	io.ReadSeeker
	ctx context.Context
}

func (f *interruptible) Read(b []byte) (int, error) {
	if err := f.ctx.Err(); err != nil {
		return 0, err
	}
	return f.ReadSeeker.Read(b)
}

// packFolder is the folder of the packs of a repository.
const packFolder = "objects/pack"

// packFile is a file of a pack's folder that has no name yet.
type packFile struct {
	billy.File
	files billy.Filesystem
	kept  bool
}

func newPackFile(files billy.Filesystem) (*packFile, error) {
	f, err := files.TempFile(packFolder, "tmp_pack_")
	if err != nil {
		return nil, fmt.Errorf("making a file for a pack: %w", err)
	}
	return &packFile{File: f, files: files}, nil
}

// keep gives the file its name. A reader of a file of that name goes on reading.
func (f *packFile) keep(name string) error {
	f.kept = true
	if err := errors.Join(f.Close(), f.files.Rename(f.Name(), name)); err != nil {
		return errors.Join(err, f.files.Remove(f.Name()))
	}
	return nil
}

// discard removes the file, unless it was kept.
func (f *packFile) discard() error {
	if f.kept {
		return nil
	}
	err := errors.Join(f.Close(), f.files.Remove(f.Name()))
	if errors.Is(err, os.ErrNotExist) { // the mirror was removed meanwhile
		return nil
	}
	return err
}

// deltaHead keeps the beginning of a delta: the size of what it is made from,
// and of what it makes, seven bits to a byte.
type deltaHead struct{ head []byte }

func (d *deltaHead) Write(b []byte) (int, error) {
	const longest = 2 * 10 // bytes of two numbers of 64 bits
	if room := longest - len(d.head); room > 0 {
		d.head = append(d.head, b[:min(room, len(b))]...)
	}
	return len(b), nil
}

// target returns the size of what the delta makes; 0 where there is none.
func (d *deltaHead) target() int64 {
	rest := d.head
	var n uint64
	for range 2 {
		n = 0
		for shift := 0; len(rest) > 0 && shift < 64; shift += 7 {
			b := rest[0]
			rest = rest[1:]
			n |= uint64(b&0x7f) << shift
			if b < 0x80 {
				break
			}
		}
	}
	return int64(n)
}
