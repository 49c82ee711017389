package gitsync_test

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"net/http"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/rest"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/tranche-dev/tranche/gitsync/gittest"
	"github.com/tranche-dev/tranche/plan/v1alpha1"
	"github.com/tranche-dev/tranche/rollout"
	"github.com/tranche-dev/tranche/rollout/clustertest"
)

// oldLeader is a controller that stands still in the middle of a sync until another one has
// decided. It does not know that it has lost its lease.
type oldLeader struct {
	*env
	// stops is asked once the controller is to stand still: at a request to the Git server,
	// or at an answer of the API server.
	stops    func(url, answer string) bool
	armed    atomic.Bool
	reached  chan struct{}
	released chan struct{}
	letGo    func()       // closes released, once
	reads    atomic.Int32 // of its GitSource
}

// leaders starts rollout, and the leader that is to be the old one. Its GitSource follows
// the repository through a server at which it can stand still.
func leaders(t *testing.T, stops func(url, answer string) bool, edit ...func(*v1alpha1.GitSource)) *oldLeader {
	t.Helper()
	s := newIdleEnv(t)
	o := &oldLeader{env: s, stops: stops, reached: make(chan struct{}), released: make(chan struct{})}
	o.letGo = sync.OnceFunc(func() { close(o.released) })
	server := gittest.Serve(t, filepath.Dir(s.repo.Bare), gittest.ServeOptions{Wrap: func(next http.Handler) http.Handler {
		return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			o.pass(r.URL.String(), "")
			next.ServeHTTP(w, r)
		})
	}})
	config := rest.CopyConfig(s.c.Controller)
	config.Wrap(func(next http.RoundTripper) http.RoundTripper {
		return roundTripper(func(r *http.Request) (*http.Response, error) { return o.send(next, r) })
	})
	s.Cleanup(s.startManager(s.c.Controller, func(mgr ctrl.Manager) error { return rollout.Add(mgr, rollout.Options{Concurrent: 2}) }))
	s.Cleanup(s.startControllerWith(config, gitsyncOnly))
	s.Cleanup(o.letGo)
	s.applied2(s.repo.CommitAndPush(manifestsInThree("v1"), "web: v1"), append(edit, func(gs *v1alpha1.GitSource) {
		gs.Spec.URL, gs.Spec.Timeout = server.URL+"/"+filepath.Base(s.repo.Bare), metav1.Duration{Duration: 10 * time.Minute}
	})...)
	s.isAt("web", "ReleaseCompleted", 2)
	o.nextRelease("v2")
	return o
}

// send passes a request of the old leader on, and counts those for its GitSource.
func (o *oldLeader) send(next http.RoundTripper, r *http.Request) (*http.Response, error) {
	if strings.HasSuffix(r.URL.Path, "/gitsources/shop") && r.Method == http.MethodGet {
		o.reads.Add(1)
	}
	answer, err := next.RoundTrip(r)
	if err != nil || r.Method != http.MethodGet || r.URL.Query().Has("watch") || !strings.HasSuffix(r.URL.Path, "/batchreleases") {
		return answer, err
	}
	body, err := io.ReadAll(answer.Body)
	_ = answer.Body.Close() // it is read to its end, or the error says that it is not
	answer.Body = io.NopCloser(bytes.NewReader(body))
	o.pass(r.URL.Path, string(body))
	return answer, err
}

// pass stands still, once, at the request or answer that is waited for.
func (o *oldLeader) pass(url, answer string) {
	if o.armed.Load() && o.stops(url, answer) && o.armed.CompareAndSwap(true, false) {
		close(o.reached)
		<-o.released
	}
}

// standsStill waits until the old leader does, and starts the new one.
func (o *oldLeader) standsStill(decide func()) {
	o.Helper()
	o.armed.Store(true)
	decide()
	select {
	case <-o.reached:
	case <-time.After(clustertest.Within):
		o.Fatalf("the leader does not come as far as this: %s", said(o.gs()))
	}
	o.Cleanup(o.startController(gitsyncOnly))
}

// ask asks for a sync.
func (o *oldLeader) ask() {
	o.Helper()
	stamp := fmt.Appendf(nil, `{"metadata":{"annotations":{%q:%q}}}`, v1alpha1.AnnotationReconcile, fmt.Sprint(time.Now().UnixNano()))
	o.must(o.c.Client.Patch(o.Context(), o.gs(), client.RawPatch(types.MergePatchType, stamp)))
}

// commits pushes a commit, and asks for a sync: the server does not notify the controllers.
func (o *oldLeader) commits(subject string, files map[string]string) {
	o.Helper()
	o.repo.CommitAndPush(files, subject)
	o.ask()
}

// goesOn lets the old leader go on, and waits until it has ended that sync and another one. A
// sync reads its GitSource once or twice, and before each push once more.
func (o *oldLeader) goesOn() {
	o.Helper()
	before := o.reads.Load()
	o.letGo()
	clustertest.Wait(o, "the old leader to end its sync", func() error {
		o.ask()
		if o.reads.Load() <= before+8 {
			return errors.New("it works on it")
		}
		return nil
	})
}

