package statistics

import (
	"errors"
	"fmt"
	"math"
)

// largest is the largest total of a proportion: sums of counts are exact, and the cost of a
// comparison is bounded.
const largest = 1e12

// ErrEmpty is returned of a total of 0, and of no samples: nothing was measured.
var ErrEmpty = errors.New("nothing was counted")

// Proportion is a number of requests of a total, at least 1.
type Proportion struct{ count, total float64 }

// NewProportion returns count of total, each rounded: Prometheus extrapolates what a counter
// increased by. It refuses values that are no counts, and more than the total.
func NewProportion(count, total float64) (Proportion, error) {
	switch {
	case !(count >= 0 && total >= 0) || math.IsInf(count, 0) || math.IsInf(total, 0): // NaN, too
		return Proportion{}, fmt.Errorf("%v of %v is not a proportion", count, total)
	case count > total*(1+1e-9): // sums of the same series may differ in their last digits
		return Proportion{}, fmt.Errorf("%v is more than the total %v", count, total)
	case total > largest:
		return Proportion{}, fmt.Errorf("a total of %v is above %v", total, largest)
	}
	p := Proportion{math.Round(min(count, total)), math.Round(total)}
	if p.total == 0 {
		return Proportion{}, ErrEmpty
	}
	return p, nil
}

// Rate returns the part of the total, 0 to 1.
func (p Proportion) Rate() float64 { return p.count / p.total }

// exceeds returns the probability that a has at least its count. It supposes that both have
// one rate, and takes the sum of the counts as given. The terms of the hypergeometric distribution follow
// from one another, from the largest one outwards. So nothing overflows or cancels, and the
// loops end after some 40 standard deviations, of at most sqrt(total)/4 terms.
func (a Proportion) exceeds(b Proportion) float64 {
	marked := a.count + b.count
	low, high := max(0, marked-b.total), min(a.total, marked)
	ratio := func(k float64) float64 { // of the term k+1 to the term k
		return (marked - k) * (a.total - k) / ((k + 1) * (b.total - marked + k + 1))
	}
	mode := math.Floor((a.total + 1) * (marked + 1) / (a.total + b.total + 2))
	mode = min(max(mode, low), high)
	var tail, rest float64
	add := func(k, term float64) {
		if k >= a.count {
			tail += term
		} else {
			rest += term
		}
	}
	add(mode, 1)
	for k, term := mode, 1.0; k < high && term > 1e-18*tail && term > 1e-300; k++ {
		term *= ratio(k)
		add(k+1, term)
	}
	for k, term := mode, 1.0; k > low && term > 1e-18; k-- {
		term /= ratio(k - 1)
		add(k-1, term)
	}
	return tail / (tail + rest)
}

// most returns the upper bound of the rate of a less the rate of b, at z standard
// deviations.
func (a Proportion) most(b Proportion, z float64) float64 {
	_, upper := a.wilson(z)
	lower, _ := b.wilson(z)
	return a.Rate() - b.Rate() + math.Hypot(upper-a.Rate(), b.Rate()-lower)
}

// wilson returns the score interval of the rate, at z standard deviations.
func (p Proportion) wilson(z float64) (lower, upper float64) {
	rate, square := p.Rate(), z*z/p.total
	centre, width := rate+square/2, math.Sqrt(square*(rate*(1-rate)+square/4))
	return max(0, (centre-width)/(1+square)), min(1, (centre+width)/(1+square))
}
