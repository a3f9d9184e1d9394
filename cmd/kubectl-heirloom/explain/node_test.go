// SPDX-License-Identifier: Apache-2.0

package explain

import (
	"context"
	"errors"
	"slices"
	"testing"

	. "github.com/onsi/gomega"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/heirloom-dev/heirloom/test/fleet"
)

// machineOf returns a Machine with a nodeRef, and its Cluster.
func machineOf(namespace, cluster, name, node string) []client.Object {
	m := &clusterv1.Machine{ObjectMeta: fleet.Named(name, ""), Spec: clusterv1.MachineSpec{ClusterName: cluster}, Status: clusterv1.MachineStatus{NodeRef: clusterv1.MachineNodeReference{Name: node}}}
	m.Namespace, m.UID = namespace, types.UID(namespace+name)
	c := &clusterv1.Cluster{ObjectMeta: fleet.Named(cluster, "")}
	c.Namespace = namespace
	return []client.Object{m, c}
}

func nodeOf(name, providerID string) *corev1.Node {
	return &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: name}, Spec: corev1.NodeSpec{ProviderID: providerID}}
}

// A Node's name is looked up among the Nodes of the management cluster and of its workload clusters.
func TestNodeByName(t *testing.T) {
	one, two := machineOf("default", "one", "m1", "n"), machineOf("other", "two", "m2", "n")
	ofPool := &clusterv1.MachinePool{ObjectMeta: fleet.Named("mp", ""), Spec: clusterv1.MachinePoolSpec{ClusterName: "one", ProviderIDList: []string{"pooled"}}}
	ofPool.Status.NodeRefs = []corev1.ObjectReference{{Name: "pooled"}}
	cluster := func(namespace, name string) func(*Explainer) {
		return func(x *Explainer) { x.Cluster = types.NamespacedName{Namespace: namespace, Name: name} }
	}
	other := func(x *Explainer) { x.Namespace = "other" }
	for name, tc := range map[string]struct {
		objects    []client.Object
		node       string
		management string
		change     func(*Explainer)
		// want is the Cluster of the Node.
		want, wantErr string
	}{
		"by the MachinePool that names it":                    {objects: append(one, ofPool), node: "pooled", want: "default/one"},
		"among several by namespace":                          {objects: append(one, two...), change: other, want: "other/two"},
		"among several by Cluster":                            {objects: append(one, two...), change: cluster("other", "two"), want: "other/two"},
		"of the management cluster first":                     {objects: append(one, two...), management: "one", want: "default/one"},
		"in a self-hosted management cluster that has it not": {objects: append(one, two...), management: "empty", wantErr: "default/one, other/two"},
		"nobody names it in the namespace":                    {objects: one, change: other, wantErr: `Node "n" not found`},
		"the workload cluster does not know it":               {objects: machineOf("default", "one", "m1", "gone"), node: "gone", wantErr: `the workload cluster of Cluster default/one (use --workload-kubeconfig`},
		"the workload cluster does not answer":                {objects: machineOf("default", "silent", "m", "n"), wantErr: "for another kubeconfig): i/o timeout"},
	} {
		t.Run(name, func(t *testing.T) {
			g := NewWithT(t)
			x := New(fleet.World(t, fleet.Server(tc.objects...).Build()))
			if tc.management != "" {
				x.Settings.Config.ManagementClusterKey = types.NamespacedName{Namespace: "default", Name: tc.management}
			}
			x.Nodes = func(_ context.Context, cluster types.NamespacedName) (client.Reader, error) {
				switch cluster.Name {
				case "silent":
					return fleet.Server().WithInterceptorFuncs(fleet.Asks(func(string) error { return errors.New("i/o timeout") })).Build(), nil
				case "empty":
					return fleet.Server().Build(), nil
				}
				return fleet.Server(nodeOf("n", ""), nodeOf("pooled", "pooled")).Build(), nil
			}
			if tc.change != nil {
				tc.change(x)
			}
			if tc.node == "" {
				tc.node = "n"
			}
			e, err := x.Explain(t.Context(), Object{corev1.SchemeGroupVersion.WithKind("Node"), types.NamespacedName{Name: tc.node}})
			if tc.wantErr != "" {
				g.Expect(err).To(MatchError(ContainSubstring(tc.wantErr)))
				return
			}
			g.Expect(err).NotTo(HaveOccurred())
			g.Expect(e.Cluster).To(Equal(tc.want))
		})
	}
}

// However many Nodes of a Cluster are explained, its kubeconfig is read once.
func TestNodesShareAConnection(t *testing.T) {
	g := NewWithT(t)
	x, asked := newTopology(t).world(t), 0
	x.Nodes = func(context.Context, types.NamespacedName) (client.Reader, error) {
		asked++
		return nil, errors.New("prod-kubeconfig")
	}
	_, err := x.All(t.Context(), slices.Repeat([]Object{{corev1.SchemeGroupVersion.WithKind("Node"), types.NamespacedName{Name: "n"}}}, 3))
	g.Expect(err).To(MatchError(ContainSubstring("prod-kubeconfig")))
	g.Expect(asked).To(Equal(1))
}
