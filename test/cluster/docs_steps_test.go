// SPDX-License-Identifier: Apache-2.0
//go:build linux

package cluster_test

import (
	. "github.com/onsi/gomega"
	corev1 "k8s.io/api/core/v1"
)

const gettingStarted = "docs/getting-started.md"

// documented returns the steps for the blocks of the page: the skipped blocks, and the checks after other blocks.
func documented() []step {
	return []step{
		{starts: "git clone", passed: "it is for kind; `make test-cluster` builds the image (linkImages), and the blocks below push it"},
		{starts: "make build", passed: "`make test-cluster` runs it"},
		{starts: "VERSION=dev REGISTRY=registry.example.com hack/push.sh --image", follows: func(w *walk, printed string) {
			w.Expect(printed).To(ContainSubstring("image=" + registryHost + "/heirloom"))
		}},
		{starts: "helm install", follows: func(w *walk, printed string) {
			w.Expect(printed).To(ContainSubstring("successfully rolled out"))
			w.expectImage()
		}},
		{starts: "kubectl --namespace fleet edit", follows: func(w *walk, _ string) {
			w.expectArrived(map[string]string{"node.cluster.x-k8s.io/pool": "gpu"},
				corev1.Taint{Key: "dedicated", Value: "ml", Effect: corev1.TaintEffectNoSchedule})
		}},
		{starts: "kubectl --namespace fleet get machines", follows: func(w *walk, printed string) {
			w.Expect(printed).To(ContainSubstring(fleetNode))
		}},
		{starts: "kubectl heirloom tree", follows: func(w *walk, printed string) {
			w.Expect(printed).To(MatchRegexp(`Node/` + fleetNode + ` +ok`))
		}},
		{starts: "kubectl heirloom explain", follows: func(w *walk, printed string) {
			w.Expect(printed).To(MatchRegexp(`✓ MachineDeployment fleet/workers: .*dedicated=ml:NoSchedule`))
		}},
		{
			starts:  "kubectl --namespace fleet label",
			warns:   `Warning: heirloom: label .* was kept: .* edit MachineDeployment fleet/workers`,
			follows: func(w *walk, _ string) { w.expectArrived(map[string]string{"node.cluster.x-k8s.io/pool": "gpu"}) },
		},
		{starts: "kubectl --namespace fleet patch", exits: 1, follows: func(w *walk, printed string) {
			w.Expect(printed).To(ContainSubstring("+    node.cluster.x-k8s.io/pool: large"))
		}},
		{starts: "kubectl --namespace fleet get machine <machine>", follows: func(w *walk, printed string) {
			w.Expect(printed).To(ContainSubstring("manager: heirloom"))
		}},
		{starts: "kubectl get node", follows: func(w *walk, printed string) {
			w.Expect(printed).To(ContainSubstring("labels-from-machine"))
		}},
	}
}
