package statistics

import "math"

// Worse is the direction of a value in which it does harm.
type Worse int

const (
	Higher Worse = iota // errors, latency
	Lower               // successes, throughput
)

// Rule says when a difference between update and stable revision is a failure.
type Rule struct {
	Worse      Worse
	By         float64 // the smallest harm that counts: a difference of rates, or of values
	Relative   bool    // By is a part of the median of stable's samples: 0.2 for 20 %
	Confidence float64 // 0.95: of 100 windows of identical revisions at most 5 fail
	Prove      bool    // Pass only if the bound of the harm is at most By
	Grows      bool    // the window may be judged after its last judgement, as it is with Prove

	bound float64 // the part of 1 - confidence that the bound has, see At; 0: all of it
}

// At returns the rule with the bound of judgement n, of as many as are planned. Each judgement that
// may prove is one more chance that the bound is wrong. So the last of the planned ones and all
// after it divide 1 - confidence as [Rule.Level] does. Harm of more than By passes no more often.
func (r Rule) At(n, planned int) Rule {
	if planned == 0 || n < planned { // it proves nothing
		return r
	}
	r.bound = r.alpha() - r.afterwards()
	if n > planned {
		r.bound = part(n-planned) * r.afterwards()
	}
	return r
}

// Evidence is what two measurements say about harm, whatever the time.
type Evidence struct {
	P      float64 // the probability of at least this harm if the revisions are identical
	Effect float64 // the harm that was measured; negative if the update revision is better
	Most   float64 // the bound of the harm, at the confidence or as Rule.At has it; +Inf: too few samples
	By     float64 // the smallest harm that counts, in the units of Effect
}

// Verdict is what evidence says at one judgement.
type Verdict int

const (
	Undecided Verdict = iota // no failure so far; a later judgement decides
	Pass                     // no harm was seen, or with Prove: none of By or more is there
	Fail                     // there is harm
	Unproven                 // no harm was seen, and harm of By or more is not excluded
)

// Proportions returns the evidence of the requests that both revisions served in a window.
func (r Rule) Proportions(update, stable Proportion) Evidence {
	worse, better := update, stable
	if r.Worse == Lower {
		worse, better = stable, update
	}
	return Evidence{
		P: worse.exceeds(better), Effect: worse.Rate() - better.Rate(),
		Most: worse.most(better, quantile(1-r.spent())), By: r.By,
	}
}

// Samples returns the evidence of the values that both revisions had in a window.
func (r Rule) Samples(update, stable Samples) Evidence {
	worse, better, by := update, stable, r.By
	if r.Worse == Lower {
		worse, better = stable, update
	}
	if r.Relative {
		by *= math.Abs(stable.Median())
	}
	return Evidence{
		P: worse.exceeds(better), Effect: worse.shift(better),
		Most: worse.most(better, r.spent()), By: by,
	}
}

// Judge returns the verdict of judgement n, counted from 1, of as many as are planned for the
// window. The last one, and any after it, decide. If 0 are planned there is no last one.
func (r Rule) Judge(e Evidence, n, planned int) Verdict {
	switch {
	case e.P < r.Level(n, planned) && e.Effect >= e.By:
		return Fail
	case n < planned || planned == 0:
		return Undecided
	case r.Prove && !(e.Most <= e.By):
		return Unproven
	}
	return Pass
}

// Level returns the p-value below which harm is significant at judgement n of the planned
// ones. Before the last one it is 0.001, as Haybittle (1971) and Peto (1976) propose. If there
// are many, it is less: all of these spend a tenth of 1 - confidence at most. The last one
// has the rest. A window that grows beyond it is judged again: these judgements have another
// tenth, of which judgement k has 1/k(k+1). If there is no last one, judgement n
// has 1/n(n+1) of all. The levels add up to 1 - confidence. So identical revisions fail no more
// often, however the judgements depend on one another.
func (r Rule) Level(n, planned int) float64 {
	if planned == 0 {
		return min(0.001, part(n)*r.alpha())
	}
	before, after := float64(planned-1), r.afterwards()
	early := min(0.001, r.alpha()/10/max(before, 1))
	switch {
	case n < planned:
		return early
	case n > planned && after > 0:
		return part(n-planned) * after
	}
	return r.alpha() - before*early - after
}

// afterwards returns what all judgements after the planned ones may spend.
func (r Rule) afterwards() float64 {
	if r.Prove || r.Grows {
		return r.alpha() / 10
	}
	return 0
}

// spent returns the probability with which the bound may be wrong.
func (r Rule) spent() float64 {
	if r.bound > 0 {
		return r.bound
	}
	return r.alpha()
}

// part returns the k-th of parts that add up to 1.
func part(k int) float64 { return 1 / float64(k) / float64(k+1) }

// alpha returns 1 - confidence, without the rounding error that makes 1 - 0.95 more than
// 0.05.
func (r Rule) alpha() float64 { return math.Round((1-r.Confidence)*1e12) / 1e12 }
