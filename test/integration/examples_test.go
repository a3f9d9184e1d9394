// SPDX-License-Identifier: Apache-2.0

package integration

import (
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	. "github.com/onsi/gomega"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/klog/v2"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/yaml"

	"github.com/heirloom-dev/heirloom/pkg/inherit"
	"github.com/heirloom-dev/heirloom/pkg/taint"
	"github.com/heirloom-dev/heirloom/test/controlplane"
	"github.com/heirloom-dev/heirloom/test/stage"
)

// example is a directory of docs/examples with the expected Machine and Node.
type example struct {
	dir, node string
	// machine creates the objects that Cluster API's controllers would create, and returns the Node's Machine; nil if the Node has none.
	machine func(s *examples, name string) *clusterv1.Machine
	// cluster is the workload cluster of the Node; empty for the management cluster.
	cluster string
	// onMachine are labels of the Machine that do not reach the Node.
	onMachine, labels, annotations map[string]string
	always, initialize, until      string
	// also checks the properties that only this example has.
	also func(s *examples, e example, node *corev1.Node)
}

// examples is a scene for the directories of docs/examples.
type examples struct{ *scene }

func examplesDir(path ...string) string {
	return filepath.Join(append([]string{root, "docs", "examples"}, path...)...)
}

// TestExamples applies each example without changes, and checks the resulting Machine and Node.
func TestExamples(t *testing.T) {
	t.Parallel()
	// The examples are for Cluster API with its default settings, and the feature gate is off by default.
	s := &examples{newScene(t, stage.Options{
		WorkloadWebhook: true, Args: []string{taintGate + "disabled", "--management-cluster=fleet/prod"},
	})}
	s.ensureNamespace("fleet")
	s.apply("clusterclass") // it has the Cluster of the other examples

	tested := map[string]bool{"README.md": true, "required-keys": true, "facts": true, "no-execute-budgets": true} // TestRequiredKeys, TestFacts, TestNoExecuteWithinBudgets
	for _, e := range allExamples() {
		tested[e.dir] = true
		t.Run(e.dir+"/"+e.node, func(t *testing.T) {
			within := &examples{s.in(t)}
			within.expect(e)
		})
	}
	s.Expect(os.ReadDir(examplesDir())).To(HaveEach(WithTransform(os.DirEntry.Name, BeKeyOf(tested))), "a test applies each example")
}

func allExamples() []example {
	is := func(value string) map[string]string { return map[string]string{"node.cluster.x-k8s.io/pool": value} }
	return []example{
		{
			dir: "gpu-pool", node: "gpu-1", machine: ofDeployment("gpu"), onMachine: map[string]string{"cost-center": "research"},
			labels: labels.Merge(is("gpu"), map[string]string{"node-role.kubernetes.io/gpu": ""}), always: "nvidia.com/gpu=present:NoSchedule",
			annotations: map[string]string{"node.cluster.x-k8s.io/contact": "gpu-oncall@example.com"}, also: (*examples).expectPodFits,
		},
		{
			dir: "tenant-pool", node: "tenant-acme-1", machine: ofDeployment("tenant-acme"), always: "tenant=acme:NoSchedule",
			labels: map[string]string{"node-restriction.kubernetes.io/tenant": "acme"}, also: (*examples).expectPodFits,
		},
		{
			dir: "keys-per-cluster", node: "costs-1", machine: (*examples).ofNamedKeys, always: "costs:PreferNoSchedule", onMachine: map[string]string{"team": "ml"},
			labels: map[string]string{"costs.example.com/center": "research", "costs.example.com/owner": "ml"},
		},
		{
			dir: "control-plane", node: "prod-1", machine: ofControlPlane, labels: is("control-plane"), always: "dedicated=control-plane:NoSchedule",
			also: (*examples).expectDrainTimeout,
		},
		{
			dir: "clusterclass", node: "prod-general-1", machine: ofTopology("prod", "general"), always: "batch:PreferNoSchedule",
			labels: labels.Merge(is("general"), map[string]string{"node.cluster.x-k8s.io/tier": "standard"}),
		},
		{
			dir: "clusterclass", node: "prod-gpu-1", machine: ofTopology("prod", "gpu"), always: "nvidia.com/gpu=present:NoSchedule",
			labels: labels.Merge(is("gpu"), map[string]string{"node.cluster.x-k8s.io/tier": "standard"}),
		},
		{dir: "machinepool", node: "spot-1", machine: ofPool(true), labels: is("spot"), always: "spot:NoSchedule"},
		{dir: "machinepool", node: "spot-2", machine: ofPool(false), labels: is("spot"), always: "spot:NoSchedule"},
		{
			dir: "startup-taints", node: "cilium-1", machine: ofDeployment("cilium"), always: "dedicated=web:NoSchedule",
			initialize: "node.cilium.io/agent-not-ready=true:NoExecute", until: "storage:NoSchedule until daemonset kube-system/csi-node",
		},
		{
			dir: "autoscale-from-zero", node: "burst-1", machine: ofDeployment("burst"), labels: is("burst"), always: "burst:NoSchedule",
			also: (*examples).expectCapacity,
		},
		{
			dir: "workload-webhook", node: "red-1", machine: ofDeployment("red-web"), cluster: "red",
			labels: is("web"), always: "dedicated=web:NoSchedule", also: (*examples).expectValues,
		},
		{
			dir: "workload-policy", node: "blue-1", machine: ofDeployment("blue-web"), cluster: "blue",
			labels: is("web"), always: "dedicated=web:NoSchedule",
		},
		{
			dir: "label-outage", node: "reflector-1", machine: ofTopology("bgp", "reflectors"), cluster: "bgp",
			labels: map[string]string{"node-role.kubernetes.io/route-reflector": ""}, also: (*examples).expectOutagePrevented,
		},
	}
}

