package main

import (
	"cmp"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"

	"github.com/spf13/cobra"
	"go.yaml.in/yaml/v3"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/sets"
	"sigs.k8s.io/kustomize/api/konfig"
	"sigs.k8s.io/kustomize/kyaml/filesys"

	"github.com/tranche-dev/tranche/cmd/tranche/cli"
	"github.com/tranche-dev/tranche/cmd/tranche/terminal"
	"github.com/tranche-dev/tranche/cmd/tranche/worktree"
	"github.com/tranche-dev/tranche/cmd/tranche/yamlnode"
	"github.com/tranche-dev/tranche/gitsync/duplicates"
	"github.com/tranche-dev/tranche/plan"
	"github.com/tranche-dev/tranche/plan/manifest"
	"github.com/tranche-dev/tranche/plan/queries"
)

func newLint() *cobra.Command {
	var namespace string
	var power sensitivity
	c := &cobra.Command{
		Use:   "lint [PATH...]",
		Short: "Check plans, approvals and manifests, without a cluster",
		Long: `Check folders or files as the controller will. They must render, the manifests, plans and
approvals in them must be valid, and plan and Deployment must fit.
Without a path it checks the current folder.
All problems are printed at once, a line each, with file and line. The exit code is 1 if there
are any. No cluster is asked, so the command does not find what only its API server refuses,
such as a plan that changes its Deployment. tranche diff does.

With --requests each comparison of errors with the stable revision has a line. It says which
harm goes unnoticed in more than one of five releases.`,
		Example: `  tranche lint overlays/production
  tranche lint release.yaml    # in a pre-commit hook
  tranche lint release.yaml --requests 3`,
		Args: cobra.ArbitraryArgs,
		RunE: func(cmd *cobra.Command, args []string) error {
			if len(args) == 0 {
				args = []string{"."}
			}
			count, err := lint(cmd.OutOrStdout(), args, namespace)
			switch {
			case err != nil:
				return err
			case count > 0:
				return fmt.Errorf("problems: %d", count)
			case cmd.Flags().Changed("requests"):
				return power.write(cmd.OutOrStdout(), args)
			}
			return nil
		},
	}
	c.Flags().Float64Var(&power.requests, "requests", 0, "requests per second of one pod: print which harm goes unnoticed")
	c.Flags().StringVar(&power.failing, "failing", "1%", "part of the stable revision's requests that fail, with --requests")
	c.Flags().StringVarP(&namespace, "namespace", "n", "",
		"namespace of what names none (default: that of the approvals, where it is one, or default)")
	return c
}

// lint writes the problems of paths, and returns how many there are. One that two
// paths lead to counts once.
func lint(w io.Writer, paths []string, namespace string) (int, error) {
	var lines []string
	for _, path := range paths {
		l, err := newLinted(path)
		if err != nil {
			return 0, err
		}
		for _, p := range l.check(namespace) {
			lines = append(lines, l.located(p))
		}
	}
	slices.Sort(lines)
	lines = slices.Compact(lines)
	for _, line := range lines {
		if _, err := fmt.Fprintln(w, terminal.Printable(line)); err != nil {
			return 0, err
		}
	}
	return len(lines), nil
}

// linted is what is checked: a folder of a worktree, or one file alone.
type linted struct {
	fsys     filesys.FileSystem
	root, at string
	file     string // the one that is checked alone; empty: a folder
}

func newLinted(path string) (*linted, error) {
	info, err := os.Stat(path)
	if err != nil {
		return nil, fmt.Errorf("reading what to check: %w", err)
	}
	if slices.Contains(konfig.RecognizedKustomizationFileNames(), filepath.Base(path)) {
		path = filepath.Dir(path) // it says what is in its folder
		info, err = os.Stat(path)
		if err != nil {
			return nil, fmt.Errorf("reading what to check: %w", err)
		}
	}
	tree, root, at, err := worktree.Open(path)
	if err != nil {
		return nil, fmt.Errorf("reading what to check: %w", err)
	}
	if info.IsDir() {
		return &linted{fsys: tree, root: root, at: at}, nil
	}
	text, err := tree.ReadFile(at)
	if err != nil {
		return nil, fmt.Errorf("reading what to check: %w", err)
	}
	alone := filesys.MakeFsInMemory()
	return &linted{fsys: alone, at: "/", file: path}, alone.WriteFile("/"+filepath.Base(path), text)
}

