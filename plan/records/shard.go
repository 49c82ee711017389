package records

import (
	"maps"

	appsv1 "k8s.io/api/apps/v1"
	"k8s.io/apimachinery/pkg/labels"

	"github.com/tranche-dev/tranche/plan/v1alpha1"
)

// annotationShard of a record has labels of its BatchRelease, as a [labels.Set] is written.
const annotationShard = v1alpha1.Group + "/shard"

// Mark notes in a record the labels of its BatchRelease by which controllers share the work:
// those that the selector of its controller names. The record then outlives the BatchRelease, and
// selectors of which no object matches two still tell whose it is. A selector of all notes
// nothing. Mark reports whether the record is another one than before.
func Mark(c *appsv1.ControllerRevision, selector labels.Selector, release map[string]string) bool {
	if selector == nil || selector.Empty() {
		return false
	}
	shard := labels.Set{}
	requirements, _ := selector.Requirements()
	for _, r := range requirements {
		if value, ok := release[r.Key()]; ok {
			shard[r.Key()] = value
		}
	}
	if noted, ok := c.Annotations[annotationShard]; ok && noted == shard.String() {
		return false
	}
	if c.Annotations = maps.Clone(c.Annotations); c.Annotations == nil {
		c.Annotations = map[string]string{}
	}
	c.Annotations[annotationShard] = shard.String()
	return true
}

// IsOfAnother reports whether a record is noted to be of a BatchRelease that a selector does not match.
func IsOfAnother(c *appsv1.ControllerRevision, selector labels.Selector) bool {
	noted, ok := c.Annotations[annotationShard]
	if selector == nil || !ok {
		return false
	}
	shard, err := labels.ConvertSelectorToLabelsMap(noted)
	return err == nil && !selector.Matches(shard)
}
