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

// What is read of reviews at once, in bytes. To decode and answer one takes 50 times its size at most.
const (
	// largestReview is the largest that controller-runtime reads. No API server sends more.
	largestReview = 7<<20 - 1
	// ordinaryReview is how large reviews are that have room which larger ones cannot use up: those of a Node with its
	// images, of a Machine, or of a MachineSet, before and after.
	ordinaryReview = 256 << 10
	// patience is how long a review waits for room, and its body may take. API servers wait two seconds for the answer.
	patience = time.Second
	// mostRequests is how many there may be at once, with those that wait; a caller can have half of them.
	mostRequests = 1000
)

// room is how many bytes of reviews there may be at once.
type room struct {
	// ordinary is for reviews up to ordinaryReview; caller is how much of it one caller can have.
	ordinary, caller int64
	// large is for all others. One that is larger than that has all of it.
	large int64
}

// managementRoom is for the management cluster's API servers, workloadRoom for those of all workload clusters.
func managementRoom() room { return room{ordinary: 3 << 20, caller: 3 << 19, large: 4 << 20} }
func workloadRoom() room   { return room{ordinary: 2 << 20, caller: 1 << 19, large: 3 << 20} }

// intake reads reviews, and turns away those for which there is no room: with a status that no API server takes for an
// answer, so that their failure policy holds. Without it, a few dozen large reviews at once would take the memory of the one
// process on which all clusters rely. Nothing of a review is read before there is room for it.
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

// caller is the part of the room that one caller may have, while it has requests.
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
			r.Body = io.NopCloser(bytes.NewReader(body))
		}
		next.ServeHTTP(w, r)
	})
}

// turnAway must not say when to try again: API servers would, and a client waits for them meanwhile.
func (i *intake) turnAway(w http.ResponseWriter, r *http.Request, status int, why metrics.Rejection) {
	i.rejected(why)
	if r.ProtoMajor == 1 {
		w.Header().Set("Connection", "close") // what is left of the body is not to be read
	}
	http.Error(w, http.StatusText(status), status)
}

// enter waits for room for a review of that many bytes, which are -1 where nobody has said how many.
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
		if part.Acquire(ctx, size) == nil {
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

// begin returns the part of a caller, or nil where there are too many requests.
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

// end forgets a request, and its caller with the last.
func (i *intake) end(name string, own *caller) {
	i.mu.Lock()
	defer i.mu.Unlock()
	i.requests--
	if own.requests--; own.requests == 0 {
		delete(i.callers, name)
	}
}

// read returns the whole body. One that comes too slowly must not keep the room from others.
func (i *intake) read(w http.ResponseWriter, r *http.Request) ([]byte, error) {
	connection := http.NewResponseController(w)
	// Where that is not supported, there is no connection either.
	_ = connection.SetReadDeadline(time.Now().Add(i.patience))
	defer func() { _ = connection.SetReadDeadline(time.Time{}) }()
	if r.ContentLength < 0 {
		return io.ReadAll(io.LimitReader(r.Body, largestReview+1))
	}
	body := make([]byte, r.ContentLength)
	_, err := io.ReadFull(r.Body, body)
	return body, err
}

// byAddress tells callers apart by where they call from. What is in front of the program may hide that; then all are one.
func byAddress(r *http.Request) string {
	host, _, err := net.SplitHostPort(r.RemoteAddr)
	if err != nil {
		return ""
	}
	return host
}

// byCluster tells callers apart by the Cluster that they have proved to be of.
func byCluster(r *http.Request) string {
	cluster, _ := callerOf(r.Context())
	return cluster.String()
}
