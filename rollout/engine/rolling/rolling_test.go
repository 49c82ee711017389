package rolling

import (
	"slices"
	"testing"
)

// up is a set whose pods are all available.
func up(size, want int32) Pods {
	return Pods{Size: size, Ready: size, Available: size, Want: want, Observed: true}
}

// partly is a set of which so many are available.
func partly(size, available, want int32) Pods {
	return Pods{Size: size, Ready: available, Available: available, Want: want, Observed: true}
}

// unsettled is a set whose status is about another size.
func unsettled(size, available, want int32) Pods {
	p := partly(size, available, want)
	p.Observed = false
	return p
}

// The cases of the native controller's tests on rolling (up, down, unhealthy
// ones first), each with what a split adds.
func TestRolling(t *testing.T) {
	for _, tc := range []struct {
		why                          string
		replicas, surge, unavailable int32
		sets                         []Pods
		next                         []int32
	}{
		{"surge is used at once", 10, 3, 0, []Pods{up(0, 10), up(10, 0)}, []int32{3, 10}},
		{"old ones go as far as they may be missed, once a new one is there", 10, 2, 2, []Pods{up(0, 10), up(10, 0)}, []int32{2, 8}},
		{"no more than the step wants", 10, 3, 0, []Pods{up(0, 2), up(10, 8)}, []int32{2, 10}},
		{"room that old ones have left is used", 10, 2, 0, []Pods{up(0, 10), up(5, 0)}, []int32{7, 5}},
		{"no room: the new ones have to come up first", 10, 2, 0, []Pods{partly(2, 0, 10), up(10, 0)}, []int32{2, 10}},
		{"two new ones are there: two old ones go", 10, 2, 0, []Pods{up(2, 10), up(10, 0)}, []int32{2, 8}},
		{"two of four are there", 10, 2, 2, []Pods{partly(4, 2, 10), up(8, 0)}, []int32{4, 6}},
		{"above its want it shrinks", 10, 2, 2, []Pods{up(11, 10), up(2, 0)}, []int32{10, 0}},
		{"the step is done: nothing moves", 10, 3, 2, []Pods{up(5, 5), up(5, 5)}, []int32{5, 5}},
		{"new ones that come up slowly do not count", 10, 3, 2, []Pods{partly(3, 0, 5), up(8, 5)}, []int32{5, 8}},

		{"unhealthy old ones cost nothing", 10, 2, 2, []Pods{partly(2, 0, 10), partly(10, 8, 0)}, []int32{2, 8}},
		{"of the unhealthy ones as many as leave N-U to come", 10, 0, 2, []Pods{partly(1, 0, 10), partly(10, 4, 0)}, []int32{1, 8}},
		{"unhealthy ones of all old sets go before a healthy one of any", 10, 2, 2, []Pods{up(2, 10), up(5, 0), partly(5, 3, 0)}, []int32{2, 3, 3}},
		{"what is ready and not yet available is not taken for unhealthy", 10, 2, 0, []Pods{partly(2, 0, 10), {Size: 10, Ready: 10, Available: 8, Observed: true}}, []int32{2, 10}},
		{"one more available than ready is not believed", 4, 1, 0, []Pods{up(1, 4), {Size: 4, Ready: 3, Available: 4, Observed: true}}, []int32{1, 3}},

		{"middle revisions go before the stable one", 10, 2, 2, []Pods{up(2, 5), up(4, 0), up(6, 5)}, []int32{2, 0, 6}},
		{"the stable one comes back where a middle one goes", 10, 3, 0, []Pods{up(1, 1), up(4, 0), up(5, 9)}, []int32{1, 4, 8}},
		{"a status about another size: no ready pod is staked on it", 10, 2, 2, []Pods{up(2, 10), unsettled(10, 10, 0)}, []int32{2, 10}},
		{"a status about another size: unready ones go still", 10, 2, 2, []Pods{up(2, 10), unsettled(10, 8, 0)}, []int32{2, 8}},

		{"H1: without surge the first new one comes beside, and an old one leaves in the same round", 10, 0, 2, []Pods{up(0, 10), up(10, 0)}, []int32{1, 8}},
		{"H1: nothing leaves before the first new pod", 3, 0, 1, []Pods{up(0, 0), up(3, 2)}, []int32{0, 3}},
		{"H1: before the first new pod one active set that has not N would be brought to N", 2, 1, 1, []Pods{up(0, 1), up(1, 0), up(4, 1)}, []int32{0, 1, 1}},
		{"H1: and one that has N is left alone", 3, 0, 1, []Pods{up(0, 0), up(2, 0), up(3, 3)}, []int32{0, 0, 3}},
		{"H1: no swap if nothing may leave", 3, 0, 1, []Pods{up(0, 3), partly(3, 2, 0)}, []int32{1, 2}},
		{"H2: one old one stays until the new one has all", 4, 1, 1, []Pods{up(3, 4), up(1, 0)}, []int32{4, 0}},
		{"H2: without surge the last new one comes as the last old one goes", 4, 0, 1, []Pods{up(3, 4), up(1, 0)}, []int32{4, 0}},
		{"H1: the others leave since the goal has N, and it does not shrink below in the same round", 2, 1, 1, []Pods{up(2, 1), partly(2, 0, 0), up(0, 1)}, []int32{2, 0, 0}},
		{"the trap: a broken old pod must not keep the room for ever", 3, 1, 0, []Pods{up(1, 1), partly(3, 2, 2)}, []int32{1, 2}},

		{"the trap: a broken pod gives way where it is wanted, if nothing else makes room", 1, 1, 0, []Pods{up(0, 1), up(1, 0), partly(1, 0, 1)}, []int32{0, 1, 0}},

		{"N grew: the stable ones come, the goal no further than its step", 20, 5, 5, []Pods{up(2, 4), up(8, 16)}, []int32{4, 16}},
		{"N grew by more than surge: all the room is used", 20, 2, 2, []Pods{up(2, 4), up(8, 16)}, []int32{4, 16}},
		{"N shrank: both shrink, the goal first", 5, 2, 1, []Pods{up(5, 3), up(5, 2)}, []int32{3, 2}},
		{"N shrank to one: the goal has none without surge", 1, 0, 1, []Pods{up(3, 0), up(7, 1)}, []int32{0, 1}},
	} {
		got := Round{Replicas: tc.replicas, Surge: tc.surge, Unavailable: tc.unavailable, Sets: tc.sets}.Next()
		if !slices.Equal(got, tc.next) {
			t.Errorf("%s: N=%d S=%d U=%d %+v: %v, want %v", tc.why, tc.replicas, tc.surge, tc.unavailable, tc.sets, got, tc.next)
		}
	}
}
