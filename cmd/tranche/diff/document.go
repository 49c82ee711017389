package diff

import (
	"strconv"
	"strings"

	"github.com/tranche-dev/tranche/cmd/tranche/cli"
	"github.com/tranche-dev/tranche/gitsync/preview"
	"github.com/tranche-dev/tranche/plan"
)

// Document is what diff prints for programs. docs/output.md has its fields.
type Document struct {
	cli.Head `json:",inline"`
	Commit   string       `json:"commit"`
	Changes  bool         `json:"changes"`
	Sources  []diffSource `json:"sources"`
}

// diffSource is what the commit would do for one GitSource.
type diffSource struct {
	Namespace     string        `json:"namespace"`
	Name          string        `json:"name"`
	AppliedCommit string        `json:"appliedCommit,omitempty"`
	Changes       bool          `json:"changes"`
	Warning       string        `json:"warning,omitempty"`
	Problems      []diffProblem `json:"problems"`
	Releases      []diffRelease `json:"releases"`
	Plans         []diffPlan    `json:"plans"`
	Objects       []diffObject  `json:"objects"`
	Ignored       []diffProblem `json:"ignored"`
	Withheld      []string      `json:"withheld"`
	Unchecked     string        `json:"unchecked,omitempty"`
}

type diffProblem struct {
	Reason  string `json:"reason"`
	Message string `json:"message"`
}

// diffRelease is a Deployment that a plan governs, or did.
type diffRelease struct {
	Namespace string `json:"namespace"`
	Name      string `json:"name"`
	Plan      string `json:"plan,omitempty"`
	// Outlook: a kind of [foresee.Outlook], or Unknown, NoPlan, Restored or FirstInstall.
	Outlook      string      `json:"outlook"`
	Message      string      `json:"message"`
	From         string      `json:"from,omitempty"`
	To           string      `json:"to,omitempty"`
	Superseded   string      `json:"superseded,omitempty"`
	ApprovedStep *int32      `json:"approvedStep,omitempty"`
	Estimated    bool        `json:"estimated"`
	Replicas     int32       `json:"replicas"`
	Images       []diffImage `json:"images"`
	Steps        []diffStep  `json:"steps"`
}

type diffImage struct {
	Container string `json:"container"`
	Now       string `json:"now,omitempty"`
	Then      string `json:"then,omitempty"`
}

type diffStep struct {
	Index    int    `json:"index"`
	Replicas string `json:"replicas"`
	Pods     int    `json:"pods"`
	Then     string `json:"then"`
}

// diffPlan is a change of what decides about releases.
type diffPlan struct {
	Namespace string   `json:"namespace"`
	Name      string   `json:"name"` // of the Deployment
	Changes   []string `json:"changes"`
	Digest    string   `json:"digest"`
	Approved  bool     `json:"approved"`
}

// diffObject is an object of the commit, or one that left the branch.
type diffObject struct {
	APIVersion string `json:"apiVersion"`
	Kind       string `json:"kind"`
	Namespace  string `json:"namespace,omitempty"`
	Name       string `json:"name"`
	Effect     string `json:"effect"`
	Because    string `json:"because,omitempty"`
	Estimated  bool   `json:"estimated"`
}

// document is a difference for programs.
func (d *difference) document() diffSource {
	s := diffSource{
		Namespace: d.source.Namespace, Name: d.source.Name, AppliedCommit: d.source.Status.AppliedCommit, Changes: d.changes(),
		Warning:  d.warning,
		Problems: problemsOf(d.preview.Problems), Ignored: problemsOf(d.preview.Ignored), Withheld: append([]string{}, d.preview.Withheld...),
		Releases: []diffRelease{}, Plans: []diffPlan{}, Objects: []diffObject{}, Unchecked: strings.Join(d.unchecked(), " "),
	}
	for i := range d.preview.Plans {
		p := &d.preview.Plans[i]
		s.Plans = append(s.Plans, diffPlan{
			Namespace: p.Namespace, Name: p.Name, Changes: p.Now.Changes(p.Then), Digest: p.Then.Digest(), Approved: p.Approved,
		})
	}
	for i := range d.preview.Releases {
		if r := &d.preview.Releases[i]; d.shows(r) {
			s.Releases = append(s.Releases, d.documentOf(r))
		}
	}
	for i := range d.preview.Objects {
		o := &d.preview.Objects[i]
		s.Objects = append(s.Objects, diffObject{
			APIVersion: o.GetAPIVersion(), Kind: o.GetKind(), Namespace: o.GetNamespace(), Name: o.GetName(),
			Effect: string(o.Effect), Because: o.Because, Estimated: o.Merged && o.Effect == preview.EffectChange,
		})
	}
	return s
}

func problemsOf(ps plan.Problems) []diffProblem {
	list := []diffProblem{}
	for _, p := range ps {
		list = append(list, diffProblem{p.Reason, p.Error()})
	}
	return list
}

// documentOf is what becomes of a Deployment, for programs.
func (d *difference) documentOf(r *preview.Release) diffRelease {
	out := d.outlooks[r.Deployment.String()]
	doc := diffRelease{
		Namespace: r.Deployment.GetNamespace(), Name: r.Deployment.GetName(), Outlook: string(out.Kind), From: out.From,
		To: out.To, Superseded: out.Superseded,
		Estimated: out.Estimated, Replicas: r.Replicas, Images: []diffImage{}, Steps: []diffStep{}, Message: d.how(&report{}, r, &out),
	}
	switch {
	case r.Restored != "":
		doc.Outlook = "Restored"
	case r.Before == nil:
		doc.Outlook = "FirstInstall"
	case r.Plan == nil:
		doc.Outlook = "NoPlan"
	case out.Unknown != "":
		doc.Outlook = "Unknown"
	}
	if r.Approval != nil {
		doc.ApprovedStep = &r.Approval.Spec.Step
	}
	known := func(image string) string {
		if image == "-" {
			return ""
		}
		return image
	}
	for _, row := range images(r) {
		doc.Images = append(doc.Images, diffImage{row[0], known(row[1]), known(row[2])})
	}
	if r.Plan == nil {
		return doc
	}
	doc.Plan = r.Plan.Name
	if r.Before == nil {
		return doc
	}
	for _, row := range stepsOf(r, &out) {
		index, pods := numberIn(row[0]), numberIn(row[2])
		doc.Steps = append(doc.Steps, diffStep{index, row[1], pods, row[3]})
	}
	return doc
}

// numberIn is that of a cell which has been printed from one.
func numberIn(cell string) int {
	n, err := strconv.Atoi(cell)
	if err != nil {
		return 0
	}
	return n
}
