package main

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"slices"

	"github.com/go-sql-driver/mysql"
)

// nudgesOff is the setting that turns nudges off.
const nudgesOff = "off"

// listenForNudges opens the socket for hints from other replicas, and tells by what address those reach it: none where this
// replica answers no requests, and so has no claims that wait. Both are zero where nudges are off.
func (s serverSettings) listenForNudges(ctx context.Context, dsn string) (*net.UDPConn, netip.AddrPort, error) {
	if s.NudgeListen == nudgesOff || s.NudgeListen == "" {
		return nil, netip.AddrPort{}, nil
	}
	conn, err := new(net.ListenConfig).ListenPacket(ctx, "udp", s.NudgeListen)
	if err != nil {
		return nil, netip.AddrPort{}, fmt.Errorf("--nudge-listen: %w", err)
	}
	socket := conn.(*net.UDPConn)
	if !slices.Contains(s.Roles, "api") {
		return socket, netip.AddrPort{}, nil
	}
	bound := socket.LocalAddr().(*net.UDPAddr).AddrPort()
	advertised, err := s.advertisedForNudges(ctx, bound, dsn)
	if err != nil {
		return nil, netip.AddrPort{}, errors.Join(err, socket.Close())
	}
	return socket, advertised, nil
}

// advertisedForNudges is what the settings say, or else the address that is listened on, or where that is every address of the host, the
// one by which the host reaches the database: replicas share it, and so, most likely, a network.
func (s serverSettings) advertisedForNudges(ctx context.Context, bound netip.AddrPort, dsn string) (netip.AddrPort, error) {
	if s.NudgeAdvertise != "" {
		if whole, err := netip.ParseAddrPort(s.NudgeAdvertise); err == nil && whole.Port() != 0 {
			return whole, nil
		}
		ip, err := netip.ParseAddr(s.NudgeAdvertise)
		if err != nil {
			return netip.AddrPort{}, usagef("--nudge-advertise is %q; want IP or IP:PORT", s.NudgeAdvertise)
		}
		return netip.AddrPortFrom(ip, bound.Port()), nil
	}
	if ip := bound.Addr().Unmap(); !ip.IsUnspecified() {
		return netip.AddrPortFrom(ip, bound.Port()), nil
	}
	return netip.AddrPortFrom(towardDatabase(ctx, dsn), bound.Port()), nil
}

// towardDatabase is this host's address on the way to the database; nothing is sent. A database that is reached by other means than IP is on
// this host, and so are all replicas.
func towardDatabase(ctx context.Context, dsn string) netip.Addr {
	here := netip.AddrFrom4([4]byte{127, 0, 0, 1})
	config, err := mysql.ParseDSN(dsn)
	if err != nil || config.Net != "tcp" {
		return here
	}
	conn, err := new(net.Dialer).DialContext(ctx, "udp", config.Addr)
	if err != nil {
		return here
	}
	defer func() { _ = conn.Close() }() // nothing was sent
	return conn.LocalAddr().(*net.UDPAddr).AddrPort().Addr().Unmap()
}
