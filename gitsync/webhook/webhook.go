// Package webhook receives the webhooks that forges send for a push, and asks for a sync
// of each GitSource that the push is about.
//
// A webhook is a hint: its content is not trusted, and the sync asks the Git server. The
// receiver answers before it knows anything of the push. So neither the answer nor its
// time shows which repositories are followed.
package webhook

import (
	"context"
	"crypto/hmac"
	"crypto/sha256"
	"crypto/subtle"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"net"
	"net/http"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/go-logr/logr"
	"golang.org/x/time/rate"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/util/workqueue"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/cache"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/tranche-dev/tranche/gitsync/giturl"
	"github.com/tranche-dev/tranche/plan/v1alpha1"
)

const (
	// hooksWaiting is how many wait to be looked into; more are refused, and
	// the forge tries again, or the next poll finds the push.
	hooksWaiting = 64
	// hooksPerSecond bounds what strangers may cost.
	hooksPerSecond, hooksBurst = 20, 100
	// askedEvery is the least time between two requests for a sync of one source. If ten
	// pushes come in a second, the first and the last one bring a sync.
	askedEvery = time.Second
	hookTime   = 10 * time.Second
	headerTime = 5 * time.Second
	// annotatedAtOnce is how many sources are annotated at the same time.
	annotatedAtOnce = 10
	// keyToken is the entry of a webhook's Secret.
	keyToken = "token"
)

// Requester asks for syncs in this process.
type Requester interface {
	// Syncs reports whether this process syncs a source now. Another replica does if not.
	Syncs(source client.Object) bool
	// RequestSync asks for a sync of sources at once. It returns early when ctx ends.
	RequestSync(ctx context.Context, sources ...types.NamespacedName)
}

// Receiver is an HTTP server for webhooks. It runs in every replica: the one that syncs a
// source gets the request directly, and any other one writes an annotation for it.
type Receiver struct {
	address   string
	cache     cache.Cache
	c         client.Client // cached; of Secrets the metadata alone
	own       client.Reader // of Secrets
	tokens    tokenCache
	named     workqueue.TypedInterface[types.NamespacedName] // Secrets whose token is to be read
	log       logr.Logger
	limit     *rate.Limiter
	jobs      chan hook
	reading   *shares       // posts whose body is being read
	large     chan struct{} // taken by large bodies until they have been looked into
	slots     chan struct{} // taken by annotations that are being written
	requester Requester

	mu    sync.Mutex
	asked map[types.NamespacedName]bool // within askedEvery; true: again after that
}

// hook is one request.
type hook struct {
	header http.Header
	body   []byte
}

// New returns a receiver that listens on address. It is to be added to mgr.
func New(mgr ctrl.Manager, address string, r Requester) *Receiver {
	return &Receiver{
		requester: r,
		address:   address, cache: mgr.GetCache(), c: mgr.GetClient(), own: mgr.GetAPIReader(), log: mgr.GetLogger().WithName("webhook"),
		limit: rate.NewLimiter(hooksPerSecond, hooksBurst), jobs: make(chan hook, hooksWaiting),
		reading: newShares(hooksReading, hooksOfPeer), large: make(chan struct{}, largeHooks), named: workqueue.NewTyped[types.NamespacedName](),
		slots: make(chan struct{}, annotatedAtOnce), asked: map[types.NamespacedName]bool{},
	}
}

// NeedLeaderElection is false: every replica takes hooks.
func (*Receiver) NeedLeaderElection() bool { return false }

// Start serves until ctx ends.
func (w *Receiver) Start(ctx context.Context) error {
	l, err := (&net.ListenConfig{}).Listen(ctx, "tcp", w.address)
	if err != nil {
		return fmt.Errorf("listening for webhooks: %w", err)
	}
	if err := w.noteSecrets(ctx, w.cache); err != nil {
		return errors.Join(err, l.Close())
	}
	return w.serve(ctx, l)
}

func (w *Receiver) serve(ctx context.Context, l net.Listener) error {
	mux := http.NewServeMux()
	mux.Handle("/webhook", w)
	server := &http.Server{
		Handler: mux, ReadHeaderTimeout: headerTime, ReadTimeout: hookTime, WriteTimeout: 2 * hookTime, IdleTimeout: hookTime,
		MaxHeaderBytes: 16 << 10,
	}
	var running sync.WaitGroup
	running.Go(func() {
		for {
			select {
			case <-ctx.Done():
				return
			case h := <-w.jobs:
				w.look(ctx, h)
				w.release(h.body)
			}
		}
	})
	running.Go(func() { w.readNoted(ctx) })
	running.Go(func() {
		<-ctx.Done()
		closing, cancel := context.WithTimeout(context.WithoutCancel(ctx), hookTime)
		defer cancel()
		_ = server.Shutdown(closing) // what is not answered by then is sent again
	})
	w.log.Info("Listening for webhooks", "address", l.Addr().String())
	if err := server.Serve(&sharedListener{l, newShares(connections, connectionsOfPeer)}); !errors.Is(err, http.ErrServerClosed) {
		return fmt.Errorf("serving webhooks: %w", err)
	}
	running.Wait()
	return nil
}

