// SPDX-License-Identifier: Apache-2.0

package owners_test

import (
	"cmp"
	"context"
	"fmt"
	"maps"
	"reflect"
	"strings"
	"sync"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/types"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/heirloom-dev/heirloom/pkg/owners"
	"github.com/heirloom-dev/heirloom/test/sim/fakeclient"
)

// reader is a cache, or an API server. It notes what it is asked for.
type reader struct {
	client.Reader
	err error
	// broken is the only kind that fails with err; empty means all kinds.
	broken string

	mu    sync.Mutex
	asked []string
}

// holds returns a reader of these objects. The test fails if an object in its answers is changed.
func holds(t *testing.T, objects ...client.Object) *reader {
	t.Helper()
	return &reader{Reader: fakeclient.Cache(t, fakeclient.New(objects...))}
}

// Get implements client.Reader.
func (r *reader) Get(ctx context.Context, key client.ObjectKey, into client.Object, options ...client.GetOption) error {
	r.mu.Lock()
	defer r.mu.Unlock()
	kind := strings.TrimPrefix(fmt.Sprintf("%T", into), "*v1beta2.")
	if u, ok := into.(*unstructured.Unstructured); ok {
		kind = u.GetAPIVersion() + " " + u.GetKind()
	}
	r.asked = append(r.asked, kind+" "+key.Name)
	if r.err != nil && strings.HasPrefix(kind+" ", r.broken) {
		return r.err
	}
	return r.Reader.Get(ctx, key, into, options...)
}

// List implements client.Reader.
func (r *reader) List(ctx context.Context, list client.ObjectList, options ...client.ListOption) error {
	if r.err != nil {
		return r.err
	}
	return r.Reader.List(ctx, list, options...)
}

// gets returns the number of Get requests.
func (r *reader) gets() int { return len(r.asked) }

func fails(err error) *reader { return &reader{err: err} }

// from returns a chain that reads only the cache.
func from(cache client.Reader) *owners.Chain { return &owners.Chain{Cache: cache} }

// reading returns a chain like the loop's chain.
func reading(cache, live client.Reader) *owners.Chain { return &owners.Chain{Cache: cache, Live: live} }

// kindOf returns the row of an object's type.
func kindOf(object metav1.Object) owners.Kind {
	for _, kind := range []owners.Kind{
		owners.ControlPlanes, owners.MachineDeployments, owners.MachinePools, owners.MachineSets, owners.Machines, owners.ExternalObjects,
	} {
		if reflect.TypeOf(kind.New()) == reflect.TypeOf(object) {
			return kind
		}
	}
	panic(fmt.Sprintf("no kind has a %T", object))
}

// admission returns a chain like the webhooks' chain.
func admission(cache, live client.Reader) *owners.Chain {
	return &owners.Chain{Cache: cache, Live: live, Freshness: owners.FromCacheElseLive}
}

// itself is the Cluster whose Nodes are tested.
var itself = types.NamespacedName{Namespace: "ns", Name: "c"}

// named returns the metadata of an object in namespace ns. Its UID is its name; owner is "<kind>/<name>" of its controller, in short for
// cluster.x-k8s.io, or "<apiVersion> <kind>/<name>#<uid>" in full.
func named(name, owner string) metav1.ObjectMeta {
	m := metav1.ObjectMeta{Namespace: "ns", Name: name, UID: types.UID(name)}
	if owner == "" {
		return m
	}
	apiVersion, rest, ok := strings.Cut(owner, " ")
	if !ok {
		apiVersion, rest = "cluster.x-k8s.io/v1beta2", owner
	}
	kind, ownerName, _ := strings.Cut(rest, "/")
	ownerName, uid, _ := strings.Cut(ownerName, "#")
	uid = cmp.Or(uid, ownerName)
	m.OwnerReferences = []metav1.OwnerReference{
		{APIVersion: "v1", Kind: "ConfigMap", Name: "other", UID: "other"},
		{APIVersion: apiVersion, Kind: kind, Name: ownerName, UID: types.UID(uid), Controller: new(true)},
	}
	return m
}

func ofCluster(name string) *clusterv1.Cluster {
	return &clusterv1.Cluster{ObjectMeta: named(name, "")}
}

func pausedCluster() *clusterv1.Cluster {
	return &clusterv1.Cluster{ObjectMeta: named("c", ""), Spec: clusterv1.ClusterSpec{Paused: new(true)}}
}

func machine(name, owner string, changes ...func(*clusterv1.Machine)) *clusterv1.Machine {
	return change(&clusterv1.Machine{ObjectMeta: named(name, owner), Spec: clusterv1.MachineSpec{ClusterName: "c"}}, changes...)
}

func machineSet(owner string, changes ...func(*clusterv1.MachineSet)) *clusterv1.MachineSet {
	return change(&clusterv1.MachineSet{ObjectMeta: named("ms", owner), Spec: clusterv1.MachineSetSpec{ClusterName: "c"}}, changes...)
}

func machineDeployment(name string, changes ...func(*clusterv1.MachineDeployment)) *clusterv1.MachineDeployment {
	return change(&clusterv1.MachineDeployment{ObjectMeta: named(name, ""), Spec: clusterv1.MachineDeploymentSpec{ClusterName: "c"}}, changes...)
}

// machinePool returns a MachinePool that names the Nodes with these providerIDs.
func machinePool(name string, ids ...string) *clusterv1.MachinePool {
	return &clusterv1.MachinePool{ObjectMeta: named(name, ""), Spec: clusterv1.MachinePoolSpec{ClusterName: "c", ProviderIDList: ids}}
}

