package controller

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"sync"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/resourceversion"
	"k8s.io/client-go/metadata"
	"k8s.io/client-go/rest"
)

// rewindPeriod is the time between two reads of the API server's resourceVersion.
const rewindPeriod = 2 * time.Second

// longestOutage is how long the reads may fail. After a longer outage, a restored API server
// may have a newer resourceVersion than before already.
const longestOutage = 30 * time.Second

// rewind notices that the API server's resourceVersion has gone backwards, as after a
// restore of etcd. The caches of this process then have objects that never were, and watches
// do not correct them. So the process has to end, and nothing is written before. It ends, too, after
// an outage of longestOutage.
//
// The API server stops for a restore. From the first request without an answer, nothing is
// written until its resourceVersion has been read again. Writes wait for that.
//
// A refusal is an answer, and no outage. The process ends after longestBlind of them, as sight
// has it, since it may write nothing meanwhile.
type rewind struct {
	// read returns the present resourceVersion. It is no client that guard guards.
	read func(context.Context) (string, error)

	mu       sync.Mutex
	newest   string
	answered time.Time     // when newest was asked for
	outage   bool          // a read since then had no answer
	refused  time.Time     // the first one of the refusals that came last; zero: none
	failed   error         // why read has to be called before the next write
	doubts   int           // how often suspect has been called
	looked   chan struct{} // closed once read was called after a doubt; nil: there is none
	because  error         // why the process has to end
	wake     chan struct{} // has an element while read is to be called at once
	lost     chan struct{} // closed with because
}

// newRewind makes one that reads with the rights of a configuration that has no guard yet.
func newRewind(config *rest.Config) (*rewind, error) {
	c, err := metadata.NewForConfig(rest.CopyConfig(config))
	if err != nil {
		return nil, fmt.Errorf("preparing to read resourceVersions: %w", err)
	}
	deployments := c.Resource(appsv1.SchemeGroupVersion.WithResource("deployments"))
	return &rewind{wake: make(chan struct{}, 1), lost: make(chan struct{}), read: func(ctx context.Context) (string, error) {
		ctx, cancel := context.WithTimeout(ctx, renewDeadline)
		defer cancel()
		list, err := deployments.List(ctx, metav1.ListOptions{Limit: 1})
		if err != nil {
			return "", err
		}
		return list.ResourceVersion, nil
	}}, nil
}

// check reads the resourceVersion and compares it with the newest one that was read before.
func (r *rewind) check(ctx context.Context) {
	r.mu.Lock()
	doubts, asked := r.doubts, time.Now()
	r.mu.Unlock()
	now, err := r.read(ctx)
	r.mu.Lock()
	defer r.mu.Unlock()
	if err != nil {
		r.failed = err
		r.unread(err, asked)
		r.settle()
		return
	}
	if doubts == r.doubts { // a request that failed meanwhile has the next check look
		r.failed = nil
		defer r.settle()
	}
	r.end(r.restored(now, asked))
	r.newest, r.answered, r.outage, r.refused = now, asked, false, time.Time{}
}

// unread notes a read without a resourceVersion.
func (r *rewind) unread(err error, asked time.Time) {
	switch {
	case !isRefusal(err):
		r.outage, r.refused = true, time.Time{}
	case r.refused.IsZero():
		r.refused = asked
	case asked.Sub(r.refused) >= longestBlind:
		r.end(blind("Deployment", asked.Sub(r.refused), err))
	}
}

// end has the process end for a reason; nil: there is none.
func (r *rewind) end(because error) {
	if because != nil && r.because == nil {
		r.because = because
		close(r.lost)
	}
}

// restored returns why etcd may have been restored since the last answer; nil: it was not.
func (r *rewind) restored(now string, asked time.Time) error {
	if r.newest == "" {
		return nil
	}
	order, err := resourceversion.CompareResourceVersion(now, r.newest)
	switch away := asked.Sub(r.answered); {
	case err == nil && order < 0:
		return fmt.Errorf("the API server's resourceVersion went back from %s to %s, as after a restore of etcd; "+
			"the caches have objects that never were, and the process ends to read them again", r.newest, now)
	case r.outage && away >= longestOutage:
		return fmt.Errorf("the API server had not answered for %s, and etcd may have been restored meanwhile; "+
			"the process ends to read all objects again", away.Round(time.Second))
	}
	return nil
}

// settle ends the wait of writes for a check.
func (r *rewind) settle() {
	if r.looked != nil {
		close(r.looked)
		r.looked = nil
	}
}

// suspect has the resourceVersion read before the next write.
func (r *rewind) suspect(because error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.failed = because
	r.doubts++
	if r.looked == nil && r.newest != "" { // checks have begun
		r.looked = make(chan struct{})
	}
	select {
	case r.wake <- struct{}{}:
	default:
	}
}

// mayWrite returns why nothing may be written now.
func (r *rewind) mayWrite() error {
	r.mu.Lock()
	defer r.mu.Unlock()
	switch {
	case r.because != nil:
		return fmt.Errorf("not written: %w", r.because)
	case r.failed != nil:
		return fmt.Errorf("not written until the API server's resourceVersion is read again: %w", r.failed)
	}
	return nil
}

// awaitCheck waits for the check that a doubt has asked for, and returns what mayWrite does.
func (r *rewind) awaitCheck(ctx context.Context) error {
	for ctx.Err() == nil {
		r.mu.Lock()
		looked := r.looked
		r.mu.Unlock()
		if looked == nil {
			break
		}
		select {
		case <-looked:
		case <-ctx.Done():
		}
	}
	return r.mayWrite()
}

// triesOfDryRun is how often a dry run is sent while it has no answer. It changes nothing, so it
// does no harm twice. One that is lost would end a sync, and the next one starts from the first.
const triesOfDryRun = 3

// guard lets a client write only while mayWrite has no objection.
func (r *rewind) guard(next http.RoundTripper) http.RoundTripper {
	return roundTripper(func(q *http.Request) (*http.Response, error) {
		for tries := 1; ; tries++ {
			if q.Method != http.MethodGet && q.Method != http.MethodHead {
				if err := r.awaitCheck(q.Context()); err != nil {
					if q.Body != nil {
						_ = q.Body.Close() // nothing of it is read
					}
					return nil, err
				}
			}
			response, err := next.RoundTrip(q)
			if err == nil || q.Context().Err() != nil {
				return response, err
			}
			r.suspect(errors.New("a request had no answer from the API server"))
			again, ok := dryRunAgain(q)
			if tries == triesOfDryRun || !ok {
				return nil, err
			}
			q = again
		}
	})
}

// dryRunAgain returns a copy of a dry run that can be sent. It returns false for other requests.
func dryRunAgain(q *http.Request) (*http.Request, bool) {
	if q.URL.Query().Get("dryRun") == "" || q.GetBody == nil {
		return nil, false
	}
	body, err := q.GetBody()
	if err != nil {
		return nil, false
	}
	again := q.Clone(q.Context())
	again.Body = body
	return again, true
}

// watch checks at intervals, and at once when a request has failed.
func (r *rewind) watch(ctx context.Context) {
	tick := time.NewTicker(rewindPeriod)
	defer tick.Stop()
	for ctx.Err() == nil {
		r.check(ctx)
		select {
		case <-ctx.Done():
		case <-tick.C:
		case <-r.wake:
		}
	}
}
