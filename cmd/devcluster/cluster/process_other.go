//go:build unix && !linux

package cluster

import (
	"os/exec"
	"syscall"
)

// spawner starts processes. Here they outlive us when we are killed with SIGKILL; only Linux can prevent that.
type spawner struct{}

func newSpawner() *spawner { return &spawner{} }

// start starts the command in a process group of its own, which the terminal's interrupt does not reach.
func (*spawner) start(cmd *exec.Cmd) error {
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	return cmd.Start()
}
