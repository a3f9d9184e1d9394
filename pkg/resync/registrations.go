// SPDX-License-Identifier: Apache-2.0

package resync

import (
	"context"
	"errors"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/tools/events"
	"sigs.k8s.io/cluster-api/controllers/clustercache"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/apiutil"

	"github.com/heirloom-dev/heirloom/pkg/capi"
)

// registrations is a client of a workload cluster that notes whether what makes its API server ask about Nodes was written
// or deleted. What else is written, such as a policy's parameters with every new Machine, is nothing to tell operators.
type registrations struct {
	client.Client
	written, deleted bool
}

// Apply implements client.Client.
func (c *registrations) Apply(ctx context.Context, config runtime.ApplyConfiguration, options ...client.ApplyOption) error {
	err := c.Client.Apply(ctx, config, options...)
	if object, ok := config.(interface{ GetKind() string }); ok && err == nil && registers(object.GetKind()) {
		c.written = true
	}
	return err
}

// Delete implements client.Client.
func (c *registrations) Delete(ctx context.Context, object client.Object, options ...client.DeleteOption) error {
	err := c.Client.Delete(ctx, object, options...)
	if gvk, unknown := apiutil.GVKForObject(object, c.Scheme()); err == nil && unknown == nil && registers(gvk.Kind) {
		c.deleted = true
	}
	return err
}

func registers(kind string) bool {
	return kind == "MutatingWebhookConfiguration" || kind == "MutatingAdmissionPolicyBinding"
}

// tell reports on the Cluster what has become of the way in which its Nodes are admitted.
func (c *registrations) tell(recorder events.EventRecorder, cluster *capi.Cluster, way string, err error) {
	switch {
	case errors.Is(err, clustercache.ErrClusterNotConnected):
	case err != nil:
		recorder.Eventf(cluster, nil, corev1.EventTypeWarning, reasonWorkloadAdmissionFailed, "Admit",
			"Nodes are not admitted as they should be, the loop alone brings them what they inherit; admission by %s: %v", way, err)
	case c.written:
		recorder.Eventf(cluster, nil, corev1.EventTypeNormal, reasonWorkloadAdmissionRegistered, "Admit",
			"The workload cluster's API server now admits Nodes by %s", way)
	case c.deleted:
		recorder.Eventf(cluster, nil, corev1.EventTypeNormal, reasonWorkloadAdmissionRemoved, "Admit",
			"The workload cluster's API server no longer admits Nodes by %s", way)
	}
}