// ServeHTTP takes one hook. It answers 202 to each that is well-formed: also of a
// repository that no source follows, and without a valid signature.
func (w *Receiver) ServeHTTP(answer http.ResponseWriter, r *http.Request) {
	if r.Method != http.MethodPost {
		answer.Header().Set("Allow", http.MethodPost)
		http.Error(answer, "a webhook is posted", http.StatusMethodNotAllowed)
		return
	}
	peer := peerOf(r.RemoteAddr)
	if !w.reading.take(peer) {
		http.Error(answer, "too many webhooks", http.StatusTooManyRequests)
		return
	}
	defer w.reading.giveBack(peer)
	if !w.limit.Allow() { // what one address has too many of does not count for all
		http.Error(answer, "too many webhooks", http.StatusTooManyRequests)
		return
	}
	ctx, cancel := context.WithTimeout(r.Context(), hookTime)
	defer cancel()
	body, err := readHook(ctx, r, w.large)
	switch {
	case errors.Is(err, errHookTooLarge):
		http.Error(answer, err.Error(), http.StatusRequestEntityTooLarge)
		return
	case errors.Is(err, errHooksBusy):
		http.Error(answer, err.Error(), http.StatusServiceUnavailable)
		return
	case err != nil:
		http.Error(answer, "the body did not come whole", http.StatusBadRequest)
		return
	case !json.Valid(body):
		w.release(body)
		http.Error(answer, "the body is no JSON; set the webhook's content type to application/json", http.StatusBadRequest)
		return
	}
	select {
	case w.jobs <- hook{r.Header.Clone(), body}:
		answer.WriteHeader(http.StatusAccepted)
	default:
		w.release(body)
		http.Error(answer, "too many webhooks", http.StatusServiceUnavailable)
	}
}

// release gives back the slot of a large body.
func (w *Receiver) release(body []byte) {
	if len(body) > smallHook {
		<-w.large
	}
}

// look asks the sources that a hook is about to look.
func (w *Receiver) look(ctx context.Context, h hook) {
	ctx, cancel := context.WithTimeout(ctx, hookTime)
	defer cancel()
	p := parsePush(h.body)
	tokens := map[types.NamespacedName]token{}
	var sources v1alpha1.GitSourceList
	// No status counts here: the writes of those that are under way are not waited for.
	if err := w.c.List(ctx, &sources, client.DisableReadYourWritesConsistency); err != nil {
		w.log.Error(err, "Webhook lost")
		return
	}
	for i := range sources.Items {
		gs := &sources.Items[i]
		key, ok := secretOf(gs)
		if !ok || !p.isOf(gs) {
			continue
		}
		log := w.log.WithValues("source", gs.Namespace+"/"+gs.Name, "branch", gs.Spec.Ref.Branch)
		shared, ok := tokens[key] // a thousand sources have it in common
		if !ok {
			shared.value, shared.err = w.tokens.of(ctx, w.c, w.own, key)
			tokens[key] = shared
		}
		switch {
		case shared.err != nil:
			log.Error(shared.err, "Webhook refused")
		case !h.signedWith(shared.value):
			log.Info("Webhook refused", "because", "its signature is not by the token of spec.webhook.secretRef")
		default:
			w.ask(ctx, client.ObjectKeyFromObject(gs), w.requester.Syncs(gs))
		}
	}
}

// ask asks a source to look, at once and, where more hooks come within
// askedEvery, once more after that.
func (w *Receiver) ask(ctx context.Context, source types.NamespacedName, here bool) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if _, ok := w.asked[source]; ok {
		w.asked[source] = true
		return
	}
	w.asked[source] = false
	ctx = context.WithoutCancel(ctx)
	if here {
		go w.requester.RequestSync(ctx, source)
	} else {
		go w.annotate(ctx, source)
	}
	time.AfterFunc(askedEvery, func() { w.calm(ctx, source, here) })
}

// calm is askedEvery after a source was asked.
func (w *Receiver) calm(ctx context.Context, source types.NamespacedName, here bool) {
	w.mu.Lock()
	again := w.asked[source]
	delete(w.asked, source)
	w.mu.Unlock()
	if again {
		w.ask(ctx, source, here)
	}
}

