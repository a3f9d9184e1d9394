// SPDX-License-Identifier: Apache-2.0

package controlplane

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"net"
	"sync"
)

// claims are the ports that FreePort has returned. An unused socket holds each port, so that the kernel releases it when this process
// ends.
type claims struct {
	mu   sync.Mutex
	held []net.PacketConn
}

var ports claims

// FreePort returns a TCP port of the loopback interface on which no program listens now and that no other test on this machine has:
// the UDP socket with the same number claims it. The port is below the range from which systems choose ports, so that the system does
// not give it to another program between this call and its use. It is above the ports of workload clusters in memory.
func FreePort() (int, error) {
	last := errors.New("all are claimed")
	for range 200 {
		port := 20500 + rand.IntN(11500)
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

// FreePorts returns count free ports.
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
