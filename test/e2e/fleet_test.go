// SPDX-License-Identifier: Apache-2.0

package e2e

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"testing"
	"time"

	. "github.com/onsi/gomega"
	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/heirloom-dev/heirloom/pkg/taint"
	"github.com/heirloom-dev/heirloom/pkg/workload"
	"github.com/heirloom-dev/heirloom/test/controlplane"
	"github.com/heirloom-dev/heirloom/test/stage"
)

const patience = time.Minute

// fleet is a management cluster with Heirloom, and two workload clusters.
type fleet struct {
	*stage.Stage
	*WithT
	t   *testing.T
	ctx context.Context
	dir string

	red, blue *member
}

// member is a workload cluster with a MachineDeployment in the management cluster.
type member struct {
	*stage.Workload
	name    string
	cluster *clusterv1.Cluster
	md      *clusterv1.MachineDeployment
	ms      *clusterv1.MachineSet
}

// Nodes of workload clusters are right in every way in which they can be admitted; a cluster that is away keeps nobody
// waiting; a large fleet gets a change to its last Node; and when nothing changes, nothing is written.
func TestFleet(t *testing.T) {
	t.Parallel()
	f := newFleet(t)
	t.Run("the loop alone", func(t *testing.T) { f.in(t).testLoop() })
	t.Run("by URL", func(t *testing.T) { f.in(t).testWebhook() })
	t.Run("forged paths", func(t *testing.T) { f.in(t).testForged() })
	t.Run("by policy", func(t *testing.T) { f.in(t).testPolicy() })
	t.Run("explain", func(t *testing.T) { f.in(t).testExplain() })
	t.Run("500 Nodes, while a cluster is away", func(t *testing.T) { f.in(t).testAway(func(f *fleet) { f.testScale(500) }) })
	t.Run("quiet", func(t *testing.T) { f.in(t).testQuiet() })
}

func newFleet(t *testing.T) *fleet {
	t.Helper()
	dir, err := os.MkdirTemp("", "fleet")
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithTimeout(t.Context(), 15*time.Minute)
	s, err := stage.New(ctx, stage.Options{
		Program: binary(t, "heirloom"), Dir: dir, WorkloadWebhook: true, Args: []string{"--no-execute-rate=0"},
	})
	if err != nil {
		cancel()
		t.Fatal(err)
	}
	f := &fleet{Stage: s, WithT: NewWithT(t), t: t, ctx: ctx, dir: dir}
	t.Cleanup(func() {
		defer cancel()
		defer os.RemoveAll(dir)
		if t.Failed() {
			if log, err := os.ReadFile(s.HeirloomLog()); err == nil {
				t.Logf("log of heirloom:\n%s", log)
			}
		}
		for _, m := range []*member{f.red, f.blue} {
			if m != nil {
				f.Expect(m.Stop()).To(Succeed())
			}
		}
		f.Expect(s.Stop()).To(Succeed())
	})
	f.red, f.blue = f.newMember("red"), f.newMember("blue")
	return f
}

func (f *fleet) in(t *testing.T) *fleet {
	inner := *f
	inner.t, inner.WithT = t, NewWithT(t)
	return &inner
}

func (f *fleet) newMember(name string) *member {
	f.t.Helper()
	f.Expect(f.Client.Create(f.ctx, &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: name}})).To(Succeed())
	m := &member{name: name, cluster: stage.Cluster(name, name)}
	// Not by policy, which is the default: the loop alone comes first. And where one goes, Kubernetes v1.36.3 stops to read
	// parameters for good.
	m.cluster.Labels = map[string]string{workload.AdmissionLabel: workload.AdmitByLoop}
	f.Expect(f.Client.Create(f.ctx, m.cluster)).To(Succeed())
	f.deploy(m, name)
	var err error
	m.Workload, err = f.StartWorkload(f.ctx, m.cluster, controlplane.Options{})
	f.Expect(err).NotTo(HaveOccurred())
	return m
}

// deploy gives the member another MachineDeployment, with a MachineSet.
func (f *fleet) deploy(m *member, name string) {
	f.t.Helper()
	m.md = stage.MachineDeployment(m.cluster, name, stage.Declared{
		Labels:      map[string]string{"node.cluster.x-k8s.io/pool": m.name, "node-role.kubernetes.io/worker": ""},
		Annotations: map[string]string{taint.InitializeAnnotation: "warming=up:NoSchedule"},
		Taints:      stage.Taints(clusterv1.MachineTaintPropagationAlways, "team="+m.name+":NoSchedule"),
	})
	f.Expect(f.Client.Create(f.ctx, m.md)).To(Succeed())
	m.ms = stage.MachineSet(m.md, name)
	f.Expect(f.Client.Create(f.ctx, m.ms)).To(Succeed())
}

