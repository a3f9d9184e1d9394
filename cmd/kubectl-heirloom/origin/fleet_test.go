// SPDX-License-Identifier: Apache-2.0

package origin

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/heirloom-dev/heirloom/cmd/kubectl-heirloom/snapshot"
	"github.com/heirloom-dev/heirloom/pkg/inherit"
)

const acme = inherit.ControlPlaneGroup + "/v1beta2"

// fleet is Cluster c with a topology: control plane cp, of which Machine cp-m is; MachineDeployment md, of which Machine m is,
// Node n; and MachinePool mp, of which Node pooled is. Beside it are Machine by-ref, Node ref, and Machine alone of no topology. The
// label a is the ClusterClass's, b the Cluster's; both are everywhere.
func fleet() []client.Object {
	class, topology := sections("a", "a", clusterv1.ObjectMeta{Labels: map[string]string{labelOfClass: "1"}}, clusterv1.ObjectMeta{Labels: map[string]string{labelOfCluster: "1"}})
	class.ControlPlane.MachineInfrastructure.TemplateRef.Name = "t"
	both := map[string]string{labelOfClass: "1", labelOfCluster: "1"}
	managed := func(name, controller string) metav1.ObjectMeta {
		object := named(name, controller)
		object.Labels = map[string]string{
			clusterv1.ClusterNameLabel: "c", clusterv1.ClusterTopologyOwnedLabel: "",
			clusterv1.ClusterTopologyMachineDeploymentNameLabel: "a", clusterv1.ClusterTopologyMachinePoolNameLabel: "a",
			labelOfClass: "1", labelOfCluster: "1",
		}
		return object
	}
	template := clusterv1.MachineTemplateSpec{ObjectMeta: clusterv1.ObjectMeta{Labels: both}}
	cp := &unstructured.Unstructured{Object: map[string]any{
		"spec": map[string]any{"machineTemplate": map[string]any{"metadata": map[string]any{"labels": map[string]any{labelOfClass: "1", labelOfCluster: "1"}}}},
	}}
	cp.SetAPIVersion(acme)
	cp.SetKind("AcmeControlPlane")
	cp.SetNamespace("default")
	cp.SetName("cp")
	cp.SetUID("cp")
	cp.SetLabels(managed("cp", "").Labels)
	ofControlPlane := managed("cp-m", "AcmeControlPlane/cp")
	ofControlPlane.OwnerReferences[0].APIVersion = acme
	infra := &unstructured.Unstructured{}
	infra.SetAPIVersion(inherit.InfrastructureGroup + "/v1beta2")
	infra.SetKind("AcmeMachine")
	infra.SetNamespace("default")
	infra.SetName("m")
	infra.SetLabels(managed("m", "").Labels)
	infra.SetOwnerReferences(named("m", "Machine/m").OwnerReferences)
	return []client.Object{
		&clusterv1.Cluster{ObjectMeta: named("c", ""), Spec: clusterv1.ClusterSpec{Topology: topology}},
		&clusterv1.ClusterClass{ObjectMeta: named("class", ""), Spec: class},
		cp, infra,
		&clusterv1.MachineDeployment{ObjectMeta: managed("md", ""), Spec: clusterv1.MachineDeploymentSpec{ClusterName: "c", Template: template}},
		&clusterv1.MachineSet{ObjectMeta: managed("ms", "MachineDeployment/md"), Spec: clusterv1.MachineSetSpec{ClusterName: "c", Template: template}},
		&clusterv1.MachinePool{ObjectMeta: managed("mp", ""), Spec: clusterv1.MachinePoolSpec{ClusterName: "c", Template: template, ProviderIDList: []string{"pooled"}}},
		&clusterv1.Machine{ObjectMeta: ofControlPlane, Spec: clusterv1.MachineSpec{ClusterName: "c"}},
		&clusterv1.Machine{ObjectMeta: managed("m", "MachineSet/ms"), Spec: clusterv1.MachineSpec{
			ClusterName: "c", ProviderID: "id", InfrastructureRef: clusterv1.ContractVersionedObjectReference{APIGroup: inherit.InfrastructureGroup, Kind: "AcmeMachine", Name: "m"},
		}},
		&clusterv1.Machine{
			ObjectMeta: managed("by-ref", ""), Spec: clusterv1.MachineSpec{ClusterName: "c"}, Status: clusterv1.MachineStatus{NodeRef: clusterv1.MachineNodeReference{Name: "ref"}},
		},
		&clusterv1.Machine{ObjectMeta: named("alone", ""), Spec: clusterv1.MachineSpec{ClusterName: "c"}},
		nodeOf("n", "id"), nodeOf("pooled", "pooled"), nodeOf("ref", ""),
	}
}

