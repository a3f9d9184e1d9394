// SPDX-License-Identifier: Apache-2.0

package explain

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	. "github.com/onsi/gomega"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	clientgoscheme "k8s.io/client-go/kubernetes/scheme"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"

	"github.com/heirloom-dev/heirloom/cmd/kubectl-heirloom/compare"
	"github.com/heirloom-dev/heirloom/cmd/kubectl-heirloom/settings"
	"github.com/heirloom-dev/heirloom/cmd/kubectl-heirloom/store"
	"github.com/heirloom-dev/heirloom/pkg/inherit"
	nodetaint "github.com/heirloom-dev/heirloom/pkg/taint"
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
	// refused is a kind that nobody may read.
	refused string
	policy  inherit.Policy
	now     time.Time
}

func newTopology() *topologyOf {
	created := time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC)
	w := &topologyOf{now: created.Add(time.Hour), known: true, policy: inherit.Policy{ClusterAPITaints: inherit.PropagationEnabled}}
	w.class = &clusterv1.ClusterClass{ObjectMeta: named("class", ""), Spec: clusterv1.ClusterClassSpec{Workers: clusterv1.WorkersClass{
		MachineDeployments: []clusterv1.MachineDeploymentClass{{Class: "workers"}}, MachinePools: []clusterv1.MachinePoolClass{{Class: "workers"}},
	}}}
	w.cluster = &clusterv1.Cluster{ObjectMeta: named("c", "")}
	w.cluster.Spec.Topology = clusterv1.Topology{ClassRef: clusterv1.ClusterClassRef{Name: "class"}, Workers: clusterv1.WorkersTopology{
		MachineDeployments: []clusterv1.MachineDeploymentTopology{{Name: "md", Class: "workers"}},
		MachinePools:       []clusterv1.MachinePoolTopology{{Name: "md", Class: "workers"}},
	}}
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

// refuses lets nobody read objects of a kind.
func refuses(kind string) interceptor.Funcs {
	return interceptor.Funcs{Get: func(ctx context.Context, c client.WithWatch, key client.ObjectKey, into client.Object, options ...client.GetOption) error {
		if into.GetObjectKind().GroupVersionKind().Kind == kind {
			return errors.New("forbidden")
		}
		return c.Get(ctx, key, into, options...)
	}}
}

// world has the objects, and a management cluster that is c itself if a Node is asked for.
func (w *topologyOf) world(t *testing.T) *Explainer {
	t.Helper()
	w.infra.SetGroupVersionKind(clusterv1.GroupVersionInfrastructure.WithKind("AcmeMachine"))
	second := w.m.DeepCopy()
	second.Name, second.UID, second.Spec.ProviderID, second.Status = "m2", "m2", "id2", clusterv1.MachineStatus{}
	live := fake.NewClientBuilder().WithScheme(scheme(t)).WithReturnManagedFields().WithInterceptorFuncs(refuses(w.refused)).
		WithObjects(w.class, w.cluster, w.md, w.mp, w.ms, w.m, second, w.node, unstructuredOf(t, w.infra)).Build()
	s, err := (&settings.Flags{}).Offline()
	NewWithT(t).Expect(err).NotTo(HaveOccurred())
	s.Known, s.Propagation, s.Config.Namespace, s.Config.Rules = w.known, w.policy.ClusterAPITaints, w.watched, w.policy
	s.Config.ManagementClusterKey = client.ObjectKeyFromObject(w.cluster)
	return New(compare.World{
		Store: store.New(live, nil), Settings: s, Now: w.now,
		Nodes: func(context.Context, types.NamespacedName) (client.Reader, error) { return live, nil },
	})
}

func scheme(t *testing.T) *runtime.Scheme {
	t.Helper()
	s := runtime.NewScheme()
	NewWithT(t).Expect(clientgoscheme.AddToScheme(s)).To(Succeed())
	NewWithT(t).Expect(clusterv1.AddToScheme(s)).To(Succeed())
	return s
}

