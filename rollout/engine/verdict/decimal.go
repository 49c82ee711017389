package verdict

import (
	"math"
	"strconv"
	"strings"
)

// sum is a proportion over windows.
type sum struct{ count, total float64 }

// parse returns the sum that text has: 41/1022.
func parseSum(text string) sum {
	count, total, _ := strings.Cut(text, "/")
	return sum{number(count), number(total)}
}

func (s sum) String() string { return format(s.count) + "/" + format(s.total) }

func (s sum) plus(o sum) sum { return sum{s.count + o.count, s.total + o.total} }

func (s sum) rate() float64 {
	if s.total == 0 {
		return 0
	}
	return s.count / s.total
}

func number(text string) float64 {
	value, err := strconv.ParseFloat(text, 64)
	if err != nil {
		return 0
	}
	return value
}

func numbers(texts []string) []float64 {
	values := make([]float64, len(texts))
	for i, t := range texts {
		values[i] = number(t)
	}
	return values
}

// format returns a number with at most three decimals, or six digits for a small one. Sums of
// windows are then the same in whatever rounds they were made.
func format(f float64) string {
	switch a := math.Abs(f); {
	case a != 0 && a < 1:
		return strconv.FormatFloat(f, 'g', 6, 64)
	case a > 1e15: // it has no decimals, and would have up to 308 digits
		return strconv.FormatFloat(f, 'g', 10, 64)
	}
	return strconv.FormatFloat(math.Round(f*1000)/1000, 'f', -1, 64)
}

// exact returns a number with all of its digits: a limit may have as many.
func exact(f float64) string {
	if a := math.Abs(f); a >= 1 && a < 1e17 {
		return strconv.FormatFloat(f, 'f', -1, 64)
	}
	return strconv.FormatFloat(f, 'g', -1, 64)
}

// maxDigits is how long a proportion for people is. No proportion is longer, but any number
// may stand in a status.
const maxDigits = 40

// Percent returns a proportion for people: 4.0 %.
func Percent(f float64) string {
	digits := 1
	if a := math.Abs(f); a > 0 && a < 0.001 {
		digits = 3
	}
	if text := strconv.FormatFloat(f*100, 'f', digits, 64); len(text) <= maxDigits {
		return text + " %"
	}
	return strconv.FormatFloat(f*100, 'g', 4, 64) + " %"
}

// short returns a value for people, with four digits.
func short(f float64) string { return strconv.FormatFloat(f, 'g', 4, 64) }
