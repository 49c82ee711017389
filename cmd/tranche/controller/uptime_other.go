//go:build !linux

package controller

import "time"

var processBegan = time.Now()

// uptime is how long the process has been running, by the monotonic clock. If the machine
// was suspended, that time may be missing.
func uptime() time.Duration { return time.Since(processBegan) }
