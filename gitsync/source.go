package gitsync

import (
	"context"
	"time"

	"github.com/go-logr/logr"
	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/tools/events"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/tranche-dev/tranche/gitsync/apply"
	"github.com/tranche-dev/tranche/gitsync/authors"
	"github.com/tranche-dev/tranche/gitsync/clients"
	"github.com/tranche-dev/tranche/gitsync/credentials"
	"github.com/tranche-dev/tranche/gitsync/desired"
	"github.com/tranche-dev/tranche/gitsync/execute"
	"github.com/tranche-dev/tranche/gitsync/gitobject"
	"github.com/tranche-dev/tranche/gitsync/gitserver"
	"github.com/tranche-dev/tranche/gitsync/lists"
	"github.com/tranche-dev/tranche/gitsync/outcome"
	"github.com/tranche-dev/tranche/gitsync/refwatch"
	"github.com/tranche-dev/tranche/gitsync/rendering"
	"github.com/tranche-dev/tranche/gitsync/report"
	"github.com/tranche-dev/tranche/gitsync/repository"
	"github.com/tranche-dev/tranche/gitsync/siblings"
	"github.com/tranche-dev/tranche/gitsync/signers"
	"github.com/tranche-dev/tranche/gitsync/turns"
	"github.com/tranche-dev/tranche/gitsync/unaffected"
	"github.com/tranche-dev/tranche/plan/v1alpha1"
)

// resources are what the syncs of all sources share.
type resources struct {
	options Options
	own     client.Reader // past the cache: a stale status would lose inventory
	status  client.Client
	mapper  meta.RESTMapper
	clients *clients.Clients
	mirrors *repository.Cache
	// remoteBases are nil where none may be named.
	remoteBases *repository.Bases
	access      credentials.Access
	events      events.EventRecorder
	watcher     *refwatch.Watcher
	unaffected  unaffected.Checker
	lists       *lists.Shared
	cache       syncCache
}

// source is a GitSource in one sync, with all that the steps of the sync read and write. The
// steps return what they come to, see [result].
type source struct {
	*resources
	// gs has the status that is to be written.
	gs   *v1alpha1.GitSource
	name types.NamespacedName
	log  logr.Logger
	// since is when the sync was requested: an older answer of the server does not count.
	since     time.Time
	rendering *rendering.Rendering
	report    *report.Writer
	// cached is what earlier syncs have kept. The steps add to it.
	cached cacheEntry

	// remote, as and account are set by connect. as reads and writes what is applied, as the user
	// that account names.
	remote  gitserver.Remote
	as      client.Client
	account string
}

func newSource(ctx context.Context, r *resources, gs *v1alpha1.GitSource, keep cacheEntry, since time.Time) *source {
	name := client.ObjectKeyFromObject(gs)
	log := logr.FromContextOrDiscard(ctx).WithValues("source", name.String(), "branch", gs.Spec.Ref.Branch)
	return &source{
		resources: r, gs: gs, name: name, log: log, cached: keep, since: since,
		rendering: rendering.New(gs, r.options.Renderer, r.remoteBases),
		report: report.New(report.Input{
			Source: gs, Client: r.status, Events: r.events, Log: log, Known: keep.reported,
			HandBackWithin: r.options.HandBackWithin, Notify: r.options.Tell,
		}),
	}
}

// connect reads what the sync needs of the spec to reach the server and the cluster. It refuses
// a spec that this version would otherwise ignore in part.
func (src *source) connect(ctx context.Context) (err error) {
	gs := src.gs
	if p := unsupported(&gs.Spec); p != nil {
		return p
	}
	if err := src.options.mayDependOn(gs); err != nil {
		return err
	}
	src.remote, err = turns.Exchange(ctx, func() (gitserver.Remote, error) { return src.secrets().Remote(ctx, src.access) })
	if err != nil {
		return err
	}
	src.watcher.Watch(src.name, src.remote.URL)
	src.account = src.clients.User(gs.Namespace, gs.Spec.ServiceAccountName)
	src.as, err = src.clients.As(gs.Namespace, gs.Spec.ServiceAccountName)
	return err
}

// store keeps what this sync has found out for the next one.
func (src *source) store() { src.cache.store(src.name, src.cached) }

// recordEvent records an event about the source, in a sync of a commit.
func (src *source) recordEvent(commit, kind, reason, message string) {
	src.report.RecordEvent(report.Event{Type: kind, Reason: reason, Message: message, Commit: commit})
}

// secrets reads the Secrets that the source names.
func (src *source) secrets() credentials.Reader {
	return credentials.Reader{Client: src.own, Source: src.gs}
}

// bases returns how the sync fetches remote bases; nil: they are refused.
func (src *source) bases(ctx context.Context) repository.FetchBase {
	return src.rendering.Bases(ctx, src.since)
}

// siblings is how the sync comes to the other sources of its branch.
func (src *source) siblings(ctx context.Context) siblings.Access {
	return siblings.Access{
		Own: src.own, Cached: src.status, As: src.clients.As, Mapper: src.mapper, Bases: src.bases(ctx), Folders: src.options.Renderer,
		Rendered: func(name types.NamespacedName) *desired.State { return src.cache.load(name).desired },
	}
}

// policy reads the keys that count, for what was found out of signatures before.
func (src *source) policy(ctx context.Context) (signers.Policy, error) {
	if src.cached.changes == nil || len(src.cached.changes) > authors.KeptChanges {
		src.cached.changes = authors.Known{}
	}
	if src.cached.places == nil || len(src.cached.places) > signers.KeptPlaces {
		src.cached.places = map[string][]signers.Place{}
	}
	if src.cached.order == nil {
		src.cached.order = gitobject.Precedence{}
	}
	p := signers.Policy{Now: time.Now(), Places: src.cached.places, Order: src.cached.order, Seen: src.gs.Status.Seen}
	return p, src.secrets().Keys(ctx, &p)
}

// reader returns what renders a commit of the source.
func (src *source) reader(ctx context.Context, s *repository.Snapshot, by signers.Policy) *desired.Reader {
	if src.cached.brought == nil {
		src.cached.brought = map[string]signers.FileOrigin{}
	}
	if src.cached.approved == nil {
		src.cached.approved = desired.ApprovedSteps{}
	}
	if src.cached.exceeded == nil {
		src.cached.exceeded = &desired.ExceededCommits{}
	}
	return &desired.Reader{
		Snapshot: s, Source: src.gs, Mapper: src.mapper, Bases: src.bases(ctx), Folders: src.rendering.Folders(),
		ProviderOf: src.options.ProviderOf,
		Brought:    src.cached.brought, Approved: src.cached.approved, Exceeded: src.cached.exceeded,
		Order: src.cached.order, Changes: src.cached.changes, Signatures: by,
	}
}

// observer returns what reads the cluster for a sync, and has read nothing.
func (src *source) observer() *apply.Observer {
	o := apply.NewObserver(src.gs, src.as, src.own)
	o.Lists, o.Account = src.lists, src.account
	return o
}

// execution returns how the sync applies commits.
func (src *source) execution(o *outcome.Outcome) execute.Input {
	return execute.Input{
		Source: src.gs, Report: src.report, Account: src.as, Client: src.status, Own: src.own, Cache: &src.cached.executed,
		Branch: o.Branch, Tip: o.Commit, Ending: o.Ending, Log: src.log,
	}
}
