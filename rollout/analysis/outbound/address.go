package outbound

import (
	"errors"
	"fmt"
	"net"
	"net/netip"
	"slices"
	"strings"
)

// Networks are those in which the servers may be that releases name themselves.
type Networks struct {
	none     bool
	prefixes []netip.Prefix // empty: all that are not refused in any case
}

// ParseNetworks reads a list of networks, such as 10.0.0.0/8. An empty list is all networks.
// The word none alone is no network.
func ParseNetworks(list []string) (Networks, error) {
	if len(list) == 1 && list[0] == "none" {
		return Networks{none: true}, nil
	}
	var n Networks
	for _, text := range list {
		p, err := netip.ParsePrefix(strings.TrimSpace(text))
		if err != nil {
			return Networks{}, fmt.Errorf("%q: must be a network such as 10.0.0.0/8, or none alone", text)
		}
		n.prefixes = append(n.prefixes, p.Masked())
	}
	return n, nil
}

// errRefused is of an address that no release may have asked.
var errRefused = errors.New("no release may have this address asked")

// metadata are addresses of clouds' metadata services that are not link-local.
var metadata = []netip.Addr{
	netip.MustParseAddr("100.100.100.200"), netip.MustParseAddr("168.63.129.16"), netip.MustParseAddr("192.0.0.192"),
	netip.MustParseAddr("fd00:ec2::254"), netip.MustParseAddr("fd20:ce::254"),
}

// embedding are IPv6 networks whose addresses contain one of IPv4, and where it begins in them.
var embedding = []struct {
	in netip.Prefix
	at int
}{
	{netip.MustParsePrefix("64:ff9b::/96"), 12}, {netip.MustParsePrefix("::/96"), 12}, {netip.MustParsePrefix("2002::/16"), 2},
}

// isOwn reports whether an address is one of this machine, or of its pod. Servers on it listen
// there as well as on loopback. If the addresses cannot be read, each is taken for one.
func isOwn(a netip.Addr) bool {
	own, err := net.InterfaceAddrs()
	if err != nil {
		return true
	}
	a = a.Unmap().WithZone("")
	return slices.ContainsFunc(own, func(o net.Addr) bool {
		p, err := netip.ParsePrefix(o.String())
		return err != nil || p.Addr().Unmap().WithZone("") == a
	})
}

// MayReach returns an error for an address that no release may have asked.
func (n Networks) MayReach(a netip.Addr) error {
	a = a.Unmap().WithZone("")
	for _, e := range embedding {
		if raw := a.As16(); a.Is6() && e.in.Contains(a) && !a.IsLoopback() && !a.IsUnspecified() {
			return n.MayReach(netip.AddrFrom4([4]byte(raw[e.at : e.at+4])))
		}
	}
	zero := netip.MustParsePrefix("0.0.0.0/8") // the machine itself, on Linux
	switch {
	case n.none, !a.IsValid(), a.IsLoopback(), a.IsLinkLocalUnicast(), a.IsMulticast(), a.IsUnspecified(), zero.Contains(a),
		a == netip.AddrFrom4([4]byte{255, 255, 255, 255}), slices.Contains(metadata, a):
		return errRefused
	case len(n.prefixes) > 0 && !slices.ContainsFunc(n.prefixes, func(p netip.Prefix) bool { return p.Contains(a) }):
		return errRefused
	}
	return nil
}
