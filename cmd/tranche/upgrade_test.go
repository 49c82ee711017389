//go:build unix

package main

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"sync"
	"syscall"
	"testing"

	"github.com/google/go-cmp/cmp"
	appsv1 "k8s.io/api/apps/v1"
	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/tranche-dev/tranche/plan/v1alpha1"
	"github.com/tranche-dev/tranche/rollout/clustertest"
)

// trancheVersion is a version of Tranche: its program, and the manifests that install it.
type trancheVersion struct {
	program string
	config  string // the folder
}

// ofThisVersion is the version under test.
func ofThisVersion(t *testing.T) trancheVersion {
	t.Helper()
	return trancheVersion{program: os.Args[0], config: absolutePath(t, "../../config")}
}

// upgradeFrom is the commit of the version before: UPGRADE_FROM of the environment, or of
// the Makefile.
func upgradeFrom(t testing.TB) string {
	t.Helper()
	if from := os.Getenv("UPGRADE_FROM"); from != "" {
		return from
	}
	text, err := os.ReadFile("../../Makefile")
	if err != nil {
		t.Fatal(err)
	}
	found := regexp.MustCompile(`(?m)^UPGRADE_FROM \?= (\S+)$`).FindSubmatch(text)
	if found == nil {
		t.Fatal("the Makefile does not set UPGRADE_FROM")
	}
	return string(found[1])
}

// versionBefore builds the version before this one from the history of the clone.
func versionBefore(t testing.TB) trancheVersion {
	t.Helper()
	root, err := clustertest.Root()
	if err != nil {
		t.Fatal(err)
	}
	from := upgradeFrom(t)
	commit, err := exec.Command("git", "-C", root, "rev-parse", "--verify", "--quiet", from+"^{commit}").Output()
	if err != nil {
		t.Fatalf("this clone does not have commit %s, the version to upgrade from; get the history by git fetch --unshallow --tags, "+
			"or name another commit: UPGRADE_FROM=...", from)
	}
	source := t.TempDir()
	const script = `set -o pipefail; git -C "$1" archive "$2" | tar -x -C "$3"`
	unpack := exec.Command("bash", "-c", script, "-", root, strings.TrimSpace(string(commit)), source)
	if out, err := unpack.CombinedOutput(); err != nil {
		t.Fatalf("unpacking %s: %v: %s", from, err, out)
	}
	// go build does not link again what is there and current. The libraries come from the
	// cache: the flags are those of the Makefile, by the environment.
	program := filepath.Join(root, "bin", "tranche-before")
	build := exec.Command("go", "build", "-buildvcs=false", "-ldflags", "-X main.version=v0.0.0-before", "-o", program, "./cmd/tranche")
	build.Dir = source
	if out, err := build.CombinedOutput(); err != nil {
		t.Fatalf("building %s: %v: %s", from, err, out)
	}
	return trancheVersion{program: program, config: filepath.Join(source, "config")}
}

// upgrades is a cluster in which versions of Tranche replace each other.
type upgrades struct {
	*env
	stop func(syscall.Signal) // the controller that leads
}

// install applies the manifests, as docs/operating.md says.
func (u *upgrades) install(v trancheVersion) {
	u.Helper()
	u.kubectl("apply", "--server-side", "-k", filepath.Join(v.config, "default"))
}

// holder is who has the leader's lease.
func (u *upgrades) holder() string {
	u.Helper()
	var l coordinationv1.Lease
	err := u.c.Client.Get(u.Context(), client.ObjectKey{Namespace: "tranche-system", Name: "tranche-controller"}, &l)
	u.must(client.IgnoreNotFound(err))
	return ptr.Deref(l.Spec.HolderIdentity, "")
}

