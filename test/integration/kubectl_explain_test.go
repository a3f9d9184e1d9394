// SPDX-License-Identifier: Apache-2.0

package integration

import (
	"encoding/json"
	"strings"
	"testing"

	. "github.com/onsi/gomega"
	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/heirloom-dev/heirloom/cmd/kubectl-heirloom/compare"
	"github.com/heirloom-dev/heirloom/cmd/kubectl-heirloom/explain"
	"github.com/heirloom-dev/heirloom/pkg/inherit"
	"github.com/heirloom-dev/heirloom/test/stage"
)

const (
	poolKey       = "node.cluster.x-k8s.io/pool"
	gpuSection    = "spec.topology.workers.machineDeployments[gpu]"
	workersOfType = "spec.workers.machineDeployments[worker]"
)

// Where everything is from, through the built plugin: of every kind, and of a Node of a workload cluster.
func testKubectlExplain(t *testing.T, w *kubectlWorld) {
	w.makeExplained()
	for _, tc := range []struct {
		name string
		args []string
		code int
		// out are parts of the output, in which any number of blanks counts as one; errOut are parts of what is said beside it.
		out, errOut []string
	}{
		{
			name: "a Node of a workload cluster", args: []string{"node/prod-gpu-1"},
			out: []string{
				"label " + poolKey + " gpu as declared Cluster/prod", "label node.cluster.x-k8s.io/tier standard as declared ClusterClass/standard",
				"taint nvidia.com/gpu:NoSchedule present as declared Cluster/prod", "taint batch:PreferNoSchedule as declared ClusterClass/standard",
				"absent: label cost-center=research: OutsideSyncedDomains", "that are set here, or bookkeeping (--all)", "edit Cluster fleet/prod (" + gpuSection + ")",
			},
		},
		{
			name: "all of a Node", args: []string{"node/prod-gpu-1", "--all"},
			out: []string{"label kubernetes.io/hostname prod-gpu-1 set here by kubelet", "set here bookkeeping"},
		},
		{
			name: "a label of a Node", args: []string{"node/prod-gpu-1", poolKey},
			out: []string{
				"Node prod-gpu-1 of Cluster fleet/prod: label " + poolKey + "=gpu is as declared",
				"✓ Cluster fleet/prod: " + gpuSection + ".metadata.labels = gpu", "✓ MachineDeployment fleet/prod-gpu: spec.template.metadata.labels = gpu",
				"✓ MachineSet fleet/prod-gpu-7x2kq: spec.template.metadata.labels = gpu", "✓ Machine fleet/prod-gpu-1: metadata.labels = gpu",
				"✓ Node prod-gpu-1: metadata.labels = gpu (set by heirloom)",
			},
		},
		{
			name: "a taint that an annotation declares", args: []string{"node/prod-gpu-1", "batch"},
			out: []string{
				"✓ ClusterClass fleet/standard: " + workersOfType + ".metadata.annotations[taints.heirloom.dev/always] has batch:PreferNoSchedule",
				"✓ Node prod-gpu-1: spec.taints has batch:PreferNoSchedule (the list of taints was last written by heirloom)",
			},
		},
		{
			name: "a Node of a MachinePool without Machines", args: []string{"node/prod-spot-1", poolKey, "--workload-cluster=fleet/prod"},
			out: []string{"✓ Cluster fleet/prod: spec.topology.workers.machinePools[spot].metadata.labels = spot", "✓ Node prod-spot-1: metadata.labels = spot"},
		},
		{
			name: "a control plane of any provider", args: []string{"kubeadmcontrolplane", "prod-cp"},
			out: []string{
				"label team platform as declared ClusterClass/standard", "template taint dedicated:NoSchedule control-plane as declared Cluster/prod",
				"template field nodeDrainTimeoutSeconds 600 as declared ClusterClass/standard",
			},
		},
		{
			name: "rule, managers and steps", args: []string{"machine/prod-gpu-1", "nvidia.com/gpu", "-o", "wide"},
			out: []string{"MachineSet → Machine (rule 8) heirloom MachineDeployment fleet/prod-gpu → MachineSet fleet/prod-gpu-7x2kq"},
		},
		{
			name: "an external object", args: []string{"kubeadmconfig/prod-gpu-1", poolKey},
			out: []string{"✓ Cluster fleet/prod: " + gpuSection + ".metadata.labels = gpu", "✓ KubeadmConfig fleet/prod-gpu-1: metadata.labels = gpu"},
		},
		{
			name: "what a topology declares, and who wrote it", args: []string{"cluster/prod", poolKey, "-o", "wide"},
			out: []string{"label " + poolKey + " gpu set here " + gpuSection + ".metadata.labels <none> kubectl <none>"},
		},
		{
			name: "what a class declares", args: []string{"clusterclass/standard"},
			out: []string{"field nodeDrainTimeoutSeconds 300 set here machineDeployments[worker]"},
		},
		{
			name: "a selector", args: []string{"machines", "-l", clusterv1.ClusterNameLabel + "=prod", poolKey},
			out: []string{
				"Machine fleet/prod-cp-1: label " + poolKey + "=control-plane is as declared", "Machine fleet/prod-gpu-1, Machine fleet/prod-gpu-2, Machine fleet/prod-gpu-3: label " + poolKey,
				"✓ each of these Machines: metadata.labels = gpu (set by heirloom)",
			},
		},
		{
			name: "all Nodes of a Cluster", args: []string{"nodes", "-l", "kubernetes.io/hostname", poolKey, "--workload-cluster=fleet/prod"}, code: 1,
			out: []string{"Node prod-gpu-1, Node prod-gpu-2, Node prod-gpu-3 of Cluster fleet/prod: label " + poolKey, "✓ each of these Machines: metadata.labels = gpu"},
		},
		{
			name: "what is missing and what differs", args: []string{"machineset/explained"}, code: 1,
			out: []string{
				"template label team a missing MachineDeployment/explained", "template label tier mine (declared: gold) differs MachineDeployment/explained",
				"missing: template label team=a: OptedOut", "because it carries the label heirloom.dev/ignore",
			},
		},
		{
			name: "a key that is nowhere", args: []string{"node/prod-gpu-1", "nothing"}, code: 1,
			out: []string{`No owner declares "nothing"`, "MachineDeployment fleet/prod-gpu"},
		},
		{
			name: "a key that does not reach Nodes", args: []string{"node/prod-gpu-1", "cost-center"}, code: 1,
			out: []string{
				"✓ Machine fleet/prod-gpu-1: metadata.labels = research ✗ Node prod-gpu-1: metadata.labels has no cost-center OutsideSyncedDomains: No rule",
				"Fix: Start the server with --additional-sync-machine-labels='^cost-center$'",
			},
		},
		{
			name: "a Node without a Machine", args: []string{"node/prod-stranger", "--workload-cluster=fleet/prod"}, code: 2,
			errOut: []string{"no Machine or MachinePool, or more than one, of Cluster fleet/prod matches Node prod-stranger"},
		},
		{
			name: "a Node in several Clusters", args: []string{"node/twin"}, code: 2,
			errOut: []string{"fleet/explained, fleet/explained-too", "--workload-cluster=<namespace>/<name>", "-n"},
		},
		{
			name: "a workload cluster without a kubeconfig", args: []string{"node/alone"}, code: 2,
			errOut: []string{"asking the workload cluster of Cluster fleet/explained", "--workload-kubeconfig"},
		},
		{name: "an unknown Node", args: []string{"node/none", "key"}, code: 2, errOut: []string{`Node "none" not found`, "--workload-cluster="}},
		{name: "an unknown kind", args: []string{"unknown/x", "key"}, code: 2, errOut: []string{`the server doesn't have a resource type "unknown"`}},
		{name: "an unknown object", args: []string{"machine/none"}, code: 2, errOut: []string{`Machine "none" not found in namespace "fleet" (use -n)`}},
		{
			name: "one object of several is unknown", args: []string{"machine/prod-gpu-1", "machine/none", poolKey}, code: 2,
			out: []string{"✓ Machine fleet/prod-gpu-1: metadata.labels = gpu"}, errOut: []string{`Machine "none" not found`},
		},
		{name: "a kind of no chain", args: []string{"namespace/fleet"}, code: 2, errOut: []string{"cannot explain a Namespace"}},
	} {
		t.Run(tc.name, func(t *testing.T) {
			g := NewWithT(t)
			out, errOut, code := w.kubectl(t, append([]string{"explain"}, tc.args...)...)
			t.Logf("%s\n%s%s", strings.Join(tc.args, " "), out, errOut)
			for _, part := range tc.out {
				g.Expect(strings.Join(strings.Fields(out), " ")).To(ContainSubstring(part), out)
			}
			for _, part := range tc.errOut {
				g.Expect(errOut).To(ContainSubstring(part))
			}
			g.Expect(errOut).NotTo(ContainSubstring("kubectl-heirloom get"))
			g.Expect(code).To(Equal(tc.code), out+errOut)
		})
	}
	t.Run("as somebody with the chart's ClusterRoles", func(t *testing.T) {
		g := NewWithT(t)
		subjects := []rbacv1.Subject{{APIGroup: rbacv1.GroupName, Kind: rbacv1.UserKind, Name: "reader"}}
		reads := &rbacv1.ClusterRoleBinding{
			ObjectMeta: metav1.ObjectMeta{Name: "plugin-reader"}, Subjects: subjects,
			RoleRef: rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "ClusterRole", Name: "heirloom-plugin"},
		}
		g.Expect(w.Client.Create(w.ctx, reads)).To(Succeed())
		reader := w.kubeconfigOf(t, "reader")
		_, errOut, code := w.run(t, pluginRun{args: []string{"explain", "machine/prod-gpu-1", poolKey}, kubeconfig: reader})
		g.Expect(code).To(BeZero(), errOut)
		_, errOut, code = w.run(t, pluginRun{args: []string{"explain", "node/prod-gpu-1", poolKey}, kubeconfig: reader})
		g.Expect(code).To(Equal(2))
		g.Expect(errOut).To(ContainSubstring(`cannot get resource "secrets"`))
		g.Expect(w.Client.Create(w.ctx, &rbacv1.RoleBinding{
			ObjectMeta: metav1.ObjectMeta{Namespace: fleetName, Name: "plugin-reader"}, Subjects: subjects,
			RoleRef: rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "ClusterRole", Name: "heirloom-plugin-nodes"},
		})).To(Succeed())
		_, errOut, code = w.run(t, pluginRun{args: []string{"explain", "node/prod-gpu-1", poolKey}, kubeconfig: reader})
		g.Expect(code).To(BeZero(), errOut)
		g.Expect(errOut).NotTo(ContainSubstring("forbidden"))
	})
	t.Run("for programs", func(t *testing.T) {
		g := NewWithT(t)
		out, errOut, code := w.kubectl(t, "explain", "node/prod-gpu-1", "node/edge-web-1", "dedicated:NoSchedule", "-o", "json")
		list := explain.List{}
		g.Expect(json.Unmarshal([]byte(out), &list)).To(Succeed(), errOut)
		g.Expect(list.Kind).To(Equal("ExplanationList"))
		g.Expect(list.Items).To(HaveLen(2))
		g.Expect(list.Items[0].Entries).To(BeEmpty())
		g.Expect(list.Items[1].Cluster).To(Equal("fleet/edge"))
		g.Expect(list.Items[1].Entries).To(HaveLen(1))
		entry := list.Items[1].Entries[0]
		g.Expect(entry.Status).To(Equal(compare.AsDeclared))
		g.Expect(entry.Source).To(Equal(&compare.Source{
			Kind: "MachineDeployment", Namespace: fleetName, Name: "edge-web", Field: "spec.template.metadata.annotations[taints.heirloom.dev/always]",
		}))
		g.Expect(entry.Rule).To(Equal("Machine → Node (rule 13)"))
		g.Expect(entry.Steps).To(Equal([]string{"MachineSet fleet/edge-web-9b4ts", "Machine fleet/edge-web-1"}))
		g.Expect(entry.Records).NotTo(BeEmpty())
		g.Expect(code).To(Equal(1)) // one of the Nodes has no such taint
	})
}

