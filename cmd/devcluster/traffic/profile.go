package traffic

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"math"
	"slices"
	"strings"
	"time"
)

// Profile says what requests a ready pod gets, and how they end.
type Profile struct {
	Rate    float64  // requests a second
	Errors  float64  // the share of them that is answered with 500, 0 to 1
	Latency Duration // the mean; latencies are distributed exponentially
	Silent  bool     // the pod has no series at all
}

// Profiles are those of ordinary pods, and of the tags that change them.
type Profiles struct {
	Ordinary Profile
	Errors   float64  // of the tag errors
	Slow     Duration // the latency of the tag slow
}

// Default returns what `devcluster traffic` serves unless it is given flags.
func Default() Profiles {
	return Profiles{
		Ordinary: Profile{Rate: 50, Errors: 0.001, Latency: Duration(50 * time.Millisecond)},
		Errors:   0.05, Slow: Duration(250 * time.Millisecond),
	}
}

// The words of an image's tag that change its pods' traffic. Words are separated by
// hyphens, as in v2-errors.
const (
	wordErrors = "errors"
	wordSlow   = "slow"
	wordSilent = "silent"
)

// of returns the profile of a tag.
func (p Profiles) of(tag string) Profile {
	profile, words := p.Ordinary, strings.Split(tag, "-")
	if slices.Contains(words, wordErrors) {
		profile.Errors = p.Errors
	}
	if slices.Contains(words, wordSlow) {
		profile.Latency = p.Slow
	}
	profile.Silent = slices.Contains(words, wordSilent)
	return profile
}

// check says what is wrong with the profiles.
func (p Profiles) check() error {
	if err := p.Ordinary.check(); err != nil {
		return err
	}
	for _, tag := range []string{wordErrors, wordSlow} {
		if err := p.of(tag).check(); err != nil {
			return fmt.Errorf("tag %s: %w", tag, err)
		}
	}
	return nil
}

// check says what is wrong with a profile.
func (p Profile) check() error {
	switch {
	case !(p.Rate >= 0 && p.Rate <= maxRate):
		return fmt.Errorf("rate: %v is not from 0 to %d requests a second", p.Rate, maxRate)
	case !(p.Errors >= 0 && p.Errors <= 1):
		return fmt.Errorf("errors: %v is not from 0 to 1", p.Errors)
	case p.Latency <= 0:
		return fmt.Errorf("latency: %s is not above 0", p.Latency)
	}
	return nil
}

// maxRate keeps a scrape of many pods, or after a long time, within a second.
const maxRate = 10_000

// Change is a profile that replaces some of the fields of a tag's.
type Change struct {
	Rate    *float64  `json:"rate,omitempty"`
	Errors  *float64  `json:"errors,omitempty"`
	Latency *Duration `json:"latency,omitempty"`
	Silent  *bool     `json:"silent,omitempty"`
}

// readChange reads a change from JSON, and refuses one that does not fit a profile.
func readChange(r io.Reader, to Profile) (Change, error) {
	var c Change
	d := json.NewDecoder(r)
	d.DisallowUnknownFields()
	if err := d.Decode(&c); err != nil {
		return Change{}, fmt.Errorf("reading the change: %w", err)
	}
	if d.More() {
		return Change{}, errors.New("reading the change: there is more than one")
	}
	return c, c.apply(to).check()
}

// apply returns the profile as changed.
func (c Change) apply(p Profile) Profile {
	set(&p.Rate, c.Rate)
	set(&p.Errors, c.Errors)
	set(&p.Latency, c.Latency)
	set(&p.Silent, c.Silent)
	return p
}

func set[T any](field, to *T) {
	if to != nil {
		*field = *to
	}
}

// Duration is a duration that is written as "50ms" in JSON and flags.
type Duration time.Duration

func (d Duration) String() string { return time.Duration(d).String() }

// Set parses a duration.
func (d *Duration) Set(text string) error {
	parsed, err := time.ParseDuration(text)
	*d = Duration(parsed)
	return err
}

// Type names it in the help of flags.
func (d *Duration) Type() string { return "duration" }

// MarshalText writes it.
func (d Duration) MarshalText() ([]byte, error) { return []byte(d.String()), nil }

// UnmarshalText reads it.
func (d *Duration) UnmarshalText(text []byte) error { return d.Set(string(text)) }

// tagOf returns the tag of an image; empty for none.
func tagOf(image string) string {
	image, _, _ = strings.Cut(image, "@")
	name := image[strings.LastIndex(image, "/")+1:]
	_, tag, _ := strings.Cut(name, ":")
	return tag
}

// goldenRatio spreads the multiples of itself evenly over 0 to 1, however many there are.
var goldenRatio = (math.Sqrt(5) - 1) / 2

// latency returns the latency of the nth request, in seconds. The first n of them are
// distributed as evenly as n values can be.
func (p Profile) latency(n int) float64 {
	_, share := math.Modf(float64(n) * goldenRatio)
	return -math.Log(1-share) * time.Duration(p.Latency).Seconds()
}
