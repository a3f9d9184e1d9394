// SPDX-License-Identifier: Apache-2.0

package stage

import (
	"fmt"
	"io"
	"net"
	"sync"
)

// Door is a TCP proxy in front of an API server. A test can make the cluster unreachable and reachable again with it.
type Door struct {
	address, behind string

	mu          sync.Mutex
	listener    net.Listener
	connections map[net.Conn]bool
}

// NewDoor opens a door in front of the server at the address behind.
func NewDoor(behind string) (*Door, error) {
	d := &Door{address: "127.0.0.1:0", behind: behind, connections: map[net.Conn]bool{}}
	return d, d.Open()
}

// Address returns the host and port of the door.
func (d *Door) Address() string { return d.address }

// Open accepts connections.
func (d *Door) Open() error {
	d.mu.Lock()
	defer d.mu.Unlock()
	listener, err := net.Listen("tcp", d.address)
	if err != nil {
		return fmt.Errorf("opening a door: %w", err)
	}
	d.listener, d.address = listener, listener.Addr().String()
	go d.serve(listener)
	return nil
}

// Shut refuses new connections and closes the open connections.
func (d *Door) Shut() {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.listener == nil {
		return
	}
	_ = d.listener.Close() // errors of closing do not matter, here and below
	d.listener = nil
	for connection := range d.connections {
		_ = connection.Close()
	}
}

func (d *Door) serve(listener net.Listener) {
	for {
		in, err := listener.Accept()
		if err != nil {
			return
		}
		go d.pass(in)
	}
}

func (d *Door) pass(in net.Conn) {
	out, err := net.Dial("tcp", d.behind)
	if err != nil {
		_ = in.Close()
		return
	}
	if !d.keep(in, out) {
		return
	}
	var both sync.WaitGroup
	for _, way := range [][2]net.Conn{{in, out}, {out, in}} {
		both.Go(func() {
			_, _ = io.Copy(way[0], way[1]) // each end may close at any time
			_ = way[0].Close()
			_ = way[1].Close()
		})
	}
	both.Wait()
	d.mu.Lock()
	defer d.mu.Unlock()
	delete(d.connections, in)
	delete(d.connections, out)
}

// keep records the connections so that Shut can close them, and reports whether the door is open. If it is shut, keep closes them.
func (d *Door) keep(connections ...net.Conn) bool {
	d.mu.Lock()
	defer d.mu.Unlock()
	for _, connection := range connections {
		if d.listener == nil {
			_ = connection.Close()
			continue
		}
		d.connections[connection] = true
	}
	return d.listener != nil
}
