// SPDX-License-Identifier: Apache-2.0

package app

import (
	"context"
	"fmt"
	"runtime/debug"
	"time"

	"github.com/go-logr/logr"
	"github.com/prometheus/client_golang/prometheus"
	ctrl "sigs.k8s.io/controller-runtime"
	ctrlmetrics "sigs.k8s.io/controller-runtime/pkg/metrics"
)

// settling is how often a replica checks whether it has work. It has settled once it had none twice in a row.
const settling = 500 * time.Millisecond

// memoryReturn returns to the operating system what a start took: once the caches are filled, and once the replica, as the leader, has
// gone through everything for the first time. Go itself would keep about as much in reserve as the caches need.
type memoryReturn struct {
	log logr.Logger
	// filled waits for the caches, and elected is closed when the replica leads.
	filled  func(context.Context) bool
	elected <-chan struct{}
	// busy reports whether anything waits to be handled, or is being handled.
	busy    func() (bool, error)
	release func()
}

func addMemoryReturn(mgr ctrl.Manager) error {
	err := mgr.Add(&memoryReturn{
		log: ctrl.Log, filled: mgr.GetCache().WaitForCacheSync, elected: mgr.Elected(),
		busy: func() (bool, error) { return busy(ctrlmetrics.Registry) }, release: debug.FreeOSMemory,
	})
	if err != nil {
		return fmt.Errorf("adding what returns memory: %w", err)
	}
	return nil
}

// NeedLeaderElection implements manager.LeaderElectionRunnable.
func (*memoryReturn) NeedLeaderElection() bool { return false }

// Start implements manager.Runnable.
func (m *memoryReturn) Start(ctx context.Context) error {
	if !m.filled(ctx) {
		return nil
	}
	for leads := false; !leads; {
		if !m.settle(ctx) {
			return nil
		}
		leads = m.leads()
		if !m.releases(ctx) {
			return nil
		}
		m.log.Info("Returned the memory that the start took", "leader", leads)
		if leads {
			return nil
		}
		select {
		case <-ctx.Done():
			return nil
		case <-m.elected:
		}
	}
	return nil
}

// releases returns memory, and reports whether that came before ctx was done: on a busy machine it takes seconds, and a program that is
// told to stop does not have them.
func (m *memoryReturn) releases(ctx context.Context) bool {
	released := make(chan struct{})
	go func() {
		defer close(released)
		m.release()
	}()
	select {
	case <-ctx.Done():
		return false
	case <-released:
		return true
	}
}

func (m *memoryReturn) leads() bool {
	select {
	case <-m.elected:
		return true
	default:
		return false
	}
}

// settle waits until there is nothing to do, and reports whether that came before ctx was done.
func (m *memoryReturn) settle(ctx context.Context) bool {
	ticker := time.NewTicker(settling)
	defer ticker.Stop()
	for idle := 0; idle < 2; {
		select {
		case <-ctx.Done():
			return false
		case <-ticker.C:
		}
		idle++
		if busy, err := m.busy(); err != nil || busy {
			idle = 0
		}
	}
	return true
}

// busy reports whether a queue of controller-runtime has anything, or one of its workers is at work.
func busy(from prometheus.Gatherer) (bool, error) {
	families, err := from.Gather()
	if err != nil {
		return false, fmt.Errorf("reading how much there is to do: %w", err)
	}
	work := 0.0
	for _, family := range families {
		if name := family.GetName(); name == "workqueue_depth" || name == "controller_runtime_active_workers" {
			for _, metric := range family.GetMetric() {
				work += metric.GetGauge().GetValue()
			}
		}
	}
	return work > 0, nil
}
