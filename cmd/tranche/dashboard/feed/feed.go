package feed

import (
	"cmp"
	"crypto/rand"
	"encoding/json"
	"slices"
	"sync"
)

// The kinds of rows.
const (
	Releases = "releases"
	Sources  = "sources"
)

// maxGone is how many deletions are remembered. A reader who missed more of them gets
// everything again.
const maxGone = 4096

// ID names a row.
type ID struct {
	Kind      string `json:"kind"`
	Namespace string `json:"namespace"`
	Name      string `json:"name"`
}

func (id ID) compare(other ID) int {
	return cmp.Or(cmp.Compare(id.Namespace, other.Namespace), cmp.Compare(id.Name, other.Name))
}

type row struct {
	doc json.RawMessage
	seq uint64 // of the last change of doc
	all uint64 // of the last change of anything that the whole document has
}

type deletion struct {
	id  ID
	seq uint64
}

// Feed has the rows. Each change gets the next number, and a reader asks for the changes
// after a number: a stream that was cut loses nothing.
type Feed struct {
	// Epoch names this feed. The numbers of another feed mean nothing here.
	Epoch string

	mu      sync.Mutex
	seq     uint64
	rows    map[ID]*row
	gone    []deletion
	lost    uint64 // deletions up to this number are forgotten
	changed chan struct{}
	stale   *Stale
	still   string
}

// SetStale says since when and why the rows may be old; nil: they are not.
func (f *Feed) SetStale(s *Stale) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if (s == nil) != (f.stale == nil) || s != nil && *s != *f.stale {
		f.stale = s
		f.wake()
	}
}

// Stale returns since when and why the rows may be old; nil: they are not.
func (f *Feed) Stale() *Stale {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.stale
}

// SetStill says that no controller moves releases, and since when; empty: one does.
func (f *Feed) SetStill(text string) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.still != text {
		f.still = text
		f.wake()
	}
}

// Still says that no controller moves releases, and since when; empty: one does.
func (f *Feed) Still() string {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.still
}

// New returns an empty feed.
func New() *Feed {
	return &Feed{Epoch: rand.Text()[:10], rows: map[ID]*row{}, changed: make(chan struct{})}
}

// wake lets all waiting readers look. The lock is held.
func (f *Feed) wake() {
	close(f.changed)
	f.changed = make(chan struct{})
}

// Put sets a row. The whole document of the row is taken to have changed as well.
func (f *Feed) Put(id ID, doc any) {
	text, err := json.Marshal(doc)
	if err != nil {
		panic(err) // rows are plain values
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	f.seq++
	r := f.rows[id]
	if r == nil {
		r = &row{}
		f.rows[id] = r
		f.gone = slices.DeleteFunc(f.gone, func(d deletion) bool { return d.id == id })
	}
	r.all = f.seq
	if string(r.doc) != string(text) {
		r.doc, r.seq = text, f.seq
	}
	f.wake()
}

// Touch says that the whole document of a row has changed, and the row has not.
func (f *Feed) Touch(id ID) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if r := f.rows[id]; r != nil {
		f.seq++
		r.all = f.seq
		f.wake()
	}
}

// Delete removes a row.
func (f *Feed) Delete(id ID) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.rows[id] == nil {
		return
	}
	delete(f.rows, id)
	f.seq++
	f.gone = append(f.gone, deletion{id, f.seq})
	if n := len(f.gone) - maxGone; n > 0 {
		f.lost = f.gone[n-1].seq
		f.gone = slices.Delete(f.gone, 0, n)
	}
	f.wake()
}

// Changes are the rows that have changed after a number.
type Changes struct {
	// Seq is the number of the last change in it.
	Seq uint64
	// Reset is true if it has all rows, and the reader is to forget those it had.
	Reset    bool
	Releases []json.RawMessage
	Sources  []json.RawMessage
	Gone     []ID
}

// Empty reports whether there is nothing to send.
func (c *Changes) Empty() bool {
	return !c.Reset && len(c.Releases)+len(c.Sources)+len(c.Gone) == 0
}

// After returns what has changed after a number, of the rows that may be seen. With reset it
// returns all of these.
func (f *Feed) After(seq uint64, reset bool, visible func(ID) bool) Changes {
	f.mu.Lock()
	defer f.mu.Unlock()
	c := Changes{Seq: f.seq, Reset: reset || seq < f.lost || seq > f.seq}
	var ids []ID
	for id, r := range f.rows {
		if (c.Reset || r.seq > seq) && visible(id) {
			ids = append(ids, id)
		}
	}
	slices.SortFunc(ids, ID.compare)
	for _, id := range ids {
		if id.Kind == Sources {
			c.Sources = append(c.Sources, f.rows[id].doc)
		} else {
			c.Releases = append(c.Releases, f.rows[id].doc)
		}
	}
	for _, d := range f.gone {
		if !c.Reset && d.seq > seq && visible(d.id) {
			c.Gone = append(c.Gone, d.id)
		}
	}
	return c
}

// Changed returns the number of the last change of the whole document of a row; 0: there is
// no such row.
func (f *Feed) Changed(id ID) uint64 {
	f.mu.Lock()
	defer f.mu.Unlock()
	if r := f.rows[id]; r != nil {
		return r.all
	}
	return 0
}

// Next returns a channel that is closed at the next change.
func (f *Feed) Next() <-chan struct{} {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.changed
}

// Namespaces returns those of the rows and of the deletions that are remembered, sorted.
func (f *Feed) Namespaces() []string {
	f.mu.Lock()
	defer f.mu.Unlock()
	seen := map[string]bool{}
	for id := range f.rows {
		seen[id.Namespace] = true
	}
	for _, d := range f.gone {
		seen[d.id.Namespace] = true
	}
	names := make([]string, 0, len(seen))
	for name := range seen {
		names = append(names, name)
	}
	slices.Sort(names)
	return names
}
