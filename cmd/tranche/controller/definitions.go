package controller

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/go-logr/logr"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/manager"

	"github.com/tranche-dev/tranche/cmd/tranche/cli"
	"github.com/tranche-dev/tranche/cmd/tranche/crds"
	"github.com/tranche-dev/tranche/rollout/account"
)

// addStartChecks adds to a manager what its leader logs of the installation.
func addStartChecks(mgr ctrl.Manager) error {
	own := account.New(mgr.GetAPIReader(), mgr.GetClient(), time.Now)
	err := errors.Join(
		mgr.Add(&definitions{reader: mgr.GetAPIReader(), log: ctrl.Log.WithName("crds")}),
		mgr.Add(manager.RunnableFunc(own.Log(ctrl.Log.WithName("account")))),
	)
	if err != nil {
		return fmt.Errorf("adding the checks of the installation: %w", err)
	}
	return nil
}

// definitionsEvery is how often the leader compares the CustomResourceDefinitions with those
// of its program.
const definitionsEvery = 10 * time.Minute

// definitions logs in the leader how the CustomResourceDefinitions of the cluster differ from
// those of this program, at its start and when that changes.
type definitions struct {
	reader client.Reader
	log    logr.Logger
	logged map[string]string // by CustomResourceDefinition
}

// Start compares until the manager ends.
func (d *definitions) Start(ctx context.Context) error {
	d.logged = map[string]string{}
	tick := time.NewTicker(definitionsEvery)
	defer tick.Stop()
	for {
		d.compare(ctx)
		select {
		case <-ctx.Done():
			return nil
		case <-tick.C:
		}
	}
}

func (d *definitions) compare(ctx context.Context) {
	for _, c := range crds.Compare(ctx, d.reader, "apply config/crd of version "+cli.VersionString()+", or upgrade the chart") {
		if ctx.Err() != nil || c.State == crds.Unread || d.logged[c.Name] == c.Message {
			continue
		}
		_, before := d.logged[c.Name]
		d.logged[c.Name] = c.Message
		if !before && c.State == crds.Equal {
			continue
		}
		log := d.log.WithValues("name", c.Name, "state", string(c.State), "todo", c.Todo)
		switch c.State {
		case crds.Equal, crds.Words, crds.Newer:
			log.Info("CustomResourceDefinition compared", "because", c.Message)
		default:
			log.Error(errors.New(c.Message), "CustomResourceDefinition compared")
		}
	}
}
