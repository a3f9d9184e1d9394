// SPDX-License-Identifier: Apache-2.0

package webhooks

import (
	"context"
	"net/http"
	"time"

	workloadwebhook "github.com/heirloom-dev/heirloom/pkg/workload/webhook"
)

const (
	// LongestAnswer is the maximum time for any answer: no API server waits longer.
	LongestAnswer = 30 * time.Second
	// longestWorkloadAnswer is the maximum time that a workload cluster can ask for: Heirloom registers no webhook there that waits longer.
	longestWorkloadAnswer = workloadwebhook.LongestTimeout * time.Second
	// usualTimeout is for a caller that does not say how long it waits. It is the chart's default.
	usualTimeout = 2 * time.Second
	// answerShare and shortestAnswer define the part of the caller's time that is kept for the answer itself: a tenth, and at least 100 ms.
	answerShare, shortestAnswer = 10, 100 * time.Millisecond
)

// within returns a context that ends soon enough for an answer in the time that the caller waits. API servers name this time in the URL.
// All waits share it: for room, for the body, for owners.
func within(r *http.Request, longest time.Duration) (context.Context, context.CancelFunc) {
	waits, err := time.ParseDuration(r.URL.Query().Get("timeout"))
	if err != nil || waits <= 0 {
		waits = usualTimeout
	}
	waits = min(waits, longest)
	return context.WithTimeout(r.Context(), waits-max(waits/answerShare, shortestAnswer))
}
