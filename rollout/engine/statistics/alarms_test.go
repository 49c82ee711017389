package statistics_test

import (
	"math"
	"math/rand/v2"
	"slices"
	"testing"

	"github.com/tranche-dev/tranche/rollout/engine/statistics"
)

// binomial draws the errors of n requests.
type binomial []float64 // the distribution function

func newBinomial(n int, rate float64) binomial {
	b, below := make(binomial, n+1), 0.0
	for k := range b {
		below += binomialTerm(k, n, rate)
		b[k] = below
	}
	return b
}

func binomialTerm(k, n int, rate float64) float64 {
	lgamma := func(i int) float64 { l, _ := math.Lgamma(float64(i) + 1); return l }
	return math.Exp(lgamma(n) - lgamma(k) - lgamma(n-k) + float64(k)*math.Log(rate) + float64(n-k)*math.Log1p(-rate))
}

func (b binomial) draw(r *rand.Rand) float64 {
	k, _ := slices.BinarySearch(b, r.Float64())
	return float64(min(k, len(b)-1))
}

// alarms is how often identical revisions fail.
type alarms struct{ rule, naive int }

const (
	judgements = 10
	releases   = 10000
)

// judge counts what a release of identical revisions leads to, by the rule, and by a rule
// that takes each judgement for the only one.
func (a *alarms) judge(rule statistics.Rule, evidence []statistics.Evidence) {
	failed := func(judge func(n int, e statistics.Evidence) statistics.Verdict) int {
		for i, e := range evidence {
			if judge(i+1, e) == statistics.Fail {
				return 1
			}
		}
		return 0
	}
	a.rule += failed(func(n int, e statistics.Evidence) statistics.Verdict { return rule.Judge(e, n, len(evidence)) })
	a.naive += failed(func(_ int, e statistics.Evidence) statistics.Verdict { return rule.Judge(e, 1, 1) })
}

// proportionAlarms simulates releases of identical revisions. The window of the update
// revision grows to requests in ten judgements, that of the stable one to as many times.
func proportionAlarms(rule statistics.Rule, requests, times int, rate float64) (a alarms) {
	r := rand.New(rand.NewPCG(uint64(requests*times), math.Float64bits(rate)))
	part := requests / judgements
	ofUpdate, ofStable := newBinomial(part, rate), newBinomial(part*times, rate)
	for range releases {
		var evidence []statistics.Evidence
		var errors, stableErrors float64
		for n := 1; n <= judgements; n++ {
			errors, stableErrors = errors+ofUpdate.draw(r), stableErrors+ofStable.draw(r)
			update, _ := statistics.NewProportion(errors, float64(n*part))
			stable, _ := statistics.NewProportion(stableErrors, float64(n*part*times))
			evidence = append(evidence, rule.Proportions(update, stable))
		}
		a.judge(rule, evidence)
	}
	return a
}

// With identical revisions, by 0 and ten judgements, no more of the releases fail than the
// confidence allows. Judgements that each have the whole of it raise three times as many.
func TestProportions_FalseAlarms(t *testing.T) {
	for _, rate := range []float64{0.005, 0.05, 0.5} {
		for _, requests := range []int{10, 100, 1000} {
			for _, times := range []int{1, 9} {
				a := proportionAlarms(higher, requests, times, rate)
				part := float64(a.rule) / releases
				if part > 0.05 {
					t.Errorf("rate %v, %d requests and %d times as many: %v of identical revisions fail", rate, requests, times, part)
				}
				if requests == 1000 && rate == 0.5 && (part < 0.03 || float64(a.naive)/releases < 0.1) {
					t.Errorf("%d alarms of the rule and %d without it: the simulation proves nothing", a.rule, a.naive)
				}
			}
		}
	}
}

func TestProportions_FalseAlarmsOfOtherConfidences(t *testing.T) {
	for _, confidence := range []float64{0.8, 0.99} {
		rule := statistics.Rule{Confidence: confidence}
		if a := proportionAlarms(rule, 1000, 1, 0.2); float64(a.rule)/releases > 1-confidence {
			t.Errorf("confidence %v: %d of %d identical revisions fail", confidence, a.rule, releases)
		}
	}
}

// growing is evidence that comes, window by window.
type growing func(r *rand.Rand, n int) func(statistics.Rule) statistics.Evidence

// passes counts releases that pass with proof though the harm is exactly By. It does so by the rule,
// and by one that takes each judgement for the only one. Windows grow for five times as long as planned.
func passes(t *testing.T, rule statistics.Rule, evidence growing) (alarms, int) {
	t.Helper()
	const planned, runs = 5, 1000
	r := rand.New(rand.NewPCG(16, 17))
	rule.Prove = true
	var a alarms
	for range runs {
		ruled, naive, over := false, false, false
		for n := 1; n <= 5*planned && !over; n++ {
			of := evidence(r, n)
			if at := rule.At(n, planned); !ruled {
				says := at.Judge(of(at), n, planned)
				ruled, over = says == statistics.Pass, says == statistics.Fail
			}
			naive = naive || n >= planned && of(rule).Most <= rule.By
		}
		if ruled {
			a.rule++
		}
		if naive {
			a.naive++
		}
	}
	return a, runs
}

