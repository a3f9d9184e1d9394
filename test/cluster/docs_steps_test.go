// SPDX-License-Identifier: Apache-2.0
//go:build linux

package cluster_test

import (
	"slices"

	. "github.com/onsi/gomega"
	corev1 "k8s.io/api/core/v1"
)

const (
	gettingStarted = "docs/getting-started.md"
	readme         = "README.md"
	uninstall      = "docs/uninstall.md"
)

// documented is what this test knows of the blocks of the pages: which are not run, and what follows from the others.
func documented() []step {
	return slices.Concat(gettingStartedSteps(), readmeSteps(), uninstallSteps())
}

func gettingStartedSteps() []step {
	return []step{
		{page: gettingStarted, starts: "git clone", passed: "it is for kind; `make test-cluster` builds the image (linkImages), and the blocks below push it"},
		{page: gettingStarted, starts: "make build", passed: "`make test-cluster` runs it"},
		{page: gettingStarted, starts: "VERSION=dev REGISTRY=registry.example.com hack/push.sh --image", follows: func(w *walk, printed string) {
			w.Expect(printed).To(ContainSubstring("image=" + registryHost + "/heirloom"))
		}},
		{page: gettingStarted, starts: "helm install", follows: func(w *walk, printed string) {
			w.Expect(printed).To(ContainSubstring("successfully rolled out"))
			w.expectImage()
		}},
		{page: gettingStarted, starts: "kubectl --namespace fleet edit", follows: func(w *walk, _ string) {
			w.expectArrived(map[string]string{"node.cluster.x-k8s.io/pool": "gpu"},
				corev1.Taint{Key: "dedicated", Value: "ml", Effect: corev1.TaintEffectNoSchedule})
		}},
		{page: gettingStarted, starts: "kubectl --namespace fleet get machines", follows: func(w *walk, printed string) {
			w.Expect(printed).To(ContainSubstring(fleetNode))
		}},
		{page: gettingStarted, starts: "kubectl heirloom tree", follows: func(w *walk, printed string) {
			w.Expect(printed).To(MatchRegexp(`Node/` + fleetNode + ` +ok`))
		}},
		{page: gettingStarted, starts: "kubectl heirloom explain", follows: func(w *walk, printed string) {
			w.Expect(printed).To(MatchRegexp(`✓ MachineDeployment fleet/workers: .*dedicated=ml:NoSchedule`))
		}},
		{
			page: gettingStarted, starts: "kubectl --namespace fleet label",
			warns:   `Warning: heirloom: label .* was kept: .* edit MachineDeployment fleet/workers`,
			follows: func(w *walk, _ string) { w.expectArrived(map[string]string{"node.cluster.x-k8s.io/pool": "gpu"}) },
		},
		{page: gettingStarted, starts: "kubectl --namespace fleet patch", exits: 1, follows: func(w *walk, printed string) {
			w.Expect(printed).To(ContainSubstring("+    node.cluster.x-k8s.io/pool: large"))
		}},
		{page: gettingStarted, starts: "kubectl --namespace fleet get machine <machine>", follows: func(w *walk, printed string) {
			w.Expect(printed).To(ContainSubstring("manager: heirloom"))
		}},
		{page: gettingStarted, starts: "kubectl get node", follows: func(w *walk, printed string) {
			w.Expect(printed).To(ContainSubstring("labels-from-machine"))
		}},
	}
}

func readmeSteps() []step {
	const seen = "TestKubectl/docs runs it in the fleet that it shows, and compares every character"
	return []step{
		{page: readme, starts: "kubectl heirloom explain node/prod-gpu-1", passed: seen},
		{page: readme, starts: "make demo\nmake test\n", passed: "CI runs both"}, //nolint:gosec // no password
		{page: readme, starts: "git clone", passed: "it is for kind; the page Getting started has the same commands, and for a registry"},
		{page: readme, starts: "apiVersion: cluster.x-k8s.io/v1beta2\nkind: MachineDeployment", follows: func(w *walk, _ string) {
			w.expectArrived(map[string]string{"node-role.kubernetes.io/worker": "", "node.cluster.x-k8s.io/pool": "gpu"},
				corev1.Taint{Key: "licensed", Effect: corev1.TaintEffectNoExecute},
				corev1.Taint{Key: "gpu", Value: "true", Effect: corev1.TaintEffectNoSchedule})
		}},
	}
}

func uninstallSteps() []step {
	const machine, node = "machine.cluster.x-k8s.io/" + fleetNode + " released", "node/" + fleetNode + " released"
	return []step{
		{page: uninstall, starts: "kubectl heirloom release --dry-run", follows: func(w *walk, printed string) {
			w.Expect(printed).To(And(ContainSubstring(machine), ContainSubstring(node), ContainSubstring("(dry run)")))
			w.expectArrived(map[string]string{"node.cluster.x-k8s.io/pool": "gpu"})
		}},
		{page: uninstall, starts: "kubectl heirloom release --stop", follows: func(w *walk, printed string) {
			w.Expect(printed).To(And(ContainSubstring(machine), ContainSubstring(node), Not(ContainSubstring("(dry run)"))))
			w.expectReleased()
		}},
		{page: uninstall, starts: "kubectl --namespace heirloom-system wait job", follows: func(w *walk, printed string) {
			// A second run finds nothing left.
			w.Expect(printed).To(And(ContainSubstring("condition met"), Not(ContainSubstring(" released"))))
			w.expectReleased()
		}},
	}
}
