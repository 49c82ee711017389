package commit

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/pmezard/go-difflib/difflib"
	corev1 "k8s.io/api/core/v1"

	"github.com/tranche-dev/tranche/cmd/tranche/cli"
	"github.com/tranche-dev/tranche/cmd/tranche/clone"
	"github.com/tranche-dev/tranche/cmd/tranche/commit/render"
	"github.com/tranche-dev/tranche/gitsync/revert"
	"github.com/tranche-dev/tranche/plan"
)

// maxParts is up to how many parts a change is tried apart: each takes two renderings.
const maxParts = 64

// narrowed is a change of the worktree of which parts can be left out, as long as what
// is left renders what is wanted.
type narrowed struct {
	*commitCommand
	ch     *clone.Change
	head   map[string]render.Template
	wanted *corev1.PodTemplateSpec
	// sharers are the other GitSources of the branch that this account may read.
	sharers []*sharer
	parts   []part
}

// part is a file, or lines of one that follow each other.
type part struct {
	file *changedFile
	at   int // of the file's opcodes; -1: all of it
}

type changedFile struct {
	name          string
	before, after revert.File
	codes         []difflib.OpCode
}

// moved is a release that a change gives another pod template.
type moved struct {
	name, how string
	of        string // what it is, if the name does not say it
	err       error  // why it cannot be asked for
}

func (m moved) String() string { return cmp.Or(m.of, m.name) }

// narrow leaves out of the change what gives other releases another template, where
// the files allow it, and returns the releases that it then spares. Those that would
// move all the same are an error, unless they are asked for.
func (st *commitCommand) narrow(ctx context.Context, ch *clone.Change, wanted *corev1.PodTemplateSpec) (spared []moved, err error) {
	n := &narrowed{commitCommand: st, ch: ch, wanted: wanted}
	head, err := st.clone.Head(ctx)
	if err != nil {
		return nil, err
	}
	set, _, err := st.rendering().Set(head)
	if err != nil {
		return nil, err
	}
	n.head = render.Templates(set)
	if err := n.findSharers(ctx, head); err != nil {
		return nil, err
	}
	for _, name := range slices.Sorted(maps.Keys(st.with)) {
		if !n.has(name) {
			return nil, fmt.Errorf("--with %s: the branch has no such BatchRelease below %s, nor below the paths of other GitSources",
				name, st.source.Spec.Path)
		}
	}
	_, all, err := n.renders(ctx)
	if err != nil || len(all) == 0 {
		return nil, nil //nolint:nilerr // what does not render is said where the commit is checked
	}
	if err := n.split(ctx); err != nil {
		return nil, err
	}
	if left, err := n.leaveOut(ctx); err != nil || len(left) == 0 {
		return slices.DeleteFunc(all, func(m moved) bool { return m.err != nil }), err
	}
	return nil, n.consent(ctx, all)
}

// consent asks whether other releases may move, too. --yes does not say so.
func (n *narrowed) consent(ctx context.Context, all []moved) error {
	var what, flags []string
	for _, m := range all {
		if m.err != nil {
			return m.err
		}
		what, flags = append(what, m.String()+" ("+m.how+")"), append(flags, "--with "+m.name)
	}
	text := "the same lines released " + strings.Join(what, ", ") + ", which would go back, too"
	if n.yes {
		return fmt.Errorf("%s; nothing was changed. To roll back all of them, give %s", text, strings.Join(flags, " "))
	}
	if !cli.Ask(n.cmd, strings.ToUpper(text[:1])+text[1:]+". Roll back all of them?") {
		return errors.New("not committed")
	}
	for _, m := range all {
		n.with[m.name] = true
	}
	return n.write(ctx, nil)
}

// renders says whether the worktree renders what is wanted, and which other releases move.
func (n *narrowed) renders(ctx context.Context) (wanted bool, others []moved, err error) {
	commit, err := n.ch.Trial(ctx)
	if err != nil {
		return false, nil, err
	}
	set, _, err := n.rendering().Made(ctx, commit)
	notAlone, ok := errors.AsType[*render.NotAloneError](err)
	if err != nil && !ok {
		return false, nil, err
	}
	own, err := n.planned(set)
	if err != nil {
		return false, nil, err
	}
	if ok {
		others = []moved{{of: "invalid objects, or objects beside them", how: "not known", err: notAlone}}
	}
	others = append(others, n.between(n.head, render.Templates(set), "")...)
	return plan.EqualTemplate(own.Template, n.wanted), append(others, n.elsewhere(ctx, commit)...), nil
}

func planName(r *plan.Release) string { return r.Plan.Namespace + "/" + r.Plan.Name }

