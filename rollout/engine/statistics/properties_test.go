package statistics_test

import (
	"encoding/binary"
	"errors"
	"math"
	"testing"

	"github.com/tranche-dev/tranche/rollout/engine/statistics"
)

func TestNewProportion_Refuses(t *testing.T) {
	nan, inf := math.NaN(), math.Inf(1)
	for _, c := range []struct{ count, total float64 }{
		{nan, 5}, {1, nan}, {nan, nan}, {inf, inf}, {1, inf}, {-inf, 5}, {-1, 5}, {1, -5}, {6, 5}, {5.2, 5.1}, {1, 2e12}, {5.00001, 5},
	} {
		if p, err := statistics.NewProportion(c.count, c.total); err == nil {
			t.Errorf("%v of %v is taken as %v", c.count, c.total, p)
		}
	}
	for _, total := range []float64{0, 0.4} {
		if _, err := statistics.NewProportion(0, total); !errors.Is(err, statistics.ErrEmpty) {
			t.Errorf("0 of %v: %v", total, err)
		}
	}
	if p, err := statistics.NewProportion(0.1+0.2+2.2, 2.5); err != nil || p.Rate() != 1 { // 2.5000000000000004
		t.Errorf("where all requests fail: %v, %v", p, err)
	}
	if rate := proportion(t, 2.6, 10.4).Rate(); rate != 0.3 {
		t.Errorf("2.6 of 10.4 is %v, not 3 of 10", rate)
	}
}

func TestNewSamples_Refuses(t *testing.T) {
	for _, v := range []float64{math.NaN(), math.Inf(1), math.Inf(-1), 1e301} {
		if _, err := statistics.NewSamples([]float64{1, v}); err == nil {
			t.Errorf("the sample %v is taken", v)
		}
	}
	if _, err := statistics.NewSamples(nil); !errors.Is(err, statistics.ErrEmpty) {
		t.Errorf("no samples: %v", err)
	}
	values := []float64{3, 1, 2}
	if samples(t, values); values[0] != 3 {
		t.Error("the caller's values were sorted")
	}
}

func TestProportions_Extremes(t *testing.T) {
	for name, c := range map[string]struct {
		a, m, b, n float64
		low, high  float64 // of p
	}{
		"no errors":               {0, 1e9, 0, 1e9, 1, 1},
		"errors alone":            {1e9, 1e9, 1e9, 1e9, 1, 1},
		"all against none":        {1e9, 1e9, 0, 1e9, 0, 0},
		"none against all":        {0, 1e9, 1e9, 1e9, 1, 1},
		"equal rates":             {5e8, 1e9, 5e8, 1e9, 0.5, 0.50003}, // and half of the term itself
		"one of 1e9":              {1, 1e9, 0, 1e9, 0.5, 0.5},
		"3 sigma of 1e9":          {5e8 + 67082, 1e9, 5e8, 1e9, 0.00134, 0.00136}, // Φ(-3) is 0.00135
		"one and nine pods":       {1100, 1e5, 9000, 9e5, 0.00158, 0.00159},       // the score test has 0.00135
		"one request":             {1, 1, 0, 1e9, 0.99e-9, 1e-9},
		"1e12":                    {5e11, 1e12, 5e11, 1e12, 0.5, 0.50001},
		"far out, but a number":   {1e5, 1e9, 9e4, 1e9, 1e-125, 1e-110},
		"a p below all exponents": {2e5, 1e9, 9e4, 1e9, 0, 0},
	} {
		e := higher.Proportions(proportion(t, c.a, c.m), proportion(t, c.b, c.n))
		if !(e.P >= c.low*(1-1e-9) && e.P <= c.high*(1+1e-9)) {
			t.Errorf("%s: p %v, not from %v to %v", name, e.P, c.low, c.high)
		}
		if !(e.Most >= e.Effect-1e-15 && e.Most <= 1) || e.Effect != c.a/c.m-c.b/c.n {
			t.Errorf("%s: effect %v, at most %v", name, e.Effect, e.Most)
		}
	}
}

