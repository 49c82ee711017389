package view

import (
	"fmt"
	"html"
	"strings"

	"github.com/tranche-dev/tranche/cmd/tranche/cli"
	"github.com/tranche-dev/tranche/plan/v1alpha1"
)

// Sizes of the picture, in pixels.
const (
	pictureWidth  = 760
	pictureMargin = 28
	nameWidth     = 170 // of the column with the names of the revisions
	mostDots      = 40  // above that, pods are a bar
)

// pictureStyle has the colours, for light and dark pages.
const pictureStyle = `<style>
text{font:14px system-ui,-apple-system,"Segoe UI",sans-serif;fill:#1d1f24}
.ground{fill:#fff;stroke:#e5e3de}.title{font-size:19px;font-weight:650}
.faint{fill:#61656e}.small{font-size:12px}.middle{text-anchor:middle}
.rail{stroke:#e5e3de;stroke-width:3}.done{stroke:#3b5bdb}
.bubble{fill:#fff;stroke:#d3d1cb;stroke-width:3}.up{fill:#3b5bdb}.bubble.done{fill:#3b5bdb;stroke:#3b5bdb}
.bubble.now{fill:#dfe5fb;stroke:#3b5bdb}
.stable .up{fill:#868b96}.none{fill:#e5e3de}.coming{fill:none;stroke:#3b5bdb;stroke-width:2;stroke-dasharray:3 2}
.on{fill:#fff;font-weight:700}.gate{fill:#fff;stroke:#868b96;stroke-width:2}
.gate.open{stroke:#1f7a45}.gate.closed{stroke:#8a5300;fill:#fdf0d8}
.good{fill:#1f7a45}.waits{fill:#8a5300}.bad{fill:#b3261e}.busy{fill:#3350c4}
@media(prefers-color-scheme:dark){
text{fill:#e9eaed}.ground{fill:#1b1d21;stroke:#2c2f35}.faint{fill:#a0a5b0}.rail{stroke:#2c2f35}
.bubble,.gate{fill:#1b1d21;stroke:#4a4e57}.bubble.done,.up{fill:#8ea4ff;stroke:#8ea4ff}.rail.done{stroke:#8ea4ff}
.on{fill:#1b1d21}.bubble.now{fill:#29325a;stroke:#8ea4ff}.none{fill:#2c2f35}.coming{stroke:#8ea4ff}
.gate.open{stroke:#69d394}.gate.closed{fill:#35290f;stroke:#f3bd57}
.good{fill:#69d394}.waits{fill:#f3bd57}.bad{fill:#ff9d94}.busy{fill:#9db0ff}}
</style>`

// SVG returns the release as a picture for a report or a pull request.
func (r *Release) SVG() string {
	p := &picture{}
	p.line(`<text x="%d" y="42" class="title">%s<tspan class="faint" font-weight="400"> in %s</tspan></text>`,
		pictureMargin, text(r.Name), text(r.Namespace))
	p.line(`<text x="%d" y="42" text-anchor="end" class="%s" font-weight="650">%s</text>`,
		pictureWidth-pictureMargin, r.Tone, text(cli.OrNone(r.Reason)))
	p.line(`<text x="%d" y="64" class="faint">%s</text>`, pictureMargin, text(clippedTo(r.Message, mostCharacters)))
	p.steps(r)
	y := 210
	for _, set := range r.Sets {
		if set.Role == RoleUpdate || set.Role == RoleStable {
			p.pods(r, set, y)
			y += 40
		}
	}
	y = p.metrics(r, y)
	height := y + 6
	return fmt.Sprintf(`<svg xmlns="http://www.w3.org/2000/svg" width="%d" height="%d" viewBox="0 0 %d %d" role="img" aria-label="%s">`,
		pictureWidth, height, pictureWidth, height, text(r.Namespace+"/"+r.Name+": "+r.Reason+": "+r.Message)) +
		"\n" + pictureStyle +
		fmt.Sprintf("\n<rect x=\"0.5\" y=\"0.5\" width=\"%d\" height=\"%d\" rx=\"14\" class=\"ground\"/>\n", pictureWidth-1, height-1) +
		p.String() + "</svg>\n"
}

// mostMetrics is how many metrics a picture has.
const mostMetrics = 8

// metrics writes a line for each metric below the pods, with the values of both revisions. It
// returns where the next line would be.
func (p *picture) metrics(r *Release, y int) int {
	if r.Analysis == nil {
		return y
	}
	for i := range r.Analysis.Metrics {
		if i == mostMetrics {
			p.line(`<text x="%d" y="%d" class="faint">and %d more metrics</text>`, pictureMargin, y+5, len(r.Analysis.Metrics)-i)
			return y + 28
		}
		m := &r.Analysis.Metrics[i]
		p.line(`<text x="%d" y="%d" font-weight="650">%s</text>`, pictureMargin, y+5, text(clippedTo(m.Name, 20)))
		p.line(`<text x="%d" y="%d" class="%s">%s</text>`, pictureMargin+nameWidth, y+5, m.Tone, text(clippedTo(m.Line(), 80)))
		y += 28
	}
	return y
}

