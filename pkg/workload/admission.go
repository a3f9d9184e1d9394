// SPDX-License-Identifier: Apache-2.0

// Package workload sets up the admission of Nodes in workload clusters: by policy, by webhook, or not at all. If the operator has not
// chosen a way, it chooses the best available way. It sets this way up, removes the others, and reports its changes. Its subpackage connect
// makes the connections to workload clusters; webhook and policy implement the ways.
package workload

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/go-logr/logr"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/cluster-api/controllers/clustercache"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/apiutil"
	"sigs.k8s.io/controller-runtime/pkg/event"

	"github.com/heirloom-dev/heirloom/pkg/inherit"
	"github.com/heirloom-dev/heirloom/pkg/workload/policy"
	"github.com/heirloom-dev/heirloom/pkg/workload/webhook"
)

// The reasons of the Events on a Cluster about how its Nodes are admitted. docs/monitoring.md explains each reason.
const (
	ReasonRegistered = "WorkloadAdmissionRegistered"
	ReasonRemoved    = "WorkloadAdmissionRemoved"
	ReasonFailed     = "WorkloadAdmissionFailed"
	ReasonFallback   = "WorkloadAdmissionFallback"
	ReasonUnknown    = "UnknownWorkloadAdmission"
	ReasonNotServed  = "NoAdmissionPolicies"
	ReasonNoRoom     = "AdmissionPolicyFull"
)

// handover is the time that API servers get to use a way that was just set up. The previous way stays for this time.
const handover = 10 * time.Second

// share and longestRest limit how often the parameters of a Cluster's policy are computed: after a set-up, they are not computed again for
// share times as long as the set-up took, at most for longestRest.
const share, longestRest = 10, 30 * time.Second

// discoverEvery is the time until the next attempt if an API server does not say whether it serves admission policies.
const discoverEvery = time.Minute

// errNoAPIServer replaces the message of a server that does not answer like an API server.
var errNoAPIServer = errors.New("it does not answer like an API server")

// preferred has the ways that inherit.AdmitAutomatically tries, the best first.
var preferred = []string{inherit.AdmitByPolicy, inherit.AdmitByWebhook}

// Way makes Nodes of a workload cluster inherit in the write that creates them.
type Way interface {
	// Ensure sets the way up. registered reports, even with an error, whether the API server has a new configuration for the admission of
	// Nodes. The client reads from the workload cluster's API server.
	Ensure(ctx context.Context, server client.Client, cluster webhook.Identity) (registered bool, err error)
	// Remove removes the way, and reports whether it was there.
	Remove(ctx context.Context, server client.Client, cluster webhook.Identity) (removed bool, err error)
}

// ByPolicy admits the Nodes of workload clusters by a MutatingAdmissionPolicy there. Remove needs only Installed.
type ByPolicy struct {
	// Installed is the name of the installed webhook configuration.
	Installed string
	// Machines returns the Machines of a Cluster, as they are and as they will be after they have inherited, and the policy for their Nodes.
	Machines func(ctx context.Context, cluster types.NamespacedName, policy inherit.Policy) ([]inherit.Machine, inherit.Policy, error)
	// Policy returns the current settings of the rules.
	Policy func() inherit.Policy
}

// Owner returns the owner of a Cluster's policy. A second Heirloom in the management cluster has another webhook configuration, and a Cluster
// in a restored copy of the management cluster has another UID.
func (a ByPolicy) Owner(cluster webhook.Identity) string {
	return a.Installed + "/" + cluster.String() + "/" + string(cluster.UID)
}

// Ensure implements Way.
func (a ByPolicy) Ensure(ctx context.Context, server client.Client, cluster webhook.Identity) (bool, error) {
	machines, rules, err := a.Machines(ctx, cluster.NamespacedName, a.Policy())
	if err != nil {
		return false, webhook.OwnError{Err: err}
	}
	return policy.Ensure(ctx, server, a.Owner(cluster), machines, rules)
}

// Remove implements Way.
func (a ByPolicy) Remove(ctx context.Context, server client.Client, cluster webhook.Identity) (bool, error) {
	return policy.Remove(ctx, server, a.Owner(cluster))
}

// Admission admits the Nodes of workload clusters.
type Admission struct {
	// Default is the way of Clusters without inherit.AdmissionLabel.
	Default string
	// Ways are the available ways, by name.
	Ways map[string]Way
	// Changes delivers an event when the admission of all workload clusters must be checked again.
	Changes <-chan event.GenericEvent

	// All three have the Cluster's name as key. chosen has the way (a string) that inherit.AdmitAutomatically has found. registered has the
	// time.Time at which the API server last got a new configuration for the admission of Nodes. Before the time.Time in rests, Ensure does
	// nothing.
	chosen, registered, rests sync.Map
}

