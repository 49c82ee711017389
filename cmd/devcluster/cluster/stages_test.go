package cluster

import (
	"encoding/json"
	"os"
	"path/filepath"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/strategicpatch"
	"sigs.k8s.io/kwok/pkg/apis/internalversion"
	"sigs.k8s.io/kwok/pkg/config"
	"sigs.k8s.io/kwok/pkg/utils/gotpl"
	"sigs.k8s.io/kwok/pkg/utils/lifecycle"
)

// player plays pods as kwok would, without a cluster.
type player struct {
	pods     lifecycle.Lifecycle
	renderer gotpl.Renderer
}

func newPlayer(t *testing.T) *player {
	t.Helper()
	path := filepath.Join(t.TempDir(), "kwok.yaml")
	if err := os.WriteFile(path, stages, 0o600); err != nil {
		t.Fatal(err)
	}
	objects, err := config.Load(t.Context(), path)
	if err != nil {
		t.Fatal(err)
	}
	var podStages []*internalversion.Stage
	for _, object := range objects {
		if stage, ok := object.(*internalversion.Stage); ok && stage.Spec.ResourceRef.Kind == "Pod" {
			podStages = append(podStages, stage)
		}
	}
	pods, err := lifecycle.NewLifecycle(podStages)
	if err != nil {
		t.Fatal(err)
	}
	return &player{pods: pods, renderer: gotpl.NewRenderer(gotpl.FuncMap{
		"NodeIPsWith": func(string) []string { return []string{"172.16.0.1"} },
		"PodIPsWith":  func(string, bool, string, string, string) []string { return []string{"10.128.0.1"} },
	})}
}

// next is the one stage that a pod is at, nil when it is at its end.
func (p *player) next(t *testing.T, pod *corev1.Pod) *lifecycle.Stage {
	t.Helper()
	possible, err := p.pods.ListAllPossible(t.Context(), &lifecycle.Event{Labels: pod.Labels, Annotations: pod.Annotations, Data: pod})
	if err != nil {
		t.Fatal(err)
	}
	switch len(possible) {
	case 0:
		return nil
	case 1:
		return possible[0]
	}
	t.Fatalf("kwok would choose at random between %s and %s", possible[0].Name(), possible[1].Name())
	return nil
}

// delay is how long the pod stays as it is before the stage.
func (p *player) delay(t *testing.T, stage *lifecycle.Stage, pod *corev1.Pod) time.Duration {
	t.Helper()
	delay, _, err := stage.Delay(t.Context(), &lifecycle.Event{Data: pod}, time.Now())
	if err != nil {
		t.Fatal(err)
	}
	return delay
}

// play gives the pod after a stage, nil when it is gone.
func (p *player) play(t *testing.T, stage *lifecycle.Stage, pod *corev1.Pod) *corev1.Pod {
	t.Helper()
	_, err := stage.DoSteps(0, nil, pod, p.renderer,
		func(*internalversion.StageEvent) error { return nil },
		func() error { pod = nil; return nil },
		func(patch *lifecycle.Patch) error {
			before, err := json.Marshal(pod)
			if err != nil {
				return err
			}
			after, err := strategicpatch.StrategicMergePatch(before, patch.Data, pod)
			if err != nil {
				return err
			}
			pod = &corev1.Pod{}
			return json.Unmarshal(after, pod)
		}, nil)
	if err != nil {
		t.Fatalf("playing %s: %v", stage.Name(), err)
	}
	return pod
}

func newPod(images ...string) *corev1.Pod {
	pod := &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{Name: "pod", Namespace: "default", UID: "1"},
		Spec:       corev1.PodSpec{NodeName: "node-0"},
		Status: corev1.PodStatus{
			Phase:      corev1.PodPending,
			Conditions: []corev1.PodCondition{{Type: corev1.PodScheduled, Status: corev1.ConditionTrue}},
		},
	}
	for i, image := range images {
		pod.Spec.Containers = append(pod.Spec.Containers, corev1.Container{Name: string(rune('a' + i)), Image: image})
	}
	return pod
}

func ownedByJob(pod *corev1.Pod) *corev1.Pod {
	pod.OwnerReferences = []metav1.OwnerReference{{Kind: "Job", Name: "job"}}
	return pod
}

func restarted(pod *corev1.Pod) *corev1.Pod {
	pod.Spec.RestartPolicy = corev1.RestartPolicyOnFailure
	return pod
}

// life is what becomes of a pod.
type life struct {
	reason string
	pod    *corev1.Pod
	want   []look
}

// look is at a pod as it is after a stage.
type look struct {
	stage    string
	phase    corev1.PodPhase
	ready    bool
	restarts int32 // of the container that has most
}

