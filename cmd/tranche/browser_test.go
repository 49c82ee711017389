package main

import (
	"bufio"
	"fmt"
	"os"
	"os/exec"
	"strings"
)

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
