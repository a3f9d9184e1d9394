// SPDX-License-Identifier: Apache-2.0

package origin

import (
	"fmt"
	"regexp"
	"testing"
	"time"

	. "github.com/onsi/gomega"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"

	"github.com/heirloom-dev/heirloom/cmd/kubectl-heirloom/snapshot"
	"github.com/heirloom-dev/heirloom/pkg/inherit"
	"github.com/heirloom-dev/heirloom/pkg/owners"
)

// topologyOf is the chain of Cluster c of ClusterClass class, from which nothing is inherited yet.
type topologyOf struct {
	class   *clusterv1.ClusterClass
	cluster *clusterv1.Cluster
	md      *clusterv1.MachineDeployment
	ms      *clusterv1.MachineSet
	mp      *clusterv1.MachinePool
	m       *clusterv1.Machine
	node    *corev1.Node
	infra   *metav1.PartialObjectMetadata
	inClass *clusterv1.MachineDeploymentClass
	inTopo  *clusterv1.MachineDeploymentTopology
	known   bool
	// watched is the only namespace that the server watches.
	watched string
	policy  inherit.Policy
	now     time.Time
}

func newTopology() *topologyOf {
	created := time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC)
	w := &topologyOf{now: created.Add(time.Hour), known: true, policy: inherit.Policy{ClusterAPITaints: inherit.PropagationEnabled}}
	class, topology := sections("md", "workers", clusterv1.ObjectMeta{}, clusterv1.ObjectMeta{})
	w.class = &clusterv1.ClusterClass{ObjectMeta: named("class", ""), Spec: class}
	w.cluster = &clusterv1.Cluster{ObjectMeta: named("c", "")}
	w.cluster.Spec.Topology = topology
	w.inClass, w.inTopo = &w.class.Spec.Workers.MachineDeployments[0], &w.cluster.Spec.Topology.Workers.MachineDeployments[0]
	owned := func() map[string]string {
		return map[string]string{clusterv1.ClusterNameLabel: "c", clusterv1.ClusterTopologyOwnedLabel: "", clusterv1.ClusterTopologyMachineDeploymentNameLabel: "md",
			clusterv1.ClusterTopologyMachinePoolNameLabel: "md"}
	}
	w.md = &clusterv1.MachineDeployment{ObjectMeta: named("md", ""), Spec: clusterv1.MachineDeploymentSpec{ClusterName: "c"}}
	w.mp = &clusterv1.MachinePool{ObjectMeta: named("mp", ""), Spec: clusterv1.MachinePoolSpec{ClusterName: "c"}}
	w.md.Labels, w.mp.Labels = owned(), owned()
	w.ms = &clusterv1.MachineSet{ObjectMeta: named("ms", "MachineDeployment/md"), Spec: clusterv1.MachineSetSpec{ClusterName: "c"}}
	w.m = &clusterv1.Machine{ObjectMeta: named("m", "MachineSet/ms"), Spec: clusterv1.MachineSpec{ClusterName: "c", ProviderID: "id"}}
	w.m.Spec.InfrastructureRef = clusterv1.ContractVersionedObjectReference{APIGroup: inherit.InfrastructureGroup, Kind: "AcmeMachine", Name: "i"}
	w.ms.Labels, w.m.Labels = owned(), owned()
	w.node = &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: "n", UID: "n", CreationTimestamp: metav1.NewTime(created)}, Spec: corev1.NodeSpec{ProviderID: "id"}}
	w.node.Labels, w.node.Annotations = map[string]string{inherit.RecordLabel: ""}, map[string]string{clusterv1.TaintsFromMachineAnnotation: ""}
	w.infra = &metav1.PartialObjectMetadata{ObjectMeta: named("i", "Machine/m")}
	w.infra.SetGroupVersionKind(clusterv1.GroupVersionInfrastructure.WithKind("AcmeMachine"))
	w.infra.Labels = map[string]string{clusterv1.ClusterNameLabel: "c"}
	return w
}

