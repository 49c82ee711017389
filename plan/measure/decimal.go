package measure

import (
	"strconv"
	"strings"

	"github.com/tranche-dev/tranche/plan/v1alpha1"
)

// Number returns the value of a decimal, and whether it is a percentage: 0.02 for 2%. Zero for
// one that is no number; the plan is refused then.
func Number(d v1alpha1.Decimal) (value float64, percent bool) {
	text, percent := strings.CutSuffix(string(d), "%")
	value, err := strconv.ParseFloat(text, 64)
	if err != nil {
		return 0, percent
	}
	if percent {
		value /= 100
	}
	return value, percent
}