// list explains objects of the chain by their short names.
func (w *topologyOf) list(t *testing.T, objects, key string) *List {
	t.Helper()
	x := w.world(t)
	x.Key = key
	var all []Object
	for _, object := range strings.Fields(objects) {
		kind := map[string]schema.GroupVersionKind{
			"md": kindOf("MachineDeployment"), "mp": kindOf("MachinePool"), "ms": kindOf("MachineSet"), "m": kindOf("Machine"), "m2": kindOf("Machine"),
			"c": kindOf("Cluster"), "class": kindOf("ClusterClass"), "infra": clusterv1.GroupVersionInfrastructure.WithKind("AcmeMachine"),
			"node": corev1.SchemeGroupVersion.WithKind("Node"),
		}[object]
		name := types.NamespacedName{Namespace: "default", Name: object}
		switch object {
		case "infra":
			name.Name = w.infra.Name
		case "node":
			name = types.NamespacedName{Name: w.node.Name}
		}
		all = append(all, Object{kind, name})
	}
	found, err := x.All(t.Context(), all)
	NewWithT(t).Expect(err).NotTo(HaveOccurred())
	return &List{Items: found, Key: key, Single: len(found) == 1}
}

func kindOf(kind string) schema.GroupVersionKind { return clusterv1.GroupVersion.WithKind(kind) }

// missing are the entries that have a reason, if a key is asked for.
func (w *topologyOf) missing(t *testing.T, object, key string) []Entry {
	t.Helper()
	return slices.DeleteFunc(w.list(t, object, key).Items[0].Entries, func(e Entry) bool { return e.Reason == "" })
}

// named returns the metadata of an object in namespace default; controller is "<kind>/<name>".
func named(name, controller string) metav1.ObjectMeta {
	object := metav1.ObjectMeta{Namespace: "default", Name: name, UID: types.UID(name)}
	if kind, owner, ok := strings.Cut(controller, "/"); ok {
		object.OwnerReferences = []metav1.OwnerReference{{
			APIVersion: clusterv1.GroupVersion.String(), Kind: kind, Name: owner, UID: types.UID(owner), Controller: new(true),
		}}
	}
	return object
}

// read reads what an object carries: "label a=1 | annotation b=2 | taint gpu=true:NoSchedule@OnInitialization".
func read(t *testing.T, s string) (labels, annotations map[string]string, taints []clusterv1.MachineTaint) {
	t.Helper()
	labels, annotations = map[string]string{}, map[string]string{}
	for entry := range strings.SplitSeq(s, " | ") {
		kind, rest, _ := strings.Cut(entry, " ")
		key, value, _ := strings.Cut(rest, "=")
		switch kind {
		case "label":
			labels[key] = value
		case "annotation":
			annotations[key] = value
		case "taint":
			text, propagation, _ := strings.Cut(rest, "@")
			parsed, err := nodetaint.Parse(text)
			NewWithT(t).Expect(err).NotTo(HaveOccurred())
			taints = append(taints, clusterv1.MachineTaint{
				Key: parsed.Key, Value: parsed.Value, Effect: parsed.Effect, Propagation: clusterv1.MachineTaintPropagation(cmp.Or(propagation, "Always")),
			})
		}
	}
	return labels, annotations, taints
}

func unstructuredOf(t *testing.T, object any) *unstructured.Unstructured {
	t.Helper()
	content, err := runtime.DefaultUnstructuredConverter.ToUnstructured(object)
	NewWithT(t).Expect(err).NotTo(HaveOccurred())
	return &unstructured.Unstructured{Object: content}
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
			w.md.Spec.Template.Annotations, w.ms.Spec.Template.Annotations = w.inTopo.Metadata.Annotations, w.inTopo.Metadata.Annotations
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
			Expect(found).NotTo(BeEmpty())
			for _, entry := range found { // a label of a MachineDeployment is missing at its top and in its template
				Expect(entry.Reason).To(Equal(tc.reason), entry.Message)
				Expect(entry.Message).To(ContainSubstring(tc.says))
				Expect(found[0].Key).To(Equal(entry.Key))
			}
		})
	}
}

