// SPDX-License-Identifier: Apache-2.0

package resync

import (
	"context"
	"fmt"
	"strings"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/heirloom-dev/heirloom/pkg/capi"
	"github.com/heirloom-dev/heirloom/pkg/workload"
)

// handover is how long API servers may take to act by a way to admit Nodes that was just set up. The one before stays as long.
const handover = 10 * time.Second

// preferred are the ways of workload.AdmitAutomatically, the best first.
func preferred() []string {
	return []string{workload.AdmitByPolicy, workload.AdmitByWebhook}
}

// conditional is a NodeAdmission that not every workload cluster can have.
type conditional interface {
	// Lacking says what a workload cluster lacks for it, as a part of a sentence; nothing if it lacks nothing. It is asked
	// often, and makes no request as long as nothing is lacking.
	Lacking(server client.Client) (string, error)
	// Try finds out whether the kubeconfig's user may set it up, and sets up nothing.
	Try(ctx context.Context, server client.Client) error
}

// obstacle is why a way is not taken.
type obstacle struct {
	way, why string
	// refused says that the workload cluster could have it, but does not let the kubeconfig's user set it up.
	refused bool
}

// automatically sets up the best way that the workload cluster can have, and returns its name and those that are to be taken
// away: the worse ones. A better one that is refused now is left, and so is one that an API server does not serve just now,
// as in the middle of an upgrade: it would not work any more when it came back (see docs/workload-clusters.md#limits). With
// an error nobody knows which one is the best.
func (r workloads) automatically(ctx context.Context, cluster *capi.Cluster, server client.Client) (way string, worse []string, err error) {
	key := client.ObjectKeyFromObject(cluster)
	var obstacles []obstacle
	for i, name := range preferred() {
		missing, err := r.obstacle(ctx, key, server, name)
		if err != nil {
			(&registrations{}).tell(r.Recorder, cluster, name, err)
			return "", nil, err
		}
		if missing == nil {
			r.automatic.choose(key, name) // first, so that each Machine that changes from now on wakes the Cluster
			err := r.way(ctx, cluster, server, name, true)
			if !refused(err) {
				r.fallback(cluster, name, obstacles)
				return name, preferred()[i+1:], err
			}
			missing = &obstacle{way: name, why: err.Error(), refused: true}
		}
		obstacles = append(obstacles, *missing)
	}
	r.automatic.choose(key, workload.AdmitByLoop)
	r.fallback(cluster, workload.AdmitByLoop, obstacles)
	return workload.AdmitByLoop, nil, nil
}

// obstacle returns why a workload cluster cannot have a way to admit its Nodes, or nil if it can.
func (r workloads) obstacle(ctx context.Context, cluster types.NamespacedName, server client.Client, name string) (*obstacle, error) {
	way, there := r.Admissions.Ways[name]
	if !there {
		return &obstacle{way: name, why: "there is no URL for it (--workload-webhook-url)"}, nil
	}
	able, ok := way.(conditional)
	if !ok {
		return nil, nil
	}
	if why, err := able.Lacking(server); err != nil || why != "" {
		return &obstacle{way: name, why: why}, err
	}
	if r.automatic.is(cluster, name) {
		return nil, nil // it has been set up
	}
	err := able.Try(ctx, server)
	if refused(err) {
		return &obstacle{way: name, why: err.Error(), refused: true}, nil
	}
	return nil, err
}

// refused reports whether an API server does not let the kubeconfig's user do something. What is not possible because a
// namespace is on its way out will be.
func refused(err error) bool {
	return (apierrors.IsForbidden(err) || apierrors.IsInvalid(err)) && !apierrors.HasStatusCause(err, corev1.NamespaceTerminatingCause)
}

// fallback tells on the Cluster, when that changes, that its Nodes are not admitted in the best way, what that means, and
// what would mend it. That a webhook is called where there are no policies is nothing to mend.
func (r workloads) fallback(cluster *capi.Cluster, way string, obstacles []obstacle) {
	var why []string
	mend := way == workload.AdmitByLoop
	for _, o := range obstacles {
		why = append(why, fmt.Sprintf("Not by %s: %s.", o.way, o.why))
		mend = mend || o.refused
	}
	note := ""
	if mend {
		note = "Nodes are admitted by webhook. "
		if way == workload.AdmitByLoop {
			note = "The loop alone brings new Nodes what they inherit, a moment after they register: until then Pods can be scheduled " +
				"that their taints keep away. Label " + workload.AdmissionLabel + "=none accepts that. "
		}
		note += strings.Join(why, " ")
	}
	if r.automatic.tells(client.ObjectKeyFromObject(cluster), note) {
		r.Recorder.Eventf(cluster, nil, corev1.EventTypeWarning, reasonWorkloadAdmissionFallback, "Admit", "%s", note)
	}
}

// automatic remembers of each Cluster how its Nodes are admitted where that is left to Heirloom, and when that was set up.
type automatic struct {
	mu    sync.Mutex
	found map[types.NamespacedName]found
}

// found is what is remembered of one.
type found struct {
	// way is empty where it is not known.
	way string
	// told is the last note.
	told string
	// registered is when an API server was last told how to admit Nodes.
	registered time.Time
}

func newAutomatic() *automatic {
	return &automatic{found: map[types.NamespacedName]found{}}
}

func (a *automatic) change(cluster types.NamespacedName, change func(*found)) {
	a.mu.Lock()
	defer a.mu.Unlock()
	now := a.found[cluster]
	change(&now)
	a.found[cluster] = now
}

// choose remembers the way.
func (a *automatic) choose(cluster types.NamespacedName, way string) {
	a.change(cluster, func(f *found) { f.way = way })
}

// manual is for a Cluster whose Nodes are admitted as somebody says.
func (a *automatic) manual(cluster types.NamespacedName) {
	a.change(cluster, func(f *found) { f.way, f.told = workload.AdmitByLoop, "" })
}

// is reports whether that way was chosen.
func (a *automatic) is(cluster types.NamespacedName, way string) bool {
	a.mu.Lock()
	defer a.mu.Unlock()
	return a.found[cluster].way == way
}

// mayBe is the same, but true where nothing is known yet.
func (a *automatic) mayBe(cluster types.NamespacedName, way string) bool {
	return a.is(cluster, way) || a.is(cluster, "")
}

// tells reports whether a note is another than the last one, and not empty.
func (a *automatic) tells(cluster types.NamespacedName, note string) (news bool) {
	a.change(cluster, func(f *found) { news, f.told = note != "" && note != f.told, note })
	return news
}

// registered remembers that an API server has been told how to admit Nodes.
func (a *automatic) registered(cluster types.NamespacedName) {
	a.change(cluster, func(f *found) { f.registered = time.Now() })
}

// hears returns how long API servers may still take to hear of it.
func (a *automatic) hears(cluster types.NamespacedName) time.Duration {
	a.mu.Lock()
	defer a.mu.Unlock()
	return max(0, time.Until(a.found[cluster].registered.Add(handover)))
}

// forget is for Clusters that are gone.
func (a *automatic) forget(cluster types.NamespacedName) {
	a.mu.Lock()
	defer a.mu.Unlock()
	delete(a.found, cluster)
}
