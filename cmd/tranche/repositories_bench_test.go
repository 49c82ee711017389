package main

import (
	"flag"
	"fmt"
	"path/filepath"
	"slices"
	"sync"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/tranche-dev/tranche/gitsync/gittest"
	"github.com/tranche-dev/tranche/plan/v1alpha1"
	"github.com/tranche-dev/tranche/rollout/clustertest"
)

var (
	manyRepositories = flag.Int("repositories", 200, "repositories of BenchmarkRepositories")
	manyCommits      = flag.Int("commits", 100, "commits a minute of BenchmarkRepositories, in all")
	manyFor          = flag.Duration("for", 2*time.Minute, "how long BenchmarkRepositories commits")
)

// BenchmarkRepositories has a source for each of very many repositories, to which commits are
// pushed evenly, with a webhook each. It measures from the end of a push until the ConfigMap is
// as the commit says, and what the controller takes. It fails if a commit costs more than one
// fetch.
func BenchmarkRepositories(b *testing.B) {
	for b.Loop() {
		c := clustertest.Shared(b)
		r := &repositories{monorepo: &monorepo{B: b, c: c, namespaces: []string{c.Namespace(b)}}, at: map[string]time.Time{}}
		hooks := gittest.FreeAddress(r)
		r.make(hooks)
		r.follow()
		binary := program(b)
		began := time.Now()
		r.process = newProcess(b, c, binary, "--webhook-address", hooks)
		for i := range *manyRepositories {
			r.wait(configName(i), "0")
		}
		r.push(time.Since(began))
		r.process.stop()
		b.ReportMetric(0, "ns/op")
	}
}

// repositories are very many, each with a source.
type repositories struct {
	*monorepo
	repos []*gittest.Repo
	tells []func() // the controller, of a push

	mu sync.Mutex
	at map[string]time.Time // at which a watch showed a ConfigMap, by name and value
}

func configName(i int) string { return fmt.Sprintf("config-%03d", i) }

// commit pushes the nth commit to a repository.
func (r *repositories) commit(i, n int) {
	r.Helper()
	r.repos[i].CommitAndPush(map[string]string{
		"config.yaml": fmt.Sprintf("apiVersion: v1\nkind: ConfigMap\nmetadata: {name: %s}\ndata: {commit: '%d'}\n", configName(i), n),
	})
}

// make makes the repositories and their sources.
func (r *repositories) make(hooks string) {
	r.Helper()
	const token = "a-long-random-text"
	ns, root := r.namespaces[0], r.TempDir()
	r.must(r.c.Client.Create(r.Context(), &corev1.Secret{
		ObjectMeta: metav1.ObjectMeta{Name: "hook", Namespace: ns}, StringData: map[string]string{"token": token},
	}))
	server := gittest.Serve(r, root, gittest.ServeOptions{Wrap: r.count})
	for i := range *manyRepositories {
		name := fmt.Sprintf("repo-%03d.git", i)
		r.repos = append(r.repos, gittest.NewRepoAt(r, filepath.Join(root, name)))
		r.commit(i, 0)
		r.tells = append(r.tells, forge(r.B, hooks, server.URL+"/"+name, token))
		r.must(r.c.Client.Create(r.Context(), &v1alpha1.GitSource{
			ObjectMeta: metav1.ObjectMeta{Name: fmt.Sprintf("source-%03d", i), Namespace: ns},
			Spec: v1alpha1.GitSourceSpec{URL: server.URL + "/" + name, Path: ".", Interval: metav1.Duration{Duration: scaleInterval},
				Webhook: &v1alpha1.Webhook{SecretRef: v1alpha1.LocalObjectReference{Name: "hook"}}},
		}))
	}
}

// push commits evenly, and prints what that takes. first is how long the first sync took.
func (r *repositories) push(first time.Duration) {
	r.Helper()
	cpu, asked, fetched := r.process.cpu(), r.asked.Load(), r.fetched.Load()
	requests, _ := r.process.scrape().sum("rest_client_requests_total", nil)
	began, n := time.Now(), 0
	var took []time.Duration
	var mu sync.Mutex
	var applied sync.WaitGroup
	for every := time.NewTicker(time.Minute / time.Duration(*manyCommits)); time.Since(began) < *manyFor; <-every.C {
		i := n * 7 % *manyRepositories
		n++
		r.commit(i, n)
		pushed, value := time.Now(), fmt.Sprint(n)
		r.tells[i]()
		applied.Go(func() {
			at := r.wait(configName(i), value)
			mu.Lock()
			defer mu.Unlock()
			took = append(took, at.Sub(pushed))
		})
	}
	applied.Wait()
	lasted := time.Since(began)
	slices.Sort(took)
	after, _ := r.process.scrape().sum("rest_client_requests_total", nil)
	peak, _ := r.process.all.most()
	fetches := int(r.fetched.Load() - fetched)
	fmt.Printf("\n\n%s\n", tabulate([][]string{
		{fmt.Sprintf("%d repositories, %d commits in %.0f s", *manyRepositories, n, lasted.Seconds()),
			"first sync of all", "commit to cluster, p50", "p99", "CPU", "peak",
			"requests to the cluster for a commit", "questions to the Git server", "fetches"},
		{"", seconds(first), seconds(took[len(took)/2]), seconds(took[len(took)*99/100]),
			fmt.Sprintf("%.1f %% of a core", 100*(r.process.cpu()-cpu).Seconds()/lasted.Seconds()), fmt.Sprintf("%.0f MiB", peak),
			fmt.Sprintf("%.1f", (after-requests)/float64(n)), number(float64(r.asked.Load() - asked)), number(float64(fetches))},
	}))
	if fetches > n {
		r.Errorf("%d commits cost %d fetches", n, fetches)
	}
}

// follow keeps when each ConfigMap got a value.
func (r *repositories) follow() {
	r.Helper()
	w, err := r.c.Client.Watch(r.Context(), &corev1.ConfigMapList{}, client.InNamespace(r.namespaces[0]))
	r.must(err)
	go func() {
		for e := range w.ResultChan() {
			if cm, is := e.Object.(*corev1.ConfigMap); is {
				r.mu.Lock()
				r.at[cm.Name+"="+cm.Data["commit"]] = time.Now()
				r.mu.Unlock()
			}
		}
	}()
}

// wait returns when a ConfigMap got a value.
func (r *repositories) wait(name, value string) time.Time {
	r.Helper()
	for deadline := time.Now().Add(5 * time.Minute); ; <-time.After(50 * time.Millisecond) {
		r.mu.Lock()
		at, is := r.at[name+"="+value]
		r.mu.Unlock()
		if is {
			return at
		}
		if time.Now().After(deadline) {
			r.Errorf("ConfigMap %s did not get %s", name, value)
			return time.Now()
		}
	}
}
