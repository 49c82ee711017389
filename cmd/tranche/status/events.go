package status

import (
	"cmp"
	"context"
	"fmt"
	"io"
	"slices"
	"time"

	"github.com/spf13/cobra"
	eventsv1 "k8s.io/api/events/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/tranche-dev/tranche/cmd/tranche/cli"
	"github.com/tranche-dev/tranche/cmd/tranche/terminal"
	"github.com/tranche-dev/tranche/cmd/tranche/view"
	"github.com/tranche-dev/tranche/plan/v1alpha1"
)

type eventsOptions struct{ scope }

func NewEvents() *cobra.Command {
	var o eventsOptions
	c := &cobra.Command{
		Use:   "events [NAME]",
		Short: "Show what happened to GitSources and releases, in the order of time",
		Long: `Show the events of the GitSources and BatchReleases of a namespace, oldest first, in one
list. NAME restricts it to one BatchRelease and its GitSource, --source to a GitSource and
its BatchReleases, in all of their namespaces. An API server keeps events for an hour
(its flag --event-ttl).`,
		Example: `  tranche events -n shop --since 30m
  tranche events --source shop/shop -o json`,
	}
	o.addTo(c, "events", "and of its releases", "happened")
	c.RunE = func(cmd *cobra.Command, args []string) error {
		at, since, err := o.connect(args)
		if err != nil {
			return err
		}
		log, where, err := o.log(cmd.Context(), at, args, since)
		if err != nil {
			return err
		}
		if o.output != cli.OutputTable {
			return cli.PrintValue(cmd.OutOrStdout(), o.output, log)
		}
		if len(log.Items) == 0 {
			_, err := fmt.Fprintf(cmd.ErrOrStderr(), "No events %s.\n", where)
			return err
		}
		_, err = io.WriteString(cmd.OutOrStdout(), log.table())
		return err
	}
	return c
}

// about is an object that events are about. An empty name is any of that kind.
type about struct{ Kind, Namespace, Name string }

// log reads the events, and says where they are from.
func (o *eventsOptions) log(ctx context.Context, at *cli.Connection, args []string, since time.Time) (*EventLog, string, error) {
	objects, where := []about{{"GitSource", at.Namespace, ""}, {"BatchRelease", at.Namespace, ""}}, "in namespace "+at.Namespace
	switch {
	case len(args) == 1:
		br, err := at.Release(ctx, args[0])
		if err != nil {
			return nil, "", err
		}
		objects, where = []about{{"BatchRelease", br.Namespace, br.Name}}, "of "+br.Namespace+"/"+br.Name
		if name := br.Labels[v1alpha1.LabelSource]; name != "" {
			objects = append(objects, about{"GitSource", cmp.Or(br.Labels[v1alpha1.LabelSourceNamespace], br.Namespace), name})
		}
	case o.source != "":
		gs, err := at.SourceNamed(ctx, at.Namespace, o.source)
		if err != nil {
			return nil, "", err
		}
		list, err := at.ReleasesOf(ctx, gs)
		if err != nil {
			return nil, "", err
		}
		objects, where = []about{{"GitSource", gs.Namespace, gs.Name}}, "of GitSource "+gs.Namespace+"/"+gs.Name
		for i := range list {
			objects = append(objects, about{"BatchRelease", list[i].Namespace, list[i].Name})
		}
	case o.all:
		objects, where = []about{{"GitSource", "", ""}, {"BatchRelease", "", ""}}, "in any namespace"
	}
	log, err := eventsOf(ctx, at, objects, since)
	return log, where, err
}

// EventLog is the document that events prints.
type EventLog struct {
	cli.Head `json:",inline"`
	Items    []EventEntry `json:"items"`
}

// EventEntry is one event.
type EventEntry struct {
	Time      metav1.Time `json:"time"`
	Type      string      `json:"type"`
	Kind      string      `json:"kind"`
	Namespace string      `json:"namespace"`
	Name      string      `json:"name"`
	Reason    string      `json:"reason"`
	Message   string      `json:"message"`
	// Count is how often it happened, the last time at Time.
	Count int32 `json:"count"`
	// Instance of the controller that wrote it.
	Instance string `json:"instance,omitempty"`
}

// eventsOf reads the events about objects, oldest first.
func eventsOf(ctx context.Context, at *cli.Connection, objects []about, since time.Time) (*EventLog, error) {
	log := &EventLog{Head: cli.NewHead("EventLog"), Items: []EventEntry{}}
	read := map[string]bool{}
	for _, o := range objects {
		if read[o.Namespace] {
			continue
		}
		read[o.Namespace] = true
		var list eventsv1.EventList
		if err := at.List(ctx, &list, client.InNamespace(o.Namespace)); err != nil {
			return nil, fmt.Errorf("listing the events of namespace %q: %w", o.Namespace, err)
		}
		for i := range list.Items {
			e := &list.Items[i]
			entry := entryOf(e)
			wanted := e.Regarding.GroupVersionKind().Group == v1alpha1.Group && slices.ContainsFunc(objects, func(o about) bool {
				return o.Kind == entry.Kind && (o.Namespace == "" || o.Namespace == entry.Namespace) && (o.Name == "" || o.Name == entry.Name)
			})
			if wanted && !entry.Time.Time.Before(since) {
				log.Items = append(log.Items, entry)
			}
		}
	}
	// Names of events go up with the time at which they were written, which is finer.
	slices.SortStableFunc(log.Items, func(a, b EventEntry) int { return a.Time.Compare(b.Time.Time) })
	return log, nil
}

// entryOf is an event with the time of its last occurrence.
func entryOf(e *eventsv1.Event) EventEntry {
	seen := view.NewEvent(e)
	return EventEntry{
		Time: seen.Time, Type: seen.Type, Kind: seen.Kind, Namespace: e.Regarding.Namespace, Name: e.Regarding.Name,
		Reason: seen.Reason, Message: seen.Message, Count: seen.Count, Instance: e.ReportingInstance,
	}
}

// table has a line for each event.
func (l *EventLog) table() string {
	rows := [][]string{{"TIME", "TYPE", "OBJECT", "REASON", "MESSAGE"}}
	for _, e := range l.Items {
		message := terminal.Printable(e.Message)
		if e.Count > 1 {
			message += fmt.Sprintf(" (%d times)", e.Count)
		}
		rows = append(rows, []string{cli.Absolute(&e.Time), e.Type, e.Kind + " " + e.Namespace + "/" + e.Name, e.Reason, message})
	}
	return cli.Table(rows)
}
