package statistics

import (
	"fmt"
	"math"
	"slices"
)

// exactCost is the smaller number of samples times the number of all. Up to it the
// distribution of the rank sum is exact: 50 a side, 10 and 490, 1 and 4999.
const exactCost = 50 * 100

// Samples are values of one side, at least one, in ascending order.
type Samples struct{ sorted []float64 }

// NewSamples returns values as samples. It refuses those that are no numbers, and those
// whose differences overflow.
func NewSamples(values []float64) (Samples, error) {
	if len(values) == 0 {
		return Samples{}, ErrEmpty
	}
	for _, v := range values {
		if !(math.Abs(v) <= 1e300) { // NaN, too
			return Samples{}, fmt.Errorf("%v is not a sample", v)
		}
	}
	s := Samples{slices.Clone(values)}
	slices.Sort(s.sorted)
	return s, nil
}

// Median returns the value in the middle.
func (s Samples) Median() float64 {
	n := len(s.sorted)
	return (s.sorted[(n-1)/2] + s.sorted[n/2]) / 2
}

// exceeds returns the probability that the rank sum of a is at least what it is if both
// sides have one distribution.
func (a Samples) exceeds(b Samples) float64 {
	m, n := len(a.sorted), len(b.sorted)
	ranks, sum, ties := rank(a.sorted, b.sorted)
	if min(m, n)*(m+n) > exactCost {
		mean, deviation := moments(m, n, ties)
		if deviation == 0 {
			return 1
		}
		u := float64(sum-m*(m+1)) / 2 // pairs in which b exceeds a
		return above((mean - u - 0.5) / deviation)
	}
	if m > n { // the ranks of b, from the lowest value, say the same
		sum -= (m - n) * (m + n + 1)
		for i, r := range ranks {
			ranks[i] = 2*(m+n+1) - r
		}
		slices.Reverse(ranks)
		m, n = n, m
	}
	var tail float64
	for _, ways := range rankSums(ranks, m, sum) {
		tail += ways
	}
	return min(1, tail/choose(m+n, m))
}

// rank returns twice the rank of each value of both sides, counted from the highest value,
// and the sum of those of a. Equal values share the mean of their ranks, so twice a rank is
// a whole number. ties is the sum of t³-t over the groups of t equal values.
func rank(a, b []float64) (ranks []int, sum int, ties float64) {
	all := slices.Concat(a, b)
	slices.Sort(all)
	slices.Reverse(all)
	of := len(a)
	for first := 0; first < len(all); {
		next := first
		for next < len(all) && all[next] == all[first] {
			ranks = append(ranks, 0)
			next++
		}
		twice := first + 1 + next
		for i := first; i < next; i++ {
			ranks[i] = twice
		}
		for of > 0 && a[of-1] == all[first] {
			sum += twice
			of--
		}
		t := float64(next - first)
		ties += t*t*t - t
		first = next
	}
	return ranks, sum, ties
}

// rankSums returns, for each sum up to limit, the number of ways to choose m of the ranks
// with that sum. The ranks ascend. It counts, rank by rank, the ways by the number that is
// chosen. Sums to which the lowest of the later ranks add too much are left out.
func rankSums(ranks []int, m, limit int) []float64 {
	least := make([]int, len(ranks)+1) // sums of the lowest ranks
	for i, r := range ranks {
		least[i+1] = least[i] + r
	}
	ways := make([][]float64, m+1)
	for k := range ways {
		ways[k] = make([]float64, limit+1)
	}
	ways[0][0] = 1
	for i, r := range ranks {
		for k := min(i+1, m); k > 0 && i+1+m-k <= len(ranks); k-- {
			low, high := least[k-1], limit-r-(least[i+1+m-k]-least[i+1])
			if low > high {
				continue
			}
			with := ways[k][low+r:]
			for s, n := range ways[k-1][low : high+1] {
				with[s] += n
			}
		}
	}
	return ways[m]
}

// moments returns the mean of the Mann-Whitney statistic and its standard deviation, with
// ties as rank returns them.
func moments(m, n int, ties float64) (mean, deviation float64) {
	pairs, all := float64(m)*float64(n), float64(m+n)
	return pairs / 2, math.Sqrt(pairs / 12 * (all + 1 - ties/(all*(all-1))))
}

// shift returns the median of the differences of each value of a to each of b.
func (a Samples) shift(b Samples) float64 {
	pairs := len(a.sorted) * len(b.sorted)
	return (difference(a.sorted, b.sorted, (pairs+1)/2) + difference(a.sorted, b.sorted, pairs/2+1)) / 2
}

// most returns the upper bound of the shift from b to a. The shift exceeds it with
// probability alpha at most. It is +Inf if there are too few samples for a bound.
func (a Samples) most(b Samples, alpha float64) float64 {
	m, n := len(a.sorted), len(b.sorted)
	k := 0 // of the largest differences, as many lie above the bound
	if small := min(m, n); small*(m+n) <= exactCost {
		ranks := make([]int, m+n)
		for i := range ranks {
			ranks[i] = i + 1
		}
		least, tail := small*(small+1)/2, 0.0
		for _, ways := range rankSums(ranks, small, least+m*n/2)[least:] {
			if tail += ways; tail > alpha*choose(m+n, small) {
				break
			}
			k++
		}
	} else {
		mean, deviation := moments(m, n, 0)
		k = int(math.Floor(mean - quantile(1-alpha)*deviation + 0.5))
	}
	if k <= 0 {
		return math.Inf(1)
	}
	return difference(a.sorted, b.sorted, m*n-k+1)
}

// difference returns the k-th smallest of the differences of each value of a to each of b,
// both sorted. It halves the range of floating-point numbers, so it needs no memory for the
// differences, and ends after 64 rounds.
func difference(a, b []float64, k int) float64 {
	low, high := order(a[0]-b[len(b)-1]), order(a[len(a)-1]-b[0])
	for low < high {
		middle := low + (high-low)/2
		limit, within := value(middle), 0
		j := 0
		for _, v := range a {
			for j < len(b) && v-b[j] > limit {
				j++
			}
			within += len(b) - j
		}
		if within >= k {
			high = middle
		} else {
			low = middle + 1
		}
	}
	return value(low) + 0 // no -0
}

// order returns the place of a number among all floating-point numbers.
func order(f float64) uint64 {
	bits := math.Float64bits(f)
	if bits>>63 == 1 {
		return ^bits
	}
	return bits | 1<<63
}

// value returns the number at a place of order.
func value(place uint64) float64 {
	if place>>63 == 1 {
		return math.Float64frombits(place &^ (1 << 63))
	}
	return math.Float64frombits(^place)
}

// choose returns in how many ways k of n can be chosen.
func choose(n, k int) float64 {
	ways := 1.0
	for i := 1; i <= k; i++ {
		ways *= float64(n-k+i) / float64(i)
	}
	return ways
}

// above returns the probability of a value above z of the normal distribution.
func above(z float64) float64 { return math.Erfc(z/math.Sqrt2) / 2 }

// quantile returns the value of the normal distribution below which a part p lies.
func quantile(p float64) float64 { return math.Sqrt2 * math.Erfinv(2*p-1) }