func TestSamples_Extremes(t *testing.T) {
	many := func(n int, v float64) []float64 {
		values := make([]float64, n)
		for i := range values {
			values[i] = v
		}
		return values
	}
	for name, c := range map[string]struct {
		update, stable []float64
		p, effect      float64
	}{
		"one a side":          {[]float64{2}, []float64{1}, 0.5, 1},
		"equal":               {many(8, 3), many(8, 3), 1, 0},
		"equal, many":         {many(100, 3), many(100, 3), 1, 0},
		"zeros of both signs": {many(3, math.Copysign(0, -1)), many(3, 0), 1, 0},
		"apart":               {many(3, 2), many(3, 1), 0.05, 1},
		"1e300":               {many(3, 1e300), many(3, -1e300), 0.05, 2e300},
		"tiny":                {many(3, 5e-324), many(3, 0), 0.05, 5e-324},
		"one pod of ten":      {many(1, 9), many(9, 1), 0.1, 8},
		"one of 4999":         {many(1, 9), many(4999, 1), 0.0002, 8},
	} {
		e := higher.Samples(samples(t, c.update), samples(t, c.stable))
		if !near(e.P, c.p, 1e-12) || math.Abs(e.Effect-c.effect) > 1e-12*math.Abs(c.effect) {
			t.Errorf("%s: p %v and effect %v, not %v and %v", name, e.P, e.Effect, c.p, c.effect)
		}
	}
}

// checkProportions holds what is true of any two proportions.
func checkProportions(t *testing.T, a, m, b, n float64) {
	t.Helper()
	update, stable := proportion(t, a, m), proportion(t, b, n)
	up, down := higher.Proportions(update, stable), lower.Proportions(update, stable)
	back := lower.Proportions(stable, update)
	if up != back {
		t.Errorf("%v/%v against %v/%v: higher is %v, the other way round lower is %v", a, m, b, n, up, back)
	}
	failed := lower.Proportions(proportion(t, m-a, m), proportion(t, n-b, n))
	if !near(up.P, failed.P, 1e-6) || math.Abs(up.Effect-failed.Effect) > 1e-12 || math.Abs(up.Most-failed.Most) > 1e-6 {
		t.Errorf("%v/%v against %v/%v: of errors %v, of successes %v", a, m, b, n, up, failed)
	}
	if sum := up.P + down.P; !(up.P >= 0 && up.P <= 1 && sum > 1-1e-12 && sum <= 2) {
		t.Errorf("%v/%v against %v/%v: p %v and %v", a, m, b, n, up.P, down.P)
	}
	if !(up.Most >= up.Effect-1e-12 && -down.Most <= up.Effect+1e-12) {
		t.Errorf("%v/%v against %v/%v: %v is not from %v to %v", a, m, b, n, up.Effect, -down.Most, up.Most)
	}
	checkMonotone(t, a, m, b, n)
}

// checkMonotone holds that one error more is no better, and one of stable no worse.
func checkMonotone(t *testing.T, a, m, b, n float64) {
	t.Helper()
	update, stable := proportion(t, a, m), proportion(t, b, n)
	up := higher.Proportions(update, stable)
	if a < m {
		more := higher.Proportions(proportion(t, a+1, m), stable)
		if more.P > up.P*(1+1e-9) || more.Effect <= up.Effect || more.Most < up.Most-1e-9 {
			t.Errorf("%v/%v against %v/%v: one error more leads from %v to %v", a, m, b, n, up, more)
		}
	}
	if b < n {
		better := higher.Proportions(update, proportion(t, b+1, n))
		if better.P < up.P*(1-1e-9) || better.Effect >= up.Effect || better.Most > up.Most+1e-9 {
			t.Errorf("%v/%v against %v/%v: one error of stable more leads from %v to %v", a, m, b, n, up, better)
		}
	}
}

func FuzzProportions(f *testing.F) {
	f.Add(uint32(0), uint32(1), uint32(0), uint32(1))
	f.Add(uint32(41), uint32(1022), uint32(12), uint32(9210))
	f.Add(uint32(7), uint32(7), uint32(0), uint32(1000000))
	f.Add(uint32(1000), uint32(3000000), uint32(900), uint32(3000000))
	f.Add(uint32(500000000), uint32(1000000000), uint32(500000000), uint32(1000000000))
	f.Fuzz(func(t *testing.T, a, m, b, n uint32) {
		m, n = m%1e9+1, n%1e9+1
		checkProportions(t, float64(a%(m+1)), float64(m), float64(b%(n+1)), float64(n))
	})
}

