// SPDX-License-Identifier: Apache-2.0

package integration

import (
	"strings"

	. "github.com/onsi/gomega"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/heirloom-dev/heirloom/pkg/inherit"
	"github.com/heirloom-dev/heirloom/test/stage"
)

// touched is a label that a test writes so that admission sees a child again. API servers ask about every change in this domain.
const touched = "test.x-k8s.io/touched"

// selected is the label by which the MachineDeployments and MachineSets here select.
const selected = "test/selected"

// machine is where a Machine has content.
func machinePlace() place {
	return newerFields().below("spec").in("metadata")
}

// template is where a MachineDeployment, MachineSet or MachinePool has content for its Machines.
func templatePlace() place {
	return newerFields().below("spec", "template", "spec").in("spec", "template", "metadata")
}

// section is where a topology has content for a MachineDeployment, inside of that section.
func sectionPlace() place {
	return newerFields().in("metadata")
}

// ofPool is a section for MachinePools.
func (p place) ofPool() place {
	p.gates = nil
	return p
}

// ofControlPlane is a section for control planes.
func (p place) ofControlPlane() place {
	p.minReady = nil
	return p
}

// newerFields are taints and in-place fields as v1beta2 has them, inside of what has them.
func newerFields() place {
	return place{
		taints: []string{"taints"}, gates: []string{"readinessGates"}, timeouts: []string{"deletion"}, minReady: []string{"minReadySeconds"},
	}
}

// in is the same place with its metadata there.
func (p place) in(metadata ...string) place {
	p.metadata = metadata
	return p
}

func metadataPlace() place {
	return place{metadata: []string{"metadata"}}
}

func nodePlace() place {
	return place{metadata: []string{"metadata"}, taints: []string{"spec", "taints"}, node: true}
}

// provider is a kind of control plane.
type provider struct {
	kind, version string
	// template is where it has content for its Machines.
	template place
	// withoutMachines says that it does not consist of Machines.
	withoutMachines bool
}

// providers are the kinds of control planes that conform: Cluster API's own, one of each version of its contract, one
// that has none of the contract's optional fields, and one without Machines.
func conformingProviders() []provider {
	plain := place{}.in("spec", "machineTemplate", "metadata")
	newer := newerFields().ofControlPlane().below("spec", "machineTemplate", "spec").in(plain.metadata...)
	older := plain
	older.timeouts, older.durations = []string{"spec", "machineTemplate"}, true
	kubeadm := provider{kind: "KubeadmControlPlane", version: "v1beta2", template: newer}
	olderWithLists := older
	olderWithLists.taints = []string{"spec", "machineTemplate", "taints"}
	olderWithLists.gates = []string{"spec", "machineTemplate", "readinessGates"}
	return []provider{
		kubeadm,
		{kind: "ModernControlPlane", version: "v1beta2", template: newer},
		{kind: "OlderControlPlane", version: "v1beta1", template: olderWithLists},
		{kind: "PlainControlPlane", version: "v1beta1", template: plain},
		{kind: "ManagedControlPlane", version: "v1beta1", withoutMachines: true},
	}
}

func (p provider) apiVersion() string {
	return inherit.ControlPlaneGroup + "/" + p.version
}

// ref is a reference of Cluster API's core to an object.
func (l *descent) ref(apiVersion, kind, name string) map[string]any {
	group, _, _ := strings.Cut(apiVersion, "/")
	return map[string]any{"apiGroup": group, "kind": kind, "name": name}
}

// object is one that belongs to the subtest's Cluster.
func (l *descent) object(apiVersion, kind string, spec map[string]any) *unstructured.Unstructured {
	u := &unstructured.Unstructured{Object: map[string]any{"spec": spec}}
	u.SetAPIVersion(apiVersion)
	u.SetKind(kind)
	u.SetNamespace(l.namespace)
	u.SetName(l.name)
	u.SetLabels(map[string]string{clusterv1.ClusterNameLabel: l.clusterName()})
	return u
}

func (l *descent) core(kind string, spec map[string]any) *unstructured.Unstructured {
	return l.object(clusterv1.GroupVersion.String(), kind, spec)
}

