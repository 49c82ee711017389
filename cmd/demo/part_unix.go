//go:build unix && !linux

package main

import (
	"os/exec"
	"syscall"
)

// partAttributes: a group of its own, so that ^C reaches only the demo.
func partAttributes() *syscall.SysProcAttr {
	return &syscall.SysProcAttr{Setpgid: true}
}

func startPart(cmd *exec.Cmd) error { return cmd.Start() }