// start starts a controller of a version. It leads once no other does. A controller that
// loses its lease ends, and is started again, as the kubelet does.
func (u *upgrades) start(v trancheVersion) (stop func(syscall.Signal)) {
	u.Helper()
	var output bytes.Buffer
	storage := u.TempDir()
	run := func() (*exec.Cmd, error) {
		cmd := exec.Command(v.program, "controller", "--as", u.c.Controller.Impersonate.UserName, "--storage-path", storage,
			"--file-roots", os.TempDir(), "--log-encoding", "console", "--leader-elect", "--leader-election-namespace", "tranche-system")
		cmd.Env = append(os.Environ(), asTranche+"=1", "KUBECONFIG="+u.c.Kubeconfig)
		cmd.Stdout, cmd.Stderr = &output, &output
		return cmd, cmd.Start()
	}
	cmd, err := run()
	u.must(err)
	var mu sync.Mutex
	stopping, ended := false, make(chan error, 1)
	go func() {
		for {
			err := cmd.Wait()
			mu.Lock()
			if !stopping {
				cmd, err = run()
			}
			again := !stopping && err == nil
			mu.Unlock()
			if !again {
				ended <- err
				return
			}
		}
	}()
	stop = func(with syscall.Signal) {
		mu.Lock()
		before := stopping
		stopping = true
		_ = cmd.Process.Signal(with) // it may have ended
		mu.Unlock()
		if before {
			return
		}
		older := func() bool { return strings.Contains(output.String(), "is older than this program") } // it may end by itself
		if err := <-ended; err != nil && with != syscall.SIGKILL && !older() {
			u.Errorf("%s ended with %v", v.program, err)
		}
		if u.Failed() {
			u.Logf("%s: %s", v.program, output.String())
		}
	}
	u.Cleanup(func() { stop(syscall.SIGTERM) })
	return stop
}

// lead starts a controller, ends the one that leads, and waits until the new one leads.
func (u *upgrades) lead(v trancheVersion, with syscall.Signal) {
	u.Helper()
	before := u.holder()
	stop := u.start(v)
	if u.stop != nil {
		u.stop(with)
	}
	u.stop = stop
	anotherLeads(u, before)
}

// anotherLeads waits until another process has the leader's lease.
func anotherLeads(u *upgrades, before string) {
	u.Helper()
	clustertest.Wait(u, "another leader", func() error {
		if now := u.holder(); now == "" || now == before {
			return fmt.Errorf("%q has the lease", now)
		}
		return nil
	})
}

// upgradePhase is where a release stands while Tranche is upgraded. Each has a namespace, with
// Deployment web of 4 pods, which a GitSource releases from a repository of its own.
type upgradePhase struct {
	name string
	// arrange brings a release there, from tag old to tag new; finish ends what keeps it
	// there.
	arrange func(p *released, from, to string)
	finish  func(p *released, from, to string)
}

// released is the release of a phase.
type released struct {
	*env
	upgradePhase
	freed func() // ends what finish of the phase does not know
}

// phases are all in which a release can stand.
var phases = []upgradePhase{
	{"initial", func(p *released, _, to string) { // it is held, and the API server refuses the new ReplicaSet
		p.quota(corev1.ResourceList{"count/replicasets.apps": *resource.NewQuantity(int64(p.sets()), resource.DecimalSI)})
		p.bring(to)
		p.stands("WriteRefused", nil)
	}, (*released).free},
	{"under way", func(p *released, from, _ string) { // pods that never are ready
		p.bring("broken")
		p.stands("Upgrading", map[string]int32{from: 3, "broken": 1})
	}, func(p *released, _, to string) { p.bring(to) }},
	{"gate", (*released).toGate, func(*released, string, string) {}},
	{"pause", func(p *released, from, to string) {
		p.edit("release.yaml", "- replicas: 20%", "- replicas: 20%\n      pause: {duration: 1h}")
		p.push("a pause")
		p.bring(to)
		p.stands("WaitingForPause", map[string]int32{from: 3, to: 1})
	}, func(p *released, _, _ string) {
		p.edit("release.yaml", "\n      pause: {duration: 1h}", "")
		p.push("no pause")
	}},
	{"finalizing", func(p *released, from, to string) { // another policy refuses the hand-back
		p.toGate(from, to)
		p.forbidHandBack()
		p.approve(".", "web", 1)
		p.stands("WriteRefused", map[string]int32{to: 4})
	}, (*released).free},
	{"rollback", func(p *released, from, to string) { // no pod of the old revision may come
		p.toGate(from, to)
		p.approve(".", "web", 0)
		p.waitFor("web", "WaitingForApproval", 1, map[string]int32{from: 2, to: 2})
		p.quota(corev1.ResourceList{corev1.ResourcePods: resource.MustParse("3")})
		p.bring(from)
		p.stands("RollingBack", map[string]int32{from: 2, to: 1})
	}, func(p *released, from, to string) {
		p.free(from, to)
		p.wake("replicasets")
	}},
	{"zero", func(p *released, from, to string) {
		p.toGate(from, to)
		p.edit("deployment.yaml", "replicas: 4", "replicas: 0")
		p.push("no pods")
		p.stands("ScaledToZero", map[string]int32{})
	}, func(p *released, _, _ string) {
		p.edit("deployment.yaml", "replicas: 0", "replicas: 4")
		p.push("pods again")
	}},
	{"paused", func(p *released, from, to string) { // the approval is there, and opens no gate
		p.toGate(from, to)
		p.edit("release.yaml", "spec:\n", "spec:\n  paused: true\n")
		p.push("pause")
		p.approve(".", "web", 1)
		p.stands("ReleasePaused", map[string]int32{from: 3, to: 1})
	}, func(p *released, _, _ string) {
		p.edit("release.yaml", "  paused: true\n", "")
		p.push("resume")
	}},
}

