// SPDX-License-Identifier: Apache-2.0

package inherit

import (
	"cmp"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"

	"github.com/heirloom-dev/heirloom/pkg/capi"
)

// Fields are the in-place mutable fields of a Machine's spec (docs/design.md §1): those that Cluster API changes on existing
// Machines without a rollout. A field that is nil is not declared.
type Fields struct {
	// The timeouts are in seconds, whatever the version of the API.
	NodeDrainTimeout, NodeVolumeDetachTimeout, NodeDeletionTimeout *int32
	// MinReadySeconds is how long a Machine is ready before it counts as available.
	MinReadySeconds *int32
	ReadinessGates  []clusterv1.MachineReadinessGate
}

// fieldsOf returns the fields of a Machine's spec, or of that in a template. In v1beta1 minReadySeconds is a field of the
// object around the template.
func fieldsOf(spec capi.MachineFields, minReadySeconds *int32) Fields {
	return Fields{
		NodeDrainTimeout:        either(spec.Deletion.NodeDrainTimeoutSeconds, spec.NodeDrainTimeout),
		NodeVolumeDetachTimeout: either(spec.Deletion.NodeVolumeDetachTimeoutSeconds, spec.NodeVolumeDetachTimeout),
		NodeDeletionTimeout:     either(spec.Deletion.NodeDeletionTimeoutSeconds, spec.NodeDeletionTimeout),
		MinReadySeconds:         cmp.Or(spec.MinReadySeconds, minReadySeconds),
		ReadinessGates:          spec.ReadinessGates,
	}
}

// either returns the one of the two versions' fields that is set. Cluster API converts between them in whole seconds.
func either(seconds *int32, duration *metav1.Duration) *int32 {
	if seconds != nil || duration == nil {
		return seconds
	}
	return ptr.To(int32(duration.Duration / time.Second)) //nolint:gosec // Cluster API's own conversion has the same limit
}
