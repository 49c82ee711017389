package main

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"os"
	"os/exec"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	eventsv1 "k8s.io/api/events/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/tranche-dev/tranche/plan/v1alpha1"
	"github.com/tranche-dev/tranche/rollout/clustertest"
)

// A LimitRange that fills pods in starts nothing and stops nothing; one that refuses
// them is named as the cause, and the stable pods stay.
func TestLimitRange(t *testing.T) {
	s := newEnv(t, "web", ".")
	s.waitFor("web", "ReleaseCompleted", 2, map[string]int32{"v1": 10})
	limits := &corev1.LimitRange{ObjectMeta: metav1.ObjectMeta{Name: "limits", Namespace: s.ns},
		Spec: corev1.LimitRangeSpec{Limits: []corev1.LimitRangeItem{{
			Type:           corev1.LimitTypeContainer,
			Default:        corev1.ResourceList{corev1.ResourceMemory: resource.MustParse("64Mi")},
			DefaultRequest: corev1.ResourceList{corev1.ResourceMemory: resource.MustParse("32Mi")},
			Max:            corev1.ResourceList{corev1.ResourceMemory: resource.MustParse("128Mi")},
		}}}}
	s.must(s.c.Client.Create(t.Context(), limits))
	s.replace("deployment.yaml", "web:v1", "web:v2")
	s.push("web: v2")
	s.waitFor("web", "WaitingForApproval", 0, map[string]int32{"v1": 8, "v2": 2})
	s.approve(".", "web", 1)
	s.waitFor("web", "ReleaseCompleted", 2, map[string]int32{"v2": 10})
	s.untouched("web")

	s.replace("deployment.yaml", "web:v2", "web:v3\n        resources: {limits: {memory: 1Gi}}")
	s.push("web: v3, which needs more than it may")
	clustertest.Wait(t, "the message to name the cause", func() error {
		at := s.release("web").Status
		if !strings.Contains(at.Message, "maximum memory usage per Container is 128Mi") {
			return fmt.Errorf("%s: %s", at.Reason, at.Message)
		}
		t.Log(at.Message)
		return nil
	})
	if got := s.pods("web"); got["v2"] < 8 || got["v3"] > 0 {
		t.Errorf("pods %v", got)
	}
	s.run(s.clone, "git", "revert", "--no-edit", "HEAD")
	s.run(s.clone, "git", "push", "--quiet", "origin", "main")
	s.waitFor("web", "ReleaseCompleted", 2, map[string]int32{"v2": 10})
}

// A controller that is newer than a CRD: events say what to do, and nothing moves. With
// the CRD applied, it goes on. The admission policies are no condition for a release.
func TestOlderCRDAndNoPolicies(t *testing.T) {
	t.Parallel()
	c := clustertest.Start(t)
	s := envIn(t, c, "web")
	s.shell(".", "kubectl delete -k ../../config/policy")
	stop := restarted(s)
	s.follow("source", ".")
	s.waitFor("web", "ReleaseCompleted", 2, map[string]int32{"v1": 10})

	s.without("batchreleases", "spec/properties/approvalsSince", "status/properties/endedReleases")
	s.replace("deployment.yaml", "web:v1", "web:v2")
	s.push("web: v2")
	s.saysOutdated("spec.approvalsSince")
	if got := s.pods("web"); got["v1"] != 10 {
		t.Errorf("pods %v", got)
	}
	s.shell(".", crds)
	s.waitFor("web", "WaitingForApproval", 0, map[string]int32{"v1": 8, "v2": 2})
	s.approve(".", "web", 1)
	s.waitFor("web", "ReleaseCompleted", 2, map[string]int32{"v2": 10})
	s.untouched("web")
	// Fields of a status alone: the API server refuses none of what Git brings.
	s.replace("deployment.yaml", "web:v2", "web:v3")
	s.push("web: v3")
	s.waitFor("web", "WaitingForApproval", 0, map[string]int32{"v2": 8, "v3": 2})
	s.without("batchreleases", "status/properties/openedReplicas")
	s.approve(".", "web", 0)
	s.saysOutdated("status.openedReplicas")
	if got := s.pods("web"); got["v3"] > 2 || got["v2"] < 8 {
		t.Errorf("pods %v: the gate of step 0 cannot be opened", got)
	}
	s.shell(".", crds)
	s.waitFor("web", "WaitingForApproval", 1, map[string]int32{"v2": 5, "v3": 5})
	s.approve(".", "web", 1)
	s.waitFor("web", "ReleaseCompleted", 2, map[string]int32{"v3": 10})

	s.without("gitsources", "status/properties/inventory")
	s.replace("deployment.yaml", "web:v3", "web:v4")
	s.push("web: v4")
	s.saysOutdated("status.inventory")
	if got := s.pods("web"); got["v3"] != 10 {
		t.Errorf("pods %v", got)
	}
	s.shell(".", crds)
	s.waitFor("web", "WaitingForApproval", 0, map[string]int32{"v3": 8, "v4": 2})
	s.approve(".", "web", 1)
	s.waitFor("web", "ReleaseCompleted", 2, map[string]int32{"v4": 10})
	s.untouched("web")
	stop()
	losesRight(s)
}

