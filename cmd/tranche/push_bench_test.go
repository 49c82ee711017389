package main

import (
	"fmt"
	"strings"
	"testing"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	"k8s.io/apimachinery/pkg/watch"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

// BenchmarkPushToReplicaSet measures from the end of `git push`, into a local
// repository that is watched, to the first new ReplicaSet, as seen by a watch of
// the API server.
func BenchmarkPushToReplicaSet(b *testing.B) {
	s := newShop(b, "web", ".")
	s.waitFor("web", "ReleaseCompleted", 2, map[string]int32{"v1": 10})
	sets, err := s.c.Client.Watch(b.Context(), &appsv1.ReplicaSetList{}, client.InNamespace(s.ns))
	s.must(err)
	defer sets.Stop()
	last := "v1"
	for i := 0; b.Loop(); i++ {
		b.StopTimer()
		next := fmt.Sprintf("bench-%d", i)
		s.replace("deployment.yaml", "web:"+last, "web:"+next)
		last = next
		s.run(s.clone, "git", "commit", "--quiet", "-am", "web: "+next)
		s.run(s.clone, "git", "push", "--quiet", "origin", "main")
		b.StartTimer()
		began := time.Now()
		for e := range sets.ResultChan() {
			rs, ok := e.Object.(*appsv1.ReplicaSet)
			if ok && e.Type == watch.Added && strings.HasSuffix(rs.Spec.Template.Spec.Containers[0].Image, ":"+next) {
				break
			}
			if time.Since(began) > time.Minute {
				b.Fatalf("no ReplicaSet for %s within a minute", next)
			}
		}
	}
}
