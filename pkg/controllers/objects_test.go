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
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/ptr"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/heirloom-dev/heirloom/pkg/inherit"
	"github.com/heirloom-dev/heirloom/test/sim/fakeclient"
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
	if kind == fakeclient.ControlPlane.Kind {
		apiVersion = fakeclient.ControlPlane.GroupVersion().String()
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
func provider(kind schema.GroupVersionKind, metadata metav1.ObjectMeta) *unstructured.Unstructured {
	content, err := runtime.DefaultUnstructuredConverter.ToUnstructured(&metadata)
	if err != nil {
		panic(err)
	}
	object := &unstructured.Unstructured{Object: map[string]any{"metadata": content}}
	object.SetGroupVersionKind(kind)
	return object
}

// scene is a child and the owner that declares the label team=ml for it.
type scene struct {
	owner, child client.Object
	// about is the object that a request names: a control plane is reconciled when its Cluster is, an external object when its Machine is.
	about client.Object
	// around holds the other objects that the scene needs.
	around []client.Object
	// kind is the value of the label kind in metrics.
	kind string
	// template reports whether the child has a template for Machines, which inherits the label, too.
	template bool
	// provider reports whether the kind of the owner or the child is a provider's.
	provider bool
}

func scenes() map[string]scene {
	class, set, inTopology, alone := clusterClass("team=ml"), machineSet("team=ml"), []client.Object{managedCluster()}, []client.Object{theCluster()}
	ofPool, ofControlPlane := machine("m", "MachinePool/mp"), machine("m", "AcmeControlPlane/cp")
	infra, config := external(fakeclient.InfraMachine), external(fakeclient.BootstrapConfig)
	return map[string]scene{
		"a control plane":              {owner: class, child: managed(controlPlane()), about: managedCluster(), template: true, kind: "ControlPlane", provider: true},
		"a MachineDeployment":          {owner: class, child: managed(machineDeployment()), around: inTopology, template: true, kind: "MachineDeployment"},
		"a MachinePool":                {owner: class, child: managed(machinePool()), around: inTopology, template: true, kind: "MachinePool"},
		"a MachineSet":                 {owner: machineDeployment("team=ml"), child: machineSet(), around: alone, template: true, kind: "MachineSet"},
		"a Machine of a MachineSet":    {owner: set, child: machine("m", "MachineSet/ms"), around: alone, kind: "Machine"},
		"a Machine of a MachinePool":   {owner: machinePool("team=ml"), child: ofPool, around: alone, kind: "Machine"},
		"a Machine of a control plane": {owner: controlPlane("team=ml"), child: ofControlPlane, around: alone, kind: "Machine", provider: true},
		"an InfraMachine":              {owner: set, child: infra, about: withExternal(infra), around: alone, kind: "InfraMachine", provider: true},
		"a BootstrapConfig":            {owner: set, child: config, about: withExternal(config), around: alone, kind: "BootstrapConfig", provider: true},
	}
}

// each runs a test for every scene, with its own objects.
func each(t *testing.T, tell func(l *loop, s *scene)) {
	t.Helper()
	for name := range scenes() {
		t.Run(name, func(t *testing.T) {
			s := scenes()[name]
			objects := append([]client.Object{s.owner, s.child}, s.around...)
			if s.about != nil {
				objects = append(objects, s.about)
			} else {
				s.about = s.child
			}
			tell(newLoop(t, objects...), &s)
		})
	}
}

// labels returns the number of labels that the child inherits.
func (s *scene) labels() int {
	if s.template {
		return 2
	}
	return 1
}

// managedCluster returns a Cluster with a topology of ClusterClass class. Its MachineDeployment and its MachinePool have the same section.
func managedCluster() *clusterv1.Cluster {
	cluster := theCluster()
	cluster.Spec.Topology = clusterv1.Topology{ClassRef: clusterv1.ClusterClassRef{Name: "class"}, Workers: clusterv1.WorkersTopology{
		MachineDeployments: []clusterv1.MachineDeploymentTopology{{Name: "workers", Class: "worker"}},
		MachinePools:       []clusterv1.MachinePoolTopology{{Name: "workers", Class: "worker"}},
	}}
	cluster.Spec.ControlPlaneRef = clusterv1.ContractVersionedObjectReference{APIGroup: inherit.ControlPlaneGroup, Kind: "AcmeControlPlane", Name: "cp"}
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
	cp := provider(fakeclient.ControlPlane, named("cp"))
	declare(cp, labels...)
	return cp
}

// external returns an InfraMachine or a BootstrapConfig of Machine m.
func external(kind schema.GroupVersionKind) *unstructured.Unstructured {
	return provider(kind, ownedBy(strings.ToLower(kind.Kind), "Machine/m"))
}

// withExternal returns Machine m, which has its inherited label and refers to these external objects.
func withExternal(objects ...*unstructured.Unstructured) *clusterv1.Machine {
	m := machine("m", "MachineSet/ms")
	m.Labels["team"] = "ml"
	refer(m, objects...)
	return m
}

// refer makes a Machine refer to external objects.
func refer(m *clusterv1.Machine, objects ...*unstructured.Unstructured) {
	for _, object := range objects {
		kind := object.GroupVersionKind()
		ref := clusterv1.ContractVersionedObjectReference{APIGroup: kind.Group, Kind: kind.Kind, Name: object.GetName()}
		if kind == fakeclient.InfraMachine {
			m.Spec.InfrastructureRef = ref
		} else {
			m.Spec.Bootstrap.ConfigRef = ref
		}
	}
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

// with returns a map with one more entry.
func with(m map[string]string, key, value string) map[string]string {
	if m == nil {
		m = map[string]string{}
	}
	m[key] = value
	return m
}
