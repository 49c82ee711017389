package pool

import (
	"context"
	"fmt"
	"math/rand/v2"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"k8s.io/apimachinery/pkg/types"

	"github.com/tranche-dev/tranche/rollout/analysis/unknown"
)

// scene is a pool that runs in a bubble of synctest, whose time goes on when all waits.
type scene struct {
	*testing.T
	*Pool[string, string]
	mu       sync.Mutex
	answered map[types.NamespacedName]int
	begun    []string
	running  map[string]int // by host and namespace
	most     map[string]int
	stop     func()
}

func newScene(t *testing.T) *scene {
	s := &scene{T: t, answered: map[types.NamespacedName]int{}, running: map[string]int{}, most: map[string]int{}}
	s.Pool = New[string, string](Options{Now: time.Now, Answered: func(r types.NamespacedName) {
		s.mu.Lock()
		defer s.mu.Unlock()
		s.answered[r]++
	}})
	ctx, cancel := context.WithCancel(t.Context())
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		_ = s.Start(ctx)
	}()
	s.stop = func() { cancel(); <-ended }
	t.Cleanup(s.stop)
	return s
}

// takes is a question that takes a while.
func (s *scene) takes(key, namespace, host string, d time.Duration) Question[string, string] {
	count := func(n int) {
		s.mu.Lock()
		defer s.mu.Unlock()
		for _, what := range []string{"all", "host " + host, "namespace " + namespace} {
			s.running[what] += n
			s.most[what] = max(s.most[what], s.running[what])
		}
		if n > 0 {
			s.begun = append(s.begun, key)
		}
	}
	return Question[string, string]{Key: key, Host: host, Run: func(ctx context.Context) (string, error) {
		count(1)
		defer count(-1)
		select {
		case <-ctx.Done():
			return "", ctx.Err()
		case <-time.After(d):
			return "answer of " + key, nil
		}
	}}
}

func of(namespace, name string) types.NamespacedName {
	return types.NamespacedName{Namespace: namespace, Name: name}
}

// A provider that answers in 30 s, asked by a hundred releases of ten tenants, delays no
// release that asks another one.
func TestPool_SlowHost(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newScene(t)
		for i := range 100 {
			ns := "slow" + strconv.Itoa(i%10)
			s.Ask(of(ns, strconv.Itoa(i)), []Question[string, string]{s.takes("a"+strconv.Itoa(i), ns, "slow"+strconv.Itoa(i), 30*time.Second)})
		}
		synctest.Wait()
		began := time.Now()
		s.Ask(of("shop", "web"), []Question[string, string]{s.takes("b", "shop", "fast", time.Millisecond)})
		time.Sleep(time.Millisecond)
		synctest.Wait()
		if got := s.Answers(of("shop", "web")); !slices.Equal(got, []string{"answer of b"}) || time.Since(began) > time.Second {
			t.Errorf("%q after %s", got, time.Since(began))
		}
		time.Sleep(time.Hour)
		synctest.Wait()
		for i := range 100 {
			if len(s.Answers(of("slow"+strconv.Itoa(i%10), strconv.Itoa(i)))) != 1 {
				t.Errorf("release %d has no answer after an hour", i)
			}
		}
		for what, n := range s.most {
			if what == "all" && n > Places+10 || strings.HasPrefix(what, "host") && n > PlacesOfHost || what == "namespace slow0" && n > Places/2 {
				t.Errorf("%s: %d at the same time", what, n)
			}
		}
	})
}

// A release with many questions for a host does not keep one waiting that has few.
func TestPool_Fair(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newScene(t)
		var many []Question[string, string]
		for i := range 50 {
			q := s.takes("many"+strconv.Itoa(i), "shop", "prometheus", time.Second)
			q.At = time.Now().Add(-time.Hour) // due before the other one
			many = append(many, q)
		}
		s.Ask(of("shop", "many"), many)
		synctest.Wait()
		few := s.takes("few", "shop", "prometheus", time.Second)
		few.At = time.Now()
		s.Ask(of("shop", "few"), []Question[string, string]{few})
		time.Sleep(1500 * time.Millisecond)
		synctest.Wait()
		if at := slices.Index(s.begun, "few"); at < 0 || at > PlacesOfHost {
			t.Errorf("the question of the other release was the %dth", at)
		}
	})
}

// A question is asked when it is due, and again while its provider is down. The wait grows, or
// is as long as the provider asks for. The question has one answer at the end.
func TestPool_Backoff(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s, began := newScene(t), time.Now()
		var at []time.Duration
		q := Question[string, string]{Key: "a", At: began.Add(30 * time.Second), Run: func(context.Context) (string, error) {
			at = append(at, time.Since(began))
			switch n := len(at); {
			case n == 3:
				return "down", &unknown.Error{Reason: unknown.ProviderUnavailable, Retry: true, After: 2 * time.Minute}
			case n < 8:
				return "down", unknown.Passing(unknown.ProviderUnavailable, "")
			}
			return "up", nil
		}}
		s.Ask(of("shop", "web"), []Question[string, string]{q})
		time.Sleep(29 * time.Second)
		synctest.Wait()
		if len(at) != 0 {
			t.Errorf("asked at %s, before it was due", at)
		}
		time.Sleep(2 * time.Second)
		synctest.Wait()
		if got := s.Answers(of("shop", "web")); !slices.Equal(got, []string{"down"}) {
			t.Errorf("while it is asked again the answers are %q", got)
		}
		time.Sleep(time.Hour)
		synctest.Wait()
		want := []time.Duration{30, 35, 45, 165, 205, 265, 325, 385}
		for i := range want {
			want[i] *= time.Second
		}
		if !slices.Equal(at, want) || !slices.Equal(s.Answers(of("shop", "web")), []string{"up"}) || s.answered[of("shop", "web")] != 8 {
			t.Errorf("asked at %s, want %s; answers %q", at, want, s.Answers(of("shop", "web")))
		}
	})
}

