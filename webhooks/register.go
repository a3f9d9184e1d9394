// SPDX-License-Identifier: Apache-2.0

package webhooks

import (
	"sigs.k8s.io/controller-runtime/pkg/webhook"

	"github.com/heirloom-dev/heirloom/pkg/metrics"
	"github.com/heirloom-dev/heirloom/pkg/ownerchain"
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
	dependencies.Chain = dependencies.Chain.Remembering()
	reviews := newIntake(managementRoom(), dependencies.Metrics.AdmissionRejected(metrics.ManagementServer))
	for path, d := range handlersOf(dependencies) {
		handler := newReviewer(failOpen{decider: d, metrics: dependencies.Metrics, namespace: dependencies.Namespace})
		server.Register(path, draining{told: dependencies.Draining, Handler: reviews.wrap(handler, byAddress)})
	}
}

// handlersOf returns those of all webhooks, by their paths.
func handlersOf(dependencies Dependencies) map[string]decider {
	return map[string]decider{
		ControlPlanesPath:      childrenOf(dependencies, ownerchain.ControlPlanes()),
		MachineDeploymentsPath: childrenOf(dependencies, ownerchain.MachineDeployments()),
		MachinePoolsPath:       childrenOf(dependencies, ownerchain.MachinePools()),
		MachineSetsPath:        childrenOf(dependencies, ownerchain.MachineSets()),
		MachinesPath:           childrenOf(dependencies, ownerchain.Machines()),
		ExternalPath:           childrenOf(dependencies, ownerchain.ExternalObjects()),
		NodesPath:              nodesOf(dependencies, dependencies.ManagementCluster),
		TaintsPath:             taints{},
	}
}
