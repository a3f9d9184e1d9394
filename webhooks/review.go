// SPDX-License-Identifier: Apache-2.0

package webhooks

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"time"

	jsonv2 "github.com/go-json-experiment/json"
	"github.com/go-json-experiment/json/jsontext"
	"golang.org/x/sync/semaphore"
	admissionv1 "k8s.io/api/admission/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"sigs.k8s.io/controller-runtime/pkg/webhook/admission"

	"github.com/heirloom-dev/heirloom/pkg/metrics"
)

const (
	// largestReview is the maximum size of a review in bytes, as in controller-runtime. No API server sends more.
	largestReview = 7 << 20
	// ordinaryReview is the maximum size in bytes of a review that waits for room. It suffices for an update of a Node with its images, with
	// the old and the new object.
	ordinaryReview = 256 << 10
	// managementRoom and workloadRoom are the room of each server: the bytes of reviews in memory at a time. To decode and answer a review
	// takes at most 50 times its size.
	managementRoom, workloadRoom = 8 << 20, 4 << 20
	// mostWaiting is the number of reviews that may wait for room at a time.
	mostWaiting = 1000
)

// reviewer answers reviews in place of controller-runtime's handler, which spends a third of a request on detecting the type of the body,
// and whose memory is unbounded. It reads a review only after it has reserved room for it.
type reviewer struct {
	*admission.Webhook
	// longest limits the time that a caller can give to a request.
	longest       time.Duration
	size          int64
	room, waiting *semaphore.Weighted
	rejected      func(metrics.Rejection)
}

func newReviewer(room int64, longest time.Duration, rejected func(metrics.Rejection)) reviewer {
	return reviewer{longest: longest, size: room, room: semaphore.NewWeighted(room), waiting: semaphore.NewWeighted(mostWaiting), rejected: rejected}
}

// of returns the handler of a webhook. All webhooks of a server share its room.
func (h reviewer) of(handler failOpen) reviewer {
	h.Webhook = &admission.Webhook{Handler: handler}
	return h
}

// ServeHTTP implements http.Handler.
func (h reviewer) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	size := r.ContentLength
	if size < 0 { // unknown
		size = largestReview
	}
	if size > largestReview {
		h.turnAway(w, http.StatusRequestEntityTooLarge, metrics.TooLarge)
		return
	}
	size = min(size, h.size)
	ctx, cancel := within(r, h.longest)
	defer cancel()
	if !h.enter(ctx, size) {
		h.turnAway(w, http.StatusTooManyRequests, metrics.TooMany)
		return
	}
	defer h.room.Release(size)
	body, err := readBody(ctx, w, r)
	if tooLarge := new(http.MaxBytesError); errors.As(err, &tooLarge) {
		h.turnAway(w, http.StatusRequestEntityTooLarge, metrics.TooLarge)
		return
	}
	if err != nil {
		h.turnAway(w, http.StatusRequestTimeout, metrics.TooSlow)
		return
	}
	review, err := decodeReview(body)
	if err != nil {
		http.Error(w, err.Error(), http.StatusBadRequest)
		return
	}
	response := h.Handle(ctx, admission.Request{AdmissionRequest: *review.Request})
	review.Request, review.Response = nil, &response.AdmissionResponse
	_ = json.NewEncoder(w).Encode(review) // the API server may have hung up
}

// turnAway answers with a status that API servers treat as a failure of the webhook. It sends no Retry-After: an API server would retry,
// and keep a client waiting.
func (h reviewer) turnAway(w http.ResponseWriter, status int, why metrics.Rejection) {
	h.rejected(why)
	w.Header().Set("Connection", "close") // the rest of the body must not be read
	http.Error(w, http.StatusText(status), status)
}

// enter reserves room for a review, or reports that there is none. Large reviews do not wait, so that no other review waits behind them.
func (h reviewer) enter(ctx context.Context, size int64) bool {
	// On a busy machine, a request may already be out of time. Acquire would refuse it, even if there is room.
	if h.room.TryAcquire(size) {
		return true
	}
	if size > ordinaryReview || !h.waiting.TryAcquire(1) {
		return false
	}
	defer h.waiting.Release(1)
	return h.room.Acquire(ctx, size) == nil
}

// longestBody limits the time to read a body, even if the caller says that it waits longer: otherwise, any client that reaches the port
// could keep the room.
const longestBody = 5 * time.Second

// readBody returns the whole body. A body that does not arrive must not keep the room from others.
func readBody(ctx context.Context, w http.ResponseWriter, r *http.Request) ([]byte, error) {
	connection := http.NewResponseController(w)
	deadline := time.Now().Add(longestBody)
	if ends, _ := ctx.Deadline(); ends.Before(deadline) { // there always is a deadline
		deadline = ends
	}
	_ = connection.SetReadDeadline(deadline) // if that is not supported, there is no connection either
	defer func() { _ = connection.SetReadDeadline(time.Time{}) }()
	var body bytes.Buffer
	body.Grow(int(max(r.ContentLength, 0)) + bytes.MinRead)
	_, err := body.ReadFrom(http.MaxBytesReader(w, r.Body, largestReview))
	return body.Bytes(), err
}

// decodeReview reads a review of the version that the webhooks are registered with.
func decodeReview(body []byte) (*admissionv1.AdmissionReview, error) {
	review := &admissionv1.AdmissionReview{}
	// The check for duplicate names takes half of the time. In the objects, decode checks for them.
	if err := jsonv2.Unmarshal(body, review, jsontext.AllowDuplicateNames(true)); err != nil {
		return nil, fmt.Errorf("decoding the review: %w", err)
	}
	if review.Kind != "AdmissionReview" || review.APIVersion != "admission.k8s.io/v1" || review.Request == nil {
		return nil, errors.New("the body must be an AdmissionReview of admission.k8s.io/v1 with a request")
	}
	return review, nil
}

// decode reads an object of an admission request the way the API server would: case-sensitive, unknown fields ignored.
func decode(raw runtime.RawExtension, into any, options ...jsonv2.Options) error {
	if len(raw.Raw) == 0 {
		return errors.New("the admission request has no object")
	}
	if err := jsonv2.Unmarshal(raw.Raw, into, options...); err != nil {
		return fmt.Errorf("decoding the object of the admission request: %w", err)
	}
	return nil
}

// unread skips the fields of a Node that no rule reads, which are most of it: its images, its conditions and its managed fields.
//
//nolint:gochecknoglobals // nothing changes it, and it remembers the types that it has seen
var unread = jsonv2.WithUnmarshalers(jsonv2.JoinUnmarshalers(
	skip[[]metav1.ManagedFieldsEntry](), skip[[]corev1.ContainerImage](), skip[[]corev1.NodeCondition](), skip[corev1.ResourceList](),
	skip[[]corev1.AttachedVolume](), skip[[]corev1.NodeRuntimeHandler](), skip[*corev1.NodeConfigStatus](), skip[corev1.NodeSystemInfo](),
))

func skip[T any]() *jsonv2.Unmarshalers {
	return jsonv2.UnmarshalFromFunc(func(decoder *jsontext.Decoder, _ *T) error { return decoder.SkipValue() })
}

func decodeNode(raw runtime.RawExtension) (*corev1.Node, error) {
	node := &corev1.Node{}
	return node, decode(raw, node, unread)
}
