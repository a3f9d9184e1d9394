// SPDX-License-Identifier: Apache-2.0

package scenes

import (
	"context"
	"fmt"
	"time"

	"golang.org/x/sync/errgroup"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/heirloom-dev/heirloom/test/controlplane"
	"github.com/heirloom-dev/heirloom/test/stage"
)

// inParallel is how many requests are on the way at once where there is no other limit.
const inParallel = 32

// floorNodes writes Nodes only, floorBoth each with its Machine.
const floorNodes, floorBoth = "floor", "floor-both"

// floor is an API server with Machines and Nodes for which nobody works. What is quicker than a client that does nothing but the
// writes does less.
type floor struct {
	cp     *controlplane.ControlPlane
	client client.Client
	nodes  *nodes
}

func (f *floor) start(ctx context.Context) error {
	options, err := stage.ControlPlaneOptions(ctx, controlplane.Options{})
	if err != nil {
		return err
	}
	if f.cp, err = controlplane.Start(ctx, options); err != nil {
		return err
	}
	if f.client, err = client.New(f.cp.AdminConfig(), client.Options{Scheme: stage.Scheme()}); err != nil {
		return fmt.Errorf("making an administrator's client: %w", err)
	}
	if f.nodes, err = watchNodes(f.cp.AdminConfig()); err != nil {
		return err
	}
	return f.client.Create(ctx, &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: namespace}})
}

func (f *floor) end() error {
	f.nodes.stop()
	if f.cp == nil {
		return nil
	}
	return f.cp.Stop()
}

// add creates Machines with their Nodes.
func (f *floor) add(ctx context.Context, names []string, d stage.Declared) error {
	md := stage.MachineDeployment(stage.Cluster(namespace, namespace), names[0], d)
	ms := stage.MachineSet(md, names[0])
	ms.UID = "nobody-asks"
	return each(ctx, names, inParallel, func(ctx context.Context, name string) error {
		machine, node := stage.Machine(ms, name), registered(name)
		machine.Labels, node.Labels = d.Labels, d.Labels
		if err := f.client.Create(ctx, machine); err != nil {
			return err
		}
		return f.client.Create(ctx, node)
	})
}

// write patches all Nodes, and the Machines as well if there is a patch for them.
// It returns how long it takes until all Nodes look as expected.
func (f *floor) write(ctx context.Context, names []string, change change, both bool) (time.Duration, error) {
	expected, err := f.nodes.expect(names, change.looks)
	if err != nil {
		return 0, err
	}
	begun := time.Now()
	err = each(ctx, names, inParallel, func(ctx context.Context, name string) error {
		if both {
			machine := &clusterv1.Machine{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: name}}
			if err := f.client.Patch(ctx, machine, client.RawPatch(types.MergePatchType, change.machine)); err != nil {
				return err
			}
		}
		return f.client.Patch(ctx, &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: name}}, client.RawPatch(types.MergePatchType, change.node))
	})
	if err != nil {
		return 0, fmt.Errorf("writing what the floor writes: %w", err)
	}
	_, last, err := f.nodes.wait(ctx, expected)
	return last.Sub(begun), err
}

// each calls a function for each name, so many at a time.
func each(ctx context.Context, names []string, limit int, do func(context.Context, string) error) error {
	all, ctx := errgroup.WithContext(ctx)
	all.SetLimit(limit)
	for _, name := range names {
		all.Go(func() error { return do(ctx, name) })
	}
	return all.Wait()
}

// registered is a Node as a kubelet creates it.
func registered(name string) *corev1.Node {
	node := stage.Node(name)
	node.Status.Conditions = []corev1.NodeCondition{{Type: corev1.NodeReady, Status: corev1.ConditionTrue, Reason: "KubeletReady"}}
	return node
}