// declare changes a label in the template of the member's MachineDeployment.
func (f *fleet) declare(m *member, key, value string) {
	f.t.Helper()
	f.Expect(f.Client.Get(f.ctx, client.ObjectKeyFromObject(m.md), m.md)).To(Succeed())
	before := m.md.DeepCopy()
	m.md.Spec.Template.Labels[key] = value
	f.Expect(f.Client.Patch(f.ctx, m.md, client.MergeFrom(before))).To(Succeed())
}

// admit chooses how the member's Nodes are admitted.
func (f *fleet) admit(m *member, way string) {
	f.t.Helper()
	f.Expect(f.Client.Get(f.ctx, client.ObjectKeyFromObject(m.cluster), m.cluster)).To(Succeed())
	before := m.cluster.DeepCopy()
	m.cluster.Labels = map[string]string{workload.AdmissionLabel: way}
	f.Expect(f.Client.Patch(f.ctx, m.cluster, client.MergeFrom(before))).To(Succeed())
}

// register starts a hollow kubelet for a new Machine, and returns its Node as it was first stored.
func (f *fleet) register(m *member, name string) *corev1.Node {
	f.t.Helper()
	f.Expect(f.Client.Create(f.ctx, stage.Machine(m.ms, name))).To(Succeed())
	return f.join(m, name)
}

// join starts a hollow kubelet for a Machine that is there, and returns its Node as it was first stored.
func (f *fleet) join(m *member, name string) *corev1.Node {
	f.t.Helper()
	nodes, err := controlplane.RecordVersions(f.ctx, m.AdminConfig(), corev1.SchemeGroupVersion.WithResource("nodes"))
	f.Expect(err).NotTo(HaveOccurred())
	f.t.Cleanup(func() { f.Expect(nodes.Stop()).To(Succeed()) })
	kubelet, err := m.StartKubelet(f.ctx, controlplane.KubeletOptions{Name: name, Dir: f.dir})
	f.Expect(err).NotTo(HaveOccurred())
	_, err = kubelet.WaitRegistered(f.ctx)
	f.Expect(err).NotTo(HaveOccurred())
	f.Eventually(func() int { return len(nodes.Versions("", name)) }).WithTimeout(patience).ShouldNot(BeZero())
	first := &corev1.Node{}
	f.Expect(fromUnstructured(nodes.Versions("", name)[0].Object, first)).To(Succeed())
	return first
}

// expectRight waits until the Node has all that it inherits.
func (f *fleet) expectRight(m *member, name string) {
	f.t.Helper()
	node := &corev1.Node{}
	f.Eventually(func(g Gomega) {
		g.Expect(m.Client.Get(f.ctx, client.ObjectKey{Name: name}, node)).To(Succeed())
		g.Expect(taint.FormatList(node.Spec.Taints)).To(And(ContainSubstring("team="+m.name+":NoSchedule"), ContainSubstring("warming=up:NoSchedule")))
		g.Expect(taint.FormatList(node.Spec.Taints)).NotTo(ContainSubstring("uninitialized"))
		g.Expect(node.Labels).To(And(HaveKeyWithValue("node.cluster.x-k8s.io/pool", m.name), HaveKeyWithValue("node-role.kubernetes.io/worker", "")))
	}).WithTimeout(patience).Should(Succeed())
}

func (f *fleet) testLoop() {
	f.register(f.red, "red-loop")
	f.expectRight(f.red, "red-loop")
	f.register(f.blue, "blue-loop")
	f.expectRight(f.blue, "blue-loop")
}

// expectFromTheStart checks that a kubelet's Node had everything it may have in its very first version.
func (f *fleet) expectFromTheStart(m *member, first *corev1.Node) {
	f.t.Helper()
	f.Expect(taint.FormatList(first.Spec.Taints)).To(And(
		ContainSubstring("team="+m.name+":NoSchedule"), ContainSubstring("warming=up:NoSchedule"), ContainSubstring("node.cluster.x-k8s.io/uninitialized:NoSchedule")))
	f.Expect(first.Labels).To(HaveKeyWithValue("node.cluster.x-k8s.io/pool", m.name))
	f.expectRight(m, first.Name)
}

func (f *fleet) testWebhook() {
	f.admit(f.red, "webhook")
	f.Eventually(func(g Gomega) {
		list := &admissionregistrationv1.MutatingWebhookConfigurationList{}
		g.Expect(f.red.Client.List(f.ctx, list)).To(Succeed())
		g.Expect(list.Items).To(HaveLen(1))
	}).WithTimeout(patience).Should(Succeed())
	f.expectAdmission(f.red, "red-probe")
	f.expectFromTheStart(f.red, f.register(f.red, "red-webhook"))
}