// apply applies the files for the management cluster, like an operator.
func (s *examples) apply(dir string) {
	s.t.Helper()
	files, err := filepath.Glob(examplesDir(dir, "*.yaml"))
	s.Expect(err).NotTo(HaveOccurred())
	elsewhere := func(file string) bool {
		return slices.Contains([]string{"values.yaml", "pod.yaml", "change.yaml", "calico.yaml", "calico-crd.yaml"}, filepath.Base(file))
	}
	for _, file := range slices.DeleteFunc(files, elsewhere) {
		s.Expect(s.byKubectl("apply", "--filename", file)).NotTo(ContainSubstring("Warning"), file)
	}
}

// expect applies an example and checks the result. The cleanup of its workload cluster deletes all examples that were applied.
func (s *examples) expect(e example) {
	s.t.Helper()
	s.apply(e.dir)
	of := *s.scene
	if e.cluster != "" {
		cluster := stage.Cluster("fleet", e.cluster)
		s.get(cluster)
		w := s.workload(cluster)
		if e.dir == "workload-policy" && s.refusedPolicy(abroad{family: family{cluster: cluster}, Workload: w}) {
			return
		}
		of.Stage = &stage.Stage{ControlPlane: w.ControlPlane, Client: w.Client}
	}
	if m := e.machine(s, e.node); m != nil {
		s.create(m)
		s.eventually(m, func(g Gomega) {
			g.Expect(m.Labels).To(And(haveAll(e.onMachine), haveAll(e.labels)))
			g.Expect(m.Annotations).To(haveAll(e.annotations))
			g.Expect(m.Annotations[taint.AlwaysAnnotation]).To(Equal(e.always))
			g.Expect(m.Annotations[taint.InitializeAnnotation]).To(Equal(e.initialize))
			g.Expect(m.Annotations[taint.UntilAnnotation]).To(Equal(e.until))
		})
	}
	node := of.expectNode(e)
	if e.also != nil {
		e.also(s, e, node)
	}
}

