package doctor

import (
	"context"

	"github.com/tranche-dev/tranche/cmd/tranche/crds"
)

// checkCRDs compares the CustomResourceDefinitions with those of this program.
func (e *exam) checkCRDs(ctx context.Context) []Finding {
	var list []Finding
	for _, c := range crds.Compare(ctx, e, e.apply("config/crd")) {
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
