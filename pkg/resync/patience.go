// SPDX-License-Identifier: Apache-2.0

package resync

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"k8s.io/apimachinery/pkg/runtime/schema"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
)

const (
	// answerTimeout is how long the API server may take to write an object of a provider's kind. It calls the provider's own
	// webhooks, and may wait half a minute for each.
	answerTimeout = 10 * time.Second
	// mostForLate is how many workers of a controller a kind may occupy while its writes are not answered.
	mostForLate = 2
)

// errLate is returned for a write that is not tried, because enough workers already wait for others of its kind.
var errLate = errors.New("other writes of this kind still wait for the API server to answer")

// patience bounds what unanswered writes of a provider's kind cost: each times out, and after the first only a few workers
// wait at a time.
type patience struct {
	mu sync.Mutex
	// writing is how many workers write objects of a kind; late is whether the last such write went unanswered.
	writing map[schema.GroupKind]int
	late    map[schema.GroupKind]bool
}

func newPatience() *patience {
	return &patience{writing: map[schema.GroupKind]int{}, late: map[schema.GroupKind]bool{}}
}

// with writes an object of that kind. Cluster API's own kinds are not bounded: without them there is nothing to do.
func (p *patience) with(ctx context.Context, kind schema.GroupKind, write func(context.Context) error) error {
	if kind.Group == clusterv1.GroupVersion.Group {
		return write(ctx)
	}
	if !p.begin(kind) {
		return fmt.Errorf("writing a %s: %w", kind, errLate)
	}
	bounded, cancel := context.WithTimeout(ctx, answerTimeout)
	defer cancel()
	late := false
	defer func() { p.end(kind, late) }()
	err := write(bounded)
	late = err != nil && errors.Is(bounded.Err(), context.DeadlineExceeded)
	return err
}

func (p *patience) begin(kind schema.GroupKind) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.late[kind] && p.writing[kind] >= mostForLate {
		return false
	}
	p.writing[kind]++
	return true
}

func (p *patience) end(kind schema.GroupKind, late bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.writing[kind]--
	p.late[kind] = late
}
