package statistics_test

import (
	"fmt"
	"math"
	"math/bits"
	"math/rand/v2"
	"slices"
	"testing"

	"github.com/tranche-dev/tranche/rollout/engine/statistics"
)

var (
	higher = statistics.Rule{Worse: statistics.Higher, Confidence: 0.95}
	lower  = statistics.Rule{Worse: statistics.Lower, Confidence: 0.95}
)

func proportion(t testing.TB, count, total float64) statistics.Proportion {
	t.Helper()
	p, err := statistics.NewProportion(count, total)
	if err != nil {
		t.Fatal(err)
	}
	return p
}

func samples(t testing.TB, values []float64) statistics.Samples {
	t.Helper()
	s, err := statistics.NewSamples(values)
	if err != nil {
		t.Fatal(err)
	}
	return s
}

// near reports whether two numbers agree to a part of the larger one, or are both tiny.
func near(a, b, part float64) bool {
	return a == b || math.Abs(a-b) <= part*max(math.Abs(a), math.Abs(b)) || math.Abs(a)+math.Abs(b) < 1e-290
}

// subsets calls f with each set of m of n things, as bits.
func subsets(n, m int, f func(set uint)) {
	for set := range uint(1) << n {
		if bits.OnesCount(set) == m {
			f(set)
		}
	}
}

// The twin gives the requests to the two revisions in all ways. It counts those in which the
// update revision has as many errors. All tables of up to 7 requests a side are tried.
func TestProportions_Twin(t *testing.T) {
	for m := 1; m <= 7; m++ {
		for n := 1; n <= 7; n++ {
			for errors := 0; errors <= m+n; errors++ {
				ways, all := map[int]float64{}, 0.0
				subsets(m+n, m, func(set uint) {
					ways[bits.OnesCount(set&(1<<errors-1))]++
					all++
				})
				for of := max(0, errors-n); of <= min(m, errors); of++ {
					var more, less float64
					for k, w := range ways {
						if k >= of {
							more += w
						}
						if k <= of {
							less += w
						}
					}
					update := proportion(t, float64(of), float64(m))
					stable := proportion(t, float64(errors-of), float64(n))
					name := fmt.Sprintf("%d/%d against %d/%d", of, m, errors-of, n)
					if p := higher.Proportions(update, stable).P; !near(p, more/all, 1e-12) {
						t.Errorf("%s, higher: p %v, counted %v", name, p, more/all)
					}
					if p := lower.Proportions(update, stable).P; !near(p, less/all, 1e-12) {
						t.Errorf("%s, lower: p %v, counted %v", name, p, less/all)
					}
				}
			}
		}
	}
}

// pairs counts by definition: 2 for each pair in which a is higher, 1 for equal ones.
func pairs(a, b []float64) (u int) {
	for _, x := range a {
		for _, y := range b {
			switch {
			case x > y:
				u += 2
			case x == y:
				u++
			}
		}
	}
	return u
}

// split returns the values in a set, and the others.
func split(values []float64, set uint) (in, out []float64) {
	for i, v := range values {
		if set>>i&1 == 1 {
			in = append(in, v)
		} else {
			out = append(out, v)
		}
	}
	return in, out
}

// differences are those of each value of a to each of b, sorted.
func differences(a, b []float64) (d []float64) {
	for _, x := range a {
		for _, y := range b {
			d = append(d, x-y)
		}
	}
	slices.Sort(d)
	return d
}