// TestLives follows pods through their stages. At each, the pod is looked at as it is after the stage.
func TestLives(t *testing.T) {
	for _, test := range []life{
		{"an ordinary pod becomes ready and stays", newPod("app:1"), []look{
			{"pod-start", corev1.PodRunning, true, 0},
		}},
		{"one broken container keeps the pod from becoming ready for ever", newPod("app:1", "registry:5000/app:broken"), []look{
			{"pod-start", corev1.PodRunning, false, 0},
		}},
		{"the tag counts, not the name", newPod("broken:1", "crash", "app:crashed"), []look{
			{"pod-start", corev1.PodRunning, true, 0},
		}},
		{"a crash loop is ready in between", newPod("side:1", "app:crash"), []look{
			{"pod-start", corev1.PodRunning, true, 0},
			{"pod-crash", corev1.PodRunning, false, 1},
			{"pod-restart", corev1.PodRunning, true, 1},
			{"pod-crash", corev1.PodRunning, false, 2},
		}},
		{"broken and crashing at once is never ready", newPod("app:broken", "app:crash"), []look{
			{"pod-start", corev1.PodRunning, false, 0},
			{"pod-crash", corev1.PodRunning, false, 1},
			{"pod-restart", corev1.PodRunning, false, 1},
		}},
		{"a Job's pod completes", ownedByJob(newPod("job:1")), []look{
			{"pod-start", corev1.PodRunning, true, 0},
			{"pod-complete", corev1.PodSucceeded, false, 0},
		}},
		{"a Job's pod that crashes does not", ownedByJob(newPod("job:crash")), []look{
			{"pod-start", corev1.PodRunning, true, 0},
			{"pod-crash", corev1.PodRunning, false, 1},
		}},
	} {
		t.Run(test.reason, test.follow)
	}
}

func TestLivesOfJobs(t *testing.T) {
	for _, test := range []life{
		{"a pod whose image cannot be pulled waits for it", newPod("side:1", "app:v2-pull"), []look{
			{"pod-pull", corev1.PodPending, false, 0},
		}},
		{"the end of a tag counts, not that of a name", newPod("app-pull:1", "app:v2-pulled"), []look{
			{"pod-start", corev1.PodRunning, true, 0},
		}},
		{"a pod of no Job does not end", newPod("app:exit-3", "app:oom", "app:evict"), []look{
			{"pod-start", corev1.PodRunning, true, 0},
		}},
		{"a Job's pod with exit code 0 completes", ownedByJob(newPod("job:v2-exit-0")), []look{
			{"pod-start", corev1.PodRunning, true, 0},
			{"pod-complete", corev1.PodSucceeded, false, 0},
		}},
		{"a Job's pod that hangs stays", ownedByJob(newPod("job:hang")), []look{
			{"pod-start", corev1.PodRunning, true, 0},
		}},
		{"one container that hangs keeps a failed one's pod", ownedByJob(newPod("job:hang", "job:exit-1")), []look{
			{"pod-start", corev1.PodRunning, true, 0},
		}},
		{"a Job's pod whose image cannot be pulled waits for it", ownedByJob(newPod("job:pull")), []look{
			{"pod-pull", corev1.PodPending, false, 0},
		}},
		{"a Job's pod fails", ownedByJob(newPod("job:exit-3")), []look{
			{"pod-start", corev1.PodRunning, true, 0},
			{"pod-fail", corev1.PodFailed, false, 0},
		}},
		{"a Job's pod that is evicted fails, whatever its other containers do", ownedByJob(newPod("job:exit-3", "job:evict")), []look{
			{"pod-start", corev1.PodRunning, true, 0},
			{"pod-evict", corev1.PodFailed, false, 0},
		}},
		{"a Job's pod that is restarted fails again and again", restarted(ownedByJob(newPod("side:1", "job:exit-3"))), []look{
			{"pod-start", corev1.PodRunning, true, 0},
			{"pod-fail-again", corev1.PodRunning, false, 1},
			{"pod-restart", corev1.PodRunning, true, 1},
			{"pod-fail-again", corev1.PodRunning, false, 2},
		}},
	} {
		t.Run(test.reason, test.follow)
	}
}

func (l life) follow(t *testing.T) {
	p, pod := newPlayer(t), l.pod
	for i, want := range l.want {
		stage := p.next(t, pod)
		if stage == nil {
			t.Fatalf("look %d: nothing happens, want %s", i, want.stage)
		}
		pod = p.play(t, stage, pod)
		got := look{stage.Name(), pod.Status.Phase, isReady(t, pod), restarts(pod)}
		if got != want {
			t.Fatalf("look %d: got %+v, want %+v", i, got, want)
		}
	}
	last := l.want[len(l.want)-1].stage
	loops := map[string]bool{"pod-crash": true, "pod-restart": true, "pod-fail-again": true}
	if stage := p.next(t, pod); stage != nil && !loops[last] {
		t.Errorf("after %s there is %s, want nothing", last, stage.Name())
	}
}

