// SPDX-License-Identifier: Apache-2.0

package resync

import (
	"slices"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/event"
)

// ManagementCluster finds out which Cluster is the management cluster itself.
type ManagementCluster interface {
	// Claims returns the Clusters that have been found to be it. If there are several, none of them counts.
	Claims() []types.NamespacedName
	// Subscribe returns a channel that gets an event whenever Claims answers differently from before.
	Subscribe() <-chan event.GenericEvent
}

// changesOfManagementCluster gets an event whenever another Cluster is the management cluster itself.
func (d Dependencies) changesOfManagementCluster() <-chan event.GenericEvent {
	if d.ManagementCluster == nil {
		return make(chan event.GenericEvent)
	}
	return d.ManagementCluster.Subscribe()
}

// tellClaim reports on a Cluster, once, that it is the management cluster itself, or why it does not count as that.
func (r workloadReconciler) tellClaim(cluster *clusterv1.Cluster) {
	if r.ManagementCluster == nil {
		return
	}
	claims, key := r.ManagementCluster.Claims(), client.ObjectKeyFromObject(cluster)
	mine := slices.Contains(claims, key)
	found, rivals := mine && len(claims) == 1, mine && len(claims) > 1
	if was := r.found.set(key, found); found && !was {
		r.Recorder.Eventf(cluster, nil, corev1.EventTypeNormal, reasonManagementClusterFound, "Connect",
			"The kubeconfig leads to the management cluster itself, so its Nodes inherit from the Machines of this Cluster")
	}
	if was := r.rivals.set(key, rivals); rivals && !was {
		r.Recorder.Eventf(cluster, nil, corev1.EventTypeWarning, reasonManagementClusterAmbiguous, "Connect",
			"The kubeconfigs of %d Clusters lead to the management cluster itself, so none of its Nodes inherits: %v; see --management-cluster", len(claims), claims)
	}
}
