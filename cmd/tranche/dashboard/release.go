package dashboard

import (
	"cmp"
	"context"
	"fmt"
	"slices"

	eventsv1 "k8s.io/api/events/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/tranche-dev/tranche/cmd/tranche/dashboard/access"
	"github.com/tranche-dev/tranche/cmd/tranche/view"
	"github.com/tranche-dev/tranche/plan/v1alpha1"
)

// Parts of a release that a reader may not see.
const (
	missingSource   = "source"
	missingWorkload = "workload"
	missingEvents   = "events"
)

// facts reads what the user may see of a release, and names the rest. It returns nil where
// there is no such release, and where the user may not list it: a guessed name tells nothing.
func (s *Server) facts(ctx context.Context, u *access.User, key types.NamespacedName) (f *view.Facts, missing []string, err error) {
	if may, err := s.Rights.May(ctx, u, key.Namespace, access.BatchReleases); !may || err != nil {
		return nil, nil, err
	}
	f = &view.Facts{Now: s.Now(), Release: &v1alpha1.BatchRelease{}}
	if err := s.Feed.Reader.Get(ctx, key, f.Release); apierrors.IsNotFound(err) {
		return nil, nil, nil
	} else if err != nil {
		return nil, nil, fmt.Errorf("reading BatchRelease %s: %w", key, err)
	}
	if source := view.SourceKey(f.Release); source.Name != "" {
		may, err := s.Rights.May(ctx, u, source.Namespace, access.GitSources)
		if err != nil {
			return nil, nil, err
		}
		if may && s.Feed.Kinds.Sources {
			if err := f.ReadSource(ctx, s.Feed.Reader); err != nil {
				return nil, nil, err
			}
		} else {
			missing = append(missing, missingSource)
		}
	}
	deployments, err := s.Rights.May(ctx, u, key.Namespace, access.Deployments)
	if err != nil {
		return nil, nil, err
	}
	sets, err := s.Rights.May(ctx, u, key.Namespace, access.ReplicaSets)
	if err != nil {
		return nil, nil, err
	}
	if deployments && sets && s.Feed.Kinds.Workloads {
		return f, missing, f.ReadWorkload(ctx, s.Feed.Reader)
	}
	return f, append(missing, missingWorkload), nil
}

// maxEvents is how many events a page shows, the newest ones.
const maxEvents = 50

// addEvents adds the events of the release, and of its source if the user sees that.
func (s *Server) addEvents(ctx context.Context, u *access.User, f *view.Facts, doc *view.Release) error {
	about := []*eventsOf{{"BatchRelease", f.Release.Namespace, f.Release.UID}}
	if f.Source != nil {
		about = append(about, &eventsOf{"GitSource", f.Source.Namespace, f.Source.UID})
	}
	for _, a := range about {
		may, err := s.Rights.May(ctx, u, a.namespace, access.Events)
		if err != nil {
			return err
		}
		if !may || !s.Feed.Kinds.Events {
			if !slices.Contains(doc.Missing, missingEvents) {
				doc.Missing = append(doc.Missing, missingEvents)
			}
			continue
		}
		found, err := a.read(ctx, s.Feed.Reader)
		if err != nil {
			return err
		}
		doc.Events = append(doc.Events, found...)
	}
	slices.SortStableFunc(doc.Events, func(a, b view.Event) int {
		return cmp.Or(b.Time.Compare(a.Time.Time), cmp.Compare(a.Kind, b.Kind))
	})
	doc.Events = doc.Events[:min(len(doc.Events), maxEvents)]
	return nil
}

// eventsOf are the events about an object, and not about an earlier one of its name.
type eventsOf struct {
	kind, namespace string
	uid             types.UID
}

func (a *eventsOf) read(ctx context.Context, from client.Reader) (found []view.Event, err error) {
	var list eventsv1.EventList
	if err := from.List(ctx, &list, client.InNamespace(a.namespace)); err != nil {
		return nil, fmt.Errorf("listing the events of namespace %s: %w", a.namespace, err)
	}
	for i := range list.Items {
		e := &list.Items[i]
		if e.Regarding.GroupVersionKind().Group == v1alpha1.Group && e.Regarding.Kind == a.kind && e.Regarding.UID == a.uid {
			found = append(found, view.NewEvent(e))
		}
	}
	return found, nil
}
