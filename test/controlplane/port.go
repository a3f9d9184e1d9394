// SPDX-License-Identifier: Apache-2.0

package controlplane

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"net"
	"sync"
)

// claims are the sockets that claim the ports of FreePort until this process ends.
var claims struct {
	sync.Mutex
	held []net.PacketConn
}

// FreePort returns a TCP port of the loopback interface on which no program listens now and that no other test on this machine has:
// the UDP socket with the same number claims it. The port is below the range from which systems choose ports, so that the system does
// not give it to another program between this call and its use. It is above the ports of workload clusters in memory.
func FreePort() (int, error) {
	for range 200 {
		port := 20500 + rand.IntN(11500)
		address := fmt.Sprintf("127.0.0.1:%d", port)
		claim, err := net.ListenPacket("udp4", address)
		if err != nil {
			continue
		}
		listener, err := net.Listen("tcp4", address)
		if err != nil {
			_ = claim.Close()
			continue
		}
		claims.Lock()
		defer claims.Unlock()
		claims.held = append(claims.held, claim)
		return port, listener.Close()
	}
	return 0, errors.New("no port is free")
}

// FreePorts returns count free ports.
func FreePorts(count int) ([]int, error) {
	free := make([]int, count)
	for i := range free {
		var err error
		if free[i], err = FreePort(); err != nil {
			return nil, err
		}
	}
	return free, nil
}
