// SPDX-License-Identifier: Apache-2.0

package webhooks

import (
	"bytes"
	"context"
	"io"
	"net"
	"net/http"
	"sync"
	"time"

	"golang.org/x/sync/semaphore"

	"github.com/heirloom-dev/heirloom/pkg/metrics"
)

// Limits of concurrent reviews, in bytes. To decode and answer a review takes at most 50 times its size.
const (
	// largestReview is the largest that controller-runtime reads. No API server sends more.
	largestReview = 7<<20 - 1
	// ordinaryReview is the size up to which a review has room that larger ones cannot use up. It suffices for an update of a Node
	// with its images, of a Machine, or of a MachineSet, with the old and the new object.
	ordinaryReview = 256 << 10
	// patience is how long a review waits for room, and how long its body may take. API servers wait two seconds for the answer.
	patience = time.Second
	// mostRequests is how many requests there may be at once, including waiting ones; one caller can have half of them.
	mostRequests = 1000
)

// room is how many bytes of reviews may be read at once.
type room struct {
	// ordinary is for reviews up to ordinaryReview; caller is how much of it one caller can have.
	ordinary, caller int64
	// large is for all others. A review larger than that takes all of it.
	large int64
}

// managementRoom is for the management cluster's API servers, workloadRoom for those of all workload clusters.
func managementRoom() room { return room{ordinary: 3 << 20, caller: 3 << 19, large: 4 << 20} }
func workloadRoom() room   { return room{ordinary: 2 << 20, caller: 1 << 19, large: 3 << 20} }

// intake reads reviews, and turns away those that have no room: with a status that no API server takes for an answer, so that its
// failure policy applies. Otherwise a few dozen large reviews at once could exhaust the memory of the one process that all clusters
// rely on. Nothing of a review is read before it has room.
type intake struct {
	size room
	// rejected counts reviews that are turned away.
	rejected        func(metrics.Rejection)
	patience        time.Duration
	ordinary, large *semaphore.Weighted

	mu       sync.Mutex
	callers  map[string]*caller
	requests int
}

// caller is the part of the room that one caller may use while it has requests.
type caller struct {
	*semaphore.Weighted
	requests int
}

func newIntake(size room, rejected func(metrics.Rejection)) *intake {
	return &intake{
		size: size, rejected: rejected, patience: patience, callers: map[string]*caller{},
		ordinary: semaphore.NewWeighted(size.ordinary), large: semaphore.NewWeighted(size.large),
	}
}

// wrap returns a handler that gets reviews with their whole body.
func (i *intake) wrap(next http.Handler, callerOf func(*http.Request) string) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.ContentLength > largestReview {
			i.turnAway(w, r, http.StatusRequestEntityTooLarge, metrics.TooLarge)
			return
		}
		ctx, cancel := context.WithTimeout(r.Context(), i.patience)
		defer cancel()
		leave, ok := i.enter(ctx, callerOf(r), r.ContentLength)
		if !ok {
			i.turnAway(w, r, http.StatusTooManyRequests, metrics.TooMany)
			return
		}
		defer leave()
		body, err := i.read(w, r)
		if err != nil {
			i.turnAway(w, r, http.StatusRequestTimeout, metrics.TooSlow)
			return
		}
		if len(body) > 0 {
			r.Body = &wholeBody{Reader: bytes.NewReader(body), bytes: body}
		}
		next.ServeHTTP(w, r)
	})
}

// turnAway must not say when to try again: an API server would, and keep a client waiting.
func (i *intake) turnAway(w http.ResponseWriter, r *http.Request, status int, why metrics.Rejection) {
	i.rejected(why)
	if r.ProtoMajor == 1 {
		w.Header().Set("Connection", "close") // what is left of the body is not to be read
	}
	http.Error(w, http.StatusText(status), status)
}

// enter waits for room for a review of that many bytes; -1 if the size is unknown.
func (i *intake) enter(ctx context.Context, name string, size int64) (leave func(), ok bool) {
	own := i.begin(name)
	if own == nil {
		return nil, false
	}
	needed := []*semaphore.Weighted{own.Weighted, i.ordinary}
	if size < 0 || size > ordinaryReview {
		needed = []*semaphore.Weighted{i.large}
		if size < 0 || size > i.size.large {
			size = i.size.large
		}
	}
	for n, part := range needed {
		// Acquire refuses what has run out of time even if there is room. So it would turn reviews away because the process is busy.
		if part.TryAcquire(size) || part.Acquire(ctx, size) == nil {
			continue
		}
		for _, taken := range needed[:n] {
			taken.Release(size)
		}
		i.end(name, own)
		return nil, false
	}
	return func() {
		for _, taken := range needed {
			taken.Release(size)
		}
		i.end(name, own)
	}, true
}

// begin returns the part of a caller, or nil if there are too many requests.
func (i *intake) begin(name string) *caller {
	i.mu.Lock()
	defer i.mu.Unlock()
	own, known := i.callers[name]
	if !known {
		own = &caller{Weighted: semaphore.NewWeighted(i.size.caller)}
	}
	if i.requests == mostRequests || own.requests == mostRequests/2 {
		return nil
	}
	i.callers[name] = own
	i.requests++
	own.requests++
	return own
}

// end ends a request, and forgets a caller with its last request.
func (i *intake) end(name string, own *caller) {
	i.mu.Lock()
	defer i.mu.Unlock()
	i.requests--
	if own.requests--; own.requests == 0 {
		delete(i.callers, name)
	}
}

// read returns the whole body. A slow body must not keep the room from others.
func (i *intake) read(w http.ResponseWriter, r *http.Request) ([]byte, error) {
	connection := http.NewResponseController(w)
	// If that is not supported, there is no connection either.
	_ = connection.SetReadDeadline(time.Now().Add(i.patience))
	defer func() { _ = connection.SetReadDeadline(time.Time{}) }()
	if r.ContentLength < 0 {
		return io.ReadAll(io.LimitReader(r.Body, largestReview+1))
	}
	body := make([]byte, r.ContentLength)
	_, err := io.ReadFull(r.Body, body)
	return body, err
}

// byAddress tells callers apart by their address. A proxy in front of Heirloom may hide that; then all count as one.
func byAddress(r *http.Request) string {
	host, _, err := net.SplitHostPort(r.RemoteAddr)
	if err != nil {
		return ""
	}
	return host
}

// byCluster tells callers apart by the Cluster that they have proved to belong to.
func byCluster(r *http.Request) string {
	cluster, _ := callerOf(r.Context())
	return cluster.String()
}