// TestEnds reads how a Job's pod and its containers ended.
func TestEnds(t *testing.T) {
	type end struct {
		phase             corev1.PodPhase
		reason, container string
		exitCode          int32
		disrupted         bool
	}
	for image, want := range map[string]end{
		"job:exit-0":    {corev1.PodSucceeded, "", "Completed", 0, false},
		"job:v2-exit-3": {corev1.PodFailed, "", "Error", 3, false},
		"job:exit-137":  {corev1.PodFailed, "", "Error", 137, false},
		"job:oom":       {corev1.PodFailed, "", "OOMKilled", 137, false},
		"job:evict":     {corev1.PodFailed, "Evicted", "Error", 137, true},
	} {
		p, pod := newPlayer(t), ownedByJob(newPod(image))
		for stage := p.next(t, pod); stage != nil; stage = p.next(t, pod) {
			pod = p.play(t, stage, pod)
		}
		terminated := pod.Status.ContainerStatuses[0].State.Terminated
		if terminated == nil {
			t.Errorf("%s: the container is %+v", image, pod.Status.ContainerStatuses[0].State)
			continue
		}
		got := end{phase: pod.Status.Phase, reason: pod.Status.Reason, container: terminated.Reason, exitCode: terminated.ExitCode}
		for _, c := range pod.Status.Conditions {
			got.disrupted = got.disrupted || c.Type == corev1.DisruptionTarget && c.Reason == "TerminationByKubelet"
		}
		if got != want {
			t.Errorf("%s: got %+v, want %+v", image, got, want)
		}
	}
}

func TestDeletedPodsGoFromEveryState(t *testing.T) {
	for _, image := range []string{"app:1", "app:broken", "app:crash", "app:pull", "app:exit-3"} {
		p, pod := newPlayer(t), newPod(image)
		for range 4 {
			deleted := pod.DeepCopy()
			deleted.DeletionTimestamp = &metav1.Time{Time: time.Now()}
			stage := p.next(t, deleted)
			if stage == nil || p.play(t, stage, deleted) != nil {
				t.Fatalf("%s in phase %s stays after its deletion", image, pod.Status.Phase)
			}
			if delay := p.delay(t, stage, deleted); delay < 500*time.Millisecond || delay > time.Second {
				t.Errorf("%s is gone after %s, want half a second to one", image, delay)
			}
			if stage := p.next(t, pod); stage != nil {
				pod = p.play(t, stage, pod)
			}
		}
	}
}

func TestBackOffDoubles(t *testing.T) {
	p, pod := newPlayer(t), newPod("app:crash")
	pod = p.play(t, p.next(t, pod), pod)
	for _, want := range []time.Duration{10, 20, 40, 80, 160, 300, 300} {
		pod = p.play(t, p.next(t, pod), pod)
		restart := p.next(t, pod)
		if got := p.delay(t, restart, pod); got != want*time.Second {
			t.Errorf("restart %d comes after %s, want %s", restarts(pod), got, want*time.Second)
		}
		pod = p.play(t, restart, pod)
	}
}

// isReady also checks that what depends on readiness agrees with it.
func isReady(t *testing.T, pod *corev1.Pod) bool {
	t.Helper()
	containers := true
	for _, c := range pod.Status.ContainerStatuses {
		containers = containers && c.Ready
	}
	ready, seen := false, map[corev1.PodConditionType]bool{}
	ended := map[string]bool{"PodCompleted": true, "PodFailed": true} // reasons without a message
	for _, c := range pod.Status.Conditions {
		if seen[c.Type] {
			t.Errorf("condition %s is there twice", c.Type)
		}
		seen[c.Type] = true
		if c.Type != corev1.PodReady && c.Type != corev1.ContainersReady {
			continue
		}
		ready = c.Status == corev1.ConditionTrue
		if ready != containers || ready != (c.Reason == "") || ready != (c.Message == "") && !ended[c.Reason] {
			t.Errorf("condition %s is %s (%s: %s), its containers say %v", c.Type, c.Status, c.Reason, c.Message, containers)
		}
	}
	if !seen[corev1.PodScheduled] {
		t.Error("the scheduler's condition is lost")
	}
	return ready
}

func restarts(pod *corev1.Pod) int32 {
	var most int32
	for _, c := range pod.Status.ContainerStatuses {
		most = max(most, c.RestartCount)
	}
	return most
}
