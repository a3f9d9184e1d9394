// SPDX-License-Identifier: Apache-2.0

package explain

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	. "github.com/onsi/gomega"
	corev1 "k8s.io/api/core/v1"
	policyv1 "k8s.io/api/policy/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/heirloom-dev/heirloom/cmd/kubectl-heirloom/compare"
	"github.com/heirloom-dev/heirloom/pkg/inherit"
	"github.com/heirloom-dev/heirloom/test/fleet"
	"github.com/heirloom-dev/heirloom/test/stage"
)

// topologyOf is the chain of testdata/topology.yaml.
type topologyOf struct {
	class   clusterv1.ClusterClass
	cluster clusterv1.Cluster
	md      clusterv1.MachineDeployment
	mp      clusterv1.MachinePool
	ms      clusterv1.MachineSet
	m       clusterv1.Machine
	node    corev1.Node
	infra   unstructured.Unstructured
	inClass *clusterv1.MachineDeploymentClass
	inTopo  *clusterv1.MachineDeploymentTopology
	// flags are the flags of the server, unless it is unknown.
	flags   []string
	unknown bool
	// refused is a kind that must not be read.
	refused string
	now     time.Time
	others  []client.Object
}

func newTopology(t *testing.T) *topologyOf {
	t.Helper()
	w := &topologyOf{now: time.Date(2026, 1, 1, 1, 0, 0, 0, time.UTC)}
	for i, object := range fleet.Objects(t, "testdata/topology.yaml") {
		content, _ := runtime.DefaultUnstructuredConverter.ToUnstructured(object)
		NewWithT(t).Expect(runtime.DefaultUnstructuredConverter.FromUnstructured(content, w.objects()[i])).To(Succeed())
	}
	w.inClass, w.inTopo = &w.class.Spec.Workers.MachineDeployments[0], &w.cluster.Spec.Topology.Workers.MachineDeployments[0]
	w.md.Spec.Template.Labels, w.ms.Spec.Template.Labels = map[string]string{}, map[string]string{}
	w.inTopo.Metadata.Labels = map[string]string{}
	return w
}

func (w *topologyOf) objects() []client.Object {
	return []client.Object{&w.class, &w.cluster, &w.md, &w.mp, &w.ms, &w.m, &w.node, &w.infra}
}

// throughout declares a label in the topology, and adds it to all objects that inherit it before this object.
func (w *topologyOf) throughout(key, before string) {
	for i, labels := range []map[string]string{w.inTopo.Metadata.Labels, w.md.Spec.Template.Labels, w.ms.Spec.Template.Labels, w.m.Labels, w.node.Labels} {
		if []string{"", "md", "ms", "m", "node"}[i] == before && before != "" {
			return
		}
		labels[key] = "1"
	}
}

// world returns an Explainer for the objects and a second Machine. Cluster c is the management cluster.
func (w *topologyOf) world(t *testing.T) *Explainer {
	t.Helper()
	second := w.m.DeepCopy()
	second.Name, second.UID, second.Spec.ProviderID, second.Status = "m2", "m2", "id2", clusterv1.MachineStatus{}
	live := fleet.Server(slices.Concat(w.objects(), w.others, []client.Object{second})...).WithInterceptorFuncs(fleet.Asks(func(request string) error {
		if w.refused != "" && (strings.HasPrefix(request, "get "+w.refused+" ") || request == "list "+w.refused) {
			return errors.New("forbidden")
		}
		return nil
	})).Build()
	x := New(fleet.World(t, live, w.flags...))
	x.Now, x.Settings.Known, x.Settings.Config.ManagementClusterKey = w.now, !w.unknown, client.ObjectKeyFromObject(&w.cluster)
	return x
}

// list explains objects by their short names.
func (w *topologyOf) list(t *testing.T, objects, key string) *List {
	t.Helper()
	x := w.world(t)
	x.Key = key
	var all []Object
	for name := range strings.FieldsSeq(objects) {
		object := Object{Key: types.NamespacedName{Namespace: "default", Name: name}, GroupVersionKind: map[string]schema.GroupVersionKind{
			"md": kindOf("MachineDeployment"), "mp": kindOf("MachinePool"), "ms": kindOf("MachineSet"), "m": kindOf("Machine"), "m2": kindOf("Machine"),
			"c": kindOf("Cluster"), "class": kindOf("ClusterClass"), "i": w.infra.GroupVersionKind(),
			"cp": {Group: inherit.ControlPlaneGroup, Version: "v1beta2", Kind: "AcmeControlPlane"},
		}[name]}
		if name == "node" {
			object = Object{corev1.SchemeGroupVersion.WithKind("Node"), types.NamespacedName{Name: w.node.Name}}
		}
		all = append(all, object)
	}
	found, err := x.All(t.Context(), all)
	NewWithT(t).Expect(err).NotTo(HaveOccurred())
	return &List{Items: found, Key: key, Single: len(found) == 1}
}

