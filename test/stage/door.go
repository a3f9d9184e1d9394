// SPDX-License-Identifier: Apache-2.0

package stage

import (
	"fmt"
	"io"
	"net"
	"sync"
)

// Door is a TCP proxy in front of an API server, with which a cluster can be made unreachable and reachable again.
type Door struct {
	address, behind string

	mu          sync.Mutex
	listener    net.Listener
	connections map[net.Conn]bool
}

// NewDoor opens a door in front of the server at that address.
func NewDoor(behind string) (*Door, error) {
	d := &Door{address: "127.0.0.1:0", behind: behind, connections: map[net.Conn]bool{}}
	return d, d.Open()
}

// Address is where the door is.
func (d *Door) Address() string { return d.address }

// Open lets connections through.
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

// Shut refuses connections and cuts those that there are.
func (d *Door) Shut() {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.listener == nil {
		return
	}
	_ = d.listener.Close() // what is cut need not be closed well, here and below
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
			_, _ = io.Copy(way[0], way[1]) // either end may go away at any time
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

// keep remembers the connections so that Shut can cut them, or cuts them at once if the door is shut by now.
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
