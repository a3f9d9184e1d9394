// SPDX-License-Identifier: Apache-2.0

// Package workload admits the Nodes of workload clusters: by policy, by webhook, or not at all. It chooses the way if the
// operator has not, sets it up, removes the others, and reports what it did. Its subpackage connect reaches workload clusters;
// webhook and policy are the ways.
package workload

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/cluster-api/controllers/clustercache"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/event"

	"github.com/heirloom-dev/heirloom/pkg/workload/policy"
	"github.com/heirloom-dev/heirloom/pkg/workload/webhook"
)

// AdmissionLabel on a Cluster says how its Nodes are admitted. The default is --workload-admission.
const AdmissionLabel = "heirloom.dev/workload-admission"

// The ways to admit the Nodes of workload clusters: values of AdmissionLabel and of --workload-admission.
const (
	// AdmitAutomatically leaves the choice to Heirloom: by policy where the workload cluster can have one, otherwise by
	// webhook where there is a URL for it, otherwise by the loop.
	AdmitAutomatically = "auto"
	// AdmitByLoop means that nothing is done in admission: the loop applies what a Node inherits.
	AdmitByLoop    = "none"
	AdmitByWebhook = "webhook"
	AdmitByPolicy  = "policy"
)

// handover is how long API servers may take to use a way that was just set up. The previous way stays that long.
const handover = 10 * time.Second

// Way makes Nodes of a workload cluster inherit in the write that creates them.
type Way interface {
	// Ensure sets it up, and reports, even with an error, whether the API server was told anything new about how to admit Nodes.
	// The client reads from the workload cluster's API server.
	Ensure(ctx context.Context, server client.Client, cluster webhook.Identity) (registered bool, err error)
	// Remove removes it, and reports whether it was there.
	Remove(ctx context.Context, server client.Client, cluster webhook.Identity) (removed bool, err error)
}

// Admission admits the Nodes of workload clusters. It remembers what it chose and reported for each.
type Admission struct {
	// Default is the way of Clusters without AdmissionLabel.
	Default string
	// Ways are the available ways, by name.
	Ways map[string]Way
	// Changes gets an event whenever all workload clusters need another look.
	Changes <-chan event.GenericEvent

	// known has a memory for each Cluster, by name. Only one visit at a time changes a Cluster's memory.
	known sync.Map
}

// memory is what is remembered of a Cluster.
type memory struct {
	// way was chosen by Heirloom; AdmitByLoop if an operator has chosen, and empty if there is no choice yet.
	way string
	// told is the last note that the way is not the best one.
	told string
	// registered is when an API server was last told how to admit Nodes.
	registered time.Time
}

func (a *Admission) memory(cluster types.NamespacedName) memory {
	known, _ := a.known.Load(cluster)
	m, _ := known.(memory)
	return m
}

// Forget drops the memory of a Cluster that is gone.
func (a *Admission) Forget(cluster types.NamespacedName) { a.known.Delete(cluster) }

// Of returns the name of the way in which the Nodes of the Cluster should be admitted.
func (a *Admission) Of(cluster metav1.Object) string {
	if way, ok := cluster.GetLabels()[AdmissionLabel]; ok {
		return way
	}
	return a.Default
}

// FollowsMachines reports whether a change of a Machine may require a new write of what admits the Nodes of the Cluster.
func (a *Admission) FollowsMachines(cluster metav1.Object) bool {
	way := a.Of(cluster)
	if way == AdmitAutomatically {
		way = cmp.Or(a.memory(webhook.IdentityOf(cluster).NamespacedName).way, AdmitByPolicy)
	}
	return way == AdmitByPolicy
}

// Did is what was done about a way.
type Did string

// The values of Did.
const (
	// Registered and Removed say that an API server was told to start, or to stop, admitting Nodes in that way.
	Registered Did = "Registered"
	Removed    Did = "Removed"
	// Foreign says that the existing configuration belongs to another Heirloom, and was kept.
	Foreign Did = "Foreign"
	// FellBack says that the way is not the best one, because a better one is not possible.
	FellBack Did = "FellBack"
	// Failed, Unknown, NotServed and NoRoom say that the way is not possible, at least for some Machines: because of an error,
	// because no way has that name, because the API server does not know it, or because there are too many Machines.
	Failed    Did = "Failed"
	Unknown   Did = "Unknown"
	NotServed Did = "NotServed"
	NoRoom    Did = "NoRoom"
)

// Outcome is what was done about one way. A way about which nothing was done has no Outcome.
type Outcome struct {
	Did Did
	Way string
	// Note says it to an operator: what it means and, where something is not possible, why.
	Note string
}

