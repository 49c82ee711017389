package dashboard_test

import (
	"bufio"
	"io"
	"strings"
	"testing"
)

// lines are those of a stream.
type lines struct{ *bufio.Reader }

func newLines(r io.Reader) *lines { return &lines{bufio.NewReader(r)} }

// message returns the data of the next message.
func (l *lines) message(t testing.TB) string {
	t.Helper()
	for {
		line, err := l.ReadString('\n')
		if err != nil {
			t.Fatal(err)
		}
		if data, ok := strings.CutPrefix(line, "data: "); ok {
			return data
		}
	}
}