// A Job that runs has no answer yet, and takes no place while it is not asked.
func TestPool_Pending(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s, polls := newScene(t), 0
		began := time.Now()
		s.Ask(of("shop", "web"), []Question[string, string]{{Key: "job", Run: func(context.Context) (string, error) {
			if polls++; time.Since(began) < 5*time.Minute {
				return "", &unknown.Error{Pending: true, Retry: true}
			}
			return "done", nil
		}}})
		time.Sleep(4 * time.Minute)
		synctest.Wait()
		if got := s.Answers(of("shop", "web")); len(got) != 0 || s.busy.all != 0 {
			t.Errorf("answers %q, %d places taken", got, s.busy.all)
		}
		time.Sleep(2 * time.Minute)
		synctest.Wait()
		if got := s.Answers(of("shop", "web")); !slices.Equal(got, []string{"done"}) || polls < 20 || polls > 30 {
			t.Errorf("answers %q after %d polls", got, polls)
		}
	})
}

// An answer stays until its question is not asked any more. Such a question is cancelled, and
// its answer does not come back.
func TestPool_Superseded(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s, release := newScene(t), of("shop", "web")
		cancelled := make(chan struct{})
		stuck := Question[string, string]{Key: "old", Run: func(ctx context.Context) (string, error) {
			<-ctx.Done()
			close(cancelled)
			return "too late", nil
		}}
		quick := s.takes("kept", "shop", "h", time.Second)
		s.Ask(release, []Question[string, string]{stuck, quick})
		time.Sleep(2 * time.Second)
		for range 3 { // status could not be written: the same is asked again
			s.Ask(release, []Question[string, string]{stuck, quick})
			synctest.Wait()
			if got := s.Answers(release); !slices.Equal(got, []string{"answer of kept"}) {
				t.Errorf("answers %q", got)
			}
		}
		s.Ask(release, []Question[string, string]{s.takes("new", "shop", "h", time.Second)})
		<-cancelled
		time.Sleep(2 * time.Second)
		synctest.Wait()
		if got := s.Answers(release); !slices.Equal(got, []string{"answer of new"}) {
			t.Errorf("answers %q", got)
		}
		s.Ask(release, nil)
		if n := len(s.releases); n != 0 || len(s.busy.of)+len(s.busy.hosts)+len(s.busy.ofHosts) != 0 {
			t.Errorf("%d releases and %+v are left", n, s.busy)
		}
	})
}

// Start returns when nothing runs any more, and nothing begins after its end. synctest fails
// if a goroutine is left.
func TestPool_End(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newScene(t)
		for i := range 50 {
			s.Ask(of("ns", strconv.Itoa(i)), []Question[string, string]{s.takes(strconv.Itoa(i), "ns", strconv.Itoa(i), time.Hour)})
		}
		synctest.Wait()
		s.stop()
		n := len(s.begun)
		s.Ask(of("ns", "late"), []Question[string, string]{s.takes("late", "ns", "h", 0)})
		time.Sleep(time.Minute)
		if s.running["all"] != 0 || n != Places/2 || len(s.begun) != n {
			t.Errorf("%d run, %d were begun, %d in all", s.running["all"], n, len(s.begun))
		}
	})
}

// Whatever is asked and answered in which order, each question that stays is answered.
func TestPool_Random(t *testing.T) {
	for seed := range uint64(20) {
		synctest.Test(t, func(t *testing.T) {
			random := rand.New(rand.NewPCG(seed, 1))
			s := newScene(t)
			last := map[types.NamespacedName][]Question[string, string]{}
			for round := range 300 {
				release := of("ns"+strconv.Itoa(random.IntN(5)), strconv.Itoa(random.IntN(10)))
				var questions []Question[string, string]
				for _, q := range last[release] {
					if random.IntN(2) == 0 {
						questions = append(questions, q)
					}
				}
				for i := range random.IntN(4) {
					key, host := fmt.Sprint(round, "-", i), "h"+strconv.Itoa(random.IntN(6))
					questions = append(questions, s.takes(key, release.Namespace, host, time.Duration(random.IntN(40))*time.Second))
				}
				last[release] = questions
				s.Ask(release, questions)
				time.Sleep(time.Duration(random.IntN(3000)) * time.Millisecond)
			}
			time.Sleep(24 * time.Hour)
			synctest.Wait()
			for release, questions := range last {
				var want []string
				for _, q := range questions {
					want = append(want, "answer of "+q.Key)
				}
				if got := s.Answers(release); !slices.Equal(slices.Sorted(slices.Values(got)), slices.Sorted(slices.Values(want))) {
					t.Errorf("seed %d, %s: %q, want %q", seed, release, got, want)
				}
			}
			for what, n := range s.most {
				if what == "all" && n > Places+5 || strings.HasPrefix(what, "host") && n > PlacesOfHost {
					t.Errorf("seed %d: %s: %d at the same time", seed, what, n)
				}
			}
			s.stop()
		})
	}
}
