// SPDX-License-Identifier: Apache-2.0

package integration

import (
	"encoding/json"
	"fmt"
	"testing"

	. "github.com/onsi/gomega"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/heirloom-dev/heirloom/cmd/kubectl-heirloom/explain"
	"github.com/heirloom-dev/heirloom/pkg/inherit"
	"github.com/heirloom-dev/heirloom/pkg/taint"
	"github.com/heirloom-dev/heirloom/test/stage"
)

// absence is a key that an object has not got, and how that was brought about.
type absence struct {
	reason, how string
	object, key string
	flags       []string
	// says is part of the message.
	says string
}

// Every reason for which something is missing, brought about and explained. The last three need a server that is away.
func testKubectlWhyNot(t *testing.T, w *kubectlWorld) {
	u := &unhappy{kubectlWorld: w}
	u.makeTopology()
	u.makeNodes()
	gateOff := []string{"--server-flags=--cluster-api-taint-propagation=disabled"}
	for _, a := range []absence{
		{"NeverInherited", "a topology declares a key of Helm", "machine/whynot-1", "helm.sh/chart", nil, "Choose another key"},
		{"Bookkeeping", "a MachineDeployment's own annotation", "machineset/whynot-1", "cluster.x-k8s.io/own", nil, "template or a topology"},
		{"UsedBySelector", "the MachineSet selects by it", "machineset/whynot-1", "selected", nil, "A selector uses this label"},
		{"SetByClusterAPI", "a topology declares a family label", "machinedeployment/whynot-md", "cluster.x-k8s.io/set-name", nil, "themselves"},
		{"Invalid", "the label's value is not valid", "machinedeployment/whynot-md", "bad", nil, "an API server would refuse it"},
		{"OverriddenAbove", "the topology has other taints than the class", "machinedeployment/whynot-md", "old", nil, "Cluster fleet/whynot declares something else"},
		{"NotPropagatedFromHere", "a MachineDeployment's own label", "machine/whynot-1", "own-label", nil, "spec.template.metadata"},
		{"NotPropagatedFromHere", "a Cluster's own label", "machine/whynot-1", "of-cluster", nil, "spec.topology"},
		{"NoSuchField", "the control plane's CRD has no taints", "plaincontrolplane/whynot-cp", "of-cp", nil, "the CRD of its kind lacks the field"},
		{"OwnValueWins", "the Machine has the taint with another value", "machine/whynot-1", "own", nil, `"b"`},
		{"OwnerNotFound", "its MachineSet does not exist", "machine/whynot-orphan", arrived, nil, "does not exist"},
		{"Paused", "the annotation on the Machine", "machine/whynot-paused", arrived, nil, "Machine fleet/whynot-paused alone, because it is paused"},
		{"OptedOut", "the label on the Machine", "machine/whynot-ignored", arrived, nil, "Remove the label"},
		{"Deleting", "a finalizer keeps the Machine", "machine/whynot-deleting", arrived, nil, "until it is gone"},
		{"WatchFilter", "the server's flag", "machine/whynot-paused", arrived, []string{"--server-flags=--watch-filter=blue"}, "watch-filter=blue"},
		{"TaintsNotSupported", "a MachinePool's typed taint", "machinepool/prod-spot", "spot:NoSchedule", nil, "no typed taints in a MachinePool"},
		{"TaintsNotSupported", "the gate is off", "machine/whynot-paused", "new", gateOff, "taints.heirloom.dev/always"},
		{"OutsideSyncedDomains", "a label of no synced domain", "node/edge-whynot-1", "cost", u.edgeOnly(), "--additional-sync-machine-labels='^cost$'"},
		{"NoMatch", "a Node of no Machine", "node/edge-stranger", "cost", u.edgeOnly(), "spec.providerID"},
		{"MatchedByAddressOnly", "a Machine without nodeRef and providerID", "node/edge-address", special, u.edgeOnly(), "status.nodeRef"},
		{"OnlyAtRegistration", "declared after the Node registered", "node/edge-whynot-1", "once", u.edgeOnly(), "when they register"},
		{"WaitingForItsTurn", "the pace of NoExecute", "node/" + u.waiting, "drain", u.edgeOnly(), "--no-execute-rate"},
		{"StaysAnnotation", "the Machine has a Node", "machine/edge-whynot-1", "drain", nil, "at its pace"},
	} {
		t.Run(a.reason+": "+a.how, func(t *testing.T) { u.explained(t, a) })
	}
	u.withoutServer(t, func() {
		for _, a := range []absence{
			{"Reserved", "declared past the validating webhook", "machine/edge-whynot-1", "node.kubernetes.io/unreachable", nil, "No one may declare this key"},
			{"Reserved", "the same, on its Node", "node/edge-whynot-1", "node.kubernetes.io/unreachable", u.edgeOnly(), "No one may declare this key"},
			{"NotYet", "declared meanwhile", "machine/edge-whynot-1", "node.cluster.x-k8s.io/late", nil, "within 10m0s"},
			{"NotYet", "the same, on its Node", "node/edge-whynot-1", "node.cluster.x-k8s.io/late", u.edgeOnly(), "Node edge-whynot-1"},
			{"RestrictedUntilPrivilegedWrite", "only a kubelet has written the Node", "node/edge-late", special, u.edgeOnly(), "first write by Cluster API or the loop"},
		} {
			t.Run(a.reason+": "+a.how, func(t *testing.T) { u.explained(t, a) })
		}
	})
}

