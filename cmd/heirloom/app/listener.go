// SPDX-License-Identifier: Apache-2.0

package app

import (
	"net"
	"sync"
)

// limitedListener limits its connections. It closes one that is too many at once, so that an API server need not wait to find
// out. One address can have half of them, so that one client cannot lock out the others.
type limitedListener struct {
	net.Listener
	most    int
	refused func()

	mu  sync.Mutex
	all int
	of  map[string]int
}

// Accept implements net.Listener.
func (c *limitedListener) Accept() (net.Conn, error) {
	for {
		connection, err := c.Listener.Accept()
		if err != nil {
			return nil, err
		}
		host, _, _ := net.SplitHostPort(connection.RemoteAddr().String())
		// The program's own probes are never too many.
		if own := net.ParseIP(host).IsLoopback(); own || c.enter(host) {
			return &limitedConn{Conn: connection, leave: sync.OnceFunc(func() {
				if !own {
					c.leave(host)
				}
			})}, nil
		}
		c.refused()
		_ = connection.Close()
	}
}

func (c *limitedListener) enter(host string) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.all >= c.most || c.of[host] >= c.most/2 {
		return false
	}
	if c.of == nil {
		c.of = map[string]int{}
	}
	c.all++
	c.of[host]++
	return true
}

func (c *limitedListener) leave(host string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.all--
	if c.of[host]--; c.of[host] == 0 {
		delete(c.of, host)
	}
}

// limitedConn is a connection that counts until it is closed.
type limitedConn struct {
	net.Conn
	leave func()
}

// Close implements net.Conn.
func (v *limitedConn) Close() error {
	defer v.leave()
	return v.Conn.Close()
}