func (p *released) edit(file, from, to string) {
	p.Helper()
	p.replace(file, from, to)
}

// bring pushes a tag.
func (p *released) bring(tag string) {
	p.Helper()
	text, err := os.ReadFile(filepath.Join(p.clone, "deployment.yaml"))
	p.must(err)
	p.write("deployment.yaml", regexp.MustCompile(`web:\w+`).ReplaceAllString(string(text), "web:"+tag))
	p.push("web: " + tag)
}

func (p *released) toGate(from, to string) {
	p.Helper()
	p.bring(to)
	p.stands("WaitingForApproval", map[string]int32{from: 3, to: 1})
}

// stands waits until the release is where it is to stand, in its status and by the pods
// that the ReplicaSets have.
func (p *released) stands(reason string, pods map[string]int32) {
	p.Helper()
	clustertest.Wait(p, p.name, func() error {
		at, now := p.release("web"), p.pods("web")
		if at.Status.ObservedGeneration != at.Generation || at.Status.Reason != reason || pods != nil && !maps.Equal(now, pods) {
			return fmt.Errorf("%s, pods %v: %s; source %+v", at.Status.Reason, now, at.Status.Message, p.ready())
		}
		return nil
	})
}

// sets counts the ReplicaSets of the namespace.
func (p *released) sets() int {
	p.Helper()
	var list appsv1.ReplicaSetList
	p.must(p.c.Client.List(p.Context(), &list, client.InNamespace(p.ns)))
	return len(list.Items)
}

// quota bounds the namespace until the release is freed.
func (p *released) quota(hard corev1.ResourceList) {
	p.Helper()
	q := &corev1.ResourceQuota{ObjectMeta: metav1.ObjectMeta{Name: "bound", Namespace: p.ns}, Spec: corev1.ResourceQuotaSpec{Hard: hard}}
	p.must(p.c.Client.Create(p.Context(), q))
	clustertest.Wait(p, "the quota to count", func() error {
		p.must(p.c.Client.Get(p.Context(), client.ObjectKeyFromObject(q), q))
		if len(q.Status.Used) == 0 {
			return errors.New("no status")
		}
		return nil
	})
	p.freed = func() {
		p.must(p.c.Client.Delete(p.Context(), q))
		clustertest.Wait(p, "the quota to count no more", func() error { // the API server learns of its end by a watch
			out, err := p.c.Kubectl(p, "run", "probe", "-n", p.ns, "--image=registry.example.org/probe", "--dry-run=server")
			if err != nil {
				return fmt.Errorf("%w: %s", err, out)
			}
			return nil
		})
		p.wake("pods")
	}
}

