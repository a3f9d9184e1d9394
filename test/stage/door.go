// SPDX-License-Identifier: Apache-2.0

package stage

import (
	"context"
	"fmt"
	"io"
	"net"
	"sync"
)

// Door is a TCP proxy in front of an API server. A test can make the cluster unreachable and reachable again with it.
type Door struct {
	address, behind string
	// Shut refuses new connections and closes the open connections.
	Shut func()
}

// NewDoor opens a door in front of the server at the address behind.
func NewDoor(behind string) (*Door, error) {
	d := &Door{address: "127.0.0.1:0", behind: behind}
	return d, d.Open()
}

// Address returns the host and port of the door.
func (d *Door) Address() string { return d.address }

// Open accepts connections until Shut.
func (d *Door) Open() error {
	listener, err := net.Listen("tcp", d.address)
	if err != nil {
		return fmt.Errorf("opening a door: %w", err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	d.address = listener.Addr().String()
	d.Shut = func() {
		_ = listener.Close() // errors of closing do not matter, here and below
		cancel()
	}
	go func() {
		for {
			in, err := listener.Accept()
			if err != nil {
				return
			}
			go d.pass(ctx, in)
		}
	}()
	return nil
}

// pass copies in both ways until one end closes its connection or ctx is done.
func (d *Door) pass(ctx context.Context, in net.Conn) {
	out, err := net.Dial("tcp", d.behind)
	if err != nil {
		_ = in.Close()
		return
	}
	shut := func() {
		_ = in.Close()
		_ = out.Close()
	}
	defer context.AfterFunc(ctx, shut)()
	var both sync.WaitGroup
	for _, way := range [][2]net.Conn{{in, out}, {out, in}} {
		both.Go(func() {
			_, _ = io.Copy(way[0], way[1]) // each end may close at any time
			shut()
		})
	}
	both.Wait()
}
