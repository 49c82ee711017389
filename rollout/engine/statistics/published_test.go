package statistics_test

import (
	"math"
	"math/rand/v2"
	"testing"

	"github.com/aclements/go-moremath/stats"

	"github.com/tranche-dev/tranche/rollout/engine/statistics"
)

// rounded reports whether a value rounds to what was published.
func rounded(got, published float64, digits int) bool {
	return math.Abs(got-published) <= 0.5000001*math.Pow10(-digits)
}

func TestProportions_PublishedP(t *testing.T) {
	for _, c := range []struct {
		source     string
		rule       statistics.Rule
		a, m, b, n float64
		published  float64
		digits     int
	}{
		{"Fisher, The Design of Experiments, 1935: a lady tastes tea", higher, 3, 4, 1, 4, 0.242857, 6},
		{"Fisher, JRSS 98, 1935: convictions of twins", higher, 10, 13, 2, 17, 0.0004652, 7},
		{"R, fisher.test(Convictions, alternative = \"less\"): the same", lower, 2, 17, 10, 13, 0.0004652, 7},
	} {
		if p := c.rule.Proportions(proportion(t, c.a, c.m), proportion(t, c.b, c.n)).P; !rounded(p, c.published, c.digits) {
			t.Errorf("%s: p %v, not %v", c.source, p, c.published)
		}
	}
}

// Newcombe, Statistics in Medicine 17 (1998), table II, method 10: both limits of 95 %, which
// are the one-sided ones of 97.5 %.
func TestProportions_PublishedBounds(t *testing.T) {
	for _, c := range []struct{ a, m, b, n, low, high float64 }{
		{56, 70, 48, 80, 0.0524, 0.3339},
		{9, 10, 3, 10, 0.1705, 0.8090},
		{6, 7, 2, 7, 0.0582, 0.8062},
		{5, 56, 0, 29, -0.0381, 0.1926},
		{0, 10, 0, 20, -0.1611, 0.2775},
		{0, 10, 0, 10, -0.2775, 0.2775},
		{10, 10, 0, 20, 0.6791, 1},
		{10, 10, 0, 10, 0.6075, 1},
	} {
		update, stable := proportion(t, c.a, c.m), proportion(t, c.b, c.n)
		up := statistics.Rule{Confidence: 0.975}.Proportions(update, stable)
		down := statistics.Rule{Confidence: 0.975, Worse: statistics.Lower}.Proportions(update, stable)
		if !rounded(up.Most, c.high, 4) || !rounded(-down.Most, c.low, 4) {
			t.Errorf("%v/%v - %v/%v: %v to %v, not %v to %v", c.a, c.m, c.b, c.n, -down.Most, up.Most, c.low, c.high)
		}
	}
}

// Hollander and Wolfe, Nonparametric Statistical Methods, 1973, page 69: the permeability of
// human chorioamnion at term and earlier.
func TestSamples_PublishedWithoutTies(t *testing.T) {
	term := samples(t, []float64{0.80, 0.83, 1.89, 1.04, 1.45, 1.38, 1.91, 1.64, 0.73, 1.46})
	early := samples(t, []float64{1.15, 0.88, 0.90, 0.74, 1.21})
	rule := statistics.Rule{Confidence: 0.975}
	up := rule.Samples(term, early)
	rule.Worse = statistics.Lower
	down := rule.Samples(term, early)
	if !rounded(up.P, 0.1272, 4) || !rounded(up.Effect, 0.305, 3) || !rounded(up.Most, 0.76, 2) || !rounded(-down.Most, -0.15, 2) {
		t.Errorf("p %v, effect %v, from %v to %v; published are 0.1272, 0.305, -0.15 and 0.76", up.P, up.Effect, -down.Most, up.Most)
	}
}

// Chambers, Cleveland, Kleiner and Tukey, Graphical Methods for Data Analysis, 1983: ozone in
// New York in May and August 1973. R's wilcox.test(Ozone ~ Month) has p = 0.0001208, two-sided,
// by the normal distribution. With so few values the test here is exact: near that, and less.
func TestSamples_PublishedWithTies(t *testing.T) {
	may := []float64{41, 36, 12, 18, 28, 23, 19, 8, 7, 16, 11, 14, 18, 14, 34, 6, 30, 11, 1, 11, 4, 32, 23, 45, 115, 37}
	august := []float64{39, 9, 16, 78, 35, 66, 122, 89, 110, 44, 28, 65, 22, 59, 23, 31, 44, 21, 9, 45, 168, 73, 76, 118, 84, 85}
	if u := float64(pairs(may, august)) / 2; u != 127.5 {
		t.Fatalf("U of the data is %v, published is 127.5", u)
	}
	exact := higher.Samples(samples(t, august), samples(t, may)).P
	if p := 2 * exact; p < 0.00005 || p > 0.0001208 {
		t.Errorf("p %v: the exact one is less than the approximation's 0.0001208", p)
	}
}

// go-moremath is another implementation: exact up to 50 values without ties and 25 with them,
// normal above. It is asked whether b is less than a: asked whether a is greater, it takes
// too much if U is no whole number.
func TestSamples_CrossCheck(t *testing.T) {
	r := rand.New(rand.NewPCG(16, 2))
	for _, c := range []struct{ m, n, values int }{
		{5, 9, 1e9}, {20, 30, 1e9}, {50, 50, 1e9}, {3, 25, 6}, {10, 10, 4}, {18, 18, 30}, {7, 20, 2},
		{51, 51, 1e9}, {60, 200, 12}, {200, 60, 12}, {400, 400, 50}, {300, 90, 2},
	} {
		draw := func(n int) []float64 {
			values := make([]float64, n)
			for i := range values {
				values[i] = float64(r.IntN(c.values))
			}
			return values
		}
		a, b := draw(c.m), draw(c.n)
		update, stable := samples(t, a), samples(t, b)
		for _, rule := range []statistics.Rule{higher, lower} {
			other, err := stats.MannWhitneyUTest(b, a, stats.LocationLess)
			if err != nil {
				t.Fatal(err)
			}
			if p := rule.Samples(update, stable).P; !near(p, other.P, 1e-9) {
				t.Errorf("%+v, worse %v: p %v, go-moremath has %v", c, rule.Worse, p, other.P)
			}
			a, b = b, a
		}
	}
}

func TestProportions_CrossCheck(t *testing.T) {
	r := rand.New(rand.NewPCG(16, 3))
	for range 300 {
		m, n := 1+r.IntN(5000), 1+r.IntN(5000)
		a, b := r.IntN(m+1), r.IntN(n+1)
		if r.IntN(2) == 0 { // near one another
			b = min(n, a*n/m+r.IntN(20))
		}
		other := 1 - stats.HypergeometicDist{N: m + n, K: a + b, Draws: m}.CDF(float64(a)-1)
		if p := higher.Proportions(proportion(t, float64(a), float64(m)), proportion(t, float64(b), float64(n))).P; math.Abs(p-other) > 1e-8 {
			t.Errorf("%d/%d against %d/%d: p %v, go-moremath has %v", a, m, b, n, p, other)
		}
	}
}
