// SPDX-License-Identifier: Apache-2.0
//go:build linux

package cluster_test

import (
	"os"
	"path/filepath"

	. "github.com/onsi/gomega"
	corev1 "k8s.io/api/core/v1"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

const (
	quickStart     = "docs/quick-start.md"
	gettingStarted = "docs/getting-started.md"
	// pool is the label that both pages declare.
	pool = "node.cluster.x-k8s.io/pool"
)

// page is a page of commands.
type page struct {
	file  string
	steps []step
}

// pages returns the pages in the order of a reader: the second page is about the installation and the Cluster of the first page.
func pages() []page {
	return []page{{quickStart, quickStarted()}, {gettingStarted, gotStarted()}}
}

func quickStarted() []step {
	return []step{
		{starts: "kind create cluster", skipped: "the test has a cluster"},
		{starts: "git clone", without: []string{
			"git clone", "VERSION=dev hack/release.sh image", "kind load", // the test has loaded the image of `make test-cluster`
			"make build", // `make test-cluster` runs it
		}},
		{starts: "clusterctl generate cluster", follows: func(r *reader, _ string) { r.initialize() }},
		{starts: "kind get kubeconfig", skipped: "it is for the containers of Docker; the test has written the kubeconfig"},
		{starts: "kubectl patch cluster", follows: func(r *reader, _ string) {
			r.join("gpu")
			r.rename(r.join("md-0"))
		}},
		{starts: "NODE=", follows: func(r *reader, printed string) {
			page, err := os.ReadFile(filepath.Join(r.root(), quickStart))
			r.Expect(err).NotTo(HaveOccurred())
			r.Expect(anyName(string(page))).To(ContainSubstring("\n" + anyName(printed) + "```\n"))
		}},
		{starts: "kubectl delete cluster", skipped: "it is for the containers, too; the next page needs the Cluster"},
	}
}

func gotStarted() []step {
	return []step{
		{starts: "git clone", skipped: "the recipe of the quick start has run (TestOneRecipeInstalls)"},
		{starts: "VERSION=dev REGISTRY=registry.example.com hack/push.sh --image", skipped: "test/release pushes to a registry"},
		{starts: "helm install", skipped: "there is no registry"},
		{starts: "make build", skipped: "`make test-cluster` runs it"},
		{starts: "kubectl --namespace fleet edit", follows: func(r *reader, _ string) { r.expectArrived() }},
		{starts: "kubectl --namespace fleet get machines", follows: func(r *reader, printed string) {
			r.Expect(printed).To(ContainSubstring(r.names["<machine>"]))
		}},
		{starts: "kubectl heirloom tree", follows: func(r *reader, printed string) {
			r.Expect(printed).To(MatchRegexp(`Node/` + r.names["<node>"] + ` +ok`))
		}},
		{starts: "kubectl heirloom explain", follows: func(r *reader, printed string) {
			r.Expect(printed).To(MatchRegexp(`✓ MachineDeployment default/` + r.names["workers"] + `: .*dedicated=ml:NoSchedule`))
		}},
		{
			starts:  "kubectl --namespace fleet label",
			warns:   `Warning: heirloom: label .* was kept: .* edit [A-Za-z]+ default/` + quickCluster,
			follows: func(r *reader, _ string) { r.expectArrived() },
		},
		{starts: "kubectl --namespace fleet patch", exits: 1, follows: func(r *reader, printed string) {
			r.Expect(printed).To(ContainSubstring("+    " + pool + ": large"))
		}},
		{starts: "kubectl --namespace fleet get machine <machine>", follows: func(r *reader, printed string) {
			r.Expect(printed).To(ContainSubstring("manager: heirloom"))
		}},
		{starts: "kubectl get node", follows: func(r *reader, printed string) {
			r.Expect(printed).To(ContainSubstring("labels-from-machine"))
		}},
	}
}

// rename puts this Machine, its Node and its MachineDeployment in place of the names in Getting started.
func (r *reader) rename(machine string) {
	r.t.Helper()
	md := r.one("cluster.x-k8s.io", "MachineDeployment", client.MatchingLabels{clusterv1.ClusterTopologyMachineDeploymentNameLabel: "md-0"})
	r.names = map[string]string{
		"--namespace fleet": "--namespace default", "<namespace>": "default", "<cluster>": quickCluster,
		"workers": md.GetName(), "<machine>": machine, "<node>": machine,
	}
}

// expectArrived waits until the Machine and its Node have the label of the page, and the Node has the taint.
func (r *reader) expectArrived() {
	r.t.Helper()
	machine, node := &clusterv1.Machine{}, &corev1.Node{}
	r.Eventually(func(g Gomega) {
		g.Expect(shared.Get(r.ctx, client.ObjectKey{Namespace: "default", Name: r.names["<machine>"]}, machine)).To(Succeed())
		g.Expect(shared.Get(r.ctx, client.ObjectKey{Name: r.names["<node>"]}, node)).To(Succeed())
		g.Expect(machine.Labels).To(HaveKeyWithValue(pool, "gpu"))
		g.Expect(node.Labels).To(HaveKeyWithValue(pool, "gpu"))
		g.Expect(node.Spec.Taints).To(ContainElement(corev1.Taint{Key: "dedicated", Value: "ml", Effect: corev1.TaintEffectNoSchedule}))
	}).WithTimeout(patience).WithPolling(polling).Should(Succeed())
}
