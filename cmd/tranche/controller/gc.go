package controller

import (
	"context"
	"runtime/debug"
	"runtime/metrics"
	"syscall"
	"time"
)

const (
	// gcPercent is how much the heap of an idle controller grows between collections. Most of it
	// is the cache, which stays: Go's default of 100 would hold as much again in garbage.
	gcPercent = 30
	// busyPercent is the same while the controller works, as long as the heap stays below
	// busyHeap. A first sync would else spend a fifth of its CPU time on collections.
	busyPercent = 100
	busyHeap    = 128 << 20
	// busyEvery is how often it is decided, and busyShare the part of one core that a controller
	// uses at least that works.
	busyEvery = time.Second
	busyShare = 10
	// quietFor is after how many such times without work the garbage of the last work is given
	// back to the operating system. The Go runtime would keep it for minutes.
	quietFor = 10
)

// collector sets how much garbage the heap may have.
type collector struct{}

// Start sets it until ctx ends.
func (collector) Start(ctx context.Context) error {
	ticker := time.NewTicker(busyEvery)
	defer ticker.Stop()
	set, used, quiet := gcPercent, ownCPU(), 0
	debug.SetGCPercent(set)
	for {
		select {
		case <-ctx.Done():
			return nil
		case <-ticker.C:
		}
		now := ownCPU()
		busy := now-used > busyEvery/busyShare
		if next := garbagePercent(liveHeap(), busy); next != set {
			set = next
			debug.SetGCPercent(set)
		}
		if quiet++; busy {
			quiet = 0
		} else if quiet == quietFor {
			debug.FreeOSMemory()
			now = ownCPU() // this was no work
		}
		used = now
	}
}

// NeedLeaderElection is false: a standby has a heap, too.
func (collector) NeedLeaderElection() bool { return false }

// garbagePercent returns how much the heap may grow until the next collection.
func garbagePercent(live uint64, busy bool) int {
	if !busy || live >= busyHeap {
		return gcPercent
	}
	room := int((busyHeap - live) * 100 / max(live, 1)) //nolint:gosec // at most a hundred times busyHeap
	room -= room % 10                                   // or each second would set another one
	return max(gcPercent, min(room, busyPercent))
}

// liveHeap returns the bytes that the last collection has kept.
func liveHeap() uint64 {
	sample := []metrics.Sample{{Name: "/gc/heap/live:bytes"}}
	metrics.Read(sample)
	if sample[0].Value.Kind() != metrics.KindUint64 {
		return 0
	}
	return sample[0].Value.Uint64()
}

// ownCPU returns the CPU time of this process.
func ownCPU() time.Duration {
	var usage syscall.Rusage
	if err := syscall.Getrusage(syscall.RUSAGE_SELF, &usage); err != nil {
		return 0
	}
	return time.Duration(usage.Utime.Nano() + usage.Stime.Nano())
}
