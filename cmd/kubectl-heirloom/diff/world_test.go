// SPDX-License-Identifier: Apache-2.0

package diff

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"slices"
	"testing"
	"time"

	jsonpatch "github.com/evanphx/json-patch/v5"
	. "github.com/onsi/gomega"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/yaml"

	"github.com/heirloom-dev/heirloom/pkg/inherit"
	"github.com/heirloom-dev/heirloom/test/fleet"
)

// world is a management cluster, and the workload cluster of its Cluster c.
type world struct {
	objects     map[string]client.Object // by name
	workload    []client.Object
	unreachable error
	flags       []string
}

// small returns Cluster c with a topology of a class: MachineDeployment md, MachineSet ms and its Machines m-0, m-1 and m-2 with Nodes of
// the same names. Each Machine has an AcmeMachine.
func small() *world {
	w := &world{objects: map[string]client.Object{}}
	cluster := clusterv1.ClusterSpec{Topology: clusterv1.Topology{
		ClassRef: clusterv1.ClusterClassRef{Name: "class"},
		Workers:  clusterv1.WorkersTopology{MachineDeployments: []clusterv1.MachineDeploymentTopology{{Name: "a", Class: "a"}}},
	}}
	md := fleet.Named("md", "")
	md.Labels = map[string]string{
		clusterv1.ClusterNameLabel: "c", clusterv1.ClusterTopologyOwnedLabel: "", clusterv1.ClusterTopologyMachineDeploymentNameLabel: "a",
	}
	provisioned := clusterv1.ClusterStatus{Initialization: clusterv1.ClusterInitializationStatus{InfrastructureProvisioned: new(true)}}
	w.add(&clusterv1.ClusterClass{ObjectMeta: fleet.Named("class", "")}, &clusterv1.Cluster{ObjectMeta: fleet.Named("c", ""), Spec: cluster, Status: provisioned},
		&clusterv1.MachineDeployment{ObjectMeta: md, Spec: clusterv1.MachineDeploymentSpec{ClusterName: "c"}},
		&clusterv1.MachineSet{ObjectMeta: fleet.Named("ms", "MachineDeployment/md"), Spec: clusterv1.MachineSetSpec{ClusterName: "c"}})
	for i := range 3 {
		name := fmt.Sprintf("m-%d", i)
		m := &clusterv1.Machine{ObjectMeta: fleet.Named(name, "MachineSet/ms")}
		m.Spec = clusterv1.MachineSpec{ClusterName: "c", ProviderID: "acme://" + name}
		m.Spec.InfrastructureRef = clusterv1.ContractVersionedObjectReference{APIGroup: inherit.InfrastructureGroup, Kind: "AcmeMachine", Name: "infra-" + name}
		m.Status.NodeRef.Name = name
		infra := &unstructured.Unstructured{}
		infra.SetGroupVersionKind(acme)
		infra.SetNamespace("default")
		infra.SetName("infra-" + name)
		infra.SetLabels(map[string]string{clusterv1.ClusterNameLabel: "c"})
		infra.SetOwnerReferences(fleet.Named("", "Machine/"+name).OwnerReferences)
		w.add(m, infra)
		node := &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: name}, Spec: corev1.NodeSpec{ProviderID: "acme://" + name}} // a Node in use
		node.Annotations = map[string]string{clusterv1.TaintsFromMachineAnnotation: ""}
		node.Labels = map[string]string{inherit.RecordLabel: "e3b0c44298fc1c149afbf4c8996fb924"} // of an empty record
		node.CreationTimestamp = metav1.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC)
		w.workload = append(w.workload, node)
	}
	return w
}

var acme = schema.GroupVersionKind{Group: inherit.InfrastructureGroup, Version: "v1beta2", Kind: "AcmeMachine"}

func (w *world) add(objects ...client.Object) {
	for _, o := range objects {
		w.objects[o.GetName()] = o
	}
}

func (w *world) node(i int) *corev1.Node { return w.workload[i].(*corev1.Node) }

// ask returns the result for files; without files, the pending changes in Cluster c.
func (w *world) ask(t *testing.T, files ...string) (*Result, error) {
	t.Helper()
	g := NewWithT(t)
	live := fleet.Server(slices.Collect(maps.Values(w.objects))...).Build()
	q := Question{World: fleet.World(t, live, w.flags...)}
	q.Nodes = func(context.Context, types.NamespacedName) (client.Reader, error) {
		return fleet.Server(w.workload...).Build(), w.unreachable
	}
	if len(files) == 0 {
		q.Clusters = []types.NamespacedName{{Namespace: "default", Name: "c"}}
	}
	for _, file := range files {
		object := &unstructured.Unstructured{}
		g.Expect(yaml.Unmarshal([]byte(file), &object.Object)).To(Succeed())
		q.Files = append(q.Files, File{object, func() (runtime.Object, runtime.Object, error) { return merge(t, live, object) }})
	}
	return Ask(t.Context(), q)
}

// merge answers as an API server without defaults and webhooks.
func merge(t *testing.T, from client.Client, file *unstructured.Unstructured) (runtime.Object, runtime.Object, error) {
	live, merged := &unstructured.Unstructured{}, &unstructured.Unstructured{}
	live.SetGroupVersionKind(file.GroupVersionKind())
	if err := from.Get(t.Context(), client.ObjectKeyFromObject(file), live); apierrors.IsNotFound(err) {
		return nil, file, nil
	}
	before, _ := json.Marshal(live)
	change, _ := json.Marshal(file)
	after, err := jsonpatch.MergePatch(before, change)
	return live, merged, errors.Join(err, merged.UnmarshalJSON(after))
}

// answer returns the result of ask, and expects no error.
func (w *world) answer(t *testing.T, files ...string) *Result {
	t.Helper()
	result, err := w.ask(t, files...)
	NewWithT(t).Expect(err).NotTo(HaveOccurred())
	return result
}
