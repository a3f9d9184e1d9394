// SPDX-License-Identifier: Apache-2.0

package resync

import (
	"context"
	"errors"
	"fmt"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/tools/events"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/heirloom-dev/heirloom/pkg/capi"
	"github.com/heirloom-dev/heirloom/pkg/inherit"
	"github.com/heirloom-dev/heirloom/pkg/ownerchain"
	"github.com/heirloom-dev/heirloom/pkg/workload/policy"
	"github.com/heirloom-dev/heirloom/pkg/workload/webhook"
)

// many is for how many Machines the parameters of a policy are kept in any case: twice as many as Kubernetes supports Nodes
// in a cluster. Beyond it, those whose Nodes are there already are left out: if such a Node registers anew, the loop brings
// it what it inherits.
const many = 10_000

// PolicyAdmission admits the Nodes of workload clusters by a MutatingAdmissionPolicy there.
type PolicyAdmission struct {
	Chain    *ownerchain.Chain
	Policy   func() inherit.Policy
	Recorder events.EventRecorder
}

// Ensure implements NodeAdmission.
func (a PolicyAdmission) Ensure(ctx context.Context, workload client.Client, identity webhook.Identity) error {
	rules, cluster := a.Policy(), identity.NamespacedName
	machines, err := a.Chain.EffectiveMachines(ctx, cluster, rules)
	if err != nil {
		return err
	}
	syncer := policy.Syncer{}
	if len(machines) > many {
		syncer.Registered = func(_ types.NamespacedName, m *capi.Machine) bool { return m.Status.NodeRef.Name != "" }
	}
	err = syncer.Ensure(ctx, workload, cluster, machines, rules)
	var noRoom *policy.NoRoomError
	switch {
	case meta.IsNoMatchError(err):
		return a.tell(ctx, cluster, reasonNoAdmissionPolicies, "The API server of the workload cluster does not serve MutatingAdmissionPolicies "+
			"(Kubernetes 1.36 or later does): the loop alone brings Nodes what they inherit")
	case errors.As(err, &noRoom):
		return a.tell(ctx, cluster, reasonAdmissionPolicyFull, fmt.Sprintf("The parameters of the admission policy have no room for %d Machines: "+
			"the loop alone brings their Nodes what they inherit", noRoom.Machines))
	case err != nil:
		return fmt.Errorf("admitting Nodes by policy: %w", err)
	}
	return nil
}

// Lacking implements conditional.
func (a PolicyAdmission) Lacking(workload client.Client) (string, error) {
	served, err := policy.Served(workload)
	if err != nil || served {
		return "", err
	}
	return "the workload cluster's API server does not serve MutatingAdmissionPolicies (Kubernetes 1.36 or later does)", nil
}

// Try implements conditional.
func (a PolicyAdmission) Try(ctx context.Context, workload client.Client) error {
	return policy.Try(ctx, workload)
}

// tell reports on the Cluster what cannot be mended by trying again.
func (a PolicyAdmission) tell(ctx context.Context, key types.NamespacedName, reason, note string) error {
	cluster, err := a.Chain.Cluster(ctx, key.Namespace, key.Name)
	if err != nil || cluster == nil {
		return err
	}
	a.Recorder.Eventf(cluster, nil, corev1.EventTypeWarning, reason, "Admit", "%s", note)
	return nil
}

// Remove implements NodeAdmission.
func (a PolicyAdmission) Remove(ctx context.Context, workload client.Client, _ webhook.Identity) error {
	if err := (policy.Syncer{}).Remove(ctx, workload); err != nil {
		return fmt.Errorf("removing the admission policy: %w", err)
	}
	return nil
}
