package main

import (
	"os/exec"
	"runtime"
	"syscall"
)

// partAttributes: a group of its own, so that ^C reaches only the demo; and no
// life after the demo's, however that ends.
func partAttributes() *syscall.SysProcAttr {
	return &syscall.SysProcAttr{Setpgid: true, Pdeathsig: syscall.SIGTERM}
}

// startPart starts a part from a thread that lives as long as the demo. The kernel
// signals a part when the thread that made it ends.
func startPart(cmd *exec.Cmd) error {
	started := make(chan error)
	go func() {
		runtime.LockOSThread()
		started <- cmd.Start()
		select {}
	}()
	return <-started
}
