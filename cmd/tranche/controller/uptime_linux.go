package controller

import (
	"time"

	"golang.org/x/sys/unix"
)

// uptime is how long the machine has been running, the time that it was suspended
// included. CLOCK_MONOTONIC, which Go's time has, stands still in that time. No clock
// that a person sets moves it.
func uptime() time.Duration {
	var t unix.Timespec
	if err := unix.ClockGettime(unix.CLOCK_BOOTTIME, &t); err != nil {
		panic("reading CLOCK_BOOTTIME: " + err.Error()) // Linux has had it since 2.6.39
	}
	return time.Duration(t.Nano())
}