// annotate asks the replica that syncs to sync a source.
func (w *Receiver) annotate(ctx context.Context, source types.NamespacedName) {
	w.slots <- struct{}{}
	defer func() { <-w.slots }()
	ctx, cancel := context.WithTimeout(ctx, hookTime)
	defer cancel()
	patch := fmt.Sprintf(`{"metadata":{"annotations":{%q:%q}}}`, v1alpha1.AnnotationPush, time.Now().UTC().Format(time.RFC3339Nano))
	gs := &v1alpha1.GitSource{}
	gs.Namespace, gs.Name = source.Namespace, source.Name
	if err := w.c.Patch(ctx, gs, client.RawPatch(types.MergePatchType, []byte(patch)),
		client.FieldOwner(v1alpha1.ManagerGitSync)); client.IgnoreNotFound(err) != nil {
		w.log.Error(err, "Webhook lost", "source", source.String())
		return
	}
	w.log.V(1).Info("Requested a sync", "source", source.String())
}

// signedWith reports whether a hook bears a token's signature, in the way of a forge.
// GitHub, Gitea and Forgejo send an HMAC in X-Hub-Signature-256 or X-Gitea-Signature, and
// Bitbucket in X-Hub-Signature. GitLab sends the token itself in X-Gitlab-Token, and Flux
// a generic HMAC in X-Signature. All are compared in constant time; SHA-1 is not taken.
func (h hook) signedWith(token []byte) bool {
	sum := hmac.New(sha256.New, token)
	sum.Write(h.body)
	want := []byte(hex.EncodeToString(sum.Sum(nil)))
	signed := 0
	for _, name := range []string{"X-Hub-Signature-256", "X-Hub-Signature", "X-Signature", "X-Gitea-Signature"} {
		got := strings.TrimPrefix(h.header.Get(name), "sha256=")
		signed |= subtle.ConstantTimeCompare([]byte(got), want)
	}
	given, shared := sha256.Sum256([]byte(h.header.Get("X-Gitlab-Token"))), sha256.Sum256(token)
	return signed|subtle.ConstantTimeCompare(given[:], shared[:]) == 1
}

// push is what a hook says of a push: the repository by any of its URLs, and
// the branches; none: it may be any.
type push struct {
	repositories []string // as [giturl.Key] writes them
	branches     []string
}

// parsePush reads the parts that the forges' hooks for a push have in common.
func parsePush(body []byte) push {
	type link struct {
		Href string `json:"href"`
	}
	type urls struct {
		Clone   string `json:"clone_url"`
		SSH     string `json:"ssh_url"`
		HTML    string `json:"html_url"`
		GitHTTP string `json:"git_http_url"`
		GitSSH  string `json:"git_ssh_url"`
		Web     string `json:"web_url"`
		Links   struct {
			HTML  link            `json:"html"`
			Clone json.RawMessage `json:"clone"`
		} `json:"links"`
	}
	var said struct {
		Ref        json.RawMessage `json:"ref"`
		URL        string          `json:"url"` // generic
		Repository urls            `json:"repository"`
		Project    urls            `json:"project"` // GitLab
		Push       struct {
			Changes []struct {
				New struct {
					Name string `json:"name"`
					Type string `json:"type"`
				} `json:"new"`
			} `json:"changes"`
		} `json:"push"` // Bitbucket Cloud
		Changes []struct {
			Ref struct {
				ID string `json:"id"`
			} `json:"ref"`
		} `json:"changes"` // Bitbucket Data Center
	}
	_ = json.Unmarshal(body, &said) // what has another shape is left empty, and matches nothing
	var p push
	all := []string{said.URL}
	for _, u := range []urls{said.Repository, said.Project} {
		all = append(all, u.Clone, u.SSH, u.HTML, u.GitHTTP, u.GitSSH, u.Web, u.Links.HTML.Href)
		var clone []link
		_ = json.Unmarshal(u.Links.Clone, &clone)
		for _, l := range clone {
			all = append(all, l.Href)
		}
	}
	for _, u := range all {
		if key := giturl.Key(u); key != "" && !slices.Contains(p.repositories, key) {
			p.repositories = append(p.repositories, key)
		}
	}
	var ref string
	_ = json.Unmarshal(said.Ref, &ref)
	p.addBranch(ref)
	for _, c := range said.Push.Changes {
		if c.New.Type == "branch" {
			p.addBranch("refs/heads/" + c.New.Name)
		}
	}
	for _, c := range said.Changes {
		p.addBranch(c.Ref.ID)
	}
	return p
}

func (p *push) addBranch(ref string) {
	if name, ok := strings.CutPrefix(ref, "refs/heads/"); ok {
		p.branches = append(p.branches, name)
	} else if ref != "" {
		p.branches = append(p.branches, "") // a tag: no branch has that name
	}
}

func (p push) isOf(gs *v1alpha1.GitSource) bool {
	key := giturl.Key(gs.Spec.URL)
	return key != "" && slices.Contains(p.repositories, key) &&
		(len(p.branches) == 0 || gs.Spec.Ref.IsPinned() || slices.Contains(p.branches, gs.Spec.Ref.Branch))
}
