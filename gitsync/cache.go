package gitsync

import (
	"sync"
	"time"

	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"

	"github.com/tranche-dev/tranche/gitsync/authors"
	"github.com/tranche-dev/tranche/gitsync/desired"
	"github.com/tranche-dev/tranche/gitsync/execute"
	"github.com/tranche-dev/tranche/gitsync/gitobject"
	"github.com/tranche-dev/tranche/gitsync/report"
	"github.com/tranche-dev/tranche/gitsync/signers"
	"github.com/tranche-dev/tranche/gitsync/writeback"
	"github.com/tranche-dev/tranche/plan"
)

// syncCache has by GitSource what is kept between syncs.
type syncCache struct {
	mu      sync.Mutex
	entries map[types.NamespacedName]cacheEntry
	// installing are the sources whose first sync installs plans, with no approval to judge. It
	// is known while the sync goes on.
	installing map[types.NamespacedName]bool
}

// cacheEntry is what is kept between syncs. Losing it costs a rendering.
type cacheEntry struct {
	desired *desired.State
	// kept is the same for the commit that is applied, while another one is refused.
	kept *desired.State
	// applied is what of desired counts.
	applied *plan.Set
	brought map[string]signers.FileOrigin // by file
	// exceeded are the commits that take more to render than they may.
	exceeded *desired.ExceededCommits
	// approved are the steps that plans had when they were approved.
	approved desired.ApprovedSteps
	order    gitobject.Precedence       // of the commits that brought approvals
	changes  authors.Known              // see [source.policy]
	places   map[string][]signers.Place // see [source.policy]
	reported report.Known
	notes    string // that are there, as far as we know
	pushed   *writeback.Pushed
	last     *lastSync // nil while something is left to do
	passed   passed
	executed execute.Cache
	// awaiting is how old an answer of the server may be for the next sync, while other
	// sources are waited for. A thousand may wait for one.
	awaiting time.Duration
	// busy is of the rendering that the last sync had no place for, or nil.
	busy desired.Busy
	// maintained is of what is applied, while a commit waits for other sources.
	maintained maintenance
}

// load returns what is kept of a source.
func (c *syncCache) load(name types.NamespacedName) cacheEntry {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.entries[name]
}

func (c *syncCache) store(name types.NamespacedName, entry cacheEntry) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.entries == nil {
		c.entries = map[types.NamespacedName]cacheEntry{}
	}
	c.entries[name] = entry
}

func (c *syncCache) drop(name types.NamespacedName) {
	c.mu.Lock()
	defer c.mu.Unlock()
	delete(c.entries, name)
	delete(c.installing, name)
}

// installs notes whether a sync of a source installs plans, with no approval to judge.
func (c *syncCache) installs(name types.NamespacedName, does bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if !does {
		delete(c.installing, name)
		return
	}
	if c.installing == nil {
		c.installing = map[types.NamespacedName]bool{}
	}
	c.installing[name] = true
}

// isInstalling reports whether the last sync of a source installs plans, with no approval to
// judge.
func (c *syncCache) isInstalling(name types.NamespacedName) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.installing[name]
}

// applied returns what of a commit a source has applied, and what of it had an autoscaler; nil
// before the first sync.
func (c *syncCache) applied(source types.NamespacedName) (*plan.Set, map[string]bool) {
	entry := c.load(source)
	return entry.applied, entry.executed.Autoscaled
}

// known returns how many objects of a kind in a namespace all up-to-date sources have applied.
func (c *syncCache) known(gvk schema.GroupVersionKind, namespace string) int {
	c.mu.Lock()
	defer c.mu.Unlock()
	n := 0
	for _, entry := range c.entries {
		if entry.last != nil && entry.last.footprint != nil {
			n += entry.last.footprint.Count(gvk, namespace)
		}
	}
	return n
}

// spread returns how many objects of a kind all up-to-date sources have applied, and in how many
// namespaces.
func (c *syncCache) spread(gvk schema.GroupVersionKind) (objects, namespaces int) {
	c.mu.Lock()
	defer c.mu.Unlock()
	by := map[string]int{}
	for _, entry := range c.entries {
		if entry.last != nil && entry.last.footprint != nil {
			entry.last.footprint.Counts(gvk, by)
		}
	}
	for _, n := range by {
		objects += n
	}
	return objects, len(by)
}
