// SPDX-License-Identifier: Apache-2.0

package controllers_test

import (
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/ptr"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/heirloom-dev/heirloom/pkg/inherit"
)

// All objects are in namespace ns and belong to Cluster c. The UID of each is its name.

func key(name string) types.NamespacedName { return types.NamespacedName{Namespace: "ns", Name: name} }

func named(name string) metav1.ObjectMeta {
	return metav1.ObjectMeta{
		Namespace: "ns", Name: name, UID: types.UID(name), CreationTimestamp: metav1.Date(2020, 1, 1, 0, 0, 0, 0, time.UTC),
		Labels: map[string]string{clusterv1.ClusterNameLabel: "c"},
		// Another client has written the object since its creation.
		ManagedFields: []metav1.ManagedFieldsEntry{{
			Manager: "somebody", Operation: metav1.ManagedFieldsOperationUpdate, APIVersion: clusterv1.GroupVersion.String(),
			Time: &metav1.Time{Time: time.Date(2021, 1, 1, 0, 0, 0, 0, time.UTC)}, FieldsType: "FieldsV1", FieldsV1: metav1.NewFieldsV1("{}"),
		}},
	}
}

// ownedBy is like named, with a controller reference to owner, "<kind>/<name>".
func ownedBy(name, owner string) metav1.ObjectMeta {
	m := named(name)
	kind, ownerName, _ := strings.Cut(owner, "/")
	apiVersion := clusterv1.GroupVersion.String()
	if provider := providerKind(kind); !provider.Empty() {
		apiVersion = provider.GroupVersion().String()
	}
	m.OwnerReferences = []metav1.OwnerReference{
		{APIVersion: apiVersion, Kind: kind, Name: ownerName, UID: types.UID(ownerName), Controller: ptr.To(true)},
	}
	return m
}

// template returns a template that declares the labels, each "<key>=<value>".
func template(labels ...string) clusterv1.MachineTemplateSpec {
	return clusterv1.MachineTemplateSpec{ObjectMeta: clusterv1.ObjectMeta{Labels: pairs(labels...)}}
}

func pairs(all ...string) map[string]string {
	m := map[string]string{}
	for _, pair := range all {
		key, value, _ := strings.Cut(pair, "=")
		m[key] = value
	}
	return m
}

func theCluster() *clusterv1.Cluster {
	return &clusterv1.Cluster{ObjectMeta: metav1.ObjectMeta{Namespace: "ns", Name: "c", UID: "c"}}
}

func machineDeployment(labels ...string) *clusterv1.MachineDeployment {
	return &clusterv1.MachineDeployment{ObjectMeta: named("md"), Spec: clusterv1.MachineDeploymentSpec{ClusterName: "c", Template: template(labels...)}}
}

func machineSet(labels ...string) *clusterv1.MachineSet {
	return &clusterv1.MachineSet{ObjectMeta: ownedBy("ms", "MachineDeployment/md"), Spec: clusterv1.MachineSetSpec{ClusterName: "c", Template: template(labels...)}}
}

func machinePool(labels ...string) *clusterv1.MachinePool {
	return &clusterv1.MachinePool{
		ObjectMeta: named("mp"),
		Spec:       clusterv1.MachinePoolSpec{ClusterName: "c", Template: template(labels...), ProviderIDList: []string{"id-pooled"}},
	}
}

// machine returns a Machine whose Node has the same name. owner is "<kind>/<name>".
func machine(name, owner string) *clusterv1.Machine {
	return &clusterv1.Machine{ObjectMeta: ownedBy(name, owner), Spec: clusterv1.MachineSpec{ClusterName: "c", ProviderID: "id-" + name}}
}

func node(name string) *corev1.Node {
	n := &corev1.Node{ObjectMeta: named(name), Spec: corev1.NodeSpec{ProviderID: "id-" + name}}
	n.Namespace, n.Labels = "", nil
	return n
}

// provider returns a control plane, InfraMachine or BootstrapConfig with this metadata.
func provider(kind string, metadata metav1.ObjectMeta) *unstructured.Unstructured {
	content, err := runtime.DefaultUnstructuredConverter.ToUnstructured(&metadata)
	if err != nil {
		panic(err)
	}
	object := &unstructured.Unstructured{Object: map[string]any{"metadata": content}}
	object.SetGroupVersionKind(providerKind(kind))
	return object
}

// scene is a child and the owner that declares the label team=ml for it.
type scene struct {
	name         string
	owner, child client.Object
	// about is the object that a request names: a control plane is reconciled when its Cluster is.
	about client.Object
	// around holds the other objects that the scene needs.
	around []client.Object
	// body is the inherited part of the child, as in an apply. kind is the value of the label kind in metrics.
	body, kind string
	// provider reports whether the kind of the owner or the child is a provider's.
	provider bool
}

const (
	top          = `{"metadata":{"labels":{"team":"ml"}}}`
	templateOnly = `{"metadata":{"labels":{"team":"ml"}},"spec":{"template":{"metadata":{"labels":{"team":"ml"}}}}}`
	machineOnly  = `{"metadata":{"labels":{"team":"ml"}},"spec":{"machineTemplate":{"metadata":{"labels":{"team":"ml"}}}}}`
)

