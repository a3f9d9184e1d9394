// SPDX-License-Identifier: Apache-2.0

package scenes

import (
	"context"
	"errors"
	"fmt"
	"time"

	"golang.org/x/sync/errgroup"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/sets"
	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/utils/ptr"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/heirloom-dev/heirloom/pkg/taint"
	"github.com/heirloom-dev/heirloom/test/stage"
)

// fleet is a MachineDeployment in a world.
type fleet struct {
	*world
	md *clusterv1.MachineDeployment
}

const (
	poolLabel, roleLabel = "node.cluster.x-k8s.io/pool", "node-role.kubernetes.io/worker"
	alwaysTaint          = "dedicated"
)

// declared returns the declarations of every MachineDeployment: labels for Nodes, of which a kubelet may set only the first, and a taint.
func declared() stage.Declared {
	return stage.Declared{
		Labels:      map[string]string{poolLabel: "bench", roleLabel: "", "team": "bench"},
		Annotations: map[string]string{"node.cluster.x-k8s.io/note": "bench", taint.AlwaysAnnotation: alwaysTaint + "=bench:NoSchedule"},
	}
}

// addFleet creates a MachineDeployment without Machines.
func (w *world) addFleet(ctx context.Context, name string) (*fleet, error) {
	md := stage.MachineDeployment(w.cluster, name, declared())
	md.Spec.Replicas = ptr.To(int32(0))
	spec := &md.Spec.Template.Spec
	spec.InfrastructureRef = reference(infrastructureGroup, "FakeMachineTemplate")
	spec.Bootstrap = clusterv1.Bootstrap{ConfigRef: reference(bootstrapGroup, "KubeadmConfigTemplate")}
	if err := w.Client.Create(ctx, md); err != nil {
		return nil, fmt.Errorf("creating MachineDeployment %s: %w", name, err)
	}
	return &fleet{world: w, md: md}, nil
}

// patch changes the MachineDeployment.
func (f *fleet) patch(ctx context.Context, patch []byte) error {
	if err := f.Client.Patch(ctx, f.md, client.RawPatch(types.MergePatchType, patch)); err != nil {
		return fmt.Errorf("changing MachineDeployment %s: %w", f.md.Name, err)
	}
	return nil
}

func (f *fleet) scale(ctx context.Context, replicas int) error {
	return f.patch(ctx, fmt.Appendf(nil, `{"spec":{"replicas":%d}}`, replicas))
}

// machines returns the Machines.
func (f *fleet) machines(ctx context.Context) ([]clusterv1.Machine, error) {
	list := &clusterv1.MachineList{}
	err := f.Client.List(ctx, list, client.InNamespace(namespace), client.MatchingLabels{clusterv1.MachineDeploymentNameLabel: f.md.Name})
	if err != nil {
		return nil, fmt.Errorf("listing Machines: %w", err)
	}
	return list.Items, nil
}

// awaitMachines polls, so it is not for measurements. It returns the names of the Machines that satisfy the condition, once there are
// count of them.
func (f *fleet) awaitMachines(ctx context.Context, what string, count int, are func(*clusterv1.Machine) bool) ([]string, error) {
	var names []string
	var failed error // a busy API server may fail once
	err := wait.PollUntilContextTimeout(ctx, 2*time.Second, patience, true, func(ctx context.Context) (bool, error) {
		var machines []clusterv1.Machine
		if machines, failed = f.machines(ctx); failed != nil {
			return false, nil
		}
		names = nil
		for i := range machines {
			if are(&machines[i]) {
				names = append(names, machines[i].Name)
			}
		}
		return len(names) == count && len(machines) == count, nil
	})
	if err != nil {
		return nil, fmt.Errorf("waiting until %d Machines of %s in world %s %s, and %d do: %w",
			count, f.md.Name, f.name, what, len(names), errors.Join(err, failed))
	}
	return names, nil
}

// atOnce is the number of Machines that are created at a time where nothing is measured: fewer than Cluster API reconciles at a time.
// With more Machines on a small machine, the writes of Cluster API can overtake its cache, and then each write is a conflict, for
// minutes.
const atOnce = 50

// populate creates count Machines that are provisioned and have Nodes, and returns their names.
func (f *fleet) populate(ctx context.Context, count int) (names []string, err error) {
	for len(names) < count {
		if names, err = f.grow(ctx, names, min(count, len(names)+atOnce)); err != nil {
			return nil, err
		}
		tell("%s: %d Machines have Nodes", f.name, len(names))
	}
	return names, f.settle(ctx)
}

// grow scales up to count Machines, registers Nodes for the new Machines, and returns the names of all.
func (f *fleet) grow(ctx context.Context, known []string, count int) ([]string, error) {
	if err := f.scale(ctx, count); err != nil {
		return nil, err
	}
	names, err := f.awaitMachines(ctx, "exist", count, func(*clusterv1.Machine) bool { return true })
	if err != nil {
		return nil, err
	}
	added := sets.List(sets.New(names...).Delete(known...))
	// Nodes come first: Cluster API would look for a missing Node again and again.
	if err := each(ctx, added, inParallel, f.register); err != nil {
		return nil, err
	}
	if err := each(ctx, added, inParallel, f.provide); err != nil {
		return nil, err
	}
	return f.awaitMachines(ctx, "have Nodes", count, func(m *clusterv1.Machine) bool { return m.Status.NodeRef.IsDefined() })
}

// provision acts as the providers, and waits until Cluster API has seen the result.
func (f *fleet) provision(ctx context.Context, names []string) error {
	if err := each(ctx, names, inParallel, f.provide); err != nil {
		return err
	}
	_, err := f.awaitMachines(ctx, "have a providerID", len(names), func(m *clusterv1.Machine) bool { return m.Spec.ProviderID != "" })
	return err
}

// inParallel is the number of concurrent requests where there is no other limit.
const inParallel = 32

// each calls a function for each name, up to limit calls at a time.
func each(ctx context.Context, names []string, limit int, do func(context.Context, string) error) error {
	all, ctx := errgroup.WithContext(ctx)
	all.SetLimit(limit)
	for _, name := range names {
		all.Go(func() error { return do(ctx, name) })
	}
	return all.Wait()
}
