// SPDX-License-Identifier: Apache-2.0

package metrics

import (
	"slices"

	"github.com/heirloom-dev/heirloom/pkg/inherit"
)

// Outcome is what came of an admission request.
type Outcome string

// The outcomes of an admission request.
const (
	// Injected: the answer adds or keeps something that the object inherits.
	Injected Outcome = "injected"
	// Unchanged: the object already is what it should be.
	Unchanged Outcome = "unchanged"
	// Unmatched: the object has no owner that is known, or is skipped.
	Unmatched Outcome = "unmatched"
	// Refused: validation refused the object.
	Refused Outcome = "refused"
	// Failed: we could not compute the answer and let the object pass untouched.
	Failed Outcome = "failed"
)

// Server is one of the webhook servers.
type Server string

// The webhook servers.
const (
	// ManagementServer answers the management cluster's API servers.
	ManagementServer Server = "management"
	// WorkloadServer answers those of workload clusters.
	WorkloadServer Server = "workload"
)

// Rejection is why a request was turned away before anything of it was decoded.
type Rejection string

// The reasons.
const (
	// TooLarge: no API server sends a review of this size.
	TooLarge Rejection = "too_large"
	// TooMany: there was no room for it beside others.
	TooMany Rejection = "too_many"
	// TooSlow: its body did not arrive in time.
	TooSlow Rejection = "too_slow"
	// Unauthenticated: it came without a client certificate that is accepted.
	Unauthenticated Rejection = "unauthenticated"
)

// LookupResult is what came of looking an owner up for an admission request.
type LookupResult string

// The results of a look-up.
const (
	// Cached: an informer had the owner.
	Cached LookupResult = "cached"
	// Live: the API server had it, and no informer did.
	Live LookupResult = "live"
	// Missing: it was not found, or the API server was not to be asked.
	Missing LookupResult = "missing"
	// LookupFailed: there was an error.
	LookupFailed LookupResult = "error"
)

// By is what writes.
type By string

// What writes.
const (
	ByAdmission By = "admission"
	ByResync    By = "resync"
)

// KeyChange is what becomes of something that is inherited.
type KeyChange string

// The changes. A new value counts as injected.
const (
	KeyInjected KeyChange = "injected"
	KeyRemoved  KeyChange = "removed"
)

// WriteResult is what came of a write of the resync loop.
type WriteResult string

// The results of a write of the resync loop.
const (
	Applied  WriteResult = "applied"
	Conflict WriteResult = "conflict"
	Error    WriteResult = "error"
)

// Kind is the label for objects of that kind. A forged request can name any kind, so only those that the webhooks are
// registered for have a value of their own, one for those of all providers.
func Kind(group, kind string) string {
	switch {
	case group == inherit.ControlPlaneGroup:
		return "ControlPlane"
	case group == inherit.InfrastructureGroup:
		return "InfraMachine"
	case group == inherit.BootstrapGroup:
		return "BootstrapConfig"
	case slices.Contains([]string{"Cluster", "ClusterClass", "MachineDeployment", "MachineSet", "MachinePool", "Machine", "Node"}, kind):
		return kind
	default:
		return "other"
	}
}
