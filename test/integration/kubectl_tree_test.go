// SPDX-License-Identifier: Apache-2.0

package integration

import (
	"encoding/csv"
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
	t.Run("of what is not there", func(t *testing.T) { w.in(t).treeOfNothing(t) })
	t.Run("of hundreds of Machines whose workload cluster is not there", func(t *testing.T) { w.in(t).treeOfMany(t) })
	t.Run("report", func(t *testing.T) { w.in(t).report(t) })
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
	out, stderr, code := w.kubectl(t, "tree", "prod", synced, "--exit-code")
	w.Expect(code).To(BeZero(), stderr)
	w.Expect(stderr).To(BeEmpty())
	t.Log(out)
	w.Expect(rows(out)).To(ContainElements(
		"ClusterClass fleet/standard",
		"+ label node.cluster.x-k8s.io/tier=standard for prod-gpu, prod-spot",
		"+ label team=platform for prod-cp",
		"+ annotation taints.heirloom.dev/always=batch:PreferNoSchedule for prod-gpu",
		"+ field nodeDrainTimeoutSeconds=600 for prod-cp",
		"+ field nodeDrainTimeoutSeconds=300 for prod-gpu",
		"Cluster fleet/prod",
		"+ label cost-center=research for prod-gpu",
		"+ label node.cluster.x-k8s.io/pool=control-plane for prod-cp",
		"+ label node.cluster.x-k8s.io/pool=gpu for prod-gpu",
		"+ label node.cluster.x-k8s.io/pool=spot for prod-spot",
		"+ taint dedicated=control-plane:NoSchedule for prod-cp",
		"+ taint spot:NoSchedule for prod-spot",
		"KubeadmControlPlane/prod-cp ok",
		"Machine/prod-cp-1 ok",
		"Node/prod-cp-1 ok",
		"MachineDeployment/prod-gpu ok",
		"MachineSet/prod-gpu-7x2kq ok",
		"3 Machines: prod-gpu-1, prod-gpu-2, prod-gpu-3 ok",
		"3 Nodes: prod-gpu-1, prod-gpu-2, prod-gpu-3 ok",
		"MachinePool/prod-spot ok",
		"Node/prod-spot-1 ok",
		"Node/prod-stranger",
		HavePrefix("? it inherits nothing: no Machine matches it, or several do. Compare its spec.providerID"),
	))
	w.Expect(out).NotTo(Or(ContainSubstring("KubeadmConfig"), ContainSubstring("taints.heirloom.dev/always=spot")))
	for line := range strings.Lines(out) {
		w.Expect(len([]rune(line))).To(BeNumerically("<=", 101), line)
	}

	// With settings that the server does not have, its Nodes lack something.
	lacking := "--server-flags=--additional-sync-machine-labels=^(team|cost-center)$"
	out, stderr, code = w.kubectl(t, "tree", "cluster/prod", lacking, "-o", "wide", "--exit-code")
	w.Expect(code).To(Equal(1), stderr)
	w.Expect(stderr).To(BeEmpty())
	w.Expect(rows(out)).To(ContainElements("3 Nodes: prod-gpu-1, prod-gpu-2, prod-gpu-3", "! missing: label cost-center=research, declared by "+
		"Cluster fleet/prod (spec.topology.workers.machineDeployments[gpu].metadata.labels)"))
	_, stderr, code = w.kubectl(t, "tree", "cluster/prod", lacking)
	w.Expect(code).To(BeZero(), stderr)

	out, stderr, code = w.kubectl(t, "tree", "prod", synced, "--show-all", "--color=always")
	w.Expect(code).To(BeZero(), stderr)
	w.Expect(rows(out)).To(ContainElements("KubeadmConfig/prod-gpu-2 ok", "Machine/prod-gpu-2 ok", HavePrefix("\x1b[31m ? it inherits nothing")))
}

