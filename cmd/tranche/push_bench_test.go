package main

import (
	"crypto/hmac"
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"net/http"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/watch"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/tranche-dev/tranche/gitsync/gittest"
	"github.com/tranche-dev/tranche/plan/v1alpha1"
	"github.com/tranche-dev/tranche/rollout/clustertest"
)

// BenchmarkPushToReplicaSet measures from the end of `git push` to the first new
// ReplicaSet, as seen by a watch of the API server, over 100 pushes. They go into a local
// repository that is watched, and to an HTTP server that sends a webhook.
func BenchmarkPushToReplicaSet(b *testing.B) {
	alone(b, clustertest.Shared(b))
	b.Run("by=fsnotify", func(b *testing.B) {
		s := newEnv(b, "web", ".")
		s.benchmarkPushes(b, func() {})
	})
	b.Run("by=webhook", func(b *testing.B) {
		s := envOf(b, "web")
		b.Setenv("KUBECONFIG", s.c.Kubeconfig)
		address, token := gittest.FreeAddress(b), "a-long-random-text"
		s.control("--as", s.c.Controller.Impersonate.UserName, "--webhook-address", address)
		s.must(s.c.Client.Create(b.Context(), &corev1.Secret{
			ObjectMeta: metav1.ObjectMeta{Name: "hook", Namespace: s.ns}, StringData: map[string]string{"token": token},
		}))
		url := gittest.Serve(b, filepath.Dir(s.bare), gittest.ServeOptions{}).URL + "/" + filepath.Base(s.bare)
		s.must(s.c.Client.Create(b.Context(), &v1alpha1.GitSource{
			ObjectMeta: metav1.ObjectMeta{Name: "source", Namespace: s.ns},
			Spec: v1alpha1.GitSourceSpec{URL: url, Path: ".", Interval: metav1.Duration{Duration: time.Hour},
				Webhook: &v1alpha1.Webhook{SecretRef: v1alpha1.LocalObjectReference{Name: "hook"}}},
		}))
		s.benchmarkPushes(b, forge(b, address, url, token))
	})
}

// forge returns a function that tells the controller of a push to a repository,
// signed with a token.
func forge(b *testing.B, address, url, token string) (tell func()) {
	body := fmt.Sprintf(`{"url": %q, "ref": "refs/heads/main"}`, url)
	mac := hmac.New(sha256.New, []byte(token))
	mac.Write([]byte(body))
	signature := "sha256=" + hex.EncodeToString(mac.Sum(nil))
	return func() {
		b.Helper()
		hook, err := http.NewRequestWithContext(b.Context(), http.MethodPost, "http://"+address+"/webhook", strings.NewReader(body))
		if err != nil {
			b.Fatal(err)
		}
		hook.Header.Set("X-Signature", signature)
		answer, err := http.DefaultClient.Do(hook)
		if err != nil {
			b.Fatal(err)
		}
		defer answer.Body.Close()
		if answer.StatusCode != http.StatusAccepted {
			b.Fatalf("the webhook is answered with %s", answer.Status)
		}
	}
}

// betweenPushes is the time from one push to the next one. A webhook asks for a source once a
// second at most.
const betweenPushes = 1500 * time.Millisecond

// benchmarkPushes makes 100 pushes; tell is what the server does after one.
func (s *env) benchmarkPushes(b *testing.B, tell func()) {
	const pushes = 100
	s.waitFor("web", "ReleaseCompleted", 2, map[string]int32{"v1": 10})
	sets, err := s.c.Client.Watch(b.Context(), &appsv1.ReplicaSetList{}, client.InNamespace(s.ns))
	s.must(err)
	defer sets.Stop()
	last, n := "v1", 0
	for b.Loop() {
		var took []time.Duration
		for range pushes {
			n++
			next := fmt.Sprintf("bench-%d", n)
			s.replace("deployment.yaml", "web:"+last, "web:"+next)
			last = next
			s.run(s.clone, "git", "commit", "--quiet", "-am", "web: "+next)
			s.run(s.clone, "git", "push", "--quiet", "origin", "main")
			began, over := time.Now(), time.After(betweenPushes)
			tell()
			s.untilReplicaSet(sets, next)
			took = append(took, time.Since(began))
			<-over
		}
		slices.Sort(took)
		b.ReportMetric(float64(took[pushes*50/100-1].Milliseconds()), "p50-ms")
		b.ReportMetric(float64(took[pushes*99/100-1].Milliseconds()), "p99-ms")
		b.ReportMetric(0, "ns/op")
	}
}

// untilReplicaSet waits for the ReplicaSet of a tag.
func (s *env) untilReplicaSet(sets watch.Interface, tag string) {
	s.Helper()
	late := time.After(time.Minute)
	for {
		select {
		case e := <-sets.ResultChan():
			rs, ok := e.Object.(*appsv1.ReplicaSet)
			if ok && e.Type == watch.Added && strings.HasSuffix(rs.Spec.Template.Spec.Containers[0].Image, ":"+tag) {
				return
			}
		case <-late:
			s.Fatalf("no ReplicaSet for %s within a minute", tag)
		}
	}
}
