// SPDX-License-Identifier: Apache-2.0

package origin

import (
	"context"
	"fmt"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	utilruntime "k8s.io/apimachinery/pkg/util/runtime"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"

	"github.com/heirloom-dev/heirloom/cmd/kubectl-heirloom/settings"
	"github.com/heirloom-dev/heirloom/cmd/kubectl-heirloom/snapshot"
	"github.com/heirloom-dev/heirloom/pkg/inherit"
	"github.com/heirloom-dev/heirloom/pkg/taint"
)

// A family in short form: what each object carries, in its template or, for the Machine and the Node and where the name
// says so, at its top. An object that is "-" or empty does not exist; "." carries nothing.
//
//	label a=1 | annotation b=2 | taint gpu=true:NoSchedule@Always
type family struct {
	mdTop, md, ms, msTop, m, node string
	// managed is who owns what on the explained object: "kubectl label a | manager taint gpu:NoSchedule".
	managed string
}

// objects are those of a family, as the API server has them.
type objects struct {
	node       *corev1.Node
	machine    *clusterv1.Machine
	machineSet *clusterv1.MachineSet
	others     []client.Object
}

func (f family) build(t *testing.T) *objects {
	t.Helper()
	built := &objects{others: []client.Object{&clusterv1.Cluster{ObjectMeta: named("c", "")}}}
	if exists(f.md) {
		md := &clusterv1.MachineDeployment{ObjectMeta: named("md", ""), Spec: clusterv1.MachineDeploymentSpec{ClusterName: "c", Template: template(t, f.md)}}
		md.Labels, md.Annotations, _ = read(t, f.mdTop)
		built.others = append(built.others, md)
	}
	if exists(f.ms) || exists(f.msTop) {
		built.machineSet = &clusterv1.MachineSet{ObjectMeta: named("ms", "MachineDeployment/md"), Spec: clusterv1.MachineSetSpec{ClusterName: "c", Template: template(t, f.ms)}}
		built.machineSet.Labels, built.machineSet.Annotations, _ = read(t, f.msTop)
		if !exists(f.m) {
			built.machineSet.ManagedFields = managedFields(t, f.managed)
		}
	}
	if exists(f.m) {
		built.machine = &clusterv1.Machine{ObjectMeta: named("m", "MachineSet/ms"), Spec: clusterv1.MachineSpec{ClusterName: "c", ProviderID: "id"}}
		built.machine.Labels, built.machine.Annotations, built.machine.Spec.Taints = read(t, f.m)
		if !exists(f.node) {
			built.machine.ManagedFields = managedFields(t, f.managed)
		}
	}
	if exists(f.node) {
		built.node = &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: "n", ManagedFields: managedFields(t, f.managed)}, Spec: corev1.NodeSpec{ProviderID: "id"}}
		var taints []clusterv1.MachineTaint
		built.node.Labels, built.node.Annotations, taints = read(t, f.node)
		for _, declared := range taints {
			built.node.Spec.Taints = append(built.node.Spec.Taints, taint.ForNode(declared))
		}
	}
	return built
}

// explain explains the lowest of the objects.
func (o *objects) explain(t *testing.T) (*Explanation, error) {
	t.Helper()
	all, kind, key := o.others, "", types.NamespacedName{Namespace: "default"}
	if o.machineSet != nil {
		all, kind, key.Name = append(all, o.machineSet), "MachineSet", "ms"
	}
	if o.machine != nil {
		all, kind, key.Name = append(all, o.machine), "Machine", "m"
	}
	gvk := clusterv1.GroupVersion.WithKind(kind)
	if o.node != nil {
		all, gvk, key = append(all, o.node), corev1.SchemeGroupVersion.WithKind("Node"), types.NamespacedName{Name: "n"}
	}
	return New(snapshot.New(serves(t, all...), layouts{}), server(t, "c")).Explain(t.Context(), gvk, key)
}

// server returns the settings of a server that has not been asked, beside a Cluster API that propagates taints. management is the
// name of the management cluster's own Cluster, if that is known.
func server(t *testing.T, management string) settings.Settings {
	t.Helper()
	s, err := (&settings.Flags{}).Offline()
	if err != nil {
		t.Fatal(err)
	}
	s.Propagation = inherit.PropagationEnabled
	if management != "" {
		s.Config.ManagementClusterKey = types.NamespacedName{Namespace: "default", Name: management}
	}
	return s
}

func serves(t *testing.T, all ...client.Object) client.Client {
	t.Helper()
	scheme := runtime.NewScheme()
	if err := corev1.AddToScheme(scheme); err != nil {
		t.Fatal(err)
	}
	utilruntime.Must(clusterv1.AddToScheme(scheme))
	mapper := meta.NewDefaultRESTMapper([]schema.GroupVersion{{Group: inherit.ControlPlaneGroup, Version: "v1beta2"}})
	mapper.Add(schema.GroupVersionKind{Group: inherit.ControlPlaneGroup, Version: "v1beta2", Kind: "AcmeControlPlane"}, meta.RESTScopeNamespace)
	return fake.NewClientBuilder().WithScheme(scheme).WithRESTMapper(mapper).WithObjects(all...).WithReturnManagedFields().Build()
}

