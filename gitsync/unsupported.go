package gitsync

import (
	"errors"

	"github.com/tranche-dev/tranche/plan"
	"github.com/tranche-dev/tranche/plan/v1alpha1"
)

// unsupported refuses what this version would otherwise ignore: who asks for
// signatures must not be served without.
func unsupported(spec *v1alpha1.GitSourceSpec) *plan.Problem {
	w, v, a := spec.WriteBack, spec.Verify, spec.Approvals
	noTag := spec.Ref.Commit != "" || spec.Ref.Tag == "" && spec.Ref.SemVer == ""
	fields := []struct {
		name, fact string
		set        bool
	}{
		{
			"spec.writeBack.enabled", "what is written back goes to the branch, and spec.ref pins something else",
			w != nil && w.Enabled && spec.Ref.IsPinned(),
		},
		{
			"spec.verify.mode", "spec.ref names no tag that could be signed",
			v != nil && v.Mode != "" && v.Mode != v1alpha1.VerifyHEAD && noTag,
		},
		{
			"spec.approvals.distinctAuthor", "where spec.approvals.signers is not set, it is not known who approves",
			a != nil && a.DistinctAuthor && a.Signers == nil,
		},
	}
	for _, f := range fields {
		if f.set {
			return &plan.Problem{
				Reason: v1alpha1.ReasonNotSupported, Where: f.name, Err: errors.New(f.fact + ", and nothing is applied without"),
				Hint: "remove the field if you can do without",
			}
		}
	}
	return nil
}