// wake changes all pods or ReplicaSets of the namespace, so that a controller tries again at
// once. Its pause doubles with each failure, and may be longer than a test waits.
func (p *released) wake(kind string) {
	p.Helper()
	clustertest.Wait(p, "all "+kind+" to be annotated", func() error { // one of them may go meanwhile
		out, err := p.c.Kubectl(p, "annotate", kind, "--all", "-n", p.ns, "example.org/tried=again", "--overwrite")
		if err != nil {
			return fmt.Errorf("%w: %s", err, out)
		}
		return nil
	})
}

// forbidHandBack refuses to end holds in the namespace until the release is freed.
func (p *released) forbidHandBack() {
	p.Helper()
	manifest := strings.ReplaceAll(`
apiVersion: admissionregistration.k8s.io/v1
kind: ValidatingAdmissionPolicy
metadata: {name: NAME-freeze}
spec:
  failurePolicy: Fail
  matchConstraints:
    namespaceSelector: {matchLabels: {kubernetes.io/metadata.name: NAME}}
    resourceRules: [{apiGroups: [apps], apiVersions: [v1], operations: [UPDATE], resources: [deployments]}]
  validations:
  - expression: >-
      !('tranche.dev/held' in oldObject.metadata.?labels.orValue({})) || 'tranche.dev/held' in object.metadata.?labels.orValue({})
    message: frozen by a test
---
apiVersion: admissionregistration.k8s.io/v1
kind: ValidatingAdmissionPolicyBinding
metadata: {name: NAME-freeze}
spec: {policyName: NAME-freeze, validationActions: [Deny]}
`, "NAME", p.ns)
	if out, err := p.c.KubectlWith(p, manifest, "apply", "-f", "-"); err != nil {
		p.Fatalf("%v: %s", err, out)
	}
	handBack := `{"metadata":{"labels":{"tranche.dev/held":null}},"spec":{"paused":null,"strategy":{"type":"RollingUpdate"}}}`
	counts := func(what string, want bool) { // the API server learns of a policy, and of its end, by a watch
		clustertest.Wait(p, what, func() error {
			out, err := p.c.Kubectl(p, "patch", "deployment", "web", "-n", p.ns, "--type=merge", "--dry-run=server", "-p", handBack,
				"--as", p.c.Controller.Impersonate.UserName, "--field-manager", v1alpha1.ManagerRollout)
			if (err != nil && strings.Contains(out, "frozen by a test")) != want {
				return fmt.Errorf("%w: %s", err, out)
			}
			return nil
		})
	}
	counts("the policy to count", true)
	p.freed = func() {
		if out, err := p.c.KubectlWith(p, manifest, "delete", "-f", "-"); err != nil {
			p.Fatalf("%v: %s", err, out)
		}
		counts("the policy to count no more", false)
	}
}

// free ends what keeps the release, and lets it be tried again at once.
func (p *released) free(_, _ string) {
	p.Helper()
	p.freed()
	p.touch()
}

// touch edits the plan in a way that changes nothing of the release.
func (p *released) touch() {
	p.Helper()
	text, err := os.ReadFile(filepath.Join(p.clone, "release.yaml"))
	p.must(err)
	const field = "progressDeadlineSeconds: "
	before, after, _ := strings.Cut(string(text), field)
	var n int
	_, err = fmt.Sscan(after, &n)
	p.must(err)
	p.write("release.yaml", before+field+fmt.Sprint(n+1)+strings.TrimPrefix(after, fmt.Sprint(n)))
	p.push("another deadline")
}

