package gitserver

import (
	"context"
	"errors"
	"fmt"
	"io"

	"github.com/go-git/go-git/v5/plumbing/format/packfile"
	"github.com/tranche-dev/tranche/gitsync/gittree"
)

// packReader passes a pack on as it comes from the server. It ends it with an error if
// the pack, or an object in it, is larger than it may be. Its last bytes, the checksum,
// are let go only when every object has been checked. Without them go-git does not begin
// to put objects together in memory. A pack of a megabyte can hold an object of a
// gigabyte.
type packReader struct {
	ctx  context.Context
	from io.Reader
	left int64 // bytes that may still come

	held   []byte // the last bytes that came, at most checksumSize
	ready  []byte // bytes to give
	copied *io.PipeWriter
	looked chan error
	err    error // of the end
}

// checksumSize is how many bytes a pack ends with: its SHA-1.
const checksumSize = 20

// readPack returns the pack in r, of at most size bytes, with no object of
// more than objectSize bytes. It must be closed.
func readPack(ctx context.Context, r io.Reader, size, objectSize int64) *packReader {
	out, in := io.Pipe()
	p := &packReader{ctx: ctx, from: r, left: size, copied: in, looked: make(chan error, 1)}
	go func() {
		err := lookAtObjects(out, objectSize)
		_, _ = io.Copy(io.Discard, out) // so that the writer of the pipe does not wait
		p.looked <- err
	}()
	return p
}

// Read gives what has come, without the last bytes.
func (p *packReader) Read(b []byte) (int, error) {
	for len(p.ready) == 0 && p.err == nil {
		p.fill(max(len(b), 2*checksumSize))
	}
	if len(p.ready) == 0 {
		return 0, p.err
	}
	n := copy(b, p.ready)
	p.ready = p.ready[n:]
	return n, nil
}

func (p *packReader) fill(size int) {
	b := make([]byte, size)
	n, err := p.from.Read(b)
	if err == nil {
		err = p.ctx.Err()
	}
	if p.left -= int64(n); p.left < 0 {
		p.err = ErrNoRoom
		return
	}
	if _, copyErr := p.copied.Write(b[:n]); copyErr != nil {
		p.err = copyErr
		return
	}
	p.held = append(p.held, b[:n]...)
	if enough := len(p.held) - checksumSize; enough > 0 {
		p.ready, p.held = p.held[:enough:enough], p.held[enough:]
	}
	if err == nil {
		return
	}
	_ = p.copied.Close() // a pipe's never fails
	if p.err = err; !errors.Is(err, io.EOF) {
		return
	}
	if looked := <-p.looked; looked != nil {
		p.err = looked
		return
	}
	p.ready, p.held = append(p.ready, p.held...), nil
}

// close ends the look at the objects, wherever it is.
func (p *packReader) close() { _ = p.copied.Close() }

// lookAtObjects returns an error at the first object in a pack that would be too large.
// The reader of the pack finds its other faults.
func lookAtObjects(r io.Reader, most int64) error {
	s := packfile.NewScanner(r)
	_, n, err := s.Header()
	if err != nil {
		return nil
	}
	for range n {
		h, err := s.NextObjectHeader()
		if err != nil {
			return nil
		}
		size := h.Length
		var d deltaHead
		to := io.Discard
		if h.Type.IsDelta() {
			to = &d
		}
		if size <= most {
			if _, _, err := s.NextObject(to); err != nil {
				return nil
			}
			size = max(size, d.target())
		}
		if size > most || size < 0 { // less than nothing: a number of 64 bits
			return gittree.Exceeded("", fmt.Sprintf("a file of %s is in its history, and at most %s are taken",
				gittree.FormatSize(size), gittree.FormatSize(most)), "--max-repository-size, of which one file may have a quarter")
		}
	}
	return nil
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

// objectShare is the part of a repository's size that one object in it
// may have. Whether it is needed or not, the index of a pack is made by
// having each object in memory once.
const objectShare = 4
