package gitserver

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"path"

	"github.com/go-git/go-billy/v5"
	"github.com/go-git/go-git/v5/plumbing/format/idxfile"
	"github.com/go-git/go-git/v5/plumbing/format/packfile"

	"github.com/tranche-dev/tranche/gitsync/gittree"
	"github.com/tranche-dev/tranche/gitsync/turns"
)

const (
	// objectShare is the part of a repository's size that one object in it may have. Whether
	// it is needed or not, the index of a pack is made by having each object in memory once.
	objectShare = 4
	// bytesOfObject is how many bytes of a repository's size there are for each object that
	// one fetch may bring. An index takes about as much memory for each while it is made.
	bytesOfObject = 512
	// lightPack is the memory that an index may take while others are made. A pack of some
	// kilobytes may have an object of hundreds of megabytes, and many servers may send one.
	lightPack = 8 << 20
)

// storePack brings a pack of at most so many bytes, and its index, into the files of a store.
// go-git does both at the same time, and takes memory by what the head of the pack says. Here
// all of the pack is on the disk, and each object looked at, before the index is made. The pack
// is there once its index is.
func storePack(ctx context.Context, files billy.Filesystem, from io.Reader, room int64, l gittree.Limits) (err error) {
	pack, err := newPackFile(files)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, pack.discard()) }()
	in := &bounded{ctx: ctx, from: from, left: room}
	memory, err := receivePack(pack, in, l)
	if err != nil {
		return cmp.Or(in.err, err) // go-git does not always wrap the cause
	}
	if memory > lightPack {
		end, err := turns.Alone(ctx)
		if err != nil {
			return fmt.Errorf("waiting for the indexes of other large packs: %w", err)
		}
		defer end()
	}
	if _, err := pack.Seek(0, io.SeekStart); err != nil {
		return err
	}
	return indexPack(ctx, files, pack)
}

// receivePack writes a pack to a file as it comes. It returns how much memory its index
// takes, and an error at the first object that would be too large, before its content comes.
func receivePack(to io.Writer, from io.Reader, l gittree.Limits) (memory int64, err error) {
	from = io.TeeReader(from, to)
	s := packfile.NewScanner(from)
	_, n, err := s.Header()
	if err != nil {
		return 0, err
	}
	if most := l.RepositorySize / bytesOfObject; int64(n) > most {
		return 0, gittree.Exceeded("", fmt.Sprintf("the server sends %d objects, and at most %d are taken", n, most),
			fmt.Sprintf("--max-repository-size, which allows one object for each %d bytes", bytesOfObject))
	}
	var largest int64
	for range n {
		size, err := nextObject(s, l.RepositorySize/objectShare)
		if err != nil {
			return 0, err
		}
		largest = max(largest, size)
	}
	_, err = io.Copy(io.Discard, from) // what is left is the checksum
	return int64(n)*bytesOfObject + 2*largest, err
}

// nextObject returns the size of the next object in a pack: of what it makes, if it is a delta. A
// pack of a megabyte can hold an object of a gigabyte.
func nextObject(s *packfile.Scanner, most int64) (int64, error) {
	h, err := s.NextObjectHeader()
	if err != nil {
		return 0, err
	}
	size := h.Length
	var d deltaHead
	to := io.Discard
	if h.Type.IsDelta() {
		to = &d
	}
	if size <= most {
		if _, _, err := s.NextObject(to); err != nil {
			return 0, err
		}
		size = max(size, d.target())
	}
	if size > most || size < 0 { // less than nothing: a number of 64 bits
		return 0, gittree.Exceeded("", fmt.Sprintf("a file of %s is in its history, and at most %s are taken",
			gittree.FormatSize(size), gittree.FormatSize(most)), "--max-repository-size, of which one file may have a quarter")
	}
	return size, nil
}

// indexPack makes the index of a pack, and gives both their names.
func indexPack(ctx context.Context, files billy.Filesystem, pack *packFile) error {
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
	to, err := newPackFile(files)
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
