// SPDX-License-Identifier: Apache-2.0

package workload

import (
	"context"
	"fmt"
	"time"

	"k8s.io/apimachinery/pkg/types"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/heirloom-dev/heirloom/pkg/inherit"
	"github.com/heirloom-dev/heirloom/pkg/workload/policy"
	"github.com/heirloom-dev/heirloom/pkg/workload/webhook"
)

// ByPolicy admits the Nodes of workload clusters by a MutatingAdmissionPolicy there. Remove needs none of its fields.
type ByPolicy struct {
	// Machines are those of a Cluster, as they are and as they will be once they have inherited.
	Machines func(
		ctx context.Context, cluster types.NamespacedName, policy inherit.Policy, wanted func(*clusterv1.Machine) bool,
	) ([]inherit.Machine, error)
	// Policy returns the rules' options as they are now.
	Policy func() inherit.Policy
}

// Ensure implements Way.
func (a ByPolicy) Ensure(ctx context.Context, server client.Client, identity webhook.Identity) (bool, error) {
	rules := a.Policy()
	machines, err := a.Machines(ctx, identity.NamespacedName, rules, func(*clusterv1.Machine) bool { return true })
	if err != nil {
		return false, err
	}
	registered, err := policy.Ensure(ctx, server, identity.NamespacedName, machines, rules, time.Now())
	if err != nil {
		return registered, fmt.Errorf("admitting Nodes by policy: %w", err)
	}
	return registered, nil
}

// Missing implements conditional.
func (a ByPolicy) Missing(server client.Client) (string, error) {
	served, err := policy.Served(server)
	if err != nil || served {
		return "", err
	}
	return "the workload cluster's API server does not serve MutatingAdmissionPolicies (Kubernetes 1.36 or later does)", nil
}

// Try implements conditional.
func (a ByPolicy) Try(ctx context.Context, server client.Client) error {
	return policy.Try(ctx, server)
}

// Remove implements Way.
func (a ByPolicy) Remove(ctx context.Context, server client.Client, _ webhook.Identity) (bool, error) {
	removed, err := policy.Remove(ctx, server)
	if err != nil {
		return removed, fmt.Errorf("removing the admission policy: %w", err)
	}
	return removed, nil
}