func (l *descent) cluster() *unstructured.Unstructured {
	services := map[string]any{"services": map[string]any{"cidrBlocks": []any{"10.128.0.0/12"}}}
	return l.core("Cluster", map[string]any{"clusterNetwork": services})
}

// kind is that of the objects beside a Machine.
type externalKind struct{ apiVersion, kind string }

func fakeMachine() externalKind {
	return externalKind{inherit.InfrastructureGroup + "/v1beta2", "FakeMachine"}
}

func exampleMachine() externalKind {
	return externalKind{"infrastructure.example.com/v1", "ExampleMachine"}
}

func kubeadmConfig() externalKind {
	return externalKind{inherit.BootstrapGroup + "/v1beta2", "KubeadmConfig"}
}

// machineSpec is the spec of a Machine or that in a template. The Machine's external objects have its name.
func (l *descent) machineSpec(infrastructure externalKind) map[string]any {
	config := kubeadmConfig()
	return map[string]any{
		"clusterName":       l.clusterName(),
		"bootstrap":         map[string]any{"configRef": l.ref(config.apiVersion, config.kind, l.name), "dataSecretName": "bootstrap-data"},
		"infrastructureRef": l.ref(infrastructure.apiVersion, infrastructure.kind, l.name),
	}
}

// bareMachine is a Machine without an owner.
func (l *descent) bareMachine(infrastructure externalKind) *unstructured.Unstructured {
	m := l.core("Machine", l.machineSpec(infrastructure))
	set(m.Object, stage.ProviderID(l.namespace+"-"+l.name), "spec", "providerID")
	return m
}

// workers is a MachineDeployment or MachineSet with a template that declares nothing.
func (l *descent) workers(kind string) *unstructured.Unstructured {
	u := l.pool()
	u.SetKind(kind)
	selector := map[string]any{selected: l.name}
	set(u.Object, map[string]any{"matchLabels": selector}, "spec", "selector")
	set(u.Object, selector, "spec", "template", "metadata", "labels")
	return u
}

// pool is a MachinePool with a template that declares nothing.
func (l *descent) pool() *unstructured.Unstructured {
	return l.core("MachinePool", map[string]any{
		"clusterName": l.clusterName(), "replicas": int64(1), "template": map[string]any{"spec": l.machineSpec(fakeMachine())},
	})
}

func (l *descent) controlPlane(p provider) *unstructured.Unstructured {
	cp := l.object(p.apiVersion(), p.kind, map[string]any{"version": "v1.36.0"})
	if p.withoutMachines {
		return cp
	}
	set(cp.Object, int64(3), "spec", "replicas")
	ref := map[string]any{"kind": "FakeMachineTemplate", "name": l.name}
	at := []string{"spec", "machineTemplate", "infrastructureRef"}
	if p.template.durations || p.template.timeouts == nil {
		ref["apiVersion"] = fakeMachine().apiVersion
	} else {
		at = []string{"spec", "machineTemplate", "spec", "infrastructureRef"}
		ref["apiGroup"] = inherit.InfrastructureGroup
	}
	set(cp.Object, ref, at...)
	return cp
}

// externalObject is an InfraMachine or a BootstrapConfig.
func (l *descent) externalObject(kind externalKind) *unstructured.Unstructured {
	return l.object(kind.apiVersion, kind.kind, map[string]any{"verbosity": int64(4)})
}

func (l *descent) node() *unstructured.Unstructured {
	name := l.namespace + "-" + l.name
	node := &unstructured.Unstructured{Object: map[string]any{"spec": map[string]any{"providerID": stage.ProviderID(name)}}}
	node.SetAPIVersion("v1")
	node.SetKind("Node")
	node.SetName(name)
	return node
}

func (l *descent) clusterName() string {
	if l.home {
		return stage.Home
	}
	return l.name
}

// createHome stores the Cluster of the management cluster itself, which is there after the first time.
func (l *descent) createHome() {
	l.t.Helper()
	l.ensureNamespace(stage.Home)
	cluster := l.cluster()
	cluster.SetName(stage.Home)
	l.Expect(client.IgnoreAlreadyExists(l.Client.Create(l.ctx, cluster))).To(Succeed())
}