// losesRight has a controller that may not read ReplicaSets any more. Its caches stay as they are, and no write
// fails. So it ends, and the next one works once the right is back.
func losesRight(s *env) {
	s.Helper()
	storage := s.TempDir()
	ended := started(s, storage)
	s.replace("deployment.yaml", "web:v4", "web:v5")
	s.push("web: v5")
	s.waitFor("web", "WaitingForApproval", 0, map[string]int32{"v4": 8, "v5": 2})
	s.shell(".", "kubectl delete -f ../../config/cluster-admin/applier_role.yaml")
	s.shell(".", `kubectl get clusterrole tranche-controller -o yaml | sed '/^  - replicasets$/d' | kubectl replace -f -`)
	clustertest.Wait(s, "the right to be gone", func() error {
		if out, err := s.c.Kubectl(s, "auth", "can-i", "watch", "replicasets", "-A", "--as", s.c.Controller.Impersonate.UserName); err == nil {
			return errors.New(out)
		}
		return nil
	})
	s.c.RestartAPIServer(s) // it ends the watches
	s.approve(".", "web", 0)
	for {
		var said string
		select {
		case said = <-ended:
		case <-time.After(clustertest.Within):
			s.Fatalf("it goes on: %s", s.release("web").Status.Message)
		}
		if strings.Contains(said, "ReplicaSet could not be read for ") && strings.Contains(said, "forbidden") {
			break
		}
		if !strings.Contains(said, "the API server had not answered") { // it took long to restart
			s.Fatalf("it ended: %s", said)
		}
		ended = started(s, storage)
	}
	restarted(s)
	s.shell(".", "kubectl apply --server-side --force-conflicts -k ../../config/rbac")
	s.shell(".", "kubectl apply --server-side -f ../../config/cluster-admin/applier_role.yaml")
	s.waitFor("web", "WaitingForApproval", 1, map[string]int32{"v4": 5, "v5": 5})
	s.approve(".", "web", 1)
	s.waitFor("web", "ReleaseCompleted", 2, map[string]int32{"v5": 10})
	s.untouched("web")
}

// started starts a controller, and returns where its output comes when it has ended.
func started(s *env, storage string) chan string {
	s.Helper()
	var output bytes.Buffer
	cmd := controllerOf(s.Context(), s, storage)
	cmd.Stdout, cmd.Stderr = &output, &output
	s.must(cmd.Start())
	ended := make(chan string, 1)
	go func() {
		_ = cmd.Wait() // the output says how
		ended <- output.String()
	}()
	return ended
}

// crds is the command that the messages ask for.
const crds = "kubectl apply --server-side --force-conflicts -k ../../config/crd"

// without takes fields out of a CustomResourceDefinition, as one of an older version has
// it, and waits until the API server does not know them. It takes out rules, too.
func (s *env) without(crd string, fields ...string) {
	s.Helper()
	var patch []map[string]string
	for _, field := range fields {
		patch = append(patch, map[string]string{"op": "remove", "path": "/spec/versions/0/schema/openAPIV3Schema/properties/" + field})
	}
	text, err := json.Marshal(patch)
	s.must(err)
	if out, err := s.c.Kubectl(s, "patch", "crd", crd+".tranche.dev", "--type=json", "-p", string(text)); err != nil {
		s.Fatalf("%v: %s", err, out)
	}
	for _, field := range fields {
		path := crd + "." + strings.ReplaceAll(field, "/properties/", ".")
		if strings.Contains(path, "/") { // a rule
			continue
		}
		clustertest.Wait(s, path+" to be unknown", func() error {
			if out, err := s.c.Kubectl(s, "explain", path); err == nil {
				return errors.New(out)
			}
			return nil
		})
	}
}

// saysOutdated waits until events of the source and the release say that a field is not known,
// and what to do.
func (s *env) saysOutdated(field string) {
	s.Helper()
	clustertest.Wait(s, "events that say so", func() error {
		var list eventsv1.EventList
		s.must(s.c.Client.List(s.Context(), &list, client.InNamespace(s.ns)))
		said := map[string]bool{}
		for _, e := range list.Items {
			if e.Reason == v1alpha1.ReasonOutdatedCRD && strings.Contains(e.Note, field) && strings.Contains(e.Note, "apply config/crd") {
				said[e.Regarding.Kind+" "+e.Regarding.Name] = true
			}
		}
		if want := map[string]bool{"GitSource source": true, "BatchRelease web": true}; !maps.Equal(said, want) {
			return fmt.Errorf("of %v; pods %v; source: %+v", said, s.pods("web"), s.ready())
		}
		return nil
	})
}

// restarted runs a controller with these flags as a process until stop is called. If it ends by
// itself, it is started again, as the kubelet does.
func restarted(s *env, flags ...string) (stop func()) {
	s.Helper()
	ctx, cancel := context.WithCancel(context.Background())
	var output bytes.Buffer
	storage, ended := s.TempDir(), make(chan struct{})
	go func() {
		defer close(ended)
		for ctx.Err() == nil {
			cmd := controllerOf(ctx, s, storage, flags...)
			cmd.Stdout, cmd.Stderr = &output, &output
			if err := cmd.Run(); err != nil {
				fmt.Fprintln(&output, "ended:", err)
			}
		}
	}()
	stop = sync.OnceFunc(func() {
		cancel()
		<-ended
		if s.Failed() {
			s.Logf("the controller: %s", output.String())
		}
	})
	s.Cleanup(stop)
	return stop
}

// controllerOf is the command of a controller of the cluster.
func controllerOf(ctx context.Context, s *env, storage string, flags ...string) *exec.Cmd {
	cmd := exec.CommandContext(ctx, os.Args[0], append([]string{
		"controller", "--as", s.c.Controller.Impersonate.UserName, "--storage-path", storage, "--file-roots", os.TempDir(),
		"--log-encoding", "console",
	}, flags...)...)
	cmd.Cancel = func() error { return cmd.Process.Signal(syscall.SIGTERM) }
	cmd.Env = append(os.Environ(), asTranche+"=1", "KUBECONFIG="+s.c.Kubeconfig)
	return cmd
}