// snapshot is what may not change by an upgrade: the Deployment, its ReplicaSets and pods,
// and where the release stands. It counts the writes of the controller, too.
func (p *released) snapshot() map[string]string {
	p.Helper()
	seen := map[string]string{}
	note := func(key string, value any) {
		text, err := json.Marshal(value)
		p.must(err)
		seen[key] = string(text)
	}
	d := p.deployment()
	note("Deployment", []any{d.UID, d.Generation, d.Labels, d.Annotations, d.Spec})
	var sets appsv1.ReplicaSetList
	p.must(p.c.Client.List(p.Context(), &sets, client.InNamespace(p.ns)))
	for _, rs := range sets.Items {
		note("ReplicaSet "+rs.Name, []any{rs.UID, rs.Labels, rs.Annotations, rs.Spec})
	}
	var pods corev1.PodList
	p.must(p.c.Client.List(p.Context(), &pods, client.InNamespace(p.ns)))
	for _, pod := range pods.Items {
		note("pod "+pod.Name, pod.UID)
	}
	// The CustomResourceDefinition of the version before drops the fields that it does not know.
	at := p.release("web").Status
	all := [][]v1alpha1.StepApproval{at.Approvals}
	for i := range at.History {
		at.History[i].StepTimes = nil
		all = append(all, at.History[i].Approvals)
	}
	for _, approvals := range all {
		for i := range approvals {
			approvals[i].Replicas = nil
		}
	}
	note("release", []any{at.Phase, at.CurrentStepIndex, at.CurrentStepState, at.StableRevision, at.UpdateRevision, at.RollingBack,
		at.Reason, at.StepStateTime, at.Approvals, at.History})
	for _, kind := range []string{"Deployment", "ReplicaSet"} {
		note("writes to a "+kind, p.w.Writes(kind, v1alpha1.ManagerRollout))
	}
	return seen
}

// isObserved waits until the controller that leads has observed the release: it has seen
// the plan's last edit.
func (p *released) isObserved() {
	p.Helper()
	head := p.run(p.clone, "git", "rev-parse", "HEAD")
	clustertest.Wait(p, p.name+" to be observed", func() error {
		at, source := p.release("web"), p.source().Status
		if source.AppliedCommit != head || at.Status.ObservedGeneration != at.Generation {
			return fmt.Errorf("applied %s of %s, observed %d of %d: %s", source.AppliedCommit, head, at.Status.ObservedGeneration, at.Generation,
				at.Status.Message)
		}
		return nil
	})
}

// complete lets the release go to its end, and compares it with an ordinary Deployment.
func (p *released) complete(from, to string) {
	p.Helper()
	p.finish(p, from, to)
	const end = "ReleaseCompleted"
	if p.name == "rollback" {
		p.awaits(end, map[string]int32{from: 4})
		p.bring(to)
	}
	if p.name != "finalizing" && p.name != "paused" {
		p.stands("WaitingForApproval", map[string]int32{from: 3, to: 1})
		p.approve(".", "web", 1)
	}
	p.awaits(end, map[string]int32{to: 4})
	p.untouched("web")
}

// awaits waits until the release is complete.
func (p *released) awaits(reason string, pods map[string]int32) {
	p.Helper()
	p.waitFor("web", reason, 2, pods)
}

// Tranche is upgraded from the version before to this one and back, by config/default, with
// a release in each phase. Nothing moves by it, and afterwards each release goes to its end.
// The version before is UPGRADE_FROM of the Makefile.
func TestUpgrade(t *testing.T) {
	t.Parallel()
	before, this := versionBefore(t), ofThisVersion(t)
	c := clustertest.Start(t)
	u := &upgrades{env: &env{TB: t, c: c, ns: c.Namespace(t)}}
	u.install(before) // over the manifests of this version, which the cluster comes with
	u.lead(before, 0)
	all := u.follow(phases)
	u.upgrade(all, "v1", "v2", func() {
		u.install(this)
		u.lead(this, syscall.SIGKILL) // the old controller crashes in the middle
	})
	u.examine(this)
	u.stop = nil
	u.lead(this, 0)
	u.upgrade(all, "v2", "v3", func() { // the controller goes back first: the CRDs are newer for a while
		for _, s := range all {
			s.w.Older()
		}
		u.lead(before, syscall.SIGTERM)
		c.RestartAPIServer(t)
		u.install(before)
	})
	u.withoutPolicy(this)
	u.unlabelled(all)
}