// expectNode registers the Node as its kubelet. The first version has its taints, and the other entries follow soon.
func (s *scene) expectNode(e example) *corev1.Node {
	s.t.Helper()
	node, kubelet := stage.Node(e.node), s.kubelet(e.node)
	until, _, _ := strings.Cut(e.until, " ")
	taints := taint.Split(strings.Join([]string{e.always, e.initialize, until}, ","))
	has := func(g Gomega, node *corev1.Node) {
		g.Expect(strings.Split(taint.FormatList(node.Spec.Taints), ",")).To(ContainElements(taints))
	}
	s.Eventually(func(g Gomega) { // until a cache has the Machine, or an API server the policy's parameters
		dry := node.DeepCopy()
		g.Expect(kubelet.Create(s.ctx, dry, client.DryRunAll)).To(Succeed())
		has(g, dry)
	}).WithTimeout(patience).WithPolling(polling).Should(Succeed())
	s.Expect(kubelet.Create(s.ctx, node)).To(Succeed())
	has(s, node)
	s.eventually(node, func(g Gomega) {
		has(g, node)
		g.Expect(node.Labels).To(haveAll(e.labels))
		g.Expect(node.Annotations).To(haveAll(e.annotations))
		for key := range e.onMachine {
			g.Expect(node.Labels).NotTo(HaveKey(key))
		}
		g.Expect(taint.Find(node.Spec.Taints, taint.IDOf(clusterv1.NodeUninitializedTaint))).To(Equal(-1))
	})
	return node
}

func haveAll(entries map[string]string) OmegaMatcher {
	var all []OmegaMatcher
	for key, value := range entries {
		all = append(all, HaveKeyWithValue(key, value))
	}
	return And(all...)
}

func ofDeployment(name string) func(*examples, string) *clusterv1.Machine {
	return func(s *examples, machine string) *clusterv1.Machine {
		md := &clusterv1.MachineDeployment{ObjectMeta: metav1.ObjectMeta{Namespace: "fleet", Name: name}}
		s.get(md)
		return s.below(md, machine)
	}
}

// ofNamedKeys names keys on the Cluster, as the example's page does.
func (s *examples) ofNamedKeys(machine string) *clusterv1.Machine {
	s.byKubectl("annotate", "--namespace", "fleet", "cluster", "prod", inherit.SyncLabelsAnnotation+"=costs.example.com/*")
	return ofDeployment("costs")(s, machine)
}

// ofTopology creates the MachineDeployment of a topology's section, without inherited entries.
func ofTopology(cluster, section string) func(*examples, string) *clusterv1.Machine {
	return func(s *examples, machine string) *clusterv1.Machine {
		md := stage.MachineDeployment(stage.Cluster("fleet", cluster), cluster+"-"+section, stage.Declared{})
		maps.Copy(md.Labels, map[string]string{clusterv1.ClusterTopologyOwnedLabel: "", clusterv1.ClusterTopologyMachineDeploymentNameLabel: section})
		s.create(md)
		return s.below(md, machine)
	}
}

// below creates the MachineSet of a MachineDeployment, and returns a Machine of it.
func (s *examples) below(md *clusterv1.MachineDeployment, machine string) *clusterv1.Machine {
	s.t.Helper()
	ms := stage.MachineSet(md, md.Name)
	s.create(ms)
	return stage.Machine(ms, machine)
}

// withoutSet returns a Machine without a stored MachineSet.
func withoutSet(name string) *clusterv1.Machine {
	none := &clusterv1.MachineSet{}
	none.Namespace, none.Spec.ClusterName = "fleet", "prod"
	return stage.Machine(none, name)
}

func ofControlPlane(s *examples, machine string) *clusterv1.Machine {
	cp := &unstructured.Unstructured{}
	cp.SetAPIVersion("controlplane.cluster.x-k8s.io/v1beta2")
	cp.SetKind("KubeadmControlPlane")
	cp.SetNamespace("fleet")
	cp.SetName("prod")
	s.get(cp)
	return machineOf(cp, withoutSet(machine))
}

// ofPool creates a Machine of the MachinePool for a provider with Machines; otherwise it lists the Node in the MachinePool.
func ofPool(machines bool) func(*examples, string) *clusterv1.Machine {
	return func(s *examples, node string) *clusterv1.Machine {
		mp, m := &clusterv1.MachinePool{}, withoutSet(node)
		mp.Namespace, mp.Name = "fleet", "spot"
		s.get(mp)
		if !machines {
			s.update(mp, func() { mp.Spec.ProviderIDList = []string{stage.ProviderID(node)} })
			return nil
		}
		m.OwnerReferences[0] = stage.ControlledBy(mp, "MachinePool")
		return m
	}
}

