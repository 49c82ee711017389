package cluster

import (
	"fmt"
	"net"
)

// freePort finds a port of 127.0.0.1 that nobody listens on. Somebody may by the time a component does; see
// supervisor.start, which then tries again.
func freePort() (int, error) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return 0, fmt.Errorf("looking for a free port: %w", err)
	}
	port := l.Addr().(*net.TCPAddr).Port
	if err := l.Close(); err != nil {
		return 0, fmt.Errorf("giving port %d back: %w", port, err)
	}
	return port, nil
}
