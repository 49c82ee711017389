package cluster

import (
	"fmt"
	"net"
)

// freePort returns a port of 127.0.0.1 that is not in use: the wanted one, or any if that is
// 0. It refuses one in use, as what listens there could answer in the place of a component.
// Another process may take the port before a component listens on it; supervisor.start then
// tries again.
func freePort(wanted int) (int, error) {
	l, err := net.Listen("tcp", fmt.Sprintf("127.0.0.1:%d", wanted))
	if err != nil {
		return 0, fmt.Errorf("looking for a free port: %w", err)
	}
	port := l.Addr().(*net.TCPAddr).Port
	if err := l.Close(); err != nil {
		return 0, fmt.Errorf("giving port %d back: %w", port, err)
	}
	return port, nil
}