const (
	acme           = "controlplane.cluster.x-k8s.io/v1beta2"
	byControlPlane = acme + " AcmeControlPlane/cp"
)

// controlPlane returns a control plane of an unknown provider.
func controlPlane(cluster string, changes ...func(metav1.Object)) *unstructured.Unstructured {
	cp := &unstructured.Unstructured{Object: map[string]any{
		"apiVersion": acme, "kind": "AcmeControlPlane", "metadata": map[string]any{"namespace": "ns", "name": "cp", "uid": "cp"},
		"spec": map[string]any{"machineTemplate": map[string]any{"metadata": map[string]any{"labels": map[string]any{"fromControlPlane": "1"}}}},
	}}
	cp.SetLabels(map[string]string{clusterv1.ClusterNameLabel: cluster})
	for _, c := range changes {
		c(cp)
	}
	return cp
}

// topology refers to ClusterClass ns/cc, and has a section for every kind. The sections of workers have the name a.
func topology() clusterv1.Topology {
	labels := clusterv1.ObjectMeta{Labels: map[string]string{"fromCluster": "1"}}
	return clusterv1.Topology{ClassRef: clusterv1.ClusterClassRef{Name: "cc"}, ControlPlane: clusterv1.ControlPlaneTopology{Metadata: labels}, Workers: clusterv1.WorkersTopology{
		MachineDeployments: []clusterv1.MachineDeploymentTopology{{Name: "a", Class: "small", Metadata: labels}},
		MachinePools:       []clusterv1.MachinePoolTopology{{Name: "a", Class: "small", Metadata: labels}},
	}}
}

// managedCluster returns Cluster ns/c with ClusterClass ns/cc.
func managedCluster() *clusterv1.Cluster {
	return &clusterv1.Cluster{ObjectMeta: named("c", ""), Spec: clusterv1.ClusterSpec{Topology: topology()}}
}

func clusterClass() *clusterv1.ClusterClass {
	labels := clusterv1.ObjectMeta{Labels: map[string]string{"fromClass": "1"}}
	return &clusterv1.ClusterClass{ObjectMeta: named("cc", ""), Spec: clusterv1.ClusterClassSpec{ControlPlane: clusterv1.ControlPlaneClass{Metadata: labels}, Workers: clusterv1.WorkersClass{
		MachineDeployments: []clusterv1.MachineDeploymentClass{{Class: "small", Metadata: labels}},
		MachinePools:       []clusterv1.MachinePoolClass{{Class: "small", Metadata: labels}},
	}}}
}

// ofTopology makes the topology of ns/c manage an object, by the sections of name a.
func ofTopology(object metav1.Object) {
	object.SetLabels(map[string]string{
		"cluster.x-k8s.io/cluster-name": "c", "topology.cluster.x-k8s.io/owned": "",
		"topology.cluster.x-k8s.io/deployment-name": "a", "topology.cluster.x-k8s.io/pool-name": "a",
	})
}

// node reads a Node from "<name> <providerID> <InternalIP>"; parts at the end may be missing.
func node(known string) *corev1.Node {
	part := append(strings.Fields(known), "", "", "")
	n := &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: part[0]}, Spec: corev1.NodeSpec{ProviderID: part[1]}}
	if part[2] != "" {
		n.Status.Addresses = []corev1.NodeAddress{{Type: corev1.NodeInternalIP, Address: part[2]}}
	}
	return n
}

// change applies changes to an object and returns it.
func change[T any](object T, changes ...func(T)) T {
	for _, c := range changes {
		c(object)
	}
	return object
}

// also converts changes of any object to a change of type T.
func also[T metav1.Object](changes ...func(metav1.Object)) func(T) {
	return func(object T) { change[metav1.Object](object, changes...) }
}

// declaring makes an owner declare a label for its Machines.
func declaring(template *clusterv1.MachineTemplateSpec, key string) {
	template.Labels = map[string]string{key: "1"}
}

// setDeclares makes a MachineSet declare a label.
func setDeclares(key string) func(*clusterv1.MachineSet) {
	return func(ms *clusterv1.MachineSet) { declaring(&ms.Spec.Template, key) }
}

func elsewhere(m *clusterv1.Machine) { m.Spec.ClusterName = "other" }
func isNode(m *clusterv1.Machine)    { m.Status.NodeRef.Name = "n" }
func provided(m *clusterv1.Machine)  { m.Spec.ProviderID = "aws:1" }
func addressed(m *clusterv1.Machine) {
	m.Status.Addresses = []clusterv1.MachineAddress{{Type: clusterv1.MachineInternalIP, Address: "10.0.0.1"}}
}

func pause(object metav1.Object) { annotated(clusterv1.PausedAnnotation, "")(object) }

func deleting(object metav1.Object) {
	object.SetDeletionTimestamp(&metav1.Time{Time: time.Unix(1, 0)})
}

func label(key, value string) func(metav1.Object) {
	return func(object metav1.Object) { object.SetLabels(merged(object.GetLabels(), key, value)) }
}

func annotated(key, value string) func(metav1.Object) {
	return func(object metav1.Object) { object.SetAnnotations(merged(object.GetAnnotations(), key, value)) }
}

func merged(m map[string]string, key, value string) map[string]string {
	all := map[string]string{key: value}
	maps.Copy(all, m)
	return all
}
