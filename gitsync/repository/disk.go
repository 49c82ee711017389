package repository

import (
	"encoding/hex"
	"io/fs"
	"os"
	"path/filepath"
	"sync"

	"github.com/prometheus/client_golang/prometheus"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/metrics"

	"github.com/tranche-dev/tranche/gitsync/gitserver"
)

// The disk that the mirrors take, at /metrics.
var (
	mirrorCount = prometheus.NewGauge(prometheus.GaugeOpts{Name: "tranche_mirrors", Help: "Mirrors of repositories on disk."})
	mirrorBytes = prometheus.NewGauge(prometheus.GaugeOpts{
		Name: "tranche_mirror_bytes", Help: "Disk that the mirrors of repositories take, in bytes.",
	})
)

func init() { metrics.Registry.MustRegister(mirrorCount, mirrorBytes) }

// measured is what each mirror took when its disk changed last.
var measured struct {
	sync.Mutex
	bytes map[string]int64 // by folder
	total int64
}

// measure counts what the mirror takes by now.
func (m *Mirror) measure() { record(m.dir, diskSize(m.dir)) }

func record(dir string, size int64) {
	measured.Lock()
	defer measured.Unlock()
	if measured.bytes == nil {
		measured.bytes = map[string]int64{}
	}
	measured.total += size - measured.bytes[dir]
	if measured.bytes[dir] = size; size == 0 {
		delete(measured.bytes, dir)
	}
	mirrorCount.Set(float64(len(measured.bytes)))
	mirrorBytes.Set(float64(measured.total))
}

// diskSize returns the bytes of all files below a folder.
func diskSize(dir string) int64 {
	var size int64
	_ = filepath.WalkDir(dir, func(_ string, e fs.DirEntry, err error) error { // what went meanwhile takes nothing
		if err != nil || e.IsDir() {
			return nil
		}
		if i, err := e.Info(); err == nil {
			size += i.Size()
		}
		return nil
	})
	return size
}

// sweep removes what a fetch that did not come to its end has left: go-git
// leaves it where it is.
func (c *clone) sweep() {
	left, err := filepath.Glob(filepath.Join(c.dir, "objects", "pack", "tmp_*"))
	if err != nil {
		return // the pattern is valid, unless the folder's name has a bracket
	}
	for _, f := range left {
		_ = os.Remove(f) // it is tried again at the next fetch
	}
}

// Use returns the mirror of a source's repository, and remembers that the source uses
// it. It removes the mirror that the source used before if no other source uses that.
func (ms *Cache) Use(source types.NamespacedName, r gitserver.Remote) *Mirror {
	ms.mu.Lock()
	defer ms.mu.Unlock()
	name := MirrorName(r)
	if was, ok := ms.users[source]; ok && was != name {
		ms.drop(source)
	}
	ms.users[source] = name
	return ms.named(name)
}

// Release says that a source is gone, or that another replica has it.
func (ms *Cache) Release(source types.NamespacedName) {
	ms.mu.Lock()
	defer ms.mu.Unlock()
	ms.drop(source)
}

func (ms *Cache) drop(source types.NamespacedName) {
	name, ok := ms.users[source]
	if delete(ms.users, source); ok && !ms.used(name) {
		ms.named(name).clear()
	}
}

func (ms *Cache) used(name string) bool {
	for _, n := range ms.users {
		if n == name {
			return true
		}
	}
	return false
}

// clear removes the mirror from disk. It stays in memory, and its next user clones the
// repository again. A mirror that is being used stays on disk until the next start.
func (m *Mirror) clear() {
	select {
	case m.owner <- struct{}{}:
		defer func() { <-m.owner }()
	default:
		return
	}
	m.current, m.seen = nil, advertised{}
	clear(m.refused)
	_ = os.RemoveAll(m.dir) // it is tried again at the next start
	record(m.dir, 0)
}

// Sweep removes the mirrors that no source uses: those of sources that went
// while no controller was running.
func (ms *Cache) Sweep(wanted map[string]bool) (removed []string) {
	entries, err := os.ReadDir(ms.dir)
	if err != nil {
		return nil // there is nothing yet
	}
	ms.mu.Lock()
	defer ms.mu.Unlock()
	for _, e := range entries {
		name := e.Name()
		if sum, err := hex.DecodeString(name); err != nil || len(sum) != hashedNameSize || wanted[name] || ms.used(name) {
			continue
		}
		if os.RemoveAll(filepath.Join(ms.dir, name)) == nil {
			removed = append(removed, name)
		}
	}
	return removed
}