// change returns each value times a factor, and a summand.
func change(t *testing.T, values []float64, factor, summand float64) statistics.Samples {
	changed := make([]float64, len(values))
	for i, v := range values {
		changed[i] = v*factor + summand
	}
	return samples(t, changed)
}

// checkSamples holds what is true of any samples.
func checkSamples(t *testing.T, update, stable []float64) {
	t.Helper()
	u, s := samples(t, update), samples(t, stable)
	up, down := higher.Samples(u, s), lower.Samples(u, s)
	if back := lower.Samples(s, u); up != back {
		t.Errorf("%v against %v: higher is %v, the other way round lower is %v", update, stable, up, back)
	}
	negative := lower.Samples(change(t, update, -1, 0), change(t, stable, -1, 0))
	if !near(up.P, negative.P, 1e-9) || up.Effect != negative.Effect || up.Most != negative.Most {
		t.Errorf("%v against %v: %v, negated %v", update, stable, up, negative)
	}
	if sum := up.P + down.P; !(up.P >= 0 && up.P <= 1 && sum > 1-1e-9 && sum <= 2) {
		t.Errorf("%v against %v: p %v and %v", update, stable, up.P, down.P)
	}
	if !(up.Most >= up.Effect && -down.Most <= up.Effect) {
		t.Errorf("%v against %v: %v is not from %v to %v", update, stable, up.Effect, -down.Most, up.Most)
	}
	checkChanged(t, update, stable)
}

// checkChanged holds what is true of samples that all grow.
func checkChanged(t *testing.T, update, stable []float64) {
	t.Helper()
	s := samples(t, stable)
	up := higher.Samples(samples(t, update), s)
	scaled := higher.Samples(change(t, update, 4, 0), change(t, stable, 4, 0))
	if scaled.P != up.P || scaled.Effect != 4*up.Effect || scaled.Most != 4*up.Most {
		t.Errorf("%v against %v: %v, four times as large %v", update, stable, up, scaled)
	}
	worse := higher.Samples(change(t, update, 1, 1), s)
	if worse.P > up.P*(1+1e-9) || worse.Effect < up.Effect || worse.Most < up.Most {
		t.Errorf("%v against %v: %v, one more each %v", update, stable, up, worse)
	}
}

// Each byte is a value; few values make many ties.
func FuzzSamples(f *testing.F) {
	f.Add([]byte{1}, []byte{2}, uint8(255))
	f.Add([]byte{0, 0, 0, 7, 9, 9}, []byte{0, 0, 5}, uint8(16))
	f.Add(binary.BigEndian.AppendUint64(nil, 1<<60+77), []byte{1, 2, 3, 4, 5, 6, 7, 8, 9}, uint8(3))
	f.Add(make([]byte, 60), make([]byte, 70), uint8(1))
	f.Fuzz(func(t *testing.T, update, stable []byte, different uint8) {
		draw := func(from []byte) (values []float64) {
			for _, b := range from[:min(len(from), 80)] {
				values = append(values, float64(b%max(different, 1))-2)
			}
			return values
		}
		if len(update) > 0 && len(stable) > 0 {
			checkSamples(t, draw(update), draw(stable))
		}
	})
}

