package engine_test

import (
	"fmt"
	"math/rand/v2"
	"regexp"
	"runtime/debug"
	"slices"
	"strings"
	"testing"
)

// kind is what a violation is about: its first line without the numbers.
func (v *violation) kind() string {
	line, _, _ := strings.Cut(v.text, "\n")
	return v.rule + ": " + figures.ReplaceAllString(line, "#")
}

var figures = regexp.MustCompile(`web-\w+|v?\b[0-9][0-9a-z%]*\b( [0-9]+%?)*`)

// run makes moves from a setup, then checks that the release ends. It returns
// what was violated; nil: nothing. The moves may be shortened to those that
// were made.
func run(s setup, moves []string) (v *violation) {
	var c *cluster
	return runTo(s, append(slices.Clone(moves), "ends"), &c)
}

// runTo is run without the end. It sets c to the cluster.
func runTo(s setup, moves []string, c **cluster) (v *violation) {
	defer func() {
		switch p := recover().(type) {
		case nil:
		case violation:
			v = &p
		default:
			v = &violation{"panic", fmt.Sprintf("%v\n%s", p, debug.Stack())}
		}
	}()
	*c = newCluster(s)
	for _, m := range moves {
		(*c).exec(m)
	}
	return nil
}

// walk makes random moves until a rule is broken, or there have been enough.
func walk(seed uint64) (s setup, moves []string, v *violation) {
	r := rand.New(rand.NewPCG(seed, seed))
	s = randomSetup(r)
	defer func() {
		switch p := recover().(type) {
		case nil:
		case violation:
			v = &p
		default:
			v = &violation{"panic", fmt.Sprintf("%v\n%s", p, debug.Stack())}
		}
	}()
	c, m := newCluster(s), randomMood(r)
	m.extra = extraMoves(seed)
	moves = []string{"quiet", "bring 2"}
	if s.midway > 0 {
		moves = []string{"quiet", "bring 3"}[:r.IntN(3)]
	}
	for _, move := range moves {
		c.exec(move)
	}
	for range 60 + r.IntN(240) {
		move := nextMove(m, r, c)
		moves = append(moves, move)
		if !c.exec(move) {
			moves = moves[:len(moves)-1]
		}
	}
	c.ends()
	return s, moves, nil
}

// shorten drops the moves that a violation does not need.
func shorten(s setup, moves []string, kind string) ([]string, *violation) {
	best := run(s, moves)
	if best == nil || best.kind() != kind {
		return moves, best
	}
	tries := 0
	for size := len(moves) / 2; size > 0; {
		dropped := false
		for i := 0; i+size <= len(moves); {
			if tries++; tries > 300 && !*full {
				return moves, best
			}
			fewer := slices.Concat(moves[:i], moves[i+size:])
			if v := run(s, fewer); v != nil && v.kind() == kind {
				moves, best, dropped = fewer, v, true
				continue
			}
			i += size
		}
		if !dropped || size > 1 {
			size /= 2
		}
	}
	return moves, best
}

// TestAdversary walks at random through [cluster], with the moves of a
// second writer, lagging caches, failing pods and time. Every walk prints its
// seed; -walks and -first choose walks, as for TestRandom.
func TestAdversary(t *testing.T) {
	found := map[string]int{}
	for i := range uint64(*walks) {
		seed := *first + i
		s, moves, v := walk(seed)
		if v == nil {
			continue
		}
		kind := v.kind()
		if found[kind]++; found[kind] > 1 || len(found) > 8 && !*full {
			continue
		}
		short, shortest := shorten(s, moves, kind)
		if shortest == nil {
			short, shortest = moves, v
		}
		t.Errorf("seed %d: %s: %s\nsetup %s\npath %s", seed, shortest.rule, shortest.text, s, strings.Join(short, " → "))
	}
	for rule, n := range found {
		t.Logf("%q is broken by %d of %d walks", rule, n, *walks)
	}
}