// Forget drops the state of a Cluster that is gone.
func (a *Admission) Forget(cluster types.NamespacedName) {
	a.chosen.Delete(cluster)
	a.registered.Delete(cluster)
	a.rests.Delete(cluster)
}

// Of returns the name of the way in which the Nodes of the Cluster should be admitted.
func (a *Admission) Of(cluster metav1.Object) string {
	if way, ok := cluster.GetLabels()[inherit.AdmissionLabel]; ok {
		return way
	}
	return a.Default
}

// FollowsMachines reports whether a change of a Machine may require a new write of the parameters of the Cluster's policy.
func (a *Admission) FollowsMachines(cluster metav1.Object) bool {
	if way := a.Of(cluster); way != inherit.AdmitAutomatically {
		return way == inherit.AdmitByPolicy
	}
	chosen, known := a.chosen.Load(webhook.IdentityOf(cluster).NamespacedName)
	return !known || chosen == inherit.AdmitByPolicy
}

// visit is one run of Ensure for a workload cluster.
type visit struct {
	*Admission
	server  client.Client
	cluster webhook.Identity
	tell    func(reason, note string)
	// undiscovered says that the API server did not say whether it serves admission policies: the loop adds the entries meanwhile.
	undiscovered bool
}

// Ensure sets up this way to admit the Nodes of a workload cluster, and removes the others; with inherit.AdmitByLoop, or a way that is not
// available, it only removes. It removes the others after API servers have had time to use the new way (handover), so that Nodes are
// admitted at every moment. again is the time until the next call is needed, zero if nothing is left to do. If the way cannot be set up,
// the others stay. tell is called with a reason and a sentence for an operator. The client reads from the workload cluster's API server. A
// Cluster rests after its policy was set up, so that frequent changes take only a small part of a processor: until the rest is over, Ensure
// does nothing.
func (a *Admission) Ensure(
	ctx context.Context, server client.Client, cluster webhook.Identity, way string, tell func(reason, note string),
) (again time.Duration, err error) {
	if rest := time.Until(timeOf(&a.rests, cluster)); rest > 0 {
		return rest, nil
	}
	ctx = ctrl.LoggerInto(ctx, logr.Discard()) // an API server may answer with any number of warnings
	v, others := &visit{Admission: a, server: server, cluster: cluster, tell: tell}, preferred
	if way == inherit.AdmitAutomatically {
		way, others, err = v.best(ctx)
	} else {
		err = v.setUpChosen(ctx, way)
	}
	if err != nil {
		return 0, err
	}
	if again := time.Until(timeOf(&a.registered, cluster).Add(handover)); a.Ways[way] != nil && again > 0 {
		return again, nil
	}
	var errs []error
	for _, other := range slices.Backward(others) {
		if a.Ways[other] != nil && other != way {
			errs = append(errs, v.remove(ctx, other))
		}
	}
	if v.undiscovered {
		again = discoverEvery
	}
	return again, errors.Join(errs...)
}

func timeOf(times *sync.Map, cluster webhook.Identity) time.Time {
	stored, _ := times.Load(cluster.NamespacedName)
	at, _ := stored.(time.Time)
	return at
}

// setUpChosen sets up the way that an operator has chosen.
func (v *visit) setUpChosen(ctx context.Context, way string) error {
	if v.Ways[way] == nil {
		if way != "" && way != inherit.AdmitByLoop {
			v.tell(ReasonUnknown, fmt.Sprintf("Label %s: admission by %q is not available; see --workload-admission and --workload-webhook-url", inherit.AdmissionLabel, way))
		}
		return nil
	}
	err := v.setUp(ctx, way)
	if isUndiscovered(err) {
		v.undiscovered = true
		v.tell(ReasonFailed, "The workload cluster's API server does not say whether it serves MutatingAdmissionPolicies; the loop still adds inherited entries")
		return nil
	}
	if meta.IsNoMatchError(err) {
		v.tell(ReasonNotServed, "The workload cluster's API server does not serve MutatingAdmissionPolicies "+
			"(Kubernetes 1.36 or later does): only the loop adds inherited entries to Nodes")
		return nil
	}
	return v.failed(way, err)
}