// throughout declares a label in the topology, and gives it to all that inherit it before this object.
func (w *topologyOf) throughout(key, before string) {
	for _, at := range []struct {
		name string
		in   *map[string]string
	}{
		{"topology", &w.inTopo.Metadata.Labels},
		{"md", &w.md.Spec.Template.Labels},
		{"ms", &w.ms.Spec.Template.Labels},
		{"m", &w.m.Labels},
		{"node", &w.node.Labels},
	} {
		if at.name == before {
			return
		}
		if *at.in == nil {
			*at.in = map[string]string{}
		}
		(*at.in)[key] = "1"
	}
}

func (w *topologyOf) declares(t *testing.T, s string) {
	t.Helper()
	w.inTopo.Metadata.Labels, w.inTopo.Metadata.Annotations, w.inTopo.Taints = read(t, s)
}

// missing asks why a key is missing on an object.
func (w *topologyOf) missing(t *testing.T, object, key string) []Absence {
	t.Helper()
	from := snapshot.New(serves(t, w.class, w.cluster, w.md, w.mp, w.ms, w.m), layouts{})
	q := question{chain: from.Chain(), settings: server(t, ""), policy: w.policy, key: key}
	q.settings.Known, q.settings.Propagation, q.settings.Config.Namespace = w.known, w.policy.ClusterAPITaints, w.watched
	var found []Absence
	var err error
	ctx := t.Context()
	switch object {
	case "md":
		found, err = absences(ctx, q, owners.MachineDeployments, inherit.Ref{Kind: "MachineDeployment", Object: w.md}, w.md)
	case "mp":
		found, err = absences(ctx, q, owners.MachinePools, inherit.Ref{Kind: "MachinePool", Object: w.mp}, w.mp)
	case "ms":
		found, err = absences(ctx, q, owners.MachineSets, inherit.Ref{Kind: "MachineSet", Object: w.ms}, w.ms)
	case "m":
		found, err = absences(ctx, q, owners.Machines, inherit.Ref{Kind: "Machine", Object: w.m}, w.m)
	case "infra":
		found, err = absences(ctx, q, owners.ExternalObjects, inherit.Ref{Kind: "AcmeMachine", Object: w.infra}, w.infra)
	case "node":
		q.chain = q.chain.Within(types.NamespacedName{Namespace: "default", Name: "c"})
		found, err = absencesOfNode(ctx, q, w.node, w.now)
	}
	if err != nil {
		t.Fatal(err)
	}
	return found
}