// Result is what was done in a workload cluster.
type Result struct {
	// Outcomes are in the order in which things were done.
	Outcomes []Outcome
	// Again is when the previous ways may be removed; zero if nothing is left to do.
	Again time.Duration
}

// Ensure makes a workload cluster admit its Nodes in that way only; with AdmitByLoop, or none, not at all. It sets the way up,
// and removes the others once API servers have heard of it, so that there is no moment without any. If the way cannot be set up,
// they stay.
// The client reads from the workload cluster's API server.
func (a *Admission) Ensure(ctx context.Context, server client.Client, cluster webhook.Identity, way string) (Result, error) {
	v := &visit{Admission: a, memory: a.memory(cluster.NamespacedName), server: server, cluster: cluster, automatic: way == AdmitAutomatically}
	others, err := preferred(), error(nil)
	if v.automatic {
		way, others, err = v.best(ctx)
	} else {
		err = v.asChosen(ctx, way)
	}
	if err != nil {
		return v.result, err
	}
	if again := time.Until(v.registered.Add(handover)); a.Ways[way] != nil && again > 0 {
		v.result.Again = again
		return v.result, nil
	}
	var errs []error
	for _, name := range slices.Backward(others) {
		if a.Ways[name] != nil && name != way {
			errs = append(errs, v.remove(ctx, name))
		}
	}
	return v.result, errors.Join(errs...)
}

// visit is one reconcile of a workload cluster.
type visit struct {
	*Admission
	memory
	server  client.Client
	cluster webhook.Identity
	// automatic says that Heirloom chooses.
	automatic bool
	result    Result
}

// keep remembers what is known now.
func (v *visit) keep() { v.known.Store(v.cluster.NamespacedName, v.memory) }

func (v *visit) note(did Did, way, format string, args ...any) {
	v.result.Outcomes = append(v.result.Outcomes, Outcome{Did: did, Way: way, Note: fmt.Sprintf(format, args...)})
}

// asChosen sets up the way that an operator has chosen.
func (v *visit) asChosen(ctx context.Context, way string) error {
	v.way, v.told = AdmitByLoop, ""
	v.keep()
	if v.Ways[way] != nil {
		return v.setUp(ctx, way)
	}
	if way != "" && way != AdmitByLoop {
		v.note(Unknown, way, "Label %s: Nodes cannot be admitted by %q; see --workload-admission and --workload-webhook-url", AdmissionLabel, way)
	}
	return nil
}

func (v *visit) setUp(ctx context.Context, way string) error {
	registered, err := v.Ways[way].Ensure(ctx, v.server, v.cluster)
	if registered {
		v.registered = time.Now()
		v.keep()
	}
	var noRoom *policy.NoRoomError
	switch {
	case meta.IsNoMatchError(err):
		v.note(NotServed, way, "The API server of the workload cluster does not serve MutatingAdmissionPolicies "+
			"(Kubernetes 1.36 or later does): the loop alone applies what Nodes inherit")
		err = nil
	case errors.As(err, &noRoom):
		v.note(NoRoom, way, "The parameters of the admission policy have no room for %d Machines: "+
			"the loop alone applies what their Nodes inherit", noRoom.Machines)
		err = nil
	}
	return v.done(Registered, way, "The workload cluster's API server now admits Nodes by %s", registered, err)
}

func (v *visit) remove(ctx context.Context, way string) error {
	removed, err := v.Ways[way].Remove(ctx, v.server, v.cluster)
	if errors.Is(err, webhook.ErrForeign) {
		v.note(Foreign, way, "%v", err)
		return nil
	}
	if apierrors.IsForbidden(err) {
		err = nil // a user without the right to look cannot have set it up
	}
	return v.done(Removed, way, "The workload cluster's API server no longer admits Nodes by %s", removed, err)
}

// done notes what was done about a way, if anything, or why it failed. If Heirloom chooses, a refusal is reported as the
// reason for another way.
func (v *visit) done(did Did, way, note string, done bool, err error) error {
	switch {
	case v.automatic && refused(err):
	case err != nil:
		v.failed(way, err)
	case done:
		v.note(did, way, note, way)
	}
	return err
}

// failed notes an error. A lost connection is reported elsewhere, where connections are made.
func (v *visit) failed(way string, err error) {
	if !errors.Is(err, clustercache.ErrClusterNotConnected) {
		v.note(Failed, way, "Nodes are not admitted as they should be, so the loop applies what they inherit; admission by %s: %v", way, err)
	}
}