// unlabelled waits until no ReplicaSet has the label of a hold: the version before has left it.
func (u *upgrades) unlabelled(all []*released) {
	u.Helper()
	for _, s := range all {
		clustertest.Wait(u, "the labels of "+s.name+" to go", func() error {
			var sets appsv1.ReplicaSetList
			err := s.c.Client.List(s.Context(), &sets, client.InNamespace(s.ns), client.HasLabels{v1alpha1.LabelHeld})
			if err == nil && len(sets.Items) > 0 {
				err = fmt.Errorf("ReplicaSet %s has labels %v", sets.Items[0].Name, sets.Items[0].Labels)
			}
			return err
		})
	}
}

// follow makes a namespace for each phase, in which tag v1 runs.
func (u *upgrades) follow(phases []upgradePhase) []*released {
	u.Helper()
	var all []*released
	for _, p := range phases {
		s := &released{env: envIn(u.TB, u.c, "web"), upgradePhase: p}
		u.c.Guard(u, s.ns)
		s.begin()
		all = append(all, s)
	}
	for _, s := range all {
		s.awaits("ReleaseCompleted", map[string]int32{"v1": 4})
	}
	return all
}

// begin lets the namespace follow the repository, with 4 pods.
func (p *released) begin() {
	p.Helper()
	p.replace("deployment.yaml", "replicas: 10", "replicas: 4")
	p.replace("release.yaml", "  strategy:\n", "  strategy:\n    progressDeadlineSeconds: 3600\n")
	p.push("4 pods")
	p.follow("source", ".")
}

// withoutPolicy upgrades in a way that takes the policies away for a moment. A user resumes a
// held Deployment in that moment: its old pods go at once, and nothing could refuse that. No
// gate opens by it, and the controller brings the sizes of the step back.
func (u *upgrades) withoutPolicy(v trancheVersion) {
	u.Helper()
	s := &released{env: &env{TB: u.TB, c: u.c, ns: u.c.Namespace(u)}}
	u.c.Guard(u, s.ns)
	s.repository("web")
	s.begin()
	s.awaits("ReleaseCompleted", map[string]int32{"v1": 4})
	s.toGate("v1", "v2")
	u.kubectl("delete", "-k", filepath.Join(v.config, "policy"))
	clustertest.Wait(u, "the policies to be gone", func() error {
		out, err := u.c.Kubectl(u, "rollout", "resume", "deployment/web", "-n", s.ns)
		if err != nil {
			return fmt.Errorf("%w: %s", err, out)
		}
		return nil
	})
	clustertest.Wait(u, "the hold to be back", func() error {
		if d := s.deployment(); !d.Spec.Paused || d.Labels[v1alpha1.LabelHeld] == "" {
			return fmt.Errorf("paused %t, labels %v", d.Spec.Paused, d.Labels)
		}
		return nil
	})
	u.install(v)
	u.lead(v, syscall.SIGKILL)
	s.stands("WaitingForApproval", map[string]int32{"v1": 3, "v2": 1})
	clustertest.Wait(u, "the policies to be back", func() error {
		out, err := u.c.Kubectl(u, "patch", "deployment", "web", "-n", s.ns, "--dry-run=server", "-p", `{"spec":{"paused":false}}`)
		if err == nil || !strings.Contains(out, "is held for a release in batches") {
			return fmt.Errorf("%w: %s", err, out)
		}
		return nil
	})
	s.approve(".", "web", 1)
	s.awaits("ReleaseCompleted", map[string]int32{"v2": 4})
	s.untouched("web")
}

// upgrade brings a release into each phase, replaces the version of Tranche, once or several
// times, and lets the releases go to their ends.
func (u *upgrades) upgrade(all []*released, from, tag string, replaces ...func()) {
	u.Helper()
	for _, s := range all {
		s.arrange(s, from, tag)
	}
	for i, replace := range replaces {
		before := map[*released]map[string]string{}
		for _, s := range all {
			before[s] = s.snapshot()
		}
		replace()
		for _, s := range all {
			s.touch()
		}
		for _, s := range all {
			s.isObserved()
			if diff := cmp.Diff(before[s], s.snapshot()); diff != "" {
				u.Errorf("%s: changed by upgrade %d (-before +after):\n%s\n%s", s.name, i, diff, s.w.Timeline())
			}
		}
	}
	for _, s := range all {
		s.complete(from, tag)
	}
}
