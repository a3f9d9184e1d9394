// SPDX-License-Identifier: Apache-2.0

package integration

import (
	. "github.com/onsi/gomega"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/heirloom-dev/heirloom/pkg/inherit"
)

// autoscaled makes a topology's metadata that of objects which cluster-autoscaler scales, unless nothing is declared.
func autoscaled(metadata clusterv1.ObjectMeta, value string) clusterv1.ObjectMeta {
	if value == "" {
		return metadata
	}
	return clusterv1.ObjectMeta{
		Labels:      merged(metadata.Labels, map[string]string{"node.cluster.x-k8s.io/value": value}),
		Annotations: merged(metadata.Annotations, map[string]string{clusterv1.AutoscalerMaxSizeAnnotation: "3"}),
	}
}

// expectCapacity expects of a fleet's workers that they tell cluster-autoscaler what its topology declares.
func expectCapacity(g Gomega, child client.Object, value string) {
	switch child.(type) {
	case *clusterv1.MachineDeployment, *clusterv1.MachinePool, *clusterv1.MachineSet:
		g.Expect(child.GetAnnotations()).To(And(
			HaveKeyWithValue(inherit.CapacityLabelsAnnotation, "node.cluster.x-k8s.io/value="+value),
			HaveKeyWithValue(inherit.CapacityTaintsAnnotation, "boot="+value+":NoSchedule,gpu="+value+":NoSchedule,noted="+value+":NoExecute"),
		), "%T", child)
	}
}