// makeExplained makes two Clusters without workload clusters, with Machines of one Node's name, and a MachineSet that is left alone.
func (w *kubectlWorld) makeExplained() {
	w.t.Helper()
	first, second := stage.Cluster(fleetName, "explained"), stage.Cluster(fleetName, "explained-too")
	md := stage.MachineDeployment(first, "explained", stage.Declared{Labels: map[string]string{"team": "a", "tier": "gold"}})
	made := []client.Object{first, second, md}
	w.t.Cleanup(func() {
		for _, object := range made {
			w.Expect(client.IgnoreNotFound(w.Client.Delete(w.ctx, object))).To(Succeed())
		}
	})
	w.createAs("kubectl", first, second, md)
	ms := stage.MachineSet(md, "explained")
	ms.Labels = merged(ms.Labels, map[string]string{inherit.IgnoreLabel: ""})
	ms.Spec.Template.Labels = merged(ms.Spec.Template.Labels, map[string]string{"tier": "mine"})
	delete(ms.Spec.Template.Labels, "team")
	w.createAs("capi-machinedeployment", ms)
	made = append(made, ms)
	for _, node := range []struct{ cluster, machine, node string }{
		{"explained", "explained-1", "twin"}, {"explained-too", "explained-2", "twin"}, {"explained", "explained-3", "alone"},
	} {
		m := stage.Machine(&clusterv1.MachineSet{
			ObjectMeta: metav1.ObjectMeta{Namespace: fleetName}, Spec: clusterv1.MachineSetSpec{ClusterName: node.cluster},
		}, node.machine)
		m.OwnerReferences = nil
		w.createAs("capi-machineset", m)
		made = append(made, m)
		before := m.DeepCopy()
		m.Status.NodeRef.Name = node.node
		w.Expect(w.Client.Status().Patch(w.ctx, m, client.MergeFrom(before))).To(Succeed())
	}
}