// Without a key, nothing is listed that no one would miss: what tells about the object that carries it, and labels of controllers.
func TestAbsencesOfAllKeys(t *testing.T) {
	Expect := NewWithT(t).Expect
	w := newTopology()
	w.throughout("node.cluster.x-k8s.io/a", "")
	w.throughout("team", "node")
	w.md.Annotations = map[string]string{"cluster.x-k8s.io/own": "1", "kubectl.kubernetes.io/last-applied-configuration": "{}"}
	w.ms.Spec.Template.Labels[clusterv1.MachineDeploymentUniqueLabel], w.m.Labels[clusterv1.MachineDeploymentUniqueLabel] = "x", "x"
	w.m.Annotations = map[string]string{"controlplane.cluster.x-k8s.io/remediation-for": "x", "taints.heirloom.dev/always": "gpu:NoSchedule"}
	w.m.Spec.Taints, w.node.Spec.Taints = taintsIn(t, "taint gpu:NoSchedule"), []corev1.Taint{{Key: "gpu", Effect: corev1.TaintEffectNoSchedule}}
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
	Expect(w.missing(t, "mp", "")).To(BeEmpty(), "what the object declares itself is there")
}

func taintsIn(t *testing.T, s string) []clusterv1.MachineTaint {
	t.Helper()
	_, _, taints := read(t, s)
	return taints
}

// Every reason to leave an object alone is one word.
func TestReasonsInOneWord(t *testing.T) {
	Expect := NewWithT(t).Expect
	filtered, _ := inherit.Policy{WatchFilter: "blue"}.Skips(&clusterv1.Machine{}, nil)
	w := newTopology()
	x := w.world(t)
	for reason, want := range map[inherit.Reason]inherit.Why{
		inherit.IsPaused: paused, inherit.ClusterIsPaused: paused, inherit.IsIgnored: optedOut, inherit.ClusterIsReleased: optedOut,
		inherit.IsDeleted: deleting, filtered: watchFilter, inherit.IsNoMachine: noMatch, inherit.NotOfManagementCluster: noMatch, inherit.NotOfMachine: noMatch,
		inherit.OwnerIsNotFound: ownerNotFound, inherit.ClusterDoesNotExist: ownerNotFound, inherit.NothingDeclares: inherit.DropElsewhere,
	} {
		v := x.leftAlone(inherit.Ref{Kind: "Machine", Object: w.m}, reason)
		Expect(v.why).To(Equal(want), string(reason))
		Expect(texts[v.why][0]).NotTo(BeEmpty())
	}
}

// Who may not read an owner is told so, and sees the rest.
func TestAnOwnerThatCannotBeReadIsNamed(t *testing.T) {
	for kind, want := range map[string]string{
		"MachineSet":        "What Machine default/m inherits is not known, because not all of its owners can be read: getting owner MachineSet default/ms: forbidden.",
		"MachineDeployment": "Not all owners can be read, so what they declare is shown as far as it is known: getting owner MachineDeployment default/md: forbidden.",
		"ClusterClass":      "Not all owners can be read, so what they declare is shown as far as it is known: getting ClusterClass default/class: forbidden.",
	} {
		w := newTopology()
		w.refused = kind
		w.throughout("a", "ms")
		NewWithT(t).Expect(w.list(t, "m", "").Items[0].Notes).To(ContainElement(HavePrefix(want)), kind)
	}
	w := newTopology()
	w.refused = "MachineDeployment"
	w.inTopo.Metadata.Labels = map[string]string{"a": "1"}
	NewWithT(t).Expect(w.missing(t, "m", "a")).To(ConsistOf(And(HaveField("Reason", "OwnerNotFound"), HaveField("Message", ContainSubstring("forbidden")))))
}
