package gitsync

import (
	"testing"

	"github.com/tranche-dev/tranche/plan/v1alpha1"
)

// A GitSource from before the API server refused it is not followed.
func TestDistinctAuthorWithoutSigners(t *testing.T) {
	spec := v1alpha1.GitSourceSpec{Approvals: &v1alpha1.ApprovalPolicy{DistinctAuthor: true}}
	if p := unsupported(&spec); p == nil || p.Where != "spec.approvals.distinctAuthor" {
		t.Errorf("%v", p)
	}
}
