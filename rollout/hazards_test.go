package rollout_test

import (
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	appsv1 "k8s.io/api/apps/v1"
	autoscalingv2 "k8s.io/api/autoscaling/v2"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/intstr"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/tranche-dev/tranche/plan/v1alpha1"
	"github.com/tranche-dev/tranche/rollout/clustertest"
	"github.com/tranche-dev/tranche/rollout/engine"
)

// hazards are the rows of docs/design.md on the real native controller: what it
// does of itself, and what becomes of it under a release. Every release is
// watched for fights and all other invariants.
var hazards = []struct {
	row          string
	native, ours func(*testing.T)
	fact         string // where the fact is, or why there is none
}{
	{row: "H1", native: nativeH01, ours: oursH01},
	{row: "H2", native: nativeH02, ours: oursH02},
	{row: "H3", native: nativeH03, ours: oursH03},
	{row: "H4", native: nativeH04, ours: oursH04},
	{row: "H5", native: nativeH05, ours: oursH05},
	{row: "H6", native: nativeH06, ours: oursH06},
	{row: "H7", native: nativeH07, ours: oursH07},
	{row: "H8", native: nativeH08, ours: oursH08},
	{row: "H9", fact: "H7 and H8", ours: oursH09},
	{row: "H10", native: nativeH10, ours: oursH08},
	{row: "H11", native: nativeH11, ours: oursH11},
	{row: "H12", native: nativeH12, ours: oursH12},
	{row: "H13", native: nativeH13, ours: oursH13},
	{row: "H14", native: nativeH14, ours: oursH14},
	{row: "H15", native: nativeH15, ours: oursH15},
	{row: "H16", native: nativeH16, ours: oursH16},
	{row: "H17", native: nativeH17, ours: oursH17},
	{row: "H18", native: nativeH18, ours: oursH18},
	{row: "H19", native: nativeH19, ours: oursH19},
	{row: "H20", native: nativeH20, ours: oursH20},
	{row: "H21", native: nativeH21, ours: oursH21},
	{row: "H22", fact: "garbage collection is not the Deployment controller's", ours: oursH22},
	{row: "H23", native: nativeH23, ours: oursH23},
	{row: "H24", fact: "H5", ours: oursH24},
	{row: "H25", native: nativeH25, ours: oursH25},
	{row: "collision", fact: "the same test", ours: oursCollision},
}

func TestHazards(t *testing.T) {
	for _, h := range hazards {
		for who, test := range map[string]func(*testing.T){"native": h.native, "ours": h.ours} {
			if test == nil {
				continue
			}
			t.Run(h.row+"/"+who, func(t *testing.T) {
				t.Parallel()
				test(t)
			})
		}
	}
}

// Every row of the design has its test.
func TestHazardsAreThoseOfTheDesign(t *testing.T) {
	root, err := clustertest.Root()
	if err != nil {
		t.Fatal(err)
	}
	text, err := os.ReadFile(filepath.Join(root, "docs", "design.md"))
	if err != nil {
		t.Fatal(err)
	}
	var want, got []string
	for _, row := range regexp.MustCompile(`(?m)^\| (H\d+) \|`).FindAllSubmatch(text, -1) {
		want = append(want, string(row[1]))
	}
	for _, h := range hazards {
		if strings.HasPrefix(h.row, "H") {
			got = append(got, h.row)
		}
		if (h.native == nil) == (h.fact == "") || h.ours == nil {
			t.Errorf("%s: a fact, or where it is, and what becomes of it", h.row)
		}
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("rows of docs/design.md (-) and of this test (+):\n%s", diff)
	}
}

// newEnvWithController is a namespace that has a controller to itself.
func newEnvWithController(t *testing.T) (s *env, stop func()) {
	t.Helper()
	s = newEnv(t)
	return s, startControllerIn(t, s.c, s.ns)
}

// atGate is a release of v2 that waits with its first pod.
func atGate(t *testing.T, n int32, edit ...func(*appsv1.Deployment)) *env {
	t.Helper()
	s, _ := atGateOf(t, n, edit...)
	return s
}

func atGateOf(t *testing.T, n int32, edit ...func(*appsv1.Deployment)) (s *env, stop func()) {
	t.Helper()
	s, stop = newEnvWithController(t)
	s.toGate(n, edit...)
	return s, stop
}

