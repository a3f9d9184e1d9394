// SPDX-License-Identifier: Apache-2.0

package origin

import (
	"context"
	"errors"
	"testing"

	. "github.com/onsi/gomega"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/types"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/heirloom-dev/heirloom/cmd/kubectl-heirloom/snapshot"
)

// machineOf is a Machine that says which Node it is.
func machineOf(namespace, cluster, name, node string) []client.Object {
	m := &clusterv1.Machine{ObjectMeta: named(name, ""), Spec: clusterv1.MachineSpec{ClusterName: cluster}, Status: clusterv1.MachineStatus{NodeRef: clusterv1.MachineNodeReference{Name: node}}}
	m.Namespace, m.UID = namespace, types.UID(namespace+name)
	c := &clusterv1.Cluster{ObjectMeta: named(cluster, "")}
	c.Namespace = namespace
	return []client.Object{m, c}
}

// Which Node is meant, among those of the management cluster and of its workload clusters.
func TestWhichNodeIsMeant(t *testing.T) {
	one, two := machineOf("default", "one", "m1", "n"), machineOf("other", "two", "m2", "n")
	ofPool := &clusterv1.MachinePool{ObjectMeta: named("mp", ""), Spec: clusterv1.MachinePoolSpec{ClusterName: "one"}}
	ofPool.Spec.ProviderIDList, ofPool.Status.NodeRefs = []string{"pooled"}, []corev1.ObjectReference{{Name: "pooled"}}
	for name, tc := range map[string]struct {
		objects    []client.Object
		node       string
		management string
		change     func(*Explainer)
		// want is the Cluster of the Node, asked the one whose Nodes were read.
		want, asked, wantErr string
	}{
		"by the Machine that names it":                           {objects: one, want: "default/one", asked: "default/one"},
		"by the MachinePool that names it":                       {objects: append(one, ofPool), node: "pooled", want: "default/one", asked: "default/one"},
		"not among several":                                      {objects: append(one, two...), wantErr: "default/one, other/two; name one with --workload-cluster"},
		"among several by namespace":                             {objects: append(one, two...), change: func(x *Explainer) { x.Namespace = "other" }, want: "other/two", asked: "other/two"},
		"among several by Cluster":                               {objects: append(one, two...), change: func(x *Explainer) { x.Cluster = types.NamespacedName{Namespace: "other", Name: "two"} }, want: "other/two", asked: "other/two"},
		"of the management cluster first":                        {objects: append(one, nodeOf("n", "")), management: "one", want: "default/one"},
		"of a management cluster that is no Cluster, not at all": {objects: append(one, nodeOf("n", "")), want: "default/one", asked: "default/one"},
		"in a self-hosted management cluster that has it not":    {objects: append(one, two...), management: "three", wantErr: "default/one, other/two"},
		"nobody names it":                                        {objects: one, node: "none", wantErr: "there is no Node none"},
		"nobody names it in the namespace":                       {objects: one, change: func(x *Explainer) { x.Namespace = "other" }, wantErr: "no Machine in namespace other names it"},
		"the workload cluster does not know it":                  {objects: machineOf("default", "one", "m1", "gone"), node: "gone", wantErr: `the workload cluster of Cluster default/one: nodes "gone" not found`},
		"the workload cluster does not answer":                   {objects: machineOf("default", "silent", "m", "n"), wantErr: "the workload cluster of Cluster default/silent does not answer: i/o timeout"},
		"the workload cluster cannot be reached":                 {objects: machineOf("default", "closed", "m", "n"), wantErr: "connecting to the workload cluster of Cluster default/closed: no kubeconfig"},
		"a Node of the same name in the management cluster, too": {objects: append(machineOf("default", "closed", "m", "n"), nodeOf("n", "")), wantErr: "pass --management-cluster=default/closed"},
		"a Node of the workload cluster that belongs to nobody":  {objects: one, node: "stranger", change: func(x *Explainer) { x.Cluster = types.NamespacedName{Namespace: "default", Name: "one"} }, wantErr: "of Cluster default/one matches Node stranger"},
	} {
		t.Run(name, func(t *testing.T) {
			g := NewWithT(t)
			x := New(snapshot.New(serves(t, tc.objects...), layouts{}), server(t, tc.management))
			var asked string
			x.Nodes = func(_ context.Context, cluster types.NamespacedName) (client.Reader, error) {
				asked = cluster.String()
				switch cluster.Name {
				case "closed":
					return nil, errors.New("no kubeconfig")
				case "silent":
					return silent{}, nil
				}
				return serves(t, nodeOf("n", ""), nodeOf("pooled", "pooled"), nodeOf("stranger", "")), nil
			}
			if tc.change != nil {
				tc.change(x)
			}
			node := tc.node
			if node == "" {
				node = "n"
			}
			e, err := x.Explain(t.Context(), corev1.SchemeGroupVersion.WithKind("Node"), types.NamespacedName{Name: node})
			if tc.wantErr != "" {
				g.Expect(err).To(MatchError(ContainSubstring(tc.wantErr)))
				return
			}
			g.Expect(err).NotTo(HaveOccurred())
			g.Expect(e.Cluster).To(Equal(tc.want))
			g.Expect(asked).To(Equal(tc.asked))
		})
	}
}

// silent is a workload cluster that does not answer.
type silent struct{ client.Reader }

func (silent) Get(context.Context, client.ObjectKey, client.Object, ...client.GetOption) error {
	return errors.New("i/o timeout")
}

func TestNodesByTheirLabels(t *testing.T) {
	g := NewWithT(t)
	x := New(snapshot.New(serves(t, fleet()...), layouts{}), server(t, ""))
	_, err := x.NodeNames(t.Context(), labels.Everything())
	g.Expect(err).To(MatchError(ContainSubstring("--workload-cluster")))
	x = New(snapshot.New(serves(t, fleet()...), layouts{}), server(t, "c"))
	g.Expect(x.NodeNames(t.Context(), labels.Everything())).To(ConsistOf("n", "pooled", "ref"))
	g.Expect(x.NodeNames(t.Context(), labels.SelectorFromSet(labels.Set{"a": "b"}))).To(BeEmpty())
}