// An update revision that is worse by exactly By passes a proof no more often than the confidence
// allows. That holds however often its window grows and is judged again.
func TestProof_FalsePasses(t *testing.T) {
	proportions := func(part int) (statistics.Rule, growing) {
		const base, by = 0.05, 0.05
		var bad, stable float64
		ofUpdate, ofStable := newBinomial(part, base+by), newBinomial(part, base)
		return statistics.Rule{By: by, Confidence: 0.9}, func(r *rand.Rand, n int) func(statistics.Rule) statistics.Evidence {
			if n == 1 {
				bad, stable = 0, 0
			}
			bad, stable = bad+ofUpdate.draw(r), stable+ofStable.draw(r)
			u, _ := statistics.NewProportion(bad, float64(n*part))
			s, _ := statistics.NewProportion(stable, float64(n*part))
			return func(rule statistics.Rule) statistics.Evidence { return rule.Proportions(u, s) }
		}
	}
	samples := func() (statistics.Rule, growing) {
		var update, stable []float64
		return statistics.Rule{By: 1, Confidence: 0.9}, func(r *rand.Rand, n int) func(statistics.Rule) statistics.Evidence {
			if n == 1 {
				update, stable = nil, nil
			}
			for range 2 {
				update, stable = append(update, 1+r.NormFloat64()), append(stable, r.NormFloat64())
			}
			u, _ := statistics.NewSamples(update)
			s, _ := statistics.NewSamples(stable)
			return func(rule statistics.Rule) statistics.Evidence { return rule.Samples(u, s) }
		}
	}
	judge := func(name string, rule statistics.Rule, of growing) {
		a, runs := passes(t, rule, of)
		ruled, naive := float64(a.rule)/float64(runs), float64(a.naive)/float64(runs)
		t.Logf("%s: %v pass, and %v without the rule", name, ruled, naive)
		if ruled > 0.1 || ruled < 0.02 || naive < 0.15 {
			t.Errorf("%s: %v of the worse revisions pass, and %v without the rule", name, ruled, naive)
		}
	}
	for _, part := range []int{20, 200} {
		rule, of := proportions(part)
		judge("proportions", rule, of)
	}
	rule, of := samples()
	judge("samples", rule, of)
}

// Samples without ties, whose ranks say all of any distribution, and with many.
func TestSamples_FalseAlarms(t *testing.T) {
	for name, draw := range map[string]func(r *rand.Rand) float64{
		"no ties":   func(r *rand.Rand) float64 { return r.NormFloat64() },
		"many ties": func(r *rand.Rand) float64 { return math.Round(3 * r.Float64()) },
	} {
		r := rand.New(rand.NewPCG(16, uint64(len(name))))
		var a alarms
		for range releases / 4 {
			var update, stable []float64
			var evidence []statistics.Evidence
			for range judgements {
				update, stable = append(update, draw(r)), append(stable, draw(r))
				us, _ := statistics.NewSamples(update)
				ss, _ := statistics.NewSamples(stable)
				evidence = append(evidence, higher.Samples(us, ss))
			}
			a.judge(higher, evidence)
		}
		rule, naive := float64(a.rule)*4/releases, float64(a.naive)*4/releases
		if rule > 0.05 || rule < 0.03 || naive < 1.5*rule {
			t.Errorf("%s: %v of identical revisions fail, and %v without the rule", name, rule, naive)
		}
	}
}

// exactPower returns the probability that a window fails at its last judgement: the sum over
// all numbers of errors on both sides.
func exactPower(rule statistics.Rule, rate, base float64, update, stable, planned int) (sum float64) {
	from := func(n int, rate float64) (int, int) { // all but 1e-9 of them
		mean, width := float64(n)*rate, 6*math.Sqrt(float64(n)*rate*(1-rate))+6
		return int(max(0, mean-width)), int(min(float64(n), mean+width))
	}
	low, high := from(update, rate)
	tails, tail := make([]float64, high+2), 0.0
	for k := high; k >= low; k-- {
		tail += binomialTerm(k, update, rate)
		tails[k] = tail
	}
	least, most := from(stable, base)
	fewest := low
	for b := least; b <= most; b++ {
		s, _ := statistics.NewProportion(float64(b), float64(stable))
		for ; fewest <= high; fewest++ {
			u, _ := statistics.NewProportion(float64(fewest), float64(update))
			if rule.Judge(rule.Proportions(u, s), planned, planned) == statistics.Fail {
				break
			}
		}
		sum += binomialTerm(b, stable, base) * tails[min(fewest, high+1)]
	}
	return sum
}

