// SPDX-License-Identifier: Apache-2.0

package whatif_test

import (
	"bytes"
	"context"
	"errors"
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	. "github.com/onsi/gomega"
	corev1 "k8s.io/api/core/v1"
	policyv1 "k8s.io/api/policy/v1"
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
	"sigs.k8s.io/yaml"

	"github.com/heirloom-dev/heirloom/cmd/kubectl-heirloom/settings"
	"github.com/heirloom-dev/heirloom/cmd/kubectl-heirloom/snapshot"
	"github.com/heirloom-dev/heirloom/cmd/kubectl-heirloom/whatif"
	"github.com/heirloom-dev/heirloom/pkg/inherit"
)

var update = flag.Bool("update", false, "write the golden files anew")

// world is a management cluster and the workload cluster of Cluster c in it.
type world struct {
	management, workload []client.Object
	// unreachable says that the workload cluster does not answer.
	unreachable bool
	flags       settings.Flags
}

// small is Cluster c with a topology of a class: MachineDeployment md, MachineSet ms and its Machines m-0, m-1 and m-2 with Nodes of
// the same names. Each Machine has an AcmeMachine.
func small() *world {
	w := &world{management: []client.Object{
		&clusterv1.ClusterClass{ObjectMeta: named("class", "")},
		&clusterv1.Cluster{ObjectMeta: named("c", ""), Spec: clusterv1.ClusterSpec{Topology: clusterv1.Topology{
			ClassRef: clusterv1.ClusterClassRef{Name: "class"},
			Workers:  clusterv1.WorkersTopology{MachineDeployments: []clusterv1.MachineDeploymentTopology{{Name: "a", Class: "a"}}},
		}}},
		&clusterv1.MachineDeployment{ObjectMeta: ofTopology(named("md", "")), Spec: clusterv1.MachineDeploymentSpec{ClusterName: "c"}},
		&clusterv1.MachineSet{ObjectMeta: named("ms", "MachineDeployment/md"), Spec: clusterv1.MachineSetSpec{ClusterName: "c"}},
	}}
	for i := range 3 {
		name := fmt.Sprintf("m-%d", i)
		infra := &unstructured.Unstructured{}
		infra.SetAPIVersion(inherit.InfrastructureGroup + "/v1beta2")
		infra.SetKind("AcmeMachine")
		infra.SetNamespace("default")
		infra.SetName(name)
		infra.SetLabels(map[string]string{clusterv1.ClusterNameLabel: "c"})
		infra.SetOwnerReferences(named("", "Machine/"+name).OwnerReferences)
		w.management = append(w.management, infra, &clusterv1.Machine{ObjectMeta: named(name, "MachineSet/ms"), Spec: clusterv1.MachineSpec{
			ClusterName: "c", ProviderID: "acme://" + name,
			InfrastructureRef: clusterv1.ContractVersionedObjectReference{APIGroup: inherit.InfrastructureGroup, Kind: "AcmeMachine", Name: name},
		}, Status: clusterv1.MachineStatus{NodeRef: clusterv1.MachineNodeReference{Name: name}}})
		w.workload = append(w.workload, nodeOf(name))
	}
	return w
}

func ofTopology(object metav1.ObjectMeta) metav1.ObjectMeta {
	object.Labels = map[string]string{
		clusterv1.ClusterNameLabel: "c", clusterv1.ClusterTopologyOwnedLabel: "", clusterv1.ClusterTopologyMachineDeploymentNameLabel: "a",
	}
	return object
}

// nodeOf is a Node in use.
func nodeOf(name string) *corev1.Node {
	node := &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: name}, Spec: corev1.NodeSpec{ProviderID: "acme://" + name}}
	node.Annotations = map[string]string{clusterv1.TaintsFromMachineAnnotation: ""}
	node.Labels = map[string]string{inherit.RecordLabel: "e3b0c44298fc1c149afbf4c8996fb924"} // of nothing
	node.CreationTimestamp = metav1.Date(2026, 1, 1, 0, 0, 0, 0, metav1.Now().Location())
	return node
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

