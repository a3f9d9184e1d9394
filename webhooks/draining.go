// SPDX-License-Identifier: Apache-2.0

package webhooks

import "net/http"

// draining closes the connection after each answer once Heirloom has been told to stop. The client then reconnects to another
// replica. API servers keep connections for a long time, even to a Pod that has left the Service. A request that is sent just
// when such a connection closes is lost, and its object would pass untouched.
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