const (
	// arrived is a label that reaches everything that nothing is wrong with.
	arrived = "node.cluster.x-k8s.io/arrived"
	// special is a label that a kubelet may not write.
	special = "node-role.kubernetes.io/special"
)

// unhappy makes objects in the world that do not get what is declared for them.
type unhappy struct {
	*kubectlWorld
	edgeMD *clusterv1.MachineDeployment
	edgeMS *clusterv1.MachineSet
	// waiting is a Node that waits for its turn.
	waiting string
}

func (u *unhappy) edgeOnly() []string { return []string{"--workload-cluster=fleet/edge"} }

// explained asks the plugin and expects exactly one reason.
func (u *unhappy) explained(t *testing.T, a absence) {
	t.Helper()
	g := NewWithT(t)
	out, errOut, code := u.kubectl(t, append([]string{"explain", a.object, a.key, "-o", "json"}, a.flags...)...)
	g.Expect(code).To(BeNumerically("<=", 1), errOut)
	e := &explain.Explanation{}
	g.Expect(json.Unmarshal([]byte(out), e)).To(Succeed(), out+errOut)
	var found []explain.Entry
	for _, entry := range e.Entries {
		if entry.Reason != "" {
			found = append(found, entry)
		}
	}
	g.Expect(found).To(HaveLen(1), out+errOut)
	g.Expect(found[0].Reason).To(Equal(a.reason), found[0].Message)
	g.Expect(found[0].Message).To(ContainSubstring(a.says))
}

// makeTopology makes a Cluster of its own, without a workload cluster.
func (u *unhappy) makeTopology() {
	u.t.Helper()
	always := clusterv1.MachineTaintPropagationAlways
	class := clusterClass("whynot")
	class.Namespace = fleetName
	class.Spec.Workers.MachineDeployments[0].Taints = stage.Taints(always, "old:NoSchedule")
	class.Spec.ControlPlane.TemplateRef.Kind = "PlainControlPlaneTemplate"
	cluster := stage.Cluster(fleetName, "whynot")
	cluster.Labels = map[string]string{"of-cluster": "1"}
	cluster.Spec.Topology = clusterv1.Topology{
		ClassRef: clusterv1.ClusterClassRef{Name: class.Name}, Version: "v1.36.0",
		ControlPlane: clusterv1.ControlPlaneTopology{Taints: stage.Taints(always, "of-cp:NoSchedule")},
		Workers: clusterv1.WorkersTopology{MachineDeployments: []clusterv1.MachineDeploymentTopology{{
			Name: "md", Class: "worker", Taints: stage.Taints(always, "new:NoSchedule"),
			Metadata: clusterv1.ObjectMeta{
				Labels:      map[string]string{arrived: "1", "helm.sh/chart": "x", "cluster.x-k8s.io/set-name": "x", "bad": "not valid!", "selected": "topology"},
				Annotations: map[string]string{taint.AlwaysAnnotation: "own=a:NoSchedule"},
			},
		}}},
	}
	cp := &unstructured.Unstructured{Object: map[string]any{"spec": map[string]any{"machineTemplate": map[string]any{}}}}
	cp.SetAPIVersion("controlplane.cluster.x-k8s.io/v1beta1")
	cp.SetKind("PlainControlPlane")
	cp.SetNamespace(fleetName)
	cp.SetName("whynot-cp")
	owned := map[string]string{clusterv1.ClusterNameLabel: cluster.Name, clusterv1.ClusterTopologyOwnedLabel: ""}
	cp.SetLabels(owned)
	cluster.Spec.ControlPlaneRef = clusterv1.ContractVersionedObjectReference{APIGroup: cp.GroupVersionKind().Group, Kind: cp.GetKind(), Name: cp.GetName()}
	u.createAs("kubectl", class, cluster)

	md := stage.MachineDeployment(cluster, "whynot-md", stage.Declared{OwnAnnotations: map[string]string{"cluster.x-k8s.io/own": "1"}})
	md.Labels = merged(owned, map[string]string{clusterv1.ClusterTopologyMachineDeploymentNameLabel: "md", "own-label": "1"})
	u.createAs("capi-topology", cp, md)
	u.eventually(md, func(g Gomega) { g.Expect(md.Spec.Template.Labels).To(HaveKey(arrived)) })
	ms := stage.MachineSet(md, "whynot-1")
	ms.Spec.Selector.MatchLabels["selected"], ms.Spec.Template.Labels["selected"] = "here", "here"
	u.createAs("capi-machinedeployment", ms)
	u.eventually(ms, func(g Gomega) { g.Expect(ms.Spec.Template.Labels).To(HaveKey(arrived)) })
	u.makeMachines(ms)
}

