package main

import (
	"bufio"
	"encoding/json"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"testing"

	"github.com/tranche-dev/tranche/cmd/tranche/clitest"
)

// browser drives Chromium, by web/e2e/driver.mjs.
type browser struct {
	testing.TB
	mu  sync.Mutex
	in  io.Writer
	out *bufio.Scanner
}

// newBrowser starts a browser for a test. Without Node, its packages or Chromium the test is
// skipped, and `make test` says so.
func newBrowser(t testing.TB) *browser {
	t.Helper()
	web := filepath.Join("dashboard", "web")
	if missing := clitest.MissingForPage(web); missing != "" {
		if os.Getenv(clitest.PageTests) != "" {
			t.Fatalf("%s is missing", missing)
		}
		t.Skipf("%s is missing: the tests of the page are not run", missing)
	}
	cmd := exec.Command("node", filepath.Join(web, "e2e", "driver.mjs"))
	cmd.Stderr = os.Stderr
	in, err := cmd.StdinPipe()
	if err != nil {
		t.Fatal(err)
	}
	out, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	b := &browser{TB: t, in: in, out: bufio.NewScanner(out)}
	b.out.Buffer(nil, 16<<20)
	t.Cleanup(func() {
		_ = in.Close()
		if err := cmd.Wait(); err != nil {
			t.Errorf("the browser ended with %v", err)
		}
	})
	b.answer("the start", nil)
	return b
}

func (b *browser) answer(what string, into any) {
	b.Helper()
	if !b.out.Scan() {
		b.Fatalf("%s: the browser has ended: %v", what, b.out.Err())
	}
	var a struct {
		Value json.RawMessage `json:"value"`
		Error string          `json:"error"`
	}
	if err := json.Unmarshal(b.out.Bytes(), &a); err != nil {
		b.Fatalf("%s: %v: %s", what, err, b.out.Text())
	}
	if a.Error != "" {
		b.Fatalf("%s: %s", what, a.Error)
	}
	if into != nil {
		if err := json.Unmarshal(a.Value, into); err != nil {
			b.Fatalf("%s: %v: %s", what, err, a.Value)
		}
	}
}

// does carries out an operation, and reads its value.
func (b *browser) does(op string, into any, args map[string]any) {
	b.Helper()
	b.mu.Lock()
	defer b.mu.Unlock()
	all := map[string]any{"op": op}
	for k, v := range args {
		all[k] = v
	}
	text, err := json.Marshal(all)
	if err != nil {
		b.Fatal(err)
	}
	if _, err := b.in.Write(append(text, '\n')); err != nil {
		b.Fatal(err)
	}
	b.answer(string(text), into)
}

// tab is a tab of the browser, with cookies of its own.
type tab struct {
	*browser
	name string
}

// tab opens one, with options of the driver.
func (b *browser) tab(name string, options map[string]any) *tab {
	b.Helper()
	args := map[string]any{"tab": name}
	for k, v := range options {
		args[k] = v
	}
	b.does("tab", nil, args)
	return &tab{b, name}
}

func (t *tab) opens(url string) {
	t.Helper()
	t.does("goto", nil, map[string]any{"tab": t.name, "url": url})
}

// sees waits until an element has all of the texts.
func (t *tab) sees(selector string, texts ...string) {
	t.Helper()
	t.does("see", nil, map[string]any{"tab": t.name, "selector": selector, "texts": texts})
}

func (t *tab) clicks(role, name string) {
	t.Helper()
	t.does("click", nil, map[string]any{"tab": t.name, "role": role, "name": name})
}

func (t *tab) text() (text string) {
	t.Helper()
	t.does("text", &text, map[string]any{"tab": t.name})
	return text
}

// runs evaluates a script of the page.
func (t *tab) runs(script string, into any) {
	t.Helper()
	t.does("run", into, map[string]any{"tab": t.name, "script": script})
}

// picture writes a picture of the tab, if a folder for it is given.
func (t *tab) picture(name string, full bool) {
	t.Helper()
	if dir := os.Getenv("TRANCHE_PICTURES"); dir != "" {
		t.does("picture", nil, map[string]any{"tab": t.name, "path": filepath.Join(dir, name+".png"), "full": full})
	}
}

// isClean fails if the console has an error, or axe finds a violation.
func (t *tab) isClean(where string) {
	t.Helper()
	var found []string
	t.does("axe", &found, map[string]any{"tab": t.name})
	if len(found) > 0 {
		t.Errorf("axe, %s:\n%s", where, strings.Join(found, "\n"))
	}
	t.hasNoError(where)
}

func (t *tab) hasNoError(where string) {
	t.Helper()
	var errs []string
	t.does("errors", &errs, map[string]any{"tab": t.name})
	if len(errs) > 0 {
		t.Errorf("console, %s: %s", where, strings.Join(errs, "\n"))
	}
}

// fits fails if the page is wider than the window.
func (t *tab) fits(where string) {
	t.Helper()
	var wide int
	t.runs("document.documentElement.scrollWidth - document.documentElement.clientWidth", &wide)
	if wide > 0 {
		t.Errorf("%s: the page is %d px wider than the window", where, wide)
	}
}

// runDashboard runs `tranche dashboard` in a folder, and returns the URL that it prints.
func runDashboard(s *env, dir string, args ...string) string {
	s.Helper()
	cmd := exec.Command(os.Args[0], append([]string{"dashboard"}, args...)...)
	cmd.Dir, cmd.Env = dir, s.environment()
	cmd.Stderr = os.Stderr
	out, err := cmd.StdoutPipe()
	s.must(err)
	s.must(cmd.Start())
	s.Cleanup(func() {
		_ = cmd.Process.Signal(os.Interrupt) // it may have ended
		_ = cmd.Wait()
	})
	line, err := bufio.NewReader(out).ReadString('\n')
	if _, url, ok := strings.Cut(strings.TrimSpace(line), "is at "); ok {
		return url
	}
	s.Fatal(fmt.Errorf("the dashboard prints no URL: %q: %w", line, err))
	return ""
}