func (s *env) toGate(n int32, edit ...func(*appsv1.Deployment)) {
	s.Helper()
	s.install(n, edit...)
	s.plan("1", "100%")
	s.waitFor(v1alpha1.ReasonReleaseCompleted, 1, nil)
	s.bring("v2")
	s.waitFor(v1alpha1.ReasonWaitingForApproval, 0, map[string]int32{"v1": n - 1, "v2": 1})
}

// A user asks the native controller for a rollback by its annotation, in the middle of a
// release. The rollback does not come after the hand-back: it would replace all pods at
// once.
func TestNativeRollbackAskedInTheMiddle(t *testing.T) {
	t.Parallel()
	s, _ := atGateOf(t, 4)
	s.kubectl("-n", s.ns, "annotate", "deployment/web", appsv1.DeprecatedRollbackTo+"=0")
	s.finish(4)
	clustertest.Wait(t, "the annotation to go", func() error {
		if to, ok := s.deployment("web").Annotations[appsv1.DeprecatedRollbackTo]; ok {
			return fmt.Errorf("rollback to %q", to)
		}
		return nil
	})
	s.rolled("web", 4)
	s.become(map[string]int32{"v2": 4})
	grows := 0 // once, at the install
	for _, m := range regexp.MustCompile(`ReplicaSet (\S+): (\d+) → (\d+)`).FindAllStringSubmatch(s.w.Timeline(), -1) {
		before, _ := strconv.Atoi(m[2])
		after, _ := strconv.Atoi(m[3])
		if m[1] == s.set("v1").Name && after > before {
			grows++
		}
	}
	if grows > 1 {
		t.Errorf("the old revision has grown:\n%s", s.w.Timeline())
	}
}

// finish approves the first step of two, and waits for the end.
func (s *env) finish(n int32) {
	s.Helper()
	s.approve(0)
	s.waitFor(v1alpha1.ReasonReleaseCompleted, 1, map[string]int32{"v2": n})
	s.untouched()
}

// unplan removes the plan.
func (s *env) unplan() {
	s.Helper()
	s.must(s.c.Client.Delete(s.Context(), s.release()))
}

// resizes returns what the timeline tells of ReplicaSets, in order: "v2 0 → 1".
func (s *env) resizes() []string {
	s.Helper()
	tags := map[string]string{}
	for _, rs := range s.sets() {
		_, tags[rs.Name], _ = strings.Cut(rs.Spec.Template.Spec.Containers[0].Image, ":")
	}
	var all []string
	for _, m := range regexp.MustCompile(`ReplicaSet (\S+): (\d+ → \d+), by `+v1alpha1.ManagerRollout).FindAllStringSubmatch(s.w.Timeline(), -1) {
		if m[2] != "0 → 0" { // it is made without pods
			all = append(all, tags[m[1]]+" "+m[2])
		}
	}
	return all
}

// hasEvent waits for an event of a reason with a text in its message.
func (s *env) hasEvent(reason, what string) {
	s.Helper()
	clustertest.Wait(s, "an event "+reason, func() error {
		var events corev1.EventList
		s.must(s.c.Client.List(s.Context(), &events, client.InNamespace(s.ns), client.MatchingFields{"reason": reason}))
		var messages []string
		for _, e := range events.Items {
			messages = append(messages, e.Message)
		}
		if out := strings.Join(messages, "\n"); !strings.Contains(out, what) {
			return fmt.Errorf("events %q, not %q", out, what)
		}
		return nil
	})
}

func noSurge(d *appsv1.Deployment) {
	d.Spec.Strategy.RollingUpdate = &appsv1.RollingUpdateDeployment{MaxSurge: ptr.To(intstr.FromInt32(0)), MaxUnavailable: ptr.To(intstr.FromInt32(1))}
}

// The first move is the new one's; without surge too, at the price of N+1 for
// the length of one write.
func oursH01(t *testing.T) {
	s := atGate(t, 2, noSurge)
	if got, want := s.resizes(), []string{"v2 0 → 1", "v1 2 → 1"}; !slices.Equal(got, want) {
		t.Errorf("moves %q, want %q", got, want)
	}
	s.finish(2)
}

