package main

import (
	"bufio"
	"fmt"
	"os"
	"os/exec"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/tranche-dev/tranche/rollout/clustertest"
)

// sampler keeps the peak of the memory that a process and its descendants take together.
// Pages that several of them have count once, as in the limit of a container.
type sampler struct {
	mu      sync.Mutex
	peak    float64 // MiB
	samples int
}

// sampleEvery is how often the memory is looked at. A shorter peak may be missed.
const sampleEvery = 50 * time.Millisecond

// newSampler samples until the process has ended.
func newSampler(pid int) *sampler {
	s := &sampler{}
	go func() {
		for tick := time.NewTicker(sampleEvery); ; <-tick.C {
			kib, ok := memoryOfTree(pid)
			if !ok {
				tick.Stop()
				return
			}
			s.mu.Lock()
			s.peak, s.samples = max(s.peak, kib/1024), s.samples+1
			s.mu.Unlock()
		}
	}()
	return s
}

// most returns the peak so far, in MiB, and in how many samples.
func (s *sampler) most() (peak float64, samples int) {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.peak, s.samples
}

// memoryOfTree returns the memory of a process and of its descendants, in KiB. It returns
// false if the process has ended.
func memoryOfTree(pid int) (kib float64, ok bool) {
	kib = memoryOf(pid)
	for _, child := range descendantsOf(pid) {
		kib += memoryOf(child)
	}
	return kib, kib > 0
}

// memoryOf returns the resident memory of a process in KiB; 0: it has ended. A page that n
// processes have counts by the nth part, if Linux lets that be read, and else as a whole.
func memoryOf(pid int) float64 {
	text, err := os.ReadFile(fmt.Sprintf("/proc/%d/smaps_rollup", pid))
	if err != nil {
		return statusOf(pid)["VmRSS"]
	}
	for line := range strings.Lines(string(text)) {
		if fields := strings.Fields(line); len(fields) == 3 && fields[0] == "Pss:" {
			kib, _ := strconv.ParseFloat(fields[1], 64)
			return kib
		}
	}
	return 0
}

// The memory and the CPU time of the controller include those of its descendants, also of
// those that have ended.
func TestSampler(t *testing.T) {
	t.Parallel()
	if _, err := os.Stat(fmt.Sprintf("/proc/self/task/%d/children", os.Getpid())); err != nil {
		t.Skip("this system does not list the children of a process: ", err)
	}
	// A shell that runs a shell, which fills 16 MiB and waits for a line. Then so does the first.
	cmd := exec.Command("sh", "-c", `sh -c 'x=$(head -c 16777216 /dev/zero | tr "\0" x); echo full; read line; echo "${#x}" >&2'; echo ended; read line`)
	in, err := cmd.StdinPipe()
	if err != nil {
		t.Fatal(err)
	}
	out, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	p := &process{TB: t, cmd: cmd}
	t.Cleanup(p.stop)
	s, lines := newSampler(cmd.Process.Pid), bufio.NewScanner(out)
	for _, want := range []string{"full", "ended"} {
		if !lines.Scan() || lines.Text() != want {
			t.Fatalf("%q, want %q", lines.Text(), want)
		}
		own := memoryOf(cmd.Process.Pid) / 1024
		now, _ := memoryOfTree(cmd.Process.Pid)
		t.Logf("%s: %.1f MiB, of them %.1f of the shell's own", want, now/1024, own)
		if filled := now/1024 > 16; own > 8 || filled != (want == "full") {
			t.Errorf("%s: %.1f MiB, of them %.1f of the shell's own", want, now/1024, own)
		}
		if want == "full" {
			clustertest.Wait(t, "a sample of that", func() error {
				if peak, n := s.most(); peak < 16 {
					return fmt.Errorf("%.0f MiB at most, in %d samples", peak, n)
				}
				return nil
			})
		}
		if _, err := in.Write([]byte("\n")); err != nil && want == "full" {
			t.Fatal(err)
		}
	}
	if peak, _ := s.most(); peak < 16 {
		t.Errorf("the peak is forgotten: %.1f MiB", peak)
	}
}
