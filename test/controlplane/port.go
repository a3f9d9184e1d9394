// SPDX-License-Identifier: Apache-2.0

package controlplane

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"net"
	"sync"
)

// claims are the ports that were given away. Each is held by a socket that nobody uses, so that the kernel gives it back when this
// process ends.
type claims struct {
	mu   sync.Mutex
	held []net.PacketConn
}

var ports claims

// FreePort returns a TCP port of the loopback interface that nobody listens on right now and that no other test on this machine
// has been given: a port is claimed by the UDP socket of the same number. It is below the range from which systems choose ports by
// themselves, so that nobody is given it between this call and its use.
func FreePort() (int, error) {
	last := errors.New("all are claimed")
	for range 200 {
		port := 20000 + rand.IntN(12000)
		address := fmt.Sprintf("127.0.0.1:%d", port)
		claim, err := net.ListenPacket("udp4", address)
		if err != nil {
			last = err
			continue
		}
		listener, err := net.Listen("tcp4", address)
		if err == nil {
			err = listener.Close()
		}
		if err != nil {
			last = errors.Join(err, claim.Close())
			continue
		}
		ports.mu.Lock()
		defer ports.mu.Unlock()
		ports.held = append(ports.held, claim)
		return port, nil
	}
	return 0, fmt.Errorf("looking for a free port: %w", last)
}

// FreePorts returns as many of them.
func FreePorts(count int) ([]int, error) {
	free := make([]int, count)
	for i := range free {
		port, err := FreePort()
		if err != nil {
			return nil, err
		}
		free[i] = port
	}
	return free, nil
}