// expectPodFits expects the example's Pod to select the Node and to tolerate the inherited taint.
func (s *examples) expectPodFits(e example, node *corev1.Node) {
	s.t.Helper()
	pod := &corev1.Pod{}
	s.Expect(yaml.UnmarshalStrict([]byte(s.read(examplesDir(e.dir, "pod.yaml"))), pod)).To(Succeed())
	s.Expect(node.Labels).To(haveAll(pod.Spec.NodeSelector))
	inherited, err := taint.ParseList(e.always)
	s.Expect(err).NotTo(HaveOccurred())
	s.Expect(pod.Spec.Tolerations[0].ToleratesTaint(klog.Background(), &inherited[0], false)).To(BeTrue())
}

func (s *examples) expectDrainTimeout(e example, _ *corev1.Node) {
	m := withoutSet(e.node)
	s.eventually(m, func(g Gomega) { g.Expect(m.Spec.Deletion.NodeDrainTimeoutSeconds).To(HaveValue(BeEquivalentTo(600))) })
}

func (s *examples) expectCapacity(_ example, _ *corev1.Node) {
	md := &clusterv1.MachineDeployment{ObjectMeta: metav1.ObjectMeta{Namespace: "fleet", Name: "burst"}}
	s.eventually(md, func(g Gomega) {
		g.Expect(md.Annotations).To(And(HaveKeyWithValue(inherit.CapacityLabelsAnnotation, "node.cluster.x-k8s.io/pool=burst"),
			HaveKeyWithValue(inherit.CapacityTaintsAnnotation, "burst:NoSchedule")))
	})
}

// expectValues expects the chart to render with the example's values.
func (s *examples) expectValues(e example, _ *corev1.Node) {
	s.t.Helper()
	values := map[string]any{}
	s.Expect(yaml.UnmarshalStrict([]byte(s.read(examplesDir(e.dir, "values.yaml"))), &values)).To(Succeed())
	s.Expect(fmt.Sprint(render(s.t, values))).To(ContainSubstring("--workload-webhook-url=https://heirloom.example.com"))
}

// expectOutagePrevented expects that a pipeline stops the example's change, and that the plugin names the object of Calico.
func (s *examples) expectOutagePrevented(e example, node *corev1.Node) {
	s.t.Helper()
	secret := &corev1.Secret{ObjectMeta: metav1.ObjectMeta{Namespace: "fleet", Name: e.cluster + "-kubeconfig"}}
	s.get(secret)
	kubeconfig := filepath.Join(s.t.TempDir(), "workload.kubeconfig")
	s.Expect(os.WriteFile(kubeconfig, secret.Data["value"], 0o600)).To(Succeed())
	kubectl := func(verb, file string) error {
		_, _, err := controlplane.Kubectl(s.ctx, kubeconfig, verb, "--filename", examplesDir(e.dir, file))
		return err
	}
	s.Expect(kubectl("apply", "calico-crd.yaml")).To(Succeed())
	s.Eventually(func() error { return kubectl("apply", "calico.yaml") }).WithTimeout(patience).WithPolling(polling).Should(Succeed()) // until the kind is served
	change, err := filepath.Abs(examplesDir(e.dir, "change.yaml"))
	s.Expect(err).NotTo(HaveOccurred())
	out := (&kubectlWorld{scene: s.scene}).shell(s.adminKubeconfig(), "kubectl heirloom diff --filename "+change+" --fail-on=used; echo $?")
	s.Expect(out).To(And(
		ContainSubstring("\nLabel node-role.kubernetes.io/route-reflector= is removed on 1 Node of Cluster fleet/bgp: "+node.Name+"\n"+
			"  used: BGPPeer/route-reflectors requires has(node-role.kubernetes.io/route-reflector)\n"),
		HaveSuffix("\n1\n")))
	s.Expect(kubectl("delete", "calico-crd.yaml")).To(Succeed()) // for the next test on the API server
}
