// Package traffic plays the requests that the pods of a cluster would serve, and exports
// their metrics as Prometheus scrapes them.
//
// The pods of devcluster run nothing. This package watches them through the API server.
// Each ready pod is given requests at a rate, of which a share fails, with latencies. The
// tag of its image changes them. Nothing is random. A pod that has been ready for t seconds
// has served rate × t requests, and the share that the profile names of them has failed.
// Both are rounded down.
package traffic

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/http"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/promhttp"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/client-go/informers"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/tools/cache"
	"k8s.io/client-go/tools/clientcmd"
)

// stopGrace is how long a request under way may take when the server is stopped.
const stopGrace = 5 * time.Second

// Options say whose pods to watch, what they serve, and where.
type Options struct {
	Kubeconfig string
	Addr       string // to listen on; port 0 is any free one
	Profiles   Profiles
}

// Serve serves until the context is cancelled, and then returns nil. It calls listening
// once, with the URL, when it has seen all pods that there are.
func Serve(ctx context.Context, o Options, listening func(url string)) error {
	if err := o.Profiles.check(); err != nil {
		return err
	}
	if o.Kubeconfig == "" {
		return errors.New("no cluster is named; give a kubeconfig")
	}
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	e := newExporter(o.Profiles, time.Now)
	if err := follow(ctx, o.Kubeconfig, e); err != nil {
		return err
	}
	l, err := net.Listen("tcp", o.Addr)
	if err != nil {
		return fmt.Errorf("listening on %s: %w", o.Addr, err)
	}
	server := &http.Server{Handler: newHandler(e), ReadHeaderTimeout: 10 * time.Second}
	served := make(chan error, 1)
	go func() { served <- server.Serve(l) }()
	listening("http://" + l.Addr().String())

	select {
	case err := <-served:
		return fmt.Errorf("serving on %s: %w", l.Addr(), err)
	case <-ctx.Done():
	}
	stopCtx, stop := context.WithTimeout(context.WithoutCancel(ctx), stopGrace)
	defer stop()
	if err := server.Shutdown(stopCtx); err != nil {
		return errors.Join(fmt.Errorf("stopping: %w", err), server.Close())
	}
	return nil
}

// follow lets the exporter see the pods of a cluster, and returns when it has seen them all.
func follow(ctx context.Context, kubeconfig string, e *exporter) error {
	config, err := clientcmd.BuildConfigFromFlags("", kubeconfig)
	if err != nil {
		return fmt.Errorf("reading the kubeconfig: %w", err)
	}
	client, err := kubernetes.NewForConfig(config)
	if err != nil {
		return fmt.Errorf("making a client: %w", err)
	}
	if _, err := client.Discovery().ServerVersion(); err != nil { // the informer would wait for the server
		return fmt.Errorf("reaching the API server: %w", err)
	}
	factory := informers.NewSharedInformerFactory(client, 0)
	registered, err := factory.Core().V1().Pods().Informer().AddEventHandler(cache.ResourceEventHandlerFuncs{
		AddFunc:    func(o any) { e.observe(o.(*corev1.Pod)) },
		UpdateFunc: func(_, o any) { e.observe(o.(*corev1.Pod)) },
		DeleteFunc: func(o any) {
			if name, err := cache.DeletionHandlingObjectToName(o); err == nil { // what has been added has a name
				e.remove(name)
			}
		},
	})
	if err != nil {
		return fmt.Errorf("watching the pods: %w", err)
	}
	factory.Start(ctx.Done())
	if !cache.WaitForCacheSync(ctx.Done(), registered.HasSynced) {
		return fmt.Errorf("listing the pods: %w", context.Cause(ctx))
	}
	return nil
}

// newHandler serves the metrics, and takes changes of profiles.
func newHandler(e *exporter) http.Handler {
	registry := prometheus.NewRegistry()
	registry.MustRegister(e)
	mux := http.NewServeMux()
	mux.Handle("GET /metrics", promhttp.HandlerFor(registry, promhttp.HandlerOpts{EnableOpenMetrics: true}))
	const path = "/namespaces/{namespace}/tags/{tag}"
	key := func(r *http.Request) tagKey { return tagKey{r.PathValue("namespace"), r.PathValue("tag")} }
	mux.HandleFunc("PUT "+path, func(w http.ResponseWriter, r *http.Request) {
		c, err := readChange(r.Body, e.profiles.of(key(r).tag))
		if err != nil {
			http.Error(w, err.Error(), http.StatusBadRequest)
			return
		}
		e.change(key(r), &c)
		w.WriteHeader(http.StatusNoContent)
	})
	mux.HandleFunc("DELETE "+path, func(w http.ResponseWriter, r *http.Request) {
		e.change(key(r), nil)
		w.WriteHeader(http.StatusNoContent)
	})
	return mux
}
