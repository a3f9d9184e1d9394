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
	// answerTimeout is how long the API server may take to write an object of a provider's kind. It asks the provider's own
	// webhooks, for each of which it waits half a minute.
	answerTimeout = 10 * time.Second
	// mostForLate is how many workers of a controller a kind may occupy while its writes are not answered.
	mostForLate = 2
)

// errLate is the error of a write that is not tried, because enough workers wait for others of its kind already.
var errLate = errors.New("others of this kind wait for an answer of the API server")

// patience bounds what the writes of a provider's kind cost when nobody answers them: each a while, and after the first only
// few workers at a time.
type patience struct {
	mu sync.Mutex
	// writing is how many workers write objects of a kind, late whether the last such write was not answered.
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
