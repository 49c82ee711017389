package engine_test

import (
	"errors"
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/util/intstr"

	"github.com/tranche-dev/tranche/plan/v1alpha1"
	"github.com/tranche-dev/tranche/rollout/engine"
)

var rewrite = flag.Bool("rewrite", false, "write the transcripts as they come out; commit only the changes that you understand")

// TestTranscripts plays the scripts of testdata/transcripts, and compares what comes out
// with what each has after its commands. testdata/transcripts/README.md says how to read and
// write one. [oracle] judges every round, and each release must end (I14).
func TestTranscripts(t *testing.T) {
	files, err := filepath.Glob("testdata/transcripts/*.txt")
	if err != nil || len(files) == 0 {
		t.Fatalf("no transcripts: %v", err)
	}
	for _, file := range files {
		t.Run(strings.TrimSuffix(filepath.Base(file), ".txt"), func(t *testing.T) {
			want, err := os.ReadFile(file)
			if err != nil {
				t.Fatal(err)
			}
			got, err := playScript(file, string(want))
			if err != nil {
				t.Fatal(err)
			}
			if got == string(want) {
				return
			}
			if !*rewrite {
				t.Fatalf("%s has changed; run go test -run TestTranscripts -rewrite and read the diff (-file +now):\n%s",
					file, cmp.Diff(strings.Split(string(want), "\n"), strings.Split(got, "\n")))
			}
			if err := os.WriteFile(file, []byte(got), 0o600); err != nil {
				t.Fatal(err)
			}
		})
	}
}

// transcript is a script that is being played.
type transcript struct {
	setup   setup
	cluster *cluster // nil until the first command
	out     strings.Builder
	last    string // state that was written last
}

// playScript returns the script with what comes out of each of its commands.
func playScript(file, script string) (string, error) {
	p := &transcript{setup: setup{
		n: 10, surge: intstr.FromInt32(2), unavailable: intstr.FromInt32(1), steps: "1 50% 100%",
		deadline: v1alpha1.DefaultProgressDeadlineSeconds, onFailure: v1alpha1.FailureHold, history: 10,
	}}
	number := 0
	for line := range strings.Lines(script) {
		number++
		line = strings.TrimRight(line, " \n")
		if strings.HasPrefix(line, "  ") {
			continue // it came out of the command before
		}
		p.out.WriteString(line + "\n")
		if err := p.line(line); err != nil {
			return "", fmt.Errorf("%s:%d: %w", file, number, err)
		}
	}
	if p.cluster == nil {
		return "", fmt.Errorf("%s: no command", file)
	}
	p.cluster.onDecision = nil
	if err := judged(p.cluster.ends); err != nil {
		return "", fmt.Errorf("%s: after the last command: %w", file, err)
	}
	return p.out.String(), nil
}

// line plays a line that is not output.
func (p *transcript) line(line string) error {
	words := strings.Fields(line)
	switch {
	case len(words) == 0, words[0] == "#":
		return nil
	case words[0] == "given":
		return p.given(words[1:])
	case words[0] != ">":
		return fmt.Errorf("%q is none of: # text, given, > commands, output after two spaces", line)
	}
	if p.cluster == nil {
		p.begin()
	}
	commands := strings.Split(strings.TrimPrefix(line, ">"), ";")
	for _, command := range commands {
		if err := p.command(strings.TrimSpace(command)); err != nil {
			return err
		}
	}
	if strings.HasPrefix(strings.TrimSpace(commands[len(commands)-1]), "wait ") {
		return nil
	}
	return p.settle(time.Time{})
}

// start is when the first command comes, long after the pods of v1. Messages have it as the
// time of day 01:00:00.
var start = epoch.Add(time.Hour)

// begin makes a Deployment with its plan, which has been adopted.
func (p *transcript) begin() {
	p.cluster = newCluster(p.setup)
	p.cluster.quiet()
	p.cluster.now = start
	p.cluster.onDecision, p.cluster.onRound = p.decided, p.state
	p.state()
}

