package cluster

import (
	"os/exec"
	"runtime"
	"syscall"
)

// spawner starts processes that the kernel kills with us, even when we are killed ourselves.
//
// The kernel's parent-death signal is bound to the thread that started the child, not to
// the process. So all are started from one goroutine that keeps its thread until the end.
type spawner struct {
	work chan func()
}

func newSpawner() *spawner {
	s := &spawner{work: make(chan func())}
	go func() {
		runtime.LockOSThread() // and never unlock: the thread ends with the goroutine, the children with it
		for f := range s.work {
			f()
		}
	}()
	return s
}

// start starts the command in a process group of its own, which the terminal's interrupt does not reach.
func (s *spawner) start(cmd *exec.Cmd) error {
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true, Pdeathsig: syscall.SIGKILL}
	result := make(chan error)
	s.work <- func() { result <- cmd.Start() }
	return <-result
}
