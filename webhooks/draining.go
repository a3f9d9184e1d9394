// SPDX-License-Identifier: Apache-2.0

package webhooks

import "net/http"

// draining closes the connection after each answer, once the program has been told to stop, so that its clients come back on
// a new connection, which leads to another replica. An API server keeps connections for a long time, also to a Pod that the
// Service no longer leads to, and what it sends in the moment in which such a connection is closed is lost: the request would
// pass untouched.
type draining struct {
	http.Handler
	told <-chan struct{}
}

// ServeHTTP implements http.Handler.
func (d draining) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	select {
	case <-d.told:
		w.Header().Set("Connection", "close")
	default:
	}
	d.Handler.ServeHTTP(w, r)
}