// The last old pod goes when the new one has N.
func oursH02(t *testing.T) {
	s := atGate(t, 4)
	s.finish(4)
	moves := s.resizes()
	if full, gone := slices.Index(moves, "v2 3 → 4"), slices.Index(moves, "v1 1 → 0"); full < 0 || gone < full {
		t.Errorf("moves %q: v1 is gone before v2 has 4", moves)
	}
}

// With two active the native controller, made to look, does nothing.
func oursH03(t *testing.T) {
	s := atGate(t, 4)
	s.nudge()
	s.become(map[string]int32{"v1": 3, "v2": 1})
	if n := s.w.Fights(); n != 0 {
		t.Errorf("%d fights", n)
	}
	if n := s.w.Judged("I10"); n == 0 {
		t.Error("nothing was judged")
	}
}

// To zero and back at a closed gate: the gate stays closed.
func oursH04(t *testing.T) {
	s := atGate(t, 4)
	s.kubectl("-n", s.ns, "scale", "deployment/web", "--replicas=0")
	s.waitFor(v1alpha1.ReasonScaledToZero, 0, map[string]int32{})
	if d := s.deployment("web"); engine.Held(d) || d.Spec.Template.Spec.Containers[0].Image != "registry.example.org/web:v1" {
		t.Errorf("at 0 replicas: held=%t at %s", engine.Held(d), d.Spec.Template.Spec.Containers[0].Image)
	}
	s.untouched()
	s.kubectl("-n", s.ns, "scale", "deployment/web", "--replicas=4")
	s.waitFor(v1alpha1.ReasonWaitingForApproval, 0, map[string]int32{"v1": 3, "v2": 1})
	for _, move := range s.resizes() {
		if strings.HasPrefix(move, "v2") && !slices.Contains([]string{"v2 0 → 1", "v2 1 → 0"}, move) {
			t.Errorf("past the gate: %s", move)
		}
	}
}

// To zero with the controller dead: nothing happens until it is back.
func oursH05(t *testing.T) {
	s, stop := atGateOf(t, 4)
	stop()
	s.kubectl("-n", s.ns, "scale", "deployment/web", "--replicas=0")
	s.stay(map[string]int32{"v1": 3, "v2": 1})
	startControllerIn(t, s.c, s.ns)
	s.waitFor(v1alpha1.ReasonScaledToZero, 0, map[string]int32{})
}

// N shrinks to the new one's size, and later a gate has all N of the new one beside an
// old one. No old pod goes that the gate keeps.
func oursH06(t *testing.T) {
	s, _ := newEnvWithController(t)
	s.install(4)
	s.plan("50%", "4", "100%")
	s.waitFor(v1alpha1.ReasonReleaseCompleted, 2, nil)
	s.bring("v2")
	s.waitFor(v1alpha1.ReasonWaitingForApproval, 0, map[string]int32{"v1": 2, "v2": 2})
	s.kubectl("-n", s.ns, "scale", "deployment/web", "--replicas=2")
	s.waitFor(v1alpha1.ReasonWaitingForApproval, 0, map[string]int32{"v1": 1, "v2": 1})
	s.kubectl("-n", s.ns, "scale", "deployment/web", "--replicas=4")
	s.waitFor(v1alpha1.ReasonWaitingForApproval, 0, map[string]int32{"v1": 2, "v2": 2})
	s.approve(0)
	s.waitFor(v1alpha1.ReasonWaitingForApproval, 1, map[string]int32{"v1": 1, "v2": 4})
	s.stay(map[string]int32{"v1": 1, "v2": 4})
	for _, move := range s.resizes() {
		if strings.HasSuffix(move, "→ 0") {
			t.Errorf("%s", move)
		}
	}
}

// Another applier restores the strategy: the hold is put back, what the native
// controller has added goes again, and the event names the hand.
func oursH07(t *testing.T) {
	s := atGate(t, 4)
	s.kubectl("-n", s.ns, "patch", "deployment/web", "--field-manager=another", "-p", `{"spec":{"strategy":{"type":"RollingUpdate"}}}`)
	s.hasEvent(v1alpha1.ReasonDriftCorrected, "was changed by another")
	s.waitFor(v1alpha1.ReasonWaitingForApproval, 0, map[string]int32{"v1": 3, "v2": 1})
	if d := s.deployment("web"); !engine.Held(d) {
		t.Errorf("not held: %+v", d.Spec.Strategy)
	}
	s.finish(4)
}

