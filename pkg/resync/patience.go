// SPDX-License-Identifier: Apache-2.0

package resync

import (
	"context"
	"errors"
	"fmt"
	"time"

	"k8s.io/apimachinery/pkg/runtime/schema"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
)

const (
	// answerTimeout is how long the API server may take to write an object of a provider's kind. It asks the provider's own
	// webhooks, for each of which it waits half a minute.
	answerTimeout = 10 * time.Second
	// mostForLate is how many workers of a controller a kind may occupy while its writes are not answered.
	mostForLate = 2
)

// errLate is what becomes of a write that is not tried, because enough workers wait for others of its kind already.
var errLate = errors.New("others of this kind wait for an answer of the API server")

// patience bounds what the writes of a provider's kind cost when nobody answers them: each a while, and after the first only
// few workers at a time.
type patience struct {
	share *share
	late  *roll[schema.GroupKind]
}

func newPatience() patience {
	return patience{share: newShare(mostForLate), late: newRoll[schema.GroupKind]()}
}

// with writes an object of that kind. Cluster API's own kinds are not bounded: without them there is nothing to do.
func (p patience) with(ctx context.Context, kind schema.GroupKind, write func(context.Context) error) error {
	if kind.Group == clusterv1.GroupVersion.Group {
		return write(ctx)
	}
	if p.share.take(kind) {
		defer p.share.give(kind)
	} else if p.late.has(kind) {
		return fmt.Errorf("writing a %s: %w", kind, errLate)
	}
	bounded, cancel := context.WithTimeout(ctx, answerTimeout)
	defer cancel()
	err := write(bounded)
	p.late.set(kind, err != nil && errors.Is(bounded.Err(), context.DeadlineExceeded))
	return err
}