func TestJudge(t *testing.T) {
	rule := statistics.Rule{By: 0.01, Confidence: 0.95}
	proof := rule
	proof.Prove = true
	for _, c := range []struct {
		reason     string
		rule       statistics.Rule
		e          statistics.Evidence
		n, planned int
		want       statistics.Verdict
	}{
		{"significant and large at the end", rule, statistics.Evidence{P: 0.03, Effect: 0.02, By: 0.01}, 5, 5, statistics.Fail},
		{"significant at the end only", rule, statistics.Evidence{P: 0.03, Effect: 0.02, By: 0.01}, 4, 5, statistics.Undecided},
		{"beyond doubt before the end", rule, statistics.Evidence{P: 0.0009, Effect: 0.02, By: 0.01}, 1, 5, statistics.Fail},
		{"significant and small", rule, statistics.Evidence{P: 1e-9, Effect: 0.009, By: 0.01}, 5, 5, statistics.Pass},
		{"large and not significant", rule, statistics.Evidence{P: 0.3, Effect: 0.5, By: 0.01}, 5, 5, statistics.Pass},
		{"no harm so far", rule, statistics.Evidence{P: 0.7, By: 0.01}, 1, 5, statistics.Undecided},
		{"a window that grew", rule, statistics.Evidence{P: 0.03, Effect: 0.02, By: 0.01}, 7, 5, statistics.Fail},
		{"a single judgement has it all", rule, statistics.Evidence{P: 0.0499, Effect: 0.02, By: 0.01}, 1, 1, statistics.Fail},
		{"p equal to the level", rule, statistics.Evidence{P: 0.05, Effect: 0.02, By: 0.01}, 1, 1, statistics.Pass},
		{"without an end nothing passes", rule, statistics.Evidence{P: 0.7, By: 0.01}, 1000, 0, statistics.Undecided},
		{"without an end harm fails", rule, statistics.Evidence{P: 0.0009, Effect: 0.02, By: 0.01}, 1, 0, statistics.Fail},
		{"without an end later ones have less", rule, statistics.Evidence{P: 0.0009, Effect: 0.02, By: 0.01}, 10, 0, statistics.Undecided},
		{"proven", proof, statistics.Evidence{P: 0.7, Most: 0.01, By: 0.01}, 5, 5, statistics.Pass},
		{"not proven", proof, statistics.Evidence{P: 0.7, Most: 0.011, By: 0.01}, 5, 5, statistics.Unproven},
		{"proof waits for the end", proof, statistics.Evidence{P: 0.7, Most: 0.001, By: 0.01}, 4, 5, statistics.Undecided},
		{"too few samples for proof", proof, statistics.Evidence{P: 0.7, Most: math.Inf(1), By: 0.01}, 5, 5, statistics.Unproven},
		{"failure goes before proof", proof, statistics.Evidence{P: 0.01, Effect: 0.02, Most: 0.03, By: 0.01}, 5, 5, statistics.Fail},
	} {
		if got := c.rule.Judge(c.e, c.n, c.planned); got != c.want {
			t.Errorf("%s: %v, not %v", c.reason, got, c.want)
		}
	}
}

// A part of stable's median counts in the units of the samples.
func TestSamples_RelativeBy(t *testing.T) {
	rule := statistics.Rule{By: 0.2, Relative: true, Confidence: 0.95}
	stable := samples(t, []float64{-90, -100, -110, -100})
	if e := rule.Samples(stable, stable); e.By != 20 {
		t.Errorf("20 %% of -100 is %v", e.By)
	}
}

// A window that grows has the levels of one with proof.
func TestLevel_Grows(t *testing.T) {
	grows, proof := statistics.Rule{Confidence: 0.95, Grows: true}, statistics.Rule{Confidence: 0.95, Prove: true}
	for n := range 20 {
		if a, b := grows.Level(n+1, 5), proof.Level(n+1, 5); a != b {
			t.Errorf("judgement %d: %v, and %v with proof", n+1, a, b)
		}
	}
}

// The levels of all judgements add up to 1 - confidence, and to no more without a last one.
func TestLevel_AddsUp(t *testing.T) {
	for _, confidence := range []float64{0.8, 0.9, 0.95, 0.99, 0.999, 0.99999} {
		endless := 0.0
		for n := 1; n < 10000; n++ {
			endless += statistics.Rule{Confidence: confidence}.Level(n, 0)
		}
		if endless > 1-confidence {
			t.Errorf("confidence %v: without an end they add up to %v", confidence, endless)
		}
		for planned := 1; planned < 200; planned++ {
			rule := statistics.Rule{Confidence: confidence}
			sum := 0.0
			for n := 1; n <= planned; n++ {
				level := rule.Level(n, planned)
				if n < planned && !(level > 0 && level <= 0.001) || n == planned && level < 0.9*(1-confidence)-1e-12 {
					t.Fatalf("confidence %v: level %v at %d of %d", confidence, level, n, planned)
				}
				sum += level
			}
			if math.Abs(sum-(1-confidence)) > 1e-12 {
				t.Fatalf("confidence %v: %d levels add up to %v", confidence, planned, sum)
			}
			rule.Prove, sum = true, 0
			for n := 1; n <= planned+100; n++ {
				sum += rule.Level(n, planned)
			}
			if sum > 1-confidence || rule.Level(planned, planned) < 0.8*(1-confidence)-1e-12 {
				t.Fatalf("confidence %v: with proof %d levels add up to %v", confidence, planned, sum)
			}
		}
	}
}
