// SPDX-License-Identifier: Apache-2.0

package webhooks

import (
	"context"
	"net/http"
	"time"

	"github.com/heirloom-dev/heirloom/pkg/owners"
	workloadwebhook "github.com/heirloom-dev/heirloom/pkg/workload/webhook"
)

const (
	// LongestAnswer is how long an answer may take in any case: no API server waits longer.
	LongestAnswer = 30 * time.Second
	// longestWorkloadAnswer bounds what a workload cluster can ask for, because Heirloom registers no webhook there that waits longer.
	longestWorkloadAnswer = workloadwebhook.LongestTimeout * time.Second
	// usualTimeout counts for a caller that does not say how long it waits. It is the chart's.
	usualTimeout = 2 * time.Second
	// answerShare and shortestAnswer are what is left of the caller's time for the answer itself: a tenth, and at least so much.
	answerShare, shortestAnswer = 10, 100 * time.Millisecond
)

// within returns a context that ends soon enough for an answer in the time that the caller waits. API servers say in the URL how long that
// is. Everything that can wait takes what is left of it: for room, for the body, for owners.
func within(r *http.Request, longest time.Duration) (context.Context, context.CancelFunc) {
	waits, err := time.ParseDuration(r.URL.Query().Get("timeout"))
	if err != nil || waits <= 0 {
		waits = usualTimeout
	}
	waits = min(waits, longest)
	return context.WithTimeout(r.Context(), waits-max(waits/answerShare, shortestAnswer))
}

// inBudget returns a chain whose live reads take what is left of a request's time.
func inBudget(chain *owners.Chain) *owners.Chain {
	budgeted := *chain
	budgeted.LiveTimeout = LongestAnswer
	return &budgeted
}
