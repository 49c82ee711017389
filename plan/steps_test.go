package plan_test

import (
	"fmt"
	"strconv"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	appsv1 "k8s.io/api/apps/v1"
	"k8s.io/apimachinery/pkg/util/intstr"
	"k8s.io/apimachinery/pkg/util/validation/field"

	"github.com/tranche-dev/tranche/plan"
	"github.com/tranche-dev/tranche/plan/v1alpha1"
)

func percent(p int) intstr.IntOrString { return intstr.FromString(strconv.Itoa(p) + "%") }

// TestLimitRows are the rows of NATIVE.md, partition corner cases.
func TestLimitRows(t *testing.T) {
	percentages := []int{10, 20, 25, 33, 50, 67, 75, 90, 99, 100}
	for _, tc := range []struct {
		n    int32
		want []int32
	}{
		{0, []int32{0, 0, 0, 0, 0, 0, 0, 0, 0, 0}},
		{1, []int32{1, 1, 1, 1, 1, 1, 1, 1, 1, 1}},
		{2, []int32{1, 1, 1, 1, 1, 1, 1, 1, 1, 2}},
		{3, []int32{1, 1, 1, 1, 2, 2, 2, 2, 2, 3}},
		{5, []int32{1, 1, 2, 2, 3, 4, 4, 4, 4, 5}},
		{10, []int32{1, 2, 3, 4, 5, 7, 8, 9, 9, 10}},
	} {
		got := make([]int32, len(percentages))
		for i, p := range percentages {
			got[i] = plan.Limit(percent(p), tc.n)
		}
		if diff := cmp.Diff(tc.want, got); diff != "" {
			t.Errorf("%v%% of %d (-want +got):\n%s", percentages, tc.n, diff)
		}
	}
}

// TestLimitTwin compares with a twin that counts pods instead of dividing. It takes the
// fewest pods that are at least that share of n. It takes one less if that would be all
// of them and all were not asked for.
func TestLimitTwin(t *testing.T) {
	for n := range 201 {
		for p := 1; p <= 100; p++ {
			want := 0
			for want*100 < p*n {
				want++
			}
			if want == n && p < 100 && n > 1 {
				want--
			}
			if got := plan.Limit(percent(p), int32(n)); got != int32(want) {
				t.Errorf("%d%% of %d is %d, counted %d", p, n, got, want)
			}
		}
		for k := 1; k <= 201; k++ {
			if got, want := plan.Limit(intstr.FromInt(k), int32(n)), int32(min(k, n)); got != want {
				t.Errorf("%d of %d is %d, want %d", k, n, got, want)
			}
		}
	}
	if got := plan.Limit(percent(99), 2_000_000_000); got != 1_980_000_000 {
		t.Errorf("99%% of two billion is %d: it overflowed", got)
	}
}

func TestParseReplicas(t *testing.T) {
	type result struct {
		N       int32
		Percent bool
	}
	for _, tc := range []struct {
		in   intstr.IntOrString
		want result
		err  string
	}{
		{intstr.FromInt(1), result{1, false}, ""},
		{intstr.FromInt(1000), result{1000, false}, ""},
		{intstr.FromString("1%"), result{1, true}, ""},
		{intstr.FromString("100%"), result{100, true}, ""},
		{intstr.FromInt(0), result{}, "0: must be at least 1"},
		{intstr.FromInt(-1), result{}, "-1: must be at least 1"},
		{intstr.FromString("5"), result{}, `"5": must be a number, or a percentage such as 25%`},
		{intstr.FromString("abc"), result{}, `"abc": must be a number, or a percentage such as 25%`},
		{intstr.FromString(""), result{}, `"": must be a number, or a percentage such as 25%`},
		{intstr.FromString("%"), result{}, `"%": must be a number, or a percentage such as 25%`},
		{intstr.FromString("150%"), result{}, `"150%": a percentage must be from 1% to 100%`},
		{intstr.FromString("101%"), result{}, `"101%": a percentage must be from 1% to 100%`},
		{intstr.FromString("0%"), result{}, `"0%": a percentage must be from 1% to 100%`},
		{intstr.FromString("-10%"), result{}, `"-10%": must be a number, or a percentage such as 25%`},
		{intstr.FromString("+10%"), result{}, `"+10%": must be a number, or a percentage such as 25%`},
		{intstr.FromString("099%"), result{}, `"099%": must be a number, or a percentage such as 25%`},
		{intstr.FromString("9.5%"), result{}, `"9.5%": must be a number, or a percentage such as 25%`},
		{intstr.FromString(" 9%"), result{}, `" 9%": must be a number, or a percentage such as 25%`},
		{intstr.FromString("9%%"), result{}, `"9%%": must be a number, or a percentage such as 25%`},
		{intstr.FromString("1e1%"), result{}, `"1e1%": must be a number, or a percentage such as 25%`},
		{intstr.FromString("٩%"), result{}, `"٩%": must be a number, or a percentage such as 25%`},
	} {
		n, p, err := plan.ParseReplicas(tc.in)
		if diff := cmp.Diff(tc.want, result{n, p}); diff != "" {
			t.Errorf("%q (-want +got):\n%s", tc.in.String(), diff)
		}
		if got := text(err); got != tc.err {
			t.Errorf("%q: got error %q, want %q", tc.in.String(), got, tc.err)
		}
		if err != nil && plan.Limit(tc.in, 10) != 0 {
			t.Errorf("%q: a mistake must let nothing go", tc.in.String())
		}
	}
}

