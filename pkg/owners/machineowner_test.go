// SPDX-License-Identifier: Apache-2.0

package owners

import (
	"cmp"
	"errors"
	"testing"

	. "github.com/onsi/gomega"
	apimeta "k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/heirloom-dev/heirloom/pkg/inherit"
)

const acme = "controlplane.cluster.x-k8s.io/v1beta1"

// controlPlane is one of a provider that nobody knows.
func controlPlane(cluster string) *unstructured.Unstructured {
	cp := &unstructured.Unstructured{Object: map[string]any{
		"spec": map[string]any{"machineTemplate": map[string]any{"metadata": map[string]any{"labels": map[string]any{"fromControlPlane": "1"}}}},
	}}
	cp.SetAPIVersion(acme)
	cp.SetKind("AcmeControlPlane")
	cp.SetNamespace("ns")
	cp.SetName("cp")
	cp.SetUID("cp")
	cp.SetLabels(map[string]string{"cluster.x-k8s.io/cluster-name": cluster})
	return cp
}

func TestMachineOwner(t *testing.T) {
	set, pool := machineSet("MachineDeployment/md"), &clusterv1.MachinePool{ObjectMeta: named("mp", ""), Spec: clusterv1.MachinePoolSpec{ClusterName: "c"}}
	declaring(&set.Spec.Template, "fromMachineSet")
	declaring(&pool.Spec.Template, "fromMachinePool")
	broken := controlPlane("c")
	broken.Object["spec"] = map[string]any{"machineTemplate": "text"}
	for _, tc := range []struct {
		name    string
		owner   string
		labels  map[string]string
		cached  []client.Object
		missing bool
		brings  string
		source  string
		problem string
	}{
		{name: "a Machine on its own declares for itself"},
		{name: "a MachineSet's template counts, its MachineDeployment is to be edited", owner: "MachineSet/ms", cached: []client.Object{set}, brings: "fromMachineSet", source: "MachineDeployment ns/md (spec.template.metadata.labels)"},
		{name: "a MachinePool's template counts", owner: "MachinePool/mp", cached: []client.Object{pool}, brings: "fromMachinePool", source: "MachinePool ns/mp (spec.template.metadata.labels)"},
		{name: "a control plane's template counts, no matter who provides it", owner: acme + " AcmeControlPlane/cp", cached: []client.Object{controlPlane("c")}, brings: "fromControlPlane", source: "AcmeControlPlane ns/cp (spec.machineTemplate.metadata.labels)"},
		{name: "in a topology the Cluster is to be edited", owner: "MachineSet/ms", labels: map[string]string{"topology.cluster.x-k8s.io/owned": ""}, cached: []client.Object{set}, brings: "fromMachineSet", source: "Cluster ns/c (spec.topology)"},
		{name: "a MachineSet that is not there is missing", owner: "MachineSet/ms", missing: true},
		{name: "a control plane that is not there is missing", owner: acme + " AcmeControlPlane/cp", missing: true},
		{name: "a control plane of another Cluster is missing", owner: acme + " AcmeControlPlane/cp", cached: []client.Object{controlPlane("elsewhere")}, missing: true},
		{name: "a control plane of another UID is missing", owner: acme + " AcmeControlPlane/cp#another", cached: []client.Object{controlPlane("c")}, missing: true},
		{name: "a MachinePool that is not there is missing", owner: "MachinePool/mp", missing: true},
		{name: "a MachinePool of another group is missing", owner: "exp.example.com/v1 MachinePool/mp", cached: []client.Object{pool}, missing: true},
		{name: "an owner that is none of ours is missing", owner: "apps/v1 Deployment/d", missing: true},
		{name: "a control plane that breaks the contract is an error", owner: acme + " AcmeControlPlane/cp", cached: []client.Object{broken}, problem: "reading AcmeControlPlane ns/cp"},
	} {
		t.Run(tc.name, func(t *testing.T) {
			Expect := NewWithT(t).Expect
			m := machine("m", tc.owner)
			m.Labels = tc.labels
			owner, err := (&Chain{Reader: holds(t, tc.cached...)}).MachineOwner(t.Context(), m)
			if tc.problem != "" {
				Expect(err).To(MatchError(ContainSubstring(tc.problem)))
				return
			}
			Expect(err).NotTo(HaveOccurred())
			Expect(owner.Outcome == inherit.OwnerNotFound).To(Equal(tc.missing))
			sources := (&Chain{Reader: holds(t, tc.cached...)}).NodeSources(t.Context(), inherit.SourceOfMachine(m))
			Expect(sources.Of(inherit.Entry{What: "label", Name: tc.brings}).String()).To(Equal(cmp.Or(tc.source, "Machine ns/m (metadata.labels)")))
			if tc.brings == "" {
				Expect(owner.Template).To(BeNil())
				return
			}
			Expect(owner.Template).NotTo(BeNil())
			Expect(owner.Template.Labels).To(Equal(map[string]string{tc.brings: "1"}))
		})
	}
}