// The difference that is said to be noticed in 80 % of windows is noticed in about as many.
func TestDetectableRate_IsNoticed(t *testing.T) {
	for _, c := range []struct {
		by, base       float64
		update, stable int
	}{
		{0.005, 0.001, 1000, 1000}, {0.005, 0.01, 1800, 16200}, {0, 0.01, 1800, 16200}, {0, 0.05, 200, 1800}, {0.02, 0.05, 5000, 5000},
		{0, 0.5, 60, 60}, {0, 0.2, 300, 50}, {0.005, 0.0001, 500, 4500}, {0.005, 0.01, 100000, 900000}, {0, 0.1, 30, 270},
	} {
		rule := statistics.Rule{By: c.by, Confidence: 0.95}
		harm, ok := rule.DetectableRate(c.base, float64(c.update), float64(c.stable), 5)
		if !ok {
			t.Errorf("%+v: none", c)
			continue
		}
		if p := exactPower(rule, c.base+harm, c.base, c.update, c.stable, 5); p < 0.75 || p > 0.88 {
			t.Errorf("%+v: %v is noticed with probability %v", c, harm, p)
		}
		rule.Worse = statistics.Lower
		if same, _ := rule.DetectableRate(1-c.base, float64(c.update), float64(c.stable), 5); math.Abs(same-harm) > 1e-9 {
			t.Errorf("%+v: %v of errors and %v of successes", c, harm, same)
		}
	}
}

func TestDetectableShift_IsNoticed(t *testing.T) {
	r := rand.New(rand.NewPCG(16, 5))
	for _, c := range []struct {
		update, stable int
		by             float64
	}{{8, 8, 0}, {10, 10, 0}, {15, 15, 5}, {20, 20, 20}, {5, 40, 0}} {
		rule := statistics.Rule{By: c.by, Confidence: 0.95}
		harm, ok := rule.DetectableShift(200, 10, c.update, c.stable, 5)
		if !ok {
			t.Errorf("%+v: none", c)
			continue
		}
		noticed := 0
		const windows = 600
		for range windows {
			draw := func(n int, mean float64) statistics.Samples {
				values := make([]float64, n)
				for i := range values {
					values[i] = mean + 10*r.NormFloat64()
				}
				return samples(t, values)
			}
			if rule.Judge(rule.Samples(draw(c.update, 200+harm), draw(c.stable, 200)), 5, 5) == statistics.Fail {
				noticed++
			}
		}
		if p := float64(noticed) / windows; p < 0.75 || p > 0.88 {
			t.Errorf("%+v: %v is noticed with probability %v", c, harm, p)
		}
	}
}

// If no harm can be significant, none is said to be noticed.
func TestDetectable_Nothing(t *testing.T) {
	for _, c := range []struct{ base, update, stable float64 }{
		{0.01, 3, 3}, {0.01, 0, 100}, {0.01, 100, 0}, {1, 100, 100}, {0.999, 1000, 1000},
	} {
		if harm, ok := (statistics.Rule{By: 0.005, Confidence: 0.95}).DetectableRate(c.base, c.update, c.stable, 1); ok {
			t.Errorf("%+v: %v is said to be noticed", c, harm)
		}
	}
	for _, c := range []struct{ update, stable int }{{1, 9}, {3, 3}, {0, 8}, {8, 0}} {
		if harm, ok := higher.DetectableShift(100, 10, c.update, c.stable, 1); ok {
			t.Errorf("%+v: %v is said to be noticed", c, harm)
		}
	}
}

func TestSensitivity(t *testing.T) {
	rule := statistics.Rule{By: 0.005, Confidence: 0.95}
	window := statistics.Window{Duration: 10 * 60e9, Rate: 3, Update: 1, Stable: 9, Base: 0.01, Planned: 5}
	lowered := statistics.Rule{By: 0.005, Confidence: 0.95, Worse: statistics.Lower}
	short := window
	short.Duration, short.Rate, short.Update, short.Base = 90e9, 0.5, 2, 0.99
	few := window
	few.Duration, few.Rate = 30e9, 0.1
	for want, got := range map[string]string{
		"10 min at 3 req/s a pod see 1,800 requests: an increase below 0.77 points goes unnoticed": rule.Sensitivity(window),
		"90 s at 0.5 req/s a pod see 90 requests: a decrease below 5.8 points goes unnoticed":      lowered.Sensitivity(short),
		"30 s at 0.1 req/s a pod see 3 requests: an increase below 69 points goes unnoticed":       rule.Sensitivity(few),
	} {
		if got != want {
			t.Errorf("%s\nnot %s", got, want)
		}
	}
}
