package terminal

import (
	"bytes"
	"os"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

func TestBar(t *testing.T) {
	for _, tc := range []struct {
		reason           string
		done, begun, all int32
		want             string
	}{
		{"nothing yet", 0, 0, 10, "[----------]"},
		{"done and begun", 3, 5, 10, "[###..-----]"},
		{"all", 10, 10, 10, "[##########]"},
		{"one of many shows", 1, 1, 1000, "[#---------]"},
		{"only all fills it", 999, 999, 1000, "[#########-]"},
		{"more than all is all", 12, 12, 10, "[##########]"},
		{"none of none", 0, 0, 0, "[----------]"},
	} {
		if got := Bar(tc.done, tc.begun, tc.all, 10); got != tc.want {
			t.Errorf("%s: %s, want %s", tc.reason, got, tc.want)
		}
	}
}

func TestTree(t *testing.T) {
	got := Tree(Node{"a", []Node{{"b", []Node{{Text: "c"}}}, {"d", []Node{{Text: "e"}}}}})
	want := "a\n├─ b\n│  └─ c\n└─ d\n   └─ e\n"
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("tree (-want +got):\n%s", diff)
	}
}

func TestCut(t *testing.T) {
	for _, tc := range []struct{ reason, line, want string }{
		{"fits", "abcde", "abcde"},
		{"too wide", "abcdef", "abcd…"},
		{"colours take no room", "\x1b[31mabcde\x1b[0m", "\x1b[31mabcde\x1b[0m"},
		{"a cut colour ends", "\x1b[31mabcdef\x1b[0m", "\x1b[31mabcd…\x1b[0m"},
		{"characters, not bytes", "äöüßé", "äöüßé"},
	} {
		if got := Cut(tc.line, 5); got != tc.want {
			t.Errorf("%s: %q, want %q", tc.reason, got, tc.want)
		}
	}
}

// The second text takes the place of the first, whatever their lengths.
func TestScreen(t *testing.T) {
	var out bytes.Buffer
	s := &Screen{w: &out, size: func() (int, int) { return 10, 4 }}
	for _, text := range []string{"one\ntwo\n", "1\n2\n3\n4\n5\n"} {
		if err := s.Draw(text); err != nil {
			t.Fatal(err)
		}
	}
	if diff := cmp.Diff("\r\x1b[Jone\ntwo\n\x1b[2A\r\x1b[J1\n2\n…\n", out.String()); diff != "" {
		t.Errorf("written (-want +got):\n%s", diff)
	}
}

func TestStyle(t *testing.T) {
	if got := (Style{}).Bad("x"); got != "x" {
		t.Errorf("without colour: %q", got)
	}
	if got := (Style{Colour: true}).Bad("x"); got != "\x1b[31mx\x1b[0m" {
		t.Errorf("with colour: %q", got)
	}
	f, err := os.Create(t.TempDir() + "/out")
	if err != nil {
		t.Fatal(err)
	}
	if StyleOf(f).Colour || StyleOf(&strings.Builder{}).Colour {
		t.Error("only a terminal is coloured")
	}
}