// A provider that was uninstalled leaves Machines whose owner's kind the API server no longer knows.
func TestAKindThatIsGoneDeclaresNothing(t *testing.T) {
	Expect := NewWithT(t).Expect
	gone := &reader{err: &apimeta.NoKindMatchError{GroupKind: schema.GroupKind{Group: inherit.ControlPlaneGroup, Kind: "AcmeControlPlane"}}}
	owner, err := (&Chain{Reader: gone}).MachineOwner(t.Context(), machine("m", acme+" AcmeControlPlane/cp"))
	Expect(err).NotTo(HaveOccurred())
	Expect(owner.Outcome).To(Equal(inherit.OwnerNotFound))

	_, err = (&Chain{Reader: &reader{err: errors.New("timeout")}}).MachineOwner(t.Context(), machine("m", acme+" AcmeControlPlane/cp"))
	Expect(err).To(MatchError(ContainSubstring("timeout")))
}

// The object to edit is the top of the chain, because a change further down would be undone.
func TestTopOfTheChain(t *testing.T) {
	owned := map[string]string{"topology.cluster.x-k8s.io/owned": ""}
	inTopology, managed := machine("m", ""), machine("m", "MachineSet/ms")
	inTopology.Labels, managed.Labels = owned, owned
	cluster, md := managedCluster(), machineDeployment("md")
	managedDeployment := machineDeployment("md")
	ofTopology(managedDeployment)
	for _, tc := range []struct {
		name   string
		m      *clusterv1.Machine
		cached []client.Object
		want   string
	}{
		{name: "a Machine on its own", m: machine("m", ""), want: "Machine ns/m"},
		{name: "a Machine of a topology", m: inTopology, want: "Cluster ns/c (spec.topology)"},
		{name: "a Machine of a MachineSet on its own", m: machine("m", "MachineSet/ms"), cached: []client.Object{machineSet("")}, want: "MachineSet ns/ms (spec.template)"},
		{name: "a Machine of a MachineDeployment", m: machine("m", "MachineSet/ms"), cached: []client.Object{machineSet("MachineDeployment/md"), md}, want: "MachineDeployment ns/md (spec.template)"},
		{name: "one that cannot be read", m: machine("m", "MachineSet/ms"), cached: []client.Object{machineSet("MachineDeployment/md")}, want: "MachineDeployment ns/md (spec.template)"},
		{name: "a Machine of a control plane", m: machine("m", acme+" AcmeControlPlane/cp"), cached: []client.Object{controlPlane("c")}, want: "AcmeControlPlane ns/cp (spec.machineTemplate)"},
		{name: "a Machine whose MachineDeployment is in a topology", m: managed, cached: []client.Object{machineSet("MachineDeployment/md"), managedDeployment, cluster, clusterClass()}, want: "Cluster ns/c (spec.topology.workers.machineDeployments[a])"},
		{name: "a Machine in a topology of which not all can be read", m: managed, cached: []client.Object{machineSet("MachineDeployment/md")}, want: "Cluster ns/c (spec.topology)"},
	} {
		t.Run(tc.name, func(t *testing.T) {
			chain := &Chain{Reader: holds(t, tc.cached...)}
			NewWithT(t).Expect(chain.NodeSources(t.Context(), inherit.SourceOfMachine(tc.m)).Top().String()).To(Equal(tc.want))
		})
	}
	NewWithT(t).Expect(inherit.Sources{}.Top().String()).To(Equal("an owner that is not known"))
}