// bare fails unless a branch of the bare repository has exactly these subjects, newest first.
func (o *oldLeader) bare(want ...string) {
	o.Helper()
	if got := o.subjects("main"); !slices.Equal(got, want) {
		o.Errorf("the branch has %q, want %q\n%s", got, want, said(o.gs()))
	}
}

// atPush is where the server is asked whether it takes a push.
func atPush(url, _ string) bool { return strings.Contains(url, "service=git-receive-pack") }

// A leader stands still right before its push, and does not know that it has lost its
// lease. Nothing that the other leader has seen since is undone by the push.
func TestOldLeader_BeforeAPush(t *testing.T) {
	t.Parallel()
	for name, test := range map[string]struct {
		edit         func(*v1alpha1.GitSource)
		decide, then func(*oldLeader)
		want         []string
		release      string // what it waits for in the end, at step 0
	}{
		"an approval, and write-back is turned off": {
			edit: writesBack, decide: func(o *oldLeader) { o.approve("web") },
			then: func(o *oldLeader) {
				gs := o.gs()
				gs.Spec.WriteBack.Enabled = false
				o.write(gs)
				o.differs("ApprovedInCluster")
			},
			want: []string{"web: v2", "web: v1"},
		},
		"an approval, and a rollback": {
			edit: writesBack, decide: func(o *oldLeader) { o.approve("web") },
			then: func(o *oldLeader) {
				o.rollBack("web")
				o.rolledBack("web")
			},
			want: []string{`Revert "web: v2"`, "web: v2", "web: v1"},
		},
		"a rollback, and the next release": {
			edit: writesBack, decide: func(o *oldLeader) { o.rollBack("web") },
			then: func(o *oldLeader) { o.nextRelease("v3") },
			want: []string{"web: v3", "web: v2", "web: v1"}, release: "WaitingForApproval",
		},
		"a rollback for review, and the next release": {
			edit: func(gs *v1alpha1.GitSource) {
				gs.Spec.WriteBack = &v1alpha1.WriteBack{Enabled: true, Branch: "review"}
			},
			decide: func(o *oldLeader) { o.rollBack("web") },
			then:   func(o *oldLeader) { o.nextRelease("v3") },
			want:   []string{"web: v3", "web: v2", "web: v1"}, release: "WaitingForApproval",
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			o := leaders(t, atPush, test.edit)
			o.standsStill(func() { test.decide(o) })
			test.then(o)
			o.goesOn()
			o.bare(test.want...)
			if refs := o.inBare("for-each-ref", "--format=%(refname)"); refs != "refs/heads/main" {
				t.Errorf("the repository has %s", refs)
			}
			if test.release != "" {
				o.isAt("web", test.release, 0)
			}
			o.inBare("fsck", "--strict", "--no-dangling")
		})
	}
}

// nextRelease brings a version, and waits until it is at its first gate.
func (o *oldLeader) nextRelease(version string) {
	o.Helper()
	o.commits("web: "+version, manifestsInThree(version))
	o.applied(o.inBare("rev-parse", "main"))
	o.isAt("web", "WaitingForApproval", 0)
}

// manifestsInThree are a Deployment of one version and its plan, of three steps.
func manifestsInThree(version string) map[string]string {
	plan := strings.Replace(webPlan, "- replicas: 1\n", "- replicas: 1\n    - replicas: 1\n", 1)
	return map[string]string{"deploy/web.yaml": web(version), "deploy/plan.yaml": plan}
}

// A leader stands still with what it has read of a release. Its note then does not take the
// place of one that another leader has written since.
func TestOldLeader_Notes(t *testing.T) {
	t.Parallel()
	approved := func(_, answer string) bool { return strings.Contains(answer, `"approvals":[{`) }
	o := leaders(t, approved, func(gs *v1alpha1.GitSource) { gs.Spec.WriteBack = &v1alpha1.WriteBack{Notes: true} })
	commit := o.inBare("rev-parse", "main")
	revision := o.release("web").Status.UpdateRevision
	const outcome = "Outcome: Completed"
	isNoted := func(what string) {
		t.Helper()
		clustertest.Wait(t, "the note", func() error {
			if note := o.inBare("log", "-1", "--format=%N", "--notes=tranche", commit); !strings.Contains(note, what) {
				return withSource(o, fmt.Errorf("%q", note))
			}
			return nil
		})
	}
	isNoted("Started: ")
	approve := func(step string) {
		file := approvalOf("web", revision, commit, step)
		o.commits("Approve step "+step, map[string]string{"deploy/approvals/web.yaml": file})
	}
	o.standsStill(func() { approve("0") })
	o.isAt("web", "WaitingForApproval", 1)
	approve("1")
	o.isAt("web", "ReleaseCompleted", 2)
	isNoted(outcome)
	o.goesOn()
	isNoted(outcome)
	ended := false
	for version := range strings.Lines(o.inBare("rev-list", "--reverse", "refs/notes/tranche")) {
		note := o.inBare("show", strings.TrimSpace(version)+":"+commit)
		if ended && !strings.Contains(note, outcome) {
			t.Errorf("the outcome was noted, and then\n%s", note)
		}
		ended = ended || strings.Contains(note, outcome)
	}
	o.inBare("fsck", "--strict", "--no-dangling")
}
