// SPDX-License-Identifier: Apache-2.0

package snapshot

import (
	"context"
	"fmt"
	"testing"

	. "github.com/onsi/gomega"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	utilruntime "k8s.io/apimachinery/pkg/util/runtime"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"

	"github.com/heirloom-dev/heirloom/pkg/inherit"
)

func acmeMachine() schema.GroupVersionKind {
	return clusterv1.GroupVersionInfrastructure.WithKind("AcmeMachine")
}

// elsewhereMachine is an InfraMachine of an API group that the server has to be told of.
func elsewhereMachine() schema.GroupVersionKind {
	return schema.GroupVersionKind{Group: "infra.example.com", Version: "v1", Kind: "ElsewhereMachine"}
}

func acmeControlPlane() schema.GroupVersionKind {
	return schema.GroupVersionKind{Group: inherit.ControlPlaneGroup, Version: "v1beta2", Kind: "AcmeControlPlane"}
}

// server is an API server that writes down what it is asked for, and fails where fails returns an error.
type server struct {
	*Snapshot
	client.Client
	asked []string
	fails func(verb, what string) error
}

func serve(t *testing.T, objects ...client.Object) *server {
	t.Helper()
	scheme := runtime.NewScheme()
	NewWithT(t).Expect(corev1.AddToScheme(scheme)).To(Succeed())
	utilruntime.Must(clusterv1.AddToScheme(scheme))
	mapper := meta.NewDefaultRESTMapper([]schema.GroupVersion{
		acmeMachine().GroupVersion(), elsewhereMachine().GroupVersion(), acmeControlPlane().GroupVersion(),
	})
	for _, gvk := range []schema.GroupVersionKind{acmeMachine(), elsewhereMachine(), acmeControlPlane()} {
		mapper.Add(gvk, meta.RESTScopeNamespace)
		scheme.AddKnownTypeWithName(gvk, &unstructured.Unstructured{})
		scheme.AddKnownTypeWithName(gvk.GroupVersion().WithKind(gvk.Kind+"List"), &unstructured.UnstructuredList{})
	}
	for _, kind := range []string{"Cluster", "ClusterClass", "MachineDeployment", "MachineSet", "MachinePool", "Machine"} {
		mapper.Add(clusterv1.GroupVersion.WithKind(kind), meta.RESTScopeNamespace)
	}
	s := &server{fails: func(string, string) error { return nil }}
	s.Client = fake.NewClientBuilder().WithScheme(scheme).WithRESTMapper(mapper).WithObjects(objects...).WithInterceptorFuncs(interceptor.Funcs{
		Get: func(ctx context.Context, c client.WithWatch, key client.ObjectKey, object client.Object, options ...client.GetOption) error {
			gvk, _ := c.GroupVersionKindFor(object)
			if err := s.ask("get", gvk.Kind+" "+key.String()); err != nil {
				return err
			}
			return c.Get(ctx, key, object, options...)
		},
		List: func(ctx context.Context, c client.WithWatch, list client.ObjectList, options ...client.ListOption) error {
			gvk, _ := c.GroupVersionKindFor(list)
			if err := s.ask("list", gvk.Kind+" "+(&client.ListOptions{}).ApplyOptions(options).Namespace); err != nil {
				return err
			}
			return c.List(ctx, list, options...)
		},
	}).Build()
	s.Snapshot = New(s.Client, layouts{})
	return s
}

func (s *server) ask(verb, what string) error {
	s.asked = append(s.asked, verb+" "+what)
	return s.fails(verb, what)
}

// layouts are those of kinds that have all fields.
type layouts struct{}

func (layouts) ControlPlane(context.Context, schema.GroupVersionKind) (inherit.Layout, error) {
	return inherit.ControlPlaneLayout("v1beta2", func(...string) bool { return true }), nil
}

func (layouts) Machine(context.Context, schema.GroupVersionKind) inherit.Layout {
	return inherit.MachineLayout
}

// named returns the metadata of an object in namespace fleet; the controller may be nil.
func named(name string, controller client.Object) metav1.ObjectMeta {
	object := metav1.ObjectMeta{Namespace: "fleet", Name: name, UID: types.UID(name), Labels: map[string]string{clusterv1.ClusterNameLabel: "prod"}}
	if controller != nil {
		gvk := controller.GetObjectKind().GroupVersionKind()
		object.OwnerReferences = []metav1.OwnerReference{{
			APIVersion: gvk.GroupVersion().String(), Kind: gvk.Kind, Name: controller.GetName(), UID: controller.GetUID(), Controller: new(true),
		}}
	}
	return object
}