// kubectl rollout resume is refused with no controller there.
func oursH08(t *testing.T) {
	s, stop := atGateOf(t, 4)
	s.c.Guard(t, s.ns)
	stop()
	if out, err := s.c.Kubectl(t, "-n", s.ns, "rollout", "resume", "deployment/web"); err == nil || !strings.Contains(out, "would take all old pods away") {
		t.Errorf("kubectl rollout resume: %v: %s", err, out)
	}
	s.stay(map[string]int32{"v1": 3, "v2": 1})
}

// Hold and hand-back are one write each.
func oursH09(t *testing.T) {
	s := atGate(t, 4)
	s.finish(4)
	if n := s.w.Writes("Deployment", v1alpha1.ManagerRollout); n != 2 {
		t.Errorf("%d writes to the Deployment\n%s", n, s.w.Timeline())
	}
	if n := s.w.Judged("I7"); n != 1 {
		t.Errorf("%d hand-backs judged", n)
	}
}

// The next change after hand-back rolls natively, wherever the release ended.
func oursH11(t *testing.T) {
	s := atGate(t, 4)
	s.finish(4)
	s.unplan()
	s.kubectl("-n", s.ns, "set", "image", "deployment/web", "web=registry.example.org/web:v3")
	s.rolled("web", 4)
	s.become(map[string]int32{"v3": 4})
}

// Rollback works with the ReplicaSet gone: from the record.
func oursH12(t *testing.T) {
	for _, limit := range []int32{0, 1} {
		t.Run(fmt.Sprint("limit ", limit), func(t *testing.T) {
			t.Parallel()
			s := atGate(t, 2, func(d *appsv1.Deployment) { d.Spec.RevisionHistoryLimit = &limit })
			s.finish(2)
			if limit > 0 { // as if v3 had come and gone
				s.must(s.c.Client.Delete(t.Context(), s.set("v1")))
			}
			clustertest.Wait(t, "v1's ReplicaSet to be gone", func() error {
				if sets := s.sets(); len(sets) != 1 {
					return fmt.Errorf("%d ReplicaSets", len(sets))
				}
				return nil
			})
			s.kubectl("-n", s.ns, "annotate", "batchrelease", "web", "tranche.dev/rollback=true")
			s.waitFor(v1alpha1.ReasonRolledBack, 1, map[string]int32{"v1": 2})
			s.untouched()
		})
	}
}

// Nothing of ours comes back through kubectl rollout undo.
func oursH13(t *testing.T) {
	s := atGate(t, 2)
	s.finish(2)
	s.unplan()
	s.kubectl("-n", s.ns, "rollout", "undo", "deployment/web")
	s.rolled("web", 2)
	s.become(map[string]int32{"v1": 2})
	s.untouched()
}

// The Deployment's Progressing is Unknown; the BatchRelease says what is going on.
func oursH14(t *testing.T) {
	s := atGate(t, 2)
	s.explained(appsv1.DeploymentProgressing, corev1.ConditionUnknown, v1alpha1.ReasonWaitingForApproval)
	s.waitFor(v1alpha1.ReasonWaitingForApproval, 0, nil)
}

// The Deployment's Available is False within maxUnavailable.
func oursH15(t *testing.T) {
	s, _ := newEnvWithController(t)
	s.install(4)
	s.plan("1", "100%")
	s.waitFor(v1alpha1.ReasonReleaseCompleted, 1, nil)
	s.bring("broken")
	s.waitFor(v1alpha1.ReasonUpgrading, 0, map[string]int32{"v1": 3, "broken": 1})
	s.explained(appsv1.DeploymentAvailable, corev1.ConditionFalse, v1alpha1.ReasonUpgrading)
	if d := s.deployment("web"); d.Status.AvailableReplicas != 3 {
		t.Errorf("%d available", d.Status.AvailableReplicas)
	}
}