// given sets what the script begins with.
func (p *transcript) given(words []string) error {
	if p.cluster != nil {
		return errors.New("given comes before the first command")
	}
	if len(words) < 2 {
		return errors.New("given wants a name and a value")
	}
	value := strings.Join(words[1:], " ")
	var n int64
	var err error
	switch name := words[0]; name {
	case "steps":
		if !stepsSyntax.MatchString(value) {
			return fmt.Errorf("%q are no steps; write them as 1 50%%/10m 100%%", value)
		}
		p.setup.steps = value
		return nil
	case "onFailure":
		p.setup.onFailure = v1alpha1.FailurePolicy(value)
		if p.setup.onFailure != v1alpha1.FailureHold && p.setup.onFailure != v1alpha1.FailureRollback {
			err = fmt.Errorf("%q is not %s or %s", value, v1alpha1.FailureHold, v1alpha1.FailureRollback)
		}
		return err
	case "maxSurge", "maxUnavailable":
		if !boundSyntax.MatchString(value) {
			return fmt.Errorf("%s %q is no number or percentage", name, value)
		}
		*map[string]*intstr.IntOrString{"maxSurge": &p.setup.surge, "maxUnavailable": &p.setup.unavailable}[name] = intstr.Parse(value)
		return nil
	case "replicas", "minReadySeconds", "progressDeadlineSeconds":
		if n, err = strconv.ParseInt(value, 10, 32); err != nil {
			return fmt.Errorf("%s %q is no number", name, value)
		}
		numbers := map[string]*int32{"replicas": &p.setup.n, "minReadySeconds": &p.setup.minReady, "progressDeadlineSeconds": &p.setup.deadline}
		*numbers[name] = int32(n)
		return nil
	default:
		return fmt.Errorf("nothing is given as %q", name)
	}
}

var (
	stepsSyntax = regexp.MustCompile(`^\d+%?(/\d+[smh])?( \d+%?(/\d+[smh])?)*$`)
	boundSyntax = regexp.MustCompile(`^\d+%?$`)
)

// commands are those of a script, as moves of [cluster.exec]; $1 is what the first group
// matches.
var commands = []struct {
	is    *regexp.Regexp
	moves string
}{
	{regexp.MustCompile(`^commit v([1-3])$`), "bring $1"},
	{regexp.MustCompile(`^approve (\d)$`), "approve $1"},
	{regexp.MustCompile(`^approve in the cluster$`), "complete"},
	{regexp.MustCompile(`^steps (\d+%?(?:/\d+[smh])?(?: \d+%?(?:/\d+[smh])?)*)$`), "steps $1"},
	{regexp.MustCompile(`^scale (\d+)$`), "scale $1"},
	{regexp.MustCompile(`^(pause|unpause|rollback|restart)$`), "$1"},
	{regexp.MustCompile(`^fail v([1-3])$`), "fate $1 never"},
	{regexp.MustCompile(`^(break|mend) v([1-3])$`), "$1 $2"},
	{regexp.MustCompile(`^down (\d+[smh])$`), "down $1"},
	{regexp.MustCompile(`^delete the Deployment$`), "undeploy"},
	{regexp.MustCompile(`^create the Deployment$`), "deploy"},
}

// command plays one command.
func (p *transcript) command(command string) error {
	if wait, ok := strings.CutPrefix(command, "wait "); ok {
		d, err := time.ParseDuration(wait)
		if err != nil {
			return fmt.Errorf("%s: %w", command, err)
		}
		return p.settle(p.cluster.now.Add(d))
	}
	for _, known := range commands {
		match := known.is.FindStringSubmatchIndex(command)
		if match == nil {
			continue
		}
		possible := false
		move := string(known.is.ExpandString(nil, known.moves, command, match))
		if err := judged(func() { possible = p.cluster.exec(move) }); err != nil {
			return fmt.Errorf("%s: %w", command, err)
		}
		if !possible {
			return fmt.Errorf("%s: it changes nothing here", command)
		}
		return nil
	}
	return fmt.Errorf("%q is not a command of a transcript", command)
}

// settle runs the cluster until a time; zero: until nothing happens any more.
func (p *transcript) settle(end time.Time) error {
	var failure string
	if err := judged(func() { failure = p.cluster.quietUntil(end) }); err != nil {
		return err
	}
	if failure != "" {
		return errors.New(failure)
	}
	p.state()
	return nil
}