// best sets up the best way that the workload cluster supports. It returns the name of this way, and the worse ways, which the caller
// removes. It keeps a better way that the API server refuses now, or does not serve now, as in the middle of an upgrade: otherwise the
// better way would not work when the API server serves it again (see docs/workload-clusters.md#limits).
func (v *visit) best(ctx context.Context) (way string, worse []string, err error) {
	var reasons []string
	mend := false
	for i, way := range preferred {
		why := "--workload-webhook-url is not set"
		if v.Ways[way] != nil {
			err := v.setUp(ctx, way)
			switch {
			case isUndiscovered(err):
				why, v.undiscovered = "the workload cluster's API server does not say whether it serves MutatingAdmissionPolicies", true
			case refused(err):
				why, mend = Told(err).Error(), true
			case meta.IsNoMatchError(err):
				why = "the workload cluster's API server does not serve MutatingAdmissionPolicies (Kubernetes 1.36 or later does)"
			default:
				v.chosen.Store(v.cluster.NamespacedName, way)
				if mend {
					v.tell(ReasonFallback, "Nodes are admitted by webhook. "+strings.Join(reasons, " "))
				}
				return way, preferred[i+1:], v.failed(way, err)
			}
		}
		reasons = append(reasons, fmt.Sprintf("Not by %s: %s.", way, why))
	}
	if before, _ := v.chosen.Swap(v.cluster.NamespacedName, inherit.AdmitByLoop); before == inherit.AdmitByLoop && v.undiscovered {
		return inherit.AdmitByLoop, nil, nil // it has been said
	}
	v.tell(ReasonFallback, "Only the loop adds inherited entries to new Nodes, a moment after they register: until then, Pods that do not tolerate "+
		"their taints can be scheduled there. To accept this, set the label "+inherit.AdmissionLabel+"=none. "+strings.Join(reasons, " "))
	return inherit.AdmitByLoop, nil, nil
}

// setUp sets up a way. It reports a new registration and a lack of room; it returns all other errors without a report.
func (v *visit) setUp(ctx context.Context, way string) error {
	began := time.Now()
	registered, err := v.Ways[way].Ensure(ctx, v.server, v.cluster)
	if _, computes := v.Ways[way].(ByPolicy); computes {
		v.rests.Store(v.cluster.NamespacedName, time.Now().Add(min(share*time.Since(began), longestRest)))
	}
	if registered {
		v.registered.Store(v.cluster.NamespacedName, time.Now())
	}
	var noRoom *policy.NoRoomError
	if errors.As(err, &noRoom) {
		v.tell(ReasonNoRoom, fmt.Sprintf("The parameters of the admission policy have no room for %d Machines: "+
			"only the loop adds inherited entries to their Nodes", noRoom.Machines))
		err = nil
	}
	if registered && err == nil {
		v.tell(ReasonRegistered, "The workload cluster's API server now admits Nodes by "+way)
	}
	return err
}

// refused reports whether the API server forbids a request to the user of the kubeconfig, or refuses the object as invalid.
func refused(err error) bool { return apierrors.IsForbidden(err) || apierrors.IsInvalid(err) }

// isUndiscovered reports whether an API server answered discovery with an error, as some do for a group that they do not know. This error
// needs no attention: nothing could be set up there, and the loop does the work.
func isUndiscovered(err error) bool {
	var failed *apiutil.ErrResourceDiscoveryFailed
	return errors.As(err, &failed) && !meta.IsNoMatchError(err)
}

func (v *visit) remove(ctx context.Context, way string) error {
	removed, err := v.Ways[way].Remove(ctx, v.server, v.cluster)
	if isUndiscovered(err) {
		v.undiscovered, err = true, nil
	}
	if errors.Is(err, webhook.ErrForeign) || errors.Is(err, policy.ErrForeign) || apierrors.IsForbidden(err) {
		err = nil // another Heirloom has set it up, or nobody: a user without the right to get it cannot have done so
	}
	if removed && err == nil {
		v.tell(ReasonRemoved, "The workload cluster's API server no longer admits Nodes by "+way)
	}
	return v.failed(way, err)
}

// failed reports an error, and returns it. The code that makes connections reports lost connections.
func (v *visit) failed(way string, err error) error {
	if err == nil || errors.Is(err, clustercache.ErrClusterNotConnected) {
		return err
	}
	v.tell(ReasonFailed, fmt.Sprintf("Failed to set up admission of Nodes by %s; the loop still adds inherited entries: %v", way, Told(err)))
	return fmt.Errorf("admitting Nodes by %s: %w", way, err)
}

// Told returns the part of a workload cluster's error that objects of the management cluster may show. The author of a kubeconfig, or the
// server that answers its requests, chooses which server is asked: by a redirect, this can be an internal service. Its answer is for the
// log alone.
func Told(err error) error {
	if joined, ok := err.(interface{ Unwrap() []error }); ok {
		var told []error
		for _, err := range joined.Unwrap() {
			told = append(told, Told(err))
		}
		return errors.Join(told...)
	}
	var status apierrors.APIStatus
	switch {
	case errors.As(err, &status) && !apierrors.IsUnexpectedServerError(err),
		errors.As(err, &webhook.OwnError{}), errors.Is(err, context.DeadlineExceeded):
		return err
	}
	return errNoAPIServer
}