func kindOf(kind string) schema.GroupVersionKind { return clusterv1.GroupVersion.WithKind(kind) }

// missing returns the entries with a reason for a key.
func (w *topologyOf) missing(t *testing.T, object, key string) []Entry {
	t.Helper()
	return slices.DeleteFunc(w.list(t, object, key).Items[0].Entries, func(e Entry) bool { return e.Reason == "" })
}

// softened makes the Node wait for Pods, which have a disruption budget.
func (w *topologyOf) softened(pods string) {
	app := map[string]string{"app": "a"}
	w.m.Spec.Taints = always("drain:NoExecute")
	policy, turn := inherit.Policy{ClusterAPITaints: inherit.PropagationEnabled}, inherit.Turn{Eviction: inherit.AsksPods}
	next := policy.PlanNode(inherit.ReadNode(&w.node, w.now), inherit.SourceOfMachine(&w.m), turn).Result
	w.node.Labels, w.node.Annotations, w.node.Spec.Taints = next.Labels, next.Annotations, next.Taints
	w.others = append(w.others, &policyv1.PodDisruptionBudget{
		ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: "app"}, Spec: policyv1.PodDisruptionBudgetSpec{Selector: &metav1.LabelSelector{MatchLabels: app}},
	})
	for name := range strings.FieldsSeq(pods) {
		w.others = append(w.others, &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: name, Labels: app}, Spec: corev1.PodSpec{NodeName: w.node.Name}})
	}
}

// always returns taints with propagation Always.
func always(list string) []clusterv1.MachineTaint {
	return stage.Taints(clusterv1.MachineTaintPropagationAlways, list)
}

