// SPDX-License-Identifier: Apache-2.0

package origin

import (
	"bytes"
	"flag"
	"os"
	"path/filepath"
	"testing"

	. "github.com/onsi/gomega"
	"github.com/spf13/cobra"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/ptr"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"

	"github.com/heirloom-dev/heirloom/cmd/kubectl-heirloom/cli"
	"github.com/heirloom-dev/heirloom/cmd/kubectl-heirloom/snapshot"
)

var update = flag.Bool("update", false, "write the golden files")

// The output, in all forms.
func TestOutput(t *testing.T) {
	for _, tc := range []struct {
		golden, format, key string
		several, colour     bool
	}{
		{golden: "machine.table"},
		{golden: "machine.wide", format: "wide"},
		{golden: "machine.json", format: "json"},
		{golden: "machine.colour", colour: true},
		{golden: "machine.key", key: "node.cluster.x-k8s.io/a"},
		{golden: "list.table", several: true},
		{golden: "list.yaml", format: "yaml", several: true, key: "nodeDrainTimeout"},
		{golden: "list.wide", format: "wide", several: true, key: labelOfCluster},
		{golden: "list.key", several: true, key: "drained"},
	} {
		t.Run(tc.golden, func(t *testing.T) {
			g := NewWithT(t)
			list := NewList(explainAll(t, tc.several), "The server's settings are not known.")
			if tc.key != "" {
				list.Only(tc.key)
			}
			flags, command := cli.NewPrintFlags(), &cobra.Command{}
			flags.AddFlags(command)
			g.Expect(command.ParseFlags([]string{"-o", tc.format})).To(Succeed())
			var result cli.Result = list
			if !tc.several {
				result = list.Single()
			}
			var out bytes.Buffer
			g.Expect(flags.Print(&out, cli.Painter(tc.colour), result)).To(Succeed())
			if flags.ForPeople() {
				for _, note := range list.AllNotes() {
					out.WriteString("Note: " + note + "\n")
				}
			}
			path := filepath.Join("testdata", tc.golden+".golden")
			if *update {
				g.Expect(os.WriteFile(path, out.Bytes(), 0o600)).To(Succeed())
			}
			want, err := os.ReadFile(path)
			g.Expect(err).NotTo(HaveOccurred())
			g.Expect(out.String()).To(Equal(string(want)))
		})
	}
}

// explainAll explains Machine m of the fleet, whose drain timeout another has changed, and which has lost the ClusterClass's label.
// Several are also its MachineDeployment, its Cluster, its ClusterClass and its Node.
func explainAll(t *testing.T, several bool) []*Explanation {
	t.Helper()
	objects := fleet()
	for _, object := range objects {
		switch o := object.(type) {
		case *clusterv1.ClusterClass:
			o.Spec.Workers.MachineDeployments[0].Deletion.NodeDrainTimeoutSeconds = ptr.To(int32(30))
		case *clusterv1.Cluster:
			o.ManagedFields = managedFields(t, "argocd topology.workers.machineDeployments name a label "+labelOfCluster)
		case *clusterv1.MachineDeployment:
			o.Spec.Template.Spec.Deletion.NodeDrainTimeoutSeconds = ptr.To(int32(30))
			o.Spec.Template.Spec.ReadinessGates = gates("example.com/warm")
		case *clusterv1.MachineSet:
			o.Spec.Template.Spec.Deletion.NodeDrainTimeoutSeconds = ptr.To(int32(30))
			o.Spec.Template.Spec.ReadinessGates = gates("example.com/warm")
		case *clusterv1.Machine:
			if o.Name == "m" {
				o.Spec.Deletion.NodeDrainTimeoutSeconds = ptr.To(int32(60))
				o.Spec.ReadinessGates = gates("example.com/warm")
				delete(o.Labels, labelOfClass)
				o.ManagedFields = managedFields(t, "kubectl field deletion.nodeDrainTimeoutSeconds | heirloom label "+labelOfCluster)
			}
		case *corev1.Node:
			o.Annotations = map[string]string{"cluster.x-k8s.io/labels-from-machine": labelOfClass + "," + labelOfCluster}
		}
	}
	x := New(snapshot.New(serves(t, objects...), layouts{}), server(t, "c"))
	in := func(name string) types.NamespacedName { return types.NamespacedName{Namespace: "default", Name: name} }
	all := []Object{{capiKind("Machine"), in("m")}}
	if several {
		all = append(all, Object{capiKind("MachineDeployment"), in("md")}, Object{capiKind("Cluster"), in("c")}, Object{capiKind("ClusterClass"), in("class")},
			Object{corev1.SchemeGroupVersion.WithKind("Node"), types.NamespacedName{Name: "n"}})
	}
	found, err := x.All(t.Context(), all)
	if err != nil {
		t.Fatal(err)
	}
	return found
}