// TestAbsences brings about one reason after the other.
func TestAbsences(t *testing.T) {
	for _, tc := range []struct {
		name        string
		given       func(t *testing.T, w *topologyOf)
		object, key string
		// reason is empty if nothing is missing; says is part of the message.
		reason, says string
	}{
		{"all is there", func(_ *testing.T, w *topologyOf) { w.throughout("node.cluster.x-k8s.io/a", "") }, "node", "node.cluster.x-k8s.io/a", "", ""},
		{"outside the synced domains", func(_ *testing.T, w *topologyOf) { w.throughout("cost.io/team", "node") }, "node", "cost.io/team",
			"OutsideSyncedDomains", `--additional-sync-machine-labels='^cost\.io/team$'`},
		{"outside, settings unknown", func(_ *testing.T, w *topologyOf) { w.known = false; w.throughout("team", "node") }, "node", "team",
			"OutsideSyncedDomains", "settings of the server are not known"},
		{"a regex brings it", func(_ *testing.T, w *topologyOf) {
			w.policy.AdditionalLabels = []*regexp.Regexp{regexp.MustCompile("^team$")}
			w.throughout("team", "node")
		}, "node", "team", "NotYet", "10m0s"},
		{"an annotation outside", func(t *testing.T, w *topologyOf) { w.m.Annotations = map[string]string{"team": "1"} }, "node", "team",
			"OutsideSyncedDomains", "additionalSyncMachineAnnotations"},
		{"never", func(t *testing.T, w *topologyOf) { w.declares(t, "label helm.sh/chart=1") }, "m", "helm.sh/chart",
			"NeverInherited", "bookkeeping of a tool"},
		{"bookkeeping of a MachineDeployment", func(_ *testing.T, w *topologyOf) { w.md.Annotations = map[string]string{"cluster.x-k8s.io/x": "1"} },
			"ms", "cluster.x-k8s.io/x", "Bookkeeping", "template or a topology"},
		{"bookkeeping and Nodes", func(_ *testing.T, w *topologyOf) { w.throughout("cluster.x-k8s.io/interruptible", "node") }, "node",
			"cluster.x-k8s.io/interruptible", "Bookkeeping", "never by a Node"},
		{"a selector's", func(_ *testing.T, w *topologyOf) {
			w.throughout("pool", "ms")
			w.ms.Spec.Selector.MatchLabels = map[string]string{"pool": "x"}
		}, "m", "pool", "UsedBySelector", "MachineSet default/ms"},
		{"the family's", func(t *testing.T, w *topologyOf) { w.declares(t, "label cluster.x-k8s.io/set-name=x") }, "md", "cluster.x-k8s.io/set-name",
			"SetByClusterAPI", "Cluster API's controllers set"},
		{"reserved", func(t *testing.T, w *topologyOf) { w.declares(t, "taint node.kubernetes.io/unreachable:NoExecute") }, "m", "node.kubernetes.io/unreachable",
			"Reserved", "MachineDeployment default/md (taint"},
		{"reserved, on the Node", func(t *testing.T, w *topologyOf) {
			_, _, w.m.Spec.Taints = read(t, "taint node.kubernetes.io/x:NoSchedule")
		}, "node",
			"node.kubernetes.io/x", "Reserved", "Node n"},
		{"invalid", func(_ *testing.T, w *topologyOf) {
			w.throughout("a", "md")
			w.inTopo.Metadata.Labels["a"] = "not valid!"
		}, "md", "a",
			"Invalid", "consist of alphanumeric"},
		{"invalid, beside another key with the same end", func(_ *testing.T, w *topologyOf) {
			w.inTopo.Metadata.Labels = map[string]string{"a-cost": "not valid!", "cost": "invalid too!"}
		}, "md", "cost", "Invalid", `label "cost"="invalid too!"`},
		{"restricted", func(_ *testing.T, w *topologyOf) {
			w.throughout("node-role.kubernetes.io/gpu", "node")
			delete(w.node.Labels, inherit.RecordLabel)
		}, "node", "node-role.kubernetes.io/gpu", "RestrictedUntilPrivilegedWrite", "first write by Cluster API or the loop"},
		{"matched by an address", func(_ *testing.T, w *topologyOf) {
			w.throughout("node-role.kubernetes.io/gpu", "node")
			w.m.Spec.ProviderID, w.node.Spec.ProviderID = "", ""
			w.m.Status.Addresses = []clusterv1.MachineAddress{{Type: clusterv1.MachineHostName, Address: "n"}}
		}, "node", "node-role.kubernetes.io/gpu", "MatchedByAddressOnly", "status.nodeRef"},
		{"paced", func(t *testing.T, w *topologyOf) {
			w.policy.PaceEviction = true
			_, _, w.m.Spec.Taints = read(t, "taint gone:NoExecute")
		}, "node", "gone", "WaitingForItsTurn", "--no-execute-rate"},
		{"initialization waits", func(t *testing.T, w *topologyOf) {
			w.policy.PaceEviction = true
			w.node.Labels[inherit.InitializationLabel] = "waiting"
			_, _, w.m.Spec.Taints = read(t, "taint gone:NoExecute@OnInitialization | taint soft:NoSchedule@OnInitialization")
		}, "node", "soft", "WaitingForItsTurn", "Node n waits"},
		{"initialized before", func(t *testing.T, w *topologyOf) {
			_, _, w.m.Spec.Taints = read(t, "taint soft:NoSchedule@OnInitialization")
		}, "node", "soft",
			"OnlyAtRegistration", "when they register"},
		{"paused", func(_ *testing.T, w *topologyOf) {
			w.throughout("a", "m")
			w.m.Annotations = map[string]string{clusterv1.PausedAnnotation: ""}
		}, "m", "a", "Paused", "Machine default/m alone, because it is paused"},
		{"its Cluster is paused", func(_ *testing.T, w *topologyOf) { w.throughout("a", "m"); w.cluster.Spec.Paused = new(true) }, "m", "a", "Paused", "its Cluster is paused"},
		{"one above is paused", func(_ *testing.T, w *topologyOf) {
			w.throughout("a", "ms")
			w.ms.Annotations = map[string]string{clusterv1.PausedAnnotation: ""}
		}, "m", "a", "Paused", "MachineSet default/ms alone"},
		{"opted out", func(_ *testing.T, w *topologyOf) { w.throughout("a", "m"); w.m.Labels[inherit.IgnoreLabel] = "" }, "m", "a", "OptedOut", "Remove the label"},
		{"the Machine of a Node is opted out", func(_ *testing.T, w *topologyOf) {
			w.throughout("node.cluster.x-k8s.io/a", "node")
			w.m.Labels[inherit.IgnoreLabel] = ""
		}, "node", "node.cluster.x-k8s.io/a", "OptedOut", "Machine default/m alone"},
		{"the Machine of a Node that is being deleted is opted out", func(_ *testing.T, w *topologyOf) {
			w.throughout("node.cluster.x-k8s.io/a", "node")
			w.m.Labels[inherit.IgnoreLabel] = ""
			w.node.DeletionTimestamp, w.node.Finalizers = &metav1.Time{Time: w.now}, []string{"x/y"}
		}, "node", "node.cluster.x-k8s.io/a", "OptedOut", "Machine default/m alone"},
		{"a Node that is being deleted", func(_ *testing.T, w *topologyOf) {
			w.throughout("node.cluster.x-k8s.io/a", "node")
			w.node.DeletionTimestamp, w.node.Finalizers = &metav1.Time{Time: w.now}, []string{"x/y"}
		}, "node", "node.cluster.x-k8s.io/a", "NotYet", "10m0s"},
		{"deleting", func(_ *testing.T, w *topologyOf) {
			w.throughout("a", "m")
			w.m.DeletionTimestamp, w.m.Finalizers = &metav1.Time{Time: w.now}, []string{"x/y"}
		}, "m", "a", "Deleting", "until it is gone"},
		{"watch filter", func(_ *testing.T, w *topologyOf) { w.throughout("a", "md"); w.policy.WatchFilter = "other" }, "md", "a",
			"WatchFilter", "cluster.x-k8s.io/watch-filter=other"},
		{"another namespace", func(_ *testing.T, w *topologyOf) { w.throughout("a", "m"); w.watched = "fleet" }, "m", "a",
			"OtherNamespace", "Heirloom leaves Machine default/m alone, because the server only watches namespace fleet."},
		{"another namespace, for a Node", func(_ *testing.T, w *topologyOf) {
			w.throughout("node.cluster.x-k8s.io/a", "node")
			w.watched = "fleet"
		}, "node", "node.cluster.x-k8s.io/a", "OtherNamespace", "Heirloom leaves Machine default/m alone"},
		{"the watched namespace", func(_ *testing.T, w *topologyOf) { w.throughout("a", "m"); w.watched = "default" }, "m", "a", "NotYet", "10m0s"},
		{"no Machine", func(_ *testing.T, w *topologyOf) { w.node.Spec.ProviderID, w.node.Name = "other", "other" }, "node", "a", "NoMatch", "providerID"},
		{"no owner", func(_ *testing.T, w *topologyOf) {
			w.m.OwnerReferences[0].Name, w.m.OwnerReferences[0].UID = "gone", "gone"
		}, "m", "a",
			"OwnerNotFound", "does not exist"},
		{"the owner's owner is not there", func(_ *testing.T, w *topologyOf) {
			w.ms.OwnerReferences[0].Name, w.ms.OwnerReferences[0].UID = "gone", "gone"
		}, "m", "a", "OwnerNotFound", "MachineSet default/ms"},
		{"the gate is off", func(t *testing.T, w *topologyOf) {
			w.policy.ClusterAPITaints = inherit.PropagationDisabled
			w.declares(t, "taint gpu:NoSchedule")
		}, "md", "gpu", "TaintsNotSupported", "taints.heirloom.dev/always"},
		{"the gate is off, by annotation", func(t *testing.T, w *topologyOf) {
			w.policy.ClusterAPITaints = inherit.PropagationDisabled
			w.m.Annotations = map[string]string{"taints.heirloom.dev/always": "gpu:NoSchedule"}
		}, "m", "gpu", "TaintsNotSupported", "stays an annotation"},
		{"by annotation, evicting, with a Node", func(t *testing.T, w *topologyOf) {
			w.policy.PaceEviction = true
			w.m.Annotations = map[string]string{"taints.heirloom.dev/always": "gpu:NoExecute"}
		}, "m", "gpu", "StaysAnnotation", "at its pace"},
		{"a MachinePool", func(t *testing.T, w *topologyOf) {
			_, _, w.cluster.Spec.Topology.Workers.MachinePools[0].Taints = read(t, "taint gpu:NoSchedule")
		}, "mp", "gpu:NoSchedule", "TaintsNotSupported", "no typed taints in a MachinePool"},
		{"its own taint wins", func(t *testing.T, w *topologyOf) {
			w.m.Annotations = map[string]string{"taints.heirloom.dev/always": "gpu=a:NoSchedule"}
			_, _, w.ms.Spec.Template.Spec.Taints = read(t, "taint other:NoSchedule")
			w.ms.Spec.Template.Annotations = map[string]string{"taints.heirloom.dev/always": "gpu=a:NoSchedule"}
			_, _, w.m.Spec.Taints = read(t, "taint gpu=b:NoSchedule")
		}, "m", "gpu", "OwnValueWins", `"b"`},
		{"its own annotation wins", func(t *testing.T, w *topologyOf) {
			w.throughout("node.cluster.x-k8s.io/a", "ms")
			w.md.Annotations = map[string]string{clusterv1.AutoscalerMaxSizeAnnotation: "3", inherit.CapacityLabelsAnnotation: "mine=1"}
		}, "md", inherit.CapacityLabelsAnnotation, "OwnValueWins", `"mine=1"`},
		{"overridden", func(t *testing.T, w *topologyOf) {
			_, _, w.inClass.Taints = read(t, "taint old:NoSchedule")
			w.declares(t, "taint new:NoSchedule")
			w.md.Spec.Template.Spec.Taints = w.inTopo.Taints
		}, "md", "old", "OverriddenAbove", "Cluster default/c"},
		{"overridden, for a Node", func(t *testing.T, w *topologyOf) {
			w.throughout("node.cluster.x-k8s.io/a", "")
			w.inClass.Metadata.Labels = map[string]string{"node.cluster.x-k8s.io/a": "2"}
		}, "node", "node.cluster.x-k8s.io/a", "OverriddenAbove", "Cluster default/c"},
		{"an annotation with taints further up", func(_ *testing.T, w *topologyOf) {
			w.inTopo.Metadata.Annotations = map[string]string{"taints.heirloom.dev/always": "a:NoSchedule"}
			w.m.Annotations = map[string]string{"taints.heirloom.dev/always": "b:NoSchedule"}
		}, "m", "b", "OverriddenAbove", "instead of what Machine default/m declares"},
		{"a MachineDeployment's own label", func(_ *testing.T, w *topologyOf) { w.md.Labels["team"] = "1" }, "m", "team",
			"NotPropagatedFromHere", "in spec.template.metadata"},
		{"a Cluster's own label", func(_ *testing.T, w *topologyOf) { w.cluster.Labels = map[string]string{"team": "1"} }, "node", "team",
			"NotPropagatedFromHere", "spec.topology"},
		{"not yet", func(_ *testing.T, w *topologyOf) { w.throughout("a", "m") }, "m", "a", "NotYet", "10m0s"},
		{"not yet, further up", func(_ *testing.T, w *topologyOf) { w.throughout("a", "md") }, "m", "a", "NotYet", "MachineDeployment default/md"},
		{"an InfraMachine", func(_ *testing.T, w *topologyOf) { w.throughout("a", "") }, "infra", "a", "NotYet", "AcmeMachine default/i"},
		{"no taints of an InfraMachine", func(t *testing.T, w *topologyOf) { w.declares(t, "taint gpu:NoSchedule") }, "infra", "gpu", "", ""},
	} {
		t.Run(tc.name, func(t *testing.T) {
			Expect := NewWithT(t).Expect
			w := newTopology()
			tc.given(t, w)
			found := w.missing(t, tc.object, tc.key)
			if tc.reason == "" {
				Expect(found).To(BeEmpty())
				return
			}
			Expect(found).To(HaveLen(1), fmt.Sprint(found))
			Expect(found[0].Reason).To(Equal(tc.reason), found[0].Message)
			Expect(found[0].Message).To(ContainSubstring(tc.says))
		})
	}
}
