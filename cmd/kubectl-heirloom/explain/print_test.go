// SPDX-License-Identifier: Apache-2.0

package explain

import (
	"bytes"
	"maps"
	"testing"

	. "github.com/onsi/gomega"
	"github.com/spf13/cobra"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"

	"github.com/heirloom-dev/heirloom/cmd/kubectl-heirloom/cli"
	"github.com/heirloom-dev/heirloom/test/fleet"
)

const pool, tier = "node.cluster.x-k8s.io/pool", "node.cluster.x-k8s.io/tier"

// The output, in all forms.
func TestOutput(t *testing.T) {
	for _, tc := range []struct {
		golden, objects, key, format string
		all, colour, paused          bool
	}{
		{golden: "node.table", objects: "node"},
		{golden: "node.all", objects: "node", all: true},
		{golden: "node.colour", objects: "node", colour: true},
		{golden: "machine.wide", objects: "m", format: "wide"},
		{golden: "machine.json", objects: "m", format: "json", key: tier},
		{golden: "list.table", objects: "m m2 ms md"},
		{golden: "list.yaml", objects: "m ms", format: "yaml", key: "gpu"},
		{golden: "cluster.table", objects: "c"},
		{golden: "class.wide", objects: "class", format: "wide"},
		{golden: "key.arrived", objects: "node", key: pool, colour: true},
		{golden: "key.outside", objects: "node", key: "cost-center"},
		{golden: "key.differs", objects: "m", key: "nodeDrainTimeout"},
		{golden: "key.gone", objects: "m", key: "gone"},
		{golden: "key.paused", objects: "ms", key: pool, paused: true},
		{golden: "key.set", objects: "node", key: "kubernetes.io/hostname"},
		{golden: "key.declared", objects: "c class", key: pool},
		{golden: "key.nowhere", objects: "m m2 node", key: "nothing"},
		{golden: "key.several", objects: "m m2 ms", key: tier},
		{golden: "key.list", objects: "m m2", key: tier, format: "name"},
	} {
		t.Run(tc.golden, func(t *testing.T) {
			g := NewWithT(t)
			var out bytes.Buffer
			flags, command := cli.NewPrintFlags(), &cobra.Command{}
			flags.AddFlags(command)
			g.Expect(command.ParseFlags([]string{"-o", tc.format})).To(Succeed())
			w := lived(t)
			if tc.paused {
				w.ms.Annotations = map[string]string{clusterv1.PausedAnnotation: ""}
			}
			list := w.list(t, tc.objects, tc.key)
			list.All, list.Notes = tc.all, []string{"The server's settings are not known."}
			g.Expect(list.Print(&out, flags, cli.Painter(tc.colour))).To(Succeed())
			fleet.Golden(t, tc.golden, out.String())
		})
	}
}

// lived is a topology in use: everything has arrived, but for the class's label, which both Machines have lost, the drain timeout, which
// somebody has changed, a label that nothing declares any more, and one that Nodes do not get.
func lived(t *testing.T) *topologyOf {
	t.Helper()
	w := newTopology(t)
	w.throughout(pool, "")
	w.throughout("cost-center", "node")
	w.inClass.Metadata.Labels = map[string]string{tier: "standard", pool: "general"}
	w.inClass.Deletion.NodeDrainTimeoutSeconds = ptr.To(int32(30))
	w.inTopo.Taints = always("gpu=yes:NoSchedule")
	maps.Copy(w.md.Labels, w.inClass.Metadata.Labels)
	maps.Copy(w.md.Labels, w.inTopo.Metadata.Labels)
	for _, template := range []*clusterv1.MachineTemplateSpec{&w.md.Spec.Template, &w.ms.Spec.Template} {
		template.Labels[tier] = "standard"
		template.Spec.Deletion.NodeDrainTimeoutSeconds, template.Spec.Taints = w.inClass.Deletion.NodeDrainTimeoutSeconds, w.inTopo.Taints
	}
	maps.Copy(w.ms.Labels, w.ms.Spec.Template.Labels)
	w.m.Spec.Deletion.NodeDrainTimeoutSeconds, w.m.Spec.Taints = ptr.To(int32(60)), w.inTopo.Taints
	w.m.Labels["gone"] = "1"
	for manager, fields := range map[string]string{"kubectl": `{"f:spec":{"f:deletion":{"f:nodeDrainTimeoutSeconds":{}}}}`, "heirloom": `{"f:metadata":{"f:labels":{"f:gone":{}}}}`} {
		w.m.ManagedFields = append(w.m.ManagedFields, metav1.ManagedFieldsEntry{
			Manager: manager, Operation: metav1.ManagedFieldsOperationApply, FieldsType: "FieldsV1", APIVersion: "cluster.x-k8s.io/v1beta2",
			FieldsV1: metav1.NewFieldsV1(fields),
		})
	}
	w.node.Labels["kubernetes.io/hostname"] = "n\x1b[31m"
	w.node.Annotations[clusterv1.LabelsFromMachineAnnotation] = pool
	return w
}