// explained waits for a condition of the Deployment, and compares ours.
func (s *env) explained(native appsv1.DeploymentConditionType, is corev1.ConditionStatus, reason string) {
	s.Helper()
	clustertest.Wait(s, fmt.Sprintf("%s=%s", native, is), func() error {
		if c := s.nativeCondition(native); c.Status != is {
			return fmt.Errorf("%s: %s", c.Status, c.Message)
		}
		return nil
	})
	got := map[string]string{}
	for _, c := range s.release().Status.Conditions {
		got[c.Type] = string(c.Status) + " " + c.Reason
	}
	want := map[string]string{
		v1alpha1.ConditionReady: "False " + reason, v1alpha1.ConditionReconciling: "True " + reason,
		v1alpha1.ConditionStalled: "False " + reason, v1alpha1.ConditionHeld: "True " + v1alpha1.ReasonHeld,
	}
	if diff := cmp.Diff(want, got); diff != "" {
		s.Errorf("conditions (-want +got):\n%s", diff)
	}
}

// Revision and history are what the native controller writes, which cuts the
// history from the front: a twin in another namespace tells.
func oursH16(t *testing.T) {
	long := strings.Repeat("7,", 999) + "77" // of 2000 characters
	s := atGate(t, 2)
	s.finish(2)
	twin := byHand(t, 2)
	twin.rolled("web", 2)
	twin.kubectl("-n", twin.ns, "set", "image", "deployment/web", "web=registry.example.org/web:v2")
	twin.rolled("web", 2)
	for _, x := range []*env{s, twin} {
		x.kubectl("-n", x.ns, "annotate", "rs", x.set("v1").Name, engine.AnnotationRevisionHistory+"="+long, "--overwrite")
		x.nudge()
	}
	s.bring("v1")
	s.waitFor(v1alpha1.ReasonReleaseCompleted, 1, map[string]int32{"v1": 2})
	twin.kubectl("-n", twin.ns, "set", "image", "deployment/web", "web=registry.example.org/web:v1")
	twin.rolled("web", 2)
	s.nativeHasSeen("web")
	for _, tag := range []string{"v1", "v2"} {
		if diff := cmp.Diff(twin.set(tag).Annotations, s.set(tag).Annotations); diff != "" {
			t.Errorf("annotations of %s (-native +ours):\n%s", tag, diff)
		}
	}
	if h := s.set("v1").Annotations[engine.AnnotationRevisionHistory]; len(h) > 2000 || !strings.HasSuffix(h, ",77,1") {
		t.Errorf("history of %d characters ends with %q", len(h), h[len(h)-10:])
	}
}

// A ReplicaSet of ours is complete: the native controller writes only its status.
func oursH17(t *testing.T) {
	s := atGate(t, 2, func(d *appsv1.Deployment) { d.Spec.MinReadySeconds = 1 })
	s.nudge()
	for _, e := range s.set("v2").ManagedFields {
		if e.Subresource == "" && e.Manager != v1alpha1.ManagerRollout {
			t.Errorf("%s has written ReplicaSet v2: %s", e.Manager, e.FieldsV1)
		}
	}
}

// A ReplicaSet that the Deployment adopts is a middle revision, and goes. One that it
// releases is left alone.
func oursH18(t *testing.T) {
	s := atGate(t, 4)
	s.must(s.c.Client.Create(t.Context(), s.newSet("orphan", "v9", 1)))
	s.waitFor(v1alpha1.ReasonWaitingForApproval, 0, map[string]int32{"v1": 3, "v2": 1})
	s.owned("v9", true)
	s.kubectl("-n", s.ns, "label", "rs/orphan", "app=other", "--overwrite")
	s.owned("v9", false)
	s.kubectl("-n", s.ns, "scale", "rs/orphan", "--replicas=1")
	s.approve(0)
	s.waitFor(v1alpha1.ReasonReleaseCompleted, 1, map[string]int32{"v2": 4, "v9": 1})
}

// If two ReplicaSets have v2's template, the oldest is the new one.
func oursH19(t *testing.T) {
	s := atGate(t, 4)
	s.must(s.c.Client.Create(t.Context(), s.newSet("zz", "v2", 1)))
	clustertest.Wait(t, "the younger one to go", func() error {
		var rs appsv1.ReplicaSet
		s.must(s.c.Client.Get(t.Context(), client.ObjectKey{Namespace: s.ns, Name: "zz"}, &rs))
		if n := *rs.Spec.Replicas; n != 0 {
			return fmt.Errorf("size %d", n)
		}
		return nil
	})
	s.waitFor(v1alpha1.ReasonWaitingForApproval, 0, map[string]int32{"v1": 3, "v2": 1})
	s.finish(4)
}

