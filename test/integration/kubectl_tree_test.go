// SPDX-License-Identifier: Apache-2.0

package integration

import (
	"encoding/json"
	"fmt"
	"strings"
	"testing"

	. "github.com/onsi/gomega"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"

	"github.com/heirloom-dev/heirloom/pkg/taint"
	"github.com/heirloom-dev/heirloom/test/stage"
)

// synced gives the plugin the server's settings.
const synced = "--server-flags=--additional-sync-machine-labels=" + alsoSynced

func testKubectlTree(t *testing.T, w *kubectlWorld) {
	t.Run("of a topology, to the Nodes", func(t *testing.T) { w.in(t).treeOfProd(t) })
	t.Run("of every Cluster of the namespace", func(t *testing.T) { w.in(t).treesOfFleet(t) })
	t.Run("as a graph and for programs", func(t *testing.T) { w.in(t).treeAsData(t) })
	t.Run("of what is not there", func(t *testing.T) { w.in(t).treeOfNothing(t) })
	t.Run("of hundreds of Machines whose workload cluster is not there", func(t *testing.T) { w.in(t).treeOfMany(t) })
}

// rows are the lines of a table, each with single blanks and without the drawing.
func rows(table string) []string {
	var all []string
	for line := range strings.Lines(table) {
		all = append(all, strings.Join(strings.Fields(strings.NewReplacer("│", "", "├─", "", "└─", "").Replace(line)), " "))
	}
	return all
}

func (w *kubectlWorld) treeOfProd(t *testing.T) {
	out, stderr, code := w.kubectl(t, "tree", "prod", synced)
	w.Expect(code).To(BeZero(), stderr)
	t.Log(out, stderr)
	w.Expect(rows(out)).To(ContainElements(
		"ClusterClass/standard +label node.cluster.x-k8s.io/tier=standard for prod-gpu, prod-spot",
		"KubeadmControlPlane/prod-cp ok",
		"Machine/prod-cp-1 ok",
		"Node/prod-cp-1 ok",
		"MachineDeployment/prod-gpu ok",
		"MachineSet/prod-gpu-7x2kq ok",
		"3 Machines: prod-gpu-1, prod-gpu-2, prod-gpu-3 ok",
		"3 Nodes: prod-gpu-1, prod-gpu-2, prod-gpu-3 ok",
		"MachinePool/prod-spot ok",
		"Node/prod-spot-1 ok",
		"Node/prod-stranger ? no Machine matches it, or several do",
	))
	w.Expect(rows(out)).To(ContainElements(
		"Cluster/prod +label cost-center=research for prod-gpu",
		"+label node.cluster.x-k8s.io/pool=control-plane for prod-cp",
		"+label node.cluster.x-k8s.io/pool=gpu for prod-gpu",
		"+label node.cluster.x-k8s.io/pool=spot for prod-spot",
		"+annotation taints.heirloom.dev/always=batch:PreferNoSchedule for prod-gpu",
		"+taint dedicated=control-plane:NoSchedule for prod-cp",
		"+taint spot:NoSchedule for prod-spot",
		"+field nodeDrainTimeoutSeconds=600 for prod-cp",
		"+field nodeDrainTimeoutSeconds=300 for prod-gpu",
	))
	w.Expect(out).NotTo(Or(ContainSubstring("KubeadmConfig"), ContainSubstring("taints.heirloom.dev/always=spot")))
	w.Expect(stderr).To(ContainSubstring("Note: Node prod-stranger of Cluster fleet/prod inherits nothing"))

	// With settings that the server does not have, its Nodes lack something.
	out, stderr, code = w.kubectl(t, "tree", "cluster/prod", "--server-flags=--additional-sync-machine-labels=^(team|cost-center)$", "-o", "wide")
	w.Expect(code).To(BeZero(), stderr)
	w.Expect(rows(out)).To(ContainElement("3 Nodes: prod-gpu-1, prod-gpu-2, prod-gpu-3 ! label cost-center missing, declared by " +
		"Cluster fleet/prod (spec.topology.workers.machineDeployments[gpu].metadata.labels)"))

	out, stderr, code = w.kubectl(t, "tree", "prod", synced, "--show-all", "--color=always")
	w.Expect(code).To(BeZero(), stderr)
	w.Expect(rows(out)).To(ContainElements("KubeadmConfig/prod-gpu-2 \x1b[32mok\x1b[0m", "Machine/prod-gpu-2 \x1b[32mok\x1b[0m"))
}

