package gitserver

import (
	"errors"
	"testing"
)

// A name that leads to a metadata address is refused when it is dialled, also where the
// name has led elsewhere before.
func TestMayDial(t *testing.T) {
	for address, want := range map[string]error{
		"169.254.169.254:80": errMayNotDial, "[fe80::1%eth0]:443": errMayNotDial, "[::ffff:169.254.169.254]:80": errMayNotDial,
		"[fd00:ec2::254]:80": errMayNotDial, "100.100.100.200:80": errMayNotDial, "0.0.0.0:80": errMayNotDial, "[::]:80": errMayNotDial,
		"192.0.2.1:443": nil, "10.0.0.1:443": nil,
	} {
		if err := mayDial("tcp", address, nil); !errors.Is(err, want) {
			t.Errorf("%s: %v", address, err)
		}
	}
}