// layouts are those of kinds that have all fields.
type layouts struct{}

func (layouts) ControlPlane(context.Context, schema.GroupVersionKind) (inherit.Layout, error) {
	return inherit.ControlPlaneLayout("v1beta2", func(...string) bool { return true }), nil
}

func (layouts) Machine(context.Context, schema.GroupVersionKind) inherit.Layout {
	return inherit.MachineLayout
}

func exists(s string) bool { return s != "" && s != "-" }

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

func gates(types ...string) []clusterv1.MachineReadinessGate {
	var all []clusterv1.MachineReadinessGate
	for _, name := range types {
		all = append(all, clusterv1.MachineReadinessGate{ConditionType: name})
	}
	return all
}

func template(t *testing.T, s string) clusterv1.MachineTemplateSpec {
	t.Helper()
	var result clusterv1.MachineTemplateSpec
	result.Labels, result.Annotations, result.Spec.Taints = read(t, s)
	return result
}

// read reads what an object carries. An annotation may hold commas; a taint without @ is Always.
func read(t *testing.T, s string) (labels, annotations map[string]string, taints []clusterv1.MachineTaint) {
	t.Helper()
	labels, annotations = map[string]string{}, map[string]string{}
	for entry := range strings.SplitSeq(s, "|") {
		if entry = strings.TrimSpace(entry); entry == "" || entry == "." {
			continue
		}
		kind, rest, _ := strings.Cut(entry, " ")
		key, value, _ := strings.Cut(rest, "=")
		switch kind {
		case "label":
			labels[key] = value
		case "annotation":
			annotations[key] = value
		case "taint":
			text, propagation, _ := strings.Cut(rest, "@")
			parsed, err := taint.Parse(text)
			if err != nil {
				t.Fatal(err)
			}
			if propagation == "" {
				propagation = "Always"
			}
			taints = append(taints, clusterv1.MachineTaint{
				Key: parsed.Key, Value: parsed.Value, Effect: parsed.Effect, Propagation: clusterv1.MachineTaintPropagation(propagation),
			})
		default:
			t.Fatalf("bad fixture %q", entry)
		}
	}
	return labels, annotations, taints
}

// managedFields writes managed fields as an API server does; "taints" is the whole list of a Node.
func managedFields(t *testing.T, s string) []metav1.ManagedFieldsEntry {
	t.Helper()
	var entries []metav1.ManagedFieldsEntry
	for entry := range strings.SplitSeq(s, "|") {
		words := strings.Fields(entry)
		if len(words) == 0 {
			continue
		}
		entries = append(entries, metav1.ManagedFieldsEntry{
			Manager: words[0], Operation: metav1.ManagedFieldsOperationUpdate, FieldsType: "FieldsV1", APIVersion: "v1",
			FieldsV1: metav1.NewFieldsV1(field(t, words[1:])),
		})
	}
	return entries
}

func field(t *testing.T, words []string) string {
	t.Helper()
	switch words[0] {
	case "topology.workers.machineDeployments":
		item := fmt.Sprintf(`{"k:{\"%s\":\"%s\"}":%s}`, words[1], words[2], field(t, words[3:]))
		return `{"f:spec":{"f:topology":{"f:workers":{"f:machineDeployments":` + item + `}}}}`
	case "template":
		return fmt.Sprintf(`{"f:spec":{"f:template":%s}}`, field(t, words[1:]))
	case "label", "annotation":
		return fmt.Sprintf(`{"f:metadata":{"f:%ss":{"f:%s":{}}}}`, words[0], words[1])
	case "taint":
		key, effect, _ := strings.Cut(words[1], ":")
		return fmt.Sprintf(`{"f:spec":{"f:taints":{"k:{\"effect\":\"%s\",\"key\":\"%s\"}":{".":{},"f:key":{}}}}}`, effect, key)
	case "field":
		names := strings.Split(words[1], ".")
		return `{"f:spec":{"f:` + strings.Join(names, `":{"f:`) + `":{}` + strings.Repeat("}", len(names)-1) + `}}`
	case "taints":
		return `{"f:spec":{"f:taints":{}}}`
	}
	t.Fatalf("bad fixture %q", words)
	return ""
}

// lines writes an explanation down, one line per entry; entries that Heirloom owns have a star.
func lines(e *Explanation) []string {
	var all []string
	for _, entry := range e.Entries {
		star := ""
		switch {
		case entry.Status == Missing:
			star = "MISSING "
		case entry.Status == Differs:
			star = "DIFFERS "
		case entry.OwnedByHeirloom:
			star = "*"
		}
		all = append(all, fmt.Sprintf("%s%s %s=%s <- %s", star, entry.Kind, entry.Key, entry.Value, entry.From))
	}
	return all
}