func (w *kubectlWorld) treesOfFleet(t *testing.T) {
	out, stderr, code := w.kubectl(t, "tree", synced)
	w.Expect(code).To(BeZero(), stderr)
	w.Expect(rows(out)).To(ContainElements(
		"Cluster/edge", "MachineDeployment/edge-web +label node.cluster.x-k8s.io/pool=web ok", "Node/edge-web-1 ok", "KubeadmControlPlane/prod-cp ok",
	))
}

func (w *kubectlWorld) treeAsData(t *testing.T) {
	out, stderr, code := w.kubectl(t, "tree", "prod", synced, "-o", "json")
	w.Expect(code).To(BeZero(), stderr)
	w.Expect(stderr).To(BeEmpty())
	var answer struct {
		Kind  string
		Trees []struct {
			Kind, Name string
			Children   []struct {
				Children []struct {
					Kind, Name, State string
				}
			}
		}
	}
	w.Expect(json.Unmarshal([]byte(out), &answer)).To(Succeed())
	w.Expect(answer.Kind).To(Equal("Tree"))
	w.Expect(answer.Trees).To(HaveLen(1))
	w.Expect(answer.Trees[0].Children).To(HaveLen(1))
	w.Expect(answer.Trees[0].Children[0].Children).To(HaveLen(4), "the control plane, two sets, a stranger")
	for format, beginning := range map[string]string{"mermaid": "flowchart TD\n", "dot": "digraph heirloom {\n", "yaml": "apiVersion: cli.heirloom.dev/v1alpha1\n"} {
		out, stderr, code := w.kubectl(t, "tree", "prod", synced, "-o", format)
		w.Expect(code).To(BeZero(), stderr)
		w.Expect(out).To(HavePrefix(beginning))
		w.Expect(out).To(ContainSubstring("prod-gpu-7x2kq"))
	}
}

func (w *kubectlWorld) treeOfNothing(t *testing.T) {
	for argument, message := range map[string]string{
		"missing":            `Cluster "missing" not found in namespace "fleet" (use -n)`,
		"machine/prod-gpu-1": `"machine/prod-gpu-1" is not a Cluster`,
	} {
		out, stderr, code := w.kubectl(t, "tree", argument)
		w.Expect(code).To(Equal(2))
		w.Expect(out).To(BeEmpty())
		w.Expect(stderr).To(ContainSubstring(message))
	}
}

func (w *kubectlWorld) treeOfMany(t *testing.T) {
	const many = 500
	w.ensureNamespace("crowd")
	cluster := stage.Cluster("crowd", "crowd")
	md := stage.MachineDeployment(cluster, "crowd", stage.Declared{
		Labels: map[string]string{"team": "many"}, Annotations: map[string]string{taint.AlwaysAnnotation: "many:NoSchedule"},
	})
	w.createAs("kubectl", cluster, md)
	ms := stage.MachineSet(md, "crowd-1")
	w.createAs("capi-machinedeployment", ms)
	for i := range many {
		m := stage.Machine(ms, fmt.Sprintf("crowd-1-%03d", i))
		w.createAs("capi-machineset", m)
		w.createAs("capi-machineset", infraMachine(m))
	}
	last := &clusterv1.Machine{}
	last.Namespace, last.Name = "crowd", fmt.Sprintf("crowd-1-%03d", many-1)
	w.eventually(last, func(g Gomega) { g.Expect(last.Labels).To(HaveKeyWithValue("team", "many")) })

	audit := tailOf(w.audit.path)
	out, stderr, code := w.kubectl(t, "tree", "crowd", "-n", "crowd", synced)
	t.Log(out, stderr)
	w.Expect(code).To(BeZero(), stderr)
	w.Expect(rows(out)).To(ContainElement("500 Machines: crowd-1-000, crowd-1-001, … ok"))
	w.Expect(strings.Count(out, "\n")).To(BeNumerically("<=", 60))
	w.Expect(stderr).To(ContainSubstring("Note: The Nodes of Cluster crowd/crowd cannot be read, so its tree ends at the Machines"))

	events, err := audit.events()
	w.Expect(err).NotTo(HaveOccurred())
	var requests []string
	for _, event := range events {
		if strings.HasPrefix(event.UserAgent, "kubectl-heirloom/") {
			requests = append(requests, event.Verb+" "+event.RequestURI)
		}
	}
	w.Expect(len(requests)).To(And(BeNumerically(">", 0), BeNumerically("<", many/10)), "none for each Machine: %v", requests)
}
