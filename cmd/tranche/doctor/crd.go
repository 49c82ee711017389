package doctor

import (
	"context"
	"fmt"

	"github.com/tranche-dev/tranche/cmd/tranche/cli"
	"github.com/tranche-dev/tranche/cmd/tranche/crds"
)

// applyCRDs says how to apply them. With crds.install=false, a helm upgrade alone does not bring them.
func applyCRDs(e *exam) string {
	release, namespace, ok := helmRelease(e.instances)
	if !ok {
		return e.apply("config/crd")
	}
	return fmt.Sprintf("helm upgrade %s --namespace %s --reset-then-reuse-values --set crds.install=true, with the chart of version %s; "+
		"or apply config/crd, if they are to come from elsewhere", release, namespace, cli.VersionString())
}

// checkCRDs compares the CustomResourceDefinitions with those of this program.
func (e *exam) checkCRDs(ctx context.Context) []Finding {
	var list []Finding
	for _, c := range crds.Compare(ctx, e, applyCRDs(e)) {
		f := Finding{Result: Problem, Check: "crd", Object: c.Name, Message: c.Message, Todo: c.Todo}
		switch c.State {
		case crds.Equal:
			f.Result = OK
		case crds.Words:
			f.Result = Warning
		case crds.Unread:
			f = unknown("crd", c.Name, c.Err)
		case crds.Missing, crds.Deleted, crds.NotServed, crds.Older, crds.Newer, crds.Differs:
		}
		list = append(list, f)
	}
	return list
}
