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

// touched is a label that a test writes so that webhooks review a child again. API servers send reviews about changes in this domain.
const touched = "test.x-k8s.io/touched"

// selected is the label in the selectors of MachineDeployments and MachineSets here.
const selected = "test/selected"

// machinePlace returns the place of content in a Machine.
func machinePlace() place {
	return newerFields().below("spec").in("metadata")
}

// templatePlace returns the place of content for Machines in a MachineDeployment, MachineSet or MachinePool.
func templatePlace() place {
	return newerFields().below("spec", "template", "spec").in("spec", "template", "metadata")
}

// sectionPlace returns the place of content for a MachineDeployment, relative to its section of a topology.
func sectionPlace() place {
	return newerFields().in("metadata")
}

// ofPool returns the place in a section for MachinePools.
func (p place) ofPool() place {
	p.gates = nil
	return p
}

// ofControlPlane returns the place in a section for control planes.
func (p place) ofControlPlane() place {
	p.minReady = nil
	return p
}

// newerFields returns the paths of taints and in-place fields in v1beta2, relative to the object that has them.
func newerFields() place {
	return place{
		taints: []string{"taints"}, gates: []string{"readinessGates"}, timeouts: []string{"deletion"}, minReady: []string{"minReadySeconds"},
	}
}

// in returns the same place with this path of its metadata.
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
	// template is the place of its content for Machines.
	template place
	// withoutMachines means that it has no Machines.
	withoutMachines bool
}

// conformingProviders returns the kinds of control planes that conform: Cluster API's own, one kind for each version of its contract,
// a kind without the optional fields of the contract, and a kind without Machines.
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

// ref returns a reference to an object, in the format of Cluster API's core.
func (l *descent) ref(apiVersion, kind, name string) map[string]any {
	group, _, _ := strings.Cut(apiVersion, "/")
	return map[string]any{"apiGroup": group, "kind": kind, "name": name}
}

// object returns an object that belongs to the subtest's Cluster.
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

// externalKind is the kind of an external object of a Machine.
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

// machineSpec returns the spec of a Machine or of a template for Machines. The Machine's external objects have its name.
func (l *descent) machineSpec(infrastructure externalKind) map[string]any {
	config := kubeadmConfig()
	return map[string]any{
		"clusterName":       l.clusterName(),
		"bootstrap":         map[string]any{"configRef": l.ref(config.apiVersion, config.kind, l.name), "dataSecretName": "bootstrap-data"},
		"infrastructureRef": l.ref(infrastructure.apiVersion, infrastructure.kind, l.name),
	}
}

// bareMachine returns a Machine without an owner.
func (l *descent) bareMachine(infrastructure externalKind) *unstructured.Unstructured {
	m := l.core("Machine", l.machineSpec(infrastructure))
	set(m.Object, stage.ProviderID(l.namespace+"-"+l.name), "spec", "providerID")
	return m
}

// workers returns a MachineDeployment or MachineSet with a template that declares nothing.
func (l *descent) workers(kind string) *unstructured.Unstructured {
	u := l.pool()
	u.SetKind(kind)
	selector := map[string]any{selected: l.name}
	set(u.Object, map[string]any{"matchLabels": selector}, "spec", "selector")
	set(u.Object, selector, "spec", "template", "metadata", "labels")
	return u
}

// pool returns a MachinePool with a template that declares nothing.
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

// externalObject returns an InfraMachine or a BootstrapConfig.
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

// createHome stores the Cluster of the management cluster itself, unless it exists.
func (l *descent) createHome() {
	l.t.Helper()
	l.ensureNamespace(stage.Home)
	cluster := l.cluster()
	cluster.SetName(stage.Home)
	l.Expect(client.IgnoreAlreadyExists(l.Client.Create(l.ctx, cluster))).To(Succeed())
}
