package dashboard

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"hash/fnv"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"time"

	"k8s.io/apimachinery/pkg/types"

	"github.com/tranche-dev/tranche/cmd/tranche/dashboard/access"
	"github.com/tranche-dev/tranche/cmd/tranche/dashboard/feed"
	"github.com/tranche-dev/tranche/cmd/tranche/view"
)

const (
	// leastPause is the time between two messages of a stream: at most four a second.
	leastPause = 250 * time.Millisecond
	// reviewEvery is how often a stream asks again who its reader is and what they may see.
	reviewEvery = 15 * time.Second
	// beatEvery is how often a stream says that it goes on, and what the time is. A page that gets nothing for three
	// times as long opens it again. It also keeps proxies from closing the stream.
	beatEvery = 5 * time.Second
	// writeWithin is how long a reader may take to read a message.
	writeWithin = 30 * time.Second
)

// message is what a stream sends.
type message struct {
	Now time.Time `json:"now"`
	// Reset is true if the reader is to forget what it had.
	Reset    bool              `json:"reset,omitempty"`
	Releases []json.RawMessage `json:"releases,omitempty"`
	Sources  []json.RawMessage `json:"sources,omitempty"`
	Gone     []feed.ID         `json:"gone,omitempty"`
	// Release is the document that the stream was asked for. It is null where there is none
	// that the reader may see.
	Release *json.RawMessage `json:"release,omitempty"`
	// Problem says why something may be missing.
	Problem string `json:"problem,omitempty"`
	// Stale says since when and why all of it may be old.
	Stale *feed.Stale `json:"stale,omitempty"`
	// Still says that no controller moves the releases.
	Still string `json:"still,omitempty"`
}

// streaming is a stream to one reader.
type streaming struct {
	*Server
	w    http.ResponseWriter
	user *access.User
	want *feed.ID // the release whose document is asked for

	seq     uint64
	sent    uint64 // the number of the document that was sent last
	began   bool
	seen    uint64 // a digest of what the reader may see
	visible map[string]map[string]bool
	problem string // the one that was sent last
	stale   *feed.Stale
	still   string
}

// stream sends what the reader may see, and then each change. Its events have numbers, by
// which a reader goes on where it was cut.
func (s *Server) stream(w http.ResponseWriter, r *http.Request, u *access.User) {
	st := &streaming{Server: s, w: w, user: u}
	if namespace, name, ok := strings.Cut(r.URL.Query().Get("release"), "/"); ok {
		st.want = &feed.ID{Kind: feed.Releases, Namespace: namespace, Name: name}
	}
	st.resume(cmp.Or(r.Header.Get("Last-Event-ID"), r.URL.Query().Get("after")))
	problem := st.review(r.Context())
	if down := s.Feed.Down(); down != nil && problem != "" { // what the reader may see is not known
		refuse(w, http.StatusServiceUnavailable, down.Error())
		return
	}
	h := w.Header()
	h.Set("Content-Type", "text/event-stream")
	h.Set("X-Accel-Buffering", "no") // proxies that gather messages
	review, beat := time.NewTicker(reviewEvery), time.NewTicker(beatEvery)
	defer review.Stop()
	defer beat.Stop()
	pause := time.NewTimer(0)
	defer pause.Stop()
	for {
		next := s.Feed.Next() // before reading, so that no change is missed
		if err := st.send(r.Context(), problem); err != nil {
			return
		}
		pause.Reset(leastPause)
		select {
		case <-pause.C:
		case <-r.Context().Done():
			return
		}
		select {
		case <-next:
		case <-beat.C:
			if st.write("event: beat\ndata: "+st.Now().UTC().Format(time.RFC3339Nano)+"\n\n") != nil {
				return
			}
		case <-review.C:
			if !st.again(r) {
				return
			}
			problem = st.review(r.Context())
		case <-r.Context().Done():
			return
		}
	}
}

// again finds out whether the reader is still who they were. While the API server does not answer,
// nothing changes, and the reader keeps what they have.
func (st *streaming) again(r *http.Request) bool {
	user, err := st.Auth.Authenticate(r)
	switch {
	case err == nil:
		st.user = user
		return true
	case errors.Is(err, access.ErrNotSignedIn):
		_ = st.write("event: end\ndata: {}\n\n") // it is over in any case
		return false
	}
	return st.Feed.Down() != nil // else the page opens the stream again
}

// resume takes up a stream that was cut, if its numbers are those of this feed.
func (st *streaming) resume(last string) {
	parts := strings.Split(last, "-")
	if len(parts) != 3 || parts[0] != st.Feed.Epoch {
		return
	}
	seq, err := strconv.ParseUint(parts[1], 10, 64)
	seen, wrong := strconv.ParseUint(parts[2], 16, 64)
	if errors.Join(err, wrong) == nil {
		st.seq, st.seen, st.began = seq, seen, true
	}
}