func (u *unhappy) makeMachines(ms *clusterv1.MachineSet) {
	u.t.Helper()
	paused := map[string]string{clusterv1.PausedAnnotation: ""}
	machine := func(name string) *clusterv1.Machine { return stage.Machine(ms, "whynot-"+name) }
	first, orphan, pausedOne, ignored, deleting := machine("1"), machine("orphan"), machine("paused"), machine("ignored"), machine("deleting")
	first.Spec.Taints = stage.Taints(clusterv1.MachineTaintPropagationAlways, "own=b:NoSchedule")
	orphan.OwnerReferences[0].Name, orphan.OwnerReferences[0].UID = "gone", "gone"
	ignored.Labels[inherit.IgnoreLabel] = ""
	pausedOne.Annotations, deleting.Annotations, deleting.Finalizers = paused, paused, []string{"example.com/kept"}
	u.createAs("capi-machineset", first, orphan, pausedOne, ignored, deleting)
	u.eventually(first, func(g Gomega) { g.Expect(first.Labels).To(HaveKey(arrived)) })
	u.Expect(u.Client.Delete(u.ctx, deleting)).To(Succeed())
	u.t.Cleanup(func() { u.update(deleting, func() { deleting.Finalizers = nil }) })
	u.get(deleting)
	u.update(deleting, func() { deleting.Annotations = nil })
}

// makeNodes makes Machines and Nodes in the workload cluster of edge, and removes them with the test.
func (u *unhappy) makeNodes() {
	u.t.Helper()
	u.edgeMD = stage.MachineDeployment(u.edge.Cluster, "edge-whynot", stage.Declared{Labels: map[string]string{arrived: "1", special: "", "cost": "1"}})
	u.createAs("kubectl", u.edgeMD)
	u.edgeMS = stage.MachineSet(u.edgeMD, "edge-whynot")
	u.createAs("capi-machinedeployment", u.edgeMS)
	u.t.Cleanup(u.forget)
	u.eventually(u.edgeMS, func(g Gomega) { g.Expect(u.edgeMS.Spec.Template.Labels).To(HaveKey(arrived)) })
	var names []string
	for i := range 3 {
		name := fmt.Sprint("edge-whynot-", i+1)
		names = append(names, name)
		u.addNode(stage.Machine(u.edgeMS, name), stage.Node(name))
		u.eventuallyNode(abroad{Workload: u.edge.Workload}, stage.Node(name), func(Gomega) {})
	}
	u.addNodeByAddress("edge-address")
	for _, name := range names {
		u.hasArrived(name, special)
	}
	u.hasArrived("edge-address", arrived)
	u.update(u.edgeMD, func() {
		u.edgeMD.Spec.Template.Annotations = map[string]string{taint.AlwaysAnnotation: "drain:NoExecute", taint.InitializeAnnotation: "once:NoSchedule"}
	})
	u.waiting = u.expectWaiting("edge-address", names...)
}

