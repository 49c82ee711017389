//go:build unix

package main

import (
	"errors"
	"flag"
	"fmt"
	"net/http"
	"strings"
	"sync"
	"testing"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/tranche-dev/tranche/plan/v1alpha1"
)

var failoverReleases = flag.Int("failover", 50, "releases of BenchmarkFailover")

// failoverPods are the pods of each Deployment: 1, 2 and then all run the update revision.
const failoverPods = 4

// failoverWithin is how long all releases may take for a step.
const failoverWithin = 10 * time.Minute

// failover is two replicas of the controller, of which the leader is killed, and many releases.
type failover struct {
	*replicas
	sets, deployments *recorder
	lines             [][]string
}

// BenchmarkFailover kills the leader in the middle of a first sync, and in the middle of a
// step of all releases. It fails if a Deployment is made twice, or if a ReplicaSet moves back.
// It fails if an approval is not committed exactly once. The watcher of [env] fails it if
// there are more pods than the open gates allow. It measures how long no replica
// leads, and how long nothing is written.
func BenchmarkFailover(b *testing.B) {
	for b.Loop() {
		f := newFailover(b)
		f.firstSync()
		f.start("c") // so that there are two again
		f.releases()
		f.finish()
		fmt.Printf("\n\n%s\n", tabulate(f.lines))
		b.ReportMetric(0, "ns/op")
	}
}

func failoverName(i int) string { return fmt.Sprintf("app-%03d", i) }

func newFailover(b *testing.B) *failover {
	b.Helper()
	f := &failover{}
	f.lines = [][]string{{
		fmt.Sprintf("%d releases, leader killed", *failoverReleases), "until another leads", "until it writes",
		"until all have come as far",
	}}
	f.replicas = newReplicas(b, func(s *env) {
		s.run(s.clone, "git", "rm", "--quiet", "-r", ".")
		for i := range *failoverReleases {
			s.write(failoverName(i)+".yaml", failoverManifest(failoverName(i)))
		}
		s.push("All applications")
	}, "a", "b")
	f.sets, f.deployments = f.record(&appsv1.ReplicaSetList{}), f.record(&appsv1.DeploymentList{})
	return f
}

func failoverManifest(name string) string {
	return fmt.Sprintf(`apiVersion: apps/v1
kind: Deployment
metadata: {name: %[1]s}
spec:
  replicas: %[2]d
  selector: {matchLabels: {app: %[1]s}}
  template:
    metadata: {labels: {app: %[1]s}}
    spec: {containers: [{name: web, image: "registry.example.org/web:v1"}]}
---
apiVersion: tranche.dev/v1alpha1
kind: BatchRelease
metadata: {name: %[1]s}
spec:
  workloadRef: {apiVersion: apps/v1, kind: Deployment, name: %[1]s}
  strategy: {steps: [{replicas: 1}, {replicas: 50%%}, {replicas: 100%%}]}
`, name, failoverPods)
}

// firstSync kills the leader once it has made half of the Deployments.
func (f *failover) firstSync() {
	f.Helper()
	made := 0
	f.strikeAt(killed, func(q *http.Request) bool {
		if q.Method != http.MethodGet && strings.Contains(q.URL.Path, "/deployments/") && !q.URL.Query().Has("dryRun") {
			made++
		}
		return made == max(1, *failoverReleases/2)
	})
	f.follow(func(gs *v1alpha1.GitSource) { gs.Spec.WriteBack = &v1alpha1.WriteBack{Enabled: true} })
	f.failsOver("first sync", v1alpha1.ReasonReleaseCompleted, 2)
}

// releases brings v2 to all, approves the first step of all, and kills the leader once a
// quarter of them has moved.
func (f *failover) releases() {
	f.Helper()
	f.run(f.clone, "git", "pull", "--quiet", "--rebase", "origin", "main")
	for i := range *failoverReleases {
		f.replace(failoverName(i)+".yaml", "web:v1", "web:v2")
	}
	f.push("All: v2")
	f.reach(v1alpha1.ReasonWaitingForApproval, 0)
	moved := 0
	f.strikeAt(killed, func(q *http.Request) bool {
		if q.Method == http.MethodPatch && strings.Contains(q.URL.Path, "/replicasets/") && !q.URL.Query().Has("dryRun") {
			moved++
		}
		return moved == max(1, *failoverReleases/4)
	})
	f.approveAll()
	f.failsOver("second step", v1alpha1.ReasonWaitingForApproval, 1)
	f.approvals(1)
}

// finish takes the last step, and judges.
func (f *failover) finish() {
	f.Helper()
	f.approveAll()
	f.reach(v1alpha1.ReasonReleaseCompleted, 2)
	f.approvals(2)
	f.judge()
	f.judgeSizes()
	uids := map[string]map[types.UID]bool{}
	for _, d := range f.deployments.versions(f) {
		if uids[d.GetName()] == nil {
			uids[d.GetName()] = map[types.UID]bool{}
		}
		uids[d.GetName()][d.GetUID()] = true
	}
	if len(uids) != *failoverReleases {
		f.Errorf("there are %d Deployments", len(uids))
	}
	for name, all := range uids {
		if len(all) != 1 {
			f.Errorf("Deployment %s was made %d times", name, len(all))
		}
		f.untouched(name)
	}
}