func scenes() []scene {
	scenes := []scene{
		{name: "a control plane", owner: clusterClass("team=ml"), child: managed(controlPlane()), about: managedCluster(), body: machineOnly, kind: "ControlPlane", provider: true},
		{name: "a MachineDeployment", owner: clusterClass("team=ml"), child: managed(machineDeployment()), body: templateOnly, around: []client.Object{managedCluster()}},
		{name: "a MachinePool", owner: clusterClass("team=ml"), child: managed(machinePool()), body: templateOnly, around: []client.Object{managedCluster()}},
		{name: "a MachineSet", owner: machineDeployment("team=ml"), child: machineSet(), body: templateOnly},
		{name: "a Machine of a MachineSet", owner: machineSet("team=ml"), child: machine("m", "MachineSet/ms"), body: top},
		{name: "a Machine of a MachinePool", owner: machinePool("team=ml"), child: machine("m", "MachinePool/mp"), body: top},
		{name: "a Machine of a control plane", owner: controlPlane("team=ml"), child: machine("m", "FakeControlPlane/cp"), body: top, provider: true},
		{name: "an InfraMachine", owner: machineSet("team=ml"), child: externalObject("FakeMachine"), about: withExternal("FakeMachine"), body: top, kind: "InfraMachine", provider: true},
		{name: "a BootstrapConfig", owner: machineSet("team=ml"), child: externalObject("FakeConfig"), about: withExternal("FakeConfig"), body: top, kind: "BootstrapConfig", provider: true},
	}
	for i := range scenes {
		if scenes[i].about == nil {
			scenes[i].about = scenes[i].child
		}
		if len(scenes[i].around) == 0 && scenes[i].name != "a control plane" {
			scenes[i].around = []client.Object{theCluster()}
		}
	}
	return scenes
}

// each runs a test for every scene, with its own objects.
func each(t *testing.T, tell func(l *loop, s *scene)) {
	t.Helper()
	for _, s := range scenes() {
		t.Run(s.name, func(t *testing.T) {
			objects := append([]client.Object{s.owner, s.child}, s.around...)
			if s.about != s.child {
				objects = append(objects, s.about)
			}
			l := newLoop(t, objects...)
			if s.kind == "" {
				s.kind = l.kindOf(s.child).Kind
			}
			tell(l, &s)
		})
	}
}

// managedCluster returns a Cluster with a topology of ClusterClass class. Its MachineDeployment and its MachinePool have the same section.
func managedCluster() *clusterv1.Cluster {
	cluster := theCluster()
	cluster.Spec.Topology = clusterv1.Topology{ClassRef: clusterv1.ClusterClassRef{Name: "class"}, Workers: clusterv1.WorkersTopology{
		MachineDeployments: []clusterv1.MachineDeploymentTopology{{Name: "workers", Class: "worker"}},
		MachinePools:       []clusterv1.MachinePoolTopology{{Name: "workers", Class: "worker"}},
	}}
	cluster.Spec.ControlPlaneRef = clusterv1.ContractVersionedObjectReference{APIGroup: inherit.ControlPlaneGroup, Kind: "FakeControlPlane", Name: "cp"}
	return cluster
}

func clusterClass(labels ...string) *clusterv1.ClusterClass {
	class := &clusterv1.ClusterClass{ObjectMeta: named("class")}
	declare(class, labels...)
	return class
}

// managed labels an object as part of the topology.
func managed[T client.Object](object T) T {
	labels := object.GetLabels()
	labels[clusterv1.ClusterTopologyOwnedLabel] = ""
	labels[clusterv1.ClusterTopologyMachineDeploymentNameLabel], labels[clusterv1.ClusterTopologyMachinePoolNameLabel] = "workers", "workers"
	object.SetLabels(labels)
	return object
}

func controlPlane(labels ...string) *unstructured.Unstructured {
	cp := provider("FakeControlPlane", named("cp"))
	declare(cp, labels...)
	return cp
}

// externalObject returns an InfraMachine or a BootstrapConfig of Machine m.
func externalObject(kind string) *unstructured.Unstructured {
	return provider(kind, ownedBy("beside", "Machine/m"))
}

// withExternal returns Machine m, which has its inherited label and refers to this external object.
func withExternal(kind string) *clusterv1.Machine {
	m := machine("m", "MachineSet/ms")
	m.Labels["team"] = "ml"
	if kind == "FakeMachine" {
		m.Spec.InfrastructureRef = clusterv1.ContractVersionedObjectReference{APIGroup: inherit.InfrastructureGroup, Kind: kind, Name: "beside"}
	} else {
		m.Spec.Bootstrap.ConfigRef = clusterv1.ContractVersionedObjectReference{APIGroup: inherit.BootstrapGroup, Kind: kind, Name: "beside"}
	}
	return m
}

// declare makes an owner declare exactly these labels for its children.
func declare(owner client.Object, labels ...string) {
	switch owner := owner.(type) {
	case *clusterv1.ClusterClass:
		metadata := template(labels...).ObjectMeta
		owner.Spec.ControlPlane.Metadata, owner.Spec.ControlPlane.MachineInfrastructure.TemplateRef.Name = metadata, "t"
		owner.Spec.Workers = clusterv1.WorkersClass{
			MachineDeployments: []clusterv1.MachineDeploymentClass{{Class: "worker", Metadata: metadata}},
			MachinePools:       []clusterv1.MachinePoolClass{{Class: "worker", Metadata: metadata}},
		}
	case *clusterv1.MachineDeployment:
		owner.Spec.Template = template(labels...)
	case *clusterv1.MachineSet:
		owner.Spec.Template = template(labels...)
	case *clusterv1.MachinePool:
		owner.Spec.Template = template(labels...)
	case *unstructured.Unstructured:
		all := map[string]any{}
		for key, value := range pairs(labels...) {
			all[key] = value
		}
		owner.Object["spec"] = map[string]any{"machineTemplate": map[string]any{"metadata": map[string]any{"labels": all}}}
	}
}

// pool is a label that Cluster API propagates to Nodes. worker is a label that kubelets may not set.
const pool, worker = "node.cluster.x-k8s.io/pool", "node-role.kubernetes.io/worker"