// review finds out what the reader may see. If that has changed, the reader gets all of it
// again, and forgets the rest.
func (st *streaming) review(ctx context.Context) (problem string) {
	names := st.Feed.Namespaces()
	releases, err := access.Visible(ctx, st.Rights, st.user, names, access.BatchReleases)
	sources, wrong := access.Visible(ctx, st.Rights, st.user, names, access.GitSources)
	if err = errors.Join(err, wrong); err != nil {
		first, _, _ := strings.Cut(err.Error(), "\n") // the others are of the same kind
		problem = "Some namespaces may be missing: " + first
		if st.visible != nil && st.Feed.Down() != nil {
			return problem
		}
	}
	digest := fnv.New64a()
	for _, name := range names {
		if releases[name] || sources[name] {
			_, _ = fmt.Fprintf(digest, "%s %t %t\n", name, releases[name], sources[name])
		}
	}
	if sum := digest.Sum64(); sum != st.seen {
		st.seen, st.began = sum, false
	}
	st.visible = map[string]map[string]bool{feed.Releases: releases, feed.Sources: sources}
	return problem
}

// send sends what has changed since the last message.
func (st *streaming) send(ctx context.Context, problem string) error {
	if slices.ContainsFunc(st.Feed.Namespaces(), st.unknown) {
		problem = st.review(ctx)
	}
	c := st.Feed.After(st.seq, !st.began, func(id feed.ID) bool { return st.visible[id.Kind][id.Namespace] })
	m := message{Now: st.Now().UTC(), Reset: c.Reset, Releases: c.Releases, Sources: c.Sources, Gone: c.Gone, Problem: problem}
	detail, changed, err := st.document(ctx)
	if err != nil {
		m.Problem = err.Error()
	}
	if changed {
		m.Release = &detail
	}
	st.seq = c.Seq
	m.Stale, m.Still = st.Feed.Stale(), st.Feed.Still()
	if c.Empty() && !changed && m.Problem == st.problem && m.Stale == st.stale && m.Still == st.still {
		return nil
	}
	st.began, st.problem, st.stale, st.still = true, m.Problem, m.Stale, m.Still
	text, err := json.Marshal(m)
	if err != nil {
		return fmt.Errorf("encoding a message: %w", err)
	}
	return st.write(fmt.Sprintf("id: %s-%d-%x\ndata: %s\n\n", st.Feed.Epoch, st.seq, st.seen, text))
}

// unknown reports whether the reader's rights in a namespace have not been asked for.
func (st *streaming) unknown(namespace string) bool {
	_, known := st.visible[feed.Releases][namespace]
	return !known
}

func (st *streaming) write(text string) error {
	c := http.NewResponseController(st.w)
	_ = c.SetWriteDeadline(time.Now().Add(writeWithin))    // not all writers have one
	defer func() { _ = c.SetWriteDeadline(time.Time{}) }() // one that has passed stays so
	if _, err := st.w.Write([]byte(text)); err != nil {
		return err
	}
	return c.Flush()
}

// absent is the number of a document that is not there.
const absent = ^uint64(0)

// document returns the document of the release that is asked for, and whether it has changed.
func (st *streaming) document(ctx context.Context) (json.RawMessage, bool, error) {
	if st.want == nil {
		return nil, false, nil
	}
	at := absent
	if st.visible[feed.Releases][st.want.Namespace] {
		at = cmp.Or(st.Feed.Changed(*st.want), absent)
	}
	if st.sent == at {
		return nil, false, nil
	}
	if st.sent = at; at == absent {
		return json.RawMessage("null"), true, nil
	}
	doc, err := st.Document(ctx, st.user, types.NamespacedName{Namespace: st.want.Namespace, Name: st.want.Name})
	if err != nil { // it is asked for again
		st.sent = 0
		return nil, false, err
	}
	if doc == nil {
		return json.RawMessage("null"), true, nil
	}
	text, err := json.Marshal(doc)
	return text, true, err
}

// Document is a release, and what can be done about it.
type Document struct {
	*view.Release
	Actions *Actions `json:"actions,omitempty"`
}

// Document returns the document of a release, with what of it the user may see; nil: there is
// none that they may see.
func (s *Server) Document(ctx context.Context, u *access.User, key types.NamespacedName) (*Document, error) {
	facts, missing, err := s.facts(ctx, u, key)
	if facts == nil || err != nil {
		return nil, err
	}
	doc := &Document{view.NewRelease(facts), s.actions(ctx, facts)}
	doc.Missing = missing
	return doc, s.addEvents(ctx, u, facts, doc.Release)
}