// Hold and template are one write: the native controller makes nothing of it.
func oursH20(t *testing.T) {
	s := atGate(t, 2)
	if n := s.w.Writes("Deployment", v1alpha1.ManagerRollout); n != 1 {
		t.Errorf("%d writes to the Deployment", n)
	}
	if n := s.w.Writes("ReplicaSet", clustertest.NativeManager); n != 1 {
		t.Errorf("%d native writes to ReplicaSets, of which the first install is 1\n%s", n, s.w.Timeline())
	}
}

// A first install is native, plan or not.
func oursH21(t *testing.T) {
	s, _ := newEnvWithController(t)
	s.plan("1", "100%")
	s.waitFor(v1alpha1.ReasonDeploymentNotFound, 0, nil)
	s.install(4)
	s.waitFor(v1alpha1.ReasonReleaseCompleted, 1, map[string]int32{"v1": 4})
	if n := s.w.Writes("Deployment", v1alpha1.ManagerRollout); n != 0 {
		t.Errorf("%d writes to the Deployment", n)
	}
}

// A held Deployment can be deleted, with all that it owns but the records, by which
// it comes back at its stable revision (H30).
func oursH22(t *testing.T) {
	s := atGate(t, 2)
	s.kubectl("-n", s.ns, "delete", "deployment/web")
	s.waitFor(v1alpha1.ReasonDeploymentNotFound, 0, nil)
	clustertest.Wait(t, "garbage collection", func() error {
		out, err := s.c.Kubectl(t, "-n", s.ns, "get", "rs,pods", "-o", "name")
		if err == nil && out != "" && !strings.HasPrefix(out, "No resources") {
			err = fmt.Errorf("left: %s", out)
		}
		return err
	})
	s.create("web", 2, func(d *appsv1.Deployment) { d.Spec.Template = template("web", "v2") })
	s.finish(2)
}

// A bumped generation stops nothing.
func oursH23(t *testing.T) {
	s := atGate(t, 2)
	s.kubectl("-n", s.ns, "annotate", "deployment/web", "note=hello")
	s.finish(2)
}

// An HPA goes on working: the split follows, and the gate stays.
func oursH24(t *testing.T) {
	s := atGate(t, 4)
	hpa := &autoscalingv2.HorizontalPodAutoscaler{ObjectMeta: metav1.ObjectMeta{Name: "web", Namespace: s.ns}}
	hpa.Spec.ScaleTargetRef = autoscalingv2.CrossVersionObjectReference{APIVersion: "apps/v1", Kind: "Deployment", Name: "web"}
	hpa.Spec.MinReplicas, hpa.Spec.MaxReplicas = ptr.To(int32(8)), 8 // no metrics are asked for to get there
	s.must(s.c.Client.Create(t.Context(), hpa))
	s.waitFor(v1alpha1.ReasonWaitingForApproval, 0, map[string]int32{"v1": 7, "v2": 1})
	s.kubectl("-n", s.ns, "patch", "hpa/web", "-p", `{"spec":{"minReplicas":2,"maxReplicas":2}}`)
	s.waitFor(v1alpha1.ReasonWaitingForApproval, 0, map[string]int32{"v1": 1, "v2": 1})
	s.finish(2)
}

// Another manager owns strategy and paused: the controller takes them for the hold, and
// the other manager's apply gets a conflict. An event says when it forces them back.
func oursH25(t *testing.T) {
	const spec = `{"strategy":{"type":"RollingUpdate","rollingUpdate":{"maxSurge":3,"maxUnavailable":1}},"paused":false}`
	s, _ := newEnvWithController(t)
	s.install(4)
	s.serverSideApply("another", spec)
	s.plan("1", "100%")
	s.waitFor(v1alpha1.ReasonReleaseCompleted, 1, nil)
	s.bring("v2")
	s.waitFor(v1alpha1.ReasonWaitingForApproval, 0, map[string]int32{"v1": 3, "v2": 1})
	if out, err := s.apply("another", spec); err == nil || !strings.Contains(out, `conflicts with "`+v1alpha1.ManagerRollout+`"`) {
		t.Errorf("server-side apply over the hold: %v: %s", err, out)
	}
	s.serverSideApply("another", spec)
	s.hasEvent(v1alpha1.ReasonDriftCorrected, "was changed by another")
	s.waitFor(v1alpha1.ReasonWaitingForApproval, 0, map[string]int32{"v1": 3, "v2": 1})
	s.finish(4)
	if u := s.deployment("web").Spec.Strategy.RollingUpdate; u.MaxSurge.IntValue() != 3 {
		t.Errorf("handed back with %v", u)
	}
}

