package clitest

import (
	"bufio"
	"encoding/json"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"testing"
)

// Browser drives Chromium, by web/e2e/driver.mjs.
type Browser struct {
	testing.TB
	mu  sync.Mutex
	in  io.Writer
	out *bufio.Scanner
}

// NewBrowser starts a browser for a test. Without Node, its packages or Chromium the test is
// skipped, and `make test` says so. web is the folder of the page.
func NewBrowser(t testing.TB, web string) *Browser {
	t.Helper()
	if missing := MissingForPage(web); missing != "" {
		if os.Getenv(PageTests) != "" {
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
	b := &Browser{TB: t, in: in, out: bufio.NewScanner(out)}
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

func (b *Browser) answer(what string, into any) {
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

// Does carries out an operation, and reads its value.
func (b *Browser) Does(op string, into any, args map[string]any) {
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

// Tab is a tab of the browser, with cookies of its own.
type Tab struct {
	*Browser
	Name string
}

// Tab opens one, with options of the driver.
func (b *Browser) Tab(name string, options map[string]any) *Tab {
	b.Helper()
	args := map[string]any{"tab": name}
	for k, v := range options {
		args[k] = v
	}
	b.Does("tab", nil, args)
	return &Tab{b, name}
}

// Opens loads a page.
func (t *Tab) Opens(url string) {
	t.Helper()
	t.Does("goto", nil, map[string]any{"tab": t.Name, "url": url})
}

// Sees waits until an element has all of the texts.
func (t *Tab) Sees(selector string, texts ...string) {
	t.Helper()
	t.Does("see", nil, map[string]any{"tab": t.Name, "selector": selector, "texts": texts})
}

// Clicks clicks the element with a role and a name.
func (t *Tab) Clicks(role, name string) {
	t.Helper()
	t.Does("click", nil, map[string]any{"tab": t.Name, "role": role, "name": name})
}

// Text returns all that is to be read.
func (t *Tab) Text() (text string) {
	t.Helper()
	t.Does("text", &text, map[string]any{"tab": t.Name})
	return text
}

// Runs evaluates a script of the page.
func (t *Tab) Runs(script string, into any) {
	t.Helper()
	t.Does("run", into, map[string]any{"tab": t.Name, "script": script})
}

// Picture writes a picture of the tab, if a folder for it is given.
func (t *Tab) Picture(name string, full bool) {
	t.Helper()
	if dir := os.Getenv("TRANCHE_PICTURES"); dir != "" {
		t.Does("picture", nil, map[string]any{"tab": t.Name, "path": filepath.Join(dir, name+".png"), "full": full})
	}
}

// IsClean fails if the console has an error, or axe finds a violation.
func (t *Tab) IsClean(where string) {
	t.Helper()
	var found []string
	t.Does("axe", &found, map[string]any{"tab": t.Name})
	if len(found) > 0 {
		t.Errorf("axe, %s:\n%s", where, strings.Join(found, "\n"))
	}
	t.HasNoError(where)
}

// HasNoError fails if the console has an error.
func (t *Tab) HasNoError(where string) {
	t.Helper()
	var errs []string
	t.Does("errors", &errs, map[string]any{"tab": t.Name})
	if len(errs) > 0 {
		t.Errorf("console, %s: %s", where, strings.Join(errs, "\n"))
	}
}

// Fits fails if the page is wider than the window.
func (t *Tab) Fits(where string) {
	t.Helper()
	var wide int
	t.Runs("document.documentElement.scrollWidth - document.documentElement.clientWidth", &wide)
	if wide > 0 {
		t.Errorf("%s: the page is %d px wider than the window", where, wide)
	}
}