// TestAbsences produces the reasons for a missing entry that testdata/explain.txtar does not show.
func TestAbsences(t *testing.T) {
	const a, special, regex = "node.cluster.x-k8s.io/a", "node-role.kubernetes.io/special", "--additional-sync-machine-labels=^team$"
	declared := func(w *topologyOf, taints string) {
		for _, annotations := range []*map[string]string{&w.inTopo.Metadata.Annotations, &w.md.Spec.Template.Annotations, &w.ms.Spec.Template.Annotations} {
			*annotations = map[string]string{"taints.heirloom.dev/always": taints}
		}
	}
	deleted := func(w *topologyOf) {
		w.throughout(a, "node")
		w.node.DeletionTimestamp, w.node.Finalizers = &metav1.Time{Time: w.now}, []string{"x/y"}
	}
	for _, tc := range []struct {
		name        string
		given       func(w *topologyOf)
		object, key string
		// reason is empty if no entry is missing; says is part of the message.
		reason, says string
	}{
		{"all is there", func(w *topologyOf) { w.throughout(a, "") }, "node", a, "", ""},
		{"settings unknown", func(w *topologyOf) { w.unknown = true; w.throughout("team", "node") }, "node", "team", "OutsideSyncedDomains", "server's settings are unknown"},
		{"a regex brings it", func(w *topologyOf) { w.flags = []string{regex}; w.throughout("team", "node") }, "node", "team", "NotYet", "10m0s"},
		{"an annotation outside", func(w *topologyOf) { w.m.Annotations = map[string]string{"team": "1"} }, "node", "team", "OutsideSyncedDomains", "additionalSyncMachineAnnotations"},
		{"bookkeeping and Nodes", func(w *topologyOf) { w.throughout("cluster.x-k8s.io/interruptible", "node") }, "node", "cluster.x-k8s.io/interruptible", "Bookkeeping", "Nodes never inherit them"},
		{"invalid, beside another key with the same end", func(w *topologyOf) {
			w.inTopo.Metadata.Labels = map[string]string{"a-cost": "not valid!", "cost": "invalid too!"}
		}, "md", "cost", "Invalid", `label "cost"="invalid too!"`},
		{"one above is paused", func(w *topologyOf) {
			w.throughout("a", "ms")
			w.ms.Annotations = map[string]string{clusterv1.PausedAnnotation: ""}
		}, "m", "a", "Paused", "skips MachineSet default/ms"},
		{"the Machine of a Node has the label", func(w *topologyOf) { w.throughout(a, "node"); w.m.Labels[inherit.IgnoreLabel] = "" }, "node", a, "IgnoreLabel", "skips Machine default/m"},
		{"the same, and the Node is being deleted", func(w *topologyOf) { deleted(w); w.m.Labels[inherit.IgnoreLabel] = "" }, "node", a, "IgnoreLabel", "skips Machine default/m"},
		{"a Node that is being deleted", deleted, "node", a, "NotYet", "10m0s"},
		{"another namespace", func(w *topologyOf) { w.throughout("a", "m"); w.flags = []string{"--namespace=fleet"} }, "m", "a",
			"OtherNamespace", "Heirloom skips Machine default/m, because the server only watches namespace fleet."},
		{"another namespace, for a Node", func(w *topologyOf) { w.throughout(a, "node"); w.flags = []string{"--namespace=fleet"} }, "node", a,
			"OtherNamespace", "Heirloom skips Machine default/m"},
		{"the watched namespace", func(w *topologyOf) { w.throughout("a", "m"); w.flags = []string{"--namespace=default"} }, "m", "a", "NotYet", "10m0s"},
		{"the owner's owner is not there", func(w *topologyOf) { w.ms.OwnerReferences[0].Name, w.ms.OwnerReferences[0].UID = "gone", "gone" }, "m", "a", "OwnerNotFound", "MachineSet default/ms"},
		{"the gate is off, by annotation", func(w *topologyOf) {
			w.flags = []string{"--cluster-api-taint-propagation=disabled"}
			w.m.Annotations = map[string]string{"taints.heirloom.dev/always": "gpu:NoSchedule"}
		}, "m", "gpu", "TaintsNotSupported", "stays an annotation"},
		{"its own annotation wins", func(w *topologyOf) {
			w.throughout(a, "ms")
			w.md.Annotations = map[string]string{clusterv1.AutoscalerMaxSizeAnnotation: "3", inherit.CapacityLabelsAnnotation: "mine=1"}
		}, "md", inherit.CapacityLabelsAnnotation, "OwnValueWins", `"mine=1"`},
		{"overridden, for a Node", func(w *topologyOf) { w.throughout(a, ""); w.inClass.Metadata.Labels = map[string]string{a: "2"} }, "node", a, "OverriddenAbove", "Cluster default/c"},
		{"an annotation with taints further up", func(w *topologyOf) {
			w.inTopo.Metadata.Annotations = map[string]string{"taints.heirloom.dev/always": "a:NoSchedule"}
			w.md.Spec.Template.Annotations, w.ms.Spec.Template.Annotations = w.inTopo.Metadata.Annotations, w.inTopo.Metadata.Annotations
			w.m.Annotations = map[string]string{"taints.heirloom.dev/always": "b:NoSchedule"}
		}, "m", "b", "OverriddenAbove", "overrides the declaration of Machine default/m"},
		{"not yet, further up", func(w *topologyOf) { w.throughout("a", "md") }, "m", "a", "NotYet", "MachineDeployment default/md"},
		{"an InfraMachine", func(w *topologyOf) { w.throughout("a", "") }, "i", "a", "NotYet", "AcmeMachine default/i"},
		{"a key of Helm", func(w *topologyOf) { w.throughout("helm.sh/chart", "md") }, "m", "helm.sh/chart", "NeverInherited", "Choose another key"},
		{"a MachineDeployment's own annotation", func(w *topologyOf) { w.md.Annotations = map[string]string{"cluster.x-k8s.io/own": "1"} }, "ms", "cluster.x-k8s.io/own",
			"Bookkeeping", "template or a topology"},
		{"a selector uses it", func(w *topologyOf) {
			w.throughout("selected", "ms")
			w.ms.Spec.Selector.MatchLabels, w.ms.Spec.Template.Labels["selected"] = map[string]string{"selected": "here"}, "here"
		}, "ms", "selected", "UsedBySelector", "A selector uses this label"},
		{"a family label", func(w *topologyOf) { w.throughout("cluster.x-k8s.io/set-name", "md") }, "md", "cluster.x-k8s.io/set-name", "SetByClusterAPI", "themselves"},
		{"other taints than the class", func(w *topologyOf) {
			w.inClass.Taints, w.inTopo.Taints = always("old:NoSchedule"), always("new:NoSchedule")
		}, "md", "old",
			"OverriddenAbove", "Cluster default/c has its own declaration"},
		{"a MachineDeployment's own label", func(w *topologyOf) { w.md.Labels["own"] = "1" }, "m", "own", "NotPropagatedFromHere", "spec.template.metadata"},
		{"a Cluster's own label", func(w *topologyOf) { w.cluster.Labels = map[string]string{"own": "1"} }, "m", "own", "NotPropagatedFromHere", "spec.topology"},
		{"the taint with another value", func(w *topologyOf) { declared(w, "own=a:NoSchedule"); w.m.Spec.Taints = always("own=b:NoSchedule") }, "m", "own", "OwnValueWins", `"b"`},
		{"skipped by label", func(w *topologyOf) { w.throughout("a", "m"); w.m.Labels[inherit.IgnoreLabel] = "" }, "m", "a", "IgnoreLabel", "Remove the label"},
		{"being deleted", func(w *topologyOf) {
			w.throughout("a", "m")
			w.m.DeletionTimestamp, w.m.Finalizers = &metav1.Time{Time: w.now}, []string{"x/y"}
		}, "m", "a", "Deleting", "until it is gone"},
		{"another server's", func(w *topologyOf) { w.throughout("a", "m"); w.flags = []string{"--watch-filter=blue"} }, "m", "a", "WatchFilter", "watch-filter=blue"},
		{"a MachinePool's typed taint", func(w *topologyOf) {
			w.cluster.Spec.Topology.Workers.MachinePools[0].Taints = always("spot:NoSchedule")
		}, "mp", "spot:NoSchedule",
			"TaintsNotSupported", "no typed taints in a MachinePool"},
		{"the gate is off", func(w *topologyOf) {
			w.flags = []string{"--cluster-api-taint-propagation=disabled"}
			w.inTopo.Taints = always("new:NoSchedule")
			w.md.Spec.Template.Spec.Taints, w.ms.Spec.Template.Spec.Taints = w.inTopo.Taints, w.inTopo.Taints
		}, "m", "new", "TaintsNotSupported", "taints.heirloom.dev/always"},
		{"no synced domain, and Clusters name no keys", func(w *topologyOf) {
			w.flags = []string{"--per-cluster-sync-allowed="}
			w.throughout("cost", "node")
		}, "node", "cost", "OutsideSyncedDomains", "to Nodes, add \"^cost$\" to the chart's value additionalSyncMachineLabels (--additional-sync-machine-labels)"},
		{"matched by its address", func(w *topologyOf) {
			w.throughout(special, "node")
			w.m.Spec.ProviderID, w.node.Spec.ProviderID = "", ""
			w.m.Status.Addresses = clusterv1.MachineAddresses{{Type: clusterv1.MachineHostName, Address: "n"}}
			w.node.Status.Addresses = []corev1.NodeAddress{{Type: corev1.NodeHostName, Address: "n"}}
		}, "node", special, "MatchedByAddressOnly", "status.nodeRef"},
		{"declared after the Node registered", func(w *topologyOf) {
			w.m.Spec.Taints = stage.Taints(clusterv1.MachineTaintPropagationOnInitialization, "once:NoSchedule")
		}, "node", "once", "OnlyAtRegistration", "when they register"},
		{"its start-up gate has opened", func(w *topologyOf) {
			w.m.Annotations = map[string]string{"taints.heirloom.dev/until": "net:NoSchedule until condition Net=True"}
		}, "node", "net", "GateOpened", "is not closed on Node n"},
		{"the pace of NoExecute within budgets", func(w *topologyOf) {
			w.flags, w.m.Spec.Taints = []string{"--no-execute=budgets"}, always("drain:NoExecute")
		}, "node", "drain", "WaitingForItsTurn", "while no more than a tenth of its set waits"},
		{"the pace of NoExecute", func(w *topologyOf) { w.m.Spec.Taints = always("drain:NoExecute") }, "node", "drain", "WaitingForItsTurn", "--no-execute-rate"},
		{"the roll-out is paused", func(w *topologyOf) {
			w.m.Spec.Taints, w.cluster.Labels = always("drain:NoExecute"), map[string]string{inherit.NoExecuteLabel: inherit.NoExecutePaused}
		}, "node", "drain", "WaitingForItsTurn", "waits for its turn. The roll-out is paused by Cluster c. kubectl heirloom status says"},
		{"its Pods have not left", func(w *topologyOf) { w.softened("a b c d") }, "node", "drain", "WaitingForPods",
			"It waits for 4 Pods: default/a (budget default/app), default/b (budget default/app), default/c (budget default/app) and 1 more."},
		{"its Pods have left", func(w *topologyOf) { w.softened("") }, "node", "drain", "WaitingForPods", "All have left."},
		{"nobody may see its Pods", func(w *topologyOf) { w.softened(""); w.refused = "PodList" }, "node", "drain", "WaitingForPods", "Its Pods are not known: listing the Pods of the Node: forbidden."},
		{"the Machine has a Node", func(w *topologyOf) { declared(w, "drain:NoExecute"); w.m.Status.NodeRef.Name = "n" }, "m", "drain", "StaysAnnotation", "when its turn comes"},
		{"declared past the validating webhook", func(w *topologyOf) { declared(w, "node.kubernetes.io/unreachable:NoExecute") }, "m", "node.kubernetes.io/unreachable",
			"Reserved", "This key must not be declared"},
		{"the same, on its Node", func(w *topologyOf) { declared(w, "node.kubernetes.io/unreachable:NoExecute") }, "node", "node.kubernetes.io/unreachable",
			"Reserved", "This key must not be declared"},
		{"not yet, on a Node", func(w *topologyOf) { w.throughout(a, "node") }, "node", a, "NotYet", "Node n"},
		{"only a kubelet has written the Node", func(w *topologyOf) {
			w.throughout(special, "node")
			w.node.CreationTimestamp, w.node.Annotations = metav1.Time{Time: w.now}, nil
			delete(w.node.Labels, inherit.RecordLabel)
		}, "node", special, "RestrictedUntilPrivilegedWrite", "Cluster API or the loop adds it with the first write"},
		{"no taints of an InfraMachine", func(w *topologyOf) { w.inTopo.Taints = always("gpu:NoSchedule") }, "i", "gpu", "", ""},
	} {
		t.Run(tc.name, func(t *testing.T) {
			Expect := NewWithT(t).Expect
			w := newTopology(t)
			tc.given(w)
			found := w.missing(t, tc.object, tc.key)
			if tc.reason == "" {
				Expect(found).To(BeEmpty())
				return
			}
			Expect(found).NotTo(BeEmpty())
			for _, entry := range found { // a label of a MachineDeployment is missing at its top and in its template
				Expect(entry.Reason).To(Equal(tc.reason), entry.Message)
				Expect(entry.Message).To(ContainSubstring(tc.says))
				Expect(found[0].Key).To(Equal(entry.Key))
			}
		})
	}
}