// collide takes the name that v2's ReplicaSet is going to have, as another
// Deployment of the same template tells.
func (s *env) collide() {
	s.Helper()
	other := &env{T: s.T, c: s.c, ns: s.c.Namespace(s.T)}
	other.create("web", 1, func(d *appsv1.Deployment) { d.Spec.Template = template("web", "v2") })
	other.become(map[string]int32{"v2": 1})
	rs := s.newSet(other.set("v2").Name, "v9", 0)
	rs.Labels = map[string]string{"app": "other"}
	rs.Spec.Selector.MatchLabels, rs.Spec.Template.Labels = rs.Labels, rs.Labels
	s.must(s.c.Client.Create(s.Context(), rs))
}

// Another object has the name of the new ReplicaSet. The controller gives it another hash
// with a count in it, the same as the native controller does.
func oursCollision(t *testing.T) {
	twin := byHand(t, 2)
	twin.collide()
	twin.kubectl("-n", twin.ns, "set", "image", "deployment/web", "web=registry.example.org/web:v2")
	s, _ := newEnvWithController(t)
	s.install(2)
	s.collide()
	s.plan("1", "100%")
	s.waitFor(v1alpha1.ReasonReleaseCompleted, 1, nil)
	s.bring("v2")
	s.waitFor(v1alpha1.ReasonWaitingForApproval, 0, map[string]int32{"v1": 1, "v2": 1})
	at := s.release().Status
	if hash := s.set("v2").Labels[appsv1.DefaultDeploymentUniqueLabelKey]; at.UpdateRevision != hash || !strings.Contains(at.Message, hash) {
		t.Errorf("updateRevision is %s, and the ReplicaSet's hash %s; %s", at.UpdateRevision, hash, at.Message)
	}
	s.finish(2)
	twin.rolled("web", 2)
	for _, x := range []*env{twin, s} {
		if n := ptr.Deref(x.deployment("web").Status.CollisionCount, 0); n != 1 {
			t.Errorf("collisionCount %d", n)
		}
	}
	if got, want := s.set("v2").Name, twin.set("v2").Name; got != want {
		t.Errorf("ReplicaSet %s, native %s", got, want)
	}
}

// An image set by hand while the plan is paused is taken back. A paused plan freezes what
// Git brings, and lets nothing else run meanwhile. A later release of Git has all its
// gates.
func TestPaused_DriftIsUndone(t *testing.T) {
	t.Parallel()
	for name, waits := range map[string]bool{"at rest": false, "a release waits to begin": true} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s, _ := newEnvWithController(t)
			s.install(4)
			s.plan("1", "100%")
			s.waitFor(v1alpha1.ReasonReleaseCompleted, 1, nil)
			s.edit(func(spec *v1alpha1.BatchReleaseSpec) { spec.Paused = true })
			if waits {
				s.bring("v2")
				s.waitFor(v1alpha1.ReasonReleasePaused, 0, map[string]int32{"v1": 4})
			}
			s.kubectl("-n", s.ns, "set", "image", "deployment/web", "web=registry.example.org/web:v2")
			s.hasEvent(v1alpha1.ReasonDriftCorrected, "template of the Deployment was changed")
			s.become(map[string]int32{"v1": 4})
			if !waits {
				s.bring("v2")
			}
			s.waitFor(v1alpha1.ReasonReleasePaused, 0, map[string]int32{"v1": 4})
			s.edit(func(spec *v1alpha1.BatchReleaseSpec) { spec.Paused = false })
			s.waitFor(v1alpha1.ReasonWaitingForApproval, 0, map[string]int32{"v1": 3, "v2": 1})
			s.finish(4)
		})
	}
}
