// Package notify sends notifications of releases and GitSources to chats, webhooks and
// commit statuses.
//
// It never holds a release up: [Notifier.Tell] returns at once, and each receiver has a
// queue and a goroutine of its own. A delivery that fails is tried again a few times and
// then logged. A Notifier that stops delivers for a few seconds what waits, and logs the
// rest. A delivery whose answer is lost is made again, and so is one that the stop interrupts.
// A crash loses what was not sent. The status and the events of the BatchRelease have it anyway.
package notify

import (
	"context"
	"fmt"
	"io"
	"net/http"
	"os"
	"sync"
	"time"

	"github.com/go-logr/logr"
	"github.com/hashicorp/go-retryablehttp"
	"golang.org/x/time/rate"
)

// The reasons of notifications about a GitSource.
const (
	// SourceFailed: the branch cannot be followed. The message begins with the reason
	// of the condition Ready.
	SourceFailed = "SourceFailed"
	// SourceRecovered: the tip of the branch is applied again.
	SourceRecovered = "SourceRecovered"
)

// Transition is one thing that has happened to a release, or to a GitSource.
type Transition struct {
	Namespace, Release string
	// Source is the name of the GitSource that it is about; empty: it is about Release.
	Source string
	// Reason is that of the release's status, ReleaseStarted, ReleaseSuperseded or
	// StepApproved; of a GitSource, SourceFailed or SourceRecovered.
	Reason, Message string
	// Revision is what is released, or what is gone back to.
	Revision string
	// Commit is the one that brought it; where it has failed, the one that failed.
	Commit string
	Step   int32
	State  State
	Time   time.Time
	// Rollback: pods go back, or have gone back, to what was stable before.
	Rollback bool
	// Author of Commit, and the page of the forge that shows it; empty: not known.
	Author, Link string
	// Next is the command that moves on; empty: none has to be given.
	Next string

	cluster string // its name in the file
}

// State is what a transition means for the commit.
type State int

const (
	// Pending: it is under way.
	Pending State = iota
	// Succeeded: all pods run it.
	Succeeded
	// Failed: it was rolled back, or needs a person.
	Failed
)

const (
	// queued is how many transitions wait for a receiver; further ones are dropped.
	queued = 256
	// every is the least time between two notifications of a receiver, after the first
	// burst.
	every = time.Second
	burst = 10
	// tries is how often a delivery is made in all, with a wait of 1 s to 30 s
	// in between, or as Retry-After says.
	tries   = 5
	timeout = 10 * time.Second
	// atEnd is how long deliveries are still made when the Notifier stops. A manager gives all
	// of its runnables some 20 s.
	atEnd = 5 * time.Second
)

// Notifier tells the receivers of a file.
type Notifier struct {
	path string
	log  logr.Logger
	http *retryablehttp.Client

	mu      sync.Mutex
	text    string // of the file
	cluster string // of the file
	queues  map[string]*queue
	ctx     context.Context // of Start; nil before
	wg      sync.WaitGroup
}

// queue is what waits for one receiver.
type queue struct {
	receiver Receiver
	waiting  chan Transition
	stop     context.CancelFunc
	ended    bool // nothing is delivered any more; guarded by Notifier.mu
}

// New reads the file with the receivers. The file is read again when it has
// changed; one that is wrong then is logged, and the former receivers stay.
func New(path string, log logr.Logger) (*Notifier, error) {
	n := &Notifier{path: path, log: log, http: retryablehttp.NewClient(), queues: map[string]*queue{}}
	n.http.Logger = nil // it would log URLs, which are secrets
	n.http.ErrorHandler = retryablehttp.PassthroughErrorHandler
	n.http.RetryMax = tries - 1
	n.http.HTTPClient.CheckRedirect = func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse } // a token is for one host
	n.http.HTTPClient.Timeout = timeout
	if err := n.read(); err != nil {
		return nil, err
	}
	return n, nil
}

// Start delivers until ctx ends; it is a manager's runnable.
func (n *Notifier) Start(ctx context.Context) error {
	n.mu.Lock()
	n.ctx = ctx
	for _, q := range n.queues {
		n.run(q)
	}
	n.mu.Unlock()
	<-ctx.Done()
	n.wg.Wait()
	return nil
}

// Tell queues a transition for the receivers that want it.
func (n *Notifier) Tell(t Transition) {
	if n == nil {
		return
	}
	if err := n.read(); err != nil {
		n.log.Error(err, "Former receivers kept")
	}
	n.mu.Lock()
	defer n.mu.Unlock()
	t.cluster = n.cluster
	for name, q := range n.queues {
		if !q.receiver.wants(t) {
			continue
		}
		n.put(name, q, t)
	}
}