func text(err error) string {
	if err == nil {
		return ""
	}
	return err.Error()
}

// steps reads "1 30% 100%".
func steps(s string) []v1alpha1.Step {
	var list []v1alpha1.Step
	for _, f := range strings.Fields(s) {
		list = append(list, v1alpha1.Step{Replicas: intstr.Parse(f)})
	}
	return list
}

func TestValidateSteps(t *testing.T) {
	for _, tc := range []struct {
		steps  string
		n      int32
		reason string
		want   []string
	}{
		{"1 30% 100%", 10, "they go up", nil},
		{"1 10% 10% 100%", 10, "they stay", nil},
		{
			"3 20% 100%", 10, "a number, then a smaller share",
			[]string{"at[1].replicas: of 10 is 2, below the 3 of step 0; steps may stay or go up"},
		},
		{"3 20% 100%", 15, "the same plan is in order for more pods", nil},
		{"50% 3 4 100%", 10, "each step below the highest is named, with the highest", []string{
			"at[1].replicas: of 10 is 3, below the 5 of step 0; steps may stay or go up",
			"at[2].replicas: of 10 is 4, below the 5 of step 0; steps may stay or go up",
		}},
		{"7 5% 100%", 0, "of no pods all is none", nil},
		{
			"7 99% 100%", 2, "a number stops at all pods, a share below 100% before",
			[]string{"at[1].replicas: of 2 is 1, below the 2 of step 0; steps may stay or go up"},
		},
	} {
		var got []string
		for _, e := range plan.ValidateSteps(steps(tc.steps), tc.n, field.NewPath("at")) {
			got = append(got, e.Field+": "+e.Detail)
		}
		if diff := cmp.Diff(tc.want, got); diff != "" {
			t.Errorf("%s of %d: %s (-want +got):\n%s", tc.steps, tc.n, tc.reason, diff)
		}
	}
}

// TestValidatedStepsGoUp: a plan of percentages that ValidateStrategy lets pass
// goes up at every number of replicas, so that only mixed plans need the real one.
func TestValidatedStepsGoUp(t *testing.T) {
	for p := 1; p <= 100; p++ {
		for q := p; q <= 100; q++ {
			s := steps(fmt.Sprintf("%d%% %d%% 100%%", p, q))
			if errs := plan.ValidateStrategy(&v1alpha1.BatchStrategy{Steps: s}, nil); len(errs) > 0 {
				t.Fatal(errs)
			}
			for n := range int32(60) {
				if errs := plan.ValidateSteps(s, n, nil); len(errs) > 0 {
					t.Fatalf("%v of %d: %v", s, n, errs)
				}
			}
		}
	}
}

func TestBounds(t *testing.T) {
	strategy := func(surge, unavailable string) *appsv1.DeploymentStrategy {
		u := &appsv1.RollingUpdateDeployment{}
		if surge != "" {
			v := intstr.Parse(surge)
			u.MaxSurge = &v
		}
		if unavailable != "" {
			v := intstr.Parse(unavailable)
			u.MaxUnavailable = &v
		}
		return &appsv1.DeploymentStrategy{RollingUpdate: u}
	}
	for _, tc := range []struct {
		s                  *appsv1.DeploymentStrategy
		n                  int32
		surge, unavailable int32
		err, reason        string
	}{
		{nil, 10, 3, 2, "", "the server's defaults: surge is rounded up, unavailable down"},
		{&appsv1.DeploymentStrategy{}, 3, 1, 0, "", "a strategy without rollingUpdate is the default"},
		{nil, 0, 0, 0, "", "of none nothing can be unavailable"},
		{nil, 1, 1, 0, "", "one pod: one more, none less"},
		{strategy("0", "0"), 10, 0, 1, "", "both 0 would stand still, so unavailable is 1"},
		{strategy("0%", "5%"), 10, 0, 1, "", "both rounded to 0"},
		{strategy("0", "0"), 0, 0, 0, "", "but not more than there are"},
		{strategy("0", "50"), 10, 0, 10, "", "not more unavailable than there are"},
		{strategy("200%", "100%"), 3, 6, 3, "", "surge may be more than there are"},
		{strategy("1", ""), 8, 1, 2, "", "one is named, the other has its default"},
		{strategy("33%", "33%"), 10, 4, 3, "", "3.3 up and down"},
		{strategy("lots", "1"), 10, 0, 0, "maxSurge: invalid value for IntOrString: invalid type: string is not a percentage", "no number"},
		{strategy("1", "lots"), 10, 0, 0, "maxUnavailable: invalid value for IntOrString: invalid type: string is not a percentage", "no number"},
	} {
		surge, unavailable, err := plan.Bounds(tc.s, tc.n)
		if surge != tc.surge || unavailable != tc.unavailable || text(err) != tc.err {
			t.Errorf("%s: Bounds(%v, %d) = %d, %d, %v; want %d, %d, %q",
				tc.reason, tc.s, tc.n, surge, unavailable, err, tc.surge, tc.unavailable, tc.err)
		}
	}
}