// snapshot returns what the plugin reads of the management cluster.
func (w *world) snapshot(t *testing.T) *snapshot.Snapshot {
	t.Helper()
	scheme := runtime.NewScheme()
	utilruntime.Must(clusterv1.AddToScheme(scheme))
	provider := schema.GroupVersion{Group: inherit.InfrastructureGroup, Version: "v1beta2"}
	mapper := meta.NewDefaultRESTMapper([]schema.GroupVersion{clusterv1.GroupVersion, provider})
	for _, kind := range []string{"ClusterClass", "Cluster", "MachineDeployment", "MachinePool", "MachineSet", "Machine"} {
		mapper.Add(clusterv1.GroupVersion.WithKind(kind), meta.RESTScopeNamespace)
	}
	mapper.Add(provider.WithKind("AcmeMachine"), meta.RESTScopeNamespace)
	scheme.AddKnownTypeWithName(provider.WithKind("AcmeMachine"), &unstructured.Unstructured{})
	scheme.AddKnownTypeWithName(provider.WithKind("AcmeMachineList"), &unstructured.UnstructuredList{})
	with := func(objects ...client.Object) *fake.ClientBuilder {
		return fake.NewClientBuilder().WithScheme(scheme).WithRESTMapper(mapper).WithObjects(objects...).WithReturnManagedFields()
	}
	// The fake client answers a dry run with what is stored. Here another one answers, which has only the object.
	dryRun := func(
		ctx context.Context, live client.WithWatch, object client.Object, patch client.Patch, options ...client.PatchOption,
	) error {
		asked := (&client.PatchOptions{}).ApplyOptions(options)
		NewWithT(t).Expect(asked.DryRun).To(Equal([]string{metav1.DryRunAll}))
		asked.DryRun = nil
		stored := &unstructured.Unstructured{}
		stored.SetGroupVersionKind(object.GetObjectKind().GroupVersionKind())
		if err := live.Get(ctx, client.ObjectKeyFromObject(object), stored); err != nil {
			return err
		}
		stored.SetResourceVersion("")
		return with(stored).Build().Patch(ctx, object, patch, asked)
	}
	live := with(w.management...).WithInterceptorFuncs(interceptor.Funcs{Patch: dryRun}).Build()
	return snapshot.New(live, layouts{})
}

func (w *world) nodes(t *testing.T) snapshot.Nodes {
	t.Helper()
	scheme := runtime.NewScheme()
	NewWithT(t).Expect(errors.Join(corev1.AddToScheme(scheme), policyv1.AddToScheme(scheme))).To(Succeed())
	live := fake.NewClientBuilder().WithScheme(scheme).WithObjects(w.workload...).Build()
	return func(context.Context, types.NamespacedName) (client.Reader, error) {
		if w.unreachable {
			return nil, errors.New("connection refused")
		}
		return live, nil
	}
}

// layouts are those of kinds that have all fields.
type layouts struct{}

func (layouts) ControlPlane(context.Context, schema.GroupVersionKind) (inherit.Layout, error) {
	return inherit.ControlPlaneLayout("v1beta2", func(...string) bool { return true }), nil
}

func (layouts) Machine(context.Context, schema.GroupVersionKind) inherit.Layout {
	return inherit.MachineLayout
}

// ask asks what files would write; without files, what is pending in Cluster c.
func (w *world) ask(t *testing.T, from *snapshot.Snapshot, files ...string) (*whatif.Result, error) {
	t.Helper()
	read, err := w.flags.Offline()
	NewWithT(t).Expect(err).NotTo(HaveOccurred())
	read.Propagation = inherit.PropagationEnabled
	question := whatif.Question{Settings: read, Nodes: w.nodes(t), Apply: whatif.Apply{FieldManager: "kubectl"}}
	if len(files) == 0 {
		question.Clusters = []types.NamespacedName{{Namespace: "default", Name: "c"}}
	}
	for _, file := range files {
		object := &unstructured.Unstructured{}
		NewWithT(t).Expect(yaml.Unmarshal([]byte(file), &object.Object)).To(Succeed())
		question.Files = append(question.Files, object)
	}
	return whatif.Ask(t.Context(), from, question)
}

// answer is what ask answers without an error.
func (w *world) answer(t *testing.T, files ...string) *whatif.Result {
	t.Helper()
	result, err := w.ask(t, w.snapshot(t), files...)
	NewWithT(t).Expect(err).NotTo(HaveOccurred())
	return result
}

// printed is what people see: the differences, and what there is to say besides.
func printed(t *testing.T, result *whatif.Result, all bool) string {
	t.Helper()
	var out bytes.Buffer
	NewWithT(t).Expect(whatif.Program{Out: &out, ErrOut: &out}.Show(t.Context(), result.Objects, all)).To(Succeed())
	text := regexp.MustCompile(`\S+/(LIVE|MERGED)/`).ReplaceAllString(out.String(), "$1/")
	text = regexp.MustCompile(`(?m)^((---|\+\+\+) \S+)\t.*$`).ReplaceAllString(text, "$1")
	return text + strings.Join(result.Lines(), "\n") + "\n"
}

// expectGolden compares a text with the one that is kept.
func expectGolden(t *testing.T, name, text string) {
	t.Helper()
	file := filepath.Join("testdata", name+".golden")
	if *update {
		NewWithT(t).Expect(os.WriteFile(file, []byte(text), 0o600)).To(Succeed())
	}
	want, err := os.ReadFile(file)
	NewWithT(t).Expect(err).NotTo(HaveOccurred())
	NewWithT(t).Expect(text).To(Equal(string(want)), "go test -update writes it anew")
}

// lines writes the changes down, one line each.
func lines(result *whatif.Result) []string {
	var all []string
	for _, o := range result.Objects {
		for _, c := range o.Changes {
			all = append(all, fmt.Sprintf("%s %s: %s <- %s", o.Kind, o.Name, c, c.Source))
		}
	}
	return all
}
