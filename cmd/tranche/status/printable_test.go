package status

import (
	"reflect"
	"regexp"
	"strings"
	"testing"
	"unicode"

	"github.com/tranche-dev/tranche/cmd/tranche/cli"
	"github.com/tranche-dev/tranche/cmd/tranche/clitest"
	"github.com/tranche-dev/tranche/cmd/tranche/terminal"
	"github.com/tranche-dev/tranche/cmd/tranche/view"
	"github.com/tranche-dev/tranche/plan/v1alpha1"
)

// hostile clears the screen of a terminal, forges a line, and turns the direction of writing.
const hostile = "\x1b[2J\x1b]0;owned\a\u009b31m\u202e\r\nforged\tline"

// spoil adds it to each text of an object.
func spoil(v reflect.Value) {
	switch v.Kind() { //nolint:exhaustive // the other kinds have no text
	case reflect.Pointer:
		if !v.IsNil() {
			spoil(v.Elem())
		}
	case reflect.Struct:
		for i := range v.NumField() {
			if v.Field(i).CanSet() {
				spoil(v.Field(i))
			}
		}
	case reflect.Slice:
		for i := range v.Len() {
			spoil(v.Index(i))
		}
	case reflect.Map:
		for _, k := range v.MapKeys() {
			if v.Type().Elem().Kind() == reflect.String {
				v.SetMapIndex(k, reflect.ValueOf(v.MapIndex(k).String()+hostile).Convert(v.Type().Elem()))
			}
		}
	case reflect.String:
		v.SetString(v.String() + hostile)
	}
}

// No text of an object acts on the terminal, whichever field it is in: an image, a URL, a branch, a
// message, an author. No text forges a line of a table. Colours are those of this program.
func TestOutputs_ArePrintable(t *testing.T) {
	br, gs := clitest.Release(), clitest.Source()
	clitest.Measure(br)
	whole := []*releaseView{{view.Facts{Release: br, Source: gs, Now: clitest.Noon}}}
	for _, only := range []string{"Spec", "Status", "Annotations"} { // with a phase that is known, too
		br, gs := clitest.Release(), clitest.Source()
		clitest.Measure(br)
		for _, o := range []any{br, gs} {
			spoil(reflect.ValueOf(o).Elem().FieldByName(only))
		}
		br.Status.Phase = clitest.Release().Status.Phase
		whole = append(whole, &releaseView{view.Facts{Release: br, Source: gs, Now: clitest.Noon}})
	}
	spoil(reflect.ValueOf(br))
	spoil(reflect.ValueOf(gs))
	log := &EventLog{Items: []EventEntry{{Type: hostile, Kind: hostile, Name: hostile, Reason: hostile, Message: hostile}}}
	outputs := map[string]string{"events": log.table()}
	for _, s := range whole {
		about := s.Release.Annotations[v1alpha1.AnnotationCommitAuthor] + string(s.Release.Status.Phase)
		outputs["status of "+about] = s.text(terminal.Style{Colour: true})
		outputs["a line of "+about] = s.line()
		outputs["get "+about] = releaseTable([]v1alpha1.BatchRelease{*s.Release}, true, true, clitest.Noon)
		outputs["sources "+about] = sourceTable([]v1alpha1.GitSource{*s.Source}, true, true, clitest.Noon)
		outputs["problems "+about] = cli.ProblemLines([]v1alpha1.GitSource{*s.Source})
	}
	own := regexp.MustCompile(`\x1b\[(0|1|2|3[1236])m`)
	for name, text := range outputs {
		for _, r := range own.ReplaceAllString(text, "") {
			if unicode.IsControl(r) && r != '\n' && r != '\t' || unicode.Is(unicode.Bidi_Control, r) {
				t.Errorf("%.20q has %q:\n%q", name, r, text)
				break
			}
		}
		if lines := strings.Count(text, "\n"); lines > 2 && (strings.HasPrefix(name, "get") || strings.HasPrefix(name, "events")) {
			t.Errorf("%.20q has %d lines:\n%s", name, lines, text)
		}
	}
}