// One Cluster that is not there hides no other.
func (w *kubectlWorld) treesOfFleet(t *testing.T) {
	out, stderr, code := w.kubectl(t, "tree", synced)
	w.Expect(code).To(BeZero(), stderr)
	w.Expect(rows(out)).To(ContainElements(
		"Cluster fleet/edge", "MachineDeployment/edge-web ok", "+ label node.cluster.x-k8s.io/pool=web", "Node/edge-web-1 ok", "KubeadmControlPlane/prod-cp ok",
	))
	out, stderr, code = w.kubectl(t, "tree", synced, "prod", "missing", "edge")
	w.Expect(code).To(Equal(2))
	w.Expect(stderr).To(Equal("error: 1 Cluster could not be read\n"))
	w.Expect(rows(out)).To(ContainElements("Cluster fleet/missing", `? Cluster "missing" not found in namespace "fleet" (use -n)`, "Node/edge-web-1 ok", "Node/prod-cp-1 ok"))

	out, stderr, code = w.kubectl(t, "tree", "prod", synced, "-o", "json")
	w.Expect(code).To(BeZero(), stderr)
	var answer struct {
		Kind  string
		Trees []struct {
			Name     string
			Declares []struct{ Key, Value string }
			Children []struct {
				Children []struct{ Kind, Name, State string }
			}
		}
	}
	w.Expect(json.Unmarshal([]byte(out), &answer)).To(Succeed())
	w.Expect(answer.Kind).To(Equal("Tree"))
	w.Expect(answer.Trees).To(HaveLen(1))
	w.Expect(answer.Trees[0].Declares).NotTo(BeEmpty())
	w.Expect(answer.Trees[0].Children).To(HaveLen(1))
	w.Expect(answer.Trees[0].Children[0].Children).To(HaveLen(4), "the control plane, two sets, a stranger")
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

// report is for spreadsheets and for those who have to prove something.
func (w *kubectlWorld) report(t *testing.T) {
	out, stderr, code := w.kubectl(t, "report", "prod", "edge", synced)
	t.Log(out)
	w.Expect(code).To(BeZero(), stderr)
	w.Expect(stderr).To(BeEmpty())
	w.Expect(rows(out)).To(ContainElements(
		HavePrefix("fleet/edge "), "edge-web 1 0 0 0 0", HavePrefix("fleet/prod "), "prod-cp 1 0 0 0 0", "prod-gpu 3 0 0 0 0", "prod-spot 1 0 0 0 0", "Nodes without a Machine 1 0 0 0 0",
	))
	out, stderr, code = w.kubectl(t, "report", "prod", "-o", "csv", "--server-flags=--additional-sync-machine-labels=^(team|cost-center)$")
	w.Expect(code).To(BeZero(), stderr)
	t.Log(out)
	lines, err := csv.NewReader(strings.NewReader(out)).ReadAll()
	w.Expect(err).NotTo(HaveOccurred())
	w.Expect(lines[0]).To(HaveExactElements("namespace", "cluster", "kind", "pool", "nodes", "missing", "differs", "keys", "left-alone", "waiting", "unprotected", "admission", "error"))
	w.Expect(lines).To(ContainElement(HaveExactElements("fleet", "prod", "MachineDeployment", "prod-gpu", "3", "3", "0", "label cost-center missing on 3 objects", "0", "0", "0",
		BeElementOf("policy", "loop"), "")))

	out, stderr, code = w.kubectl(t, "report", "prod", "--require", "label=team", synced)
	w.Expect(code).To(Equal(1), stderr)
	t.Log(out)
	w.Expect(stderr).To(BeEmpty())
	w.Expect(rows(out)).To(ContainElements("fleet prod MachineDeployment prod-gpu prod-gpu-1 label team", "fleet prod Node prod-stranger label team"))
	w.Expect(out).NotTo(ContainSubstring("prod-cp-1"))
	out, stderr, code = w.kubectl(t, "report", "edge", "--require", "annotation=kubernetes.io/none", "--require", "label=kubernetes.io/hostname", "-o", "json", synced)
	w.Expect(code).To(Equal(1), stderr)
	w.Expect(out).To(ContainSubstring(`"key": "kubernetes.io/none"`))
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
	_, stderr, code = w.kubectl(t, "tree", "crowd", "-n", "crowd", synced, "--exit-code")
	w.Expect(code).To(BeZero(), "a Cluster that is being provisioned has no Nodes yet: %s", stderr)
	_, stderr, code = w.kubectl(t, "report", "crowd", "-n", "crowd", synced)
	w.Expect(code).To(BeZero(), stderr)

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
