// SPDX-License-Identifier: Apache-2.0

package resync

import (
	"fmt"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/client-go/tools/events"
	"sigs.k8s.io/cluster-api/controllers/external"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/builder"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/event"

	"github.com/heirloom-dev/heirloom/pkg/capi"
	"github.com/heirloom-dev/heirloom/pkg/inherit"
	"github.com/heirloom-dev/heirloom/pkg/metrics"
	"github.com/heirloom-dev/heirloom/pkg/ownerchain"
)

// Dependencies are what the controllers of all kinds need.
type Dependencies struct {
	Client   client.Client
	Chain    *ownerchain.Chain
	Metrics  *metrics.Metrics
	Recorder events.EventRecorder
	// Policy returns the rules' options as they are now.
	Policy func() inherit.Policy
	// PolicyChanges returns a channel that gets an event whenever Policy answers differently from before; nil where it
	// never does.
	PolicyChanges func() <-chan event.GenericEvent
}

// Setup adds the loop's controllers to the manager.
func Setup(mgr ctrl.Manager, d Dependencies) error {
	for name, add := range map[string]func(ctrl.Manager, *builder.Builder) error{
		"machineset": d.addMachineSets,
		"machine":    d.addMachines,
		"node":       d.addNodes,
	} {
		if err := add(mgr, ctrl.NewControllerManagedBy(mgr).Named(name)); err != nil {
			return fmt.Errorf("setting up the %s controller: %w", name, err)
		}
	}
	return nil
}

func (d Dependencies) addMachineSets(_ ctrl.Manager, b *builder.Builder) error {
	return b.For(&capi.MachineSet{}).
		Watches(&capi.MachineDeployment{}, d.children(&capi.MachineSetList{})).
		Watches(&capi.Cluster{}, d.members(&capi.MachineSetList{}), builder.WithPredicates(resumed())).
		WatchesRawSource(d.policyChanges(&capi.MachineSetList{})).
		Complete(machineSets{d})
}

func (d Dependencies) addMachines(mgr ctrl.Manager, b *builder.Builder) error {
	log := mgr.GetLogger()
	controlPlanes := &external.ObjectTracker{Cache: mgr.GetCache(), Scheme: mgr.GetScheme(), PredicateLogger: &log}
	controller, err := b.For(&capi.Machine{}).
		Watches(&capi.MachineSet{}, d.children(&capi.MachineList{})).
		Watches(&capi.MachinePool{}, d.children(&capi.MachineList{})).
		Watches(&capi.Cluster{}, d.members(&capi.MachineList{}), builder.WithPredicates(resumed())).
		WatchesRawSource(d.policyChanges(&capi.MachineList{})).
		Build(machines{Dependencies: d, controlPlanes: controlPlanes})
	controlPlanes.Controller = controller
	return err
}

func (d Dependencies) addNodes(_ ctrl.Manager, b *builder.Builder) error {
	return b.For(&corev1.Node{}).
		Watches(&capi.Machine{}, d.nodes()).
		Watches(&capi.MachinePool{}, d.nodesOfPool()).
		Watches(&capi.Cluster{}, d.nodesOfCluster(), builder.WithPredicates(resumed())).
		WatchesRawSource(d.policyChanges(&corev1.NodeList{})).
		Complete(nodes{d})
}