// The softened taints of a Node that waits for its Pods are no difference.
func TestASoftenedTaintIsAsDeclared(t *testing.T) {
	w := newTopology(t)
	w.softened("")
	NewWithT(t).Expect(w.list(t, "node", "drain").Items[0].Entries).To(ConsistOf(
		And(HaveField("Key", "drain:NoExecute"), HaveField("Status", compare.Missing), HaveField("Reason", "WaitingForPods")),
		And(HaveField("Key", "drain:NoSchedule"), HaveField("Status", compare.Declared), HaveField("Reason", ""))))
}

// Without a key, the list leaves out entries that nobody would miss: entries about the object itself, and labels of controllers.
func TestAbsencesOfAllKeys(t *testing.T) {
	Expect := NewWithT(t).Expect
	w := newTopology(t)
	w.throughout("node.cluster.x-k8s.io/a", "")
	w.throughout("team", "node")
	w.md.Annotations = map[string]string{"cluster.x-k8s.io/own": "1", "kubectl.kubernetes.io/last-applied-configuration": "{}"}
	w.ms.Spec.Template.Labels[clusterv1.MachineDeploymentUniqueLabel], w.m.Labels[clusterv1.MachineDeploymentUniqueLabel] = "x", "x"
	w.m.Annotations = map[string]string{"controlplane.cluster.x-k8s.io/remediation-for": "x", "taints.heirloom.dev/always": "gpu:NoSchedule"}
	w.m.Spec.Taints, w.node.Spec.Taints = always("gpu:NoSchedule"), []corev1.Taint{{Key: "gpu", Effect: corev1.TaintEffectNoSchedule}}
	w.md.Labels["node.cluster.x-k8s.io/a"], w.md.Labels["team"] = "1", "1"
	w.ms.Labels["node.cluster.x-k8s.io/a"], w.ms.Labels["team"] = "1", "1"
	for _, object := range []string{"md", "ms", "m"} {
		Expect(w.missing(t, object, "")).To(BeEmpty(), object)
	}
	found := w.missing(t, "node", "")
	Expect(found).To(HaveLen(1), fmt.Sprint(found))
	Expect(found[0]).To(And(HaveField("Kind", compare.Label), HaveField("Key", "team"), HaveField("Value", "1"), HaveField("Reason", "OutsideSyncedDomains"),
		HaveField("Source", HaveField("Field", "spec.topology.workers.machineDeployments[md].metadata.labels"))))

	w.m.Annotations, w.m.Spec.Taints = nil, nil
	w.node.Spec.Taints = nil
	w.mp.Spec.Template.Labels = map[string]string{"b": "1"}
	Expect(w.missing(t, "mp", "")).To(BeEmpty(), "the object's own declarations are listed")
}