// put adds a transition to a queue, with the lock held.
func (n *Notifier) put(name string, q *queue, t Transition) {
	if q.ended {
		n.logDropped(name, t, "the controller stops")
		return
	}
	select {
	case q.waiting <- t:
	default:
		n.logDropped(name, t, "too many are waiting")
	}
}

func (n *Notifier) logDropped(receiver string, t Transition, because string) {
	n.log.Info("Notification dropped", "receiver", receiver, "about", t.name(), "reason", t.Reason, "because", because)
}

// read reads the file if it has changed.
func (n *Notifier) read() error {
	text, err := os.ReadFile(n.path)
	if err != nil {
		return fmt.Errorf("reading the receivers of notifications: %w", err)
	}
	n.mu.Lock()
	defer n.mu.Unlock()
	if string(text) == n.text {
		return nil
	}
	receivers, cluster, err := parse(text)
	if err != nil {
		return fmt.Errorf("%s: %w", n.path, err)
	}
	n.text, n.cluster = string(text), cluster
	for name, q := range n.queues {
		if r, ok := receivers[name]; !ok || !r.equal(q.receiver) {
			q.stop()
			delete(n.queues, name)
		}
	}
	for name, r := range receivers {
		if n.queues[name] == nil {
			q := &queue{receiver: r, waiting: make(chan Transition, queued), stop: func() {}}
			n.queues[name] = q
			if n.ctx != nil {
				n.run(q)
			}
		}
	}
	return nil
}

// run delivers to one receiver, with the lock held.
func (n *Notifier) run(q *queue) {
	ctx, stop := context.WithCancel(n.ctx)
	q.stop = stop
	limit := rate.NewLimiter(rate.Every(every), burst)
	n.wg.Go(func() {
		for {
			select {
			case <-ctx.Done():
				n.end(q, limit)
				return
			case t := <-q.waiting:
				err := n.deliver(ctx, q.receiver, t, limit)
				if err != nil && ctx.Err() != nil {
					n.end(q, limit, t)
					return
				}
				n.logFailure(q, t, err)
			}
		}
	})
}

func (n *Notifier) logFailure(q *queue, t Transition, err error) {
	if err != nil {
		n.log.Error(err, "Notification not delivered", "receiver", q.receiver.Name, "about", t.name(), "reason", t.Reason)
	}
}

// end delivers what waits in a queue that is stopped, and what was just tried. If the file has
// changed, its receiver of that name gets what it wants of it, and the rest is dropped.
func (n *Notifier) end(q *queue, limit *rate.Limiter, tried ...Transition) {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(n.ctx), atEnd)
	defer cancel()
	for _, t := range tried {
		n.finally(ctx, q, t, limit)
	}
	for {
		n.mu.Lock()
		select {
		case t := <-q.waiting:
			n.mu.Unlock()
			n.finally(ctx, q, t, limit)
		default:
			q.ended = true
			n.mu.Unlock()
			return
		}
	}
}

// finally is the last delivery of a transition from a queue that is stopped.
func (n *Notifier) finally(ctx context.Context, q *queue, t Transition, limit *rate.Limiter) {
	name := q.receiver.Name
	n.mu.Lock()
	next := n.queues[name]
	switch {
	case next == q:
	case next != nil && next.receiver.wants(t):
		n.put(name, next, t)
	default:
		n.logDropped(name, t, "the receiver is not for it any more")
	}
	n.mu.Unlock()
	if next == q {
		n.logFailure(q, t, n.deliver(ctx, q.receiver, t, limit))
	}
}

// deliver makes one delivery, when limit allows it. Its error has no URL, which may be a
// secret.
func (n *Notifier) deliver(ctx context.Context, r Receiver, t Transition, limit *rate.Limiter) error {
	req, err := r.request(ctx, t)
	if err != nil || req == nil {
		return err
	}
	if err := limit.Wait(ctx); err != nil {
		return fmt.Errorf("waiting for the receiver's turn: %w", err)
	}
	retried, err := retryablehttp.FromRequest(req)
	if err != nil {
		return fmt.Errorf("preparing the request: %w", unlinked(err))
	}
	response, err := n.http.Do(retried)
	if err != nil {
		return unlinked(err)
	}
	defer response.Body.Close()
	if response.StatusCode >= http.StatusMultipleChoices {
		answer, _ := io.ReadAll(io.LimitReader(response.Body, 200)) // it only explains
		return fmt.Errorf("%s: %q", response.Status, answer)
	}
	return nil
}
