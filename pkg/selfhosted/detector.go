// SPDX-License-Identifier: Apache-2.0

package selfhosted

import (
	"cmp"
	"context"
	"slices"
	"sync"
	"time"

	"golang.org/x/sync/errgroup"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/klog/v2"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/heirloom-dev/heirloom/pkg/broadcast"
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
	Candidates func(ctx context.Context) ([]*clusterv1.Cluster, error)
	// Prove reports whether a Cluster is it. An error says that it could not be found out.
	Prove func(ctx context.Context, cluster types.NamespacedName) (bool, error)
	// Interval is how long one that is it is not asked again. For one that is not, it is the longest pause.
	Interval time.Duration
	// Now is the clock.
	Now func() time.Time

	// known is what was found out when candidates were asked last. Only Detect uses it.
	known map[candidate]finding

	mu     sync.RWMutex
	claims []candidate
}

// candidate is a Cluster. A new one with the same name is another candidate.
type candidate struct {
	name types.NamespacedName
	uid  types.UID
}

// finding is what is known of a candidate.
type finding struct {
	// is says that it is the management cluster itself.
	is bool
	// due is when it is asked again, and pause how long a Cluster that is not it is not asked.
	due   time.Time
	pause time.Duration
}

// Cluster returns the Cluster that is the management cluster itself; nothing if that is not known, or if there are several.
func (d *Detector) Cluster() types.NamespacedName {
	if claims := d.Claims(); len(claims) == 1 {
		return claims[0]
	}
	return types.NamespacedName{}
}

// Claims returns the Clusters that have proved to be it, sorted.
func (d *Detector) Claims() []types.NamespacedName {
	d.mu.RLock()
	defer d.mu.RUnlock()
	var names []types.NamespacedName
	for _, claim := range d.claims {
		names = append(names, claim.name)
	}
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
	d.known = d.ask(ctx, clusters)
	var claims []candidate
	for c, found := range d.known {
		if found.is {
			claims = append(claims, c)
		}
	}
	slices.SortFunc(claims, func(a, b candidate) int { return cmp.Compare(a.name.String(), b.name.String()) })
	if ctx.Err() != nil || slices.Equal(claims, d.claims) {
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

// ask returns what is known of the Clusters once those that are due have been asked. What is no candidate any more is
// forgotten.
func (d *Detector) ask(ctx context.Context, clusters []*clusterv1.Cluster) map[candidate]finding {
	var mu sync.Mutex
	known := map[candidate]finding{}
	var group errgroup.Group
	group.SetLimit(together)
	for _, cluster := range clusters {
		c := candidate{name: client.ObjectKeyFromObject(cluster), uid: cluster.UID}
		group.Go(func() error {
			found := d.find(ctx, c, d.known[c])
			mu.Lock()
			defer mu.Unlock()
			known[c] = found
			return nil
		})
	}
	_ = group.Wait() // each has logged its error
	return known
}

// find asks a candidate if it is due. If it cannot be asked, what was known before stays in force.
func (d *Detector) find(ctx context.Context, c candidate, before finding) finding {
	if d.Now().Before(before.due) {
		return before
	}
	is, err := d.Prove(ctx, c.name)
	if err != nil && ctx.Err() == nil {
		ctrl.LoggerFrom(ctx).Info("Could not find out whether a Cluster is the management cluster itself",
			"Cluster", klog.KRef(c.name.Namespace, c.name.Name), "reason", err.Error())
	}
	if is {
		return finding{is: true, due: d.Now().Add(d.Interval)}
	}
	// It is asked less and less often, because tenants may make any number of candidates.
	pause := min(max(look, 2*before.pause), max(look, d.Interval))
	return finding{is: err != nil && before.is, due: d.Now().Add(pause), pause: pause}
}