func (f *fleet) testPolicy() {
	f.admit(f.blue, "policy")
	// A Machine comes to the policy's parameters a moment after its creation. This kubelet does not take a minute to start.
	f.expectAdmission(f.blue, "blue-policy")
	f.expectFromTheStart(f.blue, f.join(f.blue, "blue-policy"))
}

// expectAdmission creates a Machine and waits until the API server admits its Node with what it inherits, by dry runs.
func (f *fleet) expectAdmission(m *member, name string) {
	f.t.Helper()
	f.Expect(f.Client.Create(f.ctx, stage.Machine(m.ms, name))).To(Succeed())
	config, err := m.User("system:node:"+name, "system:nodes")
	f.Expect(err).NotTo(HaveOccurred())
	kubelet, err := client.New(config, client.Options{Scheme: stage.Scheme()})
	f.Expect(err).NotTo(HaveOccurred())
	f.Eventually(func(g Gomega) {
		node := stage.Node(name)
		g.Expect(kubelet.Create(f.ctx, node, client.DryRunAll)).To(Succeed())
		g.Expect(taint.FormatList(node.Spec.Taints)).To(ContainSubstring(fmt.Sprintf("team=%s:NoSchedule", m.name)))
	}).WithTimeout(patience).Should(Succeed())
}

// testAway makes one cluster unreachable until Heirloom has given up its connection. Meanwhile something changes there, and much
// has to be done in another cluster.
func (f *fleet) testAway(meanwhile func(*fleet)) {
	const season = "node.cluster.x-k8s.io/season"
	has := func(m *member, name, value string) func(g Gomega) {
		return func(g Gomega) {
			node := &corev1.Node{}
			g.Expect(m.Client.Get(f.ctx, client.ObjectKey{Name: name}, node)).To(Succeed())
			g.Expect(node.Labels).To(HaveKeyWithValue(season, value))
		}
	}
	f.Expect(f.metric("heirloom_workload_clusters", `{state="disconnected"}`)).To(BeZero())
	f.red.Door.Shut()
	f.declare(f.red, season, "winter")
	f.declare(f.blue, season, "winter")
	f.Eventually(has(f.blue, "blue-loop", "winter")).WithTimeout(10 * time.Second).Should(Succeed())
	meanwhile(f)
	begun := time.Now()
	f.Eventually(func() int { return f.metric("heirloom_workload_clusters", `{state="disconnected"}`) }).
		WithTimeout(3*patience).WithPolling(200*time.Millisecond).Should(Equal(1), "given up")
	controlplane.Waited("a cluster to be given up", begun)
	f.declare(f.blue, season, "spring")
	f.Eventually(has(f.blue, "blue-loop", "spring")).WithTimeout(10 * time.Second).Should(Succeed())
	f.Consistently(has(f.red, "red-loop", "winter")).WithTimeout(time.Second).ShouldNot(Succeed())
	f.Expect(f.red.Door.Open()).To(Succeed())
	f.Eventually(has(f.red, "red-loop", "winter")).WithTimeout(30 * time.Second).Should(Succeed())
}

// testExplain has the kubectl plugin tell where the keys of a Machine come from.
func (f *fleet) testExplain() {
	m := stage.Machine(f.red.ms, "red-explained")
	m.Labels["mine"] = "yes"
	f.Expect(f.Client.Create(f.ctx, m)).To(Succeed())
	kubeconfig := filepath.Join(f.dir, "admin.kubeconfig")
	f.Expect(f.WriteKubeconfig(kubeconfig, "admin", "system:masters")).To(Succeed())
	explain := exec.CommandContext(f.ctx, binary(f.t, "kubectl-heirloom"), "explain", "machine/red-explained", "--all", "-o", "wide", "--namespace", "red", "--kubeconfig", kubeconfig)
	out, err := explain.CombinedOutput()
	f.Expect(err).NotTo(HaveOccurred(), "%s", out)
	f.Expect(string(out)).To(MatchRegexp(
		`(?m)^label\s+node\.cluster\.x-k8s\.io/pool\s+red\s+as declared\s+MachineDeployment red/red \(spec\.template\.metadata\.labels\) .* heirloom `))
	f.Expect(string(out)).To(MatchRegexp(`(?m)^label\s+mine\s+yes\s+set here\s+by`))
	f.Expect(string(out)).To(ContainSubstring(clusterv1.ClusterNameLabel))
}
