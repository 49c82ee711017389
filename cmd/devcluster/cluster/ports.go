package cluster

import (
	"fmt"
	"net"
)

// freePort returns a port of 127.0.0.1 that is not in use. Another process may take it before a component
// listens on it; supervisor.start then tries again.
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