// of sets the kind of an object, which owner references need.
func of[T client.Object](kind string, object T) T {
	object.GetObjectKind().SetGroupVersionKind(clusterv1.GroupVersion.WithKind(kind))
	return object
}

// fleet is Cluster fleet/prod with a control plane, a MachineDeployment with two MachineSets, a MachinePool, a MachineSet and a
// Machine that stand alone, and so many Machines in the first MachineSet, each with an InfraMachine. With them come the Nodes.
type fleet struct {
	cluster *clusterv1.Cluster
	sets    []*clusterv1.MachineSet
	objects []client.Object
	nodes   []client.Object
}

func fleetOf(machines int) *fleet {
	f := &fleet{cluster: of("Cluster", &clusterv1.Cluster{ObjectMeta: named("prod", nil)})}
	f.cluster.Spec.Topology = clusterv1.Topology{ClassRef: clusterv1.ClusterClassRef{Name: "quick", Namespace: "classes"}}
	f.cluster.Spec.ControlPlaneRef = clusterv1.ContractVersionedObjectReference{APIGroup: inherit.ControlPlaneGroup, Kind: "AcmeControlPlane", Name: "cp"}
	class := of("ClusterClass", &clusterv1.ClusterClass{ObjectMeta: metav1.ObjectMeta{Namespace: "classes", Name: "quick", UID: "quick"}})
	cp := &unstructured.Unstructured{Object: map[string]any{}}
	cp.SetGroupVersionKind(acmeControlPlane())
	cp.SetNamespace("fleet")
	cp.SetName("cp")
	cp.SetUID("cp")
	cp.SetLabels(map[string]string{clusterv1.ClusterNameLabel: "prod"})
	template := clusterv1.MachineTemplateSpec{ObjectMeta: clusterv1.ObjectMeta{Labels: map[string]string{"team": "ml"}}}
	md := of("MachineDeployment", &clusterv1.MachineDeployment{
		ObjectMeta: named("md", nil), Spec: clusterv1.MachineDeploymentSpec{ClusterName: "prod", Template: template},
	})
	pool := of("MachinePool", &clusterv1.MachinePool{ObjectMeta: named("pool", nil), Spec: clusterv1.MachinePoolSpec{ClusterName: "prod", Template: template}})
	workers := clusterv1.MachineSetSpec{ClusterName: "prod", Template: template}
	pool.Spec.ProviderIDList = []string{"acme://pool-0"}
	for _, name := range []string{"md-1", "md-2"} {
		f.sets = append(f.sets, of("MachineSet", &clusterv1.MachineSet{ObjectMeta: named(name, md), Spec: workers}))
	}
	alone := of("MachineSet", &clusterv1.MachineSet{ObjectMeta: named("alone", nil), Spec: workers})
	f.objects = append(f.objects, f.cluster, class, cp, md, pool, alone, f.sets[0], f.sets[1])
	f.machine("cp-0", cp)
	f.machine("alone-0", alone)
	f.machine("single", nil)
	for n := range machines {
		f.machine(fmt.Sprintf("md-1-%03d", n), f.sets[0])
	}
	f.nodes = append(f.nodes, node("pool-0"), node("stranger"))
	return f
}

func (f *fleet) machine(name string, owner client.Object) {
	m := of("Machine", &clusterv1.Machine{ObjectMeta: named(name, owner)})
	m.Spec.ClusterName, m.Spec.ProviderID = "prod", "acme://"+name
	m.Spec.InfrastructureRef = clusterv1.ContractVersionedObjectReference{APIGroup: acmeMachine().Group, Kind: acmeMachine().Kind, Name: name}
	infra := &unstructured.Unstructured{}
	infra.SetGroupVersionKind(acmeMachine())
	infra.SetNamespace("fleet")
	infra.SetName(name)
	infra.SetUID(types.UID("infra-" + name))
	infra.SetLabels(m.Labels)
	infra.SetOwnerReferences(named(name, m).OwnerReferences)
	f.objects, f.nodes = append(f.objects, m, infra), append(f.nodes, node(name))
}

func node(name string) *corev1.Node {
	return &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: "node-" + name}, Spec: corev1.NodeSpec{ProviderID: "acme://" + name}}
}

// reads returns Nodes that are these.
func reads(nodes ...client.Object) Nodes {
	workload := fake.NewClientBuilder().WithObjects(nodes...).Build()
	return func(context.Context, types.NamespacedName) (client.Reader, error) { return workload, nil }
}