// judgeSizes fails unless each Deployment has two ReplicaSets, of which the new one only grew,
// and the old one only shrank once it was complete.
func (f *failover) judgeSizes() {
	f.Helper()
	sizes, isNew := map[string][]int32{}, map[string]bool{}
	for _, o := range f.sets.versions(f) {
		rs := o.(*appsv1.ReplicaSet)
		isNew[rs.Name] = strings.HasSuffix(rs.Spec.Template.Spec.Containers[0].Image, ":v2")
		if had := sizes[rs.Name]; len(had) == 0 || had[len(had)-1] != *rs.Spec.Replicas {
			sizes[rs.Name] = append(had, *rs.Spec.Replicas)
		}
	}
	if len(sizes) != 2**failoverReleases {
		f.Errorf("there were %d ReplicaSets", len(sizes))
	}
	for name, had := range sizes {
		for i := 1; i < len(had); i++ {
			if grows, first := had[i] > had[i-1], had[i-1] == 0 && i == 1; grows != isNew[name] && !first {
				f.Errorf("ReplicaSet %s went back, and is new: %t. Its sizes: %v", name, isNew[name], had)
				break
			}
		}
	}
}

// recorder keeps all versions of objects that a watch shows, in their order.
type recorder struct {
	list client.ObjectList
	mu   sync.Mutex
	all  []client.Object
	err  error
}

// record begins to watch the objects of the namespace.
func (f *failover) record(list client.ObjectList) *recorder {
	f.Helper()
	w, err := f.c.Client.Watch(f.Context(), list, client.InNamespace(f.ns))
	f.must(err)
	r := &recorder{list: list}
	go func() {
		for e := range w.ResultChan() {
			r.mu.Lock()
			if o, is := e.Object.(client.Object); is {
				r.all = append(r.all, o)
			} else {
				r.err = fmt.Errorf("the watch has ended: %+v", e.Object)
			}
			r.mu.Unlock()
		}
	}()
	return r
}

// versions returns what was recorded, once it has all that is there.
func (r *recorder) versions(f *failover) []client.Object {
	f.Helper()
	var all []client.Object
	f.until("the watch to have come as far as the cluster", func() error {
		f.must(f.c.Client.List(f.Context(), r.list, client.InNamespace(f.ns)))
		r.mu.Lock()
		defer r.mu.Unlock()
		f.must(r.err)
		seen := map[string]bool{}
		for _, o := range r.all {
			seen[o.GetName()+o.GetResourceVersion()] = true
		}
		all = r.all
		return meta.EachListItem(r.list, func(o runtime.Object) error {
			if there := o.(client.Object); !seen[there.GetName()+there.GetResourceVersion()] {
				return fmt.Errorf("%s is not there", there.GetName())
			}
			return nil
		})
	})
	return all
}

// approveAll approves the current step of all releases in the cluster.
func (f *failover) approveAll() {
	f.Helper()
	for i := range *failoverReleases {
		br := &v1alpha1.BatchRelease{ObjectMeta: metav1.ObjectMeta{Name: failoverName(i), Namespace: f.ns}}
		approval := client.RawPatch(types.MergePatchType, []byte(`{"status":{"currentStepState":"Completed"}}`))
		f.must(f.c.Client.Status().Patch(f.Context(), br, approval))
	}
}

// failsOver waits for the fault, and until the other replica has brought all releases to a reason.
func (f *failover) failsOver(what, reason string, step int32) {
	f.Helper()
	old := f.isStruck()
	struck := time.Now()
	f.ends(old)
	next := f.leader(old)
	f.reach(reason, step)
	all := time.Since(struck)
	f.lines = append(f.lines, []string{what, seconds(f.first(next, true, struck)), seconds(f.first(next, false, struck)), seconds(all)})
}

// first is how long after a time a replica first took the lease, or wrote anything.
func (f *failover) first(by *replica, leads bool, after time.Time) time.Duration {
	f.mu.Lock()
	defer f.mu.Unlock()
	for _, s := range f.log {
		if s.by == by.name && s.leads == leads && s.at.After(after) {
			return s.at.Sub(after)
		}
	}
	return 0
}

// reach waits until all releases have a reason at a step.
func (f *failover) reach(reason string, step int32) {
	f.Helper()
	f.until("all releases to come to "+reason, func() error {
		var brs v1alpha1.BatchReleaseList
		f.must(f.c.Client.List(f.Context(), &brs, client.InNamespace(f.ns)))
		if len(brs.Items) != *failoverReleases {
			return fmt.Errorf("there are %d", len(brs.Items))
		}
		for _, br := range brs.Items {
			if br.Status.Reason != reason || br.Status.CurrentStepIndex != step || br.Status.ObservedGeneration != br.Generation {
				return fmt.Errorf("%s: %s at step %d: %s", br.Name, br.Status.Reason, br.Status.CurrentStepIndex, br.Status.Message)
			}
		}
		return nil
	})
}

// approvals waits until each release has so many approvals in the branch, and fails if one
// was committed again.
func (f *failover) approvals(n int) {
	f.Helper()
	f.until("all approvals to be in the branch", func() error {
		for i := range *failoverReleases {
			file := "approvals/" + failoverName(i) + ".yaml"
			if got := len(strings.Fields(f.run(f.bare, "git", "log", "--format=%h", "main", "--", file))); got != n && got != n-1 {
				f.Fatalf("%s was committed %d times:\n%s", file, got, f.run(f.bare, "git", "log", "-p", "main", "--", file))
			} else if got < n {
				return errors.New("that of " + failoverName(i) + " is not there")
			}
		}
		return nil
	})
}

// until looks each half second.
func (f *failover) until(what string, check func() error) {
	f.Helper()
	for deadline := time.Now().Add(failoverWithin); ; <-time.After(500 * time.Millisecond) {
		err := check()
		if err == nil {
			return
		}
		if time.Now().After(deadline) {
			f.Fatalf("waiting for %s: %v", what, err)
		}
	}
}