// sections are a ClusterClass with a section for every kind, and a topology of it. The sections of workers have that name and class.
func sections(name, class string, inClass, inTopology clusterv1.ObjectMeta) (clusterv1.ClusterClassSpec, clusterv1.Topology) {
	return clusterv1.ClusterClassSpec{ControlPlane: clusterv1.ControlPlaneClass{Metadata: inClass}, Workers: clusterv1.WorkersClass{
			MachineDeployments: []clusterv1.MachineDeploymentClass{{Class: class, Metadata: inClass}},
			MachinePools:       []clusterv1.MachinePoolClass{{Class: class, Metadata: inClass}},
		}}, clusterv1.Topology{
			ClassRef: clusterv1.ClusterClassRef{Name: "class"}, ControlPlane: clusterv1.ControlPlaneTopology{Metadata: inTopology},
			Workers: clusterv1.WorkersTopology{
				MachineDeployments: []clusterv1.MachineDeploymentTopology{{Name: name, Class: class, Metadata: inTopology}},
				MachinePools:       []clusterv1.MachinePoolTopology{{Name: name, Class: class, Metadata: inTopology}},
			},
		}
}

const (
	labelOfClass   = clusterv1.ManagedNodeLabelDomain + "/a"
	labelOfCluster = clusterv1.ManagedNodeLabelDomain + "/b"
)

func nodeOf(name, providerID string) *corev1.Node {
	labels := map[string]string{labelOfClass: "1", labelOfCluster: "1"}
	return &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: name, Labels: labels}, Spec: corev1.NodeSpec{ProviderID: providerID}}
}

func capiKind(kind string) schema.GroupVersionKind { return clusterv1.GroupVersion.WithKind(kind) }

// What is inherited is followed to the top, whatever the kind.
func TestEveryKindIsFollowedToItsTopology(t *testing.T) {
	controlPlane := schema.FromAPIVersionAndKind(acme, "AcmeControlPlane")
	infra := schema.GroupVersionKind{Group: inherit.InfrastructureGroup, Version: "v1beta2", Kind: "AcmeMachine"}
	node := corev1.SchemeGroupVersion.WithKind("Node")
	const controlPlanes, deployments, pools = "controlPlane", "workers.machineDeployments[a]", "workers.machinePools[a]"
	for _, tc := range []struct {
		kind       schema.GroupVersionKind
		name       string
		management string
		section    string
		// rule is that of the ClusterClass's label.
		rule string
	}{
		{kind: controlPlane, name: "cp", section: controlPlanes, rule: "ClusterClass → AcmeControlPlane (rule 1)"},
		{kind: capiKind("MachineDeployment"), name: "md", section: deployments, rule: "ClusterClass → MachineDeployment (rule 2)"},
		{kind: capiKind("MachinePool"), name: "mp", section: pools, rule: "ClusterClass → MachinePool (rule 3)"},
		{kind: capiKind("MachineSet"), name: "ms", section: deployments, rule: "MachineDeployment → MachineSet (rule 6)"},
		{kind: capiKind("Machine"), name: "m", section: deployments, rule: "MachineSet → Machine (rule 8)"},
		{kind: capiKind("Machine"), name: "cp-m", section: controlPlanes, rule: "AcmeControlPlane → Machine (rule 4)"},
		{kind: infra, name: "m", section: deployments, rule: "MachineSet → AcmeMachine (rule 8)"},
		{kind: node, name: "n", management: "c", section: deployments, rule: "Machine → Node (rule 11)"},
		{kind: node, name: "pooled", management: "c", section: pools, rule: "MachinePool → Node (rule 11)"},
	} {
		t.Run(tc.kind.Kind+" "+tc.name+" "+tc.management, func(t *testing.T) {
			x := New(snapshot.New(serves(t, fleet()...), layouts{}), server(t, tc.management))
			key := types.NamespacedName{Namespace: "default", Name: tc.name}
			if tc.kind == node {
				key.Namespace = ""
			}
			e, err := x.Explain(t.Context(), tc.kind, key)
			if err != nil {
				t.Fatal(err)
			}
			for _, want := range []string{
				fmt.Sprintf("label %s=1 <- ClusterClass default/class spec.%s.metadata.labels", labelOfClass, tc.section),
				fmt.Sprintf("label %s=1 <- Cluster default/c spec.topology.%s.metadata.labels", labelOfCluster, tc.section),
			} {
				if !slices.Contains(lines(e), want) {
					t.Errorf("got\n%s\nwant\n%s", strings.Join(lines(e), "\n"), want)
				}
			}
			entry := e.Entries[slices.IndexFunc(e.Entries, func(entry Entry) bool { return entry.Key == labelOfClass })]
			if entry.Rule != tc.rule {
				t.Errorf("rule %q, want %q", entry.Rule, tc.rule)
			}
			if want := fmt.Sprintf("To change what is inherited, edit Cluster default/c (spec.topology.%s).", tc.section); !slices.Contains(e.Notes, want) {
				t.Errorf("notes %q, want %q", e.Notes, want)
			}
		})
	}
}

