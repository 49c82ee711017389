package startup_test

import (
	"testing"
	"time"

	"k8s.io/apimachinery/pkg/types"

	"github.com/tranche-dev/tranche/rollout/startup"
)

// The hand-back of a Deployment waits for its source after the start of the leader. It also
// waits after a plan is gone that the branch has again.
func TestPlans(t *testing.T) {
	var uptime time.Duration
	s := startup.New(func() time.Duration { return uptime })
	web, zoo := types.NamespacedName{Namespace: "shop", Name: "web"}, types.NamespacedName{Namespace: "shop", Name: "zoo"}
	for _, step := range []struct {
		why  string
		at   time.Duration
		do   func(types.NamespacedName)
		want time.Duration // of web; -1: not asked, since a plan is there
	}{
		{"the leader has begun", 0, nil, 30 * time.Second},
		{"it has a plan", 5 * time.Second, s.Saw, 0},
		{"the start was long ago", time.Hour, nil, 0},
		{"the plan is to return", time.Hour, s.AwaitReturn, -1},
		{"its finalizer has gone an hour later", 2 * time.Hour, nil, 30 * time.Second},
		{"that was a while ago", 2*time.Hour + 20*time.Second, nil, 10 * time.Second},
		{"it is created", 2*time.Hour + 25*time.Second, s.Saw, 0},
		{"another one is to return", 3 * time.Hour, s.AwaitReturn, -1},
		{"it leaves the branch once more", 3 * time.Hour, s.EndReturn, 0},
		{"another one is to return", 4 * time.Hour, s.AwaitReturn, -1},
		{"it is gone", 4 * time.Hour, nil, 30 * time.Second},
		{"it is not created in time", 4*time.Hour + 30*time.Second, nil, 0},
	} {
		uptime = step.at
		if step.do != nil {
			step.do(web)
		}
		if step.want < 0 {
			continue
		}
		if got := s.Wait(web); got != step.want {
			t.Errorf("%s: %s, want %s", step.why, got, step.want)
		}
	}
	if got := s.Wait(zoo); got != 0 {
		t.Errorf("another Deployment waits for %s", got)
	}
}
