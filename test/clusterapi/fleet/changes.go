// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"fmt"
	"slices"

	corev1 "k8s.io/api/core/v1"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/heirloom-dev/heirloom/pkg/taint"
	"github.com/heirloom-dev/heirloom/test/clusterapi"
)

const (
	namespace  = "fleet"
	label      = "node.cluster.x-k8s.io/measured"
	annotation = "node.cluster.x-k8s.io/measured"
)

// change is a row of the table.
type change struct {
	name string
	// promised says that only Heirloom brings the change to Nodes.
	promised bool
	do       func(context.Context, *world) error
	// done reports whether a Node has the change.
	done func(corev1.Node) bool
}

// changes are the rows of the table, in their order.
func changes() []change {
	return []change{
		{name: "create the Clusters", do: create, done: labeled("first")},
		{name: "change a label in the class", do: class(setLabel("second")), done: labeled("second")},
		{name: "remove a label from the class", do: class(dropLabel), done: labeled("")},
		{name: "add a label to the class", do: class(setLabel("third")), done: labeled("third")},
		{name: "remove it again", do: class(dropLabel), done: labeled("")},
		{name: "add an annotation to the class", do: class(setAnnotation(annotation, "yes")), done: annotated("yes")},
		{name: "remove an annotation from the class", do: class(setAnnotation(annotation, "")), done: annotated("")},
		{name: "add a label to each topology", do: topologies(setLabel("topology")), done: labeled("topology")},
		{name: "remove a label from each topology", do: topologies(dropLabel), done: labeled("")},
		{
			name: "add an Always taint to the class", promised: true, done: tainted(true),
			do: class(setAnnotation(taint.AlwaysAnnotation, "measured=yes:NoSchedule")),
		},
		{name: "remove a taint from the class", promised: true, do: class(setAnnotation(taint.AlwaysAnnotation, "")), done: tainted(false)},
		{name: "scale out by a worker each", do: scaleOut, done: func(corev1.Node) bool { return true }},
	}
}

func labeled(value string) func(corev1.Node) bool {
	return func(node corev1.Node) bool { return node.Labels[label] == value }
}

func annotated(value string) func(corev1.Node) bool {
	return func(node corev1.Node) bool { return node.Annotations[annotation] == value }
}

func tainted(want bool) func(corev1.Node) bool {
	return func(node corev1.Node) bool {
		return slices.ContainsFunc(node.Spec.Taints, func(t corev1.Taint) bool { return t.Key == "measured" }) == want
	}
}

func setLabel(value string) func(*clusterv1.ObjectMeta) {
	return func(metadata *clusterv1.ObjectMeta) { metadata.Labels = map[string]string{label: value} }
}

func dropLabel(metadata *clusterv1.ObjectMeta) { metadata.Labels = nil }

// setAnnotation returns a function that sets an annotation, or removes it if the value is empty.
func setAnnotation(name, value string) func(*clusterv1.ObjectMeta) {
	return func(metadata *clusterv1.ObjectMeta) {
		if metadata.Annotations = map[string]string{name: value}; value == "" {
			metadata.Annotations = nil
		}
	}
}

// create creates the ClusterClass and the Clusters.
func create(ctx context.Context, w *world) error {
	if err := clusterapi.CreateClass(ctx, w.Client, namespace, func(client.Object) {}); err != nil {
		return err
	}
	if err := class(setLabel("first"))(ctx, w); err != nil {
		return err
	}
	for i := range w.options.clusters {
		cluster := clusterapi.OfClass(namespace, fmt.Sprintf("c%d", i+1), int32(w.options.workers))
		if err := w.Client.Create(ctx, cluster); err != nil {
			return fmt.Errorf("creating Cluster %s: %w", cluster.Name, err)
		}
	}
	return nil
}

// class returns a change of the metadata of all sections of the ClusterClass.
func class(how func(*clusterv1.ObjectMeta)) func(context.Context, *world) error {
	return func(ctx context.Context, w *world) error {
		class := &clusterv1.ClusterClass{}
		if err := w.Client.Get(ctx, client.ObjectKey{Namespace: namespace, Name: clusterapi.ClassName}, class); err != nil {
			return fmt.Errorf("getting the ClusterClass: %w", err)
		}
		before := class.DeepCopy()
		how(&class.Spec.ControlPlane.Metadata)
		how(&class.Spec.Workers.MachineDeployments[0].Metadata)
		if err := w.Client.Patch(ctx, class, client.MergeFrom(before)); err != nil {
			return fmt.Errorf("changing the ClusterClass: %w", err)
		}
		return nil
	}
}

// topologies returns a change of the metadata of all sections of each topology.
func topologies(how func(*clusterv1.ObjectMeta)) func(context.Context, *world) error {
	return func(ctx context.Context, w *world) error {
		return w.eachTopology(ctx, func(topology *clusterv1.Topology) {
			how(&topology.ControlPlane.Metadata)
			how(&topology.Workers.MachineDeployments[0].Metadata)
		})
	}
}

func scaleOut(ctx context.Context, w *world) error {
	w.nodes += w.options.clusters
	return w.eachTopology(ctx, func(topology *clusterv1.Topology) { *topology.Workers.MachineDeployments[0].Replicas++ })
}

func (w *world) eachTopology(ctx context.Context, how func(*clusterv1.Topology)) error {
	all := &clusterv1.ClusterList{}
	if err := w.Client.List(ctx, all, client.InNamespace(namespace)); err != nil {
		return fmt.Errorf("listing Clusters: %w", err)
	}
	for i := range all.Items {
		cluster := &all.Items[i]
		before := cluster.DeepCopy()
		how(&cluster.Spec.Topology)
		if err := w.Client.Patch(ctx, cluster, client.MergeFrom(before)); err != nil {
			return fmt.Errorf("changing Cluster %s: %w", cluster.Name, err)
		}
	}
	return nil
}