// check returns all problems. In a single file it is no problem that a plan's Deployment,
// or an approval's plan, is elsewhere.
func (l *linted) check(namespace string) plan.Problems {
	approvals := filepath.Join(l.at, "approvals")
	guessed := namespace == ""
	if guessed {
		namespace = l.namespace(approvals)
	}
	var problems plan.Problems
	objects, err := manifest.Render(l.fsys, l.at, manifest.RenderOptions{
		Skip: approvals, Ignored: func(p *plan.Problem) { problems = append(problems, p) },
	})
	problems = append(problems, all(err)...)
	for _, o := range objects {
		problems = append(problems, duplicates.Check(o)...)
	}
	set, err := plan.Collect(objects, plan.CollectOptions{
		Namespace: namespace, Namespaced: manifest.Namespaced, CheckMetric: queries.Check,
	})
	for _, p := range all(err) {
		if l.file == "" || !strings.Contains(p.Error(), "is rendered with it") {
			problems = append(problems, p)
		}
	}
	if l.file != "" {
		if slices.ContainsFunc(objects, isApproval) {
			_, more := manifest.ReadApprovals(l.fsys, l.at, namespace)
			problems = append(problems, more...)
		}
		return problems
	}
	given, more := manifest.ReadApprovals(l.fsys, approvals, namespace)
	problems = append(problems, more...)
	if set != nil {
		problems = append(problems, set.Ignored...)
		unknown := plan.UnknownApprovals(set.Releases, given)
		for _, p := range unknown {
			if guessed {
				p.Hint += "; what names no namespace is taken to be in " + namespace + ", -n says another"
			}
		}
		problems = append(problems, unknown...)
	}
	return problems
}

// namespace is where what names none will be: a GitSource's own namespace, which
// nothing in the folder says but the approvals, as `tranche approve` writes them.
func (l *linted) namespace(approvals string) string {
	namespaces := sets.New[string]()
	given, _ := manifest.ReadApprovals(l.fsys, approvals, metav1.NamespaceDefault)
	for _, a := range given {
		namespaces.Insert(a.Metadata.Namespace)
	}
	if one, only := namespaces.PopAny(); only && namespaces.Len() == 0 {
		return one
	}
	return metav1.NamespaceDefault
}

func isApproval(o plan.Object) bool { return o.GetKind() == "BatchApproval" }

// all are the problems of an error.
func all(err error) plan.Problems {
	if ps := plan.ProblemsOf(err); ps != nil || err == nil {
		return ps
	}
	return plan.Problems{{Err: err}}
}

var (
	saidLine    = regexp.MustCompile(`^line (\d+): `)
	anotherFile = regexp.MustCompile(`is also in [^;]+`)
	fieldPart   = regexp.MustCompile(`([^.\[\]]+)|\[(\d+)\]`)
)

// fromHere is the path of a file of the worktree from the current folder.
func (l *linted) fromHere(name string) string {
	return cli.FromHere(strings.TrimPrefix(filepath.Join(l.root, name), "/"))
}

// located is a problem with its file as one would give it, and the line:
// "release.yaml:12: BatchRelease shop/web: …".
func (l *linted) located(p *plan.Problem) string {
	name, rest, _ := strings.Cut(p.Where, ": ")
	file, disk := l.fromHere(name), filepath.Join(l.root, name)
	if l.file != "" {
		file, disk = l.file, l.file
	}
	content, err := os.ReadFile(disk)
	switch {
	case err != nil && name == "":
		return p.Error()
	case err != nil: // about a folder
		return strings.Replace(p.Error(), name, file, 1)
	}
	text := anotherFile.ReplaceAllStringFunc(strings.TrimPrefix(p.Error(), name+": "), func(s string) string {
		return "is also in " + l.fromHere(strings.TrimPrefix(s, "is also in "))
	})
	if m := saidLine.FindStringSubmatch(text); m != nil {
		return file + ":" + m[1] + ": " + strings.TrimPrefix(text, m[0])
	}
	object, field, _ := strings.Cut(rest, ": ")
	return file + ":" + strconv.Itoa(lineOf(string(content), object, field)) + ": " + text
}

// lineOf returns the line of an object's field, or of as much of its path as the file
// has. It is 1 if not even the object is found.
func lineOf(text, object, field string) int {
	kind, name, _ := strings.Cut(object, " ")
	name = name[strings.LastIndex(name, "/")+1:]
	d := yaml.NewDecoder(strings.NewReader(text))
	for {
		var doc yaml.Node
		if err := d.Decode(&doc); err != nil {
			return 1
		}
		if len(doc.Content) == 0 {
			continue
		}
		at := yamlnode.Of(doc.Content[0])
		if yamlnode.ValueOf(at, "kind").Text() != kind || yamlnode.ValueOf(yamlnode.ValueOf(at, "metadata"), "name").Text() != name {
			continue
		}
		line := at.Line
		for _, part := range fieldPart.FindAllStringSubmatch(field, -1) {
			if at.Node == nil {
				break
			}
			at = member(at, part)
			line = cmp.Or(lineOfKey(at), line)
		}
		return line
	}
}

// member is what a part of a path leads to: a key, or an index.
func member(at yamlnode.Node, part []string) yamlnode.Node {
	if part[2] == "" {
		return yamlnode.ValueOf(at, part[1])
	}
	i, err := strconv.Atoi(part[2])
	if err != nil || at.Kind != yaml.SequenceNode || i >= len(at.Content) {
		return yamlnode.Node{}
	}
	return yamlnode.Of(at.Content[i])
}

func lineOfKey(n yamlnode.Node) int {
	if n.Node == nil {
		return 0
	}
	return n.Line
}
