// SPDX-License-Identifier: Apache-2.0

package owners

import (
	"testing"

	. "github.com/onsi/gomega"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/yaml"

	"github.com/heirloom-dev/heirloom/pkg/inherit"
)

// Where a control plane declares things differs between providers, and where a MachinePool does between versions of the API.
func TestSourcesOfMachines(t *testing.T) {
	controlPlaneOf := func(spec string) client.Object {
		cp := controlPlane("c")
		template := map[string]any{}
		NewWithT(t).Expect(yaml.Unmarshal([]byte(spec), &template)).To(Succeed())
		cp.Object["spec"] = map[string]any{"machineTemplate": template}
		return cp
	}
	newer := controlPlaneOf("{metadata: {annotations: {a: '1'}}, spec: {taints: [{key: a, effect: NoSchedule, propagation: Always}], deletion: {nodeDrainTimeoutSeconds: 1}}}")
	older := controlPlaneOf("{metadata: {annotations: {a: '1'}}, taints: [{key: a, effect: NoSchedule, propagation: Always}], nodeDrainTimeout: 1s}")
	pool := &clusterv1.MachinePool{ObjectMeta: named("mp", ""), Spec: clusterv1.MachinePoolSpec{ClusterName: "c", Template: clusterv1.MachineTemplateSpec{
		ObjectMeta: clusterv1.ObjectMeta{Annotations: map[string]string{"a": "1"}},
	}}}
	pool.SetGroupVersionKind(clusterv1.GroupVersion.WithKind("MachinePool"))
	taint := inherit.Entry{What: "taint", Name: "a:NoSchedule"}
	annotation := inherit.Entry{What: "annotation", Name: "a"}
	timeout := inherit.Entry{What: "field", Name: "nodeDrainTimeoutSeconds"}
	const byControlPlane = acme + " AcmeControlPlane/cp"
	for _, tc := range []struct {
		owner  string
		object client.Object
		entry  inherit.Entry
		want   string
	}{
		{byControlPlane, newer, taint, "AcmeControlPlane ns/cp (spec.machineTemplate.spec.taints)"},
		{byControlPlane, older, taint, "AcmeControlPlane ns/cp (spec.machineTemplate.taints)"},
		{byControlPlane, newer, annotation, "AcmeControlPlane ns/cp (spec.machineTemplate.metadata.annotations)"},
		{byControlPlane, newer, timeout, "AcmeControlPlane ns/cp (spec.machineTemplate.spec.deletion.nodeDrainTimeoutSeconds)"},
		{byControlPlane, older, timeout, "AcmeControlPlane ns/cp (spec.machineTemplate.nodeDrainTimeout)"},
		{"MachinePool/mp", pool, annotation, "MachinePool ns/mp (spec.template.metadata.annotations)"},
		{"MachinePool/mp", pool, timeout, "Machine ns/m (spec.deletion.nodeDrainTimeoutSeconds)"},
	} {
		chain := &Chain{Reader: holds(t, tc.object)}
		m := machine("m", tc.owner)
		NewWithT(t).Expect(chain.NodeSources(t.Context(), inherit.SourceOfMachine(m)).Of(tc.entry).String()).To(Equal(tc.want))
	}
	chain := &Chain{Reader: holds(t, pool)}
	NewWithT(t).Expect(chain.NodeSources(t.Context(), inherit.SourceOfMachinePool(pool, pool)).Of(annotation).String()).To(
		Equal("MachinePool ns/mp (spec.template.metadata.annotations)"))
	chain = &Chain{Reader: holds(t)}
	NewWithT(t).Expect(chain.NodeSources(t.Context(), inherit.SourceOfMachinePool(pool, pool)).Of(annotation).String()).To(
		Equal("MachinePool ns/mp (spec.template.metadata.annotations)"), "whether it is still there or not")
}