// Every reason to skip an object is a single word.
func TestReasonsInOneWord(t *testing.T) {
	Expect := NewWithT(t).Expect
	blue := inherit.Policy{WatchFilter: "blue"}
	filtered, _ := blue.Skips(&clusterv1.Machine{}, nil)
	ofAnother, _ := blue.SkipsNodesOf(&clusterv1.Cluster{}, true)
	w := newTopology(t)
	x := w.world(t)
	for reason, want := range map[inherit.Reason]inherit.Why{
		inherit.IsPaused: "Paused", inherit.ClusterIsPaused: "Paused", inherit.HasIgnoreLabel: "IgnoreLabel", inherit.ClusterIsCleanedUp: "IgnoreLabel",
		inherit.IsDeleted: "Deleting", filtered: "WatchFilter", ofAnother: "WatchFilter", inherit.IsNoMachine: "NoMatch", inherit.NotOfManagementCluster: "NoMatch", inherit.NotOfMachine: "NoMatch",
		inherit.OwnerIsNotFound: "OwnerNotFound", inherit.ClusterDoesNotExist: "OwnerNotFound", inherit.NothingDeclares: inherit.DropElsewhere,
	} {
		v := x.skipped(inherit.Ref{Kind: "Machine", Object: &w.m}, reason)
		Expect(v.why).To(Equal(want), string(reason))
		Expect(texts[v.why][0]).NotTo(BeEmpty())
	}
}