// judged calls f, and returns the rule that it breaks.
func judged(f func()) (err error) {
	defer func() {
		switch v := recover().(type) {
		case nil:
		case violation:
			err = fmt.Errorf("it breaks %s: %s", v.rule, v.text)
		default:
			panic(v)
		}
	}()
	f()
	return nil
}

// decided writes the events and writes of a round.
func (p *transcript) decided(d engine.Decision) {
	for _, e := range d.Events {
		kind := "event"
		if e.Warning {
			kind = "warning"
		}
		p.write("%s %s: %s", kind, e.Reason, e.Message)
	}
	for _, a := range d.Actions {
		p.write("%s (%s)", a, a.Because())
	}
}

// state writes where the release stands, if that has changed.
func (p *transcript) state() {
	c := p.cluster
	s := &c.br.Status
	at := "step " + strconv.Itoa(int(s.CurrentStepIndex)) + " " + strings.TrimPrefix(string(s.CurrentStepState), "Step")
	if s.RollingBack {
		at = "rollback " + at
	}
	if s.Phase == v1alpha1.PhaseCompleted {
		at = string(s.Phase)
	}
	if meta.IsStatusConditionTrue(s.Conditions, v1alpha1.ConditionStalled) {
		at += ", stalled"
	}
	state := fmt.Sprintf("| %-23s | %-25s | %s: %s", p.pods(), at, s.Reason, s.Message)
	if state != p.last {
		p.last = state
		p.write("%s", state)
	}
}

// pods are the available pods of each version, and its size.
func (p *transcript) pods() string {
	if p.cluster.d == nil {
		return "no Deployment"
	}
	var sets []string
	for version := range versions {
		if size, _, available, _, _ := p.cluster.podsOf(version); size > 0 {
			sets = append(sets, fmt.Sprintf("v%d %d/%d", version+1, available, size))
		}
	}
	if len(sets) == 0 {
		return "no pods"
	}
	return strings.Join(sets, "  ")
}

func (p *transcript) write(format string, args ...any) {
	text := fmt.Sprintf(format, args...)
	for i, hash := range hashes {
		text = strings.ReplaceAll(text, hash, "v"+strconv.Itoa(i+1))
	}
	text = namedCommit.ReplaceAllString(text, "commit ${1}${2}")
	text = approvalCommit.ReplaceAllString(text, "by spec.approval")
	fmt.Fprintf(&p.out, "  %8s  %s\n", p.cluster.now.Sub(start), text)
}

var (
	namedCommit    = regexp.MustCompile(`commit ("?)0*([1-9]\d{0,6}?)0{33}\b`)
	approvalCommit = regexp.MustCompile(`by spec\.approval in commit \d+`)
)

// TestTranscripts_Errors are scripts that cannot be played: the error names file and line.
func TestTranscripts_Errors(t *testing.T) {
	for _, tc := range []struct{ script, want string }{
		{"# nothing\n", "a.txt: no command"},
		{"given replicas ten\n", `a.txt:1: replicas "ten" is no number`},
		{"given\n", "a.txt:1: given wants a name and a value"},
		{"given pods 3\n", `a.txt:1: nothing is given as "pods"`},
		{"given steps a lot\n", `a.txt:1: "a lot" are no steps; write them as 1 50%/10m 100%`},
		{"given maxSurge lots\n", `a.txt:1: maxSurge "lots" is no number or percentage`},
		{"given onFailure Cry\n", `a.txt:1: "Cry" is not Hold or Rollback`},
		{"> commit v2\n  out\ngiven replicas 3\n", "a.txt:3: given comes before the first command"},
		{"> commit v2\n> commit v9\n", `a.txt:2: "commit v9" is not a command of a transcript`},
		{"> commit v2; wait long\n", `a.txt:1: wait long: time: invalid duration "long"`},
		{"# a\n\n> scale 10\n", "a.txt:3: scale 10: it changes nothing here"},
		{"commit v2\n", `a.txt:1: "commit v2" is none of: # text, given, > commands, output after two spaces`},
	} {
		_, err := playScript("a.txt", tc.script)
		if err == nil || err.Error() != tc.want {
			t.Errorf("%q: %v, want %s", tc.script, err, tc.want)
		}
	}
}
