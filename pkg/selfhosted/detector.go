// SPDX-License-Identifier: Apache-2.0

package selfhosted

import (
	"cmp"
	"context"
	"maps"
	"slices"
	"sync"
	"time"

	"golang.org/x/sync/errgroup"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/client-go/util/flowcontrol"
	"k8s.io/klog/v2"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/heirloom-dev/heirloom/pkg/broadcast"
	"github.com/heirloom-dev/heirloom/pkg/capi"
)

const (
	// look is how often the detector looks which Clusters may be it. That costs no request.
	look = 5 * time.Second
	// together is how many Clusters are asked at a time, so that servers which do not answer do not keep others waiting.
	together = 16
)

// Detector holds what is known. It is a manager.Runnable that runs on every replica, because every replica answers
// admission requests.
type Detector struct {
	// Broadcaster tells whenever what is known changes.
	broadcast.Broadcaster
	// Candidates returns the Clusters that may be it, out of the caches: those with Machines that are Nodes of the management
	// cluster.
	Candidates func(ctx context.Context) ([]*capi.Cluster, error)
	// Prove reports whether a Cluster is it. An error says that it could not be found out.
	Prove func(ctx context.Context, cluster types.NamespacedName) (bool, error)
	// Interval is how long one that is it is not asked again, and one that is not at most.
	Interval time.Duration
	// Now is the clock.
	Now func() time.Time

	mu     sync.RWMutex
	claims map[candidate]bool

	// next is when each candidate is asked again, and backoff how long one waits that is not it. Only Start uses them.
	next    map[candidate]time.Time
	backoff *flowcontrol.Backoff
}

// candidate is a Cluster. One that is created anew under the same name is another one.
type candidate struct {
	name types.NamespacedName
	uid  types.UID
}

// Cluster returns the Cluster that is the management cluster itself; nothing if that is not known, or if there are several.
func (d *Detector) Cluster() types.NamespacedName {
	if claims := d.Claims(); len(claims) == 1 {
		return claims[0]
	}
	return types.NamespacedName{}
}

// Claims returns the Clusters that have shown to be it.
func (d *Detector) Claims() []types.NamespacedName {
	d.mu.RLock()
	defer d.mu.RUnlock()
	var names []types.NamespacedName
	for claim := range d.claims {
		names = append(names, claim.name)
	}
	slices.SortFunc(names, func(a, b types.NamespacedName) int { return cmp.Compare(a.String(), b.String()) })
	return names
}

// NeedLeaderElection implements manager.LeaderElectionRunnable.
func (*Detector) NeedLeaderElection() bool { return false }

// Start looks until ctx is done.
func (d *Detector) Start(ctx context.Context) error {
	wait.JitterUntilWithContext(ctx, func(ctx context.Context) {
		if err := d.Detect(ctx); err != nil && ctx.Err() == nil {
			ctrl.LoggerFrom(ctx).Error(err, "Failed to find out which Cluster is the management cluster itself; what was known stays in force")
		}
	}, look, 0.1, true)
	return nil
}

// Detect looks once. It is not called while Start runs.
func (d *Detector) Detect(ctx context.Context) error {
	clusters, err := d.Candidates(ctx)
	if err != nil {
		return err
	}
	claims := d.ask(ctx, clusters)
	if ctx.Err() != nil || maps.Equal(claims, d.known()) {
		return nil
	}
	d.mu.Lock()
	d.claims = claims
	d.mu.Unlock()
	d.Publish()
	switch names := d.Claims(); len(names) {
	case 0:
		ctrl.LoggerFrom(ctx).Info("No Cluster is the management cluster itself any more, so none of its Nodes inherits")
	case 1:
		ctrl.LoggerFrom(ctx).Info("Found out which Cluster is the management cluster itself", "Cluster", klog.KRef(names[0].Namespace, names[0].Name))
	default:
		ctrl.LoggerFrom(ctx).Info("Several Clusters seem to be the management cluster itself, so none of its Nodes inherits; --management-cluster says which it is",
			"clusters", names)
	}
	return nil
}

func (d *Detector) known() map[candidate]bool {
	d.mu.RLock()
	defer d.mu.RUnlock()
	return d.claims
}

// ask returns which of the Clusters are it. Of those that are not due, and of those that could not be asked, what was known
// stays in force; what is no candidate any more is forgotten.
func (d *Detector) ask(ctx context.Context, clusters []*capi.Cluster) map[candidate]bool {
	if d.backoff == nil {
		d.backoff = flowcontrol.NewBackOff(look, max(look, d.Interval))
	}
	known, due := d.known(), map[candidate]time.Time{}
	var mu sync.Mutex
	claims := map[candidate]bool{}
	var group errgroup.Group
	group.SetLimit(together)
	for _, cluster := range clusters {
		c := candidate{name: client.ObjectKeyFromObject(cluster), uid: cluster.UID}
		keep := func(next time.Time, is bool) {
			mu.Lock()
			defer mu.Unlock()
			due[c] = next
			if is {
				claims[c] = true
			}
		}
		if next, ok := d.next[c]; ok && d.Now().Before(next) {
			keep(next, known[c])
			continue
		}
		group.Go(func() error {
			is, err := d.prove(ctx, c)
			keep(d.Now().Add(d.waits(c, is)), is || err != nil && known[c])
			return nil
		})
	}
	_ = group.Wait() // each has told its error
	d.next = due
	d.backoff.GC()
	return claims
}

func (d *Detector) prove(ctx context.Context, c candidate) (bool, error) {
	is, err := d.Prove(ctx, c.name)
	if err != nil && ctx.Err() == nil {
		ctrl.LoggerFrom(ctx).Info("Could not find out whether a Cluster is the management cluster itself",
			"Cluster", klog.KRef(c.name.Namespace, c.name.Name), "reason", err.Error())
	}
	return is, err
}

// waits returns how long a Cluster is not asked again.
func (d *Detector) waits(c candidate, is bool) time.Duration {
	id := string(c.uid)
	if is {
		d.backoff.Reset(id)
		return d.Interval
	}
	d.backoff.Next(id, d.Now())
	return d.backoff.Get(id)
}