// While a start-up gate is closed, a note names its condition.
func TestAClosedGateIsNoted(t *testing.T) {
	w := newTopology(t)
	w.m.Annotations = map[string]string{"taints.heirloom.dev/until": "net:NoSchedule until condition Net=True"}
	closed := ContainElement("A start-up gate is closed: net:NoSchedule until condition Net=True.")
	NewWithT(t).Expect(w.list(t, "node", "").Items[0].Notes).NotTo(closed)
	w.node.Spec.Taints = []corev1.Taint{{Key: "net", Effect: "NoSchedule"}}
	NewWithT(t).Expect(w.list(t, "node", "").Items[0].Notes).NotTo(closed, "somebody else's taint")
	recorded := inherit.Record{Gates: []string{"net:NoSchedule"}}.Recorded(inherit.OfNode(&w.node))
	w.node.Labels, w.node.Annotations = recorded.Labels, recorded.Annotations
	NewWithT(t).Expect(w.list(t, "node", "").Items[0].Notes).To(closed)
}

// If an owner may not be read, a note says so, and the other entries are listed.
func TestUnreadableOwnersAreNamed(t *testing.T) {
	for kind, want := range map[string]string{
		"MachineSet":        "Inheritance of Machine default/m is unknown, because some of its owners cannot be read: getting owner MachineSet default/ms: forbidden.",
		"MachineDeployment": "Some owners cannot be read, so their declarations are missing here: getting owner MachineDeployment default/md: forbidden.",
		"ClusterClass":      "Some owners cannot be read, so their declarations are missing here: getting ClusterClass default/class: forbidden.",
	} {
		w := newTopology(t)
		w.refused = kind
		w.throughout("a", "ms")
		NewWithT(t).Expect(w.list(t, "m", "").Items[0].Notes).To(ContainElement(HavePrefix(want)), kind)
	}
	w := newTopology(t)
	w.refused = "MachineDeployment"
	w.inTopo.Metadata.Labels = map[string]string{"a": "1"}
	NewWithT(t).Expect(w.missing(t, "m", "a")).To(ConsistOf(And(HaveField("Reason", "OwnerNotFound"), HaveField("Message", ContainSubstring("forbidden")))))
}
