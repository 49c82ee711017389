package feed_test

import (
	"encoding/json"
	"fmt"
	"maps"
	"math/rand/v2"
	"testing"

	"github.com/tranche-dev/tranche/cmd/tranche/dashboard/feed"
)

type doc struct {
	Name    string `json:"name"`
	Version int    `json:"version"`
}

// A reader that is cut at any time goes on at its last number. It has all that there is, and
// nothing of another namespace.
func TestFeed_ReaderThatWasCutLosesNothing(t *testing.T) {
	random := rand.New(rand.NewPCG(1, 2))
	f := feed.New()
	visible := func(id feed.ID) bool { return id.Namespace == "shop" }
	truth, have := map[string]int{}, map[string]int{}
	var seq uint64
	for round := range 20_000 {
		id := feed.ID{Kind: feed.Releases, Namespace: []string{"shop", "bank"}[random.IntN(2)], Name: fmt.Sprint(random.IntN(40))}
		switch random.IntN(4) {
		case 0:
			f.Delete(id)
			if visible(id) {
				delete(truth, id.Name)
			}
		case 1:
			f.Touch(id)
		default:
			f.Put(id, doc{id.Name, round})
			if visible(id) {
				truth[id.Name] = round
			}
		}
		if random.IntN(30) > 0 {
			continue // the stream is cut
		}
		c := f.After(seq, false, visible)
		if seq = c.Seq; c.Reset {
			clear(have)
		}
		for _, text := range c.Releases {
			var d doc
			if err := json.Unmarshal(text, &d); err != nil {
				t.Fatal(err)
			}
			have[d.Name] = d.Version
		}
		for _, id := range c.Gone {
			delete(have, id.Name)
		}
		if !maps.Equal(truth, have) {
			t.Fatalf("round %d: the reader has %v, and there is %v", round, have, truth)
		}
	}
}

// A reader who missed more deletions than the feed remembers gets everything again.
func TestFeed_ForgottenDeletionsReset(t *testing.T) {
	f := feed.New()
	id := func(n int) feed.ID { return feed.ID{Kind: feed.Releases, Namespace: "shop", Name: fmt.Sprint(n)} }
	all := func(feed.ID) bool { return true }
	f.Put(id(0), doc{})
	seq := f.After(0, true, all).Seq
	for n := range 5000 {
		f.Put(id(n), doc{})
		f.Delete(id(n))
	}
	if c := f.After(seq, false, all); !c.Reset || len(c.Releases) != 0 {
		t.Errorf("reset=%t with %d rows", c.Reset, len(c.Releases))
	}
}
