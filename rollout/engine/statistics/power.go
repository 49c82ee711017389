package statistics

import (
	"fmt"
	"math"
	"strconv"
	"strings"
	"time"
)

// power is the probability with which a detectable difference is noticed.
const power = 0.8

// DetectableRate returns the smallest harm, as a difference of rates, that the last of the
// planned judgements notices with a probability of 80 %. base is the rate of the stable
// revision, the others are the requests of each side. It is false if no harm is noticed so
// often. The distribution of the rates is taken as normal, with a correction for continuity.
func (r Rule) DetectableRate(base, update, stable float64, planned int) (float64, bool) {
	if update < 1 || stable < 1 {
		return 0, false
	}
	if r.Worse == Lower {
		base = 1 - base
	}
	level := r.Level(planned, planned)
	z, correction := quantile(1-level), (1/update+1/stable)/2
	noticed := func(harm float64) float64 {
		rate := base + harm
		pooled := (rate*update + base*stable) / (update + stable)
		significant := correction + z*math.Sqrt(pooled*(1-pooled)*(1/update+1/stable))
		deviation := math.Sqrt(rate*(1-rate)/update + base*(1-base)/stable)
		return 1 - above((harm-max(r.By, significant))/max(deviation, math.SmallestNonzeroFloat64))
	}
	best := Proportion{math.Round(update), math.Round(update)}.exceeds(Proportion{math.Round(base * stable), math.Round(stable)})
	low, high := r.By, 1-base
	if !(low < high) || best >= level || noticed(high) < power {
		return 0, false
	}
	for range 60 {
		if middle := (low + high) / 2; noticed(middle) < power {
			low = middle
		} else {
			high = middle
		}
	}
	return high, true
}

// DetectableShift returns the smallest harm, in the unit of the samples, that the last of the
// planned judgements notices with a probability of 80 %. median and deviation are those of
// the stable revision's samples. It is false if there are too few samples for any harm. The
// samples are taken as normally distributed.
func (r Rule) DetectableShift(median, deviation float64, update, stable, planned int) (float64, bool) {
	level, by := r.Level(planned, planned), r.By
	if r.Relative {
		by *= math.Abs(median)
	}
	if update < 1 || stable < 1 || 1/choose(update+stable, min(update, stable)) >= level {
		return 0, false
	}
	m, n := float64(update), float64(stable)
	spread := deviation * math.Sqrt(math.Pi/3*(m+n+1)/(m*n)) // of the median difference
	return max(by, quantile(1-level)*spread) + quantile(power)*spread, true
}

// Window is what a plan foresees for a metric at one step.
type Window struct {
	Duration       time.Duration
	Rate           float64 // requests per second of one pod
	Update, Stable int     // pods of each side
	Base           float64 // the rate of the stable revision
	Planned        int     // judgements
}

// Sensitivity returns a sentence that says which harm goes unnoticed in a window.
func (r Rule) Sensitivity(w Window) string {
	requests := w.Duration.Seconds() * w.Rate
	update := requests * float64(w.Update)
	seen := fmt.Sprintf("%s at %s req/s a pod see %s requests", short(w.Duration), number(w.Rate), thousands(update))
	return seen + ": " + r.UnnoticedRate(w.Base, update, requests*float64(w.Stable), w.Planned)
}

// UnnoticedRate returns a clause that says which harm goes unnoticed in 20 % of windows, or
// more. Its arguments are those of [Rule.DetectableRate].
func (r Rule) UnnoticedRate(base, update, stable float64, planned int) string {
	harm, ok := r.DetectableRate(base, update, stable, planned)
	return r.unnoticed(harm*100, " points", ok)
}

// UnnoticedShift returns such a clause of samples, in their unit. Its arguments are those of
// [Rule.DetectableShift].
func (r Rule) UnnoticedShift(median, deviation float64, update, stable, planned int) string {
	harm, ok := r.DetectableShift(median, deviation, update, stable, planned)
	return r.unnoticed(harm, "", ok)
}

func (r Rule) unnoticed(harm float64, unit string, ok bool) string {
	word := "an increase"
	if r.Worse == Lower {
		word = "a decrease"
	}
	if !ok {
		return word + " of any size goes unnoticed"
	}
	return word + " below " + number(harm) + unit + " goes unnoticed"
}

// short returns a duration in its largest whole unit.
func short(d time.Duration) string {
	for _, unit := range []struct {
		of   time.Duration
		name string
	}{{time.Hour, "h"}, {time.Minute, "min"}} {
		if d >= unit.of && d%unit.of == 0 {
			return fmt.Sprintf("%d %s", d/unit.of, unit.name)
		}
	}
	return number(d.Seconds()) + " s"
}

// number returns a number with at least two significant digits, rounded up.
func number(f float64) string {
	scale := math.Pow(10, max(0, 1-math.Floor(math.Log10(max(f, 1e-9)))))
	return strconv.FormatFloat(math.Ceil(f*scale-1e-9)/scale, 'f', -1, 64)
}

// thousands returns a rounded number with commas.
func thousands(f float64) string {
	digits := strconv.FormatFloat(math.Round(f), 'f', 0, 64)
	var groups []string
	for ; len(digits) > 3; digits = digits[:len(digits)-3] {
		groups = append([]string{digits[len(digits)-3:]}, groups...)
	}
	return strings.Join(append([]string{digits}, groups...), ",")
}