// Which object is explained, and why another is not.
func TestWhatIsExplained(t *testing.T) {
	node, in := corev1.SchemeGroupVersion.WithKind("Node"), func(name string) types.NamespacedName {
		return types.NamespacedName{Namespace: "default", Name: name}
	}
	for name, test := range map[string]struct {
		kind       schema.GroupVersionKind
		name       types.NamespacedName
		management string
		// want is the object to edit, or what the error says.
		want, wantErr string
	}{
		"a Machine on its own":                           {kind: capiKind("Machine"), name: in("alone")},
		"a Node's name proves nothing without a Cluster": {kind: node, name: types.NamespacedName{Name: "ref"}, wantErr: "--management-cluster=<namespace>/<name>"},
		"a Node is found by its name in its Cluster":     {kind: node, name: types.NamespacedName{Name: "ref"}, management: "c", want: "Cluster default/c (spec.topology)"},
		"Machines of another Cluster do not count":       {kind: node, name: types.NamespacedName{Name: "ref"}, management: "d", wantErr: "more than one, of Cluster default/d"},
		"an object that is not there is named":           {kind: capiKind("Machine"), name: in("none"), wantErr: "getting Machine default/none"},
		"so is a control plane":                          {kind: schema.FromAPIVersionAndKind(acme, "AcmeControlPlane"), name: in("none"), wantErr: "there is no AcmeControlPlane default/none"},
		"another kind is refused":                        {kind: capiKind("MachineHealthCheck"), name: in("c"), wantErr: "choose a cluster, clusterclass, control plane, machinedeployment, machinepool, machineset, machine or node"},
		"a template is refused":                          {kind: schema.FromAPIVersionAndKind(acme, "AcmeControlPlaneTemplate"), name: in("c"), wantErr: "cannot explain a AcmeControlPlaneTemplate"},
		"a Machine of another API group is refused":      {kind: schema.GroupVersionKind{Group: "machine.openshift.io", Version: "v1beta1", Kind: "Machine"}, name: in("m"), wantErr: "machines.cluster.x-k8s.io"},
	} {
		t.Run(name, func(t *testing.T) {
			x := New(snapshot.New(serves(t, fleet()...), layouts{}), server(t, test.management))
			e, err := x.Explain(t.Context(), test.kind, test.name)
			if err != nil || test.wantErr != "" {
				if test.wantErr == "" || err == nil || !strings.Contains(err.Error(), test.wantErr) {
					t.Errorf("error %v, want %q", err, test.wantErr)
				}
				return
			}
			if got := strings.Join(e.Notes, "\n"); (test.want == "") != (got == "") || !strings.Contains(got, test.want) {
				t.Errorf("notes %q, want %q", got, test.want)
			}
		})
	}
}

// refuses does not let anybody read a kind.
type refuses struct {
	client.Client
	kind string
}

func (r refuses) Get(ctx context.Context, key client.ObjectKey, object client.Object, options ...client.GetOption) error {
	if gvk, err := r.GroupVersionKindFor(object); err != nil || gvk.Kind == r.kind {
		return errors.Join(errors.New("forbidden"), err)
	}
	return r.Client.Get(ctx, key, object, options...)
}

// Who may not read an owner is told so, and sees the rest.
func TestAnOwnerThatCannotBeReadIsNamed(t *testing.T) {
	for kind, want := range map[string]string{
		"AcmeControlPlane": "What Machine default/cp-m inherits is not known, because not all of its owners can be read: getting owner AcmeControlPlane default/cp: forbidden. " +
			"What came from there is shown as set on Machine default/cp-m.",
		"ClusterClass": "Not all owners can be read, so what they declare is shown as far as it is known: getting ClusterClass default/class: forbidden.",
	} {
		x := New(snapshot.New(refuses{serves(t, fleet()...), kind}, layouts{}), server(t, ""))
		e, err := x.Explain(t.Context(), capiKind("Machine"), types.NamespacedName{Namespace: "default", Name: "cp-m"})
		if err != nil {
			t.Fatal(err)
		}
		if !slices.Contains(e.Notes, want) || len(e.Entries) == 0 {
			t.Errorf("%s: notes %q, want %q", kind, e.Notes, want)
		}
	}
}