// movedHow says what changes between two templates: the images, where they do.
func movedHow(from, to *corev1.PodTemplateSpec) string {
	images := map[string]string{}
	for _, c := range slices.Concat(from.Spec.InitContainers, from.Spec.Containers) {
		images[c.Name] = c.Image
	}
	var lines []string
	for _, c := range slices.Concat(to.Spec.InitContainers, to.Spec.Containers) {
		if was := images[c.Name]; was != "" && was != c.Image {
			lines = append(lines, was+" → "+c.Image)
		}
	}
	if len(lines) == 0 {
		return "another pod template"
	}
	return strings.Join(lines, ", ")
}

// split takes the change apart. Links and submodules stay as they are.
func (n *narrowed) split(ctx context.Context) error {
	raw, err := n.ch.Git(ctx, "diff", "--cached", "--no-renames", "--raw", "-z", "HEAD")
	if err != nil {
		return err
	}
	fields := strings.Split(strings.TrimRight(raw, "\x00"), "\x00") // :100644 100644 5716ca5 7601807 M, and the file
	for i := 0; i+1 < len(fields); i += 2 {
		modes := strings.Fields(strings.TrimPrefix(fields[i], ":"))
		f := &changedFile{name: fields[i+1]}
		if len(modes) < 2 || !isFile(modes[0]) || !isFile(modes[1]) {
			continue
		}
		if f.before, err = n.file(ctx, "HEAD:"+f.name, modes[0]); err != nil {
			return err
		}
		if f.after, err = n.file(ctx, ":"+f.name, modes[1]); err != nil {
			return err
		}
		if f.before.Gone || f.after.Gone || slices.Contains(f.before.Content, 0) || slices.Contains(f.after.Content, 0) {
			n.parts = append(n.parts, part{f, -1})
			continue
		}
		f.codes = difflib.NewMatcher(difflib.SplitLines(string(f.before.Content)), difflib.SplitLines(string(f.after.Content))).GetOpCodes()
		for j, c := range f.codes {
			if c.Tag != 'e' {
				n.parts = append(n.parts, part{f, j})
			}
		}
	}
	return nil
}

const modeGone = "000000"

func isFile(mode string) bool { return mode == modeGone || strings.HasPrefix(mode, "100") }

// file reads a file of HEAD or of the index.
func (n *narrowed) file(ctx context.Context, name, mode string) (f revert.File, err error) {
	if mode == modeGone {
		return revert.File{Gone: true}, nil
	}
	f.Executable = mode == "100755"
	f.Content, err = n.ch.Content(ctx, name)
	return f, err
}

// leaveOut leaves out all that is not needed, and takes in again what moves nothing
// else. It returns what moves all the same.
func (n *narrowed) leaveOut(ctx context.Context) (others []moved, err error) {
	if len(n.parts) > maxParts {
		_, others, err = n.renders(ctx)
		return others, err
	}
	without := map[part]bool{}
	for _, p := range n.parts {
		without[p] = true
		if err := n.write(ctx, without); err != nil {
			return nil, err
		}
		if wanted, _, err := n.renders(ctx); err != nil || !wanted {
			delete(without, p)
		}
	}
	for _, p := range slices.DeleteFunc(slices.Clone(n.parts), func(p part) bool { return !without[p] }) {
		delete(without, p)
		if err := n.write(ctx, without); err != nil {
			return nil, err
		}
		if wanted, others, err := n.renders(ctx); err != nil || !wanted || len(others) > 0 {
			without[p] = true
		}
	}
	if err := n.write(ctx, without); err != nil {
		return nil, err
	}
	_, others, err = n.renders(ctx)
	return others, err
}

// write makes the worktree what the change is without some parts.
func (n *narrowed) write(ctx context.Context, without map[part]bool) error {
	files := map[*changedFile]bool{}
	for _, p := range n.parts {
		files[p.file] = true
	}
	for _, f := range slices.SortedFunc(maps.Keys(files), func(a, b *changedFile) int { return strings.Compare(a.name, b.name) }) {
		to := f.with(without)
		if err := n.ch.Put(ctx, f.name, to); err != nil {
			return err
		}
	}
	return nil
}

// with is the file without some parts of its change.
func (f *changedFile) with(without map[part]bool) revert.File {
	if f.codes == nil {
		if without[part{f, -1}] {
			return f.before
		}
		return f.after
	}
	before, after := difflib.SplitLines(string(f.before.Content)), difflib.SplitLines(string(f.after.Content))
	var text strings.Builder
	for i, c := range f.codes {
		lines := after[c.J1:c.J2]
		if without[part{f, i}] {
			lines = before[c.I1:c.I2]
		}
		text.WriteString(strings.Join(lines, ""))
	}
	to := f.after
	to.Content = []byte(strings.TrimSuffix(text.String(), "\n")) // SplitLines ends the last line
	return to
}