func (u *unhappy) addNode(m *clusterv1.Machine, node *corev1.Node) {
	u.t.Helper()
	u.createAs("capi-machineset", m)
	u.Expect(u.edge.Client.Create(u.ctx, node, client.FieldOwner("kubelet"))).To(Succeed())
}

// addNodeByAddress makes a Machine that only an address connects with its Node.
func (u *unhappy) addNodeByAddress(name string) {
	u.t.Helper()
	m, node := stage.Machine(u.edgeMS, name), stage.Node(name)
	m.Spec.ProviderID, node.Spec.ProviderID = "", ""
	u.createAs("capi-machineset", m)
	before := m.DeepCopy()
	m.Status.Addresses = clusterv1.MachineAddresses{{Type: clusterv1.MachineHostName, Address: name}}
	u.Expect(u.Client.Status().Patch(u.ctx, m, client.MergeFrom(before))).To(Succeed())
	u.Expect(u.edge.Client.Create(u.ctx, node, client.FieldOwner("kubelet"))).To(Succeed())
	registered := node.DeepCopy() // Heirloom may write it meanwhile
	node.Status.Addresses = []corev1.NodeAddress{{Type: corev1.NodeHostName, Address: name}}
	u.Expect(u.edge.Client.Status().Patch(u.ctx, node, client.MergeFrom(registered))).To(Succeed())
}

func (u *unhappy) hasArrived(name, label string) {
	u.t.Helper()
	node := &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: name}}
	u.eventuallyNode(abroad{Workload: u.edge.Workload}, node, func(g Gomega) { g.Expect(node.Labels).To(HaveKey(label)) })
}

// expectWaiting waits until one of the Nodes has had its turn, and returns another, which is not the first.
func (u *unhappy) expectWaiting(first string, others ...string) string {
	u.t.Helper()
	var without []string
	u.Eventually(func(g Gomega) {
		without = nil
		for _, name := range append([]string{first}, others...) {
			node := &corev1.Node{}
			g.Expect(u.edge.Client.Get(u.ctx, client.ObjectKey{Name: name}, node)).To(Succeed())
			if taint.Find(node.Spec.Taints, taint.ID{Key: "drain", Effect: corev1.TaintEffectNoExecute}) < 0 {
				without = append(without, name)
			}
		}
		g.Expect(len(without)).To(BeNumerically("<=", len(others)), "none has had its turn")
	}).WithTimeout(2 * patience).WithPolling(polling).Should(Succeed())
	u.Expect(len(without)).To(BeNumerically(">", 1), "nearly all have had their turn")
	return without[len(without)-1]
}

// withoutServer stops Heirloom, declares what it would refuse or propagate, and starts it again.
func (u *unhappy) withoutServer(t *testing.T, check func()) {
	t.Helper()
	u.Expect(u.StopHeirloom()).To(Succeed())
	defer func() { u.Expect(u.StartHeirloom(u.ctx)).To(Succeed()) }()
	u.addNode(stage.Machine(u.edgeMS, "edge-late"), stage.Node("edge-late"))
	declare := func(template *clusterv1.MachineTemplateSpec) {
		template.Annotations[taint.AlwaysAnnotation] = "node.kubernetes.io/unreachable:NoExecute,drain:NoExecute"
		template.Labels["node.cluster.x-k8s.io/late"] = "1"
	}
	u.get(u.edgeMD)
	u.update(u.edgeMD, func() { declare(&u.edgeMD.Spec.Template) })
	u.get(u.edgeMS)
	u.update(u.edgeMS, func() { declare(&u.edgeMS.Spec.Template) })
	check()
}

// forget removes what is in Cluster edge.
func (u *unhappy) forget() {
	for _, object := range []client.Object{u.edgeMD, u.edgeMS} {
		u.Expect(u.Client.Delete(u.ctx, object)).To(Succeed())
	}
	for _, name := range []string{"edge-whynot-1", "edge-whynot-2", "edge-whynot-3", "edge-address", "edge-late"} {
		meta := metav1.ObjectMeta{Namespace: fleetName, Name: name}
		u.Expect(client.IgnoreNotFound(u.Client.Delete(u.ctx, &clusterv1.Machine{ObjectMeta: meta}))).To(Succeed())
		meta.Namespace = ""
		u.Expect(client.IgnoreNotFound(u.edge.Client.Delete(u.ctx, &corev1.Node{ObjectMeta: meta}))).To(Succeed())
	}
}