// picture collects the elements of an SVG.
type picture struct{ strings.Builder }

func (p *picture) line(format string, args ...any) { _, _ = fmt.Fprintf(p, format+"\n", args...) }

func text(s string) string { return html.EscapeString(s) }

// mostCharacters is how many characters of a message fit.
const mostCharacters = 100

// steps draws the steps as a line, with the gates between them.
func (p *picture) steps(r *Release) {
	const y = 112
	places := 2*len(r.Plan) - 1
	at := func(place int) int {
		if places == 1 {
			return pictureWidth / 2
		}
		return pictureMargin + 30 + place*(pictureWidth-2*pictureMargin-60)/(places-1)
	}
	for i := range places - 1 {
		class := "rail"
		if step := r.Plan[i/2]; step.State == StepDone {
			class += " done"
		}
		p.line(`<line x1="%d" x2="%d" y1="%d" y2="%d" class="%s"/>`, at(i), at(i+1), y, y, class)
	}
	for i := range r.Plan {
		step := &r.Plan[i]
		p.bubble(step, at(2*i), y)
		if i < len(r.Plan)-1 && step.Gate != GateNone {
			p.gate(step, at(2*i+1), y)
		}
	}
}

func (p *picture) bubble(step *Step, x, y int) {
	class, on, label := "bubble", "", fmt.Sprint(step.Index)
	switch step.State {
	case StepDone:
		class, on, label = "bubble done", " on", "✓"
	case StepMoving, StepWaiting:
		class = "bubble now"
	case StepAhead, StepUnknown:
	}
	p.line(`<circle cx="%d" cy="%d" r="19" class="%s"/>`, x, y, class)
	p.line(`<text x="%d" y="%d" class="middle%s">%s</text>`, x, y+5, on, label)
	p.line(`<text x="%d" y="%d" class="middle" font-weight="650">%s</text>`, x, y+40, text(step.Replicas))
	p.line(`<text x="%d" y="%d" class="middle faint small">%d pods</text>`, x, y+57, step.Target)
}

func (p *picture) gate(step *Step, x, y int) {
	class, label, colour := "gate", string(step.Gate), "faint"
	switch step.State {
	case StepDone:
		class += " open"
		if a := step.Approval; a != nil {
			label = personOf(a)
			if len(a.Override) > 0 {
				label = "override: " + label
			}
			label = clippedTo(label, 16)
		}
	case StepWaiting:
		class, colour = "gate closed", "waits"
	case StepMoving, StepAhead, StepUnknown:
	}
	p.line(`<rect x="%d" y="%d" width="18" height="18" rx="5" transform="rotate(45 %d %d)" class="%s"/>`, x-9, y-9, x, y, class)
	p.line(`<text x="%d" y="%d" class="middle small %s">%s</text>`, x, y+40, colour, text(label))
}

// personOf returns the name of who opened a gate, without the address.
func personOf(a *v1alpha1.StepApproval) string {
	if a.By == v1alpha1.ApprovedByCluster {
		return "in the cluster"
	}
	name, _, _ := strings.Cut(a.By, " <")
	return name
}

func clippedTo(s string, n int) string {
	if r := []rune(s); len(r) > n {
		return string(r[:n-1]) + "…"
	}
	return s
}

// pods draws the pods of a revision as a row.
func (p *picture) pods(r *Release, set Set, y int) {
	name := set.Role
	if set.Role == RoleUpdate {
		name = "new"
	}
	p.line(`<text x="%d" y="%d" font-weight="650">%s<tspan class="faint small" font-weight="400"> %s</tspan></text>`,
		pictureMargin, y+5, name, text(set.Revision))
	width := pictureWidth - 2*pictureMargin - nameWidth - 60
	slots := max(r.Replicas, set.Want, set.Pods, 1)
	p.line(`<g class="%s">`, set.Role)
	if slots > mostDots {
		part := func(n int32) int { return int(n) * width / int(slots) }
		p.line(`<rect x="%d" y="%d" width="%d" height="16" rx="5" class="none"/>`, pictureMargin+nameWidth, y-8, width)
		p.line(`<rect x="%d" y="%d" width="%d" height="16" rx="5" class="up"/>`, pictureMargin+nameWidth, y-8, part(set.Available))
	} else {
		pitch := min(26, width/int(slots))
		for i := range slots {
			class := "none"
			switch {
			case i < set.Available:
				class = "up"
			case i < max(set.Want, set.Pods):
				class = "coming"
			}
			p.line(`<rect x="%d" y="%d" width="%d" height="%d" rx="4" class="%s"/>`,
				pictureMargin+nameWidth+int(i)*pitch, y-pitch/2+2, pitch-4, pitch-4, class)
		}
	}
	p.line(`</g>`)
	p.line(`<text x="%d" y="%d" text-anchor="end" font-weight="650">%d<tspan class="faint" font-weight="400">/%d</tspan></text>`,
		pictureWidth-pictureMargin, y+5, set.Available, max(set.Want, set.Pods))
}
