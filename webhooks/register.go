// SPDX-License-Identifier: Apache-2.0

package webhooks

import (
	"sigs.k8s.io/controller-runtime/pkg/webhook"

	"github.com/heirloom-dev/heirloom/pkg/metrics"
	"github.com/heirloom-dev/heirloom/pkg/owners"
)

// The paths that the webhook configurations of the Helm chart call.
const (
	ControlPlanesPath      = "/mutate/controlplanes"
	MachineDeploymentsPath = "/mutate/machinedeployments"
	MachinePoolsPath       = "/mutate/machinepools"
	MachineSetsPath        = "/mutate/machinesets"
	MachinesPath           = "/mutate/machines"
	ExternalPath           = "/mutate/siblings"
	NodesPath              = "/mutate/nodes"
	TaintsPath             = "/validate/taints"
)

// Register adds every webhook to the server.
func Register(server webhook.Server, dependencies Dependencies) {
	reviews := newIntake(managementRoom(), dependencies.Metrics.AdmissionRejected(metrics.ManagementServer))
	for path, d := range handlersOf(dependencies) {
		handler := newReviewer(failOpen{decider: d, metrics: dependencies.Metrics, namespace: dependencies.Namespace})
		server.Register(path, draining{told: dependencies.Draining, Handler: reviews.wrap(handler, byAddress)})
	}
}

// handlersOf returns those of all webhooks, by their paths.
func handlersOf(dependencies Dependencies) map[string]decider {
	ownNodes := dependencies
	ownNodes.Chain = dependencies.Chain.Within(dependencies.ManagementCluster)
	return map[string]decider{
		ControlPlanesPath:      children{dependencies, owners.ControlPlanes},
		MachineDeploymentsPath: children{dependencies, owners.MachineDeployments},
		MachinePoolsPath:       children{dependencies, owners.MachinePools},
		MachineSetsPath:        children{dependencies, owners.MachineSets},
		MachinesPath:           children{dependencies, owners.Machines},
		ExternalPath:           children{dependencies, owners.ExternalObjects},
		NodesPath:              nodes{ownNodes},
		TaintsPath:             taints{},
	}
}