// checkTwin compares the evidence of each split of the values with one that counts splits.
func checkTwin(t *testing.T, values []float64, m int) {
	t.Helper()
	us := map[int]int{}
	all := 0
	subsets(len(values), m, func(set uint) {
		us[pairs(split(values, set))]++
		all++
	})
	distinct := make([]float64, len(values))
	for i := range distinct {
		distinct[i] = float64(i)
	}
	free := map[int]int{} // the distribution without ties
	subsets(len(values), m, func(set uint) { free[pairs(split(distinct, set))]++ })
	subsets(len(values), m, func(set uint) {
		update, stable := split(values, set)
		u := pairs(update, stable)
		more, less := 0, 0
		for k, ways := range us {
			if k >= u {
				more += ways
			}
			if k <= u {
				less += ways
			}
		}
		up, down := higher.Samples(samples(t, update), samples(t, stable)), lower.Samples(samples(t, update), samples(t, stable))
		if want := float64(more) / float64(all); !near(up.P, want, 1e-12) {
			t.Errorf("%v against %v, higher: p %v, counted %v", update, stable, up.P, want)
		}
		if want := float64(less) / float64(all); !near(down.P, want, 1e-12) {
			t.Errorf("%v against %v, lower: p %v, counted %v", update, stable, down.P, want)
		}
		d := differences(update, stable)
		if want := (d[(len(d)-1)/2] + d[len(d)/2]) / 2; up.Effect != want || down.Effect != -want {
			t.Errorf("%v against %v: effects %v and %v, not %v", update, stable, up.Effect, down.Effect, want)
		}
		k, tail := 0, 0
		for tail += free[0]; float64(tail) <= 0.05*float64(all); tail += free[2*k] {
			k++
		}
		want := math.Inf(1)
		if k > 0 {
			want = d[len(d)-k]
		}
		if up.Most != want {
			t.Errorf("%v against %v: at most %v, not %v", update, stable, up.Most, want)
		}
	})
}

// All ways in which up to 8 values may be equal, in all splits; and some of up to 6
// values a side.
func TestSamples_Twin(t *testing.T) {
	for n := 2; n <= 8; n++ {
		for equal := range uint(1) << (n - 1) { // bit i: value i+1 equals value i
			values := make([]float64, n)
			for i := 1; i < n; i++ {
				values[i] = values[i-1] + float64(1-equal>>(i-1)&1)*float64(i)
			}
			for m := 1; m < n; m++ {
				checkTwin(t, values, m)
			}
		}
	}
	r := rand.New(rand.NewPCG(16, 1))
	for range 8 {
		values := make([]float64, 9+r.IntN(4)) // at most 12
		for i := range values {
			values[i] = float64(r.IntN(1+r.IntN(20))) - 3
		}
		slices.Sort(values)
		checkTwin(t, values, len(values)/2)
	}
}

// Above 50 values a side the bound comes from a normal distribution. The exact one, by the
// recursion of Mann and Whitney (1947), leads to the same difference or the next one.
func TestSamples_BoundOfMany(t *testing.T) {
	const n = 60
	ways := make([][]float64, n+1) // of u, for as many of the one side as of the other so far
	for i := range ways {
		ways[i] = make([]float64, n*n+1)
		ways[i][0] = 1
	}
	for range n { // one more of the other side
		for i := 1; i <= n; i++ {
			// The largest value is of the other side, and exceeds all i of this one; or it is of this one.
			for u := n * n; u >= 0; u-- {
				if u >= i {
					ways[i][u] = ways[i][u-i]
				} else {
					ways[i][u] = 0
				}
			}
			for u := range ways[i] {
				ways[i][u] += ways[i-1][u]
			}
		}
	}
	all, tail, k := 0.0, 0.0, 0
	for _, w := range ways[n] {
		all += w
	}
	for tail += ways[n][0]; tail <= 0.05*all; tail += ways[n][k] {
		k++
	}
	var update, stable []float64
	for i := range n {
		update, stable = append(update, float64(i*(n+1))), append(stable, float64(i))
	}
	d := differences(update, stable)
	got := higher.Samples(samples(t, update), samples(t, stable)).Most
	if got != d[len(d)-k] && got != d[len(d)-k+1] && got != d[len(d)-k-1] {
		t.Errorf("at most %v, not %v", got, d[len(d)-k])
	}
}
